"""Calibrators as JSON files: readable, exact to the last bit, and nothing in them is executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.door import as_path
from surefoot.errors import BadInput
from surefoot.files import replace_file
from surefoot.posthoc.calibrator import Calibrator
from surefoot.posthoc.methods import METHODS

__all__ = ["load", "write_calibrator"]

_MOST_BYTES = 1 << 30


def write_calibrator(calibrator: Calibrator, path: Path) -> None:
    """Write what was learned; the file appears whole or not at all."""
    calibrator.check_fitted()
    if calibrator.method not in METHODS:
        raise BadInput(f"a calibrator of type {type(calibrator).__name__} cannot be saved; save the one it chose")
    learned = {name: np.asarray(getattr(calibrator, name)).tolist() for name in calibrator.learned}
    document = {
        "surefoot calibrator": 1,
        "method": calibrator.method,
        "classes": len(calibrator.classes_),
        "settings": calibrator.get_params(),
        "learned": learned,
        "n": int(calibrator.n_),
    }
    with replace_file(path) as stream:
        stream.write(json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")


def load(path: Any) -> Calibrator:
    """The fitted calibrator that `Calibrator.save` wrote."""
    place = as_path(path)
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise BadInput(f"{str(place)!r} is too large for a calibrator")
        document = json.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read {str(place)!r}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{str(place)!r} is not a calibrator written by save: {error}") from error
    if not isinstance(document, dict) or document.get("surefoot calibrator") != 1:
        raise BadInput(f"{str(place)!r} is not a calibrator written by save")
    try:
        return _read(document)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{str(place)!r} is a damaged calibrator: {error}") from error


def _read(document: dict[str, Any]) -> Calibrator:
    kind = METHODS.get(document["method"])
    if kind is None:
        raise ValueError(f"unknown method {document['method']!r}; known are {', '.join(METHODS)}")
    calibrator = kind()
    settings = document["settings"]
    if set(settings) != set(calibrator.get_params()):
        raise ValueError(f"settings {sorted(settings)} are not those of {kind.__name__}")
    calibrator.set_params(**settings)
    classes = document["classes"]
    if not isinstance(classes, int) or classes < 2 or set(document["learned"]) != set(kind.learned):
        raise ValueError("its parts do not fit together")
    for name, value in document["learned"].items():
        setattr(calibrator, name, _number(name, value))
    calibrator.classes_, calibrator.n_ = np.arange(classes), int(document["n"])
    calibrator.check_learned()
    return calibrator


def _number(name: str, value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind not in "if" or not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite numbers")
    array = array.astype(np.int64 if name.endswith("starts_") else np.float64)
    return float(array) if array.ndim == 0 else array
