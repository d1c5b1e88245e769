"""Which column of a table means what: labels, scores of the classes, weights, clusters, and columns that are kept.

A column that could be two things is asked about and never guessed. Scores are recognised by their names: ``logit_cat``,
``prob_cat``; a single ``prob`` is the probability of the positive event.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.files import replace_file
from surefoot.predictions import frames
from surefoot.predictions.archives import read_archive
from surefoot.validation import as_path

__all__ = ["Columns", "Table", "columns_of", "read_batches", "read_source", "table_of_archive", "write_table"]

_PREFIX = {"logits": "logit", "probs": "prob"}


@dataclass(frozen=True)
class Columns:
    """Names of columns, as the user states them; None where the header tells.

    Attributes:
        label: column of the labels, or prefix of several columns of labels.
        prob: column of the probability of the positive event, or prefix of the columns of all classes.
        logit: the same for logits.
        confidence: column of the confidence in the prediction.
        correct: column that says whether the prediction was right.
        weight: column of the weights.
        cluster: column of the clusters.
        time: column of times, kept under the name ``time``.
        id: column of identifiers, kept under the name ``id``.
        by: columns of groups that must be there.
        kind: ``"logits"`` or ``"probs"``: all columns that are nothing else are scores of this kind.
    """

    label: str | None = None
    prob: str | None = None
    logit: str | None = None
    confidence: str | None = None
    correct: str | None = None
    weight: str | None = None
    cluster: str | None = None
    time: str | None = None
    id: str | None = None
    by: Sequence[str] = ()
    kind: str | None = None


@dataclass
class Table:
    """Columns of predictions, before their numbers are checked.

    Attributes:
        kind: ``"logits"``, ``"probs"``, ``"confidence"`` or ``"multilabel"``.
        scores: (n, k) or (n,) scores.
        labels: (n,) labels as given, or (n, L).
        names: names of the classes or labels, or None.
        weights: (n,) weights, or None.
        clusters: (n,) clusters, or None.
        groups: columns that are kept, by name.
        positive: label of the positive event, or None.
    """

    kind: str
    scores: NDArray[Any]
    labels: NDArray[Any]
    names: list[str] | None = None
    weights: NDArray[Any] | None = None
    clusters: NDArray[Any] | None = None
    groups: dict[str, NDArray[Any]] = field(default_factory=dict)
    positive: str | int | None = None


def read_source(
    source: Any, wanted: Columns, split: str | None = None
) -> tuple[Table, Callable[[], AbstractContextManager[None]]]:
    """Read the columns of predictions from any source.

    Args:
        source: a path, a pattern, ``"-"``, or a data frame.
        wanted: what the user says of the columns.
        split: prefix of the arrays in an ``.npz`` file.

    Returns:
        The table, and a context in which errors about a row name the line of a text file.

    Raises:
        BadInput: when the source cannot be read, or its columns have no clear meaning.
    """
    if frames.is_frame(source):
        if split is not None:
            raise BadInput(f"split={split!r} picks arrays inside an .npz file; a data frame has one set of predictions")
        return columns_of(frames.table_of_frame(source), wanted, "the table"), nullcontext
    path = as_path(source, "source")
    if path.suffix.lower() == ".npz" and frames.parts_of(str(path)) == [path]:
        try:
            table = table_of_archive(path, split)
        except (OSError, MemoryError) as error:
            raise BadInput(frames.explain(error, repr(str(path)))) from error
        if wanted.kind is not None and table.kind in _PREFIX and wanted.kind != table.kind:
            raise BadInput(f"{str(path)!r} says that it holds {table.kind}; it cannot be read as {wanted.kind}")
        return table, nullcontext
    if split is not None:
        raise BadInput(
            f"split={split!r} picks arrays inside an .npz file; {path.name!r} has one set of predictions only"
        )
    frame, where, lines = frames.read_frame(str(source) if isinstance(source, str) else str(path))
    in_file = partial(_naming_lines, path) if lines and str(source) != "-" else nullcontext
    with in_file():
        return columns_of(frame, wanted, where), in_file


def read_batches(source: Any, wanted: Columns, rows: int) -> Iterator[Table]:
    """Read the columns of predictions batch by batch.

    Args:
        source: as for `read_source`, except standard input.
        wanted: what the user says of the columns.
        rows: rows of a batch.

    Yields:
        The tables of the batches.

    Raises:
        BadInput: as `read_source`.
    """
    if frames.is_frame(source):
        table = frames.table_of_frame(source)
        for begin in range(0, table.num_rows, rows):
            yield columns_of(table.slice(begin, rows), wanted, "the table")
        return
    first: tuple[object, ...] | None = None
    for path in frames.parts_of(str(source)):
        where = repr(str(path))
        archive = path.suffix.lower() == ".npz"
        batches = [path] if archive else frames.read_in_batches(path, rows)
        for batch in batches:
            table = table_of_archive(path, None) if archive else columns_of(batch, wanted, where)
            form = (table.kind, table.scores.shape[1:], table.names, table.weights is None, table.clusters is None)
            if first is not None and form != first:
                raise BadInput(
                    f"{where} has other scores, classes, weights or clusters than the part before; parts must have the "
                    "same columns in the same order"
                )
            first = form
            yield table


@contextmanager
def _naming_lines(path: Path) -> Iterator[None]:
    """Errors about "row N" name the line of the file, which people see in an editor."""
    try:
        yield
    except BadInput as error:
        with frames.open_text(path) as stream:
            filled = [number for number, line in enumerate(stream, 1) if line.strip()]
        text = re.sub(
            r"\brow (\d+)\b", lambda found: f"line {filled[min(int(found[1]) + 1, len(filled) - 1)]}", str(error)
        )
        raise BadInput(text) from error


def table_of_archive(path: Path, split: str | None) -> Table:
    """Read an ``.npz`` file.

    Args:
        path: the file.
        split: prefix of the arrays, or None.

    Returns:
        The table.

    Raises:
        BadInput: when the file is damaged, or holds other arrays.
    """
    arrays = read_archive(path, split)
    kind = next(name for name in ("logits", "probs", "confidence") if name in arrays)
    for name in (kind, "weights"):
        if name in arrays and arrays[name].dtype.kind == "U":
            raise BadInput(f"array {name!r} in {str(path)!r} must hold plain numbers; got text")
    form = str(arrays["form"]) if "form" in arrays else ""
    labels = arrays["correct" if kind == "confidence" else "labels"]
    names = [str(name) for name in arrays["names"].tolist()] if "names" in arrays else None
    if names is not None and labels.ndim == 1 and labels.dtype.kind in "iu" and form != "multilabel":
        inside = (labels >= 0) & (labels < len(names))
        # Labels of an archive are numbers of columns, also where the names of the classes are numbers.
        labels = np.where(inside, np.array(names)[np.where(inside, labels, 0)], labels.astype(str))
    return Table(
        "multilabel" if form == "multilabel" else kind,
        arrays[kind],
        labels,
        names,
        arrays.get("weights"),
        arrays.get("clusters"),
        {name.removeprefix("group_"): array for name, array in arrays.items() if name.startswith("group_")},
        int(arrays["positive"]) if "positive" in arrays else None,
    )


def columns_of(table: pyarrow.Table, wanted: Columns, where: str) -> Table:
    """Find out what the columns of a table mean.

    Args:
        table: the columns.
        wanted: what the user says of them.
        where: what errors call the table.

    Returns:
        Labels, scores and the other columns.

    Raises:
        BadInput: when a stated column is missing, a column could be two things, or a needed value is missing.
    """
    names = list(table.schema.names)
    stated = {k: getattr(wanted, k) for k in ("confidence", "correct", "weight", "cluster", "time", "id")}
    for argument, name in [*stated.items(), *(("by", name) for name in wanted.by)]:
        if name is not None and name not in names:
            raise BadInput(f"{where} has no column {name!r} for {argument}=...; its columns are {_shown(names)}")
    special = {k: name for k, name in stated.items() if name is not None}
    special |= {
        k: name
        for k, name in (("weight", "sample_weight"), ("cluster", "cluster"))
        if k not in special and name in names
    }
    used = {*special.values(), *wanted.by}
    found = _scores(table, wanted, special, used, where)
    taken = {*found.used, *special.values()}
    kept = [name for name in names if name not in taken]
    groups = {name: _values(table, name) for name in kept}
    groups |= {k: _values(table, special[k]) for k in ("time", "id") if k in special}
    weight, cluster = special.get("weight"), special.get("cluster")
    return Table(
        found.kind,
        found.scores,
        found.labels,
        found.names,
        None if weight is None else _numbers(table, weight, where),
        None if cluster is None else _values(table, cluster, where),
        groups,
        found.positive,
    )


@dataclass
class _Found:
    kind: str
    scores: NDArray[Any]
    labels: NDArray[Any]
    names: list[str] | None
    used: set[str]
    positive: str | int | None = None


def _scores(table: pyarrow.Table, wanted: Columns, special: dict[str, str], used: set[str], where: str) -> _Found:
    names = list(table.schema.names)
    if "confidence" in special or "correct" in special:
        missing = next((k for k in ("confidence", "correct") if k not in special), None)
        if missing is not None and missing in names:
            special[missing] = missing
        elif missing is not None:
            raise BadInput(f"{where}: a confidence goes with a column that says what was right; give {missing}=...")
        return _confidence(table, special, where)
    kind, classes = _class_columns(table, wanted, used, where)
    if not classes and {"confidence", "correct"} <= set(names):
        special |= {"confidence": "confidence", "correct": "correct"}
        return _confidence(table, special, where)
    labels = _label_columns(table, wanted, classes, where)
    if not classes:
        raise BadInput(_ask(where, [name for name in names if name not in {*labels, *used}]))
    stem = re.compile(rf"^({_PREFIX[kind]}s?(?![a-z])|{re.escape(_stem(wanted, kind))})[\W_]*", re.IGNORECASE)
    titles = [stem.sub("", name) for name in classes]
    if len(labels) > 1:
        return _several_labels(table, kind, classes, titles, labels, where)
    label = _labels(table, labels[0], where)
    if len(classes) == 1:
        scores, positive = _one_column(table, classes[0], where), titles[0] or None
        if scores.ndim == 2 and label.ndim == 2:
            return _Found("multilabel", scores, label, None, {*classes, *labels})
        numbers = label.dtype.kind in "biuf"
        if numbers and positive is not None and positive.isdecimal():
            return _Found(kind, scores, label, None, {*classes, *labels}, int(positive))
        return _Found(kind, scores, label, None, {*classes, *labels}, None if numbers else positive)
    if "" in titles:
        raise BadInput(
            f"{where}: column {classes[titles.index('')]!r} names no class, and {_shown(classes)} could all be scores; "
            "say which ones count with prob=... or logit=..., a name or a prefix"
        )
    _check_order(where, classes)
    scores = np.stack([_numbers(table, name, where) for name in classes], axis=1)
    numbered = all(re.fullmatch(r"\D*\d+", title or name) for title, name in zip(titles, classes, strict=True))
    if not numbered and label.dtype.kind in "iu" and any(title.lstrip("-").isdecimal() for title in titles):
        label = label.astype(str)  # beside a class named 1, a label 1 is its name, whatever other rows hold
    return _Found(kind, scores, label, None if numbered else titles, {*classes, *labels})


def _stem(wanted: Columns, kind: str) -> str:
    return (wanted.logit if kind == "logits" else wanted.prob) or _PREFIX[kind]


def _class_columns(table: pyarrow.Table, wanted: Columns, used: set[str], where: str) -> tuple[str, list[str]]:
    """The kind of the scores and their columns, by what the user says and by their names; none if neither tells."""
    names = [name for name in table.schema.names if name not in used and name != (wanted.label or "label")]
    for kind, stem in (("logits", wanted.logit), ("probs", wanted.prob)):
        if stem is None:
            continue
        follows = "" if not stem[-1:].isalpha() else r"(?![a-zA-Z])"  # "l" is no prefix of "length"
        columns = [stem] if stem in names else [name for name in names if re.match(re.escape(stem) + follows, name)]
        if not columns:
            argument = _PREFIX[kind]
            raise BadInput(
                f"{where} has no column that is {stem!r} or begins with it for {argument}=...; its columns are "
                f"{_shown(names)}"
            )
        return kind, columns
    kinds = {
        name: kind for name in names for kind, word in _PREFIX.items() if re.match(rf"{word}s?(?![a-z])", name.lower())
    }
    if len(set(kinds.values())) > 1:
        raise BadInput(
            f"{where}: the class columns must be all logits or all probabilities by their names; say which ones count "
            "with prob=... or logit=..."
        )
    if kinds:
        kind = next(iter(kinds.values()))
        if wanted.kind is not None and wanted.kind != kind:
            raise BadInput(f"{where} says that it holds {kind}; it cannot be read as {wanted.kind}")
        return kind, list(kinds)
    if wanted.kind is not None:
        return wanted.kind, [name for name in names if not re.match(r"labels?(?![a-z])", name.lower())]
    return "probs", []


def _label_columns(table: pyarrow.Table, wanted: Columns, classes: list[str], where: str) -> list[str]:
    """The column of the labels, or the columns where each label has its own."""
    taken = set(classes)
    names = [name for name in table.schema.names if name not in taken]
    stem = wanted.label or "label"
    if stem in names:
        return [stem]
    several = [name for name in names if re.match(rf"{re.escape(stem)}s?(?![a-z])", name)]
    if len(several) == len(classes) > 0 and (len(several) > 1 or wanted.label is not None):
        return several
    if wanted.label is not None:
        raise BadInput(f"{where} has no column {wanted.label!r} for label=...; its columns are {_shown(names)}")
    raise BadInput(f"{where} has no column 'label'; say which one holds the labels with label=...: {_shown(names)}")


def _ask(where: str, unknown: list[str]) -> str:
    columns = _shown(unknown)
    return (
        f"{where}: the names of the columns {columns} do not say what the columns are. If they are the scores of the "
        "classes, say kind='logits' or kind='probs'; if some are, give prob=... or logit=..., a name or a prefix; if "
        "they are a confidence and whether it was right, give confidence=... and correct=..."
        if unknown
        else f"{where} has labels and no scores; give prob=..., logit=... or confidence=..."
    )


def _confidence(table: pyarrow.Table, special: dict[str, str], where: str) -> _Found:
    right = _labels(table, special["correct"], where)
    return _Found("confidence", _numbers(table, special["confidence"], where), right, None, set())


def _several_labels(
    table: pyarrow.Table, kind: str, classes: list[str], titles: list[str], labels: list[str], where: str
) -> _Found:
    if kind == "logits":
        raise BadInput(f"{where}: several labels a row go with probabilities; apply the sigmoid to the logits")
    endings = [name[-len(title) :] if title else "" for name, title in zip(labels, titles, strict=True)]
    if endings != titles:
        raise BadInput(
            f"{where}: the columns of labels and probabilities must be of the same labels in the same order; got "
            f"{_shown(labels)} and {_shown(classes)}"
        )
    present = np.stack([_numbers(table, name, where, missing=True) for name in labels], axis=1)
    scores = np.stack([_numbers(table, name, where, missing=True) for name in classes], axis=1)
    return _Found("multilabel", scores, present, titles, {*classes, *labels})


def _shown(names: Sequence[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:8])
    return f"{listed}, ... ({len(names)} in all)" if len(names) > 8 else listed or "none"


def _check_order(where: str, classes: list[str]) -> None:
    """Check that class columns with one number in their names carry 0, 1, 2, ...: the n-th column *is* class n."""
    numbers = [re.findall(r"\d+(?:\.\d+)?", name) for name in classes]
    if all(len(inside) == 1 for inside in numbers):
        order = [float(inside[0]) for inside in numbers]
        if order != list(range(len(order))):
            raise BadInput(
                f"{where}: numbered class columns must be 0, 1, 2, ... in order, as labels count; "
                f"got {', '.join(classes[:5])}, ...; reorder or rename them (and let labels start at 0)"
            )


def _values(table: pyarrow.Table, name: str, where: str | None = None) -> NDArray[Any]:
    """A column as numpy values; words as strings. With ``where``, missing values are refused."""
    column = table.column(name)
    if where is not None and column.null_count:
        raise BadInput(f"{where}: column {name!r} has missing values; fill or drop those rows")
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
        words = ["" if value is None else value for value in column.to_pylist()]
        if where is not None and "" in words:
            raise BadInput(
                f"{where}, row {words.index('')}: column {name!r} has missing values; fill or drop those rows"
            )
        return np.array(words, dtype=str)
    if pyarrow.types.is_list(column.type) or pyarrow.types.is_fixed_size_list(column.type):
        values = column.to_pylist()
        if len({len(value) for value in values}) > 1:
            raise BadInput(f"column {name!r} must have lists of one length; got several lengths")
        return np.array(values)
    return np.asarray(column.to_numpy())


def _is_number(type_: Any) -> bool:
    return bool(pyarrow.types.is_floating(type_) or pyarrow.types.is_integer(type_))


def _numbers(table: pyarrow.Table, name: str, where: str, missing: bool = False) -> NDArray[Any]:
    """A column of numbers; ``missing`` entries become NaN where that is allowed."""
    column = table.column(name)
    if pyarrow.types.is_null(column.type) and not missing:
        raise BadInput(f"{where}: column {name!r} has missing values; fill or drop those rows")
    if not _is_number(column.type) and not pyarrow.types.is_boolean(column.type):
        words = _values(table, name) if not pyarrow.types.is_null(column.type) else np.array([], dtype=str)
        if missing and words.dtype.kind == "U":  # a .csv file writes a missing number as an empty cell
            wrong = next((row for row, word in enumerate(words.tolist()) if word and not _may_be_number(word)), None)
            if wrong is not None:
                raise BadInput(
                    f"{where}: column {name!r} must hold 1, 0 or nothing; row {wrong} has {words.tolist()[wrong]!r}"
                )
            return np.array([float(word) if word else np.nan for word in words.tolist()])
        wrong = next((row for row, word in enumerate(words.tolist()) if not _may_be_number(word)), 0)
        shown = f"; row {wrong} has {words.tolist()[wrong]!r}" if len(words) else ""
        raise BadInput(f"{where} is not a table of numbers: every entry of column {name!r} must hold numbers{shown}")
    if column.null_count and not missing:
        raise BadInput(f"{where}: column {name!r} has missing values; fill or drop those rows")
    return np.asarray(column.to_numpy())


def _may_be_number(word: Any) -> bool:
    try:
        float(word)
    except (TypeError, ValueError):
        return False
    return True


def _one_column(table: pyarrow.Table, name: str, where: str) -> NDArray[Any]:
    """The only column of scores: one number a row, or a list of the scores of all classes."""
    kind = table.column(name).type
    if pyarrow.types.is_list(kind) or pyarrow.types.is_fixed_size_list(kind):
        return _values(table, name, where).astype(np.float64)
    return _numbers(table, name, where)


def _labels(table: pyarrow.Table, name: str, where: str) -> NDArray[Any]:
    """A column of labels: integers, booleans, names, or lists of several labels."""
    values = _values(table, name, where)
    if values.dtype.kind == "f" and values.ndim == 1:
        wrong = np.flatnonzero(~np.isfinite(values) | (values != np.floor(values)) | (np.abs(values) > 2**53))
        if len(wrong):
            row = int(wrong[0])
            raise BadInput(f"{where}, row {row}: a label must be an integer; got {values[row]}")
        return values.astype(np.int64)
    if values.dtype.kind not in "biuUf":
        raise BadInput(f"{where}: labels must be integers or names of classes; column {name!r} holds {values.dtype}")
    return values


# --- writing ----------------------------------------------------------------------------------------


def write_table(path: Path, table: Table) -> None:
    """Write predictions to a file that reads back the same; a failed write leaves no partial file.

    Args:
        path: the file; its suffix chooses the format.
        table: the predictions.

    Raises:
        BadInput: when the suffix is another one.
        StorageFault: when the file system refuses the write.
    """
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise BadInput(f"predictions are written to {', '.join(_WRITERS)}; got {path.name!r}")
    with replace_file(path) as stream:
        writer(stream, table)


def _write_npz(stream: IO[bytes], table: Table) -> None:
    kind = "probs" if table.kind == "multilabel" else table.kind
    arrays: dict[str, Any] = {kind: table.scores, "correct" if kind == "confidence" else "labels": table.labels}
    if table.kind == "multilabel":
        arrays["form"] = "multilabel"
    optional = {"weights": table.weights, "clusters": table.clusters, "names": table.names, "positive": table.positive}
    arrays |= {name: np.array(value) for name, value in optional.items() if value is not None}
    arrays |= {f"group_{name}": _plain(column) for name, column in table.groups.items()}
    np.savez(stream, **arrays)


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    return column if column.dtype.kind in "biufU" else column.astype(str)


def _frame(table: Table) -> pyarrow.Table:
    """The columns as they are named in a file."""
    columns: dict[str, Any] = {}
    if table.labels.ndim == 2 and table.kind != "multilabel":
        raise BadInput("soft labels are written to .npz files only; give the path another suffix")
    if table.kind == "confidence":
        columns |= {"correct": table.labels, "confidence": table.scores}
    elif table.kind == "multilabel":
        titles = [str(index) for index in range(table.scores.shape[1])] if table.names is None else table.names
        for index, title in enumerate(titles):
            given = table.labels[:, index]
            columns[f"label_{title}"] = pyarrow.array(
                [None if value < 0 or value != value else int(value) for value in given.tolist()], pyarrow.int64()
            )
        columns |= {f"prob_{title}": table.scores[:, index] for index, title in enumerate(titles)}
    else:
        word = _PREFIX[table.kind]
        names = table.names
        columns["label"] = table.labels if names is None else np.array(names)[table.labels]
        if table.scores.ndim == 1:
            columns[word if names is None else f"{word}_{names[1]}"] = table.scores
        else:
            titles = [str(index) for index in range(table.scores.shape[1])] if names is None else names
            contiguous = np.ascontiguousarray(table.scores.T)
            columns |= {f"{word}_{title}": column for title, column in zip(titles, contiguous, strict=True)}
    columns |= {} if table.weights is None else {"sample_weight": table.weights}
    columns |= {} if table.clusters is None else {"cluster": table.clusters}
    columns |= {name: _plain(column) for name, column in table.groups.items() if name not in columns}
    return pyarrow.table({name: pyarrow.array(column) for name, column in columns.items()})


def _write_csv(stream: IO[bytes], table: Table) -> None:
    frame = _frame(table)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(frame.schema.names)
    columns = [column.to_pylist() for column in frame.columns]
    for begin in range(0, frame.num_rows, 4096):
        rows = zip(*(column[begin : begin + 4096] for column in columns), strict=True)
        # repr round-trips a float, and so does the writer, which calls it.
        csv.writer(text, lineterminator="\n").writerows(rows)
        stream.write(text.getvalue().encode())
        text.seek(0)
        text.truncate()


def _write_parquet(stream: IO[bytes], table: Table) -> None:
    pyarrow.parquet.write_table(_frame(table), stream, write_page_checksum=True)


def _write_feather(stream: IO[bytes], table: Table) -> None:
    pyarrow.feather.write_feather(_frame(table), stream)


_WRITERS: dict[str, Callable[[IO[bytes], Table], None]] = {
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".feather": _write_feather,
}
