"""Randomness by position: every draw comes from (seed, stream, step), so a place in a run is all its random state."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["derive", "generator", "reseed"]


def derive(seed: int, stream: str, step: int = 0) -> int:
    """A whole number below 2⁶³ that names the draw; the same on every machine.

    >>> derive(0, "order", 3) == derive(0, "order", 3) != derive(0, "order", 4)
    True
    """
    digest = hashlib.blake2b(f"{seed}/{stream}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(seed: int, stream: str, step: int = 0) -> torch.Generator:
    """A torch generator for one stream at one step."""
    import torch

    return torch.Generator().manual_seed(derive(seed, stream, step))


def reseed(seed: int, stream: str, step: int = 0) -> None:
    """Set the random state of the processor, and of CUDA devices in use, to one stream at one step.

    ``torch.manual_seed`` costs 0.2 ms where CUDA is not in use, since it writes down a stack trace for later.
    """
    import torch

    number = derive(seed, stream, step)
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(number)
