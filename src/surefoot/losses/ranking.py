"""CRL: confidences in the order of how often examples were right so far (Moon et al. 2020)."""

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

    r is how often an example was right so far, less the smallest such count, over the number of epochs less it; where
    s is 0 a pair has no part. The last example of the (global) batch is the first one's neighbour. Counts are those of
    the training forward passes, one each step; a rule's second pass sees the same targets and counts nothing.

    Args:
        examples: of the training set, which ``batch.indices`` count.
        weight: w.
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
        """Scalar."""
        logits = wide(model(batch.inputs))
        loss = self.mean(logits, batch.labels, cross_entropy(logits, batch.labels, reduction="none"))
        confidence, predicted = logits.softmax(dim=1).max(dim=1)
        r = self._history(batch, predicted == batch.labels).to(confidence.dtype)
        c = gathered(confidence)
        ahead, gap = c - c.roll(-1), r - r.roll(-1)
        return loss + self.weight * relu(gap.abs() - gap.sign() * ahead).where(gap != 0, 0.0).mean()

    @torch.no_grad()
    def _history(self, batch: Batch, correct: Tensor) -> Tensor:
        """(n,) r of the global batch before this step, which is then counted."""
        if self._kept is not None and self._kept[0] is batch:
            return self._kept[1]
        rows = gathered(batch.indices)
        least, most = self.right.min(), self.epochs.clamp_min(1).to(self.right.dtype)
        # Where every example was always right all are equal, and so is r.
        found = (self.right[rows] - least) / torch.where(most > least, most - least, 1.0)
        # An ensemble sees a row several times in a step: it counts as right by the share of its members.
        times = torch.bincount(rows, minlength=len(self.right))[rows]
        self.right.index_add_(0, rows, gathered(correct.to(self.right.dtype)) / times)
        self._kept = (batch, found)
        return found

    def epoch(self, validation: Validation) -> None:
        """One more."""
        self.epochs += 1
