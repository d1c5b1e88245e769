"""AR-AdaLS: labels smoothed by how easily an example is attacked (Qin et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surefoot.errors import BadInput
from surefoot.forward import CHUNK
from surefoot.loss import wide
from surefoot.losses.frozen_network import frozen_network
from surefoot.losses.objective import Batch, Objective, Validation
from surefoot.losses.slopes import runner_up_gaps, slope_of
from surefoot.validation import check_int, check_non_negative

__all__ = ["ARAdaLS", "boundary_distance"]


def boundary_distance(model: nn.Module, inputs: Tensor, rivals: int = 3) -> Tensor:
    """(n,) float64 distance of inputs to the nearest change of prediction, to first order, in the 2-norm.

    min over the nearest rivals j of the predicted class of gap_j / ‖∇ₓ gap_j‖₂; exact for a linear model.
    """
    found = []
    with frozen_network(model, {}) as still:
        for rows in torch.split(inputs.detach(), CHUNK):
            x = rows.clone().requires_grad_()
            logits = wide(still(x))
            gaps = runner_up_gaps(logits, logits.detach().argmax(dim=1), min(rivals, logits.shape[1] - 1))
            slopes = [slope_of(gap, x).detach().flatten(1).norm(dim=1) for gap in gaps.unbind(dim=1)]
            # A flat gap is never closed.
            far = gaps.detach().double() / torch.stack(slopes, dim=1).double().clamp_min(1e-30)
            found.append(far.amin(dim=1))
    return torch.cat(found)


class ARAdaLS(Objective):
    """−(1 − ε_r) log p_y − ε_r/(K − 1) Σ_{k≠y} log p_k, ε_r of the example's group by robustness.

    The training examples are put into ``groups`` groups of equal size by their distance to the decision boundary, anew
    every ``refresh`` epochs. After each epoch ε_r ← ε_r + rate · (confidence − accuracy) of the validation examples in
    the same place of their own order, kept within 0 and (K − 1)/K. Until the first epoch has ended there is one group,
    and ε is 0.

    The paper measures robustness by Carlini & Wagner's attack; here it is the distance to first order, at the price of
    ``rivals`` gradients. No code is public: group number, rate and refresh are ours.

    Args:
        examples: of the training set, which ``batch.indices`` count.
        groups: R.
        rate: of ε.
        refresh: epochs between two orders of the training examples.
        rivals: classes looked at for the distance.
    """

    group: Tensor
    smoothing: Tensor
    epochs: Tensor

    def __init__(self, examples: int, groups: int = 10, rate: float = 0.05, refresh: int = 10, rivals: int = 3) -> None:
        super().__init__()
        self.rate, self.refresh = check_non_negative("rate", rate), check_int("refresh", refresh, 1)
        self.rivals, groups = check_int("rivals", rivals, 1), check_int("groups", groups, 1)
        self.register_buffer("group", torch.zeros(check_int("examples", examples, 1), dtype=torch.int64))
        self.register_buffer("smoothing", torch.zeros(groups, dtype=torch.float64))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """Scalar."""
        logits = wide(model(batch.inputs))
        epsilon = self.smoothing[self.group[batch.indices]].to(logits.dtype)
        loss = cross_entropy(logits, batch.labels, reduction="none")
        others = -logits.log_softmax(dim=1).sum(dim=1) - loss
        values = (1 - epsilon) * loss + epsilon * others / (logits.shape[1] - 1)
        return self.mean(logits, batch.labels, values)

    def epoch(self, validation: Validation) -> None:
        """Move every group's ε by its gap on the validation examples; now and then order the training examples anew."""
        p = validation()
        if validation.val is None or p is None:
            return
        groups = len(self.smoothing)
        distances = boundary_distance(validation.model, validation.val[0], self.rivals)
        if not bool(distances.isfinite().all()):
            return
        place = _places(distances, groups)
        gap = torch.from_numpy(p.confidence - p.correct).to(self.smoothing)
        gaps = torch.zeros_like(self.smoothing).index_add_(0, place, gap)
        counts = torch.bincount(place, minlength=groups).clamp_min(1)
        most = (p.classes - 1) / p.classes
        self.smoothing.copy_((self.smoothing + self.rate * gaps / counts).clamp(0, most))
        if int(self.epochs) % self.refresh == 0:
            x = validation.train[0]
            if len(x) != len(self.group):
                raise BadInput(f"examples must be {len(x)}, the training set's; got {len(self.group)}")
            self.group.copy_(_places(boundary_distance(validation.model, x, self.rivals), groups))
        self.epochs += 1


def _places(distances: Tensor, groups: int) -> Tensor:
    """(n,) group of each distance, the smallest in group 0; as equal in size as can be."""
    order = distances.argsort(stable=True)
    found = torch.empty_like(order)
    found[order] = torch.arange(len(order), device=order.device) * groups // len(order)
    return found
