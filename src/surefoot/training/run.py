"""A run in its folder: named by its spec, locked while it runs, resumed to the bit, finished once.

A folder ``<id>`` holds ``spec.json`` (written first), ``facts.json``, ``journal.jsonl`` (numbers), ``arrays.jsonl``
(histograms and tables), ``state-a.safetensors`` and ``state-b.safetensors``, ``best.safetensors`` if asked for,
``timings.jsonl`` (clock and memory: no part of what a resumed run repeats to the bit), ``examples.json`` (pictures of
the examples that carried the margin moment), ``result.json`` (last) and ``lock``.
"""

from __future__ import annotations

import contextlib
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
from numpy.typing import NDArray
from torch import Tensor, nn

import surefoot
from surefoot.data.prepare import Prepared, prepare
from surefoot.data.sets import load_set
from surefoot.errors import BadInput
from surefoot.files import check_regular, make_folder, remove_leftovers, replace_file
from surefoot.ranks import Ranks, all_ranks
from surefoot.training.assemble import assemble
from surefoot.training.best import Best
from surefoot.training.checkpoint import load_newest, save_best, save_checkpoint
from surefoot.training.correlations import sharpness_correlations
from surefoot.training.deep import read_together, train_members
from surefoot.training.examples import write_examples
from surefoot.training.journal import JOURNAL, TIMINGS, Journal, Notebook, read_journal
from surefoot.training.lock import locked
from surefoot.training.loop import Outcome, train
from surefoot.training.members import members_of
from surefoot.training.opened import open_run
from surefoot.training.records import RUN_FILES, canonical, decode_nonfinite, read_json, split_arrays
from surefoot.training.shifted import ood_sets, read_shift
from surefoot.training.spec import RunSpec, spec_of
from surefoot.training.state import pack, unpack

__all__ = ["Result", "run"]

Watch = Callable[[int, int, float, dict[str, Any] | None], None]
Foreign = dict[str, NDArray[Any]]


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
    allow_version_mismatch: bool = False,
) -> Result:
    """Run the spec under ``out``, or go on with it where it stopped; a finished run is only reported.

    ``watch(step, steps, loss, reading)`` is called after every step; ``reading`` is None where none was due. A run goes
    on under other versions than those it began with only if told so: its bits may then differ.

    Where torch.distributed was set up, all its ranks must call this, with the same folder in sight: they share every
    batch and every reading, and rank 0 writes. Their number is a part of the run's identity.
    """
    ranks = all_ranks()
    spec = _shared_by(ranks, spec)
    threads = torch.get_num_threads()
    torch.set_num_threads(spec.threads)  # a part of the run's identity; the caller gets its own back
    try:
        return _run(spec, ranks, out, data_root, watch, allow_version_mismatch)
    finally:
        torch.set_num_threads(threads)


def _shared_by(ranks: Ranks, spec: RunSpec) -> RunSpec:
    """The spec for so many ranks, or a clear error if it was written for another number of them."""
    if spec.ranks is None and ranks.count > 1:
        return spec_of({**spec.resolved(), "ranks": ranks.count})
    if (spec.ranks or 1) != ranks.count:
        raise BadInput(
            f"this spec is for {spec.ranks or 1} ranks, and {ranks.count} run it; start it by "
            f"torchrun --nproc-per-node {spec.ranks or 1} -m surefoot train, or change ranks"
        )
    return spec


def _run(
    spec: RunSpec, ranks: Ranks, out: Path, data_root: Path | None, watch: Watch, allow_version_mismatch: bool
) -> Result:
    raw = load_set(spec.data.name, data_root)
    options = spec.data.model_dump(exclude={"name", "augment"})
    data = prepare(raw, **options, seed=spec.seed)
    folder = out / spec.run_id(raw.digest())
    with contextlib.ExitStack() as held:
        with ranks.agreeing():
            if ranks.first:
                make_folder(folder)
                held.enter_context(locked(folder))
                _begin(spec, folder, data, allow_version_mismatch)
            foreign = {} if spec.shift is None else ood_sets(spec.shift, data, data_root)
        done = _result(folder)
        if done is not None:
            return Result(folder, done["outcome"], done["step"], done["final"], fresh=False)
        if spec.ensemble is not None and spec.ensemble.name == "deep":
            return _together(spec, folder, data_root, foreign, watch, allow_version_mismatch)
        return _carry_on(spec, ranks, folder, data, foreign, watch)


def _begin(spec: RunSpec, folder: Path, data: Prepared, allow_version_mismatch: bool) -> None:
    """Clear up after a death, and write down what the run is, if it has not ended."""
    check_regular(folder, RUN_FILES)
    remove_leftovers(folder, (*RUN_FILES, "state"))  # checkpoints were once written as .state.*
    if _result(folder) is None:
        _write_once(folder / "spec.json", spec.resolved())
        _check_facts(folder, data, allow_version_mismatch)


def _together(
    spec: RunSpec, folder: Path, data_root: Path | None, foreign: Foreign, watch: Watch, allow_version_mismatch: bool
) -> Result:
    """A deep ensemble: its members as runs of their own in the same place, then one reading of their mean."""
    count = len(members_of(spec))

    def one(place: int, member: RunSpec) -> Result:
        def part(step: int, steps: int, loss: float, reading: dict[str, Any] | None) -> None:
            watch(place * steps + step, count * steps, loss, reading)

        return run(member, folder.parent, data_root, part, allow_version_mismatch)

    ended = train_members(spec, one)
    if ended is not None:
        if ended.outcome == "diverged":
            _finish(folder, Outcome("diverged", ended.step), [], None, {})
        return Result(folder, ended.outcome, ended.step, {}, fresh=True)
    opened = open_run(folder, data_root)
    readings = read_together(folder, opened)
    shifted = {} if spec.shift is None else read_shift(spec.shift, opened.model, opened.data, foreign)
    outcome = Outcome("finished", opened.step)
    _finish(folder, outcome, readings, None, shifted)
    return Result(folder, outcome.kind, outcome.step, {**_last(readings), **shifted}, fresh=True)


def _carry_on(spec: RunSpec, ranks: Ranks, folder: Path, data: Prepared, foreign: Foreign, watch: Watch) -> Result:
    parts = assemble(spec, data, ranks)
    model, optimizer, tracker, steps = parts.model, parts.optimizer, parts.tracker, parts.steps
    objective = parts.objective
    best = None if spec.best is None else Best(spec.best.metric, spec.best.patience)
    start, offsets = 0, (0, 0)
    shifted: dict[str, float] = {}
    found = load_newest(folder)
    if found is not None:
        tensors, meta = found
        unpack(model, optimizer, tracker, objective, tensors, meta)
        start, offsets = meta["step"], tuple(meta["offsets"])
        if best is not None:
            best.load_state_dict(decode_nonfinite(meta["best"]))
    if ranks.mean(start) != start:
        raise BadInput(f"the ranks see different checkpoints of {folder.name}; give all the same folder by out=...")
    desk = RunWriter(folder, offsets) if ranks.first else NullWriter()
    readings = read_journal(folder / JOURNAL)[0] if ranks.first else []

    def commit(step: int) -> None:
        facts = {"step": step, "best": None if best is None else best.state_dict()}
        desk.commit(pack(model, optimizer, tracker, objective), facts, step // spec.checkpoint)

    def note(reading: dict[str, Any]) -> None:
        improved = best is not None and best.improves(reading)
        if best is not None and best.exhausted:
            reading = {**reading, **tracker.rest()}  # the last one: as whole as that of a run of all its steps
        desk.note(reading)
        readings.append(split_arrays(reading)[0])
        if best is not None and improved:
            desk.keep(model, {"step": best.step, best.metric: best.value})

    with _asked_to_stop() as stop, contextlib.closing(desk):
        if found is None and (first := tracker.read(0)) is not None:
            note(first)

        def after(step: int, value: float) -> str | None:
            reading = {**tracker.readings.pop(), "loss": value} if tracker.readings else None
            if reading is not None:
                note(reading)
            ended = _ended(reading, best, ranks.any(stop[0]))
            if step % spec.checkpoint == 0 or ended == "interrupted":
                commit(step)
            watch(step, steps, value, reading)
            return ended

        over = best is not None and best.exhausted  # a death between the last commit and the result
        outcome = train(
            model, optimizer, objective, parts.train, parts.batches, start if over else steps, parts.factor,
            tracker, seed=spec.seed, start=start, augment=spec.data.augment, val=parts.val, ranks=ranks,
            after=after,
        )  # fmt: skip
        if outcome.kind != "interrupted" and ranks.first:
            if found is None or outcome.step != start:
                commit(outcome.step)
            write_examples(folder, data)
            if spec.shift is not None and outcome.kind == "finished":
                shifted = read_shift(spec.shift, model, data, foreign)
            _finish(folder, outcome, readings, best, shifted)
    return Result(folder, outcome.kind, outcome.step, {**_last(readings), **shifted}, fresh=True)


class NullWriter:
    """What a rank that is not the first writes: nothing."""

    def note(self, reading: dict[str, Any]) -> None:
        """A reading was taken."""

    def keep(self, model: nn.Module, facts: dict[str, Any]) -> None:
        """It was the best so far."""

    def commit(self, state: tuple[dict[str, Tensor], dict[str, Any]], facts: dict[str, Any], turn: int) -> None:
        """The run can be resumed from here."""

    def close(self) -> None:
        """No more follows."""


class RunWriter(NullWriter):
    """What a run writes as it goes on, in its folder."""

    def __init__(self, folder: Path, offsets: tuple[int, int]) -> None:
        self._folder, self._notebook = folder, Notebook(folder, offsets)
        self._timings = Journal(folder / TIMINGS, read_journal(folder / TIMINGS)[1])

    def note(self, reading: dict[str, Any]) -> None:
        self._notebook.append(reading)
        self._timings.append({"step": reading["step"], "time": time.time(), "peak_mb": _peak_memory()})

    def keep(self, model: nn.Module, facts: dict[str, Any]) -> None:
        save_best(self._folder, model.state_dict(), facts)

    def commit(self, state: tuple[dict[str, Tensor], dict[str, Any]], facts: dict[str, Any], turn: int) -> None:
        self._notebook.sync()
        tensors, plain = state
        save_checkpoint(self._folder, tensors, {**plain, **facts, "offsets": self._notebook.offsets}, turn)

    def close(self) -> None:
        self._notebook.close()
        self._timings.close()


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


def _finish(
    folder: Path, outcome: Outcome, readings: list[dict[str, Any]], best: Best | None, shifted: dict[str, float]
) -> None:
    final = {**_last(readings), **shifted}
    found: dict[str, Any] = {"outcome": outcome.kind, "step": outcome.step, "final": final}
    found["correlations"] = sharpness_correlations(readings)
    if best is not None:
        found["best"] = {"metric": best.metric, "value": best.value, "step": best.step}
    with replace_file(folder / "result.json", follow_folder=False) as stream:
        stream.write(canonical(found).encode() + b"\n")


def _result(folder: Path) -> dict[str, Any] | None:
    try:
        found = read_json(folder / "result.json")
    except BadInput:
        raise
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and {"outcome", "step", "final"} <= set(found) else None


def _write_once(path: Path, value: Any) -> None:
    if not os.path.lexists(path):
        with replace_file(path, follow_folder=False) as stream:
            stream.write(canonical(value).encode() + b"\n")


def _check_facts(folder: Path, data: Prepared, allow_version_mismatch: bool) -> None:
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
        before = dict(read_json(path))
    except BadInput:
        raise
    except (OSError, ValueError, TypeError):  # none yet, or harmed
        with replace_file(path, follow_folder=False) as stream:
            stream.write(canonical(now).encode() + b"\n")
        return
    for name in ("torch", "numpy", "machine"):
        if before.get(name) != now[name] and not allow_version_mismatch:
            raise BadInput(
                f"this run began with {name} {before.get(name)} and would go on with {now[name]}, which changes its "
                "bits; go back, choose another folder by out=..., or say allow_version_mismatch=True"
            )


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
