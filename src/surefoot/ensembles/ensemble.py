"""The base class of ensembles: one module with several members, whose probabilities are averaged in log space."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from surefoot.losses.objective import Batch

__all__ = ["Ensemble", "log_mean", "tiled"]


def log_mean(logits: Tensor) -> Tensor:
    """Compute the logarithm of the mean over members of softmax(logits).

    Args:
        logits: (m, b, k) logits of m members.

    Returns:
        (b, k) log-probabilities, which are valid logits.

    Example:
        >>> log_mean(torch.tensor([[[0.0, 0.0]], [[2.0, 0.0]]])).exp().round(decimals=4).tolist()
        [[0.6904000043869019, 0.30959999561309814]]
    """
    return torch.logsumexp(torch.log_softmax(logits, dim=-1), dim=0) - math.log(len(logits))


class Ensemble(nn.Module):
    """A network with several members or samples.

    In eval mode, ``forward(inputs)`` returns the log-probabilities (b, k) of the mean over `member_logits`. Equal
    batches give equal results, because noise is drawn from fixed seeds. In training mode, ``forward`` takes the inputs
    of `spread` and returns one row of logits per label of `spread`. Any loss and any optimizer works on these rows.

    Attributes:
        times: factor of the loss: the loss is the mean over rows, multiplied by ``times``.
    """

    times = 1

    @abstractmethod
    def member_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of every member or sample.

        Args:
            inputs: (b, ...).

        Returns:
            (m, b, k) logits.
        """

    @abstractmethod
    def training_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of the rows that `spread` made.

        Args:
            inputs: the inputs of `spread`.

        Returns:
            Logits, one row per label of `spread`.
        """

    def spread(self, batch: Batch) -> Batch:
        """Turn a batch into the batch that the members are trained on.

        Args:
            batch: the batch.

        Returns:
            The batch for training; by default the batch itself.
        """
        return batch

    def divergence(self) -> Tensor | None:
        """Compute the KL divergence between the distribution of the weights and the prior.

        Returns:
            The divergence in nats; None for an ensemble without a distribution of weights.
        """
        return None

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits; the class describes both modes.

        Args:
            inputs: (b, ...) in eval mode; the inputs of `spread` in training mode.

        Returns:
            (b, k) log-probabilities in eval mode; logits of the rows in training mode.
        """
        return self.training_logits(inputs) if self.training else log_mean(self.member_logits(inputs))


def tiled(batch: Batch, members: int) -> Batch:
    """Repeat a batch once for every member.

    Args:
        batch: the batch.
        members: number of members m.

    Returns:
        The batch of m times as many rows, ordered by member.
    """
    inputs = batch.inputs.repeat(members, *[1] * (batch.inputs.ndim - 1))
    return Batch(inputs, batch.labels.repeat(members), batch.indices.repeat(members), batch.step)
