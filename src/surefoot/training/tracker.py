"""The tracker, which takes readings along any training loop without changing it, and the loggers that receive them."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer

from surefoot.dataset import DatasetLike, as_dataset
from surefoot.errors import BadInput, StorageFault
from surefoot.files import check_regular, make_folder
from surefoot.loss import LossLike, as_loss
from surefoot.ranks import ALONE, all_ranks, unwrapped
from surefoot.runs.records import ARRAYS, JOURNAL, read_journal
from surefoot.runs.writer import RunWriter
from surefoot.training.groups import GROUPS_BY_NAME
from surefoot.training.measured import Measured, measure
from surefoot.training.schedule import Budget, Every, Schedule, schedules_of
from surefoot.validation import as_path, check_int

__all__ = ["Logger", "Loggers", "Schedule", "Tracker", "numbers_of"]

# The numbers of the last reading that the text of a tracker shows.
_SHOWN = ("train.accuracy", "test.accuracy", "train.ece", "test.ece", "sharpness")


class Tracker:
    """Takes readings of calibration, margins and curvature at chosen steps of a training loop.

    Entering the ``with`` block records step 0. ``t.step(i)``, called after update i, records step i + 1 if a reading is
    due at this step or was due since the last call. Parameters, buffers, gradients, modes and random state do not
    change. With ``out``, readings are written to ``out/journal.jsonl``, and histograms to ``out/arrays.jsonl``.

    Args:
        model: The network, from inputs to logits (n, k).
        train: Training examples: anything that `surefoot.data.as_dataset` takes, such as a pair (inputs, labels) or a
            loader. A loader is read once here, and at every reading if its inputs are too large to be kept.
        test: Test examples, as ``train``.
        val: Validation examples, as ``train``: their accuracy, NLL, … are read, too, and the temperature of
            ``test.tce`` is fitted on them.
        optimizer: The optimizer of the loop: its learning rate η gives ``threshold`` = 2/η, and the numbers that the
            optimizer reports on its last step are recorded.
        loss: The loss whose curvature and gradient are read: ``"ce"``, ``"mse"``, a loss of surefoot or torch, or a
            function; see `surefoot.losses.as_loss`. The Gauss–Newton matrix needs a loss that is convex in the logits.
        every: Steps between readings (50 by default) or a schedule, for the default groups; or one for each group:
            ``{"calibration": 10, "curvature": 100}``. The groups calibration, margins and curvature are the default.
            The others are hessian, hessian_min, batch_sharpness, histograms, bounds (the theorems of
            `surefoot.theory`), robust, ascent and test_curvature (the sharpness of the loss on ``test``). The group
            robust needs ``eps``; if bounds are read at the same step, they include the theorems about the ball. The
            group ascent (SAM's ascent step, `surefoot.theory.sam_step`) needs SAM, VASSO or CSAM as ``optimizer``.
        budget: Share of the training's gradient steps, in (0, 1], that readings may cost. It replaces the intervals of
            ``every``, which may then name groups.
        batch_size: Number of rows of a training step, for costs and batch sharpness; all of ``train`` by default.
        out: Folder of the journal.
        seed: Seed of samples and random starts.
        eps: Radius of the ball of the robust margins, in the units of the inputs; see `surefoot.margins.robust`.
        norm: Norm of the ball, ``"inf"`` or ``"2"``.
        loggers: Objects that receive every reading, such as those of `surefoot.integrations.loggers`. A logger that
            raises causes one warning and never stops the loop.
        start: The step that is recorded on entering, with all groups, for a loop that continues an untracked training.
        sample: Number of examples that the curvature, test_curvature and ascent groups read; the random sample is the
            same at all steps; see `surefoot.curvature.Sharpness`. All examples by default.
        ranks: Whether every rank of torch.distributed has a tracker and gives its own part of the examples.
            ``batch_size`` then counts the rows of all ranks. Readings are those of all examples, the same on every
            rank; rank 0 writes and logs.

    Attributes:
        readings: The readings so far.
        price: Cost of all readings so far, in gradient steps.
        gradients: Number of gradients that the loop reported by `count`. If there are any, readings record both
            numbers, so that optimizers can be compared at equal cost.

    Raises:
        BadInput: If an argument is not valid, or a group cannot be read with these arguments.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(4, 3)
        >>> x, y = torch.randn(60, 4), torch.arange(60) % 3
        >>> with Tracker(model, train=(x, y), test=(x, y), every=5) as t:
        ...     for step in range(10):
        ...         _ = t.step(step)
        >>> [reading["step"] for reading in t.readings]
        [0, 5, 10]
    """

    def __init__(
        self,
        model: nn.Module,
        train: DatasetLike,
        test: DatasetLike,
        val: DatasetLike | None = None,
        optimizer: Optimizer | None = None,
        loss: LossLike = "ce",
        every: int | Schedule | Mapping[str, int | Schedule] | None = None,
        budget: float | None = None,
        batch_size: int | None = None,
        out: str | Path | None = None,
        seed: int = 0,
        eps: Any = None,
        norm: str = "inf",
        loggers: Iterable[Logger] = (),
        start: int = 0,
        sample: int | None = None,
        ranks: bool = False,
    ) -> None:
        self._model, self._optimizer = unwrapped(model), _checked_optimizer(optimizer)
        self._ranks = all_ranks() if ranks else ALONE
        given = {"train": train, "test": test} | ({} if val is None else {"val": val})
        with self._ranks.agreeing():
            parts = {name: as_dataset(name, part) for name, part in given.items()}
        labels = {name: self._ranks.rows(part.labels) for name, part in parts.items()}  # of all ranks
        rows = len(labels["train"])
        self._measured = Measured(
            model=self._model,
            parts=parts,
            labels=labels,
            loss=as_loss(loss, separable=True),
            batch=rows if batch_size is None else min(check_int("batch_size", batch_size, 1), rows),
            seed=check_int("seed", seed, 0),
            sample=None if sample is None else check_int("sample", sample, self._ranks.count),
            optimizer=self._optimizer,
            eps=eps,
            norm=norm,
            ranks=self._ranks,
        )
        schedules = schedules_of(every, budget)
        self._groups = {name: GROUPS_BY_NAME[name](self._measured, schedule) for name, schedule in schedules.items()}
        budgets = {id(schedule): schedule for schedule in schedules.values() if isinstance(schedule, Budget)}
        self._budgets = list(budgets.values())
        if ("robust" in self._groups) != (eps is not None):
            raise BadInput("readings of 'robust' margins and eps go together; give both or neither")
        for group in self._groups.values():
            group.check()
        self._out = None if out is None else as_path(out, "out")
        self._writer: RunWriter | None = None
        self._offsets: tuple[int, int] | None = None  # the ends of the journals, once they were opened
        self._loggers = Loggers(loggers if self._ranks.first else ())
        self._start = check_int("start", start, 0)
        self._read_at = -1
        self._due: list[str] = []
        self._at: int | None = None  # the step of the last call
        self._entered = False
        self.readings: list[dict[str, Any]] = []
        self.price = 0.0
        self.gradients = 0

    def __repr__(self) -> str:
        rows = ", ".join(f"{part}={len(labels)}" for part, labels in self._measured.labels.items())
        schedules = {name: group.schedule for name, group in self._groups.items()}
        every = {name: s.steps if isinstance(s, Every) else s for name, s in schedules.items()}
        lines = [f"Tracker({rows}, loss={self._measured.loss!r}, every={every})"]
        if self.readings:
            last = self.readings[-1]
            shown = ", ".join(f"{name} {last[name]:.4g}" for name in _SHOWN if name in last)
            lines.append(f"  {len(self.readings)} readings, the last at step {last['step']}: {shown}")
        return "\n".join(lines)

    def __enter__(self) -> Tracker:
        with self._ranks.agreeing():
            if self._out is not None and self._writer is None and self._ranks.first:
                self._writer = self._opened(self._out)
        self._entered = True
        if self._read_at < 0:
            self._record(self._start, everything=True)
        return self

    def _opened(self, out: Path) -> RunWriter:
        try:
            make_folder(out)
        except StorageFault as error:
            raise BadInput(f"out must be a folder that can be made; got {str(out)!r}: {error}") from error
        check_regular(out, (JOURNAL, ARRAYS))
        begun = bool(read_journal(out / JOURNAL)[0])
        if begun and self._offsets is None:
            raise BadInput(f"{str(out)!r} already holds a journal; choose another folder for out, or move it")
        return RunWriter(out, self._offsets if begun and self._offsets else (0, 0), timed=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.sync()
            self._offsets = self._writer.offsets
            self._writer.close()
            self._writer = None
        self._entered = False
        self._loggers.close()

    def step(self, index: int, everything: bool = False) -> dict[str, Any] | None:
        """Take and write the reading of step ``index`` + 1 if it is due; call this method after each update.

        Args:
            index: Number of the update, from 0, counted through all epochs.
            everything: Whether to read all groups now.

        Returns:
            The reading; None if none is due.

        Raises:
            BadInput: If ``index`` decreases, or ``out`` was given and the block of the tracker was not entered.
        """
        step = check_int("index", index, 0) + 1
        if self._at is not None and step < self._at:
            raise BadInput(
                f"index must not go back; got {index} after {self._at - 1}: count updates through all epochs, not "
                "from 0 in each"
            )
        if self._out is not None and not self._entered:
            raise BadInput(
                f"nothing is written to out={str(self._out)!r} outside of the tracker's block; write "
                "`with Tracker(...) as t:` around the loop"
            )
        return self._record(step, everything)

    def _record(self, step: int, everything: bool) -> dict[str, Any] | None:
        reading = self.advance(step, everything)
        if reading is not None:
            self.readings.append(reading)
            if self._writer is not None:
                self._writer.note(reading)
            self._loggers.log(reading)
        return reading

    def count(self, gradients: int) -> None:
        """Count gradients that the loop computed; readings then record this number and their own cost.

        Args:
            gradients: Number of gradients since the last call.
        """
        self.gradients += gradients

    def advance(self, step: int, everything: bool = False) -> dict[str, Any] | None:
        """Take a reading without keeping or writing it, for a loop that does so itself.

        Args:
            step: Number of steps taken.
            everything: Whether to read all groups now.

        Returns:
            The reading; None if none is due.
        """
        reading = self.read(step, everything)
        self._at = step
        return reading

    def read(self, step: int, everything: bool = False) -> dict[str, Any] | None:
        """Read the groups that are due at a step.

        Args:
            step: Number of steps taken.
            everything: Whether to read all groups now.

        Returns:
            One flat record; None if no group is due.
        """
        since = step - 1 if self._at is None or self._at >= step else self._at
        due = [name for name, group in self._groups.items() if everything or group.schedule.due(step, since)]
        if not due or step == self._read_at:
            return None
        self._read_at, self._due = step, due
        return self._measure(step, due)

    def rest(self) -> dict[str, Any]:
        """Read the groups that were not due at the last reading, for a run that ends early.

        Returns:
            One flat record; empty if all groups were due.
        """
        missing = [name for name in self._groups if name not in self._due]
        return self._measure(self._read_at, missing) if missing else {}

    def _measure(self, step: int, due: list[str]) -> dict[str, Any]:
        record: dict[str, Any] = {"step": step}
        with self._ranks.same_buffers(self._model):
            self._ranks.check_same(self._model)  # such as a loop that does not average gradients
            cost, once = measure([self._groups[name] for name in due], self._measured, record)
        self.price += cost + once
        for budget in self._budgets:
            budget.paid(step, cost, once)
        counts = {"gradients": self.gradients, "price": self.price} if self.gradients else {}
        return record | counts | self._of_optimizer()

    def _of_optimizer(self) -> dict[str, float]:
        if self._optimizer is None:
            return {}
        last = getattr(self._optimizer, "last", None) or {}
        # The mean over ranks is for an optimizer that perturbs each rank separately.
        numbers = {f"rule.{name}": self._ranks.mean(float(value)) for name, value in last.items()}
        rate = self._optimizer.param_groups[0].get("lr")
        if rate is None:  # an optimizer that computes its own rate, such as Adafactor
            return numbers
        return {"lr": float(rate), "threshold": 2 / float(rate) if rate > 0 else math.inf, **numbers}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers with which a new tracker continues bit-exactly, in the same journal.

        Later records of the journal are cut off when the tracker that loads this state is entered.

        Returns:
            One dictionary, which `torch.save` can write.
        """
        if self._writer is not None:
            self._writer.sync()  # a state must not name records that a crash could take back
            self._offsets = self._writer.offsets
        tensors = self._measured.state_dict()
        for group in self._groups.values():
            tensors |= group.state_dict()
        spent = [[budget.spent, budget.price, budget.last] for budget in self._budgets]
        return {
            **tensors,
            **({} if self._offsets is None else {"offsets": list(self._offsets)}),
            "budget": spent[0] if spent else None,
            "read_at": self._read_at,
            "price": self.price,
            "gradients": self.gradients,
        }

    def load_state_dict(self, state: Mapping[str, Any], plain: Mapping[str, Any] | None = None) -> None:
        """Restore the state of `state_dict`.

        Args:
            state: The dictionary. Checkpoints of version 0.1 hold two, as ``"tensors"`` and ``"plain"``.
            plain: The second of the two dictionaries that ``state_dict`` gave in version 0.1; until 0.3.

        Raises:
            BadInput: If ``state`` is not that of a tracker.
        """
        if plain is not None:
            warnings.warn(
                "a tracker's state is one dictionary: load_state_dict(state); two leave in 0.3",
                DeprecationWarning,
                stacklevel=2,
            )
            state = {"tensors": state, "plain": plain}
        if isinstance(state, Mapping) and set(state) == {"tensors", "plain"}:
            halves = state["tensors"], state["plain"]
            state = {**halves[0], **halves[1]} if all(isinstance(half, Mapping) for half in halves) else {}
        if not (isinstance(state, Mapping) and {"budget", "read_at", "price", "gradients"} <= set(state)):
            shown = f"with {sorted(state)}" if isinstance(state, Mapping) else f"of type {type(state).__name__}"
            raise BadInput(
                f"state must be what a tracker's state_dict() gave: t.load_state_dict(state); got one {shown}"
            )
        with self._ranks.same_buffers(self._model):
            self._measured.load_state_dict(state)
            for group in self._groups.values():
                group.load_state_dict(state)
        for budget in self._budgets if state["budget"] is not None else ():
            spent, cost, last = state["budget"]
            budget.spent, budget.price, budget.last = float(spent), float(cost), int(last)
        self._read_at, self.price = int(state["read_at"]), float(state["price"])
        self._at = None if self._read_at < 0 else self._read_at  # nothing was due since, or it would have been read
        self.gradients = int(state["gradients"])
        if "offsets" in state:
            scalars, arrays = state["offsets"]
            self._offsets = int(scalars), int(arrays)


def _checked_optimizer(given: Any) -> Optimizer | None:
    if given is not None and not getattr(given, "param_groups", None):
        raise BadInput(f"optimizer must be a torch optimizer, or None; got {type(given).__name__}")
    optimizer: Optimizer | None = given
    return optimizer


class Logger(Protocol):
    """The protocol of an object that receives every reading."""

    def log(self, reading: Mapping[str, Any]) -> None:
        """Receive a reading.

        Args:
            reading: The ``"step"``, numbers by name, and some lists and tables; see `numbers_of`.
        """

    def close(self) -> None:
        """Receive the end of the tracker's block, after which no reading follows."""


def numbers_of(reading: Mapping[str, Any]) -> dict[str, float]:
    """Select the numbers of a reading, without its step.

    Args:
        reading: The reading.

    Returns:
        The numbers by name; booleans as 0 or 1.

    Example:
        >>> numbers_of({"step": 50, "train.ece": 0.02, "diverged": True, "train.regime": "overlap", "train.tail": {}})
        {'train.ece': 0.02, 'diverged': 1.0}
    """
    return {name: float(value) for name, value in reading.items() if name != "step" and isinstance(value, int | float)}


class Loggers:
    """Several loggers as one; a logger that raises causes one warning and still receives later readings.

    Args:
        loggers: The loggers.

    Raises:
        BadInput: If one of them is no logger.

    Example:
        >>> class Printer:
        ...     def log(self, reading):
        ...         print(reading["step"])
        ...     def close(self):
        ...         print("end")
        >>> loggers = Loggers([Printer()])
        >>> loggers.log({"step": 50})
        50
        >>> loggers.close()
        end
    """

    def __init__(self, loggers: Iterable[Logger]) -> None:
        try:
            self._loggers = list(loggers)
        except TypeError as error:
            raise BadInput(f"loggers must be a list of loggers; got {type(loggers).__name__}; write [it]") from error
        for logger in self._loggers:
            if isinstance(logger, type):
                raise BadInput(f"loggers must be loggers, not their classes; write {logger.__name__}(...)")
            if not (callable(getattr(logger, "log", None)) and callable(getattr(logger, "close", None))):
                raise BadInput(f"loggers must have methods log(reading) and close(); {type(logger).__name__} lacks one")
        self._warned: set[int] = set()

    def log(self, reading: Mapping[str, Any]) -> None:
        """Give each logger its own copy of a reading.

        Args:
            reading: The reading.
        """
        for place, logger in enumerate(self._loggers):
            try:
                logger.log(copy.deepcopy(reading))
            except Exception as error:
                self._warn(place, error)

    def close(self) -> None:
        """Close each logger."""
        for place, logger in enumerate(self._loggers):
            try:
                logger.close()
            except Exception as error:
                self._warn(place, error)

    def _warn(self, place: int, error: Exception) -> None:
        if place in self._warned:
            return
        self._warned.add(place)
        logger = self._loggers[place]
        name = getattr(logger, "told_as", type(logger).__name__)
        text = (
            f"logger {name} failed with {type(error).__name__}: {error}; training goes on, later readings are given to "
            "it too, and further failures of it are not told"
        )
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=4)
        except RuntimeWarning:  # warnings are turned into errors, and an error would stop the run
            print(text, file=sys.stderr)
