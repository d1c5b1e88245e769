"""The kernel's lock on a run's folder: one process runs it at a time, and death lets go of it. No torch."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from surefoot.errors import BadInput, RunLocked
from surefoot.files import open_regular

__all__ = ["LOCK", "is_locked", "locked"]

LOCK = "lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock; `RunLocked` if someone else does."""
    handle = open_regular(folder / LOCK, os.O_RDWR | os.O_CREAT)
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
        handle = open_regular(folder / LOCK)
    except (OSError, BadInput):  # whoever runs it is told what is wrong with it
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
