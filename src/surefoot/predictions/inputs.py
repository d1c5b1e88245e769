"""What users give as scores and labels of predictions, checked and brought to one form.

Shapes: n examples, k classes. Scores are (n, k), (n,) for one score of the positive class, or (n, …, k) where every
example has many positions, such as tokens or pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.predictions.events import check_weights, cluster_codes
from surefoot.validation import as_array, check_real

__all__ = ["Rows", "read_rows"]

_SOFT_TOLERANCE = 1e-3  # of the sum of soft labels: the rounding of half precision


@dataclass
class Rows:
    """Scores, labels and what else is known of n rows.

    Attributes:
        scores: (m, k) scores as given, or (m, 1) for one score of the positive class.
        labels: (n,) int64 classes; the most probable class where labels are soft.
        kept: (n,) row of ``scores`` of each row; None if all rows are kept in their order.
        soft: (n, k) float64 soft labels, or None.
        weights: (n,) float64 weights, or None.
        clusters: (n,) int64 clusters, or None.
        groups: (n,) columns by name.
        names: names of the classes, or None.
        positive: class of the positive event; None where no class is that.
    """

    scores: NDArray[Any]
    labels: NDArray[np.int64]
    kept: NDArray[np.int64] | None = None
    soft: NDArray[np.float64] | None = None
    weights: NDArray[np.float64] | None = None
    clusters: NDArray[np.int64] | None = None
    groups: dict[str, NDArray[Any]] = field(default_factory=dict)
    names: tuple[str, ...] | None = None
    positive: int | None = None


def read_rows(
    name: str,
    scores: Any,
    labels: Any,
    *,
    weights: Any = None,
    clusters: Any = None,
    groups: Mapping[str, Any] | None = None,
    names: Sequence[Any] | None = None,
    ignore_index: int | None = None,
    positive: Any = None,
) -> Rows:
    """Check scores, labels and columns, and bring them to one row per prediction.

    Args:
        name: name of the scores, for errors: ``"logits"`` or ``"probs"``.
        scores: (n, k), (n,) or (n, …, k) real numbers.
        labels: the labels, in the shape of the scores without the classes; or soft labels in the shape of the scores.
        weights: one weight for each example or for each position; None for none.
        clusters: one cluster for each example or for each position. None makes each example with several positions a
            cluster.
        groups: columns by name, one value for each example or for each position.
        names: names of the k classes in the order of the columns.
        ignore_index: label of positions that are left out.
        positive: label of the positive class, for two classes.

    Returns:
        The rows.

    Raises:
        BadInput: when an argument is not as described.
    """
    array = check_real(name, as_array(name, scores))
    given = as_array("labels", labels)
    lead, k = _shape(name, array, given)
    n = int(np.prod(lead))
    flat = array.reshape(n, k)
    flat.flags.writeable = False
    classes = max(k, 2)
    known = None if names is None else _names(names, classes)
    soft = _soft_labels(given, (*lead, k)) if k > 1 else None
    kept: NDArray[np.bool_] | None = None
    if soft is not None:
        if ignore_index is not None:
            raise BadInput("ignore_index marks integer labels; soft labels have none. Leave those rows out")
        hard, index = soft.argmax(axis=1), _positive_class(positive, classes, known)
    else:
        if given.shape != lead:
            raise BadInput(_explain_shape(given, lead, k))
        hard, kept, known, index = _hard_labels(name, given.reshape(n), k, known, ignore_index, positive)
    weight = None if weights is None else check_weights(_spread("weights", weights, lead), n)
    if weight is not None and (weight == 0).any():
        kept = weight > 0 if kept is None else kept & (weight > 0)
    cluster = _spread("clusters", clusters, lead) if clusters is not None else None
    if cluster is None and len(lead) > 1:
        cluster = np.repeat(np.arange(lead[0]), n // lead[0])
    columns = {} if groups is None else {key: _spread(f"groups[{key!r}]", v, lead) for key, v in groups.items()}
    rows = Rows(flat, hard.astype(np.int64), None, soft, weight, None, columns, known, index)
    if kept is not None and not kept.all():
        rows = _select(rows, np.flatnonzero(kept))
        cluster = None if cluster is None else cluster[kept]
    if cluster is not None:
        rows.clusters = cluster_codes(cluster, len(rows.labels))
    return rows


def _select(rows: Rows, kept: NDArray[np.int64]) -> Rows:
    if len(kept) == 0:
        raise BadInput("labels must have at least one row that is neither ignored nor of weight 0; all rows are so")
    return Rows(
        rows.scores,
        rows.labels[kept],
        kept,
        None if rows.soft is None else rows.soft[kept],
        None if rows.weights is None else rows.weights[kept],
        None,
        {key: column[kept] for key, column in rows.groups.items()},
        rows.names,
        rows.positive,
    )


def _shape(name: str, array: NDArray[Any], labels: NDArray[Any]) -> tuple[tuple[int, ...], int]:
    """The shape of the labels that belong to the scores, and the number of columns of the scores."""
    if array.ndim == 0:
        raise BadInput(f"{name} must have shape (n, k), one row per example; got a single number")
    if array.ndim == 1 and labels.ndim > 1:
        hint = "; were logits and labels swapped?" if array.dtype.kind in "iu" else ""
        raise BadInput(f"{name} must have shape (n, k), one row per example; got shape {array.shape}{hint}")
    if len(array) == 0:
        raise BadInput(f"{name} must have at least one row; got shape {array.shape}")
    if array.ndim == 1:
        return array.shape, 1
    if array.shape[-1] < 2 and array.ndim == 2:
        raise BadInput(
            f"{name} must have a column per class, two at least; got shape {array.shape}. One score of the positive "
            f"class a row is given as {name}[:, 0], of shape (n,)"
        )
    if array.size == 0:
        raise BadInput(f"{name} must have at least one position and one class; got shape {array.shape}")
    if array.ndim > 2 and labels.shape == array.shape[:1]:
        raise BadInput(
            f"{name} must have shape (n, k) for one label per row; got shape {array.shape}, for which labels have "
            f"shape {array.shape[:-1]}, one per position"
        )
    moved = (array.shape[0], *array.shape[2:])
    if array.ndim > 2 and labels.shape == moved and labels.shape != array.shape[:-1]:
        raise BadInput(
            f"{name} must have the classes in the last dimension; got shape {array.shape} for labels of shape "
            f"{labels.shape}. Write {name}.movedim(1, -1), or np.moveaxis({name}, 1, -1)"
        )
    return array.shape[:-1], array.shape[-1]


def _explain_shape(labels: NDArray[Any], lead: tuple[int, ...], k: int) -> str:
    hints = {(*lead, 1): "; use labels.ravel()"}
    if k > 1:
        hints[*lead, k] = "; for one-hot labels use labels.argmax(-1), for several labels a row Predictions.multilabel"
    shape = f"({lead[0]},)" if len(lead) == 1 else str(lead)
    per = "one per row" if len(lead) == 1 else "one per position"
    return f"labels must have shape {shape}, {per}; got shape {labels.shape}{hints.get(labels.shape, '')}"


def _names(names: Sequence[Any], classes: int) -> tuple[str, ...]:
    known = tuple(str(name) for name in (names.tolist() if isinstance(names, np.ndarray) else names))
    if isinstance(names, str) or len(known) != classes:
        raise BadInput(f"names must be the names of the {classes} classes in order; got {len(known)}: {names!r}")
    if len(set(known)) < len(known):
        raise BadInput(f"names must be distinct; {next(name for name in known if known.count(name) > 1)!r} is repeated")
    return known


def _soft_labels(labels: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    """(n, k) soft labels; None if the labels are none."""
    if labels.shape != shape or labels.dtype.kind != "f":
        return None
    soft = labels.reshape(-1, shape[-1]).astype(np.float64)
    sums = soft.sum(axis=1)
    wrong = ~((soft.min(axis=1) >= 0) & (np.abs(sums - 1) <= _SOFT_TOLERANCE))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadInput(
            f"soft labels must be non-negative with rows that sum to 1; row {row} sums to {sums[row]:.6g}, its "
            f"smallest entry is {soft[row].min():.6g}. For several labels a row use Predictions.multilabel"
        )
    exact = np.abs(sums - 1) <= shape[-1] * np.finfo(np.float64).eps
    normalised: NDArray[np.float64] = np.where(exact[:, None], soft, soft / sums[:, None])
    return normalised


def _hard_labels(
    name: str, labels: NDArray[Any], k: int, names: tuple[str, ...] | None, ignore_index: int | None, positive: Any
) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None, tuple[str, ...] | None, int | None]:
    """Labels as integers, which of them are kept, the names of the classes, and the positive class."""
    classes = max(k, 2)
    labels = _as_names(labels, names)
    if labels.dtype.kind in "SUOT" and not _numeric(labels):
        texts = np.array([str(label) for label in labels.tolist()])
        if names is None:
            if k > 1:
                raise BadInput(
                    f"labels must be integers, or names of classes; got names such as {texts[0]!r}: give names=[...], "
                    "the names of the classes in the order of the columns"
                )
            names = _binary_names(np.unique(texts).tolist(), positive)
        column = {name: index for index, name in enumerate(names)}
        hard = np.array([column.get(text, -1) for text in texts.tolist()], np.int64)
        kept = None
        if ignore_index is not None:
            kept = texts != str(ignore_index)
            hard = np.where(kept, hard, 0)
        if (hard < 0).any():
            row = int(np.flatnonzero(hard < 0)[0])
            raise BadInput(
                f"labels must be among the names {', '.join(names[:8])}; row {row} has {str(texts[row])!r} "
                f"({(hard < 0).sum()} such rows)"
            )
        return hard, kept, names, _positive_class(positive, classes, names)
    if labels.dtype.kind == "O":
        labels = np.array(labels.tolist())
    if labels.dtype == np.bool_:
        if classes > 2:
            raise BadInput(f"labels must be integers in 0..{k - 1}; got booleans for {k} classes")
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iu":
        raise BadInput(_explain_dtype(labels))
    hard = labels.astype(np.int64)
    kept = None if ignore_index is None else hard != ignore_index
    if k == 1 and positive is not None and names is None and not isinstance(positive, str):
        values = np.unique(hard if kept is None else hard[kept])
        names = _binary_names([str(value) for value in values.tolist()], str(int(positive)))
        return (hard == int(positive)).astype(np.int64), kept, None if names == ("0", "1") else names, 1
    bad = (hard < 0) | (hard >= classes)
    if kept is not None:
        bad &= kept
        hard = np.where(kept, hard, 0)
    if bad.any():
        raise BadInput(_explain_range(name, hard, bad, k))
    return hard, kept, names, _positive_class(positive, classes, names)


def _as_names(labels: NDArray[Any], names: tuple[str, ...] | None) -> NDArray[Any]:
    """Labels 1 and 2 beside classes named 1 and 2 are names, not the numbers of columns; so are True and False."""
    if names is None:
        return labels
    if labels.dtype == np.bool_:
        words = {name.lower(): name for name in names}
        if {"true", "false"} <= set(words):
            return np.where(labels, words["true"], words["false"])
    numbers = all(name.lstrip("-").isdecimal() for name in names)
    if labels.dtype.kind in "iu" and numbers and list(names) != [str(index) for index in range(len(names))]:
        return labels.astype(str)
    return labels


def _numeric(labels: NDArray[Any]) -> bool:
    return labels.dtype.kind == "O" and all(isinstance(label, int | np.integer | np.bool_) for label in labels.tolist())


def _binary_names(values: list[str], positive: Any) -> tuple[str, ...]:
    """The names of the negative and the positive class of binary labels."""
    if positive is None:
        shown = " or ".join(f"positive={value!r}" for value in values[:2])
        raise BadInput(f"labels are names; say which one is the positive event: {shown}")
    others = [value for value in values if value != str(positive)]
    if len(others) > 1 or (len(others) == len(values) and len(values) > 1):
        shown = ", ".join(map(repr, values[:5]))
        raise BadInput(f"labels must have two values, {str(positive)!r} and another; got {shown}")
    return (others[0] if others else f"not {positive}"), str(positive)


def _positive_class(positive: Any, classes: int, names: tuple[str, ...] | None) -> int | None:
    """The class of the positive event: the last of two classes, unless told."""
    if positive is None:
        return 1 if classes == 2 else None
    if names is not None and str(positive) in names:
        return names.index(str(positive))
    if isinstance(positive, int | np.integer) and 0 <= positive < classes:
        return int(positive)
    choices = f"one of the names {', '.join(names)}" if names is not None else f"a class in 0..{classes - 1}"
    raise BadInput(f"positive must be {choices}; got {positive!r}")


def _explain_dtype(labels: NDArray[Any]) -> str:
    if labels.dtype.kind == "f":
        if np.isnan(labels).any():
            row = int(np.flatnonzero(np.isnan(labels))[0])
            return f"labels must be integers; row {row} is missing (NaN). Drop rows without a label"
        if (labels == np.floor(labels)).all():
            return f"labels must be integers; got dtype {labels.dtype}; convert with .astype(int)"
        return (
            f"labels must be integers; got numbers such as {float(labels[labels != np.floor(labels)][0]):.6g}. Were "
            "scores and labels swapped? Soft labels have the shape (n, k) of the scores"
        )
    return f"labels must be integers or names of classes; got dtype {labels.dtype}"


def _explain_range(name: str, labels: NDArray[np.int64], bad: NDArray[np.bool_], k: int) -> str:
    row, classes = int(np.flatnonzero(bad)[0]), max(k, 2)
    if labels.min() == 1 and labels.max() == classes:
        return (
            f"labels must lie in 0..{classes - 1} for {classes} classes; these lie in 1..{classes}: subtract 1, "
            "so that label j means column j of the scores"
        )
    if k == 1:
        return (
            f"{name} must have shape (n, k) for k classes; one score a row goes with two labels, 0 and 1, and row "
            f"{row} has {int(labels[row])} ({int(bad.sum())} such rows). For two other labels say which one is the "
            "positive event with positive=..."
        )
    hint = "Drop rows without a label, or name their label with ignore_index; none is ignored silently"
    return (
        f"labels must lie in 0..{classes - 1} for {classes} classes; row {row} has {int(labels[row])} "
        f"({int(bad.sum())} such rows). {hint}"
    )


def _spread(name: str, value: Any, lead: tuple[int, ...]) -> NDArray[Any]:
    """(n,) column of values that were given for each example or for each position."""
    array = as_array(name, value)
    if array.shape == lead:
        return array.reshape(-1)
    if array.shape == lead[:1]:
        return np.repeat(array, int(np.prod(lead[1:])))
    shapes = f"({lead[0]},)" if len(lead) == 1 else f"({lead[0]},) or {lead}"
    raise BadInput(f"{name} must have shape {shapes}, one per row; got shape {array.shape}")
