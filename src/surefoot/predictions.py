"""`Predictions`: logits and labels of n examples, validated once; confidence is derived in log space.

Shapes: n examples, k classes; ``logits (n, k)``, ``labels (n,)``. The scores are kept as they were given
(float16 to float64, memory-mapped too) and never copied whole; every derived number is float64, computed
from inputs cast first, a block of rows at a time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from surefoot.columns import empty_columns, from_logits, from_probs
from surefoot.deprecated import renamed_property
from surefoot.errors import BadInput
from surefoot.files import read_table, write_table
from surefoot.threads import run_ranges, split_range
from surefoot.validation import as_labels, as_path, as_scores, explain_bad_logits, precision, rounding_of_sums

__all__ = ["Predictions", "check_predictions", "takes_predictions"]

Floats = NDArray[np.float64]
Part = TypeVar("Part")
Function = TypeVar("Function", bound=Callable[..., Any])

# Numbers in a block of rows: few enough to stay near a core while several operations pass over them, many
# enough that threads seldom wait for the interpreter's lock.
_BLOCK_NUMBERS = 1 << 19
# Rows are swept in this many contiguous parts however many cores there are, so that sums merged in the
# order of the parts do not depend on the machine.
_PARTS = 8
# Sums of probabilities may be off by the rounding of half precision or of a file's decimals, not more.
_SUM_TOLERANCE = 1e-3
_HALF_ROUNDING = 2.0**-8  # bfloat16 rounds each probability by 2^-9 of itself, and so their sum


class Predictions:
    """What a classifier said about n examples, and what was true.

    Args:
        logits: (n, k) real numbers, k >= 2; a tensor, an array or nested lists. −inf is allowed beside
            finite values; NaN, +inf and rows of −inf only are not. Kept, not copied: do not modify it.
        labels: (n,) whole numbers in 0..k−1.

    The predicted class is the largest logit, the lowest index among equals.

    >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    >>> p.confidence.round(4).tolist(), p.correct.tolist(), p.true_margin.tolist()
    ([0.8808, 0.7311], [True, False], [2.0, -1.0])
    """

    def __init__(self, logits: Any, labels: Any) -> None:
        scores = as_scores("logits", logits)
        self._set(scores, as_labels(labels, scores.shape), "logits")
        if scores.dtype.kind in "iu" and max(-int(scores.min()), int(scores.max())) > 2**53:
            raise BadInput("logits given as whole numbers must be at most 2**53 in size; give floating-point numbers")
        tops = np.concatenate([self._block(rows).max(axis=1) for rows in self._slices()]).astype(np.float64)
        if not np.isfinite(tops).all():
            raise BadInput(explain_bad_logits(tops))
        if self._looks_softmaxed():
            raise BadInput(
                "logits must be unnormalised scores; every row lies in [0, 1] and sums to 1, so these are "
                "probabilities: use Predictions.from_probs (kind='probs' in load, --probs on the command line). "
                "If they truly are logits, add 1 to all of them: nothing else changes"
            )

    @classmethod
    def from_probs(cls, probs: Any, labels: Any) -> Predictions:
        """Predictions from probabilities (n, k): no entry below 0, each row summing to 1 within rounding.

        Rounding is 1e-3, or what numbers of so few decimals can add up to (0.005 for ten classes and three decimals).
        A row whose sum is 1 up to float64 rounding is kept to the bit; any other is divided by its sum.

        >>> Predictions.from_probs([[0.9, 0.1]], [0]).confidence.tolist()
        [0.9]
        """
        scores = as_scores("probs", probs)
        self = cls.__new__(cls)
        self._set(scores, as_labels(labels, scores.shape), "probs")
        lows = np.concatenate([block.min(axis=1) for block in self._blocks()])
        sums = np.concatenate([block.sum(axis=1) for block in self._blocks()])
        rounded = max(rounding_of_sums(block) for block in self._blocks())
        slack = max(_SUM_TOLERANCE, precision(probs), rounded)
        bad = ~((lows >= 0) & (np.abs(sums - 1) <= slack))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            what = f"its smallest entry is {lows[row]:.6g}" if not lows[row] >= 0 else f"it sums to {sums[row]:.6g}"
            raise BadInput(
                f"probs must be non-negative with rows summing to 1 (within {slack:.0e}); row {row} is not: {what}. "
                "For logits use Predictions(logits, labels); for rounded numbers divide each row by its sum"
            )
        return self

    @classmethod
    def of(cls, model: Any, inputs: Any, labels: Any, batch_size: int = 1024) -> Predictions:
        """What ``model`` says about ``inputs``: a torch module, or anything with scikit-learn's ``predict_proba``.

        A module gives the logits of ``inputs`` (n, ...) in eval mode, ``batch_size`` rows at a time; its mode,
        gradients and random state are left as they were. An estimator is given all ``inputs`` at once, and ``labels``
        are its own: numbers or names among ``classes_``, whose order is that of the columns.
        """
        if _is_estimator(model):
            return cls.from_probs(*_probs_of(model, inputs, labels))
        from surefoot.forward import logits_of

        # Before the long pass, not after it.
        if hasattr(inputs, "__len__") and hasattr(labels, "__len__") and len(inputs) != len(labels):
            raise BadInput(f"labels must be one per input; got {len(labels)} for {len(inputs)} inputs")
        return cls(logits_of(model, inputs, batch_size), labels)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, split: str | None = None, kind: str | None = None) -> Predictions:
        """Read predictions from ``.npz``, ``.csv`` or ``.parquet``.

        Args:
            path: ``.npz`` with arrays ``logits`` or ``probs``, and ``labels``; or a table with the column
                ``label``, then one column per class.
            split: for an ``.npz`` with several sets (``val_logits``, ``val_labels``, ...), which one.
            kind: ``"logits"`` or ``"probs"`` where the file does not say (class columns of a table that
                start with neither ``logit`` nor ``prob``); logits if it is left open.
        """
        if kind not in (None, "logits", "probs"):
            raise BadInput(f"kind must be 'logits' or 'probs'; got {kind!r}")
        scores, labels, said = read_table(as_path(path), split)
        if kind is not None and said is not None and kind != said:
            raise BadInput(f"{str(path)!r} says that it holds {said}; it cannot be read as {kind}")
        door = cls.from_probs if (kind or said) == "probs" else cls
        return door(scores, labels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``.npz``, ``.csv`` or ``.parquet``; the file appears whole or not at all."""
        # Probabilities as they are used: a file whose rows were normalised on the way in can be read back.
        scores = self._block(slice(None)) if self._kind == "logits" else self.probs
        write_table(as_path(path), scores, self.labels, self._kind)

    def take(self, rows: Any) -> Predictions:
        """The predictions of the given rows (indices or a mask), in that order; repeats are allowed."""
        try:
            index = np.arange(len(self))[rows]
        except (IndexError, TypeError, ValueError) as error:
            raise BadInput(
                f"rows must be indices in 0..{len(self) - 1}, a slice or a mask of {len(self)}; {error}"
            ) from error
        if index.ndim != 1 or len(index) == 0:
            raise BadInput(f"rows must pick one or more rows; got {rows!r}")
        child = Predictions.__new__(Predictions)
        child._set(self._scores, self.labels[index], self._kind)
        child._rows = index if self._rows is None else self._rows[index]
        child._source, child._source_rows = self, index
        return child

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Predictions(n={len(self)}, classes={self.classes})"

    @property
    def classes(self) -> int:
        """Number of classes k."""
        return int(self._scores.shape[1])

    # --- whole matrices, made on request ------------------------------------------------------------

    @property
    def logits(self) -> NDArray[Any]:
        """(n, k) logits as given; log-probabilities where probabilities were given."""
        return self.log_probs if self._kind == "probs" else self._block(slice(None))

    @property
    def log_probs(self) -> Floats:
        """(n, k) log-softmax in float64; a saturated class keeps its tiny distance from 0."""
        return np.concatenate([self._derive(rows, "log_probs")[1] for rows in self._slices()])

    @property
    def probs(self) -> Floats:
        """(n, k) softmax in float64."""
        return np.concatenate([self._derive(rows, "probs")[1] for rows in self._slices()])

    # --- columns, derived once ----------------------------------------------------------------------

    @property
    def predicted(self) -> NDArray[np.int64]:
        """(n,) predicted class."""
        return self._column("predicted")

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(n,) whether the predicted class is the label."""
        return self._column("correct")

    @property
    def confidence(self) -> Floats:
        """(n,) probability of the predicted class."""
        return self._column("confidence")

    @property
    def log_confidence(self) -> Floats:
        """(n,) logarithm of the confidence; it does not saturate where the confidence rounds to 1."""
        return self._column("log_confidence")

    @property
    def error_probability(self) -> Floats:
        """(n,) 1 − confidence; tiny but distinct where the confidence rounds to 1."""
        return self._column("error_probability")

    doubt = renamed_property("doubt", "error_probability")

    @property
    def log_true(self) -> Floats:
        """(n,) log-probability of the label; −inf where the label's logit is −inf."""
        return self._column("log_true")

    @property
    def true_margin(self) -> Floats:
        """(n,) logit of the label minus the largest other logit (paper A, Section 4)."""
        return self._column("true_margin")

    @property
    def predicted_margin(self) -> Floats:
        """(n,) largest logit minus the second largest; never negative."""
        return self._column("predicted_margin")

    @property
    def squared_error(self) -> Floats:
        """(n,) Σ_k (p_k − 1{k = label})², in [0, 2]: one example's Brier score."""
        return self._column("squared_error")

    def sweep(
        self,
        start: Callable[[], Part],
        visit: Callable[[Part, slice, Floats], None] | None,
    ) -> list[Part]:
        """Call ``visit(accumulator, rows, probs (b, k))`` for every block of rows, in threads.

        The rows are split into eight contiguous parts, each with an accumulator of its own from ``start()``;
        they are returned in order, so that a merged sum does not depend on the number of cores. Columns not
        derived yet are derived on the way: a metric over all classes costs no second pass.
        """
        fill = not self._cache and self._source is None
        columns = empty_columns(len(self)) if fill else {}

        def run(part: list[slice]) -> Part:
            accumulator = start()
            for rows in part:
                found, probs = self._derive(rows, "probs" if visit else None)
                for name, column in columns.items():
                    column[rows] = found[name]
                if visit:
                    visit(accumulator, rows, probs)
            return accumulator

        parts = run_ranges(run, self.parts(), len(self) * self.classes >= 2 * _BLOCK_NUMBERS)
        if fill:
            self._keep(columns)
        return parts

    def parts(self) -> list[list[slice]]:
        """The rows as eight contiguous parts of blocks that stay near a core."""
        step = max(1, _BLOCK_NUMBERS // self.classes)
        ranges = split_range(len(self), _PARTS)
        return [[slice(at, min(at + step, end)) for at in range(begin, end, step)] for begin, end in ranges]

    def logit_block(self, rows: slice, out: NDArray[Any]) -> NDArray[Any]:
        """(b, k) logits of a block, or logarithms of its probabilities, copied to the first rows of ``out``.

        Fresh memory for every block would cost more than the arithmetic.
        """
        block = self._block(rows)
        z = out[: len(block)]
        if self._kind == "probs":
            with np.errstate(divide="ignore"):
                np.log(block, out=z, casting="same_kind")
        else:
            np.copyto(z, block, casting="unsafe")
        return z

    @property
    def possible(self) -> NDArray[np.bool_]:
        """(n,) whether the label has a probability above 0; one look at each row, not at its other classes."""
        index = np.arange(len(self)) if self._rows is None else self._rows
        impossible = -np.inf if self._kind == "logits" else 0.0
        found: NDArray[np.bool_] = np.asarray(self._scores[index, self.labels]) != impossible
        return found

    @property
    def low_precision(self) -> bool:
        """Whether the scores were given in less than double precision."""
        return self._scores.dtype.itemsize < 8 and self._scores.dtype.kind == "f" and self._kind == "logits"

    def memo(self, name: str, make: Callable[[], Part]) -> Part:
        """``make()``, remembered under ``name``: for what several metrics derive from the columns alike."""
        if name not in self._memo:
            self._memo[name] = make()
        found: Part = self._memo[name]
        return found

    # --- inside -------------------------------------------------------------------------------------

    def _set(self, scores: NDArray[Any], labels: NDArray[np.int64], kind: str) -> None:
        self._scores, self._kind = scores, kind
        self.labels = labels
        self.labels.flags.writeable = False
        self._rows: NDArray[np.int64] | None = None
        self._source: Predictions | None = None
        self._source_rows: NDArray[np.int64] | None = None
        self._cache: dict[str, NDArray[Any]] = {}
        self._memo: dict[str, Any] = {}

    def _column(self, name: str) -> NDArray[Any]:
        if name not in self._cache:
            if self._source is not None:
                self._keep({name: self._source._column(name)[self._source_rows]})
            else:
                self.sweep(lambda: None, None)
        return self._cache[name]

    def _keep(self, columns: dict[str, NDArray[Any]]) -> None:
        for column in columns.values():
            column.flags.writeable = False
        self._cache.update(columns)

    def _block(self, rows: slice) -> NDArray[Any]:
        return self._scores[rows] if self._rows is None else self._scores[self._rows[rows]]

    def _derive(self, rows: slice, wanted: str | None) -> tuple[dict[str, NDArray[Any]], Floats]:
        """Columns of a block of rows, and its probabilities or their logarithms if ``wanted``."""
        derive = from_logits if self._kind == "logits" else from_probs
        # A copy of the block in float64: the derivation works in place.
        with np.errstate(over="ignore", divide="ignore", under="ignore"):
            return derive(np.array(self._block(rows), dtype=np.float64), self.labels[rows], wanted)

    def _slices(self) -> list[slice]:
        return [rows for part in self.parts() for rows in part]

    def _blocks(self) -> Iterator[Floats]:
        return (np.asarray(self._block(rows), dtype=np.float64) for rows in self._slices())

    def _looks_softmaxed(self) -> bool:
        """True if every row lies in [0, 1] and sums to 1 within rounding, and some row is not one-hot or flat.

        Numbers rounded in a file, or to bfloat16 after the softmax, are probabilities still; logits do not satisfy
        this for row after row by accident.
        """
        telling = False
        for block in self._blocks():
            if block.min() < 0 or block.max() > 1:
                return False
            if np.abs(block.sum(1) - 1).max() > max(_HALF_ROUNDING, rounding_of_sums(block)):
                return False
            inside = ((block > 0) & (block < 1)).any(axis=1) & (block.max(axis=1) > block.min(axis=1))
            telling = telling or bool(inside.any())
        return telling


def _is_estimator(model: Any) -> bool:
    """Whether to ask for ``predict_proba``; a torch module that has one too is asked for logits."""
    torch = sys.modules.get("torch")  # not imported: a module is none without it
    if torch is not None and isinstance(model, torch.nn.Module):
        return False
    if isinstance(model, type) and hasattr(model, "predict_proba"):
        raise BadInput(f"model must be a fitted {model.__name__}, not the class; write {model.__name__}(...).fit(X, y)")
    if not isinstance(model, type) and callable(getattr(model, "predict_proba", None)):
        return True
    if not isinstance(model, type) and hasattr(model, "predict") and hasattr(model, "fit"):
        raise BadInput(
            f"model must have predict_proba; {type(model).__name__} has none. Make it with probabilities "
            "(SVC(probability=True), SGDClassifier(loss='log_loss')), or wrap it in scikit-learn's "
            "CalibratedClassifierCV; for scores of its own use Predictions(logits, labels)"
        )
    return False


def _probs_of(estimator: Any, inputs: Any, labels: Any) -> tuple[NDArray[Any], Any]:
    """Probabilities (n, k) of a fitted estimator, and labels as the numbers of its columns."""
    name = type(estimator).__name__
    probs = estimator.predict_proba(inputs)
    if isinstance(probs, list):
        raise BadInput(f"model must have one target; {name} predicts {len(probs)}: take them one by one")
    scores = as_scores("predict_proba", probs)
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return scores, labels  # whole numbers already, or the door says so
    if len(classes) != scores.shape[1]:
        raise BadInput(f"{name} has {len(classes)} classes_ and {scores.shape[1]} columns of predict_proba")
    given = np.asarray(labels)
    if given.shape != scores.shape[:1]:
        raise BadInput(f"labels must have shape ({len(scores)},), one per row of inputs; got shape {given.shape}")
    column = {label: index for index, label in enumerate(np.asarray(classes).tolist())}
    found = [column.get(label, -1) for label in given.tolist()]
    if -1 in found:
        row = found.index(-1)
        raise BadInput(
            f"labels must be among the {len(classes)} classes that {name} was fitted on; row {row} has "
            f"{given.tolist()[row]!r} ({found.count(-1)} such rows), classes_ begin with {list(column)[:5]}"
        )
    return scores, np.array(found)


def check_predictions(name: str, value: Any) -> Predictions:
    """``value``, if it is a `Predictions`; else a clear error that names the doors."""
    if isinstance(value, Predictions):
        return value
    raise BadInput(
        f"{name} must be Predictions; got {type(value).__name__}. Make them with Predictions(logits, labels), "
        "Predictions.from_probs(probs, labels) or Predictions.load(file)"
    )


def takes_predictions(function: Function) -> Function:
    """``function``, whose first argument ``p`` is checked to be `Predictions`."""

    @wraps(function)
    def checked(p: Predictions, *args: Any, **options: Any) -> Any:
        return function(check_predictions("p", p), *args, **options)

    return cast("Function", checked)
