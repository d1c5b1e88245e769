"""A worker on a node of a cluster: the host sends orders and reads messages. No torch, and nothing of Ray.

If the node does not see the study's folder, a run is made in a folder of the node. The files of the run come with the
order, and travel back whenever a checkpoint is written. Another node can then resume the run from that checkpoint.
"""

from __future__ import annotations

import os
import select
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.files import make_folder, read_file, replace_file
from surefoot.plugins import VARIABLE
from surefoot.studies.workers import Worker

__all__ = ["Files", "NodeWorker", "files_of", "put_files"]

Files = dict[str, bytes]
_COMMITS = ("state-", "best.", "result.json")  # the files travel when one of these changes
_MAX_BYTES = 1 << 40


class NodeWorker:
    """One worker on this node.

    Args:
        mark: path of a file in the study's folder, which only nodes that share the folder can see.
        plugins: modules that the worker imports, as the environment variable ``SUREFOOT_PLUGINS`` lists them.
    """

    def __init__(self, mark: str, plugins: str = "") -> None:
        if plugins:
            os.environ[VARIABLE] = plugins
        self._home = None if Path(mark).exists() else Path(tempfile.mkdtemp(prefix="surefoot-"))
        self._worker = Worker()
        self._run: Path | None = None
        self._seen: dict[str, tuple[int, int]] = {}

    def away(self) -> bool:
        """Check whether this node does not see the study's folder.

        Returns:
            True if the files of runs travel.
        """
        return self._home is not None

    def order(self, message: Mapping[str, Any], files: Files) -> None:
        """Send the worker an order.

        Args:
            message: the order, such as ``{"do": "run", "id": ...}``.
            files: the existing files of the run, for a node that does not see the study's folder.
        """
        if self._home is not None and message["do"] == "run":
            self._forget()
            self._run = self._home / message["id"]
            put_files(self._run, files)
            self._seen = _stamps(self._run)
            message = {**message, "out": str(self._home)}
        self._worker.order(message)

    def listen(self, seconds: float) -> tuple[list[dict[str, Any]] | None, Files]:
        """Read the messages of the worker within a time.

        Args:
            seconds: time to wait.

        Returns:
            The messages, None if the worker has ended; and the files to bring back.
        """
        readable = select.select([self._worker.output], [], [], seconds)[0]
        messages = self._worker.listen() if readable else []
        return messages, self._news()

    def ask_to_leave(self) -> None:
        """Ask the worker to commit its run and exit."""
        self._worker.ask_to_leave()

    def reap(self) -> tuple[int, str]:
        """Wait for the worker to end, and delete the files on the node.

        Returns:
            The exit code, and the last lines of the worker's log.
        """
        ending = self._worker.reap()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
        return ending

    def _news(self) -> Files:
        if self._run is None:
            return {}
        now = _stamps(self._run)
        if not any(now[name] != self._seen.get(name) for name in now if name.startswith(_COMMITS)):
            return {}
        self._seen = now
        return files_of(self._run)

    def _forget(self) -> None:
        if self._run is not None:
            shutil.rmtree(self._run, ignore_errors=True)


def files_of(folder: Path) -> Files:
    """Read the files of a run.

    Checkpoints are read first: a journal may then be longer than the checkpoints say, never shorter.

    Args:
        folder: folder of the run.

    Returns:
        Contents of every file, by name.
    """
    names = sorted(_stamps(folder), key=lambda name: (not name.startswith("state-"), name == "result.json", name))
    files = {}
    for name in names:
        try:
            files[name] = read_file(folder / name, _MAX_BYTES)
        except FileNotFoundError:  # replaced under another name just now
            continue
    return files


def put_files(folder: Path, files: Files) -> None:
    """Write the files of a run: journals before the checkpoints that depend on them, and the result last.

    Args:
        folder: folder of the run.
        files: contents of every file, by name.
    """
    make_folder(folder)
    for name in sorted(files, key=lambda name: (name == "result.json", name.startswith("state-"), name)):
        with replace_file(folder / Path(name).name, follow_folder=False) as stream:
            stream.write(files[name])


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Time and size of every file, without the lock and temporary files."""
    stamps = {}
    for path in folder.glob("[!.]*"):
        if path.name != "lock":
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            stamps[path.name] = (status.st_mtime_ns, status.st_size)
    return stamps
