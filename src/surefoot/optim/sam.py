"""SAM, ASAM and VASSO: the gradient at the worst point nearby, with three ways to search for this point."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.errors import BadInput
from surefoot.optim.base import total_norm
from surefoot.optim.two_pass import Ascent, TwoPass
from surefoot.validation import check_non_negative

__all__ = ["ASAM", "SAM", "VASSO"]


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
