"""The shape of every sharpness-aware rule: gradient, perturb, second gradient, restore, step of the base optimizer."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.errors import BadInput
from surefoot.optim.base import BaseOptimizer, check_groups, total_norm
from surefoot.optim.passes import Closure, Leftovers, fresh_gradients, random_state, replayed, stored
from surefoot.validation import check_non_negative

__all__ = ["Ascent", "TwoPass", "entropy_coefficients"]


@dataclass(frozen=True)
class Ascent:
    """A perturbation ε = (ρ / ``norm``) d of parameters that have gradients.

    Attributes:
        directions: d, one tensor for each such parameter.
        norm: what d is divided by.
        length: ‖d‖₂.
        slope: ⟨g, d⟩, what the loss rises by for small ρ, up to ρ / norm.
    """

    directions: list[Tensor]
    norm: float
    length: float
    slope: float


class TwoPass(BaseOptimizer):
    """A torch optimizer around another one, whose gradient it takes at a perturbed point.

    ``step(closure)`` runs the closure twice; the closure computes the loss of the whole batch (all micro-batches of
    it), calls ``backward`` and returns the loss. Batch-norm statistics and torch's random numbers advance once, and
    both passes see the same dropout masks. ``param_groups`` and ``state`` are the base's, so schedulers
    may hold either.

    Attributes:
        base: the optimizer that takes the step.
        ascending: True during the first pass.
        alone: True during the first pass of a rule made with ``per_rank``: the closure must leave these gradients
            unsynchronised, ``with model.no_sync() if opt.alone else contextlib.nullcontext(): …``.
        over_ranks: the mean over ranks of a number of this rank's examples, for ``last``; set by a loop over ranks.
        last: what the last step did: ``loss``, ``perturbed_loss``, ``epsilon`` (‖ε‖₂ over all parameters), and
            ``lambda`` and ``lambda0`` of Tan et al. (2026), Eq. 2; they mean something for cross-entropy.
    """

    needs_closure = True
    # Per-parameter tensors that a rule remembers, by name; they travel in the state_dict beside the base's own.
    remembers: tuple[str, ...] = ()

    def __init__(self, base: Optimizer, rho: float, per_rank: bool = False) -> None:
        if not isinstance(base, Optimizer):
            raise BadInput(
                "base must be an optimizer, such as torch.optim.SGD(model.parameters(), lr=0.1); "
                f"got {type(base).__name__}"
            )
        if getattr(base, "needs_closure", False) or isinstance(base, torch.optim.LBFGS):
            raise BadInput(f"base must take one gradient a step; {type(base).__name__} takes several")
        if "rho" in base.defaults:
            raise BadInput(f"base must not have a rho of its own; {type(base).__name__} has one for another purpose")
        if any(group.get("maximize") for group in base.param_groups):
            raise BadInput("base must minimise; it was built with maximize=True: minimise the negative instead")
        check_groups(base.param_groups)
        if not isinstance(per_rank, bool):
            raise BadInput(f"per_rank must be true or false; got {per_rank!r}")
        self.per_rank = per_rank
        self.over_ranks: Callable[[float], float] = float
        self._rho = check_non_negative("rho", rho)
        # A base wrapped before carries that wrapper's radius, unless a group was given its own.
        before = getattr(base, "_wrapped_rho", None)
        for group in base.param_groups:
            if before is not None and group.get("rho") == before:
                del group["rho"]
        self.base = base
        base._wrapped_rho = self._rho  # type: ignore[attr-defined]
        self._memory: dict[Tensor, dict[str, Tensor]] = {}
        self._leftovers = Leftovers()
        self.phase: str | None = None
        self.last: dict[str, float] = {}
        super().__init__(base.param_groups, {**base.defaults, "rho": self._rho})

    # One list and one state, the base's: whoever loads, schedules or adds to either changes both.

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The base's parameter groups."""
        return self.base.param_groups

    @param_groups.setter
    def param_groups(self, value: list[dict[str, Any]]) -> None:
        if value:  # torch's constructor starts from nothing
            self.base.param_groups = value

    @property
    def state(self) -> Any:
        """The base's state."""
        return self.base.state

    @state.setter
    def state(self, value: Any) -> None:
        if value:
            self.base.state = value

    @abstractmethod
    def ascent(self, parameters: list[Tensor], gradients: list[Tensor], norm: float) -> Ascent:
        """Where to go from here; the gradients, one for each parameter, of finite ``norm``, may be overwritten."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in torch; the group is the base's too."""
        check_non_negative("rho", param_group.get("rho", self._rho))
        if not any(param_group is held for held in self.base.param_groups):
            check_groups([param_group])
            self.base.add_param_group(param_group)
        self._radii()

    @property
    def ascending(self) -> bool:
        """Whether the closure is being run for the first time in this step."""
        return self.phase == "ascent"

    @property
    def alone(self) -> bool:
        """Whether the gradients of this pass are each rank's own."""
        return self.per_rank and self.ascending

    @torch.no_grad()
    def step(self, closure: Closure | None = None, scaler: Any = None) -> Any:
        """One step; returns the loss of the first pass, at the parameters as they were.

        Args:
            closure: computes the loss, calls ``backward`` (on ``scaler.scale(loss)`` with a scaler), returns the loss.
            scaler: a `torch.amp.GradScaler`, whose own ``step`` refuses closures. A first pass that overflows skips
                the step and, after ``scaler.update()``, lowers the scale.
        """
        if closure is None:
            raise BadInput(
                f"{type(self).__name__}.step takes two gradients and needs a closure that computes the loss, calls "
                "backward and returns it: opt.step(closure), or opt.step(closure, scaler=scaler) with a GradScaler"
            )
        parameters = [p for group in self.param_groups for p in group["params"]]
        self._leftovers.refuse_others(parameters)
        try:
            loss = self._two_passes(parameters, closure, scaler)
        except BaseException:
            for p in parameters:  # half of a sum is no gradient
                p.grad = None
            raise
        if scaler is None:
            self.base.step()
        else:
            scaler.step(self.base)
        self._leftovers.remember(parameters)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The base's state with what this rule remembers of each parameter; one dictionary of torch's shape."""
        found = self.base.state_dict()
        state = {index: dict(entry) for index, entry in found["state"].items()}
        order = (p for group in self.param_groups for p in group["params"])
        for index, p in enumerate(order):
            if p in self._memory:
                state.setdefault(index, {}).update(self._memory[p])
        return {**found, "state": state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        entries = state_dict.get("state", {})
        bare = {index: {k: v for k, v in e.items() if k not in self.remembers} for index, e in entries.items()}
        # A parameter that only we knew something of must stay unknown to the base, which starts from what is missing.
        self.base.load_state_dict({**state_dict, "state": {index: e for index, e in bare.items() if e}})
        order = [p for group in self.param_groups for p in group["params"]]
        self._memory = {
            order[index]: {k: v.detach().clone().to(order[index]) for k, v in entry.items() if k in self.remembers}
            for index, entry in entries.items()
            if any(k in self.remembers for k in entry)
        }

    def _two_passes(self, parameters: list[Tensor], closure: Closure, scaler: Any) -> Any:
        """The loss; the gradient at the perturbed point is left on the parameters, which are as they were."""
        devices = {p.device for p in parameters}
        start = random_state(devices)
        loss = self._pass("ascent", parameters, closure)
        before = _number(loss)
        if scaler is not None:
            torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], 1.0 / scaler.get_scale())
        with stored(parameters):
            size, slope = self._perturb()
            if self.per_rank:
                size = self.over_ranks(size)  # one that is not finite keeps all ranks from a second pass
            if math.isfinite(size):
                with replayed(start, devices):
                    perturbed = self._pass("descent", parameters, closure)
        if math.isfinite(size):
            self.last = {"epsilon": size, **self._losses(before, _number(perturbed), slope)}
        else:
            # The base (or the scaler) answers a broken gradient as it would without us.
            self.last = {"epsilon": 0.0, **self._losses(before, math.nan, math.nan)}
        return loss

    def _radii(self) -> list[float]:
        """ρ of every group; one that came without, from a checkpoint of the base alone, gets ours."""
        return [check_non_negative("rho", group.setdefault("rho", self._rho)) for group in self.param_groups]

    def _perturb(self) -> tuple[float, float]:
        """Add ε to the parameters; ‖ε‖ and ⟨g, ε⟩, both NaN and nothing moved if the gradient is not finite."""
        groups = zip(self._radii(), self.param_groups, strict=True)
        moved = [(rho, p) for rho, group in groups for p in group["params"] if p.grad is not None]
        gradients = [p.grad for _, p in moved if p.grad is not None]
        norm = total_norm(gradients)
        if not math.isfinite(norm):
            return math.nan, math.nan
        ascent = self.ascent([p for _, p in moved], gradients, norm)
        if ascent.norm == 0:  # the plain step
            return 0.0, 0.0
        parts: dict[float, tuple[list[Tensor], list[Tensor]]] = {}
        for (rho, p), direction in zip(moved, ascent.directions, strict=True):
            ours = parts.setdefault(rho, ([], []))
            ours[0].append(p)
            ours[1].append(direction)
        for rho, (parameters, directions) in parts.items():
            if rho:
                torch._foreach_add_(parameters, directions, alpha=rho / ascent.norm)
        if len(parts) == 1:
            scale = moved[0][0] / ascent.norm
            return scale * ascent.length, scale * ascent.slope
        sizes = (rho / ascent.norm * total_norm(directions) for rho, (_, directions) in parts.items())
        return math.hypot(*sizes), math.nan  # the bound of Tan et al. (2026) is for one radius

    def _pass(self, phase: str, parameters: Sequence[Tensor], closure: Closure) -> Any:
        self.phase = phase
        try:
            return fresh_gradients(parameters, closure)
        finally:
            self.phase = None

    def _losses(self, before: float, after: float, slope: float) -> dict[str, float]:
        return {"loss": before, "perturbed_loss": after, **entropy_coefficients(before, after, slope)}


def entropy_coefficients(loss: float, perturbed: float, slope: float) -> dict[str, float]:
    """λ = (1 − p̃)/(1 − p) and its lower bound λ₀ = (1 − p̃)/(1 − e^{⟨g, ε⟩/2} p̃).

    See Tan et al. (2026), Theorem 1 and Eq. 2.

    p = exp(−loss) is the geometric mean of the true classes' probabilities, p̃ that at the perturbed point, and
    ⟨g, ε⟩ = ρ ‖g‖ for SAM. λ₀ is infinite where e^{⟨g, ε⟩/2} p̃ ≥ 1: Lemma 1 would put p above 1.
    """
    if not (loss > 0 and perturbed > 0):  # also NaN; a loss of 0 says p = 1
        return {"lambda": math.nan, "lambda0": math.nan}
    sure = math.expm1(-perturbed)
    bound = slope / 2 - perturbed
    bounded = math.nan if math.isnan(bound) else sure / math.expm1(bound) if bound < 0 else math.inf
    return {"lambda": sure / math.expm1(-loss), "lambda0": bounded}


def _number(loss: Any) -> float:
    if loss is None:
        return math.nan
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return float(loss.detach())
    if isinstance(loss, int | float):
        return float(loss)
    shape = f" of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else ""
    raise BadInput(f"the closure must return the loss, one number; got {type(loss).__name__}{shape}")
