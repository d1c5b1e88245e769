"""Robust margins m_ε(x, y) = inf over a ball around x of z_y − max_{j≠y} z_j (Morosini et al. 2026, Section 4)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput
from surefoot.margins.certified import certified
from surefoot.margins.pgd import pgd
from surefoot.validation import check_options, suggest

__all__ = ["robust"]

_METHODS: dict[str, Callable[..., Tensor]] = {"pgd": pgd, "certified": certified}


@renamed_arguments(step="step_size", random="random_start")
def robust(
    model: nn.Module, inputs: Any, labels: Any, eps: Any, norm: Any = "inf", method: str = "pgd", **options: Any
) -> Tensor:
    """Compute robust margins m_ε = inf over the ball of z_y − max_{j≠y} z_j.

    ``"pgd"`` estimates the robust margins from above by an attack. ``"certified"`` bounds the robust margins from
    below. The true value is between the two. Only the lower bound proves anything: where it is positive, all points of
    the ball have the same predicted class.

    Args:
        model: a module from inputs to logits (n, k), used in eval mode and not modified; any module for ``"pgd"``, a
            module of known layers for ``"certified"``.
        inputs: (n, *shape) finite floating-point numbers.
        labels: (n,) integers in 0..k−1.
        eps: the radius in the units of ``inputs``, at least 0: one number, one per channel, or one per coordinate;
            with several numbers the ball of the 2-norm is the ellipsoid ‖δ/ε‖₂ ≤ 1.
        norm: ``"inf"`` or 2.
        method: ``"pgd"`` or ``"certified"``.
        options: options of the method; see `pgd` and `certified`.

    Returns:
        (n,) float64 robust margins.

    Raises:
        BadInput: when an argument is not as described, or ``"certified"`` knows no bound for a layer of the model.

    Example:
        >>> import torch
        >>> model = nn.Linear(2, 2).requires_grad_(False)
        >>> model.weight[:], model.bias[:] = torch.eye(2), 0.0
        >>> x = torch.tensor([[2.0, 0.5]])
        >>> [round(float(robust(model, x, [0], 0.5, method=method)), 6) for method in ("pgd", "certified")]
        [0.5, 0.5]

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Section 4.
    """
    if method not in _METHODS:
        raise BadInput(f"method must be one of {', '.join(_METHODS)}; got {method!r}{suggest(str(method), _METHODS)}")
    function = _METHODS[method]
    given = inspect.signature(robust).parameters
    check_options(
        f"method {method!r}", options, [name for name in inspect.signature(function).parameters if name not in given]
    )
    return function(model, inputs, labels, eps, norm, **options)
