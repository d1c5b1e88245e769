"""Every statement of Morosini et al. (2026) on one model and its data: measure what they speak of, then compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from surefoot.curvature import GaussNewton, jacobian_norms
from surefoot.errors import BadInput
from surefoot.forward import logits_of
from surefoot.loss import CrossEntropy, LossLike, SquaredError, as_loss
from surefoot.margins.lipschitz import lipschitz
from surefoot.margins.robust import robust
from surefoot.predictions import Predictions
from surefoot.theory.certificate import Certificate
from surefoot.theory.interpolating import interpolating
from surefoot.theory.lemmas import lemmas
from surefoot.theory.overlap import overlap
from surefoot.theory.population import population
from surefoot.theory.sample import Curvature, Robust, Sample
from surefoot.theory.squared_error import squared_error
from surefoot.theory.transfer import transfer

__all__ = ["certify", "curvature_of", "robust_of"]


def certify(
    model: nn.Module,
    inputs: Any,
    labels: Any,
    eps: Any = None,
    *,
    norm: str = "inf",
    method: str = "certified",
    bound: str = "cheap",
    test: tuple[Any, Any] | None = None,
    held_out: bool = False,
    confidence: float = 0.95,
    loss: LossLike = "ce",
    bins: int = 15,
) -> list[Certificate]:
    """Theorems 4.1 and 4.2, Lemmas B.1–B.5, Remark B.6, Proposition B.7, Corollary B.8 and Appendix D.

    Args:
        eps: radius of the ball for robust margins, in the units of ``inputs``, a scalar or one for each channel;
            without it statements about robust margins are left out.
        method: ``"certified"`` for lower bounds of robust margins, or ``"pgd"``: what rests on those is an estimate.
        bound: which lower bound; see `surefoot.margins.certified`.
        test: (inputs, labels) of a test set, for Corollary B.8; needs ``eps``.
        held_out: whether the model never saw these examples; then the population's ECE is bounded, too.
        loss: the cross-entropy, or ``"mse"`` for a network trained by squared error: curvature is then Appendix D's;
            torch's or surefoot's objects for the two are taken, too.
    """
    trained = as_loss(loss)
    by_entropy = type(trained) is CrossEntropy
    if not by_entropy and not (isinstance(trained, SquaredError) and trained.convention == "mean"):
        raise BadInput(
            f"the theorems are of the cross-entropy (loss='ce') and of the squared error averaged over classes "
            f"(loss='mse'); got {trained!r}"
        )
    if test is not None and eps is None:
        raise BadInput("a test set is compared through robust margins; give eps")
    if test is not None and not (isinstance(test, tuple | list) and len(test) == 2):
        raise BadInput(f"test must be a pair (inputs, labels); got {type(test).__name__}")
    predictions = Predictions.of(model, inputs, labels)
    curvature = curvature_of(model, inputs, labels, trained)
    ball = None if eps is None else robust_of(model, inputs, labels, eps, norm, method, bound)
    sample = Sample(predictions, curvature if by_entropy else None, ball, bins)
    found = [*lemmas(sample), *overlap(sample), *interpolating(sample), *population(sample, held_out, confidence)]
    if not by_entropy:
        found += squared_error(curvature, predictions.classes)
    if test is not None and ball is not None:
        found += transfer((inputs, labels), test, Predictions.of(model, *test), ball, eps, norm, bins)
    return found


def curvature_of(model: nn.Module, inputs: Any, labels: Any, loss: LossLike = "ce") -> Curvature:
    """λ_max of the Gauss–Newton matrix with its residual, and each example's Jacobian norm."""
    top = GaussNewton(model, inputs, labels, loss).top(1, tol=1e-3, max_matvecs=300)
    norms = jacobian_norms(model, inputs).double().numpy()
    return Curvature(float(top.values[0]), float(top.residuals[0]), norms)


def robust_of(
    model: nn.Module, inputs: Any, labels: Any, eps: Any, norm: str = "inf", method: str = "certified",
    bound: str = "cheap",
) -> Robust:  # fmt: skip
    """Robust margins and, for certified ones, the Lipschitz constants of the margins over the ball."""
    options = {"bound": bound} if method == "certified" else {}
    margins = robust(model, inputs, labels, eps, norm, method, **options).numpy()
    constants = None
    if method == "certified":
        pairs = lipschitz(model, inputs, norm, eps).numpy()
        # z_y − max_j z_j is a minimum over j: as steep as the steepest of its pairs.
        constants = np.max(pairs, axis=1)[np.asarray(labels, np.int64)]
    ball = f"‖δ‖_{norm} ≤ {float(eps):.4g}" if np.ndim(eps) == 0 else f"‖δ/ε‖_{norm} ≤ 1"
    logits = logits_of(model, inputs)
    size = float(logits.abs().max()) + float(np.abs(margins).max()) + (0.0 if constants is None else constants.max())
    # `certified` lowers its bounds by 1e-9 of what they are made of; the clean margins have the model's own precision.
    rounding = 1e-8 + 64 * torch.finfo(logits.dtype).eps
    return Robust(margins, constants, method, ball, rounding * size)
