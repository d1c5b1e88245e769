"""What every ensemble is: one module, several opinions, whose probabilities are averaged in log space."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from surefoot.losses.objective import Batch

__all__ = ["Ensemble", "log_mean", "tiled"]


def log_mean(logits: Tensor) -> Tensor:
    """log of the mean over members of softmax(logits), (m, b, k) to (b, k); valid logits themselves."""
    return torch.logsumexp(torch.log_softmax(logits, dim=-1), dim=0) - math.log(len(logits))


class Ensemble(nn.Module):
    """A network that gives several opinions on an input.

    In eval mode ``forward(inputs)`` gives log-probabilities (b, k) of the mean of `member_logits`, always the same for
    the same batch: noise is drawn from seeds of its own. In training mode it takes the inputs of `spread` and gives
    logits with one row for each label of `spread`, so that any loss and any step rule works on them.

    Attributes:
        times: the loss is so many times the mean over rows.
    """

    times = 1

    @abstractmethod
    def member_logits(self, inputs: Tensor) -> Tensor:
        """(m, b, k) logits of every member or sample for inputs (b, ...)."""

    @abstractmethod
    def training_logits(self, inputs: Tensor) -> Tensor:
        """Logits of the rows that `spread` made."""

    def spread(self, batch: Batch) -> Batch:
        """A batch as the members are trained on it."""
        return batch

    def divergence(self) -> Tensor | None:
        """KL from the prior to the distribution of the weights, in nats; None without one."""
        return None

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits; see the class."""
        return self.training_logits(inputs) if self.training else log_mean(self.member_logits(inputs))


def tiled(batch: Batch, members: int) -> Batch:
    """The batch once for each member, one after another."""
    inputs = batch.inputs.repeat(members, *[1] * (batch.inputs.ndim - 1))
    return Batch(inputs, batch.labels.repeat(members), batch.indices.repeat(members), batch.step)
