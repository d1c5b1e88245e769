"""BalCAL: a learnt head and a fixed one, in a share that makes training confidence meet accuracy (Ni et al. 2025)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from surefoot.errors import BadInput
from surefoot.forward import CHUNK, evaluating
from surefoot.loss import wide
from surefoot.losses.objective import Batch, Objective, Validation
from surefoot.losses.ranks import gathered
from surefoot.validation import check_int, check_within

__all__ = ["BalCAL", "BalancedHead", "simplex"]

_HALVINGS = 14  # of [0, 1]: to a share within 10⁻⁴, as the authors' tolerance


def simplex(classes: int) -> Tensor:
    """(k, k) the simplex √(K/(K−1)) (I − 11ᵀ/K): unit columns, any two at the same obtuse angle."""
    return math.sqrt(classes / (classes - 1)) * (torch.eye(classes) - 1 / classes)


class BalancedHead(nn.Module):
    """In place of a model's last layer: λ z + (1 − λ) z′, z by that layer, z′ by unit features on a fixed simplex."""

    share: Tensor
    corners: Tensor

    def __init__(self, linear: nn.Linear, share: float) -> None:
        super().__init__()
        self.linear = linear
        self.adaptor = nn.Linear(linear.in_features, linear.out_features)
        self.register_buffer("corners", simplex(linear.out_features))
        self.register_buffer("share", torch.tensor(share))
        self.last: tuple[Tensor, Tensor] | None = None

    def forward(self, features: Tensor) -> Tensor:
        """Logits (b, k); those of the two heads are in ``last`` until somebody takes them."""
        learnt, fixed = self.linear(features), normalize(self.adaptor(features), dim=1) @ self.corners
        self.last = learnt, fixed
        found: Tensor = self.share * learnt + (1 - self.share) * fixed
        return found

    def taken(self) -> tuple[Tensor, Tensor]:
        """Logits (b, k) of the learnt and of the fixed head in the last forward pass."""
        assert self.last is not None, "the head was not called"
        found, self.last = self.last, None
        return found


class BalCAL(Objective):
    """λ CE(z) + (1 − λ) CE(z′ √(B / (u n_k))): n_k examples of class k, u classes, in a batch of B.

    z is the learnt head's, z′ the fixed one's. After each epoch λ is bisected so that the mean confidence on the
    training set is δ times its accuracy; where the learnt head alone is not too sure, λ is 1.
    ``model = objective.wrap(model)`` puts the two heads in; λ is kept in the model.

    Args:
        classes: of the model's last linear layer.
        delta: δ; the authors take 0.95.
        start: λ before the first epoch has ended.
    """

    def __init__(self, classes: int, delta: float = 0.95, start: float = 0.8) -> None:
        super().__init__()
        self.classes = check_int("classes", classes, 2)
        self.delta, self.start = check_within("delta", delta, 0, 1), check_within("start", start, 0, 1)
        if self.delta == 0:
            raise BadInput(f"delta must lie in (0, 1]; got {delta!r}")

    def wrap(self, model: nn.Module) -> nn.Module:
        """``model`` with its last linear layer of ``classes`` outputs replaced by a `BalancedHead` around it."""
        places = [
            name
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and module.out_features == self.classes and name
        ]
        if not places:
            raise BadInput(
                f"BalCAL needs a model whose last layer is an nn.Linear of {self.classes} outputs, by a name"
            )
        owner, _, name = places[-1].rpartition(".")
        parent = model.get_submodule(owner)
        linear = model.get_submodule(places[-1])
        assert isinstance(linear, nn.Linear)
        setattr(parent, name, BalancedHead(linear, self.start).to(linear.weight))
        return model

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """Scalar."""
        head = _head(model)
        logits = wide(model(batch.inputs))
        learnt, fixed = (wide(each) for each in head.taken())
        share = head.share.to(logits.dtype)
        scaled = fixed * _balance(gathered(batch.labels), self.classes).to(fixed.dtype)
        first, second = (cross_entropy(each, batch.labels, reduction="none") for each in (learnt, scaled))
        return self.mean(logits, batch.labels, share * first + (1 - share) * second)

    @torch.no_grad()
    def epoch(self, validation: Validation) -> None:
        """Bisect λ on the training set."""
        head, (x, y) = _head(validation.model), validation.train
        parts = []
        with evaluating(validation.model), torch.random.fork_rng():
            for rows in torch.split(x, CHUNK):
                validation.model(rows)
                parts.append(head.taken())
        learnt, fixed = (torch.cat(each).double() for each in zip(*parts, strict=True))
        if bool(learnt.isfinite().all() and fixed.isfinite().all()):
            head.share.fill_(bisected(learnt, fixed, y, self.delta))


def bisected(learnt: Tensor, fixed: Tensor, labels: Tensor, delta: float) -> float:
    """The share λ at which the mean confidence of λ z + (1 − λ) z′ (n, k) falls to δ times the accuracy."""

    def too_sure(share: float) -> bool:
        confidence, predicted = (share * learnt + (1 - share) * fixed).softmax(dim=1).max(dim=1)
        return bool(confidence.mean() > delta * (predicted == labels).double().mean())

    if not too_sure(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if too_sure(middle) else (middle, high)
    return (low + high) / 2


def _balance(labels: Tensor, classes: int) -> Tensor:
    """(k,) √(B / (u n_k)), and 1 for a class that the batch lacks."""
    counts = torch.bincount(labels, minlength=classes).double()
    mean = len(labels) / (counts > 0).sum()
    return torch.where(counts > 0, mean / counts.clamp_min(1), 1.0).sqrt()


def _head(model: nn.Module) -> BalancedHead:
    for module in model.modules():
        if isinstance(module, BalancedHead):
            return module
    raise BadInput("BalCAL trains two heads; put them in first: model = objective.wrap(model), before the optimizer")
