"""Files of arrays: ``.npz``. Nothing in a file is executed, and no more memory is taken than its size can explain."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.files import first_line

__all__ = ["read_archive"]

# Deflate cannot expand by more than 1032:1, so a larger claim in an archive is false.
MOST_EXPANSION = 1032

_SCORES = ("logits", "probs", "confidence")
_TABLE_NAMES = {"sample_weight": "weights", "cluster": "clusters"}  # as columns of tables are called
_COLUMNS = ("weights", "clusters", "names", "positive", "form")


def read_archive(path: Path, split: str | None = None) -> dict[str, NDArray[Any]]:
    """Read the arrays of a set of predictions from an ``.npz`` file.

    Args:
        path: the file.
        split: prefix of the arrays in a file with several sets, such as ``"val"``; None for no prefix.

    Returns:
        Arrays by name without the prefix: one of ``logits``, ``probs`` and ``confidence``; ``labels`` (``correct``
        beside a confidence); and whatever there is of ``weights``, ``clusters``, ``names``, ``positive``, ``form`` and
        columns ``group_<name>``.

    Raises:
        BadInput: when the file is damaged, or holds other arrays.
    """
    prefix = "" if split is None else f"{split}_"
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise BadInput(f"{str(path)!r} holds two arrays of the same name; write the file again")
            kinds = [kind for kind in _SCORES if prefix + kind in members]
            labels = "correct" if kinds == ["confidence"] else "labels"
            if len(kinds) != 1 or prefix + labels not in members:
                raise BadInput(_explain_keys(path, split, sorted(members)))
            wanted = [kinds[0], labels, *_COLUMNS, *_TABLE_NAMES]
            arrays = {
                _TABLE_NAMES.get(name.removeprefix(prefix), name.removeprefix(prefix)): _read_member(
                    path, archive, info
                )
                for name, info in members.items()
                if name.startswith(prefix)
                and (name.removeprefix(prefix) in wanted or name.removeprefix(prefix).startswith("group_"))
            }
    except (BadInput, MemoryError):
        raise
    except Exception as error:  # its decompressors raise a dozen types on damaged bytes
        raise BadInput(f"{str(path)!r} is not an intact .npz file: {first_line(error)}") from error
    return arrays


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
    if info.compress_size > path.stat().st_size or info.file_size > MOST_EXPANSION * (info.compress_size + 64):
        raise BadInput(f"{where} claims {info.file_size} bytes, more than its file can hold; the file is damaged")
    with archive.open(info) as stream:
        shape, fortran, dtype = _read_header(stream, where)
        if dtype.hasobject or dtype.kind not in "fiubU":
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
