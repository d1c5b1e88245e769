"""CRL: confidences ordered by how often examples were correct so far (Moon et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from surefoot.loss import wide
from surefoot.losses.objective import Batch, Objective, Validation
from surefoot.losses.ranks import gathered
from surefoot.validation import check_int, check_non_negative

__all__ = ["CRL"]


class CRL(Objective):
    """ℓ + w · mean over neighbours i, j in the batch of relu(−s (c_i − c_j) + |r_i − r_j|), s = sign(r_i − r_j).

    r is how often an example was correct so far, minus the smallest such count, divided by the number of epochs minus
    the smallest count. Pairs with s = 0 contribute nothing. The last example of the (global) batch is the neighbour of
    the first example. Counts come from the training forward passes, one for each step; an optimizer's second pass sees
    the same targets and counts nothing.

    Args:
        examples: number of training examples, which ``batch.indices`` count, at least 1.
        weight: w ≥ 0.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> objective = CRL(examples=2)
        >>> batch = Batch(torch.tensor([[3.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 1]), torch.arange(2), 0)
        >>> loss = objective(nn.Identity(), batch)
        >>> objective.right
        tensor([1., 0.], dtype=torch.float64)

    References:
        Moon et al. (2020), "Confidence-Aware Learning for Deep Neural Networks".
    """

    right: Tensor
    epochs: Tensor

    def __init__(self, examples: int, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = check_non_negative("weight", weight)
        self.register_buffer("right", torch.zeros(check_int("examples", examples, 1), dtype=torch.float64))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))
        self._kept: tuple[Batch, Tensor] | None = None

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch, a scalar."""
        logits = wide(model(batch.inputs))
        loss = self.mean(logits, batch.labels, cross_entropy(logits, batch.labels, reduction="none"))
        confidence, predicted = logits.softmax(dim=1).max(dim=1)
        r = self._history(batch, predicted == batch.labels).to(confidence.dtype)
        c = gathered(confidence)
        ahead, gap = c - c.roll(-1), r - r.roll(-1)
        return loss + self.weight * relu(gap.abs() - gap.sign() * ahead).where(gap != 0, 0.0).mean()

    @torch.no_grad()
    def _history(self, batch: Batch, correct: Tensor) -> Tensor:
        """(n,) r of the global batch before this step, which is counted afterwards."""
        if self._kept is not None and self._kept[0] is batch:
            return self._kept[1]
        rows = gathered(batch.indices)
        lowest, epochs = self.right.min(), self.epochs.clamp_min(1).to(self.right.dtype)
        # If every example was always correct, all counts are equal, and so is r.
        history = (self.right[rows] - lowest) / torch.where(epochs > lowest, epochs - lowest, 1.0)
        # An ensemble sees a row several times in a step: the share of correct members counts.
        times = torch.bincount(rows, minlength=len(self.right))[rows]
        self.right.index_add_(0, rows, gathered(correct.to(self.right.dtype)) / times)
        self._kept = (batch, history)
        return history

    def epoch(self, validation: Validation) -> None:
        """Count one more epoch.

        Args:
            validation: not used.
        """
        self.epochs += 1
