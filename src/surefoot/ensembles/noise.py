"""Noise of its own for an evaluation: the same at each call, and the caller's random numbers stay where they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from surefoot.seeds import reseed

__all__ = ["own_noise"]


@contextlib.contextmanager
def own_noise(seed: int, sample: int) -> Iterator[None]:
    """Random numbers of one sample; afterwards torch's generators are as they were."""
    with torch.random.fork_rng():
        reseed(seed, "ensemble", sample)
        yield
