"""A run in its folder: named by its spec, locked while it runs, resumed bit-exactly, finished once.

A folder ``<id>`` holds ``spec.json`` (written first), ``facts.json``, ``journal.jsonl`` (numbers), ``arrays.jsonl``
(histograms and tables), ``state-a.safetensors`` and ``state-b.safetensors``, ``best.safetensors`` if asked for,
``timings.jsonl`` (clock and memory, which a resumed run does not repeat bit-exactly), ``examples.json`` (pictures of
the examples that dominated the margin moment), ``result.json`` (written last) and ``lock``.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import surefoot
from surefoot.data.prepare import Prepared, prepare
from surefoot.data.sets import data_folder, load_set
from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput
from surefoot.ranks import Ranks, all_ranks
from surefoot.runs.checkpoint import load_newest
from surefoot.runs.reader import read_result
from surefoot.runs.records import ARRAYS, JOURNAL, decode_nonfinite, read_journal, read_json, split_arrays
from surefoot.runs.writer import NullWriter, RunWriter, claimed, write_examples, write_json
from surefoot.statistics import sharpness_correlations
from surefoot.training import loop
from surefoot.training.assemble import Assembled, assemble, pack, unpack
from surefoot.training.deep import read_mean, train_members
from surefoot.training.loaded import open_run
from surefoot.training.loop import Best, Outcome, Reading
from surefoot.training.shifted import ood_sets, read_shift
from surefoot.training.spec import RunSpec, members_of, read_spec, spec_of

__all__ = ["Result", "run", "train"]

Watch = Callable[[int, int, float, Reading | None], None]
OOD = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        folder: The run's folder.
        outcome: ``"finished"``, ``"interrupted"`` or ``"diverged"``.
        step: The step at which the run ended.
        final: The last reading with finite logits, and the numbers under distribution shift.
        fresh: Whether the run ended in this call; False if it had ended before.
    """

    folder: Path
    outcome: str
    step: int
    final: dict[str, Any]
    fresh: bool


def train(
    spec: RunSpec | Mapping[str, Any] | str | Path,
    out: str | Path = "runs",
    data: str | Path | None = None,
    *,
    allow_version_mismatch: bool = False,
) -> Result:
    """Train one run, or resume it where it stopped, as the command ``surefoot train`` does.

    Args:
        spec: A ``.toml`` file, its tables as a mapping, or a `RunSpec`.
        out: Folder of runs; the run's own folder in it is named by the hash of its spec.
        data: Folder of data sets; by default the folder that the environment variable ``SUREFOOT_DATA`` names.
        allow_version_mismatch: Whether to resume under another version of torch or numpy, which may change the run's
            bits.

    Returns:
        The run's folder, how it ended, its last step and its last reading.

    Raises:
        BadInput: If the spec, the data or the folder is not valid; the text names the remedy.
    """
    if isinstance(spec, str | Path):
        spec = read_spec(Path(spec))
    elif not isinstance(spec, RunSpec):
        if not isinstance(spec, Mapping):
            raise BadInput(
                f"spec must be the path of a .toml file, its tables as a mapping, or a RunSpec; got {spec!r}"
            )
        spec = spec_of(dict(spec))
    return run(spec, Path(out), data_folder(data), allow_version_mismatch=allow_version_mismatch)


@renamed_arguments(other_versions="allow_version_mismatch")
def run(
    spec: RunSpec,
    out: Path,
    data_root: Path | None = None,
    watch: Watch = lambda *_: None,
    allow_version_mismatch: bool = False,
) -> Result:
    """Train a run, or resume it where it stopped; the result of an ended run is read from its folder.

    If torch.distributed is set up, all ranks must call this function with the same folder. The ranks share every batch
    and every reading, and rank 0 writes. The number of ranks is a part of the run's id.

    Args:
        spec: Specification of the run.
        out: Folder of runs; the run's own folder in it is named by the run's id.
        data_root: Folder of data sets; None suffices for embedded ones.
        watch: Called after every step as ``watch(step, steps, loss, reading)``; ``reading`` is None if none was due.
        allow_version_mismatch: Whether a run may be resumed under another version of torch or numpy, or on another
            kind of machine, which may change its bits.

    Returns:
        The result of the run.

    Raises:
        BadInput: If the spec, the data or the folder is not valid, or versions differ from those of the run's start.
        RunLocked: If another process trains the run.
        StorageFault: If the disk refuses a write, or a journal is corrupted.
        RankLost: If another rank failed.
    """
    ranks = all_ranks()
    spec = _shared_by(ranks, spec)
    threads = torch.get_num_threads()
    torch.set_num_threads(spec.threads)  # a part of the run's id; the caller's number is restored
    try:
        return _run(spec, ranks, out, data_root, watch, allow_version_mismatch)
    finally:
        torch.set_num_threads(threads)


def _shared_by(ranks: Ranks, spec: RunSpec) -> RunSpec:
    """The spec with the number of ranks, or a clear error if the spec is for another number."""
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
    data = prepare(raw, **options, seed=spec.seed, dtype=getattr(torch, spec.dtype))
    folder = out / spec.run_id(raw.digest())
    with contextlib.ExitStack() as stack:
        with ranks.agreeing():
            if ranks.first:
                stack.enter_context(claimed(folder))
                _begin(spec, folder, data, allow_version_mismatch)
            ood = {} if spec.shift is None else ood_sets(spec.shift, data, data_root)
        done = read_result(folder)
        if done is not None:
            return Result(folder, done["outcome"], done["step"], done["final"], fresh=False)
        if spec.ensemble is not None and spec.ensemble.name == "deep":
            return _together(spec, folder, data_root, ood, watch, allow_version_mismatch)
        return _carry_on(spec, ranks, folder, data, ood, watch)


def _begin(spec: RunSpec, folder: Path, data: Prepared, allow_version_mismatch: bool) -> None:
    """Write the spec and the metadata of a run that has not ended."""
    if read_result(folder) is None:
        if not os.path.lexists(folder / "spec.json"):
            journals = [folder / name for name in (JOURNAL, ARRAYS) if os.path.lexists(folder / name)]
            if any(map(os.path.getsize, journals)):
                raise BadInput(
                    f"{str(folder)!r} holds a journal but no spec.json, so the journal is not of this run; move the "
                    "folder away, or choose another one by out=..."
                )
            write_json(folder / "spec.json", spec.resolved())
        _check_facts(folder, data, allow_version_mismatch)


def _together(
    spec: RunSpec, folder: Path, data_root: Path | None, ood: OOD, watch: Watch, allow_version_mismatch: bool
) -> Result:
    """Train a deep ensemble: its members as separate runs in the same folder, then one reading of their mean."""
    count = len(members_of(spec))

    def one(place: int, member: RunSpec) -> Result:
        def part(step: int, steps: int, loss: float, reading: Reading | None) -> None:
            watch(place * steps + step, count * steps, loss, reading)

        return run(member, folder.parent, data_root, part, allow_version_mismatch)

    ended = train_members(spec, one)
    if ended is not None:
        if ended.outcome == "diverged":
            _finish(folder, Outcome("diverged", ended.step), [], None, {})
        return Result(folder, ended.outcome, ended.step, {}, fresh=True)
    opened = open_run(folder, data_root)
    reading = read_mean(opened)
    with contextlib.closing(RunWriter(folder, timed=False)) as writer:
        writer.note(reading)
    readings = [split_arrays(reading)[0]]
    shifted = {} if spec.shift is None else read_shift(spec.shift, opened.model, opened.data, ood)
    outcome = Outcome("finished", opened.step)
    _finish(folder, outcome, readings, None, shifted)
    return Result(folder, outcome.kind, outcome.step, {**_last(readings), **shifted}, fresh=True)


def _carry_on(spec: RunSpec, ranks: Ranks, folder: Path, data: Prepared, ood: OOD, watch: Watch) -> Result:
    """Train from the last checkpoint, or from the start, to the run's end or to a signal to stop."""
    session = _Session(spec, ranks, folder, assemble(spec, data, ranks))
    with _asked_to_stop() as stop, contextlib.closing(session.writer):
        outcome = session.train(watch, stop)
        shifted: dict[str, float] = {}
        if outcome.kind != "interrupted" and ranks.first:
            if session.is_new or outcome.step != session.start:
                session.commit(outcome.step)
            write_examples(folder, data)
            if spec.shift is not None and outcome.kind == "finished":
                shifted = read_shift(spec.shift, session.parts.model, data, ood)
            _finish(folder, outcome, session.readings, session.best, shifted)
    return Result(folder, outcome.kind, outcome.step, {**_last(session.readings), **shifted}, fresh=True)


class _Session:
    """A run in training: its parts as of the last checkpoint, its readings so far, and their writer.

    Attributes:
        start: The step of the checkpoint; 0 if there is none.
        is_new: Whether there is no checkpoint.
        readings: The numbers of all readings, on the first rank.
        best: The best reading, if the spec asks for it.
    """

    def __init__(self, spec: RunSpec, ranks: Ranks, folder: Path, parts: Assembled) -> None:
        self.parts = parts
        self.best = None if spec.best is None else Best(spec.best.metric, spec.best.patience)
        self._spec, self._ranks = spec, ranks
        self.start, offsets = 0, (0, 0)
        checkpoint = load_newest(folder)
        self.is_new = checkpoint is None
        if checkpoint is not None:
            tensors, metadata = checkpoint
            unpack(parts.model, parts.optimizer, parts.tracker, parts.objective, tensors, metadata)
            self.start, offsets = metadata["step"], tuple(metadata["offsets"])
            if self.best is not None:
                self.best.load_state_dict(decode_nonfinite(metadata["best"]))
        if ranks.mean(self.start) != self.start:
            raise BadInput(f"the ranks see different checkpoints of {folder.name}; give all the same folder by out=...")
        self.writer = RunWriter(folder, offsets) if ranks.first else NullWriter()
        self.readings = read_journal(folder / JOURNAL)[0] if ranks.first else []

    @property
    def exhausted(self) -> bool:
        """Whether no better reading came within the patience of the spec."""
        return self.best is not None and self.best.exhausted

    def train(self, watch: Watch, stop: list[bool]) -> Outcome:
        """Train to the end, or until ``stop`` is set, and call ``watch`` after every step."""
        parts, spec = self.parts, self._spec

        def after(step: int, loss: float, reading: Reading | None) -> str | None:
            if reading is not None:
                reading = {**reading, "loss": loss}
                self._note(reading)
            outcome = self._outcome(reading, self._ranks.any(stop[0]))
            if step % spec.checkpoint == 0 or outcome == "interrupted":
                self.commit(step)
            watch(step, parts.steps, loss, reading)
            return outcome

        if self.is_new and (first := parts.tracker.advance(0)) is not None:
            self._note(first)
        steps = self.start if self.exhausted else parts.steps  # a death between the last commit and the result
        return loop.train(
            parts.model, parts.optimizer, parts.objective, parts.train, parts.batches, steps, parts.factor,
            parts.tracker, seed=spec.seed, start=self.start, augment=spec.data.augment, val=parts.val,
            ranks=self._ranks, after=after,
        )  # fmt: skip

    def commit(self, step: int) -> None:
        """Write a checkpoint."""
        parts = self.parts
        tensors, metadata = pack(parts.model, parts.optimizer, parts.tracker, parts.objective)
        best = None if self.best is None else self.best.state_dict()
        self.writer.commit(tensors, {**metadata, "step": step, "best": best}, step // self._spec.checkpoint)

    def _note(self, reading: Reading) -> None:
        improved = self.best is not None and self.best.improves(reading)
        if self.exhausted:
            reading = {**reading, **self.parts.tracker.rest()}  # the last reading has all groups, as in a full run
        self.writer.note(reading)
        self.readings.append(split_arrays(reading)[0])
        if self.best is not None and improved:
            weights = self.parts.model.state_dict()
            self.writer.keep(weights, {"step": self.best.step, self.best.metric: self.best.value})

    def _outcome(self, reading: Reading | None, asked: bool) -> str | None:
        """The outcome with which a step ends the run, if it does."""
        if reading is not None and "diverged" in reading:
            return "diverged"
        if self.exhausted:
            return "finished"
        return "interrupted" if asked else None


def _last(readings: list[dict[str, Any]]) -> dict[str, Any]:
    """The last reading of a network whose logits were finite."""
    return next((reading for reading in reversed(readings) if "diverged" not in reading), {})


def _finish(
    folder: Path, outcome: Outcome, readings: list[dict[str, Any]], best: Best | None, shifted: dict[str, float]
) -> None:
    final = {**_last(readings), **shifted}
    result: dict[str, Any] = {"outcome": outcome.kind, "step": outcome.step, "final": final}
    result["correlations"] = sharpness_correlations(readings)
    if best is not None:
        result["best"] = {"metric": best.metric, "value": best.value, "step": best.step}
    write_json(folder / "result.json", result)


def _check_facts(folder: Path, data: Prepared, allow_version_mismatch: bool) -> None:
    """Check that a resumed run has the versions of its start, which are no part of the run's id."""
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
    except (OSError, ValueError, TypeError):  # missing or corrupted
        write_json(path, now)
        return
    for name in ("torch", "numpy", "machine"):
        if before.get(name) != now[name] and not allow_version_mismatch:
            raise BadInput(
                f"this run began with {name} {before.get(name)} and would go on with {now[name]}, which changes its "
                "bits; go back, choose another folder by out=..., or say allow_version_mismatch=True"
            )


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[list[bool]]:
    """Record SIGINT and SIGTERM: the current step is completed and committed; a second SIGINT ends at once."""
    asked = [False]

    def ask(number: int, frame: FrameType | None) -> None:
        if asked[0] and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked[0] = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # only the main thread receives signals
        before = {}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
