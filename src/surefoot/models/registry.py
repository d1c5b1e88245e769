"""The one table from names, as specs write them, to networks for inputs of a given shape."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from surefoot.errors import BadInput
from surefoot.models.cnn import LeNet, SmallCNN
from surefoot.models.deep_resnet import ResNet
from surefoot.models.mlp import MLP
from surefoot.models.pyramidnet import PyramidNet
from surefoot.models.resnet import CifarResNet
from surefoot.models.vit import ViT
from surefoot.models.wide_resnet import WideResNet
from surefoot.validation import check_options, suggest

__all__ = ["MODELS", "build_model"]

# name -> constructor, and which facts of the data it takes: features, channels, size; images of three channels if none.
MODELS: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    "mlp": (MLP, ("features",)),
    "lenet": (LeNet, ("channels", "size")),
    "cnn": (SmallCNN, ("channels",)),
    **{f"resnet{depth}": (partial(CifarResNet, depth), ()) for depth in (20, 32, 44, 56, 110)},
    "resnet18": (partial(ResNet, 18), ()),
    "resnet50": (partial(ResNet, 50), ()),
    "wrn": (WideResNet, ()),
    "pyramidnet": (PyramidNet, ()),
    "vit_s16": (partial(ViT, 16), ("size",)),
    "vit_s32": (partial(ViT, 32), ("size",)),
}


def build_model(name: str, shape: tuple[int, ...], classes: int, **options: Any) -> nn.Module:
    """The network ``name`` for inputs of ``shape`` (without the batch) and ``classes``, with its own options.

    >>> build_model("mlp", (8, 8), 10, widths=[32]).layers[1].in_features
    64
    """
    if name not in MODELS:
        raise BadInput(f"model must be one of {', '.join(MODELS)}; got {name!r}{suggest(name, MODELS)}")
    build, facts = MODELS[name]
    if facts != ("features",) and (len(shape) != 3 or ("channels" not in facts and shape[0] != 3)):
        raise BadInput(f"{name} takes images of 3 channels, (3, h, w); these inputs have shape {shape}")
    known = {"features": math.prod(shape), "channels": shape[0], "size": shape[-1]}
    given = {fact: known[fact] for fact in facts}
    accepted = [each for each in inspect.signature(build).parameters if each not in (*given, "classes")]
    check_options(name, options, accepted)
    return build(**given, classes=classes, **options)
