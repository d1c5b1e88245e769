"""Exact spectral norms ‖J_θ(x_i)‖ of each example's Jacobian ∂z/∂θ (Morosini et al. 2026, Section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from surefoot.curvature.chunks import Data, check_logits, check_repeatable, frozen, model_forward, ties_rows
from surefoot.curvature.problem import leaves, select
from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput
from surefoot.ranks import unwrapped

__all__ = ["jacobian_norms"]

_ROWS = 1024  # at a time, so that k gradients by a layer's output fit the processor's caches

Gram = Callable[[nn.Module, dict[str, nn.Parameter], Tensor], Tensor]


@renamed_arguments(chunk="batch_size")
def jacobian_norms(
    model: nn.Module, inputs: Any, *, names: Iterable[str] | None = None, batch_size: int | None = None
) -> Tensor:
    """Largest singular value of J_i = ∂z(x_i)/∂θ (k, d), from the k × k Gram matrix J_i J_iᵀ in float64.

    If every chosen parameter belongs to a Linear layer used once, the Gram matrix is the sum over layers of
    ⟨δ_k, δ_l⟩(‖a‖² + 1). δ is the gradient of a logit by the layer's output, and a is the layer's input. This needs k
    backward passes without weight gradients. Any other model is differentiated example by example (vectorised). Both
    ways are tried on two rows first. If neither way reproduces plain backward passes, every row gets plain backward
    passes.

    Args:
        model: any module from inputs to logits (n, k) that treats each row by itself.
        inputs: (n, ...) tensor or array.
        names: parameters to use; all trainable parameters by default.
        batch_size: rows at a time, at least 1, and at most 1,024.

    Returns:
        (n,) float64; NaN where a Jacobian is not finite.

    Raises:
        BadInput: if an argument is invalid, the model is random in eval mode, or batch norm ties rows together.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> jacobian_norms(model, torch.tensor([[3.0, 4.0]]))
        tensor([5.], dtype=torch.float64)

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Section 4.
    """
    model = unwrapped(model)
    parameters = select(model, names)
    data = Data.of(model, inputs, None, batch_size)
    if ties_rows(model):
        raise BadInput(
            "the model must treat each row by itself; batch norm without running statistics ties the rows together: "
            "set track_running_stats=True and train it, or take it out"
        )
    check_repeatable(model, data, "eval")
    with frozen(model, "eval"), torch.enable_grad():
        few = data.some(2).inputs
        plain = _gram_of_rows(model, parameters, few)
        fast: list[Gram] = [_gram_of_layers, _gram_of_examples]
        way = next((way for way in fast if _gives(plain, way, model, parameters, few)), _gram_of_rows)
        parts = (part for x, _ in data.chunks() for part in torch.split(x, _ROWS))
        return torch.cat([_norms(way(model, parameters, part)) for part in parts])


def _norms(gram: Tensor) -> Tensor:
    """(b,) roots of the largest eigenvalues of (b, k, k), NaN where a matrix is not finite."""
    finite = torch.isfinite(gram).all(dim=2).all(dim=1)
    values: Tensor = torch.linalg.eigvalsh(torch.where(finite[:, None, None], gram, 0).double())[:, -1]
    return values.clamp_min(0).sqrt().where(finite, torch.nan)


def _gives(plain: Tensor, way: Gram, model: nn.Module, parameters: dict[str, nn.Parameter], x: Tensor) -> bool:
    """Whether ``way`` accepts the model, and reproduces the plain matrices of the rows."""
    try:
        gram = way(model, parameters, x)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return False
    if gram.shape != plain.shape:
        return False
    slack = 1e-4 * float(plain.nan_to_num().abs().max())
    return bool(torch.allclose(gram.double(), plain, rtol=1e-3, atol=slack, equal_nan=True))


def _gram_of_rows(model: nn.Module, parameters: dict[str, nn.Parameter], x: Tensor) -> Tensor:
    """(b, k, k) J Jᵀ from k plain backward passes for each row: slow, and correct for any model."""
    tensors = leaves(parameters.values())
    grams = []
    for row in x:
        logits = check_logits(model_forward(model, list(parameters), row[None])(tensors))[0]
        gram = torch.zeros(len(logits), len(logits), dtype=torch.float64, device=x.device)
        gradients = [
            torch.autograd.grad(z, tensors, retain_graph=True, allow_unused=True, materialize_grads=True)
            for z in logits
            if logits.requires_grad
        ]
        for parts in zip(*gradients, strict=True):  # the gradients of all logits by one parameter
            block = torch.stack([part.reshape(-1) for part in parts])
            block = block.to(torch.promote_types(block.dtype, torch.float32))
            gram += block @ block.T
        grams.append(gram)
    return torch.stack(grams)


def _gram_of_layers(model: nn.Module, parameters: dict[str, nn.Parameter], x: Tensor) -> Tensor:
    """(b, k, k) J Jᵀ by layers; ValueError if a chosen parameter does not belong to a plain Linear layer."""
    layers = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    owners = {_within(name, part): name for name, layer in layers.items() for part, _ in layer.named_parameters()}
    # `remove_duplicate=False` lists a tied weight under all its names: such a weight belongs to several layers.
    places = [id(value) for _, value in model.named_parameters(remove_duplicate=False)]
    if not set(parameters) <= set(owners) or len(set(places)) < len(places):
        raise ValueError("parameters outside Linear layers, or tied ones")
    used = list(dict.fromkeys(owners[name] for name in parameters))  # a set would change the order of summation
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in used}

    def watch(name: str) -> Callable[..., Tensor]:
        def hook(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
            seen[name].append((arguments[0], output))
            return output.clone()  # an in-place activation must not overwrite the kept output

        return hook

    handles = [layers[name].register_forward_hook(watch(name)) for name in used]
    try:
        logits = check_logits(model(x))
    finally:
        for handle in handles:
            handle.remove()
    if any(len(calls) != 1 or calls[0][1].ndim != 2 or len(calls[0][1]) != len(x) for calls in seen.values()):
        raise ValueError("a layer used more than once, or not once a row")
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
        if _within(name, "weight") in parameters:
            weight += _lengths(seen[name][0][0].detach()).square()
        if _within(name, "bias") in parameters:
            weight += 1.0
        gram += weight[:, None, None] * (delta @ delta.transpose(1, 2)).double()
    return gram


def _within(layer: str, part: str) -> str:
    """A parameter's name in the model, which may be the layer itself."""
    return f"{layer}.{part}" if layer else part


def _lengths(a: Tensor) -> Tensor:
    """(b,) ‖a‖, summed in the precision of a, which is many times faster, unless the sum over- or underflows."""
    own: Tensor = torch.linalg.vector_norm(a, dim=1)
    if a.dtype not in (torch.float32, torch.float64) or not bool(((own > 1e-15) & own.isfinite()).all()):
        own = torch.linalg.vector_norm(a, dim=1, dtype=torch.float64)
    return own.double()


def _gram_of_examples(model: nn.Module, parameters: dict[str, nn.Parameter], x: Tensor) -> Tensor:
    """(b, k, k) J Jᵀ from each example's full Jacobian of k·d numbers; eight examples at a time."""
    values = {name: value.detach() for name, value in parameters.items()}

    def logits(tensors: dict[str, Tensor], row: Tensor) -> Tensor:
        output: Tensor = functional_call(model, tensors, (row[None],))[0]
        return output

    jacobian = vmap(jacrev(logits), in_dims=(None, 0))
    grams = []
    for rows in torch.split(x, 8):
        parts = [part.reshape(*part.shape[:2], -1) for part in jacobian(values, rows).values()]
        grams.append(sum(part @ part.transpose(1, 2) for part in parts))
    return torch.cat(grams)
