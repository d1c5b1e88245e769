"""Tables of any source as one arrow table: files and their parts, compressed files, standard input, data frames."""

from __future__ import annotations

import csv
import glob
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet

from surefoot.errors import BadInput
from surefoot.files import first_line
from surefoot.predictions.archives import MOST_EXPANSION

__all__ = [
    "FORMATS",
    "format_of",
    "is_frame",
    "open_text",
    "parts_of",
    "read_frame",
    "read_in_batches",
    "table_of_frame",
]

FORMATS = (".csv", ".parquet", ".jsonl", ".feather", ".arrow")
_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
# Run lengths may expand without limit: this many bytes are always allowed, the file's size must explain more.
_TRUST = 1 << 26
_MANY_COLUMNS = 4096
_BLOCK = 1 << 24  # bytes of a .csv that are parsed at once: a row must fit


def format_of(path: Path) -> str:
    """The suffix that tells the format of a file, without a suffix of compression.

    Args:
        path: the file.

    Returns:
        The suffix in lower case.

    Example:
        >>> format_of(Path("part-0.CSV.gz"))
        '.csv'
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_frame(source: str) -> tuple[pyarrow.Table, str, bool]:
    """Read a table from a file, a folder or a pattern of parts, or standard input.

    Args:
        source: a path, a folder of parts, a pattern such as ``parts/*.parquet``, or ``-`` for standard input.

    Returns:
        The table, what errors call it, and whether its rows are lines of one text file.

    Raises:
        BadInput: when there is no such file, or a file is damaged, of another form, or too large for the memory.
    """
    if source == "-":
        data = sys.stdin.buffer.read()
        suffix = ".parquet" if data[:4] == b"PAR1" else ".jsonl" if data.lstrip()[:1] == b"{" else ".csv"
        return _read(suffix, data, "standard input"), "standard input", suffix == ".csv"
    paths = parts_of(source)
    tables = [_read(format_of(path), path, repr(str(path))) for path in paths]
    if len(paths) == 1:
        return tables[0], repr(str(paths[0])), format_of(paths[0]) == ".csv"
    first = tables[0].schema.names
    for path, table in zip(paths, tables, strict=True):
        if table.schema.names != first:
            raise BadInput(
                f"{str(path)!r} has the columns {', '.join(table.schema.names[:6])}, and {paths[0].name!r} "
                f"{', '.join(first[:6])}; parts must have the same columns in the same order"
            )
    try:
        return pyarrow.concat_tables(tables, promote_options="permissive"), repr(source), False
    except pyarrow.ArrowException as error:
        raise BadInput(f"the parts of {source!r} do not fit together: {first_line(error)}") from error


def read_in_batches(path: Path, rows: int) -> Iterator[pyarrow.Table]:
    """Read a file in batches of rows, so that the memory does not grow with the file.

    Args:
        path: a ``.parquet``, ``.csv``, ``.feather`` or ``.arrow`` file; other formats are one batch.
        rows: rows of a batch; batches of text are blocks of 16 MB instead.

    Yields:
        The batches that are not empty.

    Raises:
        BadInput: when the file is damaged.
    """
    suffix, where = format_of(path), repr(str(path))
    try:
        if suffix == ".parquet":
            # Reading ahead would hold whole row groups of every column.
            options = {"page_checksum_verification": True, "pre_buffer": False, "buffer_size": 1 << 20}
            with pyarrow.parquet.ParquetFile(str(path), **options) as file:
                columns = columns_of_parquet(file, where)
                for batch in file.iter_batches(rows, columns=columns):
                    if batch.num_rows:
                        yield pyarrow.Table.from_batches([batch])
        elif suffix == ".csv":
            yield from _csv_batches(path, where)
        elif suffix in (".feather", ".arrow"):
            with pyarrow.memory_map(str(path)) as data, pyarrow.ipc.open_file(data) as reader:
                for index in range(reader.num_record_batches):
                    yield pyarrow.Table.from_batches([reader.get_batch(index)])
        else:
            yield _read(suffix, path, where)
    except BadInput:
        raise
    except MemoryError as error:
        raise BadInput(explain(error, where)) from error
    except Exception as error:  # pyarrow raises a dozen types on damaged bytes
        raise BadInput(f"{where} is not an intact {suffix} file: {first_line(error)}") from error


def _csv_batches(path: Path, where: str) -> Iterator[pyarrow.Table]:
    with open_text(path) as stream:
        check_quotes(sum(block.count(b'"') for block in iter(lambda: stream.read(_BLOCK), b"")), where)
    with open_text(path) as stream:
        header = stream.readline().removeprefix(b"\xef\xbb\xbf").decode()
        columns = [name.strip() for name in next(csv.reader([header], skipinitialspace=True), [])]
        check_header(where, columns)
        # The first block would decide the types of all: a column of scores that begins with 0 and 1 is no integer.
        scores = {name: pyarrow.float64() for name in columns if re.match(r"(logit|prob)s?(?![a-z])", name.lower())}
        options = pyarrow.csv.ReadOptions(column_names=columns, block_size=max(_BLOCK, 4 * len(header)))
        convert = pyarrow.csv.ConvertOptions(null_values=[], strings_can_be_null=False, column_types=scores)
        with pyarrow.csv.open_csv(stream, options, convert_options=convert) as reader:
            for batch in reader:
                if batch.num_rows:
                    yield pyarrow.Table.from_batches([batch])


def parts_of(source: str) -> list[Path]:
    """The files that a path, a folder or a pattern names.

    Args:
        source: as for `read_frame`.

    Returns:
        The files, sorted by name.

    Raises:
        BadInput: when there are none, or they are of several formats.
    """
    path = Path(source)
    formats = ", ".join((".npz", *FORMATS))
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {source!r}: {first_line(error)}") from error
    if exists and not is_folder:
        return [path]
    if is_folder:
        parts = [part for part in sorted(path.iterdir()) if format_of(part) in FORMATS and part.name[0] not in "._"]
        if not parts:
            raise BadInput(f"{source!r} is a folder without files of predictions; give {formats}, or a folder of parts")
    elif glob.has_magic(source):
        parts = [Path(part) for part in sorted(glob.glob(source))]
        if not parts:
            raise BadInput(f"no file matches {source!r}; quote the pattern, and check the folder")
    else:
        raise BadInput(f"no file at {source!r}; give the path of predictions: {formats}, a folder of parts, or -")
    kinds = {format_of(part) for part in parts}
    if len(kinds) > 1:
        raise BadInput(f"the parts of {source!r} must have one format; got {', '.join(sorted(kinds))}")
    return parts


def _read(suffix: str, source: Path | bytes, where: str) -> pyarrow.Table:
    if suffix not in FORMATS:
        name = source.name if isinstance(source, Path) else where
        raise BadInput(f"predictions are read from {', '.join(('.npz', *FORMATS))}; got {name!r}")
    try:
        if suffix == ".parquet":
            return _read_parquet(source, where)
        data = _bytes(source, where)
        if suffix == ".csv":
            return _read_csv(data, where)
        if suffix == ".jsonl":
            return pyarrow.json.read_json(io.BytesIO(data), pyarrow.json.ReadOptions(block_size=_BLOCK))
        return pyarrow.feather.read_table(io.BytesIO(data))
    except BadInput:
        raise
    except (OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is None:  # pyarrow's own word for a damaged file
            raise BadInput(f"{where} is not an intact {suffix} file: {first_line(error)}") from error
        raise BadInput(explain(error, where)) from error
    except Exception as error:  # pyarrow raises a dozen types on damaged bytes
        raise BadInput(f"{where} is not an intact {suffix} file: {first_line(error)}") from error


def explain(error: BaseException, where: str) -> str:
    """Say why a file could not be read, although it may be intact.

    Args:
        error: an `OSError` or a `MemoryError`.
        where: what errors call the file.

    Returns:
        A sentence with the remedy.
    """
    if isinstance(error, MemoryError):
        return (
            f"there is not enough memory to read {where}; read fewer columns, or accumulate batches of rows with "
            "metrics.CalibrationState"
        )
    return f"cannot read {where}: {first_line(error)}"


def _bytes(source: Path | bytes, where: str) -> bytes:
    """The bytes of a file, decompressed; no more than its size can explain."""
    if isinstance(source, bytes):
        return source
    kind = _COMPRESSED.get(source.suffix.lower())
    if kind is None:
        return source.read_bytes()
    most = max(_TRUST, MOST_EXPANSION * source.stat().st_size)
    with pyarrow.input_stream(str(source), compression=kind) as stream:
        data: bytes = stream.read(most)
        if stream.read(1):
            raise BadInput(f"{where} unpacks to more than {most:,} bytes, more than its size explains; it is not read")
    return data


def open_text(path: Path) -> IO[bytes]:
    """Open a text file for reading, decompressed.

    Args:
        path: the file.

    Returns:
        A binary stream.
    """
    kind = _COMPRESSED.get(path.suffix.lower())
    if kind is None:
        return open(path, "rb")
    return io.BufferedReader(pyarrow.input_stream(str(path), compression=kind))


def _read_csv(data: bytes, where: str) -> pyarrow.Table:
    text = data.removeprefix(b"\xef\xbb\xbf")
    try:
        header = text[: text.find(b"\n") + 1 or len(text)].decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{where} is not a text file: {error}") from error
    columns = [name.strip() for name in next(csv.reader([header], skipinitialspace=True), [])]
    check_header(where, columns)
    check_quotes(text.count(b'"'), where)
    body = io.BytesIO(text[len(header.encode()) :])
    if not text[len(header.encode()) :].strip():
        return pyarrow.table({name: pyarrow.array([], pyarrow.float64()) for name in columns})
    if len(columns) > _MANY_COLUMNS:
        return _read_wide_csv(body, columns, where)
    # A column of words stays words: nothing but a number is a number, and an empty cell is not a missing number.
    convert = pyarrow.csv.ConvertOptions(null_values=[], strings_can_be_null=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=False)
    options = {"column_names": columns, "block_size": max(_BLOCK, 4 * len(header))}
    try:
        return pyarrow.csv.read_csv(body, pyarrow.csv.ReadOptions(**options), parse, convert)
    except pyarrow.ArrowInvalid:
        body.seek(0)
        try:  # one thread knows the number of the row
            return pyarrow.csv.read_csv(body, pyarrow.csv.ReadOptions(use_threads=False, **options), parse, convert)
        except pyarrow.ArrowInvalid as error:
            line = re.sub(r"Row #(\d+)", lambda found: f"line {int(found[1]) + 1}", first_line(error))
            raise BadInput(f"{where} is not a table below its header: {line}") from error


def check_quotes(count: int, where: str) -> None:
    """Check that every quote of a text file is closed: what follows an open quote would be dropped without a word.

    Args:
        count: number of quotes in the file.
        where: what errors call the file.

    Raises:
        BadInput: when the number is odd.
    """
    if count % 2:
        raise BadInput(f"{where} has a quote that is not closed; close it, or write the file with another program")


def _read_wide_csv(body: IO[bytes], columns: list[str], where: str) -> pyarrow.Table:
    """Read a table of numbers with many columns, for which arrow's parser takes minutes."""
    try:
        values = np.loadtxt(body, delimiter=",", dtype=np.float64, ndmin=2, comments=None, quotechar='"')
    except ValueError as error:
        raise BadInput(f"{where} is not a table of numbers below its header: {first_line(error)}") from error
    if values.shape[1] != len(columns):
        raise BadInput(f"{where}: the header names {len(columns)} columns; the rows have {values.shape[1]}")
    return pyarrow.table([pyarrow.array(column) for column in np.ascontiguousarray(values.T)], names=columns)


def _read_parquet(source: Path | bytes, where: str) -> pyarrow.Table:
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    opened = pyarrow.BufferReader(source) if isinstance(source, bytes) else str(source)
    with pyarrow.parquet.ParquetFile(opened, page_checksum_verification=True) as file:
        columns = columns_of_parquet(file, where)
        claimed = 8 * file.metadata.num_rows * len(columns)
        if claimed > max(_TRUST, MOST_EXPANSION * size):
            raise BadInput(f"{where} claims {claimed} bytes of numbers, more than its size explains; it is not read")
        return file.read(columns)


def columns_of_parquet(file: pyarrow.parquet.ParquetFile, where: str) -> list[str]:
    """The columns of a file, without the index of pandas, which writes one as a column and names it in the metadata.

    Args:
        file: the opened file.
        where: what errors call the file.

    Returns:
        Names of the columns.

    Raises:
        BadInput: when a name is missing or repeated.
    """
    index = (file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
    names = file.schema_arrow.names
    columns = [name for name in names if name not in index and not re.fullmatch(r"__index_level_\d+__", name)]
    check_header(where, columns)
    return columns


def check_header(where: str, columns: Sequence[str]) -> None:
    """Check that every column has a name of its own.

    Args:
        where: what errors call the table.
        columns: names of the columns.

    Raises:
        BadInput: when a name is missing or repeated.
    """
    nameless = [name for name in columns if not name or re.fullmatch(r"Unnamed: \d+", name)]
    if nameless:
        raise BadInput(f"{where}: a column has no name of its own (an index?); leave it out of the file")
    if len(set(columns)) < len(columns):
        raise BadInput(f"{where}: every column must have a name of its own; some are repeated")


def is_frame(source: Any) -> bool:
    """Whether an object is a table: a data frame, an arrow table, a data set with columns, or a mapping of columns.

    Args:
        source: any object.

    Returns:
        True for what `table_of_frame` takes.
    """
    if isinstance(source, pyarrow.Table | pyarrow.RecordBatch | Mapping):
        return True
    return any(hasattr(source, name) for name in ("__arrow_c_stream__", "to_arrow", "with_format")) or (
        hasattr(source, "columns") and hasattr(source, "iloc")
    )


def table_of_frame(source: Any) -> pyarrow.Table:
    """Convert a table to arrow.

    Args:
        source: a pandas or polars frame, an arrow table or batch, a ``datasets.Dataset``, or a mapping of columns.

    Returns:
        The arrow table.

    Raises:
        BadInput: when a column cannot be converted, or has no name of its own.
    """
    try:
        if isinstance(source, pyarrow.Table):
            table = source
        elif isinstance(source, pyarrow.RecordBatch):
            table = pyarrow.Table.from_batches([source])
        elif isinstance(source, Mapping):
            table = pyarrow.table({str(name): pyarrow.array(list(column)) for name, column in source.items()})
        elif hasattr(source, "iloc"):
            table = pyarrow.Table.from_pandas(source, preserve_index=False)
        elif hasattr(source, "with_format"):
            table = source.with_format("arrow")[:]
        elif hasattr(source, "to_arrow"):
            table = source.to_arrow()
        else:
            table = pyarrow.table(source)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise BadInput(f"the table cannot be read as columns: {first_line(error)}") from error
    check_header("the table", table.schema.names)
    return table
