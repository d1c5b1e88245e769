"""Robust true margins m_ε(x, y) = inf over a ball around x of z_y − max_{j≠y} z_j (Morosini et al. 2026, Section 4)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from surefoot.errors import BadInput
from surefoot.margins.certified import certified
from surefoot.margins.pgd import pgd
from surefoot.validation import check_options, suggest

__all__ = ["robust"]

_METHODS: dict[str, Callable[..., Tensor]] = {"pgd": pgd, "certified": certified}


def robust(
    model: nn.Module, inputs: Any, labels: Any, eps: Any, norm: Any = "inf", method: str = "pgd", **options: Any
) -> Tensor:
    """(n,) float64 robust margins: estimated from above (``"pgd"``) or bounded from below (``"certified"``).

    The true value lies between the two. Only the second proves anything: where it is positive, no point of the ball is
    classified differently.

    Args:
        model: used in eval mode and left as it is; any for ``"pgd"``, of known layers for ``"certified"``.
        inputs: (n, *shape).
        labels: (n,).
        eps: the radius in the units of ``inputs``, at least 0: one number, one per channel, or one per coordinate;
            with several numbers the 2-norm's ball is the ellipsoid ‖δ/ε‖₂ ≤ 1.
        norm: ``"inf"`` or 2.
        method: ``"pgd"`` or ``"certified"``.
        options: of the method, see `pgd` and `certified`.

    >>> import torch
    >>> model = nn.Linear(2, 2).requires_grad_(False)
    >>> model.weight[:], model.bias[:] = torch.eye(2), 0.0
    >>> x = torch.tensor([[2.0, 0.5]])
    >>> [round(float(robust(model, x, [0], 0.5, method=method)), 6) for method in ("pgd", "certified")]
    [0.5, 0.5]
    """
    if method not in _METHODS:
        raise BadInput(f"method must be one of {', '.join(_METHODS)}; got {method!r}{suggest(str(method), _METHODS)}")
    function = _METHODS[method]
    given = inspect.signature(robust).parameters
    check_options(
        f"method {method!r}", options, [name for name in inspect.signature(function).parameters if name not in given]
    )
    return function(model, inputs, labels, eps, norm, **options)
