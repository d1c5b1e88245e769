"""A run in its folder: named by its spec, locked while it runs, resumed to the bit, finished once.

A folder ``<id>`` holds ``spec.json`` (written first), ``facts.json``, ``journal.jsonl``, ``state-a.safetensors`` and
``state-b.safetensors``, ``result.json`` (last) and ``lock``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

import surefoot
from surefoot.curvature import Sharpness
from surefoot.curvature.losses import loss_named
from surefoot.data.prepare import Prepared, prepare
from surefoot.data.sets import load_set
from surefoot.errors import BadInput, StorageFault
from surefoot.files import replace_file
from surefoot.models import model_named
from surefoot.optim import schedules
from surefoot.optim.names import rule_named
from surefoot.seeds import derive
from surefoot.training.cadence import Every, Logarithmic
from surefoot.training.checkpoint import load_newest, save_checkpoint
from surefoot.training.journal import Journal, read_journal
from surefoot.training.loop import Batches, Outcome, train
from surefoot.training.records import canonical, restored
from surefoot.training.spec import CadenceSpec, RunSpec
from surefoot.training.state import pack, unpack
from surefoot.training.tracker import GROUPS, Tracker

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


def run(spec: RunSpec, out: Path, data_root: Path | None = None, watch: Watch = lambda *_: None) -> Result:
    """Run the spec under ``out``, or go on with it where it stopped; a finished run is only reported."""
    threads = torch.get_num_threads()
    torch.set_num_threads(spec.threads)  # a part of the run's identity; the caller gets its own back
    try:
        return _run(spec, out, data_root, watch)
    finally:
        torch.set_num_threads(threads)


def _run(spec: RunSpec, out: Path, data_root: Path | None, watch: Watch) -> Result:
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
        _check_facts(folder, data)
        return _carry_on(spec, folder, data, watch)


def _carry_on(spec: RunSpec, folder: Path, data: Prepared, watch: Watch) -> Result:
    torch.manual_seed(derive(spec.seed, "init"))
    dtype = getattr(torch, spec.dtype)
    model = model_named(spec.model.name, data.shape, data.classes, **spec.model.options).to(dtype)
    x, y = data.train[0].to(dtype), data.train[1]
    test = data.test[0].to(dtype), data.test[1]
    loss = loss_named(spec.loss.name)
    optimizer = rule_named(spec.rule.name, model, spec.rule.options, lambda: Sharpness(model, x, y, loss))
    size = len(x) if spec.stop.batch == "full" else min(int(spec.stop.batch), len(x))
    batches = Batches(len(x), size, spec.seed)
    steps = spec.stop.steps or int(spec.stop.epochs or 1) * batches.per_epoch
    val = None if data.val is None else (data.val[0].to(dtype), data.val[1])
    tracker = Tracker(
        model, (x, y), test, val, optimizer, loss, _cadences(spec, steps), spec.track.budget, size, seed=spec.seed
    )
    start, offset = 0, 0
    found = load_newest(folder)
    if found is not None:
        tensors, meta = found
        unpack(model, optimizer, tracker, tensors, meta)
        start, offset = meta["step"], meta["offset"]
    records, whole = read_journal(folder / "journal.jsonl")
    if offset > whole:
        raise StorageFault(f"{folder.name}/journal.jsonl is shorter than its checkpoint says; the run cannot go on")
    journal = Journal(folder / "journal.jsonl", offset)
    last: dict[str, Any] = {} if not records else next((r for r in reversed(records) if r["step"] <= start), {})

    def commit(step: int) -> None:
        journal.sync()
        tensors, plain = pack(model, optimizer, tracker)
        save_checkpoint(folder, tensors, {**plain, "step": step, "offset": journal.offset}, step // spec.checkpoint)

    with _asked_to_stop() as stop, contextlib.closing(journal):
        if start == 0 and found is None:
            first = tracker.read(0)
            if first is not None:
                journal.append(first)
                last = first
        seen = [last]

        def after(step: int, value: float) -> bool:
            reading = tracker.readings.pop() if tracker.readings else None
            if reading is None and step == steps:
                reading = tracker.read(step, everything=True)
            if reading is not None:
                # What a resumed run would read from its journal.
                seen[0] = {**reading, "loss": value}
                journal.append(seen[0])
            if step % spec.checkpoint == 0 or stop[0]:
                commit(step)
            watch(step, steps, value, reading)
            return not stop[0]

        outcome = train(
            model, optimizer, loss.values, (x, y), batches, steps, _factor(spec, steps), tracker,
            seed=spec.seed, start=start, augment=spec.data.augment, after=after,
        )  # fmt: skip
        if outcome.kind == "interrupted":
            return Result(folder, outcome.kind, outcome.step, seen[0], fresh=True)
        if found is None or outcome.step != start:
            commit(outcome.step)
        _finish(folder, outcome, seen[0])
    return Result(folder, outcome.kind, outcome.step, seen[0], fresh=True)


def _cadences(spec: RunSpec, steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for group in GROUPS:
        chosen = getattr(spec.track, group)
        if chosen is False:
            continue
        own = chosen if isinstance(chosen, CadenceSpec) else CadenceSpec()
        found[group] = Logarithmic(own.log, steps) if own.log is not None else Every(own.every or spec.track.every)
    return found


def _factor(spec: RunSpec, steps: int) -> Callable[[int], float]:
    s = spec.schedule
    inner = schedules.constant()
    if s.name == "cosine":
        inner = schedules.cosine(max(1, steps - s.warm_up), s.floor)
    elif s.name == "step":
        inner = schedules.stepped(s.milestones, s.factor)
    return schedules.warm_up(s.warm_up, inner) if s.warm_up else inner


def _finish(folder: Path, outcome: Outcome, final: dict[str, Any]) -> None:
    with replace_file(folder / "result.json") as stream:
        stream.write(canonical({"outcome": outcome.kind, "step": outcome.step, "final": final}).encode() + b"\n")


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


def _check_facts(folder: Path, data: Prepared) -> None:
    """Versions are no part of a run's name, but a run goes on only with those it began with."""
    now = {
        "surefoot": surefoot.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "data": data.facts,
    }
    path = folder / "facts.json"
    _write_once(path, now)
    before = json.loads(path.read_text())
    for name in ("torch", "numpy", "machine"):
        if before.get(name) != now[name]:
            raise BadInput(
                f"this run began with {name} {before.get(name)} and would go on with {now[name]}, which changes its "
                "bits; go back, or choose another --out"
            )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The kernel's lock on the folder, let go of by death."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInput(f"another process is running {folder.name}; wait for it, or stop it") from error
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
