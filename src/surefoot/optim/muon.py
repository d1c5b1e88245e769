"""Muon: momentum made orthogonal for weight matrices, AdamW for everything else (Jordan et al. 2024)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from surefoot.errors import BadInput
from surefoot.optim.base import BaseOptimizer, betas_of, check_groups
from surefoot.optim.passes import Closure
from surefoot.validation import check_non_negative

__all__ = ["Muon", "orthogonalise"]

_log = logging.getLogger("surefoot")

# Of the quintic X ← a X + (b A + c A²) X, A = X Xᵀ, in Jordan's code: steep at 0, loose at 1.
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """(b, r, c) Newton–Schulz: singular values of matrices (b, r, c), divided by their norm, moved near 1.

    In bfloat16 where the device is fast in it, else in float32. Every iterate is a polynomial in A = X Xᵀ times X, so
    wide matrices are multiplied by twice only, and the steps are taken among r × r matrices.
    """
    with torch.autocast(matrices.device.type, enabled=False):
        return _newton_schulz(matrices, steps)


def _newton_schulz(matrices: Tensor, steps: int) -> Tensor:
    fast = torch.bfloat16 if matrices.device.type == "cuda" else torch.float32
    x = matrices.to(fast if matrices.dtype != torch.float64 else torch.float64)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    gram = x @ x.mT
    if x.shape[-1] >= 2 * x.shape[-2] and x.dtype != torch.bfloat16:
        product = torch.eye(x.shape[-2], dtype=x.dtype, device=x.device).expand_as(gram)
        for step in range(steps):
            q = _B * gram + _C * (gram @ gram)
            q.diagonal(dim1=-2, dim2=-1).add_(_A)
            product = q @ product if step else q
            if step + 1 < steps:
                gram = q @ gram @ q
        x = product @ x
    else:
        for step in range(steps):
            gram = x @ x.mT if step else gram
            x = _A * x + (_B * gram + _C * (gram @ gram)) @ x
    found: Tensor = (x.mT if tall else x).to(matrices.dtype)
    return found


class Muon(BaseOptimizer):
    """Muon for every weight of two or more dimensions but the head; AdamW for the head, biases and norms.

    A kernel (o, i, h, w) is taken as the matrix (o, i·h·w). Norms of several dimensions are known by ``norm`` in their
    name. The head is the last such weight; where it is tied to an embedding, it has the embedding's name and place.
    ``adamw`` names what else goes to AdamW, for instance embeddings or the first layer. The routing is logged, and kept
    in ``routing``.

    Args:
        params: ``model.named_parameters()`` (or parameters alone, or groups of either).
        lr, momentum, nesterov, weight_decay: of Muon; the step is scaled by √max(1, rows/columns), the decay decoupled.
        steps: Newton–Schulz iterations.
        adamw: names of further parameters, or of modules all of whose parameters, go to AdamW.
        adamw_lr, betas, eps: of AdamW, whose weight decay is the same.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    >>> Muon(model.named_parameters()).routing
    {'0.weight': 'muon', '0.bias': 'adamw', '1.weight': 'adamw', '1.bias': 'adamw'}
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.02,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        steps: int = 5,
        adamw: Sequence[str] = (),
        adamw_lr: float = 3e-4,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-10,
    ) -> None:
        if isinstance(adamw, str):
            raise BadInput(f"adamw must be a list of names; got the string {adamw!r}; write [{adamw!r}]")
        if isinstance(momentum, bool) or not isinstance(momentum, int | float) or not 0 <= momentum < 1:
            raise BadInput(f"momentum must lie in [0, 1); got {momentum!r}")
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise BadInput(f"steps must be a whole number of at least 1; got {steps!r}")
        defaults = {
            "rule": "muon",
            "lr": check_non_negative("lr", lr),
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": check_non_negative("weight_decay", weight_decay),
            "steps": steps,
            "betas": betas_of(betas),
            "eps": check_non_negative("eps", eps),
        }
        groups = _distinct([_named(group, index) for index, group in enumerate(_as_groups(params))])
        check_groups(groups)
        self.routing = _route(groups)
        matrices = [name for name, rule in self.routing.items() if rule == "muon"]
        if matrices:
            self.routing[matrices[-1]] = "adamw"  # the head
        self.routing |= _called(adamw, self.routing)
        self._adamw_lr = check_non_negative("adamw_lr", adamw_lr)
        super().__init__([part for group in groups for part in _split(group, self.routing, adamw_lr)], defaults)
        _log.info("Muon routes %s", ", ".join(f"{name} to {rule}" for name, rule in self.routing.items()))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in torch; a group that does not say its ``"rule"`` is routed, its matrices to Muon."""
        if "rule" in param_group:
            super().add_param_group(param_group)
            return
        group = _named(param_group, len(self.param_groups))
        check_groups([group])
        routing = _route([group])
        for part in _split(group, routing, self._adamw_lr):
            super().add_param_group(part)
        self.routing |= routing

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """One step; returns the closure's loss, if there is one."""
        loss = self._run(closure)
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters and group["rule"] == "muon":
                self._muon(group, parameters)
            elif parameters:
                self._adamw(group, parameters)
        return loss

    def _muon(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        momentum, rate = group["momentum"], float(group["lr"])
        gradients = [p.grad for p in parameters if p.grad is not None]
        if any(gradient.is_sparse for gradient in gradients):
            raise BadInput("Muon takes no sparse gradients; build the embedding with sparse=False, or name it in adamw")
        for p in parameters:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        buffers = [self.state[p]["momentum_buffer"] for p in parameters]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        # lerp to a new tensor: p.grad stays what backward made it.
        updates = torch._foreach_lerp(gradients, buffers, momentum) if group["nesterov"] else buffers
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        alike: dict[tuple[Any, ...], list[int]] = {}
        for index, p in enumerate(parameters):
            alike.setdefault((p.flatten(1).shape, p.dtype, p.device), []).append(index)
        for (shape, *_), indices in alike.items():
            matrices = torch.stack([updates[index].flatten(1) for index in indices])
            found = orthogonalise(matrices, group["steps"])
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            steps = [step.view_as(parameters[index]) for step, index in zip(found, indices, strict=True)]
            torch._foreach_add_([parameters[index] for index in indices], steps, alpha=-rate * scale)

    def _adamw(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        for p in parameters:
            if not self.state[p]:
                self.state[p] = {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(p),
                    "exp_avg_sq": torch.zeros_like(p),
                }
        states = [self.state[p] for p in parameters]
        adamw(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            foreach=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def _as_groups(params: Iterable[Any]) -> list[dict[str, Any]]:
    given = list(params)
    if not given:
        raise BadInput("params is empty; give model.named_parameters()")
    return given if isinstance(given[0], dict) else [{"params": given}]


def _named(group: dict[str, Any], index: int) -> dict[str, Any]:
    """A group with its parameters as (name, tensor) pairs; tensors without a name are called by their place."""
    members = group["params"]
    members = [members] if isinstance(members, Tensor) else list(members)
    pairs = [each if isinstance(each, tuple) else (f"{index}.{place}", each) for place, each in enumerate(members)]
    return {**group, "params": pairs}


def _route(groups: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Which rule takes which parameter, by name; biases and norms of several dimensions are no matrices either."""
    found = {}
    for group in groups:
        for name, p in group["params"]:
            vector = p.ndim < 2 or name.endswith("bias") or "norm" in name.lower()
            found[name] = "adamw" if vector else "muon"
    return found


def _distinct(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Names with the number of their group in front, where groups of several models share some."""
    names = [name for group in groups for name, _ in group["params"]]
    if len(set(names)) == len(names):
        return groups
    return [
        {**group, "params": [(f"{index}.{name}", p) for name, p in group["params"]]}
        for index, group in enumerate(groups)
    ]


def _called(wanted: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """AdamW for the parameters, and those of the modules, that are asked for by name."""
    found: dict[str, str] = {}
    for each in wanted:
        matches = [name for name in names if name == each or name.startswith(f"{each}.")]
        if not matches:
            raise BadInput(f"adamw: no parameter or module is called {each!r}; there are {', '.join(names)}")
        found.update(dict.fromkeys(matches, "adamw"))
    return found


def _split(group: dict[str, Any], routing: dict[str, str], adamw_lr: float) -> list[dict[str, Any]]:
    """A group as two, one for each rule; a learning rate it carries is Muon's if it has matrices, else AdamW's."""
    rest = {key: value for key, value in group.items() if key not in ("params", "adamw_lr")}
    ours = [pair for pair in group["params"] if routing[pair[0]] == "muon"]
    others = [pair for pair in group["params"] if routing[pair[0]] == "adamw"]
    rate = group.get("adamw_lr", adamw_lr if ours else group.get("lr", adamw_lr))
    parts = [{**rest, "params": ours, "rule": "muon"}, {**rest, "params": others, "rule": "adamw", "lr": rate}]
    return [part for part in parts if part["params"]]
