"""Lock on a run's folder, so that one process trains the run at a time. Needs no torch.

The lock is the kernel's (``flock``): the kernel releases the lock of a process that dies.
"""

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
    """Hold the lock of a run inside a ``with`` block.

    Args:
        folder: The run's folder, which exists.

    Yields:
        None, while the lock is held.

    Raises:
        RunLocked: If another process holds the lock.
        BadInput: If the folder or the lock file is a link, or the lock file is not regular.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder)):
        ...     is_locked(Path(folder))
        True
    """
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
    """Whether a process holds the lock of a run now.

    Args:
        folder: The run's folder, which may not exist.

    Returns:
        True if the lock is held; False also if the folder or the lock file cannot be opened.
    """
    try:
        handle = open_regular(folder / LOCK)
    except (OSError, BadInput):  # `locked` raises a clear error in this case
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
