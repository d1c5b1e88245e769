"""The kernel's lock on a run's folder: one process runs it at a time, and death lets go of it. No torch."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from surefoot.errors import RunLocked

__all__ = ["is_locked", "locked"]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock; `RunLocked` if someone else does."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunLocked(f"another process is running {folder.name}; wait for it, or stop it") from error
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether another process holds it now."""
    try:
        handle = os.open(folder / "lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
