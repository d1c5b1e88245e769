"""Calibrators as JSON files: readable and bit-exact; nothing in a file is executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.errors import BadInput
from surefoot.files import replace_file
from surefoot.posthoc.calibrator import Calibrator
from surefoot.posthoc.groups import ByGroup
from surefoot.posthoc.registry import CALIBRATORS
from surefoot.validation import as_path, check_int

__all__ = ["load", "write_by_group", "write_calibrator"]

_MOST_BYTES = 1 << 30
_MOST_CLASSES = 10_000_000
_LARGEST = 1e150  # bound of a learned number: the product of two such numbers must stay finite


def write_calibrator(calibrator: Calibrator, path: Path) -> None:
    """Write a fitted calibrator; a failed write leaves no partial file.

    Args:
        calibrator: the fitted calibrator.
        path: the file to write or replace.

    Raises:
        BadInput: when the learned numbers are not finite, or the class is not one of `CALIBRATORS`.
        NotFitted: when the calibrator is not fitted.
        StorageFault: when the file system refuses the write.
    """
    calibrator.check_fitted()
    if calibrator.method not in CALIBRATORS:
        raise BadInput(f"a calibrator of type {type(calibrator).__name__} cannot be saved; save the one it chose")
    _write(_document(calibrator), path)


def write_by_group(calibrator: ByGroup, path: Path) -> None:
    """Write a fitted `ByGroup`, with the map of all rows inside; a failed write leaves no partial file.

    Args:
        calibrator: the fitted calibrator.
        path: the file to write or replace.

    Raises:
        BadInput: when the learned numbers are not finite.
        NotFitted: when the calibrator is not fitted.
        StorageFault: when the file system refuses the write.
    """
    calibrator.check_fitted()
    inside = {"groups": list(calibrator.values_), "base": _document(calibrator.base_)}
    _write(_document(calibrator) | inside, path)


def _document(calibrator: Calibrator) -> dict[str, Any]:
    learned = {name: np.asarray(getattr(calibrator, name)).tolist() for name in calibrator.learned}
    try:
        for name, value in learned.items():
            _number(name, value)
    except ValueError as error:
        raise BadInput(f"what {calibrator.method} learned cannot be saved: {error}; fit it on other rows") from error
    return {
        "surefoot calibrator": 1,
        "method": calibrator.method,
        "kind": calibrator.kind_,
        "classes": len(calibrator.classes_),
        "settings": calibrator.get_params(),
        "learned": learned,
        "n": int(calibrator.n_),
        "names": None if calibrator.names_ is None else list(calibrator.names_),
        "form": calibrator.form_,
    }


def _write(document: dict[str, Any], path: Path) -> None:
    with replace_file(path) as stream:
        stream.write(json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")


def load(path: Any) -> Calibrator:
    """Read a fitted calibrator from a file that `Calibrator.save` wrote.

    Args:
        path: the file, of at most 1 GiB.

    Returns:
        The fitted calibrator, bit-exactly as saved.

    Raises:
        BadInput: when the file is missing, unreadable, damaged or no calibrator.

    Example:
        >>> import tempfile
        >>> from surefoot.posthoc import Temperature
        >>> from surefoot.predictions import Predictions
        >>> fitted = Temperature().fit(Predictions([[4.0, 0.0]] * 10, [0] * 8 + [1] * 2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fitted.save(f"{folder}/temperature.json")
        ...     load(f"{folder}/temperature.json").temperature_ == fitted.temperature_
        True
    """
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
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{str(place)!r} is a damaged calibrator: {error}") from error


def _read(document: dict[str, Any]) -> Calibrator:
    known = {name: entry for name, entry in CALIBRATORS.items() if not entry.fixed}  # settings stand beside the name
    entry = known.get(document["method"])
    kind: type[Calibrator] = ByGroup
    if document["method"] != ByGroup.method:
        if entry is None:
            raise ValueError(f"unknown method {document['method']!r}; known are {', '.join(known)}")
        kind = entry.resolve()
    calibrator = kind()
    settings, learned = document["settings"], document["learned"]
    if not isinstance(settings, dict) or not isinstance(learned, dict):
        raise ValueError("its parts do not fit together")
    known_settings = calibrator.get_params()
    settings = {name: kind.added[name] for name in known_settings if name in kind.added} | settings
    learned = {name: kind.added[name] for name in kind.learned if name in kind.added} | learned
    if set(settings) != set(known_settings):
        raise ValueError(f"settings {sorted(settings)} are not those of {kind.__name__}")
    if set(learned) != set(kind.learned):
        raise ValueError("its parts do not fit together")
    calibrator.set_params(**settings)
    calibrator.check_settings()
    for name, value in learned.items():
        setattr(calibrator, name, _number(name, value))
    calibrator.classes_ = np.arange(check_int("classes", document["classes"], 2, _MOST_CLASSES))
    calibrator.n_, calibrator.kind_ = check_int("n", document["n"], 1), document.get("kind")
    names = document.get("names")  # which older files do not have
    if names is not None and (len(names) != len(calibrator.classes_) or not all(isinstance(n, str) for n in names)):
        raise ValueError("names must be a name for each class")
    calibrator.names_ = None if names is None else tuple(names)
    calibrator.form_ = document.get("form")  # which older files do not have
    if calibrator.form_ not in (None, "classes", "positive", "multilabel", "confidence"):
        raise ValueError(f"form must be a form of predictions; got {calibrator.form_!r}")
    if calibrator.kind_ not in (None, "logits", "probs"):
        raise ValueError(f"kind must be 'logits' or 'probs'; got {calibrator.kind_!r}")
    if isinstance(calibrator, ByGroup):
        _read_groups(calibrator, document)
    calibrator.check_learned()
    return calibrator


def _read_groups(calibrator: ByGroup, document: dict[str, Any]) -> None:
    values, base = document["groups"], document["base"]
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values) or len(set(values)) < len(values):
        raise ValueError("groups must be a list of different names")
    if not isinstance(base, dict) or base.get("method") != calibrator.calibrator:
        raise ValueError(f"base must be the {calibrator.calibrator} map of all rows")
    calibrator.values_, calibrator.base_, calibrator.gains_ = tuple(values), _read(base), []
    if len(calibrator.base_.classes_) != len(calibrator.classes_):
        raise ValueError("base must have the same number of classes")


def _number(name: str, value: Any) -> Any:
    array = np.asarray(value)
    place = name.endswith("starts_")
    if array.dtype.kind not in ("i" if place else "if") or not (np.abs(array) <= _LARGEST).all():
        raise ValueError(f"{name} must be {'integers' if place else 'finite numbers'} of at most {_LARGEST:g} in size")
    array = array.astype(np.int64 if place else np.float64)
    return float(array) if array.ndim == 0 else array
