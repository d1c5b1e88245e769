"""`Predictions`: logits and labels of n examples, validated once; confidence is derived in log space.

Shapes: n examples, k classes; ``logits (n, k)``, ``labels (n,)``. The scores keep their dtype (float16 to float64) and
their memory, a memory map too; they are never copied as one array. Every derived number is float64: a block of rows is
cast to float64 first, then computed with.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from surefoot.deprecated import renamed_property
from surefoot.errors import BadInput
from surefoot.predictions.columns import columns_from_logits, columns_from_probs, empty_columns
from surefoot.predictions.tables import read_table, write_table
from surefoot.threads import run_ranges, split_range
from surefoot.validation import as_labels, as_path, as_scores, explain_bad_logits, precision, rounding_of_sums

__all__ = ["Predictions", "check_predictions", "takes_predictions"]

Floats = NDArray[np.float64]
Part = TypeVar("Part")
Function = TypeVar("Function", bound=Callable[..., Any])

# Numbers in a block of rows: few enough to stay in a core's cache during several operations, many enough that threads
# seldom wait for the interpreter's lock.
_BLOCK_NUMBERS = 1 << 19
# The number of contiguous parts of the rows is fixed, not the number of cores: sums that are merged in the order of the
# parts then do not depend on the machine.
_PARTS = 8
# Sums of probabilities may be off by the rounding of half precision or of a file's decimals, not more.
_SUM_TOLERANCE = 1e-3
# bfloat16 rounds a probability by at most 2^-9 of itself, and so the sum of a row; twice that is allowed.
_HALF_ROUNDING = 2.0**-8


class Predictions:
    """Logits of a classifier for n examples, and the true labels.

    The predicted class is the class with the largest logit; among equal logits, the class with the lowest index.

    Args:
        logits: (n, k) real numbers, n >= 1 and k >= 2: a tensor, an array or nested lists. A row may contain −inf, but
            also needs a finite value; NaN and +inf are refused. The numbers are kept, not copied: do not modify them.
        labels: (n,) integers in 0..k−1.

    Attributes:
        labels: (n,) labels as a read-only int64 array.

    Raises:
        BadInput: when the logits or labels are not as described, or when the logits look like probabilities.

    Example:
        >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        >>> p.confidence.round(4).tolist(), p.correct.tolist(), p.true_margin.tolist()
        ([0.8808, 0.7311], [True, False], [2.0, -1.0])
    """

    def __init__(self, logits: Any, labels: Any) -> None:
        scores = as_scores("logits", logits)
        self._set(scores, as_labels(labels, scores.shape), "logits")
        if scores.dtype.kind in "iu" and max(-int(scores.min()), int(scores.max())) > 2**53:
            raise BadInput("logits given as integers must be at most 2**53 in size; give floating-point numbers")
        tops = np.concatenate([self._block(rows).max(axis=1) for rows in self._slices()]).astype(np.float64)
        if not np.isfinite(tops).all():
            raise BadInput(explain_bad_logits(tops))
        if self._looks_softmaxed():
            raise BadInput(
                "logits must be unnormalised scores; every row lies in [0, 1] and sums to 1, so these are "
                "probabilities: use Predictions.from_probs, or Predictions.load(file, kind='probs'). "
                "If they truly are logits, add 1 to all of them: nothing else changes"
            )

    @classmethod
    def from_probs(cls, probs: Any, labels: Any) -> Predictions:
        """Make predictions from probabilities.

        A row whose sum is 1 up to float64 rounding is kept bit-exactly; any other row is divided by its sum.

        Args:
            probs: (n, k) probabilities, k >= 2, none below 0. A row's sum may differ from 1 by 1e-3, or by more where
                rounding explains it: 0.005 for ten classes with three decimals.
            labels: (n,) integers in 0..k−1.

        Returns:
            The predictions; their `logits` are the logarithms of the probabilities.

        Raises:
            BadInput: when an entry is below 0, a row does not sum to 1 within rounding, or the labels do not fit.

        Example:
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
    def of(cls, model: Any, inputs: Any, labels: Any = None, batch_size: int = 1024) -> Predictions:
        """Compute the predictions of a torch module or of a scikit-learn classifier.

        A module runs in eval mode; its mode, gradients and the random state are left as they were.

        Args:
            model: a torch module that returns logits (b, k), or any fitted object with ``predict_proba``.
            inputs: (n, ...) inputs; a classifier with ``predict_proba`` receives all inputs at once. Without ``labels``
                given, a data set: whatever `surefoot.data.as_dataset` takes, such as a pair (inputs, labels) or a
                ``DataLoader``, which a module reads batch by batch.
            labels: (n,) integers in 0..k−1 for a module. For a classifier, its own labels: numbers or names among
                ``classes_``, whose order is the order of the columns.
            batch_size: rows in one forward pass of a module, at least 1.

        Returns:
            The predictions: from logits for a module, from probabilities for a classifier.

        Raises:
            BadInput: when the model has neither form, or inputs, outputs and labels do not fit together.

        Example:
            >>> import torch
            >>> Predictions.of(torch.nn.Identity(), torch.tensor([[2.0, 0.0]]), [0]).true_margin.tolist()
            [2.0]
        """
        if _is_estimator(model):
            if labels is None:
                raise BadInput(f"{type(model).__name__} needs labels: write Predictions.of(model, inputs, labels)")
            return cls.from_probs(*_probs_of(model, inputs, labels))
        from surefoot.forward import logits_of

        if labels is None:
            from surefoot.dataset import as_dataset

            data = as_dataset("inputs", inputs)
            return cls(logits_of(model, data, batch_size), data.labels)

        # The check comes before the forward pass, which may take long.
        if hasattr(inputs, "__len__") and hasattr(labels, "__len__") and len(inputs) != len(labels):
            raise BadInput(f"labels must be one per input; got {len(labels)} for {len(inputs)} inputs")
        return cls(logits_of(model, inputs, batch_size), labels)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, split: str | None = None, kind: str | None = None) -> Predictions:
        """Read predictions from an ``.npz``, ``.csv`` or ``.parquet`` file.

        Args:
            path: an ``.npz`` file with the arrays ``logits`` or ``probs``, and ``labels``; or a table with the column
                ``label``, then one column per class.
            split: which set of an ``.npz`` file with several sets: ``"val"`` reads ``val_logits`` and ``val_labels``.
            kind: ``"logits"`` or ``"probs"``, where the file does not tell. A table does not tell if its class columns
                start with neither ``logit`` nor ``prob``; without ``kind`` such columns are logits.

        Returns:
            The predictions in the file.

        Raises:
            BadInput: when the file is missing, damaged or of another form, or contradicts ``kind``.
            MissingDependency: when a ``.parquet`` file is read without pyarrow.
        """
        if kind not in (None, "logits", "probs"):
            raise BadInput(f"kind must be 'logits' or 'probs'; got {kind!r}")
        scores, labels, stated = read_table(as_path(path), split)
        if kind is not None and stated is not None and kind != stated:
            raise BadInput(f"{str(path)!r} says that it holds {stated}; it cannot be read as {kind}")
        make = cls.from_probs if (kind or stated) == "probs" else cls
        return make(scores, labels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.npz``, ``.csv`` or ``.parquet`` file; a failed write leaves no partial file.

        Args:
            path: the file; its suffix chooses the format.

        Raises:
            BadInput: when the suffix is another one.
            MissingDependency: when a ``.parquet`` file is written without pyarrow.
            StorageFault: when the file system refuses the write.
        """
        # Probabilities are written as normalised: a file whose rows were divided by their sums can be read back.
        scores = self._block(slice(None)) if self._kind == "logits" else self.probs
        write_table(as_path(path), scores, self.labels, self._kind)

    def take(self, rows: Any) -> Predictions:
        """Select rows; the selection shares the scores and derived columns of its source.

        Args:
            rows: indices, a slice or a boolean mask (n,); indices may repeat and choose the order.

        Returns:
            The predictions of the chosen rows, at least one.

        Raises:
            BadInput: when ``rows`` is out of range, of another form or empty.

        Example:
            >>> Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0]).take([1, 1]).correct.tolist()
            [False, False]
        """
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

    # --- full matrices, computed on request ---------------------------------------------------------

    @property
    def logits(self) -> NDArray[Any]:
        """(n, k) logits as given; log-probabilities where probabilities were given."""
        return self.log_probs if self._kind == "probs" else self._block(slice(None))

    @property
    def log_probs(self) -> Floats:
        """(n, k) log-softmax in float64; accurate also where a probability rounds to 1."""
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
        """(n,) logit of the label minus the largest other logit (Morosini et al. 2026, Section 4)."""
        return self._column("true_margin")

    @property
    def predicted_margin(self) -> Floats:
        """(n,) largest logit minus the second largest; never negative."""
        return self._column("predicted_margin")

    @property
    def squared_error(self) -> Floats:
        """(n,) Σ_k (p_k − 1{k = label})², in [0, 2]: the Brier score of one example."""
        return self._column("squared_error")

    def sweep(
        self,
        start: Callable[[], Part],
        visit: Callable[[Part, slice, Floats], None] | None,
    ) -> list[Part]:
        """Visit the probabilities of all rows block by block, in threads.

        The rows are split into eight contiguous parts, whatever the number of cores. Columns that are not derived yet
        are derived in the same pass: a metric over all classes then costs no second pass.

        Args:
            start: makes the accumulator of one part.
            visit: called as ``visit(accumulator, rows, probs)`` with the probabilities (b, k) of a block of rows; may
                overwrite them. None only derives the columns.

        Returns:
            The eight accumulators in the order of the parts: their merged sum does not depend on the number of cores.
        """
        fill = not self._cache and self._source is None
        columns = empty_columns(len(self)) if fill else {}

        def run(part: list[slice]) -> Part:
            accumulator = start()
            for rows in part:
                derived, probs = self._derive(rows, "probs" if visit else None)
                for name, column in columns.items():
                    column[rows] = derived[name]
                if visit:
                    visit(accumulator, rows, probs)
            return accumulator

        parts = run_ranges(run, self.parts(), len(self) * self.classes >= 2 * _BLOCK_NUMBERS)
        if fill:
            self._keep(columns)
        return parts

    def parts(self) -> list[list[slice]]:
        """Split the rows into eight contiguous parts, and the parts into blocks that fit into a core's cache.

        Returns:
            For each part, the slices of its blocks.
        """
        step = max(1, _BLOCK_NUMBERS // self.classes)
        ranges = split_range(len(self), _PARTS)
        return [[slice(at, min(at + step, end)) for at in range(begin, end, step)] for begin, end in ranges]

    def logit_block(self, rows: slice, out: NDArray[Any]) -> NDArray[Any]:
        """Copy the logits of a block of rows, or the logarithms of its probabilities, into given memory.

        Reusing memory pays: fresh memory for every block would cost more than the arithmetic.

        Args:
            rows: the block.
            out: (m, k) memory with m >= b; its dtype is the dtype of the result.

        Returns:
            (b, k) view of the first rows of ``out``.
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
        """(n,) whether the label has a probability above 0; reads one score of each row."""
        index = np.arange(len(self)) if self._rows is None else self._rows
        impossible = -np.inf if self._kind == "logits" else 0.0
        possible: NDArray[np.bool_] = np.asarray(self._scores[index, self.labels]) != impossible
        return possible

    @property
    def low_precision(self) -> bool:
        """Whether logits were given in less than double precision."""
        return self._scores.dtype.itemsize < 8 and self._scores.dtype.kind == "f" and self._kind == "logits"

    def memo(self, name: str, make: Callable[[], Part]) -> Part:
        """Compute a value once and keep it, for values that several metrics derive from the columns.

        Args:
            name: key of the value.
            make: computes the value; called only if the key is new.

        Returns:
            The value under ``name``.
        """
        if name not in self._memo:
            self._memo[name] = make()
        value: Part = self._memo[name]
        return value

    # --- internal -----------------------------------------------------------------------------------

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
        """Derive the columns of a block of rows, and its probabilities or their logarithms if ``wanted``."""
        derive = columns_from_logits if self._kind == "logits" else columns_from_probs
        # The block is copied to float64, because the derivation works in place.
        with np.errstate(over="ignore", divide="ignore", under="ignore"):
            return derive(np.array(self._block(rows), dtype=np.float64), self.labels[rows], wanted)

    def _slices(self) -> list[slice]:
        return [rows for part in self.parts() for rows in part]

    def _blocks(self) -> Iterator[Floats]:
        return (np.asarray(self._block(rows), dtype=np.float64) for rows in self._slices())

    def _looks_softmaxed(self) -> bool:
        """True if every row lies in [0, 1] and sums to 1 within rounding, and some row is not one-hot or flat.

        Numbers rounded in a file, or to bfloat16 after the softmax, still count as probabilities. Logits do not
        satisfy the condition in every row by accident.
        """
        informative = False
        for block in self._blocks():
            if block.min() < 0 or block.max() > 1:
                return False
            if np.abs(block.sum(1) - 1).max() > max(_HALF_ROUNDING, rounding_of_sums(block)):
                return False
            inside = ((block > 0) & (block < 1)).any(axis=1) & (block.max(axis=1) > block.min(axis=1))
            informative = informative or bool(inside.any())
        return informative


def _is_estimator(model: Any) -> bool:
    """Whether to call ``predict_proba``; a torch module with ``predict_proba`` is called for logits instead."""
    torch = sys.modules.get("torch")  # if torch is not imported, the model cannot be a torch module
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
        return scores, labels  # the constructor checks that the labels are integers
    if len(classes) != scores.shape[1]:
        raise BadInput(f"{name} has {len(classes)} classes_ and {scores.shape[1]} columns of predict_proba")
    given = np.asarray(labels)
    if given.shape != scores.shape[:1]:
        raise BadInput(f"labels must have shape ({len(scores)},), one per row of inputs; got shape {given.shape}")
    column = {label: index for index, label in enumerate(np.asarray(classes).tolist())}
    numbers = [column.get(label, -1) for label in given.tolist()]
    if -1 in numbers:
        row = numbers.index(-1)
        raise BadInput(
            f"labels must be among the {len(classes)} classes that {name} was fitted on; row {row} has "
            f"{given.tolist()[row]!r} ({numbers.count(-1)} such rows), classes_ begin with {list(column)[:5]}"
        )
    return scores, np.array(numbers)


def check_predictions(name: str, value: Any) -> Predictions:
    """Check that an argument is a `Predictions`.

    Args:
        name: name of the argument, for the error.
        value: what the user gave.

    Returns:
        ``value`` itself.

    Raises:
        BadInput: when ``value`` is anything else; the error names the constructors.
    """
    if isinstance(value, Predictions):
        return value
    raise BadInput(
        f"{name} must be Predictions; got {type(value).__name__}. Make them with Predictions(logits, labels), "
        "Predictions.from_probs(probs, labels) or Predictions.load(file)"
    )


def takes_predictions(function: Function) -> Function:
    """Decorate a function, so that its first argument ``p`` is checked to be `Predictions`.

    Args:
        function: a function whose first parameter is ``p``.

    Returns:
        The function with the check, under the same name and docstring.
    """

    @wraps(function)
    def checked(p: Predictions, *args: Any, **options: Any) -> Any:
        return function(check_predictions("p", p), *args, **options)

    return cast("Function", checked)
