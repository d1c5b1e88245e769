"""`CalibrationState`: binned metrics and proper scores of a stream, in constant memory, exactly mergeable."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bins import BinTable, bin_of, check_bins, tally_width, weighted_table, width_table
from surefoot.metrics.exact import UNIT, carry, int_sums
from surefoot.metrics.total import (
    BLOCK,
    DIGITS,
    add_block,
    carry_digits,
    digits_of,
    dot_of,
    int_of,
    total_of,
    total_value,
)
from surefoot.metrics.value import Value
from surefoot.metrics.weighted import CellSums, int_dot, to_units
from surefoot.predictions import Events, Predictions, check_predictions
from surefoot.validation import check_positive

__all__ = ["CalibrationState"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[Any]

_WEIGHT_STEPS = 1 << 40  # of the largest weight, as in `surefoot.predictions.events`
_CELL_DIGITS = 5  # in base 2^32: a product of 98 bits over 2^42 rows and more
# The quantities of `cells`, `totals` and `counts`, in the order in which they are stored.
_CELLS = ("rows", "weight", "squares", "happened", "prob")
_TOTALS = ("nll", "brier", "weight", "right")
_COUNTS = ("classes", "binary", "impossible", "weighted", "events")
_FORMAT, _VERSION = "surefoot.CalibrationState", 1
_TOP = ("top", "given")  # the events "the prediction is right"


class CalibrationState:
    """Exact sums over events, which can be accumulated over batches, streams and ranks.

    All sums are integers in arrays of fixed shapes: adding the ``arrays`` of two ranks (an all-reduce) merges their
    states. Any split of the rows, in any order, gives results that are bit-identical to those of all rows at once.

    Integer weights are exact. Real weights are rounded once to multiples of 2⁻⁴⁰ of the largest weight of the whole
    input, which must therefore be stated. A sum Σ w x over n rows is then off by at most n·2⁻⁴¹ times the largest
    weight and the largest x.

    Args:
        bins: number of bins M of equal width, from 1 to 10,000.
        sums: (4, M) integers of an earlier state of events without weights, to continue from; None starts without rows.
        largest_weight: the largest weight of the whole input, if a weight is no integer; None if all weights are
            integers below 2⁴⁰, or there are no weights.
        event: which events of predictions to count, as for `Predictions.events`. None takes the usual events of the
            first predictions.

    Attributes:
        bins: number of bins M.
        largest_weight: as the argument.
        event: name of the events; None before the first.
        sums: (4, M) int64 sums over the events that count once and happened or not: rows, hits, high and low parts of
            the probabilities.
        cells: (layers, 5, 5, M) int64 sums over all other events: rows, Σ W, Σ W², Σ W y and Σ W c, each as five
            digits in base 2³². The first layer holds integer weights. The second layer exists if ``largest_weight`` is
            stated; it holds all rows, with weights in steps of 2⁻⁴⁰ of it.
        totals: (layers, 4, DIGITS) int64 sums of scores: Σ W·NLL, Σ W·Brier score, Σ W and Σ W·correct.
        counts: (layers, 5) int64: rows scored over all classes, rows scored as binary events, rows whose label had
            probability 0, rows given with a weight, and events of scored rows.

    Raises:
        BadInput: when ``bins`` is out of range, ``sums`` are not those of a state, or ``largest_weight`` is not
            positive.

    Example:
        >>> a = CalibrationState().update(Predictions([[2.0, 0.0]], [0]))
        >>> b = CalibrationState().update(Predictions([[0.0, 1.0]], [0]))
        >>> a.merge(b).compute()["accuracy"]
        Value(0.5, n=2)
    """

    def __init__(
        self,
        bins: int = 15,
        sums: Any = None,
        *,
        largest_weight: float | None = None,
        event: str | int | None = None,
    ) -> None:
        self.bins = check_bins(bins)
        self.largest_weight = None if largest_weight is None else check_positive("largest_weight", largest_weight)
        self.event = None if event is None else str(event)
        layers = 1 if self.largest_weight is None else 2
        self.sums = np.zeros((4, self.bins), np.int64)
        self.cells = np.zeros((layers, len(_CELLS), _CELL_DIGITS, self.bins), np.int64)
        self.totals = np.zeros((layers, len(_TOTALS), DIGITS), np.int64)
        self.counts = np.zeros((layers, len(_COUNTS)), np.int64)
        if sums is not None:
            self._continue(sums)

    def _continue(self, sums: Any) -> None:
        if self.largest_weight is not None:
            raise BadInput(
                "sums hold events without weights; leave out largest_weight, or read a state of weighted events with "
                "CalibrationState.from_dict"
            )
        try:
            given = np.asarray(sums)
        except ValueError as error:
            raise BadInput(f"sums must be integers of shape (4, {self.bins}); {error}") from error
        if given.shape != self.sums.shape or given.dtype.kind not in "iu":
            raise BadInput(f"sums must be integers of shape (4, {self.bins}); got {given.dtype} {given.shape}")
        self.sums += given.astype(np.int64)
        if (self.sums[0] < 0).any() or (self.sums[1] < 0).any() or (self.sums[1] > self.sums[0]).any():
            raise BadInput("sums must hold counts of rows and, at most as many, hits; these are not of a state")
        carry(*self.sums[2:])
        if self.event is None and self.n:
            self.event = "top"

    def __repr__(self) -> str:
        shown = ("ece", "mce", "rmsce", "accuracy", "confidence", "mean_prob")
        values = self.compute() if self.n else {}
        measured = "".join(f", {name}={values[name]:.4f}" for name in shown if name in values)
        return f"CalibrationState(bins={self.bins}, n={self.n}{measured})"

    # --- rows -----------------------------------------------------------------------------------------------------

    def update(self, p: Predictions | Events, event: str | int | None = None) -> CalibrationState:
        """Add rows to the state.

        Args:
            p: the predictions of the new rows, of any kind; or a table of events, whose NLL and Brier score are those
                of binary forecasts.
            event: which events of the predictions, as for `Predictions.events`; None takes those of the state.

        Returns:
            The state itself.

        Raises:
            BadInput: when ``p`` is no `Predictions` and no `Events`; when its events are others than those of the
                state; when a weight exceeds ``largest_weight``, or is no integer and ``largest_weight`` was not stated.
        """
        e = self._events(p, event)
        classes = isinstance(p, Predictions) and p.form == "classes"
        self._check_scored(classes)
        # Every weight is checked before the first sum changes.
        layers = self._layers(e.weight, len(e))
        if not len(e):
            return self
        self.event = e.name
        for layer, counts in enumerate(layers):
            self._add_cells(e, counts, layer)
        if isinstance(p, Predictions) and (classes or (p.form == "positive" and e.name != "positive")):
            # The scores are those of the rows, of which each has made one event, or one for each class.
            columns = [-p.log_true, p.squared_error / (1 if classes else 2), p.correct]
            self._add_scores(columns, p.weights, len(e) // len(p), classes)
        elif self.largest_weight is None and e.plain:
            totals, impossible = _binary_totals(e)
            self.totals[0] += totals
            self.counts[0] += [0, len(e), impossible, 0, len(e)]
        else:
            self._add_scores(_binary_columns(e), e.weight, 1, classes=False)
        self._carry()
        return self

    def _events(self, p: Any, event: str | int | None) -> Events:
        """The events of the state in new rows."""
        if isinstance(p, Events):
            if event is not None:
                raise BadInput(f"event chooses among the events of Predictions; got {event!r} with a table of events")
            e = p
        else:
            which = self._which(check_predictions("p", p)) if event is None else event
            if event is None and p.form == "multilabel" and _absent(p, which):
                e = p.events("pooled").take(slice(0, 0))
                e.name = str(which)
            else:
                e = p.events(which)
        if self.event is not None and e.name != self.event:
            raise BadInput(f"the state holds events {self.event!r}; it cannot take events {e.name!r}")
        return e

    def _which(self, p: Predictions) -> str | int | None:
        """The events of the state, as `Predictions.events` takes them: a class without a name is a number."""
        named = p.form == "multilabel" or (p.names is not None and self.event in p.names)
        return int(self.event) if self.event is not None and self.event.isdecimal() and not named else self.event

    def _check_scored(self, classes: bool) -> None:
        held = self._counted("binary" if classes else "classes")
        if held:
            words = ("binary events", "predictions with the probabilities of all classes")
            raise BadInput(
                f"the state holds {words[not classes]}, and cannot take {words[classes]}: their Brier scores differ by "
                "a factor of 2. Use a state for each"
            )

    def _layers(self, weight: Floats | None, n: int) -> list[Ints | None]:
        """The weights of n rows as the integers of each layer; in the first, None for ones and −1 for rows left out."""
        whole: Ints | None = None
        if weight is not None:
            integer = (weight == np.floor(weight)) & (weight < _WEIGHT_STEPS)
            if self.largest_weight is None and not integer.all():
                row = int(np.flatnonzero(~integer)[0])
                raise BadInput(
                    f"weights must be integers below 2**40 unless largest_weight is stated; event {row} has "
                    f"{weight[row]:.6g}. Write CalibrationState(largest_weight=...) with the largest weight of the "
                    "whole input, the same in every part"
                )
            whole = np.where(integer, weight, -1.0).astype(np.int64)
        if self.largest_weight is None:
            return [whole]
        weights = np.ones(n) if weight is None else weight
        if n and weights.max() > self.largest_weight:
            row = int(weights.argmax())
            told = "none, which counts as 1" if weight is None else f"{weights[row]:.6g}"
            raise BadInput(f"weights must be at most largest_weight={self.largest_weight:.6g}; event {row} has {told}")
        return [whole, np.rint(weights / self._unit(1)).astype(np.int64)]

    def _unit(self, layer: int) -> float:
        """The weight that an integer of a layer stands for."""
        return 1.0 if self.largest_weight is None or layer == 0 else self.largest_weight / _WEIGHT_STEPS

    def _add_cells(self, e: Events, counts: Ints | None, layer: int) -> None:
        """Add events to `sums` and to a layer of `cells`. Where an event goes depends on this event alone."""
        prob, happened = e.prob, e.happened
        if layer == 0:
            if counts is None and happened.dtype == np.bool_:
                self.sums += tally_width(prob, happened, self.bins)
                return
            counts = np.ones(len(e), np.int64) if counts is None else counts
            once = ((happened == 0) | (happened == 1)) & (counts == 1)
            if once.any():
                self.sums += tally_width(prob[once], happened[once] == 1, self.bins)
            rest = ~once & (counts > 0)
            if not rest.any():
                return
            prob, happened, counts = prob[rest], happened[rest], counts[rest]
        assert counts is not None
        cell = bin_of(prob, self.bins)
        factors = (np.ones(len(prob), np.int64), counts, to_units(happened), to_units(prob))
        lines = [np.bincount(cell, minlength=self.bins).tolist()]
        lines += [int_dot(cell, self.bins, counts, factor) for factor in factors]
        for quantity, line in enumerate(lines):
            for index, total in enumerate(line):
                if total:
                    self.cells[layer, quantity, :, index] += digits_of(total, _CELL_DIGITS)

    def _add_scores(self, columns: list[Numbers], weight: Floats | None, per_row: int, classes: bool) -> None:
        """Add NLL, Brier score and correctness of rows, of which each has made ``per_row`` events."""
        for layer, counts in enumerate(self._layers(weight, len(columns[0]))):
            part = columns
            if counts is not None and counts.min() < 0:
                part, counts = [column[counts >= 0] for column in columns], counts[counts >= 0]
            n = len(part[0])
            totals, impossible = _totals_of(part, counts)
            self.totals[layer] += totals
            given = 0 if weight is None else n
            self.counts[layer] += [n * classes, n * (not classes), impossible, given, n * per_row]

    def _carry(self) -> None:
        """Bring all sums to their one form: equal rows have equal arrays."""
        carry(*self.sums[2:])
        if self.cells.any():
            carry_digits(np.moveaxis(self.cells, 2, 0))
        carry_digits(np.moveaxis(self.totals, 2, 0))

    # --- states ---------------------------------------------------------------------------------------------------

    @property
    def arrays(self) -> dict[str, Ints]:
        """All sums by name, as int64 arrays of fixed shapes; adding those of another state in place merges it."""
        return {"sums": self.sums, "cells": self.cells, "totals": self.totals, "counts": self.counts}

    def merge(self, other: CalibrationState) -> CalibrationState:
        """Merge two states into a new state of the rows of both.

        Args:
            other: a state with the same number of bins, the same largest weight and the same events.

        Returns:
            The new state; both old states stay as they are.

        Raises:
            BadInput: when ``other`` is no `CalibrationState`, or differs in what it counts.
        """
        if not isinstance(other, CalibrationState):
            raise BadInput(f"a state can be merged with a CalibrationState only; got {type(other).__name__}")
        if other.bins != self.bins:
            raise BadInput(f"states can be merged only with the same bins; got {self.bins} and {other.bins}")
        if other.largest_weight != self.largest_weight:
            raise BadInput(
                "states can be merged only with the same largest_weight, that of the whole input; got "
                f"{self.largest_weight} and {other.largest_weight}"
            )
        names = {state.event for state in (self, other) if state.event is not None}
        if len(names) > 1:
            raise BadInput(f"states can be merged only of the same events; got {' and '.join(sorted(names))}")
        if other._counted("classes"):
            self._check_scored(classes=True)
        if other._counted("binary"):
            self._check_scored(classes=False)
        event = other.event if self.event is None else self.event
        merged = CalibrationState(self.bins, largest_weight=self.largest_weight, event=event)
        for part in (self, other):
            for name, array in merged.arrays.items():
                array += part.arrays[name]
        merged._carry()
        return merged

    def coarser(self, bins: int) -> CalibrationState:
        """The state of the same rows in fewer bins.

        Args:
            bins: number of bins, a divisor of the present number.

        Returns:
            A new state, with the bits of a state that has had these bins from the start.

        Raises:
            BadInput: when ``bins`` is no divisor.

        Example:
            >>> CalibrationState(30).update(Predictions([[2.0, 0.0]], [0])).coarser(15).bins
            15
        """
        bins = check_bins(bins)
        if self.bins % bins:
            raise BadInput(f"bins must divide {self.bins}; got {bins}")
        merged = copy.deepcopy(self)
        merged.bins = bins
        merged.sums = self.sums.reshape(4, bins, -1).sum(axis=2)
        merged.cells = self.cells.reshape(*self.cells.shape[:3], bins, -1).sum(axis=4)
        merged._carry()
        return merged

    def to_dict(self) -> dict[str, Any]:
        """Write the state as numbers, strings and lists, for JSON.

        Returns:
            The state, which `from_dict` reads.

        Example:
            >>> state = CalibrationState(2).update(Predictions([[2.0, 0.0]], [0]))
            >>> CalibrationState.from_dict(state.to_dict()).sums[0].tolist()
            [0, 1]
        """
        self._carry()
        settings = {"bins": self.bins, "largest_weight": self.largest_weight}
        arrays: dict[str, Any] = {name: array.tolist() for name, array in self.arrays.items()}
        if not self.cells.any():
            arrays["cells"] = None  # the usual case, and most of the numbers
        return {"format": _FORMAT, "version": _VERSION, **settings, "event": self.event, **arrays}

    @classmethod
    def from_dict(cls, data: Any) -> CalibrationState:
        """Read a state that `to_dict` wrote.

        Args:
            data: the dictionary.

        Returns:
            The state.

        Raises:
            BadInput: when ``data`` is anything else, or its sums cannot be those of rows.
        """
        names = {"format", "version", "bins", "largest_weight", "event", "sums", "cells", "totals", "counts"}
        check_fields(data, names, _FORMAT, _VERSION)
        event = data["event"]
        if event is not None and not isinstance(event, str):
            raise BadInput(f"event of a state must be a string or null; got {event!r}")
        state = cls(data["bins"], largest_weight=data["largest_weight"], event=event)
        for name, array in state.arrays.items():
            if name == "cells" and data[name] is None:
                continue
            try:
                given = np.array(data[name], dtype=object)
            except ValueError as error:
                raise BadInput(f"{name} of a state must be integers of shape {array.shape}; {error}") from error
            numbers = given.ravel().tolist()
            if given.shape != array.shape or not all(type(number) is int for number in numbers):
                raise BadInput(f"{name} of a state must be integers of shape {array.shape}; got shape {given.shape}")
            if not all(0 <= number < 1 << 63 for number in numbers):
                raise BadInput(f"{name} of a state must be integers from 0 to 2**63 - 1; got {min(numbers)}")
            array += given.astype(np.int64)
        state._check(data)
        return state

    def to_bytes(self) -> bytes:
        """Write the state as JSON, for files and other processes.

        Returns:
            UTF-8 text; equal states give equal bytes.

        Example:
            >>> state = CalibrationState().update(Predictions([[2.0, 0.0]], [0]))
            >>> CalibrationState.from_bytes(state.to_bytes()).to_bytes() == state.to_bytes()
            True
        """
        return json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes | str) -> CalibrationState:
        """Read a state that `to_bytes` wrote.

        Args:
            data: the bytes, or the text.

        Returns:
            The state.

        Raises:
            BadInput: when ``data`` is anything else.
        """
        return cls.from_dict(from_json(data))

    def _check(self, data: Mapping[str, Any]) -> None:
        """Check that sums read from elsewhere can be those of rows."""
        before = {name: array.copy() for name, array in self.arrays.items()}
        self._carry()
        rows, hits, high, low = self.sums
        wrong = None
        for name, array in self.arrays.items():
            if (array != before[name]).any():
                wrong = f"{name} are not carried"
        if wrong is None and (hits > rows).any():
            wrong = "there are more hits than rows"
        if wrong is None and any(t > int(c) * UNIT for t, c in zip(int_sums(high, low), rows, strict=True)):
            wrong = "probabilities exceed 1"
        for layer in range(len(self.cells)):
            for sums in zip(*(self._line(layer, name) for name in _CELLS), strict=True):
                count, weight, _, happened, prob = sums
                if max(happened, prob) > weight * UNIT or weight > count * _WEIGHT_STEPS:
                    wrong = wrong or "weighted sums exceed their weights"
            counts = dict(zip(_COUNTS, self.counts[layer].tolist(), strict=True))
            scored = counts["classes"] + counts["binary"]
            total, right = self._total(layer, "weight"), self._total(layer, "right")
            if max(counts["impossible"], counts["weighted"]) > scored or (counts["classes"] and counts["binary"]):
                wrong = wrong or "counts contradict each other"
            if right > total * UNIT or total > scored * _WEIGHT_STEPS:
                wrong = wrong or "scores exceed their weights"
        if len(self.cells) > 1 and self._rows(1) < self._rows(0):
            wrong = wrong or "integer weights are more than all weights"
        if wrong:
            raise BadInput(f"these are not the sums of a state ({data['format']}): {wrong}")

    # --- results --------------------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of events in the state."""
        return max(self._rows(layer) for layer in range(len(self.cells)))

    @property
    def table(self) -> BinTable:
        """The bin table, equal to the table behind `surefoot.metrics.reliability` and the binned metrics.

        Only its ``squares`` may differ in the last bits: they are exact here.
        """
        layer = self._layer
        if layer == 0 and not self.cells[0].any() and not self._counted("weighted"):
            return width_table(self.sums)
        return weighted_table(self._cell_sums(layer))

    @property
    def _layer(self) -> int:
        """The layer to read: the first, of integer weights, unless the second has more rows."""
        return int(len(self.cells) > 1 and self._rows(1) > self._rows(0))

    def _rows(self, layer: int) -> int:
        return sum(self._line(layer, "rows")) + (0 if layer else int(self.sums[0].sum()))

    def _line(self, layer: int, quantity: str) -> list[int]:
        """A quantity of `cells` as one integer for each bin."""
        digits = self.cells[layer, _CELLS.index(quantity)]
        if not digits.any():
            return [0] * self.bins
        return [int_of(column) for column in digits.T]

    def _total(self, layer: int, quantity: str) -> int:
        return int_of(self.totals[layer, _TOTALS.index(quantity)])

    def _counted(self, quantity: str) -> int:
        return int(self.counts[:, _COUNTS.index(quantity)].max())

    def _cell_sums(self, layer: int) -> CellSums:
        """All events of a layer, per bin."""
        rows, weight, squares, happened, prob = (self._line(layer, name) for name in _CELLS)
        if layer == 0:
            count, hits = self.sums[0].tolist(), self.sums[1].tolist()
            plain = [count, count, count, [hit * UNIT for hit in hits], int_sums(self.sums[2], self.sums[3])]
            rows, weight, squares, happened, prob = (
                [a + b for a, b in zip(line, more, strict=True)]
                for line, more in zip((rows, weight, squares, happened, prob), plain, strict=True)
            )
        unit = self._unit(layer)
        return CellSums(
            np.array(rows, np.int64), weight, happened, prob, np.array(squares, np.float64) * (unit * unit), unit
        )

    def compute(self) -> dict[str, Value]:
        """Compute the metrics of all rows.

        Binned metrics are bit-identical to those of `surefoot.metrics` of all rows at once. Means are rounded once.

        Returns:
            Values under the names of the metrics: ``ece``, ``mce``, ``rmsce``, ``accuracy``, ``gap``,
            ``over_confidence``, ``under_confidence``, ``nll`` and ``brier``. For the predicted class also
            ``confidence``, the mean confidence; for other events ``positive_rate``, the share that happened, and
            ``mean_prob``. A state that continues from ``sums`` knows no scores: it has no ``nll`` and no ``brier``, and
            for other events no ``accuracy``.

        Raises:
            BadInput: when the state has no rows yet.
        """
        if self.n == 0:
            raise BadInput("no rows were seen yet; call update with predictions first")
        layer, table = self._layer, self.table
        sums = self._cell_sums(layer)
        weight, happened, prob = sum(sums.weight), sum(sums.happened), sum(sums.prob)
        rows = self._facts(layer, int(sums.rows.sum()), weight)
        name = "top" if self.event is None else self.event
        facts = rows if name == "top" else {**rows, "event": name}
        width = {**facts, "bins": self.bins, "binning": "equal width", "bias": "upward"}
        signed = (happened - prob) / UNIT * sums.unit / (weight * sums.unit)
        values = {
            "ece": Value(table.error(1), norm=1, **width),
            "mce": Value(float(table.gap.max()), norm="max", **width),
            "rmsce": Value(table.error(2), norm=2, **width),
        }
        scores = self._scores(layer, int(sums.rows.sum()))
        rate, mean = (Value(total / (weight * UNIT), **rows) for total in (happened, prob))
        if name in _TOP:
            values |= {"accuracy": rate, "confidence": mean}
        else:
            values |= {"accuracy": scores.pop("accuracy")} if scores else {}
            values |= {"positive_rate": Value(rate, **facts), "mean_prob": Value(mean, **facts)}
        values["gap"] = Value(-signed, **facts)
        values["over_confidence"] = Value(table.over, **width)
        values["under_confidence"] = Value(table.under, **width)
        return values | scores

    def _facts(self, layer: int, n: int, weight: int) -> dict[str, Any]:
        """The facts of a mean over n rows."""
        if not self._counted("weighted"):
            return {"n": n}
        return {
            "n": n, "weights": "importance" if layer else "repetitions", "total_weight": weight * self._unit(layer)
        }  # fmt: skip

    def _scores(self, layer: int, events: int) -> dict[str, Value]:
        """Accuracy, NLL and Brier score; nothing if not all rows were scored."""
        counts = dict(zip(_COUNTS, self.counts[layer].tolist(), strict=True))
        if counts["events"] != events:
            return {}
        classes, weight = counts["classes"] > 0, self._total(layer, "weight")
        facts = self._facts(layer, counts["classes"] + counts["binary"], weight)
        nll, brier = (total_value(self.totals[layer, _TOTALS.index(name)], weight) for name in ("nll", "brier"))
        nll = float("inf") if counts["impossible"] else nll
        return {
            "accuracy": Value(self._total(layer, "right") / (weight * UNIT), **facts),
            "nll": Value(nll, unit="nats", impossible=counts["impossible"], **facts),
            "brier": Value(brier, range=(0, 2 if classes else 1), **facts),
        }


# --- scores of rows -------------------------------------------------------------------------------------------------


def _absent(p: Predictions, label: str | int | None) -> bool:
    """Whether these rows have no entry of a label, as a batch may."""
    return label not in (None, "top", "positive", "pooled") and str(label) not in p.groups["label"]


def _binary_columns(e: Events) -> list[Numbers]:
    """NLL, Brier score and correctness of binary events."""
    c, d, y = e.prob, e.complement, e.happened
    with np.errstate(divide="ignore"):
        # An outcome that did not happen has no part in the sum, even where its logarithm is infinite.
        terms = [part * np.log(np.where(part > 0, said, 1.0)) for part, said in ((1.0 * y, c), (1.0 - y, d))]
    error = np.where(y == 1, d, np.where(y == 0, c, c - y))
    right = y if e.name in _TOP else np.where(c > d, y, 1.0 - y)
    return [-(terms[0] + terms[1]), error * error, right]


def _totals_of(columns: list[Numbers], counts: Ints | None) -> tuple[Ints, int]:
    """(4, DIGITS) sums of columns times integer weights, and how many rows have an infinite NLL, which is left out."""
    nll, brier, right = (np.asarray(column, np.float64) for column in columns)
    finite = np.isfinite(nll)
    impossible = len(nll) - int(np.count_nonzero(finite))
    nll = nll if impossible == 0 else np.where(finite, nll, 0.0)
    right = to_units(right) / float(UNIT)  # rounded, as in the bins
    if counts is None:
        return np.stack([total_of(nll), total_of(brier), digits_of(len(nll)), total_of(right)]), impossible
    weight = sum(int(part.sum()) for part in np.array_split(counts, 1 + (len(counts) >> 20)))
    totals = dot_of(nll, counts), dot_of(brier, counts), weight, dot_of(right, counts)
    return np.stack([digits_of(total) for total in totals]), impossible


def _binary_totals(e: Events) -> tuple[Ints, int]:
    """The same of events that count once and happened or not, in blocks that stay in a core's cache."""
    nll = brier = right = impossible = 0
    rows = min(BLOCK, len(e))
    whole, high, log = np.empty((3, rows))
    always = e.name in _TOP
    for at in range(0, len(e), BLOCK):
        c, y = e.prob[at : at + BLOCK], e.happened[at : at + BLOCK]
        d = 1.0 - c if e._complement is None else e._complement[at : at + BLOCK]
        spare = whole[: len(c)], high[: len(c)]
        true = np.where(y, c, d)
        none = int(len(true) - np.count_nonzero(true))
        if none:
            impossible += none
            true[true == 0] = 1.0
        nll -= add_block(np.log(true, out=log[: len(c)]), *spare)
        false = np.where(y, d, c)
        false *= false
        brier += add_block(false, *spare)
        right += int(np.count_nonzero(y if always else (c > d) == y))
    return np.stack([digits_of(total) for total in (nll, brier, len(e), right * UNIT)]), impossible


# --- what is read from elsewhere -------------------------------------------------------------------------------------


def from_json(data: Any) -> Any:
    """Read JSON from another process.

    Args:
        data: bytes or text.

    Returns:
        The content.

    Raises:
        BadInput: when ``data`` is no JSON text.
    """
    if not isinstance(data, bytes | bytearray | str):
        raise BadInput(f"a state is read from bytes or text; got {type(data).__name__}")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"a state must be the JSON text that to_bytes wrote; {error}") from error


def check_fields(data: Any, names: set[str], form: str, version: int) -> None:
    """Check the names of a stored state, its format and its version.

    Args:
        data: what was read.
        names: the names that must be there, and no others.
        form: the format.
        version: the version.

    Raises:
        BadInput: when ``data`` is anything else.
    """
    if not isinstance(data, Mapping) or set(data) != names:
        found = sorted(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
        raise BadInput(f"a stored state must have the fields {', '.join(sorted(names))}; got {found}")
    if data["format"] != form or data["version"] != version or isinstance(data["version"], bool):
        raise BadInput(
            f"a stored state must be of format {form}, version {version}; got {data['format']!r}, {data['version']!r}"
        )
