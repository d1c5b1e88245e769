"""The one table of optimizers, and how a spec's name becomes an optimizer of a model. No torch until one is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from surefoot.errors import BadInput
from surefoot.registry import TAN2026, Citation, OptimizerEntry, table
from surefoot.validation import check_options, suggest

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from surefoot.optim.bulk import Curvature

__all__ = ["OPTIMIZERS", "build_optimizer", "optimizer_entry"]

_SONG2025 = Citation("Song, Ahn and Yun", 2025, "Does SGD Really Happen in Tiny Subspaces?")

# An optimizer around another takes ``base``, one that finds the sharpest directions ``operator``.
OPTIMIZERS: dict[str, OptimizerEntry] = table(
    [
        OptimizerEntry("gd", "surefoot.optim.gd:GD", given=("params",)),
        OptimizerEntry(
            "sgd", "torch.optim:SGD", given=("params", "foreach", "fused", "differentiable", "maximize"),
            citation=Citation("Robbins and Monro", 1951, "A Stochastic Approximation Method"),
        ),
        OptimizerEntry(
            "adamw", "torch.optim:AdamW",
            given=("params", "foreach", "fused", "capturable", "differentiable", "maximize"),
            citation=Citation("Loshchilov and Hutter", 2019, "Decoupled Weight Decay Regularization"),
        ),
        OptimizerEntry(
            "muon", "surefoot.optim.muon:Muon", given=("params",),
            citation=Citation("Jordan et al.", 2024, "Muon: An Optimizer for Hidden Layers in Neural Networks"),
        ),
        OptimizerEntry(
            "bsam", "surefoot.optim.bsam:BSAM", given=("params",), gradients=2,
            citation=Citation("Möllenhoff and Khan", 2023, "SAM as an Optimal Relaxation of Bayes"),
        ),
        OptimizerEntry(
            "sam", "surefoot.optim.sam:SAM", given=("base",), gradients=2,
            citation=Citation(
                "Foret et al.", 2021, "Sharpness-Aware Minimization for Efficiently Improving Generalization"
            ),
        ),
        OptimizerEntry(
            "asam", "surefoot.optim.sam:ASAM", given=("base",), gradients=2,
            citation=Citation(
                "Kwon et al.", 2021,
                "ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant Learning of Deep Neural Networks",
            ),
        ),
        OptimizerEntry(
            "vasso", "surefoot.optim.sam:VASSO", given=("base",), gradients=2,
            citation=Citation(
                "Li and Giannakis", 2023, "Enhancing Sharpness-Aware Optimization Through Variance Suppression"
            ),
        ),
        OptimizerEntry("csam", "surefoot.optim.sam:CSAM", given=("base",), gradients=2, citation=TAN2026),
        OptimizerEntry(
            "bulk", "surefoot.optim.bulk:BulkSGD", given=("params", "operator"), directions={"k": 5, "refresh": 1},
            citation=_SONG2025,
        ),
        OptimizerEntry(
            "dom", "surefoot.optim.bulk:DomSGD", given=("params", "operator"), directions={"k": 5, "refresh": 1},
            citation=_SONG2025,
        ),
    ]
)  # fmt: skip


def optimizer_entry(name: str) -> OptimizerEntry:
    """The entry of an optimizer.

    Args:
        name: of the optimizer, as in `OPTIMIZERS`.

    Returns:
        The entry.

    Raises:
        BadInput: if the name is unknown; the message has the nearest name.

    Example:
        >>> optimizer_entry("sam").gradients
        2
    """
    if name not in OPTIMIZERS:
        raise BadInput(f"optimizer must be one of {', '.join(OPTIMIZERS)}; got {name!r}{suggest(name, OPTIMIZERS)}")
    return OPTIMIZERS[name]


def build_optimizer(
    name: str, model: nn.Module, options: Mapping[str, Any], curvature: Callable[[], Curvature] | None = None
) -> Optimizer:
    """The optimizer ``name`` for the trainable parameters of ``model``.

    Args:
        name: of the optimizer, as in `OPTIMIZERS`.
        model: its trainable parameters are optimized.
        options: of the optimizer. One around another takes ``base``, a table with its ``name``; by default SGD.
        curvature: makes the operator of BulkSGD and DomSGD.

    Returns:
        The optimizer.

    Raises:
        BadInput: if the name, an option or its value is unknown or missing, or the model has no trainable parameter.

    Example:
        >>> from torch import nn
        >>> options = {"rho": 0.1, "base": {"name": "sgd", "lr": 0.5}}
        >>> build_optimizer("sam", nn.Linear(2, 2), options).base.defaults["lr"]
        0.5
    """
    entry, given = optimizer_entry(name), dict(options)
    if "base" in entry.given:
        inner = given.pop("base", {"name": "sgd"})
        if not isinstance(inner, str | Mapping):
            raise BadInput(f"base of {name} must be the name of an optimizer, or a table with a name; got {inner!r}")
        inner = {"name": inner} if isinstance(inner, str) else dict(inner)
        base = build_optimizer(inner.pop("name", "sgd"), model, inner)
        _check(entry, given)
        return _built(entry, base, given)
    _check(entry, given)
    named = [(label, p) for label, p in model.named_parameters() if p.requires_grad]
    if not named:
        raise BadInput("model has no trainable parameter")
    if "operator" in entry.given:
        if curvature is None:
            raise BadInput(f"{name} needs the curvature of the training loss, so it cannot be the base of an optimizer")
        return _built(entry, [p for _, p in named], {"operator": curvature(), **given})
    return _built(entry, named, given)


def _built(entry: OptimizerEntry, around: Any, options: Mapping[str, Any]) -> Optimizer:
    """The optimizer; what torch's own optimizers refuse becomes an error that names the optimizer."""
    try:
        optimizer: Optimizer = entry.build(around, **options)
    except BadInput:
        raise
    except (TypeError, ValueError) as error:
        own = {key: value for key, value in options.items() if key != "operator"}
        raise entry.refusal("optimizer", own, error) from error
    return optimizer


def _check(entry: OptimizerEntry, options: Mapping[str, Any]) -> None:
    accepted = entry.parameters()
    check_options(entry.name, options, list(accepted))
    for option, parameter in accepted.items():
        if parameter.default is parameter.empty and option not in options:
            raise BadInput(f"{entry.name} needs {option}; give it as optimizer.{option}")
