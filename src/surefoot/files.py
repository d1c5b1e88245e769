"""Safe access to files.

Files may come from untrusted sources: nothing in a file is executed, no link out of a run's folder is followed, and no
file is left partially written. All access to a run's folder goes through `open_regular` and the functions below it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from surefoot.errors import BadInput, StorageFault

__all__ = [
    "check_regular",
    "first_line",
    "make_folder",
    "open_file",
    "open_regular",
    "read_file",
    "remove_leftovers",
    "replace_file",
    "sync_folder",
]

# Links are not followed, pipes and terminals are not waited for, and programs that we start do not inherit the file.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def _opened(folder: Path, follow: bool = False) -> Iterator[int]:
    """A folder's descriptor; `BadInput` if the folder is a symbolic link that may not be followed, or no folder."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if not follow and folder.is_symlink():
            raise BadInput(_LINKED_FOLDER.format(str(folder))) from error
        if error.errno == errno.ENOTDIR:
            raise BadInput(f"{str(folder)!r} is no folder; move it away, or choose another place") from error
        raise
    try:
        yield handle
    finally:
        os.close(handle)


_LINKED_FOLDER = (
    "{!r} is a symbolic link, and the folder of a run is never reached through one; name the folder that it points to, "
    "or remove the link"
)
_KINDS_OF_FILES = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _refuse(path: Path, mode: int) -> None:
    """`BadInput` for anything but a regular file."""
    if not stat.S_ISREG(mode):
        kind = _KINDS_OF_FILES.get(stat.S_IFMT(mode), "no regular file")
        raise BadInput(
            f"{str(path)!r} is {kind}; surefoot reads and writes regular files only: put the file itself there, or "
            "remove what is there"
        )


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file of a run safely: every file of a run is opened here.

    Neither the file nor its folder may be a symbolic link, and the file must be a regular one. A file that is written
    to may have no other name. Folders further up may be links. The call never waits for a pipe.

    Args:
        path: The file; its folder is opened first, and the file inside of that.
        flags: As of `os.open`. A file that ``os.O_CREAT`` creates has the mode 0666 less the umask.

    Returns:
        A file descriptor, which the caller closes.

    Raises:
        BadInput: If the file or its folder is a symbolic link, if the file is a pipe, a folder or a device, or if a
            file that is opened for writing has a second hard link.
        OSError: If the file is missing, or cannot be opened for another reason.
    """
    with _opened(path.parent) as folder:
        try:
            handle = os.open(path.name, flags | _SAFE, 0o666, dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                _refuse(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode)
            raise
    try:
        status = os.fstat(handle)
        _refuse(path, status.st_mode)
        if flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1:
            raise BadInput(
                f"{str(path)!r} is a hard link, so that writing would change the file under its other names, too; "
                "replace it by a copy"
            )
    except BadInput:
        os.close(handle)
        raise
    return handle


def open_file(path: Path) -> IO[bytes]:
    """Open a file of a run for reading, as `open_regular` does.

    Args:
        path: The file.

    Returns:
        A binary stream, which the caller closes.

    Raises:
        BadInput: If `open_regular` refuses the file.
        OSError: If the file is missing or cannot be opened.
    """
    return open(open_regular(path), "rb")


def read_file(path: Path, max_bytes: int) -> bytes:
    """Read a file of a run.

    Args:
        path: The file, opened as by `open_regular`.
        max_bytes: A larger file is refused before anything is read: a file of holes has a size and no contents.

    Returns:
        All bytes of the file.

    Raises:
        BadInput: If the file is too large, or `open_regular` refuses it.
        OSError: If the file is missing or cannot be read.
    """
    with open_file(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > max_bytes:
            raise BadInput(f"{str(path)!r} has {size:,} bytes, too many: at most {max_bytes:,} are read; move it away")
        return stream.read(size)  # what is appended meanwhile is left for the next time


def make_folder(path: Path) -> None:
    """Make a run's folder with those above it; a folder that exists is kept.

    Args:
        path: The folder.

    Raises:
        BadInput: If ``path`` is a symbolic link, or no folder.
        StorageFault: If the folder cannot be made.
    """
    try:
        if not path.is_symlink():
            path.mkdir(parents=True, exist_ok=True)
        with _opened(path):
            pass
    except OSError as error:
        raise StorageFault(f"cannot make the folder {str(path)!r}: {first_line(error)}") from error


def check_regular(folder: Path, names: Iterable[str]) -> None:
    """Check that a run's files are regular files, before any of them is touched.

    Args:
        folder: The run's folder, which exists.
        names: Names in the folder; those that do not exist are passed over.

    Raises:
        BadInput: If the folder is a link, or one of the names is not that of a regular file.
    """
    with _opened(folder) as handle:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                _refuse(folder / name, os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode)


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Remove temporary files that `replace_file` left in a run's folder when the process died.

    Args:
        folder: The run's folder.
        names: Names of the files that were being replaced. Other hidden files are not ours, and stay.
    """
    ours = re.compile(rf"\.({'|'.join(map(re.escape, names))})\.[a-z0-9_]{{8}}").fullmatch
    with _opened(folder) as handle:
        for name in filter(ours, os.listdir(handle)):
            if stat.S_ISREG(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=handle)


def sync_folder(folder: Path) -> None:
    """Wait until a rename in a run's folder is on the disk.

    Args:
        folder: The run's folder.

    Raises:
        BadInput: If the folder is a symbolic link.
        StorageFault: If the disk refuses.
    """
    try:
        with _opened(folder) as handle:
            os.fsync(handle)
    except OSError as error:
        raise StorageFault(f"cannot sync {str(folder)!r}: {first_line(error)}") from error


@contextlib.contextmanager
def replace_file(path: Path, follow_folder: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary file in the folder of ``path`` and rename it over ``path`` when the block ends well.

    A symbolic link at ``path`` is replaced, and its target is not touched. A regular file keeps its mode.

    Args:
        path: The file to write.
        follow_folder: Whether the folder may be a symbolic link; False for the files of a run.

    Yields:
        A binary stream for reading and writing.

    Raises:
        BadInput: If the folder is a link that may not be followed, or no folder.
        StorageFault: If the disk refuses the write; ``path`` is then as it was.
    """
    temporary = f".{path.name}.{secrets.token_hex(4)}"
    begun = False
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(_opened(path.parent, follow_folder))

            def opener(_: str, flags: int) -> int:
                return os.open(temporary, flags | _SAFE, 0o666, dir_fd=folder)

            with open(path.with_name(temporary), "x+b", opener=opener) as stream:
                begun = True
                with contextlib.suppress(FileNotFoundError):
                    mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
                    if stat.S_ISREG(mode):
                        os.fchmod(stream.fileno(), stat.S_IMODE(mode))
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            if begun:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
            if isinstance(error, OSError) and not isinstance(error, StorageFault):
                raise StorageFault(f"cannot write {str(path)!r}: {first_line(error)}") from error
            raise


def first_line(error: BaseException) -> str:
    """Put the text of an error on one line.

    Args:
        error: The error; of an `OSError` only the reason is taken, without the path.

    Returns:
        The text without line breaks.

    Example:
        >>> first_line(OSError(28, "No space left on device"))
        'No space left on device'
    """
    return " ".join(str(getattr(error, "strerror", None) or error).split())
