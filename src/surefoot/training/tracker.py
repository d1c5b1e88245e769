"""The tracker: takes readings along any training loop without touching it, and writes them down."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.curvature import jacobian_norms
from surefoot.errors import BadInput, StorageFault
from surefoot.files import check_regular, make_folder
from surefoot.forward import CHUNK, logits_of
from surefoot.loss import CrossEntropy, LossLike, as_loss
from surefoot.metrics import ece
from surefoot.predictions import Predictions
from surefoot.ranks import ALONE, all_ranks, unwrapped
from surefoot.theory.sample import Curvature, Robust
from surefoot.training.bounds import bounds_of, over_ball
from surefoot.training.cadence import GROUPS, Budget, Every, Logarithmic
from surefoot.training.curvatures import Curvatures
from surefoot.training.journal import ARRAYS, JOURNAL, Notebook, read_journal
from surefoot.training.loggers import Logger, Loggers
from surefoot.training.readings import arrays_of, calibration_of, margins_of
from surefoot.training.splits import Split, as_split
from surefoot.validation import as_path, check_int

__all__ = ["Cadence", "Split", "Tracker", "as_split"]

Cadence = Every | Logarithmic | Budget
_DEFAULT = ("calibration", "margins", "curvature")


class Tracker:
    """Readings of calibration, margins and curvature at chosen steps of a training loop.

    Entering records step 0; ``t.step(i)``, called after update i, records step i + 1 if a reading is due there, or was
    due since the call before. Parameters,
    buffers, gradients, modes and random state are left as they are. Readings go to ``t.readings`` and, with ``out``, to
    ``out/journal.jsonl`` (histograms to ``arrays.jsonl``). ``price`` is what they cost so far, in gradient steps;
    ``gradients`` counts those of a loop that keeps count, as ours does, and then both are recorded, so that rules can
    be compared at equal cost.

    Args:
        model: from inputs to logits (n, k).
        train, test: (inputs, labels), or a loader of such pairs, which is read once, here.
        val: (inputs, labels) whose accuracy, NLL, … are read too, and on which ``test.tce``'s temperature is fitted.
        optimizer: its learning rate gives ``threshold`` = 2/η, and what it says of its last step is recorded.
        loss: whose curvature and gradient are read: ``"ce"``, ``"mse"``, a loss of surefoot or torch, or a function;
            see `surefoot.losses.as_loss`. Its Gauss–Newton matrix needs it to be convex in the logits.
        every: steps between readings (50 by default), or a cadence; or one for each group:
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

    >>> model = nn.Linear(4, 3)
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
        train: Split,
        test: Split,
        val: Split | None = None,
        optimizer: Optimizer | None = None,
        loss: LossLike = "ce",
        every: int | Cadence | Mapping[str, int | Cadence] | None = None,
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
        self._loss = as_loss(loss, separable=True)
        self._seed = check_int("seed", seed, 0)
        self._ranks = all_ranks() if ranks else ALONE
        given = {"train": train, "test": test} | ({} if val is None else {"val": val})
        with self._ranks.agreeing():
            self._parts = {name: as_split(name, each) for name, each in given.items()}
        self._labels = {name: self._ranks.rows(y) for name, (_, y) in self._parts.items()}  # of all ranks
        rows = len(self._labels["train"])
        self._batch = rows if batch_size is None else min(check_int("batch_size", batch_size, 1), rows)
        self._cadences = _cadences(every, budget)
        self._eps, self._norm = eps, norm
        if ("robust" in self._cadences) != (eps is not None):
            raise BadInput("readings of 'robust' margins and eps go together; give both or neither")
        some = None if sample is None else check_int("sample", sample, self._ranks.count)
        counts = {name: len(y) for name, y in self._labels.items()}
        self._curvatures = Curvatures(
            self._model, self._parts, counts, self._loss, self._batch, self._seed, some, self._optimizer, self._ranks
        )
        if self._curvatures.count("train") < rows and "bounds" in self._cadences:
            raise BadInput("bounds compare with the sharpness of all training examples; leave out sample, or bounds")
        if "ascent" in self._cadences:
            self._curvatures.check_ascent()
        self._out = None if out is None else as_path(out, "out")
        self._notebook: Notebook | None = None
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

    def __enter__(self) -> Tracker:
        with self._ranks.agreeing():
            if self._out is not None and self._notebook is None and self._ranks.first:
                self._notebook = self._opened(self._out)
        self._entered = True
        if self._read_at < 0:
            self._at = self._start
            self._record(self._start, everything=True)
        return self

    def _opened(self, out: Path) -> Notebook:
        try:
            make_folder(out)
        except StorageFault as error:
            raise BadInput(f"out must be a folder that can be made; got {str(out)!r}: {error}") from error
        check_regular(out, (JOURNAL, ARRAYS))
        begun = bool(read_journal(out / JOURNAL)[0])
        if begun and self._offsets is None:
            raise BadInput(f"{str(out)!r} already holds a journal; choose another folder for out, or move it")
        return Notebook(out, self._offsets if begun and self._offsets else (0, 0))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._notebook is not None:
            self._notebook.sync()
            self._offsets = self._notebook.offsets
            self._notebook.close()
            self._notebook = None
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
        reading = self._record(step, everything)
        self._at = step
        return reading

    def _record(self, step: int, everything: bool = False) -> dict[str, Any] | None:
        reading = self.read(step, everything)
        if reading is not None:
            self.readings.append(reading)
            if self._notebook is not None:
                self._notebook.append(reading)
            self._loggers.log(reading)
        return reading

    def read(self, step: int, everything: bool = False) -> dict[str, Any] | None:
        """The groups due at ``step`` (all of them if ``everything``) as one flat record; None if none is due."""
        since = step - 1 if self._at is None or self._at >= step else self._at
        due = [group for group, cadence in self._cadences.items() if everything or cadence.due(step, since)]
        if not due or step == self._read_at:
            return None
        self._read_at, self._due = step, due
        return self._groups(step, due)

    def rest(self) -> dict[str, Any]:
        """What was not due at the last reading, read now: for the end of a run that comes early."""
        missing = [group for group in self._cadences if group not in self._due]
        return self._groups(self._read_at, missing) if missing else {}

    def _groups(self, step: int, due: list[str]) -> dict[str, Any]:
        record: dict[str, Any] = {"step": step}
        with self._ranks.same_buffers(self._model):
            self._ranks.check_same(self._model)  # a loop that forgot to average gradients, say
            once = self._curvatures.set_up(due)
            price = self._predictions(due, record)
            price += sum(self._curvatures.read(group, record) for group in due)
        self.price += price + once
        for cadence in {id(each): each for each in self._cadences.values()}.values():
            if isinstance(cadence, Budget):
                cadence.paid(step, price, once)
        counts = {"gradients": self.gradients, "price": self.price} if self.gradients else {}
        return record | counts | self._of_optimizer()

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain numbers with which a tracker made anew goes on to the bit, in the same journal.

        What the journal holds beyond this moment is cut off when the tracker that loads this is entered.
        """
        budget = next((each for each in self._cadences.values() if isinstance(each, Budget)), None)
        kept = None if budget is None else [budget.spent, budget.price, budget.last]
        if self._notebook is not None:
            self._notebook.sync()  # a state must not name records that a crash could take back
            self._offsets = self._notebook.offsets
        return self._curvatures.state_dict(), {
            **({} if self._offsets is None else {"offsets": list(self._offsets)}),
            "budget": kept,
            "read_at": self._read_at,
            "price": self.price,
            "gradients": self.gradients,
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        needed = {"budget", "read_at", "price", "gradients"}
        if not (isinstance(tensors, Mapping) and isinstance(plain, Mapping) and needed <= set(plain)):
            raise BadInput(
                "tensors and plain must be the two parts of a tracker's state_dict(): t.load_state_dict(*state); got "
                f"{type(tensors).__name__} and {type(plain).__name__} {sorted(plain) if plain else ''}".rstrip()
            )
        with self._ranks.same_buffers(self._model):
            self._curvatures.load_state_dict(tensors)
        for cadence in self._cadences.values():
            if isinstance(cadence, Budget) and plain["budget"] is not None:
                spent, price, last = plain["budget"]
                cadence.spent, cadence.price, cadence.last = float(spent), float(price), int(last)
        self._read_at, self.price = int(plain["read_at"]), float(plain["price"])
        self._at = None if self._read_at < 0 else self._read_at  # nothing was due since, or it would have been read
        self.gradients = int(plain["gradients"])
        if "offsets" in plain:
            scalars, arrays = plain["offsets"]
            self._offsets = int(scalars), int(arrays)

    # A reading has a price in gradient steps: a forward pass is half of one for an MLP, whose inputs need no gradient,
    # and a third for deeper networks. We count the half.

    def _predictions(self, due: list[str], record: dict[str, Any]) -> float:
        wanted = [group for group in ("calibration", "margins", "histograms", "bounds", "robust") if group in due]
        if not wanted:
            return 0.0
        price = 0.0
        for part in ("train", "test"):
            x, y = self._parts[part]
            p = self._predicted(part, record)
            n = len(self._labels[part])
            price += n / (2 * self._batch)
            if p is None:
                continue
            for group, of in (("calibration", calibration_of), ("margins", margins_of), ("histograms", arrays_of)):
                if group in wanted:
                    record.update(of(part, p))
            ball = None
            if "robust" in wanted:
                found, ball = over_ball(part, self._model, x, y, self._eps, self._norm, p, self._ranks.rows)
                record.update(found)
                price += 40 * n / self._batch  # an attack of ten steps and a bound of some sixty forward passes
            if "bounds" in wanted:
                price += self._bounds(part, x, p, ball, record)
            if part == "test" and "val" in self._parts and "calibration" in wanted:
                price += len(self._labels["val"]) / (2 * self._batch)
                record.update(self._after_temperature(p, record))
        return price

    def _bounds(self, part: str, x: Tensor, p: Predictions, ball: Robust | None, record: dict[str, Any]) -> float:
        """The theorems at this reading; with curvature on the training set, where the loss is cross-entropy."""
        if part != "train" or not isinstance(self._loss, CrossEntropy):
            record.update(bounds_of(part, p, None, ball))
            return 0.0
        reading = self._curvatures.verified(record)
        norms = self._ranks.rows(jacobian_norms(self._model, x)).double().numpy()
        record.update(bounds_of(part, p, Curvature(reading.value, reading.residual, norms), ball))
        return (p.classes + 2) * len(self._labels["train"]) / self._batch

    def _predicted(self, part: str, record: dict[str, Any]) -> Predictions | None:
        logits = self._ranks.rows(logits_of(self._model, self._parts[part][0], CHUNK))
        if not bool(torch.isfinite(logits.amax(dim=1)).all()):
            record["diverged"] = True  # an outcome to write down, where wrong labels are an error
            return None
        return Predictions(logits, self._labels[part])

    def _after_temperature(self, p: Predictions, record: dict[str, Any]) -> dict[str, float]:
        from surefoot.posthoc.temperature import Temperature  # scikit-learn takes seconds, and few runs need it

        held = self._predicted("val", record)
        if held is None:
            return {}
        fitted = Temperature().fit(held)
        found = {"test.tce": float(ece(fitted.apply(p))), "temperature": float(fitted.temperature_)}
        return calibration_of("val", held) | found

    def _of_optimizer(self) -> dict[str, float]:
        if self._optimizer is None:
            return {}
        said = getattr(self._optimizer, "last", None)
        # Of a rule that perturbs each rank on its own, the mean over ranks.
        rule = {f"rule.{name}": self._ranks.mean(float(value)) for name, value in (said or {}).items()}
        rate = self._optimizer.param_groups[0].get("lr")
        if rate is None:  # a rule that finds its own, such as Adafactor
            return rule
        return {"lr": float(rate), "threshold": 2 / float(rate) if rate > 0 else math.inf, **rule}


def _cadences(every: int | Cadence | Mapping[str, int | Cadence] | None, budget: float | None) -> dict[str, Cadence]:
    if budget is not None:
        if every is not None and not isinstance(every, Mapping):
            raise BadInput("a budget spaces the readings itself; give budget or every, not both")
        shared = Budget(budget)
        names = list(every) if isinstance(every, Mapping) else list(_DEFAULT)
        return dict.fromkeys(_known(names), shared)
    if not isinstance(every, Mapping):
        every = dict.fromkeys(_DEFAULT, 50 if every is None else every)
    return {
        name: each if isinstance(each, Cadence) else Every(check_int("every", each, 1))
        for name, each in zip(_known(every), every.values(), strict=True)
    }


def _checked_optimizer(given: Any) -> Optimizer | None:
    if given is not None and not getattr(given, "param_groups", None):
        raise BadInput(f"optimizer must be a torch optimizer, or None; got {type(given).__name__}")
    optimizer: Optimizer | None = given
    return optimizer


def _known(names: Any) -> list[str]:
    if not names:
        raise BadInput(f"every must name a group at least, among {', '.join(GROUPS)}; got {{}}")
    for name in names:
        if name not in GROUPS:
            raise BadInput(f"every: groups are {', '.join(GROUPS)}; got {name!r}")
    return list(names)
