"""SAM, ASAM, VASSO and CSAM: the gradient at the worst point nearby.

ASAM and VASSO search for this point in other ways. CSAM's outer loss gives less weight to examples with confident
labels (Tan et al. 2026, Eq. 4).
"""

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
from surefoot.optim.base import Closure, total_norm
from surefoot.optim.two_pass import Ascent, TwoPass, entropy_coefficients
from surefoot.validation import check_non_negative

__all__ = ["ASAM", "CSAM", "SAM", "VASSO", "OuterLoss", "confidence_weight"]


class SAM(TwoPass):
    """Sharpness-aware minimisation: ε = ρ g / ‖g‖₂, the norm over all groups (Foret et al. 2021).

    Args:
        base: any optimizer that takes one gradient a step.
        rho: ρ ≥ 0; a parameter group may carry its own under ``"rho"``.
        per_rank: for a batch on several ranks, let each rank perturb by the gradient of its own part (m-sharpness), not
            of the whole batch. See ``alone`` of `TwoPass`.

    Raises:
        BadInput: if an argument is out of its range, or ``base`` is no optimizer of one gradient a step.

    Example:
        >>> model = torch.nn.Linear(2, 2)
        >>> opt = SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.05)
        >>> def closure():
        ...     loss = model(torch.ones(1, 2)).square().sum()
        ...     loss.backward()
        ...     return loss
        >>> loss = opt.step(closure)
        >>> round(opt.last["epsilon"], 6)
        0.05

    References:
        Foret et al. (2021), "Sharpness-Aware Minimization for Efficiently Improving Generalization".
    """

    def __init__(self, base: Optimizer, rho: float = 0.05, per_rank: bool = False) -> None:
        super().__init__(base, rho, per_rank)

    def ascent(self, parameters: list[Tensor], gradients: list[Tensor], norm: float) -> Ascent:
        """The direction g."""
        return Ascent(gradients, norm, length=norm, slope=norm**2)


class ASAM(TwoPass):
    """Adaptive SAM: ε = ρ T² g / ‖T g‖₂ with T = |w| + η, so that rescaling layers changes nothing (Kwon et al. 2021).

    T applies to parameters whose names contain ``weight``, if ``base`` was made from ``model.named_parameters()``.
    Without names, T applies to parameters of two or more dimensions. T is 1 for all other parameters.

    Args:
        base: any optimizer that takes one gradient a step.
        rho: ρ ≥ 0; the authors take 0.5 for CIFAR-10 and 1.0 for CIFAR-100.
        eta: η ≥ 0; the authors' default is 0.01, their CIFAR script takes 0.
        per_rank: as of `SAM`.

    Raises:
        BadInput: if an argument is out of its range, or ``base`` is no optimizer of one gradient a step.

    Example:
        >>> model = torch.nn.Linear(2, 2)
        >>> ASAM(torch.optim.SGD(model.parameters(), lr=0.1)).param_groups[0]["rho"]
        0.5

    References:
        Kwon et al. (2021), "ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant Learning of Deep Neural
        Networks".
    """

    def __init__(self, base: Optimizer, rho: float = 0.5, eta: float = 0.01, per_rank: bool = False) -> None:
        self._eta = check_non_negative("eta", eta)
        super().__init__(base, rho, per_rank)

    def ascent(self, parameters: list[Tensor], gradients: list[Tensor], norm: float) -> Ascent:
        """The direction T² g."""
        adaptive = self._adaptive()
        chosen = [(p, g) for p, g in zip(parameters, gradients, strict=True) if p in adaptive]
        if not chosen:
            return Ascent(gradients, norm, length=norm, slope=norm**2)
        factors = torch._foreach_abs([p.detach() for p, _ in chosen])
        torch._foreach_add_(factors, self._eta)
        scaled = [g for _, g in chosen]
        torch._foreach_mul_(scaled, factors)
        size = total_norm(gradients)  # ‖T g‖, whose square is ⟨g, T² g⟩
        torch._foreach_mul_(scaled, factors)
        return Ascent(gradients, size, length=total_norm(gradients), slope=size**2)

    def _adaptive(self) -> set[Tensor]:
        adaptive = set()
        for group in self.param_groups:
            names = group.get("param_names")
            for index, p in enumerate(group["params"]):
                if "weight" in names[index] if names else p.ndim >= 2:
                    adaptive.add(p)
        return adaptive


class VASSO(TwoPass):
    """SAM along an average of the gradients: d ← (1 − θ) d + θ g, ε = ρ d / ‖d‖₂ (Li & Giannakis 2023).

    The average of each parameter is part of the state_dict, and therefore the same on all ranks. A step whose gradient
    is not finite leaves the average unchanged.

    Args:
        base: any optimizer that takes one gradient a step.
        rho: ρ ≥ 0.
        theta: θ in (0, 1]; 1 is SAM. The authors take 0.9.

    Raises:
        BadInput: if an argument is out of its range, or ``base`` is no optimizer of one gradient a step.

    Example:
        >>> model = torch.nn.Linear(2, 2)
        >>> VASSO(torch.optim.SGD(model.parameters(), lr=0.1)).param_groups[0]["rho"]
        0.05

    References:
        Li and Giannakis (2023), "Enhancing Sharpness-Aware Optimization Through Variance Suppression".
    """

    remembers = ("direction",)

    def __init__(self, base: Optimizer, rho: float = 0.05, theta: float = 0.9) -> None:
        if isinstance(theta, bool) or not isinstance(theta, int | float) or not 0 < theta <= 1:
            raise BadInput(f"theta must lie above 0 and at most at 1; got {theta!r}")
        self._theta = float(theta)
        super().__init__(base, rho)

    def ascent(self, parameters: list[Tensor], gradients: list[Tensor], norm: float) -> Ascent:
        """The direction d."""
        for p, g in zip(parameters, gradients, strict=True):
            if p not in self._memory:
                self._memory[p] = {"direction": g.clone()}
        directions = [self._memory[p]["direction"] for p in parameters]
        torch._foreach_lerp_(directions, gradients, self._theta)
        length = total_norm(directions)
        slope = sum(float(torch.dot(d.flatten(), g.flatten())) for d, g in zip(directions, gradients, strict=True))
        return Ascent(directions, length, length=length, slope=slope)


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
