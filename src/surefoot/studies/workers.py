"""Workers as processes: started, given orders, listened to, replaced. No torch, and no pickles.

Workers are processes of `surefoot.studies.worker`, not of `multiprocessing`. A process of `multiprocessing` runs the
caller's script again, which breaks a script that calls `surefoot.study` without a guard.
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

# -P: Python must not import modules from the current folder.
COMMAND = [sys.executable, "-P", "-m", "surefoot.studies.worker"]


class Worker:
    """One process, and its messages.

    Attributes:
        output: file descriptor of the messages.
        ready: whether the process has reported that it takes orders.
        asked: whether the process was asked to exit.
    """

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
        """Id of the process."""
        return self._process.pid

    def order(self, message: Mapping[str, Any]) -> None:
        """Send the worker an order; `listen` notices a worker that has died.

        Args:
            message: the order, such as ``{"do": "run", "id": ...}``.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write((canonical(message) + "\n").encode())
            self._process.stdin.flush()

    def listen(self) -> list[dict[str, Any]] | None:
        """Read the messages since the last call.

        Returns:
            The messages; None if the worker has ended.
        """
        raw = os.read(self.output, 1 << 16)
        if not raw:
            return None
        *lines, self._rest = (self._rest + raw).split(b"\n")
        return [decode_nonfinite(json.loads(line)) for line in lines]

    def ask_to_leave(self) -> None:
        """Ask the worker to commit its run and exit; a worker whose run has just ended receives no further order."""
        self.asked = True
        self._process.terminate()
        self._hang_up()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def reap(self) -> tuple[int, str]:
        """Wait for a worker that has ended or ends.

        Returns:
            The exit code, and the last 4,000 bytes of the worker's log.
        """
        self._hang_up()
        assert self._process.stdout is not None
        self._process.stdout.close()
        code = self._process.wait()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4000))
        log = self._log.read().decode(errors="replace")
        self._log.close()
        return code, log

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # an order that the worker never read
            self._process.stdin.close()


class Workers:
    """The workers that are alive.

    Attributes:
        workers: the workers.
    """

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()

    def spawn(self) -> Worker:
        """Start a worker.

        Returns:
            The worker.
        """
        worker = Worker()
        self.workers.append(worker)
        self._selector.register(worker.output, selectors.EVENT_READ, worker)
        return worker

    def listen(self, timeout: float) -> Iterator[tuple[Worker, list[dict[str, Any]] | None]]:
        """Yield the messages of all workers within a time.

        A worker that has ended is yielded once and removed from ``workers``.

        Args:
            timeout: seconds to wait.

        Yields:
            A worker and its messages; None instead of messages if the worker has ended.
        """
        for key, _ in self._selector.select(timeout):
            worker: Worker = key.data
            messages = worker.listen()
            if messages is None:
                self.part(worker)
            yield worker, messages

    def part(self, worker: Worker) -> None:
        """Stop listening to a worker.

        Args:
            worker: the worker.
        """
        self._selector.unregister(worker.output)
        self.workers.remove(worker)

    def ask_to_leave(self) -> None:
        """Ask every worker, once, to commit its run and exit."""
        for worker in self.workers:
            if not worker.asked:
                worker.ask_to_leave()

    def close(self) -> None:
        """End the remaining workers at once; a killed run resumes bit-exactly from its checkpoint."""
        for worker in list(self.workers):
            worker.kill()
            self.part(worker)
            worker.reap()
        self._selector.close()
