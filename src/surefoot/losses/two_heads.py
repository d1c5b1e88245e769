"""BalCAL: a learnt head and a fixed head, mixed so that training confidence meets accuracy (Ni et al. 2025)."""

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

_HALVINGS = 14  # of [0, 1], which gives a share within 10⁻⁴, the authors' tolerance


def simplex(classes: int) -> Tensor:
    """The simplex √(K/(K−1)) (I − 11ᵀ/K): unit columns, any two at the same obtuse angle.

    Args:
        classes: K ≥ 2.

    Returns:
        (k, k).

    Example:
        >>> simplex(2)
        tensor([[ 0.7071, -0.7071],
                [-0.7071,  0.7071]])
    """
    return math.sqrt(classes / (classes - 1)) * (torch.eye(classes) - 1 / classes)


class BalancedHead(nn.Module):
    """The replacement of a model's last layer: λ z + (1 − λ) z′, z by that layer, z′ by unit features on a simplex.

    Args:
        linear: the model's last layer.
        share: λ in [0, 1].

    Attributes:
        last: logits of the learnt and of the fixed head, until `taken` returns them.
    """

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
        """The mixed logits; ``last`` keeps the logits of the two heads.

        Args:
            features: (b, f).

        Returns:
            (b, k).
        """
        learnt, fixed = self.linear(features), normalize(self.adaptor(features), dim=1) @ self.corners
        self.last = learnt, fixed
        mixed: Tensor = self.share * learnt + (1 - self.share) * fixed
        return mixed

    def taken(self) -> tuple[Tensor, Tensor]:
        """Return and forget the logits of the last forward pass.

        Returns:
            Logits (b, k) of the learnt head and of the fixed head.
        """
        assert self.last is not None, "the head was not called"
        logits, self.last = self.last, None
        return logits


class BalCAL(Objective):
    """λ CE(z) + (1 − λ) CE(z′ √(B / (u n_k))): n_k examples of class k, u classes, in a batch of B.

    z is the learnt head's logit, z′ the fixed head's. After each epoch λ is bisected so that the mean confidence on the
    training set is δ times the accuracy. If the learnt head alone is not overconfident, λ is 1.
    ``model = objective.wrap(model)`` inserts the two heads; the model keeps λ.

    Args:
        classes: number of outputs of the model's last linear layer, at least 2.
        delta: δ in (0, 1]; the authors take 0.95.
        start: λ before the end of the first epoch, in [0, 1].

    Raises:
        BadInput: if an argument is out of its range; when called, if the model has no two heads.

    Example:
        >>> model = BalCAL(classes=2).wrap(nn.Sequential(nn.Linear(3, 2)))
        >>> type(model[0]).__name__
        'BalancedHead'

    References:
        Ni et al. (2025), "Balancing Two Classifiers via a Simplex ETF Structure for Model Calibration".
    """

    def __init__(self, classes: int, delta: float = 0.95, start: float = 0.8) -> None:
        super().__init__()
        self.classes = check_int("classes", classes, 2)
        self.delta, self.start = check_within("delta", delta, 0, 1), check_within("start", start, 0, 1)
        if self.delta == 0:
            raise BadInput(f"delta must lie in (0, 1]; got {delta!r}")

    def wrap(self, model: nn.Module) -> nn.Module:
        """Replace the last linear layer of ``classes`` outputs by a `BalancedHead` around this layer, in place.

        Args:
            model: the user's model.

        Returns:
            The same model.

        Raises:
            BadInput: if the model has no such layer with a name.
        """
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
        """The loss of a batch, a scalar."""
        head = _head(model)
        logits = wide(model(batch.inputs))
        learnt, fixed = (wide(part) for part in head.taken())
        share = head.share.to(logits.dtype)
        scaled = fixed * _balance(gathered(batch.labels), self.classes).to(fixed.dtype)
        first, second = (cross_entropy(z, batch.labels, reduction="none") for z in (learnt, scaled))
        return self.mean(logits, batch.labels, share * first + (1 - share) * second)

    @torch.no_grad()
    def epoch(self, validation: Validation) -> None:
        """Bisect λ on the training set.

        Args:
            validation: the model and its data after the epoch.
        """
        head, train = _head(validation.model), validation.train
        parts = []
        with evaluating(validation.model), torch.random.fork_rng():
            for inputs, _, _ in train.batches(CHUNK):
                validation.model(inputs)
                parts.append(head.taken())
        learnt, fixed = (torch.cat(chunks).double() for chunks in zip(*parts, strict=True))
        if bool(learnt.isfinite().all() and fixed.isfinite().all()):
            head.share.fill_(bisected(learnt, fixed, train.labels, self.delta))


def bisected(learnt: Tensor, fixed: Tensor, labels: Tensor, delta: float) -> float:
    """The share λ for which the mean confidence of λ z + (1 − λ) z′ (n, k) is δ times the accuracy, by bisection."""

    def overconfident(share: float) -> bool:
        confidence, predicted = (share * learnt + (1 - share) * fixed).softmax(dim=1).max(dim=1)
        return bool(confidence.mean() > delta * (predicted == labels).double().mean())

    if not overconfident(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if overconfident(middle) else (middle, high)
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
