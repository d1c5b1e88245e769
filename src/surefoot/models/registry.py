"""The table from names in specs to networks for inputs of a given shape."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from surefoot.errors import BadInput
from surefoot.models.cnn import LeNet, SmallCNN
from surefoot.models.mlp import MLP
from surefoot.models.pyramidnet import PyramidNet
from surefoot.models.resnet import CifarResNet, ResNet
from surefoot.models.vit import ViT
from surefoot.models.wide_resnet import WideResNet
from surefoot.validation import check_options, suggest

__all__ = ["MODELS", "build_model"]

# name -> constructor, and the properties of the data that the constructor takes: features, channels, size. A network
# that takes none needs images of three channels.
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
    """Build a network by name.

    Args:
        name: a name in `MODELS`.
        shape: shape of one input, without the batch.
        classes: number of classes k.
        options: further arguments of the network's class.

    Returns:
        The network, with freshly initialised weights.

    Raises:
        BadInput: when there is no such network or option, an option is out of range, or the network needs images of
            another shape.

    Example:
        >>> build_model("mlp", (8, 8), 10, widths=[32]).layers[1].in_features
        64
    """
    if name not in MODELS:
        raise BadInput(f"model must be one of {', '.join(MODELS)}; got {name!r}{suggest(name, MODELS)}")
    build, properties = MODELS[name]
    if properties != ("features",) and (len(shape) != 3 or ("channels" not in properties and shape[0] != 3)):
        raise BadInput(f"{name} takes images of 3 channels, (3, h, w); these inputs have shape {shape}")
    known = {"features": math.prod(shape), "channels": shape[0], "size": shape[-1]}
    given = {key: known[key] for key in properties}
    accepted = [option for option in inspect.signature(build).parameters if option not in (*given, "classes")]
    check_options(name, options, accepted)
    return build(**given, classes=classes, **options)
