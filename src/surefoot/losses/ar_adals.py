"""AR-AdaLS: label smoothing that depends on how easily an example is attacked (Qin et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surefoot.deprecated import renamed_arguments, renamed_property
from surefoot.errors import BadInput
from surefoot.forward import CHUNK
from surefoot.loss import wide
from surefoot.losses.frozen_network import frozen_network
from surefoot.losses.objective import Batch, Objective, Validation
from surefoot.losses.slopes import runner_up_gaps, slope_of
from surefoot.validation import check_int, check_non_negative

__all__ = ["ARAdaLS", "boundary_distance"]


def boundary_distance(model: nn.Module, inputs: Tensor, runner_ups: int = 3) -> Tensor:
    """First-order distance of inputs to the nearest change of the predicted class, in the 2-norm.

    The distance is the minimum of gap_j / ‖∇ₓ gap_j‖₂ over the nearest competing classes j of the predicted class; it
    is exact for a linear model.

    Args:
        model: maps inputs to logits (n, k).
        inputs: (n, ...).
        runner_ups: number of competing classes that are considered, at least 1.

    Returns:
        (n,) float64 distances.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> model.weight = nn.Parameter(torch.eye(2))
        >>> boundary_distance(model, torch.tensor([[2.0, 0.0]])) ** 2
        tensor([2.0000], dtype=torch.float64)
    """
    distances = []
    with frozen_network(model, {}) as network:
        for rows in torch.split(inputs.detach(), CHUNK):
            x = rows.clone().requires_grad_()
            logits = wide(network(x))
            gaps = runner_up_gaps(logits, logits.detach().argmax(dim=1), min(runner_ups, logits.shape[1] - 1))
            slopes = [slope_of(gap, x).detach().flatten(1).norm(dim=1) for gap in gaps.unbind(dim=1)]
            # A gap with zero slope is never closed.
            distance = gaps.detach().double() / torch.stack(slopes, dim=1).double().clamp_min(1e-30)
            distances.append(distance.amin(dim=1))
    return torch.cat(distances)


class ARAdaLS(Objective):
    """−(1 − ε_r) log p_y − ε_r/(K − 1) Σ_{k≠y} log p_k, with ε_r of the example's robustness group.

    The training examples are divided into ``groups`` groups of equal size by their distance to the decision boundary,
    again every ``refresh`` epochs. The validation examples are divided in the same way. After each epoch
    ε_r ← ε_r + rate · (confidence − accuracy) of the r-th validation group, clipped to 0 and (K − 1)/K. Until the end
    of the first epoch there is one group, and ε is 0.

    The paper measures robustness by Carlini & Wagner's attack. Surefoot uses the first-order distance, at the cost of
    ``runner_ups`` gradients. No code is public: the defaults of ``groups``, ``rate`` and ``refresh`` are surefoot's.

    Args:
        examples: number of training examples, which ``batch.indices`` count, at least 1.
        groups: R ≥ 1.
        rate: step size of ε, at least 0.
        refresh: epochs between two divisions of the training examples, at least 1.
        runner_ups: number of competing classes that the distance considers, at least 1.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> ARAdaLS(examples=100, groups=2).smoothing
        tensor([0., 0.], dtype=torch.float64)

    References:
        Qin et al. (2021), "Improving Calibration through the Relationship with Adversarial Robustness".
    """

    group: Tensor
    smoothing: Tensor
    epochs: Tensor

    rivals = renamed_property("rivals", "runner_ups")

    @renamed_arguments(rivals="runner_ups")
    def __init__(
        self, examples: int, groups: int = 10, rate: float = 0.05, refresh: int = 10, runner_ups: int = 3
    ) -> None:
        super().__init__()
        self.rate, self.refresh = check_non_negative("rate", rate), check_int("refresh", refresh, 1)
        self.runner_ups, groups = check_int("runner_ups", runner_ups, 1), check_int("groups", groups, 1)
        self.register_buffer("group", torch.zeros(check_int("examples", examples, 1), dtype=torch.int64))
        self.register_buffer("smoothing", torch.zeros(groups, dtype=torch.float64))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch, a scalar."""
        logits = wide(model(batch.inputs))
        epsilon = self.smoothing[self.group[batch.indices]].to(logits.dtype)
        loss = cross_entropy(logits, batch.labels, reduction="none")
        others = -logits.log_softmax(dim=1).sum(dim=1) - loss
        values = (1 - epsilon) * loss + epsilon * others / (logits.shape[1] - 1)
        return self.mean(logits, batch.labels, values)

    def epoch(self, validation: Validation) -> None:
        """Update every group's ε by its gap on the validation examples; divide the training examples again when due.

        Args:
            validation: the model and its data after the epoch.

        Raises:
            BadInput: if ``examples`` is not the size of the training set.
        """
        p = validation()
        if validation.val is None or p is None:
            return
        groups = len(self.smoothing)
        distances = boundary_distance(validation.model, validation.val.take()[0], self.runner_ups)
        if not bool(distances.isfinite().all()):
            return
        place = _places(distances, groups)
        gap = torch.from_numpy(p.confidence - p.correct).to(self.smoothing)
        gaps = torch.zeros_like(self.smoothing).index_add_(0, place, gap)
        counts = torch.bincount(place, minlength=groups).clamp_min(1)
        upper = (p.classes - 1) / p.classes
        self.smoothing.copy_((self.smoothing + self.rate * gaps / counts).clamp(0, upper))
        if int(self.epochs) % self.refresh == 0:
            x, _ = validation.train.take()
            if len(x) != len(self.group):
                raise BadInput(f"examples must be {len(x)}, the training set's; got {len(self.group)}")
            self.group.copy_(_places(boundary_distance(validation.model, x, self.runner_ups), groups))
        self.epochs += 1


def _places(distances: Tensor, groups: int) -> Tensor:
    """(n,) group of each distance, the smallest distances in group 0, in groups of nearly equal size."""
    order = distances.argsort(stable=True)
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device) * groups // len(order)
    return places
