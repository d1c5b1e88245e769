"""A dense first layer in the top principal directions of its inputs, which contain the top eigenvector.

For natural images nearly all of the top Gauss–Newton eigenvector's first-layer block lies in the span of the
inputs' first hundred principal directions P (f, r). Restricting this block to V = C Pᵀ turns products with the
inputs X (n, f) into products with X P (n, r). X P is thirty times smaller for CIFAR and r = 100. P is orthonormal, so
the restricted matrix is a compression of G: its largest eigenvalue never exceeds G's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from surefoot.curvature.chunks import Data, frozen
from surefoot.curvature.lanczos import Eigenpairs
from surefoot.curvature.operator import Linearised, Operator, differentiable_twice
from surefoot.curvature.problem import add_into, leaves, mean_divisor, split
from surefoot.errors import BadInput
from surefoot.loss import Loss
from surefoot.ranks import ALONE, Ranks

__all__ = ["PrincipalGaussNewton", "first_dense", "own_names", "principal_directions", "share_seen"]


def first_dense(model: nn.Module, inputs: Tensor) -> str | None:
    """Name of the one Linear layer whose input is the flattened inputs themselves.

    Args:
        model: the model.
        inputs: (n, ...); two rows are used.

    Returns:
        The name, or None if there is no such layer, or its weight is frozen or used elsewhere.

    Example:
        >>> first_dense(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.arange(8.0).reshape(2, 2, 2))
        '1'
    """
    few = inputs[:2]
    flat = few.reshape(len(few), -1)
    fed: list[str] = []
    calls: dict[str, int] = {}

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            calls[name] = calls.get(name, 0) + 1
            if arguments[0].shape == flat.shape and torch.equal(arguments[0], flat):
                fed.append(name)

        return hook

    layers = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    handles = [module.register_forward_pre_hook(watch(name)) for name, module in layers.items()]
    try:
        with torch.no_grad():
            model(few)
    finally:
        for handle in handles:
            handle.remove()
    if len(fed) != 1 or calls[fed[0]] != 1:
        return None
    weight = layers[fed[0]].weight
    users = sum(value is weight for module in model.modules() for value in module.parameters(recurse=False))
    return fed[0] if users == 1 and weight.requires_grad else None


def principal_directions(inputs: Tensor, count: int, seed: int = 0, rounds: int = 4, ranks: Ranks = ALONE) -> Tensor:
    """Leading right singular vectors of the flattened inputs, by a randomised range finder.

    The inputs are not centred: a first layer's gradient is a combination of the inputs themselves. Directions in which
    the inputs consist of rounding are left out, since chance decides on these directions, differently on each rank.

    Args:
        inputs: (n, ...).
        count: maximum number of directions.
        seed: of the random start.
        rounds: power iterations.
        ranks: the ranks whose inputs are used together.

    Returns:
        (f, r) orthonormal columns, f the size of a flattened input.
    """
    x = inputs.reshape(len(inputs), -1)
    rows = sum(ranks.counts(len(x)))
    count = min(count, rows, x.shape[1])
    generator = torch.Generator().manual_seed(seed)
    wide = min(count + 16, rows, x.shape[1])
    q = torch.randn(x.shape[1], wide, generator=generator, dtype=torch.float64).to(x)
    for _ in range(rounds):
        q = torch.linalg.qr(ranks.sum_(x.T @ (x @ torch.linalg.qr(q).Q))).Q
    # Every rank computes the SVD of all rows: the Gram matrix alone could change the directions' signs.
    seen = ranks.rows(x @ q)
    _, sizes, v = torch.linalg.svd(seen, full_matrices=False)
    real = int((sizes > sizes[0] * torch.finfo(seen.dtype).eps * max(seen.shape)).sum())
    leading: Tensor = q @ v.T[:, : max(1, min(count, real))]
    return leading.contiguous()


def share_seen(inputs: Tensor, directions: Tensor, ranks: Ranks = ALONE) -> float:
    """The share of the inputs' squared length that lies in the directions, over all ranks.

    Args:
        inputs: (n, ...).
        directions: (f, r) orthonormal columns.
        ranks: the ranks whose inputs are used together.

    Returns:
        From 0 to 1, except for rounding; 1 if all inputs are 0.

    Example:
        >>> share_seen(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0], [0.0]]))
        0.36
    """
    x = inputs.reshape(len(inputs), -1)
    inside, total = ranks.sum_(torch.stack([(x @ directions).square().sum(), x.square().sum()])).tolist()
    return float(inside / total) if total else 1.0


def own_names(layer: str) -> list[str]:
    """The names of a layer's weight and bias; a model that is the layer itself has no name for the layer.

    Args:
        layer: the layer's name.

    Returns:
        Two names.

    Example:
        >>> own_names("first"), own_names("")
        (['first.weight', 'first.bias'], ['weight', 'bias'])
    """
    return [f"{layer}.{name}".removeprefix(".") for name in ("weight", "bias")]


class PrincipalGaussNewton(Operator):
    """The Gauss–Newton matrix compressed to first-layer weights C Pᵀ (o, f) and all other parameters.

    Vectors contain C (o, r), the first layer's bias, then the other parameters in the model's order.

    Args:
        model: the model.
        data: inputs and labels.
        loss: the loss, a sum over examples.
        layer: name of the first layer, as of `first_dense`.
        directions: P (f, r), orthonormal columns.
        others: names of all other parameters.
        ranks: the ranks over which products are summed.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        loss: Loss,
        layer: str,
        directions: Tensor,
        others: Sequence[str],
        ranks: Ranks = ALONE,
    ) -> None:
        self._model, self._data, self._loss, self._layer = model, data, loss, layer
        self._ranks, self._divisor = ranks, mean_divisor(loss, data, ranks)
        self._directions = directions
        self._names = list(others)
        self._resolve()
        weight = self._dense.weight
        out, bias = weight.shape[0], self._dense.bias
        self._moving = [torch.zeros(out, directions.shape[1]).to(weight).requires_grad_()]
        if bias is not None and bias.requires_grad:
            self._moving.append(torch.zeros_like(bias).requires_grad_())
        self._own_names = own_names(layer)[: len(self._moving)]
        self._small = [x.reshape(len(x), -1) @ directions for x, _ in data.chunks()]
        dim = sum(tensor.numel() for tensor in self._tensors)
        facts = {
            "matrix": "gauss-newton, first layer compressed",
            "n": sum(ranks.counts(len(data))),
            "loss": loss,
            "directions": directions.shape[1],
        }
        super().__init__(dim, weight, facts)
        self._linear: list[Linearised] | None = None
        self._hidden: list[Tensor] = []
        with frozen(model, "eval"):
            few = partial(self._forward, data.inputs[:2], self._small[0][:2], [])
            self._twice = differentiable_twice(few, self._tensors)

    @property
    def _tensors(self) -> list[Tensor]:
        return [*self._moving, *self._others]

    def refresh(self) -> None:
        """Use the model as it is now: one forward pass builds the graph for all products until the next call."""
        self._resolve()
        self._ranks.check_same(self._model)
        self._linear, self._hidden = [], []
        with frozen(self._model, "eval"):
            for (inputs, _), small in zip(self._data.chunks(), self._small, strict=True):
                seen: list[Tensor] = []
                forward = partial(self._forward, inputs, small, seen)
                self._linear.append(Linearised(forward, self._tensors, self._twice))
                self._hidden.append(seen[0])

    def _resolve(self) -> None:
        """Look up the layer and the other parameters by name: a model may have replaced them."""
        dense = self._model.get_submodule(self._layer)
        if type(dense) is not nn.Linear:
            raise BadInput(
                f"layer {self._layer!r} must still be an nn.Linear; got {type(dense).__name__}; make a new reader"
            )
        self._dense = dense
        self._others = leaves(self._model.get_parameter(name) for name in self._names)

    def _forward(self, inputs: Tensor, small: Tensor, seen: list[Tensor], tensors: Sequence[Tensor]) -> Tensor:
        """The logits; the first layer's output is appended to ``seen`` if ``seen`` is empty."""
        moving, others = tensors[: len(self._moving)], tensors[len(self._moving) :]

        def replace(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
            shifted = output.detach() + small @ moving[0].T
            hidden = shifted + moving[1] if len(moving) > 1 else shifted
            if not seen:
                seen.append(hidden)
            return hidden.clone()  # an in-place activation must not overwrite the kept output

        handle = self._dense.register_forward_hook(replace)
        try:
            logits: Tensor = functional_call(self._model, dict(zip(self._names, others, strict=True)), (inputs,))
            return logits
        finally:
            handle.remove()

    def matvec(self, v: Tensor) -> Tensor:
        """(r-dimensional) product with the compressed matrix."""
        return self._product(self._check(v))[0]

    def _product(self, v: Tensor, whole: bool = False) -> tuple[Tensor, Tensor | None]:
        """The compressed product and, if ``whole``, the gradient of the full first-layer weight (o, f)."""
        if self._linear is None:
            self.refresh()
        assert self._linear is not None
        parts = split(v, self._tensors)
        total = torch.zeros_like(v)
        weight = torch.zeros_like(self._dense.weight) if whole else None
        with frozen(self._model, "eval"):  # forward mode runs the model
            for linear, hidden, (inputs, labels) in zip(self._linear, self._hidden, self._data.chunks(), strict=True):
                s = self._loss.hessian_product(linear.logits.detach(), labels, linear.jvp(parts)) / self._divisor
                add_into(total, linear.vjp(s), self._tensors)
                if weight is not None:
                    (delta,) = torch.autograd.grad(linear.logits, hidden, s, retain_graph=True)
                    weight += delta.T @ inputs.reshape(len(inputs), -1)
        return self._ranks.sum_(total), None if weight is None else self._ranks.sum_(weight)

    def lift(self, vectors: Tensor, order: Sequence[str]) -> Tensor:
        """Compressed vectors as vectors over all parameters of the model, of the same length.

        Args:
            vectors: (r', m) compressed vectors in columns.
            order: names of the parameters in the order of the result.

        Returns:
            (d, m).
        """
        lifted = []
        for column in vectors.T:
            parts = split(column, self._tensors)
            own = [parts[0] @ self._directions.T, *parts[1 : len(self._moving)]]
            by_name = dict(zip([*self._own_names, *self._names], [*own, *parts[len(self._moving) :]], strict=True))
            lifted.append(torch.cat([by_name[name].reshape(-1) for name in order]))
        return torch.stack(lifted, dim=1)

    def compress(self, vectors: Tensor, order: Sequence[str]) -> Tensor:
        """Vectors over all parameters without the part outside the directions; undoes `lift`.

        Args:
            vectors: (d, m) in columns.
            order: names of the parameters in the order of the vectors.

        Returns:
            (r', m) compressed vectors in columns.
        """
        sizes = {name: self._model.get_parameter(name) for name in order}
        compressed = []
        for column in vectors.to(self.device, self.dtype).T:
            parts = dict(zip(order, split(column, list(sizes.values())), strict=True))
            weight = parts.pop(self._own_names[0]) @ self._directions
            rest = [parts[name] for name in [*self._own_names[1:], *self._names]]
            compressed.append(torch.cat([part.reshape(-1) for part in [weight, *rest]]))
        return torch.stack(compressed, dim=1)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, r') random vectors, drawn for the full first layer and projected on the directions.

        Rounding, which differs over ranks, may reverse the directions' signs. The projection makes the start of a
        search independent of these signs.
        """
        weight = self._dense.weight
        layer = torch.randn(count, *weight.shape, generator=generator, dtype=self.dtype).to(self.device)
        small = (layer @ self._directions).flatten(1)
        rest = torch.randn(count, self.dim - small.shape[1], generator=generator, dtype=self.dtype).to(self.device)
        return torch.cat([small, rest], dim=1)

    def verify(self, pair: Eigenpairs) -> float:
        """‖G y − θ y‖ of the lifted top pair in the full space: an eigenvalue of G lies within this distance of θ.

        J y needs the compressed inputs only, so this check costs one transposed product with the inputs.

        Args:
            pair: compressed eigenpairs, of which the first is checked.

        Returns:
            The residual.
        """
        theta, y = float(pair.values[0]), pair.vectors[:, 0]
        inside, weight = self._product(y, whole=True)
        assert weight is not None
        seen = split(inside, self._tensors)[0]
        outside = weight - seen.view(len(weight), -1) @ self._directions.T  # ‖weight‖² − ‖seen‖² would cancel
        return float(sum(float(part.double().square().sum()) for part in (inside - theta * y, outside)) ** 0.5)

    def agrees(self, whole: Operator, order: Sequence[str]) -> bool:
        """Whether a random product agrees with the full matrix in every parameter, inside the directions.

        The products disagree if more than the first layer depends on its weight or input: a learned map before the
        layer, a weight used elsewhere, a hook.

        Args:
            whole: the full matrix over the same rows.
            order: names of the parameters in the order of the full matrix.

        Returns:
            True or False.
        """
        generator = torch.Generator().manual_seed(0)
        v = torch.randn(self.dim, generator=generator, dtype=torch.float64).to(self.device, self.dtype)
        product = self.matvec(v).double()
        image = whole.matvec(self.lift(v[:, None], order)[:, 0])
        expected = self.compress(image[:, None], order)[:, 0].double()
        scale = float(expected.norm())
        parts = zip(split(product, self._tensors), split(expected, self._tensors), strict=True)
        return all(float((a - b).norm()) <= 1e-3 * float(b.norm()) + 1e-4 * scale for a, b in parts)
