"""Muon: orthogonalised momentum for weight matrices, AdamW for all other parameters (Jordan et al. 2024)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from surefoot.errors import BadInput
from surefoot.optim.base import BaseOptimizer, Closure, betas_of, check_groups
from surefoot.validation import check_non_negative

__all__ = ["Muon", "orthogonalise"]

_log = logging.getLogger("surefoot")

# Coefficients of X ← a X + (b A + c A²) X, A = X Xᵀ, from Jordan's code: steep at 0, inexact at 1.
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Newton–Schulz iteration: divide matrices by their norm and move their singular values near 1.

    The precision is bfloat16 where the device is fast in bfloat16, else float32. Every iterate is a polynomial in A = X
    Xᵀ times X. Wide matrices therefore need only two products, and the steps use r × r matrices.

    Args:
        matrices: (b, r, c).
        steps: iterations.

    Returns:
        (b, r, c) in the dtype of ``matrices``.

    Example:
        >>> singular_values = torch.linalg.svdvals(orthogonalise(torch.diag(torch.tensor([3.0, 1.0]))[None]))
        >>> bool(((singular_values > 0.6) & (singular_values < 1.3)).all())
        True

    References:
        Jordan et al. (2024), "Muon: An Optimizer for Hidden Layers in Neural Networks".
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
    result: Tensor = (x.mT if tall else x).to(matrices.dtype)
    return result


class Muon(BaseOptimizer):
    """Muon for every weight of two or more dimensions except the head; AdamW for the head, biases and norms.

    A kernel (o, i, h, w) is treated as the matrix (o, i·h·w). Norms of several dimensions are recognised by ``norm`` in
    their name. The head is the last weight of two or more dimensions. A head that is tied to an embedding has the
    embedding's name and place. ``adamw`` names what else AdamW takes, for instance embeddings or the first layer. The
    routing is logged.

    Args:
        params: ``model.named_parameters()`` (or parameters alone, or groups of either).
        lr: step size of Muon, at least 0. The step is scaled by √max(1, rows/columns).
        momentum: factor of Muon's momentum, in [0, 1).
        nesterov: use Nesterov momentum in Muon.
        weight_decay: decoupled weight decay of Muon and of AdamW, at least 0.
        steps: Newton–Schulz iterations, at least 1.
        adamw: names of further parameters for AdamW, or of modules all of whose parameters are for AdamW.
        adamw_lr: step size of AdamW, at least 0.
        betas: averaging factors of AdamW, both in [0, 1).
        eps: added to AdamW's denominator, at least 0.

    Attributes:
        routing: ``"muon"`` or ``"adamw"`` for each parameter's name.

    Raises:
        BadInput: if an argument is out of its range, a group is empty, or ``adamw`` has an unknown name.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
        >>> Muon(model.named_parameters()).routing
        {'0.weight': 'muon', '0.bias': 'adamw', '1.weight': 'adamw', '1.bias': 'adamw'}

    References:
        Jordan et al. (2024), "Muon: An Optimizer for Hidden Layers in Neural Networks".
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
            raise BadInput(f"steps must be an integer of at least 1; got {steps!r}")
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
        matrices = [name for name, method in self.routing.items() if method == "muon"]
        if matrices:
            self.routing[matrices[-1]] = "adamw"  # the head
        self.routing |= _called(adamw, self.routing)
        self._adamw_lr = check_non_negative("adamw_lr", adamw_lr)
        super().__init__([part for group in groups for part in _split(group, self.routing, adamw_lr)], defaults)
        _log.info("Muon routes %s", ", ".join(f"{name} to {method}" for name, method in self.routing.items()))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as torch does; a group without a ``"rule"`` is routed, its matrices to Muon.

        Args:
            param_group: the group, with its parameters under ``"params"`` and, if wanted, ``"rule"``: ``"muon"`` or
                ``"adamw"``.

        Raises:
            BadInput: if the group has no parameters.
        """
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
        """Take one step.

        Args:
            closure: computes the loss, calls ``backward`` and returns the loss; None if the gradients are computed
                already.

        Returns:
            The closure's loss, or None without a closure.

        Raises:
            BadInput: if the closure leaves no gradient, or a gradient of a Muon parameter is sparse.
        """
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
        # lerp makes a new tensor, so that p.grad keeps the gradient of backward.
        updates = torch._foreach_lerp(gradients, buffers, momentum) if group["nesterov"] else buffers
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        alike: dict[tuple[Any, ...], list[int]] = {}
        for index, p in enumerate(parameters):
            alike.setdefault((p.flatten(1).shape, p.dtype, p.device), []).append(index)
        for (shape, *_), indices in alike.items():
            matrices = torch.stack([updates[index].flatten(1) for index in indices])
            orthogonal = orthogonalise(matrices, group["steps"])
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            steps = [step.view_as(parameters[index]) for step, index in zip(orthogonal, indices, strict=True)]
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
    """A group with its parameters as (name, tensor) pairs; the name of an unnamed tensor is its position."""
    members = group["params"]
    members = [members] if isinstance(members, Tensor) else list(members)
    pairs = [p if isinstance(p, tuple) else (f"{index}.{place}", p) for place, p in enumerate(members)]
    return {**group, "params": pairs}


def _route(groups: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The method of each parameter, by name; biases and norms of several dimensions are no matrices either."""
    routing = {}
    for group in groups:
        for name, p in group["params"]:
            vector = p.ndim < 2 or name.endswith("bias") or "norm" in name.lower()
            routing[name] = "adamw" if vector else "muon"
    return routing


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
    """AdamW for the parameters, and for the parameters of the modules, that ``wanted`` names."""
    routing: dict[str, str] = {}
    for prefix in wanted:
        matches = [name for name in names if name == prefix or name.startswith(f"{prefix}.")]
        if not matches:
            raise BadInput(f"adamw: no parameter or module is called {prefix!r}; there are {', '.join(names)}")
        routing.update(dict.fromkeys(matches, "adamw"))
    return routing


def _split(group: dict[str, Any], routing: dict[str, str], adamw_lr: float) -> list[dict[str, Any]]:
    """A group as two groups, one for each method.

    A learning rate in the group is Muon's if the group has matrices, else AdamW's.
    """
    rest = {key: value for key, value in group.items() if key not in ("params", "adamw_lr")}
    matrices = [pair for pair in group["params"] if routing[pair[0]] == "muon"]
    vectors = [pair for pair in group["params"] if routing[pair[0]] == "adamw"]
    rate = group.get("adamw_lr", adamw_lr if matrices else group.get("lr", adamw_lr))
    parts = [{**rest, "params": matrices, "rule": "muon"}, {**rest, "params": vectors, "rule": "adamw", "lr": rate}]
    return [part for part in parts if part["params"]]
