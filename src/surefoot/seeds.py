"""Random numbers by position: every draw comes from (seed, stream, step).

The position in a run is therefore the complete random state of the run.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["derive", "generator", "reseed"]


def derive(seed: int, stream: str, step: int = 0) -> int:
    """Derive the seed of one draw; the result is the same on every machine.

    Args:
        seed: seed of the run.
        stream: name of what is drawn, such as ``"order"``.
        step: step of the run.

    Returns:
        An integer from 0 to 2⁶³ − 1, taken from a BLAKE2b hash of the three arguments.

    Example:
        >>> derive(0, "order", 3) == derive(0, "order", 3) != derive(0, "order", 4)
        True
    """
    digest = hashlib.blake2b(f"{seed}/{stream}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(seed: int, stream: str, step: int = 0) -> torch.Generator:
    """Make a torch generator for one stream at one step.

    Args:
        seed: seed of the run.
        stream: name of what is drawn.
        step: step of the run.

    Returns:
        A new ``torch.Generator`` on the CPU, seeded by `derive`.
    """
    import torch

    return torch.Generator().manual_seed(derive(seed, stream, step))


def reseed(seed: int, stream: str, step: int = 0) -> None:
    """Set torch's random state to one stream at one step, on the CPU and on CUDA devices in use.

    ``torch.manual_seed`` is avoided: without CUDA in use it costs 0.2 ms, because it records a stack trace for later.

    Args:
        seed: seed of the run.
        stream: name of what is drawn.
        step: step of the run.
    """
    import torch

    number = derive(seed, stream, step)
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(number)
