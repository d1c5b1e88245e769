"""Exact spectral norms ‖J_θ(x_i)‖ of each example's Jacobian ∂z/∂θ (paper A, Section 4; card A9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from surefoot.curvature.chunks import Data, frozen
from surefoot.curvature.linearised import check_logits, check_repeatable
from surefoot.curvature.parameters import select

__all__ = ["jacobian_norms"]


def jacobian_norms(
    model: nn.Module, inputs: Any, *, names: Iterable[str] | None = None, chunk: int | None = None
) -> Tensor:
    """(n,) largest singular value of J_i = ∂z(x_i)/∂θ (k, d), from the k × k Gram matrix J_i J_iᵀ in float64.

    Where every chosen parameter belongs to a Linear layer used once, the Gram matrix is the sum over layers of
    ⟨δ_k, δ_l⟩(‖a‖² + 1) with δ the gradient of a logit by the layer's output and a its input: k backward passes
    without weight gradients. Any other model is differentiated example by example (vectorised).
    """
    parameters = select(model, names)
    data = Data.of(model, inputs, None, chunk)
    check_repeatable(model, data, "eval")
    norms = []
    with frozen(model, "eval"):
        for x, _ in data.chunks():
            gram = _gram_of_layers(model, parameters, x)
            gram = _gram_of_examples(model, parameters, x) if gram is None else gram
            norms.append(torch.linalg.eigvalsh(gram.double())[:, -1].clamp_min(0).sqrt())
    return torch.cat(norms)


def _gram_of_layers(model: nn.Module, parameters: dict[str, nn.Parameter], x: Tensor) -> Tensor | None:
    """(b, k, k) J Jᵀ by layers, or None if some chosen parameter is not a plain Linear layer's."""
    layers = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    owners = {f"{name}.{part}": name for name, layer in layers.items() for part, _ in layer.named_parameters()}
    # `remove_duplicate=False` lists a tied weight under each of its names: such a weight is not one layer's.
    places = [id(value) for _, value in model.named_parameters(remove_duplicate=False)]
    if not set(parameters) <= set(owners) or len(set(places)) < len(places):
        return None
    used = {owners[name] for name in parameters}
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in used}

    def watch(name: str) -> Callable[..., None]:
        return lambda module, arguments, output: seen[name].append((arguments[0], output))

    handles = [layers[name].register_forward_hook(watch(name)) for name in used]
    try:
        with torch.enable_grad():
            logits = check_logits(model(x))
    finally:
        for handle in handles:
            handle.remove()
    if any(len(calls) != 1 or calls[0][1].ndim != 2 for calls in seen.values()):
        return None
    order = [name for name in used if seen[name][0][1].requires_grad]
    outputs = [seen[name][0][1] for name in order]
    deltas = [
        torch.autograd.grad(logits[:, k].sum(), outputs, retain_graph=True, allow_unused=True)
        for k in range(logits.shape[1])
    ]
    gram = torch.zeros(len(x), logits.shape[1], logits.shape[1], dtype=torch.float64, device=x.device)
    for place, name in enumerate(order):
        rows = [torch.zeros_like(outputs[place]) if delta[place] is None else delta[place] for delta in deltas]
        delta = torch.stack(rows, dim=1)  # (b, k, o)
        weight = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        if f"{name}.weight" in parameters:
            weight += seen[name][0][0].detach().double().square().sum(dim=1)
        if f"{name}.bias" in parameters:
            weight += 1.0
        gram += weight[:, None, None] * (delta @ delta.transpose(1, 2)).double()
    return gram


def _gram_of_examples(model: nn.Module, parameters: dict[str, nn.Parameter], x: Tensor) -> Tensor:
    """(b, k, k) J Jᵀ from each example's whole Jacobian; eight examples at a time, since each takes k·d numbers."""
    values = {name: value.detach() for name, value in parameters.items()}

    def logits(tensors: dict[str, Tensor], row: Tensor) -> Tensor:
        found: Tensor = functional_call(model, tensors, (row[None],))[0]
        return found

    jacobian = vmap(jacrev(logits), in_dims=(None, 0))
    grams = []
    for rows in torch.split(x, 8):
        parts = [part.flatten(2) for part in jacobian(values, rows).values()]
        grams.append(sum(part @ part.transpose(1, 2) for part in parts))
    return torch.cat(grams)
