"""The tracker: takes readings along any training loop without touching it, and writes them down."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

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
from surefoot.training.loggers import Logger, Loggers
from surefoot.training.measured import Measured, measure
from surefoot.training.schedule import Budget, Every, Schedule, schedules_of
from surefoot.validation import as_path, check_int

__all__ = ["Schedule", "Tracker"]

# What the text of a tracker shows of its last reading.
_SHOWN = ("train.accuracy", "test.accuracy", "train.ece", "test.ece", "sharpness")


class Tracker:
    """Readings of calibration, margins and curvature at chosen steps of a training loop.

    Entering records step 0; ``t.step(i)``, called after update i, records step i + 1 if a reading is due there, or was
    due since the call before. Parameters, buffers, gradients, modes and random state are left as they are. Readings go
    to ``t.readings`` and, with ``out``, to ``out/journal.jsonl`` (histograms to ``arrays.jsonl``). ``price`` is what
    they cost so far, in gradient steps; ``gradients`` counts those of a loop that keeps count, as ours does, and then
    both are recorded, so that optimizers can be compared at equal cost.

    Args:
        model: from inputs to logits (n, k).
        train, test: data sets: whatever `surefoot.data.as_dataset` takes, such as a pair (inputs, labels) or a loader.
            A loader is read once here, and at every reading if its inputs are too large to be kept.
        val: a data set whose accuracy, NLL, … are read too, and on which ``test.tce``'s temperature is fitted.
        optimizer: its learning rate gives ``threshold`` = 2/η, and what it says of its last step is recorded.
        loss: whose curvature and gradient are read: ``"ce"``, ``"mse"``, a loss of surefoot or torch, or a function;
            see `surefoot.losses.as_loss`. Its Gauss–Newton matrix needs it to be convex in the logits.
        every: steps between readings (50 by default), or a schedule; or one for each group:
            ``{"calibration": 10, "curvature": 100}``. Groups are calibration, margins, curvature, hessian, hessian_min,
            batch_sharpness, histograms, bounds (the theorems of `surefoot.theory`), robust (needs ``eps``; bounds read
            together with it are of the theorems about the ball, too), ascent (the way that SAM climbs:
            `surefoot.theory.sam_step`; needs SAM, VASSO or CSAM as ``optimizer``) and test_curvature (the sharpness of
            the loss on ``test``); the first three by default.
        budget: instead: read as often as keeps the price of reading below this share of the training's; ``every`` may
            then name groups, whose numbers do not count.
        batch_size: rows in one of your steps, for prices and batch sharpness; all of ``train`` by default.
        out: folder for the journal.
        eps, norm: ball of the robust margins, in the units of the inputs; see `surefoot.margins.robust`.
        loggers: told of every reading, such as those of `surefoot.integrations.loggers`; one that raises is warned of
            once and never stops the loop.
        start: the step recorded on entering, whole, for a loop that goes on with a run that was not tracked.
        sample: examples that the curvature, test_curvature and ascent groups read, the same random ones each time;
            see `surefoot.curvature.Sharpness`. All by default.
        ranks: every rank of torch.distributed has a tracker and gives its own part of the examples; ``batch_size`` is
            that of all together. Readings are those of all examples, the same on every rank; rank 0 writes and logs.

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
        self._offsets: tuple[int, int] | None = None  # where the journal ends, once it was opened
        self._loggers = Loggers(loggers if self._ranks.first else ())
        self._start = check_int("start", start, 0)
        self._read_at = -1
        self._due: list[str] = []
        self._at: int | None = None  # the step that it was told of last
        self._entered = False
        self.readings: list[dict[str, Any]] = []
        self.price = 0.0
        self.gradients = 0

    def __repr__(self) -> str:
        rows = ", ".join(f"{part}={len(labels)}" for part, labels in self._measured.labels.items())
        schedules = {name: group.schedule for name, group in self._groups.items()}
        every = {name: each.steps if isinstance(each, Every) else each for name, each in schedules.items()}
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
        """Called after update ``index`` (from 0): the reading of step ``index`` + 1, if it is due or ``everything``."""
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
        """Count gradients that the loop computed; readings then tell how many there were, and their own cost."""
        self.gradients += gradients

    def advance(self, step: int, everything: bool = False) -> dict[str, Any] | None:
        """As `step`, of the number of steps done, for a loop that keeps and writes the readings itself."""
        reading = self.read(step, everything)
        self._at = step
        return reading

    def read(self, step: int, everything: bool = False) -> dict[str, Any] | None:
        """The groups due at ``step`` (all of them if ``everything``) as one flat record; None if none is due."""
        since = step - 1 if self._at is None or self._at >= step else self._at
        due = [name for name, group in self._groups.items() if everything or group.schedule.due(step, since)]
        if not due or step == self._read_at:
            return None
        self._read_at, self._due = step, due
        return self._measure(step, due)

    def rest(self) -> dict[str, Any]:
        """What was not due at the last reading, read now: for the end of a run that comes early."""
        missing = [name for name in self._groups if name not in self._due]
        return self._measure(self._read_at, missing) if missing else {}

    def _measure(self, step: int, due: list[str]) -> dict[str, Any]:
        record: dict[str, Any] = {"step": step}
        with self._ranks.same_buffers(self._model):
            self._ranks.check_same(self._model)  # a loop that forgot to average gradients, say
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
        # Of an optimizer that perturbs each rank on its own, the mean over ranks.
        numbers = {f"rule.{name}": self._ranks.mean(float(value)) for name, value in last.items()}
        rate = self._optimizer.param_groups[0].get("lr")
        if rate is None:  # an optimizer that finds its own, such as Adafactor
            return numbers
        return {"lr": float(rate), "threshold": 2 / float(rate) if rate > 0 else math.inf, **numbers}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers with which a new tracker continues bit-exactly, in the same journal.

        What the journal holds beyond this moment is cut off when the tracker that loads this is entered.

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
        """Put back what `state_dict` gave.

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
