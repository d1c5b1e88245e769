"""A worker: a process that reads orders on its standard input and reports on its output, one JSON line each.

If the process that started the worker ends, the worker commits its run and exits.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["main"]

Tell = Callable[[Mapping[str, Any]], None]
_PAUSE = 0.2  # seconds between two reports about a run
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # no run causes these errors


def main() -> None:
    """Execute orders until the standard input ends."""
    signal.signal(signal.SIGTERM, _leave)  # between runs and before a run starts; a run handles signals itself
    signal.signal(signal.SIGINT, _leave)
    channel = os.dup(1)
    os.dup2(2, 1)  # the output of libraries must not mix with messages

    def tell(message: Mapping[str, Any]) -> None:
        from surefoot.runs.records import canonical

        line = (canonical(message) + "\n").encode()
        while line:
            line = line[os.write(channel, line) :]

    import surefoot.training.run  # noqa: F401  the long import comes before the first order
    from surefoot.plugins import load_plugins
    from surefoot.runs.records import decode_nonfinite

    load_plugins()
    try:
        tell({"type": "ready", "pid": os.getpid()})
        for line in sys.stdin.buffer:
            order = decode_nonfinite(json.loads(line))
            tell(_check(order) if order["do"] == "check" else _run(order, tell))
    except BrokenPipeError:
        pass


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _check(order: Mapping[str, Any]) -> dict[str, Any]:
    """Try to build the parts of the specs in an order, and report the first that cannot be built."""
    from surefoot.errors import SurefootError
    from surefoot.training.assemble import check_parts
    from surefoot.training.spec import spec_of

    try:
        for run in order["runs"]:
            label = run["label"]
            check_parts(spec_of(run["spec"], label), tuple(run["shape"]), run["classes"])
    except (SurefootError, TypeError, ValueError) as error:
        return {"type": "checked", "error": f"{label}: {error}"}
    return {"type": "checked", "error": None}


def _run(order: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    from surefoot.errors import BadInput, RunLocked, StorageFault
    from surefoot.training.run import run
    from surefoot.training.spec import spec_of

    data = None if order["data"] is None else Path(order["data"])
    try:
        result = run(spec_of(order["spec"], order["label"]), Path(order["out"]), data, _Watch(tell))
    except RunLocked:
        return {"type": "taken"}
    except BrokenPipeError:
        raise
    except (BadInput, StorageFault) as error:
        if isinstance(error.__cause__, OSError) and isinstance(error, StorageFault):
            return {"type": "storage", "error": str(error)}
        return {"type": "failed", "error": str(error), "trace": traceback.format_exc()}  # also corrupted files
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            return {"type": "storage", "error": f"cannot write to {order['out']!r}: {error.strerror}"}
        first = (str(error).splitlines() or [""])[0]
        return {"type": "failed", "error": f"{type(error).__name__}: {first}", "trace": traceback.format_exc()}
    return {"type": "ended", "outcome": result.outcome, "step": result.step, "fresh": result.fresh,
            "id": result.folder.name, "ece": result.final.get("test.ece")}  # fmt: skip


class _Watch:
    """Reports the progress of a run, a few times a second."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._next = 0.0
        self._ece: Any = None

    def __call__(self, step: int, steps: int, loss: float, reading: dict[str, Any] | None) -> None:
        if reading is not None:
            self._ece = reading.get("test.ece", self._ece)
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PAUSE
        try:
            self._tell({"type": "step", "step": step, "steps": steps, "loss": loss, "ece": self._ece})
        except BrokenPipeError:
            os.kill(os.getpid(), signal.SIGTERM)  # nobody reads: commit the next step and exit


if __name__ == "__main__":
    main()
