"""A worker's place on a node of a cluster: it is told runs and listened to from afar. No torch, and nothing of Ray.

Where the study's folder is not to be seen from the node, a run is made in a folder of the node's own: its files come
with the order and travel back whenever a checkpoint is written, so that another node can go on from there.
"""

from __future__ import annotations

import select
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.files import make_folder, read_file, replace_file
from surefoot.studies.workers import Worker

__all__ = ["Files", "NodeWorker", "files_of", "put_files"]

Files = dict[str, bytes]
_COMMITS = ("state-", "best.", "result.json")  # a change of one of these is worth a journey
_MAX_BYTES = 1 << 40


class NodeWorker:
    """One worker on this node; ``mark`` is a file of the study's folder that only those who share it can see."""

    def __init__(self, mark: str) -> None:
        self._home = None if Path(mark).exists() else Path(tempfile.mkdtemp(prefix="surefoot-"))
        self._worker = Worker()
        self._run: Path | None = None
        self._seen: dict[str, tuple[int, int]] = {}

    def away(self) -> bool:
        """Whether the study's folder cannot be seen from here."""
        return self._home is not None

    def order(self, message: Mapping[str, Any], files: Files) -> None:
        """Tell the worker what to do; ``files`` are what there is of the run so far, for a host that is away."""
        if self._home is not None and message["do"] == "run":
            self._forget()
            self._run = self._home / message["id"]
            put_files(self._run, files)
            self._seen = _stamps(self._run)
            message = {**message, "out": str(self._home)}
        self._worker.order(message)

    def listen(self, seconds: float) -> tuple[list[dict[str, Any]] | None, Files]:
        """What the worker said within the time, None if it has gone, and files to bring back."""
        heard = select.select([self._worker.output], [], [], seconds)[0]
        said = self._worker.listen() if heard else []
        return said, self._news()

    def ask_to_leave(self) -> None:
        """As of a `Worker`."""
        self._worker.ask_to_leave()

    def reap(self) -> tuple[int, str]:
        """As of a `Worker`, and leave nothing on the node."""
        found = self._worker.reap()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
        return found

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
    """A run's files. Checkpoints come first: a journal may then be longer than they say, never shorter."""
    names = sorted(_stamps(folder), key=lambda name: (not name.startswith("state-"), name == "result.json", name))
    found = {}
    for name in names:
        try:
            found[name] = read_file(folder / name, _MAX_BYTES)
        except FileNotFoundError:  # replaced under another name just now
            continue
    return found


def put_files(folder: Path, files: Files) -> None:
    """Write them; journals before the checkpoints that count on them, and the result last."""
    make_folder(folder)
    for name in sorted(files, key=lambda name: (name == "result.json", name.startswith("state-"), name)):
        with replace_file(folder / Path(name).name, follow_folder=False) as stream:
            stream.write(files[name])


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file but the lock and those that are being written."""
    found = {}
    for path in folder.glob("[!.]*"):
        if path.name != "lock":
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            found[path.name] = (status.st_mtime_ns, status.st_size)
    return found
