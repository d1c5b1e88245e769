"""Reproducible noise for evaluation that leaves the caller's random state unchanged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from surefoot.seeds import reseed

__all__ = ["own_noise"]


@contextlib.contextmanager
def own_noise(seed: int, sample: int) -> Iterator[None]:
    """Seed torch's generators for one sample, and restore their state on exit.

    Args:
        seed: seed of the ensemble, at least 0.
        sample: number of the sample, at least 0.

    Yields:
        Nothing.

    Example:
        >>> with own_noise(0, 0):
        ...     first = torch.rand(1)
        >>> with own_noise(0, 0):
        ...     bool(torch.rand(1) == first)
        True
    """
    with torch.random.fork_rng():
        reseed(seed, "ensemble", sample)
        yield
