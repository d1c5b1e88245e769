"""bSAM: SAM as a relaxed Bayes objective, with a variance for every weight (Möllenhoff & Khan 2023)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from surefoot.errors import BadInput
from surefoot.optim.base import (
    BaseOptimizer,
    Closure,
    Leftovers,
    betas_of,
    fresh_gradients,
    random_state,
    replayed,
    stored,
    total_norm,
)
from surefoot.validation import check_non_negative, check_positive

__all__ = ["BSAM"]


class BSAM(BaseOptimizer):
    """Bayesian SAM: a Gaussian N(w, 1/(N s)) over the weights, moved by gradients at noisy and at perturbed weights.

    A step draws θ = w + ξ/√(N s) and takes the gradient g at θ. The step then takes the gradient g̃ at the perturbed
    mean w + ρ g/s, and sets

        m ← β₁ m + (1 − β₁)(g̃ + δ w),   w ← w − lr · m/s,   s ← β₂ s + (1 − β₂)(√s |g| + damping + δ),

    with δ = prior_precision/N. The authors draw noise for each of eight parts of a batch. To do so, give ``step`` a
    list of closures, one for each part. Random numbers of the noise come from torch's generator. There is no support
    for a GradScaler: train in float32 or bfloat16.

    Args:
        params: parameters, named or not, or groups of them.
        examples: N > 0, the number of training examples. With data augmentation the authors count each example four
            times.
        lr: step size, at least 0. The defaults of ``lr`` to ``damping`` are the authors' for CIFAR-10.
        rho: ρ ≥ 0.
        betas: β₁ and β₂, both in [0, 1).
        prior_precision: precision of the prior, at least 0.
        damping: added to the precision's update, above 0.
        noise: draw θ. Without noise, the first gradient is taken at w.

    Attributes:
        last: ``epsilon``, the mean ‖ε‖₂ over the parts of the last step.

    Raises:
        BadInput: if an argument is out of its range, or a parameter group is empty.

    Example:
        >>> model = torch.nn.Linear(2, 2)
        >>> opt = BSAM(model.parameters(), examples=100)
        >>> def closure():
        ...     loss = model(torch.ones(1, 2)).square().sum()
        ...     loss.backward()
        ...     return loss
        >>> loss = opt.step(closure)
        >>> list(opt.last)
        ['epsilon']

    References:
        Möllenhoff and Khan (2023), "SAM as an Optimal Relaxation of Bayes".
    """

    needs_closure = True

    def __init__(
        self,
        params: Iterable[Any],
        examples: int,
        lr: float = 0.5,
        rho: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        prior_precision: float = 40.0,
        damping: float = 0.1,
        noise: bool = True,
    ) -> None:
        defaults = {
            "lr": check_non_negative("lr", lr),
            "rho": check_non_negative("rho", rho),
            "betas": betas_of(betas),
            "prior_precision": check_non_negative("prior_precision", prior_precision),
            "damping": check_positive("damping", damping),
        }
        self._examples, self._noise = check_positive("examples", examples), noise
        self._leftovers = Leftovers()
        self.last: dict[str, float] = {}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Closure | Sequence[Closure] | None = None) -> Any:
        """Take one step.

        Args:
            closure: computes the loss, calls ``backward`` and returns the loss; or a sequence of closures, one for each
                part of the batch.

        Returns:
            The loss at the noisy weights, the mean over the parts.

        Raises:
            BadInput: if a closure is missing or leaves no gradient, or gradients were computed before the step.
        """
        closures = list(closure) if isinstance(closure, Sequence) else [closure]
        if not closures or any(part is None for part in closures):
            raise BadInput(
                "BSAM.step needs a closure, or one for each part of the batch: two gradients are taken in a step"
            )
        parameters = [p for group in self.param_groups for p in group["params"]]
        self._leftovers.refuse_others(parameters)
        self._begin(parameters)
        magnitudes = [torch.zeros_like(p) for p in parameters]
        gradients = [torch.zeros_like(p) for p in parameters]
        touched: set[Tensor] = set()
        losses, sizes = [], []
        for part in closures:
            assert part is not None
            loss, size = self._part(parameters, part, magnitudes, gradients, touched, 1.0 / len(closures))
            losses.append(loss)
            sizes.append(size)
        self._update(parameters, magnitudes, gradients, touched)
        self._leftovers.remember(parameters)
        self.last = {"epsilon": sum(sizes) / len(sizes)}
        return losses[0] if len(losses) == 1 else sum(losses) / len(losses)

    @contextlib.contextmanager
    def sampled(self) -> Iterator[None]:
        """Replace the model's weights by a draw from the posterior inside the block, for one or more forward passes.

        Returns:
            A context manager that puts the weights back at its end.
        """
        parameters = [p for group in self.param_groups for p in group["params"]]
        self._begin(parameters)
        with stored(parameters):
            self._add_noise(parameters)
            yield
        torch.clear_autocast_cache()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state.

        Args:
            state_dict: what ``state_dict()`` returned.

        Raises:
            BadInput: if the state belongs to another optimizer.
        """
        for entry in state_dict.get("state", {}).values():
            if not {"momentum_buffer", "precision"} <= set(entry):
                raise BadInput(f"this state is of another optimizer: it has {', '.join(entry)}; BSAM keeps precision")
        super().load_state_dict(state_dict)

    def _begin(self, parameters: Sequence[Tensor]) -> None:
        with torch.inference_mode(False):  # a state made in inference mode could never be updated
            for p in parameters:
                if not self.state[p]:
                    self.state[p] = {"momentum_buffer": torch.zeros_like(p), "precision": torch.ones_like(p)}

    @torch.no_grad()
    def _add_noise(self, parameters: Sequence[Tensor]) -> None:
        for p in parameters:
            if p.requires_grad:
                p.add_(torch.randn_like(p) / (self._examples * self.state[p]["precision"]).sqrt())
        torch.clear_autocast_cache()  # it holds weights that were cast before they moved

    def _part(
        self,
        parameters: list[Tensor],
        closure: Closure,
        magnitudes: list[Tensor],
        gradients: list[Tensor],
        touched: set[Tensor],
        weight: float,
    ) -> tuple[Any, float]:
        """One part of the batch: add √s|g| and g̃, weighted; its loss and ‖ε‖."""
        devices = {p.device for p in parameters}
        with stored(parameters) as mean:
            if self._noise:
                self._add_noise(parameters)
            start = random_state(devices)
            loss = fresh_gradients(parameters, closure)
            torch._foreach_copy_([p.detach() for p in parameters], mean)
            steps = []
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        step = (p.grad / self.state[p]["precision"]).mul_(group["rho"])
                        p.add_(step)
                        steps.append(step)
            size = total_norm(steps)
            del steps
            for p, total in zip(parameters, magnitudes, strict=True):
                if p.grad is not None:
                    touched.add(p)
                    total.add_(self.state[p]["precision"].sqrt() * p.grad.abs(), alpha=weight)
            with replayed(start, devices):
                fresh_gradients(parameters, closure)
        for p, total in zip(parameters, gradients, strict=True):
            if p.grad is not None:
                total.add_(p.grad, alpha=weight)
        return loss, size

    def _update(
        self, parameters: list[Tensor], magnitudes: list[Tensor], gradients: list[Tensor], touched: set[Tensor]
    ) -> None:
        sums = {p: (a, g) for p, a, g in zip(parameters, magnitudes, gradients, strict=True) if p in touched}
        for group in self.param_groups:
            members = [p for p in group["params"] if p in sums]
            if not members:
                continue
            decay = group["prior_precision"] / self._examples
            beta1, beta2 = group["betas"]
            sizes, slopes = [sums[p][0] for p in members], [sums[p][1] for p in members]
            momenta = [self.state[p]["momentum_buffer"] for p in members]
            precisions = [self.state[p]["precision"] for p in members]
            torch._foreach_add_(slopes, members, alpha=decay)
            torch._foreach_lerp_(momenta, slopes, 1 - beta1)
            torch._foreach_addcdiv_(members, momenta, precisions, -float(group["lr"]))
            torch._foreach_add_(sizes, group["damping"] + decay)
            torch._foreach_lerp_(precisions, sizes, 1 - beta2)
