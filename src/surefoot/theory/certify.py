"""Every statement of Morosini et al. (2026) on one model and its data: measure the quantities, then compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from surefoot.curvature import GaussNewton, jacobian_norms
from surefoot.dataset import DatasetLike, as_dataset
from surefoot.errors import BadInput
from surefoot.forward import logits_of
from surefoot.loss import CrossEntropy, LossLike, SquaredError, as_loss
from surefoot.margins.lipschitz import lipschitz
from surefoot.margins.robust import robust
from surefoot.predictions import Predictions
from surefoot.theory.certificate import Certificates
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
    labels: Any = None,
    eps: Any = None,
    *,
    norm: str = "inf",
    method: str = "certified",
    bound: str = "cheap",
    test: DatasetLike | None = None,
    held_out: bool = False,
    confidence: float = 0.95,
    loss: LossLike = "ce",
    bins: int = 15,
) -> Certificates:
    """Check all statements of Morosini et al. (2026) on a model and its data.

    The statements are Theorems 4.1 and 4.2, Lemmas B.1–B.5, Remark B.6, Proposition B.7, Corollary B.8 and Appendix D.

    Args:
        model: a module from inputs to logits (n, k), used in eval mode and not modified.
        inputs: (n, *shape) floating-point numbers. Without ``labels``, a data set: whatever `surefoot.data.as_dataset`
            takes, such as a pair (inputs, labels) or a ``DataLoader``. Its inputs are read into memory.
        labels: (n,) integers in 0..k−1.
        eps: radius of the ball for robust margins, in the units of ``inputs``: one number, or one per channel. None
            leaves out the statements about robust margins.
        norm: norm of the ball, ``"inf"`` or 2.
        method: ``"certified"`` for lower bounds of robust margins; or ``"pgd"``, which makes every statement about
            robust margins an estimate.
        bound: kind of the lower bound; see `surefoot.margins.certified`.
        test: a test set, as (inputs, labels) or another data set, for Proposition B.7 and Corollary B.8; needs ``eps``.
        held_out: whether the model never saw these examples; only then the ECE of the population is bounded too.
        confidence: confidence of the bounds of the population, between 0 and 1.
        loss: the loss that the network was trained by: the cross-entropy (``"ce"``), or the squared error averaged over
            classes (``"mse"``), whose curvature is that of Appendix D. Loss objects of torch and surefoot are accepted.
        bins: number of bins of the ECE, from 1 to 10,000.

    Returns:
        One certificate for every statement and form, in the order of the statements: a list that prints as a table.

    Raises:
        BadInput: when an argument is not as described, or no bound is known for a layer, which the error names.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> with torch.no_grad():
        ...     model.weight[:], model.bias[:] = torch.eye(2), 0.0
        >>> certificates = certify(model, torch.tensor([[2.0, 0.0], [0.0, 1.0]]), [0, 1])
        >>> sorted({certificate.verdict for certificate in certificates})
        ['holds', 'not applicable']

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Section 4 and Appendices B
        and D.
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
    if labels is None:
        inputs, labels = as_dataset("inputs", inputs).take()
    test_set = None if test is None else as_dataset("test", test).take()
    predictions = Predictions.of(model, inputs, labels)
    curvature = curvature_of(model, inputs, labels, trained)
    ball = None if eps is None else robust_of(model, inputs, labels, eps, norm, method, bound)
    sample = Sample(predictions, curvature if by_entropy else None, ball, bins)
    certificates = [
        *lemmas(sample),
        *overlap(sample),
        *interpolating(sample),
        *population(sample, held_out, confidence),
    ]
    if not by_entropy:
        certificates += squared_error(curvature, predictions.classes)
    if test_set is not None and ball is not None:
        certificates += transfer((inputs, labels), test_set, Predictions.of(model, *test_set), ball, eps, norm, bins)
    return Certificates(certificates)


def curvature_of(model: nn.Module, inputs: Any, labels: Any, loss: LossLike = "ce") -> Curvature:
    """Measure λ_max of the Gauss–Newton matrix and the Jacobian norm of every example.

    Args:
        model: a module from inputs to logits (n, k), used in eval mode and not modified.
        inputs: (n, *shape) floating-point numbers.
        labels: (n,) integers in 0..k−1.
        loss: the loss, as `certify` takes it.

    Returns:
        The curvature, with the residual of the eigenpair.
    """
    top = GaussNewton(model, inputs, labels, loss).top(1, tol=1e-3, max_products=300)
    norms = jacobian_norms(model, inputs).double().numpy()
    return Curvature(float(top.values[0]), float(top.residuals[0]), norms)


def robust_of(
    model: nn.Module, inputs: Any, labels: Any, eps: Any, norm: str = "inf", method: str = "certified",
    bound: str = "cheap",
) -> Robust:  # fmt: skip
    """Measure robust margins, and bound the Lipschitz constants of the margins if the margins are certified.

    Args:
        model: a module from inputs to logits (n, k), used in eval mode and not modified.
        inputs: (n, *shape) floating-point numbers.
        labels: (n,) integers in 0..k−1.
        eps: radius of the ball in the units of ``inputs``: one number, one per channel, or one per coordinate.
        norm: norm of the ball, ``"inf"`` or 2.
        method: ``"certified"`` or ``"pgd"``.
        bound: kind of the lower bound; see `surefoot.margins.certified`.

    Returns:
        The robust margins.
    """
    options = {"bound": bound} if method == "certified" else {}
    margins = robust(model, inputs, labels, eps, norm, method, **options).numpy()
    constants = None
    if method == "certified":
        pairs = lipschitz(model, inputs, norm, eps).numpy()
        # z_y − max_j z_j is a minimum over j, so its Lipschitz constant is at most the largest of the pairs.
        constants = np.max(pairs, axis=1)[np.asarray(labels, np.int64)]
    ball = f"‖δ‖_{norm} ≤ {float(eps):.4g}" if np.ndim(eps) == 0 else f"‖δ/ε‖_{norm} ≤ 1"
    logits = logits_of(model, inputs)
    size = float(logits.abs().max()) + float(np.abs(margins).max()) + (0.0 if constants is None else constants.max())
    # `certified` lowers its bounds by 1e-9 of their size; the clean margins have the precision of the model.
    rounding = 1e-8 + 64 * torch.finfo(logits.dtype).eps
    return Robust(margins, constants, method, ball, rounding * size)
