"""A run in its folder: named by its spec, locked while it runs, resumed to the bit, finished once.

A folder ``<id>`` holds ``spec.json`` (written first), ``facts.json``, ``journal.jsonl`` (numbers), ``arrays.jsonl``
(histograms and tables), ``state-a.safetensors`` and ``state-b.safetensors``, ``best.safetensors`` if asked for,
``timings.jsonl`` (clock and memory: no part of what a resumed run repeats to the bit), ``result.json`` (last) and
``lock``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

import surefoot
from surefoot.data.prepare import Prepared, prepare
from surefoot.data.sets import load_set
from surefoot.errors import BadInput, RunTaken
from surefoot.files import replace_file
from surefoot.training.assemble import assemble
from surefoot.training.best import Best
from surefoot.training.checkpoint import load_newest, save_best, save_checkpoint
from surefoot.training.coupling import coupling
from surefoot.training.journal import JOURNAL, TIMINGS, Journal, Notebook, read_journal
from surefoot.training.loop import Outcome, train
from surefoot.training.records import canonical, parted, restored
from surefoot.training.spec import RunSpec
from surefoot.training.state import pack, unpack

__all__ = ["Result", "run"]

Watch = Callable[[int, int, float, dict[str, Any] | None], None]


@dataclass(frozen=True)
class Result:
    """A run's folder, how it ended, at which step, and its last reading; ``fresh`` is False if it had ended before."""

    folder: Path
    outcome: str
    step: int
    final: dict[str, Any]
    fresh: bool


def run(
    spec: RunSpec,
    out: Path,
    data_root: Path | None = None,
    watch: Watch = lambda *_: None,
    other_versions: bool = False,
) -> Result:
    """Run the spec under ``out``, or go on with it where it stopped; a finished run is only reported.

    ``watch(step, steps, loss, reading)`` is called after every step; ``reading`` is None where none was due. A run goes
    on under other versions than those it began with only if told so: its bits may then differ.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(spec.threads)  # a part of the run's identity; the caller gets its own back
    try:
        return _run(spec, out, data_root, watch, other_versions)
    finally:
        torch.set_num_threads(threads)


def _run(spec: RunSpec, out: Path, data_root: Path | None, watch: Watch, other_versions: bool) -> Result:
    raw = load_set(spec.data.name, data_root)
    options = spec.data.model_dump(exclude={"name", "augment"})
    data = prepare(raw, **options, seed=spec.seed)
    folder = out / spec.run_id(raw.digest())
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        for leftover in folder.glob(".*"):  # files that a death kept from getting their names
            leftover.unlink()
        done = _result(folder)
        if done is not None:
            return Result(folder, done["outcome"], done["step"], done["final"], fresh=False)
        _write_once(folder / "spec.json", spec.resolved())
        _check_facts(folder, data, other_versions)
        return _carry_on(spec, folder, data, watch)


def _carry_on(spec: RunSpec, folder: Path, data: Prepared, watch: Watch) -> Result:
    parts = assemble(spec, data)
    model, optimizer, tracker, steps = parts.model, parts.optimizer, parts.tracker, parts.steps
    best = None if spec.best is None else Best(spec.best.metric, spec.best.patience)
    start, offsets = 0, (0, 0)
    found = load_newest(folder)
    if found is not None:
        tensors, meta = found
        unpack(model, optimizer, tracker, tensors, meta)
        start, offsets = meta["step"], tuple(meta["offsets"])
        if best is not None:
            best.load_state_dict(restored(meta["best"]))
    notebook = Notebook(folder, offsets)
    readings = read_journal(folder / JOURNAL)[0]
    timings = Journal(folder / TIMINGS, read_journal(folder / TIMINGS)[1])

    def commit(step: int) -> None:
        notebook.sync()
        tensors, plain = pack(model, optimizer, tracker)
        facts = {"step": step, "offsets": notebook.offsets, "best": None if best is None else best.state_dict()}
        save_checkpoint(folder, tensors, {**plain, **facts}, step // spec.checkpoint)

    def note(reading: dict[str, Any]) -> None:
        notebook.append(reading)
        readings.append(parted(reading)[0])
        timings.append({"step": reading["step"], "time": time.time(), "peak_mb": _peak_memory()})
        if best is not None and best.improves(reading):
            save_best(folder, model.state_dict(), {"step": best.step, best.metric: best.value})

    with _asked_to_stop() as stop, contextlib.closing(notebook), contextlib.closing(timings):
        if found is None and (first := tracker.read(0)) is not None:
            note(first)

        def after(step: int, value: float) -> str | None:
            reading = {**tracker.readings.pop(), "loss": value} if tracker.readings else None
            if reading is not None:
                note(reading)
            ended = _ended(reading, best, stop[0])
            if step % spec.checkpoint == 0 or ended == "interrupted":
                commit(step)
            watch(step, steps, value, reading)
            return ended

        over = best is not None and best.exhausted  # a death between the last commit and the result
        outcome = train(
            model, optimizer, parts.loss.values, parts.train, parts.batches, start if over else steps, parts.factor,
            tracker, seed=spec.seed, start=start, augment=spec.data.augment, after=after,
        )  # fmt: skip
        if outcome.kind != "interrupted":
            if found is None or outcome.step != start:
                commit(outcome.step)
            _finish(folder, outcome, readings, best)
    return Result(folder, outcome.kind, outcome.step, _last(readings), fresh=True)


def _ended(reading: dict[str, Any] | None, best: Best | None, asked: bool) -> str | None:
    """The outcome with which a step ends the run, if it does."""
    if reading is not None and "diverged" in reading:
        return "diverged"
    if best is not None and best.exhausted:
        return "finished"
    return "interrupted" if asked else None


def _last(readings: list[dict[str, Any]]) -> dict[str, Any]:
    """The last reading of a network whose logits were finite."""
    return next((each for each in reversed(readings) if "diverged" not in each), {})


def _peak_memory() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _finish(folder: Path, outcome: Outcome, readings: list[dict[str, Any]], best: Best | None) -> None:
    found: dict[str, Any] = {"outcome": outcome.kind, "step": outcome.step, "final": _last(readings)}
    found["correlations"] = coupling(readings)
    if best is not None:
        found["best"] = {"metric": best.metric, "value": best.value, "step": best.step}
    with replace_file(folder / "result.json") as stream:
        stream.write(canonical(found).encode() + b"\n")


def _result(folder: Path) -> dict[str, Any] | None:
    try:
        found = restored(json.loads((folder / "result.json").read_text()))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and {"outcome", "step", "final"} <= set(found) else None


def _write_once(path: Path, value: Any) -> None:
    if not path.exists():
        with replace_file(path) as stream:
            stream.write(canonical(value).encode() + b"\n")


def _check_facts(folder: Path, data: Prepared, other_versions: bool) -> None:
    """Versions are no part of a run's name, but a run goes on only with those it began with, unless told."""
    now = {
        "surefoot": surefoot.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "data": data.facts,
    }
    path = folder / "facts.json"
    try:
        before = dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):  # none yet, or harmed
        with replace_file(path) as stream:
            stream.write(canonical(now).encode() + b"\n")
        return
    for name in ("torch", "numpy", "machine"):
        if before.get(name) != now[name] and not other_versions:
            raise BadInput(
                f"this run began with {name} {before.get(name)} and would go on with {now[name]}, which changes its "
                "bits; go back, choose another --out, or say --other-versions"
            )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The kernel's lock on the folder, let go of by death."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunTaken(f"another process is running {folder.name}; wait for it, or stop it") from error
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[list[bool]]:
    """Whether SIGINT or SIGTERM came: the step at hand is finished and committed; a second SIGINT ends at once."""
    asked = [False]

    def ask(number: int, frame: FrameType | None) -> None:
        if asked[0] and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked[0] = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: nobody sends signals here
        before = {}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
