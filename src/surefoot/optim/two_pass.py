"""The common steps of sharpness-aware optimizers: gradient, perturbation, second gradient, restoration, base step."""

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
from surefoot.optim.base import (
    BaseOptimizer,
    Closure,
    Leftovers,
    check_groups,
    fresh_gradients,
    random_state,
    replayed,
    stored,
    total_norm,
)
from surefoot.validation import check_non_negative

__all__ = ["Ascent", "TwoPass", "entropy_coefficients"]


@dataclass(frozen=True)
class Ascent:
    """A perturbation ε = (ρ / ``norm``) d of parameters that have gradients.

    Attributes:
        directions: d, one tensor for each such parameter.
        norm: what d is divided by.
        length: ‖d‖₂.
        slope: ⟨g, d⟩, the increase of the loss for small ρ, up to ρ / norm.
    """

    directions: list[Tensor]
    norm: float
    length: float
    slope: float


class TwoPass(BaseOptimizer):
    """A torch optimizer around another optimizer, whose gradient is taken at a perturbed point.

    ``step(closure)`` runs the closure twice. The closure computes the loss of the whole batch (all micro-batches of
    it), calls ``backward`` and returns the loss. Batch-norm statistics and torch's random numbers advance once, and
    both passes see the same dropout masks. ``param_groups`` and ``state`` are those of the base, so a scheduler may
    hold either optimizer.

    Args:
        base: any optimizer that takes one gradient a step.
        rho: ρ ≥ 0; a parameter group may carry its own under ``"rho"``.
        per_rank: whether each rank perturbs by the gradient of its own part of the batch.

    Attributes:
        base: the optimizer that takes the step.
        ascending: True during the first pass.
        alone: True during the first pass of an optimizer made with ``per_rank``. The closure must leave these gradients
            unsynchronised, ``with model.no_sync() if opt.alone else contextlib.nullcontext(): …``.
        over_ranks: the mean over ranks of a number of this rank's examples, for ``last``; set by a loop over ranks.
        last: what the last step did: ``loss``, ``perturbed_loss``, ``epsilon`` (‖ε‖₂ over all parameters), and
            ``lambda`` and ``lambda0`` of Tan et al. (2026), Eq. 2. The last two have a meaning for cross-entropy only.

    Raises:
        BadInput: if an argument is out of its range, or ``base`` is no optimizer of one gradient a step.
    """

    needs_closure = True
    # Names of the per-parameter tensors that an optimizer remembers; the state_dict holds them with the base's.
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
        # A base that was wrapped before carries the wrapper's radius, unless a group was given its own.
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

    # The base owns the groups and the state: loading, scheduling or adding through either optimizer changes both.

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
        """The perturbation from here.

        Args:
            parameters: the parameters that have gradients.
            gradients: one gradient for each parameter; they may be overwritten.
            norm: ‖·‖₂ of all gradients together, finite.

        Returns:
            The perturbation.
        """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as torch does, to this optimizer and to the base.

        Args:
            param_group: the group, with its parameters under ``"params"`` and, if wanted, its own ``"rho"``.

        Raises:
            BadInput: if the group has no parameters, or its ``"rho"`` is negative.
        """
        check_non_negative("rho", param_group.get("rho", self._rho))
        if not any(param_group is group for group in self.base.param_groups):
            check_groups([param_group])
            self.base.add_param_group(param_group)
        self._radii()

    @property
    def ascending(self) -> bool:
        """Whether the closure is running for the first time in this step."""
        return self.phase == "ascent"

    @property
    def alone(self) -> bool:
        """Whether each rank keeps its own gradients in this pass."""
        return self.per_rank and self.ascending

    @torch.no_grad()
    def step(self, closure: Closure | None = None, scaler: Any = None) -> Any:
        """Take one step.

        Args:
            closure: computes the loss, calls ``backward`` (on ``scaler.scale(loss)`` with a scaler) and returns the
                loss.
            scaler: a `torch.amp.GradScaler`, whose own ``step`` refuses closures. A first pass that overflows skips
                the step and, after ``scaler.update()``, lowers the scale.

        Returns:
            The loss of the first pass, at the unperturbed parameters.

        Raises:
            BadInput: if there is no closure, the closure leaves no gradient, or gradients were computed before the
                step.
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
        """The state of the base together with what this optimizer remembers of each parameter.

        Returns:
            One dictionary in torch's format.
        """
        base_state = self.base.state_dict()
        state = {index: dict(entry) for index, entry in base_state["state"].items()}
        order = (p for group in self.param_groups for p in group["params"])
        for index, p in enumerate(order):
            if p in self._memory:
                state.setdefault(index, {}).update(self._memory[p])
        return {**base_state, "state": state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state.

        Args:
            state_dict: what `state_dict` returned.
        """
        entries = state_dict.get("state", {})
        bare = {index: {k: v for k, v in e.items() if k not in self.remembers} for index, e in entries.items()}
        # The base must not see entries without its own keys: it initialises the state that is missing.
        self.base.load_state_dict({**state_dict, "state": {index: e for index, e in bare.items() if e}})
        order = [p for group in self.param_groups for p in group["params"]]
        self._memory = {
            order[index]: {k: v.detach().clone().to(order[index]) for k, v in entry.items() if k in self.remembers}
            for index, entry in entries.items()
            if any(k in self.remembers for k in entry)
        }

    def _two_passes(self, parameters: list[Tensor], closure: Closure, scaler: Any) -> Any:
        """The loss; the gradient at the perturbed point is left on the parameters, which end unchanged."""
        devices = {p.device for p in parameters}
        start = random_state(devices)
        loss = self._pass("ascent", parameters, closure)
        before = _number(loss)
        if scaler is not None:
            torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], 1.0 / scaler.get_scale())
        with stored(parameters):
            size, slope = self._perturb()
            if self.per_rank:
                size = self.over_ranks(size)  # if one rank's is not finite, no rank makes a second pass
            if math.isfinite(size):
                with replayed(start, devices):
                    perturbed = self._pass("descent", parameters, closure)
        if math.isfinite(size):
            self.last = {"epsilon": size, **self._losses(before, _number(perturbed), slope)}
        else:
            # The base (or the scaler) treats a gradient that is not finite as it would without this optimizer.
            self.last = {"epsilon": 0.0, **self._losses(before, math.nan, math.nan)}
        return loss

    def _radii(self) -> list[float]:
        """ρ of every group; a group without ρ, from a checkpoint of the base alone, gets this optimizer's."""
        return [check_non_negative("rho", group.setdefault("rho", self._rho)) for group in self.param_groups]

    def _perturb(self) -> tuple[float, float]:
        """Add ε to the parameters; return ‖ε‖ and ⟨g, ε⟩, or NaN and no move for a gradient that is not finite."""
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
            members, directions = parts.setdefault(rho, ([], []))
            members.append(p)
            directions.append(direction)
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

    p = exp(−loss) is the geometric mean of the true classes' probabilities, and p̃ the same mean at the perturbed
    point. ⟨g, ε⟩ = ρ ‖g‖ for SAM. λ₀ is infinite where e^{⟨g, ε⟩/2} p̃ ≥ 1: Lemma 1 would put p above 1.

    Args:
        loss: mean cross-entropy at the parameters.
        perturbed: mean cross-entropy at the perturbed point.
        slope: ⟨g, ε⟩.

    Returns:
        ``lambda`` and ``lambda0``; both are NaN if a loss is NaN or not above 0.

    Example:
        >>> coefficients = entropy_coefficients(loss=0.5, perturbed=0.7, slope=0.2)
        >>> {name: round(value, 3) for name, value in coefficients.items()}
        {'lambda': 1.279, 'lambda0': 1.116}

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization", Theorem 1
        and Eq. 2.
    """
    if not (loss > 0 and perturbed > 0):  # also false for NaN; a loss of 0 means p = 1
        return {"lambda": math.nan, "lambda0": math.nan}
    negative_error = math.expm1(-perturbed)
    bound = slope / 2 - perturbed
    bounded = math.nan if math.isnan(bound) else negative_error / math.expm1(bound) if bound < 0 else math.inf
    return {"lambda": negative_error / math.expm1(-loss), "lambda0": bounded}


def _number(loss: Any) -> float:
    if loss is None:
        return math.nan
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return float(loss.detach())
    if isinstance(loss, int | float):
        return float(loss)
    shape = f" of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else ""
    raise BadInput(f"the closure must return the loss, one number; got {type(loss).__name__}{shape}")
