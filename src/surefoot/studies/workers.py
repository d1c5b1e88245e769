"""The workers from outside: started, told what to do, listened to, replaced. No torch, and no pickles.

Workers are processes of their own kind (`surefoot.studies.worker`), not `multiprocessing`'s: those run the caller's
script once more, which a script that calls `surefoot.study` without a guard does not survive.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

from surefoot.runs.records import canonical, decode_nonfinite

__all__ = ["COMMAND", "Worker", "Workers"]

# -P: modules of the folder that the user happens to stand in are not ours.
COMMAND = [sys.executable, "-P", "-m", "surefoot.studies.worker"]


class Worker:
    """One process, and the lines it has said so far."""

    def __init__(self) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the worker
        # A session of its own: Ctrl-C reaches the runner alone, which asks the workers to stop.
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.output = self._process.stdout.fileno()
        self._rest = b""
        self.ready, self.asked = False, False

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def order(self, message: Mapping[str, Any]) -> None:
        """Tell it what to do; a worker that has died is noticed when it is listened to."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write((canonical(message) + "\n").encode())
            self._process.stdin.flush()

    def listen(self) -> list[dict[str, Any]] | None:
        """What it said since; None if it has gone."""
        raw = os.read(self.output, 1 << 16)
        if not raw:
            return None
        *lines, self._rest = (self._rest + raw).split(b"\n")
        return [decode_nonfinite(json.loads(line)) for line in lines]

    def ask_to_leave(self) -> None:
        """Ask it to commit what it does and leave; if its run ends just now, it finds no further order."""
        self.asked = True
        self._process.terminate()
        self._hang_up()

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()

    def reap(self) -> tuple[int, str]:
        """Wait for a worker that has gone: its exit code and the last lines it left."""
        self._hang_up()
        assert self._process.stdout is not None
        self._process.stdout.close()
        code = self._process.wait()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4000))
        said = self._log.read().decode(errors="replace")
        self._log.close()
        return code, said

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # an order it never read
            self._process.stdin.close()


class Workers:
    """The workers that are there."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()

    def spawn(self) -> Worker:
        """One more."""
        worker = Worker()
        self.workers.append(worker)
        self._selector.register(worker.output, selectors.EVENT_READ, worker)
        return worker

    def listen(self, timeout: float) -> Iterator[tuple[Worker, list[dict[str, Any]] | None]]:
        """Who said what within the time; None for one that has gone, who is then no longer listed."""
        for key, _ in self._selector.select(timeout):
            worker: Worker = key.data
            said = worker.listen()
            if said is None:
                self.part(worker)
            yield worker, said

    def part(self, worker: Worker) -> None:
        """No longer listen to a worker."""
        self._selector.unregister(worker.output)
        self.workers.remove(worker)

    def ask_to_leave(self) -> None:
        """Ask every worker, once, to commit what it does and leave."""
        for worker in self.workers:
            if not worker.asked:
                worker.ask_to_leave()

    def close(self) -> None:
        """End those that are left, whatever they do: a run killed at any moment goes on to the same end."""
        for worker in list(self.workers):
            worker.kill()
            self.part(worker)
            worker.reap()
        self._selector.close()
