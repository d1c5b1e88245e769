"""Files of predictions: ``.npz``, ``.csv`` and ``.parquet``.

A reader returns ``(scores, labels, kind)`` with kind ``"logits"``, ``"probs"`` or ``None`` (the file does not tell). A
reader executes nothing in a file, and never allocates more memory than the size of the file can explain.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput, MissingDependency
from surefoot.files import first_line, replace_file

__all__ = ["Table", "read_table", "write_table"]

Table = tuple[NDArray[Any], NDArray[Any], str | None]

# Deflate cannot expand by more than 1032:1, so a larger claim in an archive is false.
_MOST_EXPANSION = 1032
# Parquet's run lengths may expand without limit: this many bytes are always allowed, the file's size must explain more.
_PARQUET_TRUST = 1 << 26


def read_table(path: Path, split: str | None = None) -> Table:
    """Read scores and labels from an ``.npz``, ``.csv`` or ``.parquet`` file.

    Args:
        path: the file; its suffix chooses the format.
        split: prefix of the arrays in an ``.npz`` file with several sets, such as ``"val"``; None for no prefix.

    Returns:
        Scores (n, k), labels (n,), and ``"logits"``, ``"probs"`` or None if the file does not tell.

    Raises:
        BadInput: when the file is missing, unreadable, damaged or of another form.
        MissingDependency: when a ``.parquet`` file is read without pyarrow.
    """
    try:
        exists = path.exists()
    except OSError as error:
        raise BadInput(f"cannot read {str(path)!r}: {first_line(error)}") from error
    if not exists:
        raise BadInput(f"no file at {str(path)!r}; give the path of a .npz, .csv or .parquet file of predictions")
    if path.is_dir():
        raise BadInput(f"{str(path)!r} is a folder; give a .npz, .csv or .parquet file of predictions")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"predictions are read from {', '.join(_READERS)}; got {path.name!r}")
    if split is not None and path.suffix.lower() != ".npz":
        raise BadInput(
            f"split={split!r} picks arrays inside an .npz file; {path.name!r} has one set of predictions only"
        )
    try:
        return reader(path, split)
    except OSError as error:
        raise BadInput(f"cannot read {str(path)!r}: {first_line(error)}") from error


def write_table(path: Path, scores: NDArray[Any], labels: NDArray[Any], kind: str) -> None:
    """Write scores and labels to a file that `read_table` reads; a failed write leaves no partial file.

    Args:
        path: the file; its suffix chooses the format.
        scores: (n, k) logits or probabilities.
        labels: (n,) classes in 0..k−1.
        kind: ``"logits"`` or ``"probs"``.

    Raises:
        BadInput: when the suffix is another one.
        MissingDependency: when a ``.parquet`` file is written without pyarrow.
        StorageFault: when the file system refuses the write.
    """
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise BadInput(f"predictions are written to {', '.join(_WRITERS)}; got {path.name!r}")
    with replace_file(path) as stream:
        writer(stream, scores, labels, kind)


# --- .npz -------------------------------------------------------------------------------------------


def _read_npz(path: Path, split: str | None) -> Table:
    prefix = "" if split is None else f"{split}_"
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise BadInput(f"{str(path)!r} holds two arrays of the same name; write it anew")
            kinds = [kind for kind in ("logits", "probs") if prefix + kind in members]
            if len(kinds) != 1 or prefix + "labels" not in members:
                raise BadInput(_explain_keys(path, split, sorted(members)))
            scores = _read_member(path, archive, members[prefix + kinds[0]])
            labels = _read_member(path, archive, members[prefix + "labels"])
    except BadInput:
        raise
    except Exception as error:  # its decompressors raise a dozen types on damaged bytes
        raise BadInput(f"{str(path)!r} is not an intact .npz file: {first_line(error)}") from error
    return scores, labels, kinds[0]


def _explain_keys(path: Path, split: str | None, names: list[str]) -> str:
    splits = [name.removesuffix("_labels") for name in names if name.endswith("_labels")]
    shown = ", ".join(repr(name) for name in names[:8]) or "nothing"
    if splits and split not in splits:
        choices = " or ".join(f"split={name!r}" for name in splits)
        return f"{str(path)!r} holds several sets of predictions; choose {choices}"
    want = "'logits' or 'probs' (exactly one), and 'labels'"
    if split is not None:
        want = f"'{split}_logits' or '{split}_probs' (exactly one), and '{split}_labels'"
    return f"{str(path)!r} must hold the arrays {want}; it holds {shown}"


def _read_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    where = f"array {info.filename.removesuffix('.npy')!r} in {str(path)!r}"
    if info.compress_size > path.stat().st_size or info.file_size > _MOST_EXPANSION * (info.compress_size + 64):
        raise BadInput(f"{where} claims {info.file_size} bytes, more than its file can hold; the file is damaged")
    with archive.open(info) as stream:
        shape, fortran, dtype = _read_header(stream, where)
        if dtype.hasobject or dtype.kind not in "fiub":
            raise BadInput(f"{where} must hold plain numbers; got dtype {dtype}")
        if len(shape) > 3 or any(not 0 <= size < 2**48 for size in shape) or _bytes(shape, dtype) > info.file_size:
            raise BadInput(f"{where} claims shape {shape}, more than its {info.file_size} bytes; the file is damaged")
        data = stream.read(_bytes(shape, dtype))
        if len(data) != _bytes(shape, dtype) or stream.read(1):
            raise BadInput(f"{where} has a length that does not fit shape {shape}; the file is damaged")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


# Version of the array format: bytes of the header's length, and numpy's reader of what follows.
_HEADERS = {
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
}
_LONGEST_HEADER = 1 << 14


def _read_header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and dtype; the header's length is checked before it is read."""
    start = stream.read(8)
    if start[:6] != b"\x93NUMPY" or tuple(start[6:8]) not in _HEADERS:
        raise BadInput(f"{where} is not a NumPy array of format 1 or 2; write it with numpy.savez")
    digits, read = _HEADERS[start[6], start[7]]
    size = stream.read(digits)
    if int.from_bytes(size, "little") > _LONGEST_HEADER:
        raise BadInput(f"{where} is not a NumPy array of plain numbers: its header is too long")
    header = io.BytesIO(size + stream.read(int.from_bytes(size, "little")))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy tries to mend odd headers; we do not want them mended
            return read(header)
    except Exception as error:  # its parser raises a dozen types on damaged bytes
        raise BadInput(f"{where} is not a NumPy array: {first_line(error)}") from error


def _bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    count = 1
    for size in shape:  # Python integers: numpy's product would wrap around on a hostile shape
        count *= int(size)
    return count * dtype.itemsize


def _write_npz(stream: IO[bytes], scores: NDArray[Any], labels: NDArray[Any], kind: str) -> None:
    np.savez(stream, **{kind: scores, "labels": labels})  # type: ignore[arg-type]


# --- columns: .csv and .parquet ---------------------------------------------------------------------


def _kind_of_columns(path: Path, columns: list[str]) -> str | None:
    """Read the kind of scores from the header: every class column starts with ``logit``, or every one with ``prob``."""
    if not columns or columns[0] != "label":
        raise BadInput(f"{str(path)!r}: the first column must be named 'label'; got {columns[:1] or 'no columns'}")
    if len(columns) < 3:
        raise BadInput(f"{str(path)!r}: 'label' must be followed by one column per class, two at least; got {columns}")
    classes = columns[1:]
    nameless = [name for name in classes if not name or re.fullmatch(r"Unnamed: \d+", name)]
    if nameless:
        raise BadInput(f"{str(path)!r}: a column has no name of its own (an index?); leave it out of the file")
    if len(set(columns)) < len(columns):
        raise BadInput(f"{str(path)!r}: every column must have a name of its own; some are repeated")
    kinds = {
        name: kind for name in classes for kind, word in _KINDS.items() if re.match(rf"{word}s?(?![a-z])", name.lower())
    }
    if kinds and (len(kinds) < len(classes) or len(set(kinds.values())) > 1):
        odd = next((name for name in classes if name not in kinds), classes[-1])
        raise BadInput(
            f"{str(path)!r}: the class columns must be all logits or all probabilities by their names; {odd!r} is not "
            "as the others. Leave out columns that are no class"
        )
    _check_order(path, classes)
    return kinds[classes[0]] if kinds else None


_KINDS = {"logits": "logit", "probs": "prob"}


def _check_order(path: Path, classes: list[str]) -> None:
    """Check that class columns with one number in their names carry 0, 1, 2, ...: the n-th column *is* class n."""
    numbers = [re.findall(r"\d+(?:\.\d+)?", name) for name in classes]
    if all(len(inside) == 1 for inside in numbers):
        order = [float(inside[0]) for inside in numbers]
        if order != list(range(len(order))):
            raise BadInput(
                f"{str(path)!r}: numbered class columns must be 0, 1, 2, ... in order, as labels count; "
                f"got {', '.join(classes[:5])}, ...; reorder or rename them (and let labels start at 0)"
            )


def _columns(count: int, kind: str) -> list[str]:
    return ["label", *(f"{kind.removesuffix('s')}_{index}" for index in range(count))]


def _whole_labels(path: Path, labels: NDArray[np.float64], first_row: int) -> NDArray[np.int64]:
    fractions = np.flatnonzero(~np.isfinite(labels) | (labels != np.floor(labels)) | (np.abs(labels) > 2**53))
    if len(fractions):
        row = int(fractions[0])
        raise BadInput(f"{str(path)!r}, row {row + first_row}: a label must be an integer; got {labels[row]}")
    return labels.astype(np.int64)


def _read_csv(path: Path, split: str | None) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            columns = [name.strip().strip('"') for name in next(csv.reader([stream.readline()]), [""])]
            kind = _kind_of_columns(path, columns)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the caller reports a table without rows
                    values = np.loadtxt(stream, delimiter=",", dtype=np.float64, ndmin=2, comments=None, quotechar='"')
            except ValueError as error:
                raise BadInput(
                    f"{str(path)!r} is not a table of numbers below its header: {first_line(error)}"
                ) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{str(path)!r} is not a text file: {error}") from error
    if values.size and values.shape[1] != len(columns):
        raise BadInput(f"{str(path)!r}: the header names {len(columns)} columns; the rows have {values.shape[1]}")
    values = values.reshape(-1, len(columns))
    return values[:, 1:], _whole_labels(path, values[:, 0], first_row=0), kind


def _write_csv(stream: IO[bytes], scores: NDArray[Any], labels: NDArray[Any], kind: str) -> None:
    stream.write((",".join(_columns(scores.shape[1], kind)) + "\n").encode())
    for label, row in zip(labels.tolist(), scores.astype(np.float64).tolist(), strict=True):
        stream.write((",".join([str(label), *map(repr, row)]) + "\n").encode())  # repr round-trips a float


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependency(
            "reading and writing .parquet needs pyarrow: pip install 'surefoot[parquet]'"
        ) from error
    return pyarrow


def _read_parquet(path: Path, split: str | None) -> Table:
    pyarrow = _pyarrow()
    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            # pandas writes the index of a table as a separate column and names this column in the metadata.
            index = (file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
            columns = [
                name
                for name in file.schema_arrow.names
                if name not in index and not re.fullmatch(r"__index_level_\d+__", name)
            ]
            kind = _kind_of_columns(path, columns)
            size = 8 * file.metadata.num_rows * len(columns)
            if size > max(_PARQUET_TRUST, _MOST_EXPANSION * path.stat().st_size):
                raise BadInput(f"{str(path)!r} claims {size} bytes of numbers, more than its size explains; not read")
            fields = [file.schema_arrow.field(name) for name in columns]
            wrong = [field.name for field in fields if not _is_number(pyarrow, field.type)]
            if wrong:
                raise BadInput(f"{str(path)!r}: every column must hold numbers; {wrong[0]!r} does not")
            table = file.read(columns)
    except BadInput:
        raise
    except Exception as error:  # pyarrow raises a dozen types on damaged bytes
        raise BadInput(f"{str(path)!r} is not an intact .parquet file: {first_line(error)}") from error
    for name in columns:
        if table.column(name).null_count:
            raise BadInput(f"{str(path)!r}: column {name!r} has missing values; fill or drop those rows")
    labels = table.column(columns[0]).to_numpy().astype(np.float64)
    scores = np.stack([table.column(name).to_numpy() for name in columns[1:]], axis=1)
    return scores, _whole_labels(path, labels, first_row=0), kind


def _is_number(pyarrow: Any, type_: Any) -> bool:
    return bool(pyarrow.types.is_floating(type_) or pyarrow.types.is_integer(type_))


def _write_parquet(stream: IO[bytes], scores: NDArray[Any], labels: NDArray[Any], kind: str) -> None:
    pyarrow = _pyarrow()
    arrays = [pyarrow.array(labels), *(pyarrow.array(column) for column in np.ascontiguousarray(scores.T))]
    table = pyarrow.table(arrays, names=_columns(scores.shape[1], kind))
    pyarrow.parquet.write_table(table, stream, write_page_checksum=True)


_READERS: dict[str, Callable[[Path, str | None], Table]] = {
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
_WRITERS: dict[str, Callable[[IO[bytes], NDArray[Any], NDArray[Any], str], None]] = {
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
