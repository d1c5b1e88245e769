"""Reader of pickled batches, as the CIFAR archives hold them; the reader builds arrays and nothing else."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.errors import BadInput

__all__ = ["read_pickled_arrays"]


class _ArraysOnly(pickle.Unpickler):
    """Unpickler that allows only the names that numpy's arrays of plain numbers need."""

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
    """Read a pickled dictionary of arrays and plain values, written by Python 2 or 3.

    Args:
        path: The file.

    Returns:
        The dictionary, whose keys are texts.

    Raises:
        BadInput: If the file is no such pickle, names anything but numpy arrays, or holds arrays of objects.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "batch"
        ...     _ = path.write_bytes(pickle.dumps({b"labels": [3, 1]}))
        ...     read_pickled_arrays(path)
        {'labels': [3, 1]}
    """
    try:
        with path.open("rb") as stream:
            content = _ArraysOnly(stream, encoding="bytes").load()
    except BadInput as error:
        raise BadInput(f"{path.name}: {error}") from error
    except Exception as error:
        raise BadInput(f"{path.name} is no pickled batch ({type(error).__name__}: {str(error)[:80]})") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path.name} must hold a dictionary of arrays; it holds a {type(content).__name__}")
    arrays = {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in content.items()}
    for key, value in arrays.items():
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise BadInput(f"{path.name}: array {key!r} holds objects, not numbers")
    return arrays
