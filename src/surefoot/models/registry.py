"""The table from names in specs to networks for inputs of a given shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from surefoot.errors import BadInput
from surefoot.registry import Citation, Entry, table
from surefoot.validation import check_options, suggest

if TYPE_CHECKING:
    from torch import nn

__all__ = ["MODELS", "build_model"]

_HE2016 = Citation("He et al.", 2016, "Deep Residual Learning for Image Recognition")
_DOSOVITSKIY2021 = Citation(
    "Dosovitskiy et al.", 2021, "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale"
)

# A model takes what it is given of the inputs: their features, or channels and size; else images of three channels.
MODELS: dict[str, Entry] = table(
    [
        Entry("mlp", "surefoot.models.mlp:MLP", given=("features", "classes")),
        Entry(
            "lenet", "surefoot.models.cnn:LeNet", given=("channels", "size", "classes"),
            citation=Citation("LeCun et al.", 1998, "Gradient-Based Learning Applied to Document Recognition"),
        ),
        Entry("cnn", "surefoot.models.cnn:SmallCNN", given=("channels", "classes")),
        *(
            Entry(
                f"resnet{depth}", "surefoot.models.resnet:CifarResNet", fixed={"depth": depth}, given=("classes",),
                citation=_HE2016,
            )
            for depth in (20, 32, 44, 56, 110)
        ),
        *(
            Entry(
                f"resnet{depth}", "surefoot.models.resnet:ResNet", fixed={"depth": depth}, given=("classes",),
                citation=_HE2016,
            )
            for depth in (18, 50)
        ),
        Entry(
            "wrn", "surefoot.models.wide_resnet:WideResNet", given=("classes",),
            citation=Citation("Zagoruyko and Komodakis", 2016, "Wide Residual Networks"),
        ),
        Entry(
            "pyramidnet", "surefoot.models.pyramidnet:PyramidNet", given=("classes",),
            citation=Citation("Han, Kim and Kim", 2017, "Deep Pyramidal Residual Networks"),
        ),
        *(
            Entry(
                f"vit_s{patch}", "surefoot.models.vit:ViT", fixed={"patch": patch}, given=("size", "classes"),
                citation=_DOSOVITSKIY2021,
            )
            for patch in (16, 32)
        ),
    ]
)  # fmt: skip


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
    entry = MODELS[name]
    if "features" not in entry.given and (len(shape) != 3 or ("channels" not in entry.given and shape[0] != 3)):
        raise BadInput(f"{name} takes images of 3 channels, (3, h, w); these inputs have shape {shape}")
    check_options(name, options, list(entry.parameters()))
    facts = {"features": math.prod(shape), "channels": shape[0], "size": shape[-1], "classes": classes}
    try:
        model: nn.Module = entry.build(**{fact: facts[fact] for fact in entry.given}, **options)
    except BadInput:
        raise
    except (TypeError, ValueError) as error:
        raise entry.refusal("model", options, error) from error
    return model
