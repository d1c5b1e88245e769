"""CSAM: SAM whose outer loss gives less weight to examples with confident labels (Tan et al. 2026, Eq. 4)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.errors import BadInput
from surefoot.loss import Loss, LossLike, as_loss, wide
from surefoot.optim.base import Closure
from surefoot.optim.sam import SAM
from surefoot.optim.two_pass import entropy_coefficients
from surefoot.validation import check_non_negative

__all__ = ["CSAM", "OuterLoss", "confidence_weight"]


def confidence_weight(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """The factor of Eq. 4: 1 where p̃_y ≤ ½, else (1 + p̃_y)^{−γ}; differentiable, in float32 or better.

    Eq. 4 jumps down at ½ by the factor 1.5^{−γ}. The gradient does not see the jump.

    Args:
        logits: (n, k).
        labels: (n,) integers.
        gamma: γ.

    Returns:
        (n,) the factor of each example.

    Example:
        >>> confidence_weight(torch.zeros(1, 4), torch.tensor([0]), gamma=1.0)
        tensor([1.])

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization", Eq. 4.
    """
    p = torch.softmax(wide(logits), dim=1).gather(1, labels[:, None]).squeeze(1)
    return torch.where(p > 0.5, (1 + p) ** -gamma, 1.0)


class CSAM(SAM):
    """Calibrated SAM: the perturbation follows the plain mean loss, the step follows Eq. 4.

    The loss must go through `outer`, which knows the pass in which it is called.

    Args:
        base: any optimizer that takes one gradient a step.
        rho: ρ ≥ 0; the paper takes 0.05 for CIFAR-10 and 0.2 for CIFAR-100.
        gamma: γ from 0 (SAM) to 2; the paper takes 0.5, 1 or 2, and larger γ with smaller ρ.
        detach: treat the weight as a constant instead of differentiating through it.
        per_rank: as of `SAM`.

    Raises:
        BadInput: if an argument is out of its range, or ``base`` is no optimizer of one gradient a step.

    Warns:
        UserWarning: if ``gamma`` is above 2, where the paper shows that calibration gets worse.

    Example:
        >>> model = nn.Linear(2, 3)
        >>> opt = CSAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.05, gamma=1.0)
        >>> criterion = opt.outer(nn.CrossEntropyLoss())
        >>> def closure():
        ...     loss = criterion(model(torch.ones(4, 2)), torch.tensor([0, 1, 2, 0]))
        ...     loss.backward()
        ...     return loss
        >>> loss = opt.step(closure)
        >>> sorted(opt.last)
        ['epsilon', 'lambda', 'lambda0', 'loss', 'perturbed_loss']

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization", Eq. 4.
    """

    def __init__(
        self, base: Optimizer, rho: float = 0.05, gamma: float = 1.0, detach: bool = False, per_rank: bool = False
    ) -> None:
        self.gamma, self.detach = check_non_negative("gamma", gamma), detach
        if self.gamma > 2:
            warnings.warn(
                f"gamma = {gamma:g} is above 2, where Tan et al. (2026) show that calibration gets worse; "
                "take 0.5, 1 or 2",
                stacklevel=2,
            )
        self._plain = _Mean()
        self._used = self._summed = False
        super().__init__(base, rho, per_rank)

    def outer(self, loss: LossLike) -> OuterLoss:
        """``loss`` as the criterion for the closure: the plain mean, and in the second pass Eq. 4.

        Args:
            loss: whatever `surefoot.losses.as_loss` takes. CSAM weights the per-example values, and leaves a term of
                the whole batch unweighted. The criterion returns a sum if ``loss`` has ``reduction="sum"``, else a
                mean.

        Returns:
            ``criterion(logits, labels) -> scalar``.

        Raises:
            BadInput: if ``loss`` is no loss.
        """
        return OuterLoss(self, loss)

    def weighted(self, logits: Tensor, labels: Tensor, values: Tensor, summed: bool = False) -> Tensor:
        """Weight per-example values as the current pass requires.

        Args:
            logits: (n, k).
            labels: (n,) integers.
            values: (n,) per-example values of the loss.
            summed: whether the closure's loss is the sum of the values.

        Returns:
            (n,) the weighted values.
        """
        self._used, self._summed = True, summed
        self._plain.add(values.detach())
        if self.phase != "descent" or self.gamma == 0:
            return values
        weight = confidence_weight(logits, labels, self.gamma)
        return (weight.detach() if self.detach else weight) * values

    def _pass(self, phase: str, parameters: Sequence[Tensor], closure: Closure) -> Any:
        self._plain, self._used, self._summed = _Mean(), False, False
        loss = super()._pass(phase, parameters, closure)
        if self.gamma and not self._used:
            raise BadInput(
                "the closure never used CSAM's criterion; take criterion = opt.outer(loss) and call it there"
            )
        return loss

    def _losses(self, before: float, after: float, slope: float) -> dict[str, float]:
        # Eq. 4 is no cross-entropy, so λ uses the plain loss at the perturbed point, and means for a summed loss.
        n = self._plain.count if self._summed else 1
        plain = n * self.over_ranks(self._plain.value) if self._used and not math.isnan(after) else after
        return {"loss": before, "perturbed_loss": plain, **entropy_coefficients(before / n, plain / n, slope / n)}


class OuterLoss(nn.Module):
    """A loss whose per-example values a `CSAM` step weights; outside a step, the plain loss.

    Args:
        optimizer: the `CSAM` whose pass decides the weights.
        loss: whatever `surefoot.losses.as_loss` takes.

    Raises:
        BadInput: if ``loss`` is no loss.
    """

    def __init__(self, optimizer: CSAM, loss: LossLike) -> None:
        super().__init__()
        self._optimizer, self.loss = optimizer, as_loss(loss)
        self._sums = getattr(loss, "reduction", "mean") == "sum"
        self._widens = isinstance(loss, Loss)  # torch's losses and functions keep half precision

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            logits: (n, k).
            labels: (n,) integers from 0 to k − 1.

        Returns:
            Scalar; the mean over the examples, or the sum for a loss with ``reduction="sum"``.

        Raises:
            BadInput: if the labels are not integers (n,), or lie out of range.
        """
        if labels.is_floating_point() or labels.shape != logits.shape[:1] or logits.ndim != 2:
            raise BadInput(
                "CSAM weighs examples by the probability of their label: logits must have shape (n, k) and labels be n "
                f"integers (not mixed ones); got {tuple(logits.shape)} and {labels.dtype} {tuple(labels.shape)}"
            )
        if self._optimizer.phase != "descent":  # the second pass sees the labels of the first pass
            _check_range(labels, logits.shape[1])
        logits = wide(logits) if self._widens else logits
        self.loss.check_masks(logits)
        values, term = self.loss.values(logits, labels), self.loss.term(logits, labels)
        weighted = self._optimizer.weighted(logits, labels, values, self._sums)
        weights = self.loss.example_weights(labels)
        if self._sums:
            return weighted.sum() if term is None else weighted.sum() + len(labels) * term
        mean = weighted.mean() if weights is None else weighted.sum() / weights.sum()
        return mean if term is None else mean + term


def _check_range(labels: Tensor, classes: int) -> None:
    lowest, highest = (int(bound) for bound in labels.aminmax()) if len(labels) else (0, 0)
    if lowest < 0 or highest >= classes:
        raise BadInput(f"labels must lie in 0..{classes - 1}; got {lowest}..{highest}; leave out rows to be ignored")


class _Mean:
    """The mean of values that arrive in micro-batches."""

    def __init__(self) -> None:
        self._sums: list[Tensor] = []
        self.count = 0

    def add(self, values: Tensor) -> None:
        self._sums.append(values.sum())
        self.count += len(values)

    @property
    def value(self) -> float:
        return math.fsum(float(total) for total in self._sums) / self.count if self.count else math.nan
