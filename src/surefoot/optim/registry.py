"""The one table from names, as specs write them, to step rules for a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from surefoot.errors import BadInput
from surefoot.optim.bsam import BSAM
from surefoot.optim.bulk import BulkSGD, Curvature, DomSGD
from surefoot.optim.csam import CSAM
from surefoot.optim.gd import GD
from surefoot.optim.muon import Muon
from surefoot.optim.sam import ASAM, SAM, VASSO
from surefoot.validation import check_options, suggest

__all__ = ["RULES", "build_optimizer"]

# name -> class, and what it is built around: the parameters, another rule, or a curvature operator.
RULES: dict[str, tuple[Callable[..., Optimizer], str]] = {
    "gd": (GD, "parameters"),
    "sgd": (SGD, "parameters"),
    "adamw": (AdamW, "parameters"),
    "muon": (Muon, "parameters"),
    "bsam": (BSAM, "parameters"),
    "sam": (SAM, "base"),
    "asam": (ASAM, "base"),
    "vasso": (VASSO, "base"),
    "csam": (CSAM, "base"),
    "bulk": (BulkSGD, "operator"),
    "dom": (DomSGD, "operator"),
}
# Given by the caller or of no use in a spec.
_OWN = {"params", "base", "operator", "foreach", "fused", "capturable", "differentiable", "maximize"}


def build_optimizer(
    name: str, model: nn.Module, options: Mapping[str, Any], curvature: Callable[[], Curvature] | None = None
) -> Optimizer:
    """The rule ``name`` for the trainable parameters of ``model``.

    Rules around another take ``options["base"]``, a table with its ``name``; by default SGD. ``curvature()`` makes the
    operator of BulkSGD and DomSGD.

    >>> build_optimizer("sam", nn.Linear(2, 2), {"rho": 0.1, "base": {"name": "sgd", "lr": 0.5}}).base.defaults["lr"]
    0.5
    """
    build, around = _found(name)
    given = dict(options)
    if around == "base":
        inner = given.pop("base", {"name": "sgd"})
        inner = {"name": inner} if isinstance(inner, str) else dict(inner)
        base = build_optimizer(inner.pop("name", "sgd"), model, inner)
        _check(name, build, given)
        return _built(name, build, base, given)
    _check(name, build, given)
    named = [(label, p) for label, p in model.named_parameters() if p.requires_grad]
    if not named:
        raise BadInput("model has no trainable parameter")
    if around == "operator":
        if curvature is None:
            raise BadInput(f"{name} needs the curvature of the training loss, so it cannot be the base of an optimizer")
        return _built(name, build, [p for _, p in named], {"operator": curvature(), **given})
    return _built(name, build, named, given)


def _built(name: str, build: Callable[..., Optimizer], around: Any, options: Mapping[str, Any]) -> Optimizer:
    """The rule; what torch's own optimizers refuse becomes an error that names the rule."""
    try:
        return build(around, **options)
    except BadInput:
        raise
    except (TypeError, ValueError) as error:
        shown = ", ".join(f"{key}={value!r}" for key, value in options.items() if key != "operator")
        raise BadInput(f"optimizer {name} cannot take {shown}: {' '.join(str(error).split())}") from error


def _found(name: str) -> tuple[Callable[..., Optimizer], str]:
    if name not in RULES:
        raise BadInput(f"optimizer must be one of {', '.join(RULES)}; got {name!r}{suggest(name, RULES)}")
    return RULES[name]


def _check(name: str, build: Callable[..., Optimizer], options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(build).parameters
    accepted = [each for each in parameters if each not in _OWN]
    check_options(name, options, accepted)
    for each in accepted:
        if parameters[each].default is inspect.Parameter.empty and each not in options:
            raise BadInput(f"{name} needs {each}; give it as optimizer.{each}")
