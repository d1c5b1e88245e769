"""Pickled batches of arrays, as the CIFAR archives hold them, read by a reader that builds arrays and nothing else."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.errors import BadInput

__all__ = ["read_pickled_arrays"]


class _ArraysOnly(pickle.Unpickler):
    """Only what numpy's own arrays of plain numbers need can be named; everything else is refused."""

    _ALLOWED = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
        ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): lambda text, encoding="latin1": text.encode("latin1"),
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._ALLOWED[module, name]
        except KeyError:
            raise BadInput(f"the file names {module}.{name}, which is no array; it is not read") from None


def read_pickled_arrays(path: Path) -> dict[str, Any]:
    """A dictionary of arrays and plain values; text keys whether the file was written by Python 2 or 3."""
    try:
        with path.open("rb") as stream:
            found = _ArraysOnly(stream, encoding="bytes").load()
    except BadInput as error:
        raise BadInput(f"{path.name}: {error}") from error
    except Exception as error:
        raise BadInput(f"{path.name} is no pickled batch ({type(error).__name__}: {str(error)[:80]})") from error
    if not isinstance(found, dict):
        raise BadInput(f"{path.name} must hold a dictionary of arrays; it holds a {type(found).__name__}")
    arrays = {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in found.items()}
    for key, value in arrays.items():
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise BadInput(f"{path.name}: array {key!r} holds objects, not numbers")
    return arrays
