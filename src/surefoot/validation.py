"""Checks of what users give: plain arguments, paths, scores and labels; each error names argument, value and remedy."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput

__all__ = [
    "as_labels",
    "as_path",
    "as_scores",
    "check_fraction",
    "check_int",
    "check_options",
    "check_positive",
    "explain_bad_logits",
    "precision",
    "rounding_of_sums",
    "suggest",
]

Floats = NDArray[np.float64]


def check_int(name: str, value: Any, least: int, most: int | None = None) -> int:
    """``value`` as an int in least..most; booleans are not numbers here."""
    wrong = isinstance(value, bool) or not isinstance(value, numbers.Integral)
    if wrong or value < least or (most is not None and value > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        raise BadInput(f"{name} must be a whole number {span}; got {value!r}")
    return int(value)


def check_positive(name: str, value: Any, least: float = 0.0) -> float:
    """``value`` as a finite float above ``least`` (or equal to it, if it is not 0)."""
    wrong = isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value)
    if wrong or value <= 0 or value < least:
        span = f"of at least {least:g}" if least else "above 0"
        raise BadInput(f"{name} must be a finite number {span}; got {value!r}")
    return float(value)


def check_fraction(name: str, value: Any) -> float:
    """``value`` as a float strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise BadInput(f"{name} must lie between 0 and 1, such as 0.95; got {value!r}")
    return float(value)


def suggest(name: str, choices: Iterable[str]) -> str:
    """The end of an error about a wrong name: the choice that is spelt most like it, if one is."""
    near = get_close_matches(name, [choice for choice in choices if choice != name], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_options(what: str, options: Iterable[str], accepted: list[str]) -> None:
    """A clear error for the first of ``options`` that ``what`` does not have."""
    for option in options:
        if option not in accepted:
            has = f"it has {', '.join(accepted)}" if accepted else "it has none"
            raise BadInput(f"{what} has no option {option!r}; {has}{suggest(option, accepted)}")


def rounding_of_sums(block: Floats) -> float:
    """How far rounding to decimals can move a row's sum from 1, if all entries have six decimals or fewer."""
    if not np.isfinite(block).all():
        return 0.0
    for decimals in range(1, 7):
        scaled = block * 10.0**decimals
        if np.abs(scaled - np.rint(scaled)).max() < 1e-6:
            return float(0.5 * block.shape[1] * 10.0**-decimals + 1e-9)
    return 0.0


def as_path(path: Any, name: str = "path") -> Path:
    """``path`` as a Path, or a clear error about the argument ``name``."""
    try:
        text = os.fsdecode(path)
    except TypeError as error:
        raise BadInput(f"{name} must be a file's path; got {path!r}") from error
    if "\0" in text:
        raise BadInput(f"{name} must not hold a NUL character; got {text!r}")
    return Path(text)


def _array(name: str, value: Any) -> NDArray[Any]:
    """``value`` as an array; tensors are detached, and bfloat16, which numpy lacks, becomes float32 exactly."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise BadInput(f"{name} must have no masked entries; fill them or drop their rows")
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            if str(value.dtype) == "torch.bfloat16":
                value = value.float()
            value = value.numpy()
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise BadInput(f"{name} must be a rectangular array of numbers; {' '.join(str(error).split())}") from error
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            return array.astype(np.float64)  # wider than what is computed with
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def precision(scores: Any) -> float:
    """Unit of rounding of the numbers as given; bfloat16 has seven bits."""
    if str(getattr(scores, "dtype", "")) == "torch.bfloat16":
        return 2.0**-7
    dtype = _array("scores", scores).dtype
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0


def as_scores(name: str, value: Any) -> NDArray[Any]:
    """``value`` as a read-only view (n, k) of real numbers, n >= 1 and k >= 2; the numbers are not looked at."""
    array = _array(name, value)
    if array.dtype.kind not in "fiu":
        raise BadInput(f"{name} must hold real numbers; got dtype {array.dtype}; convert with .astype(float)")
    if array.ndim != 2:
        hint = "; were logits and labels swapped?" if array.ndim == 1 and array.dtype.kind in "iu" else ""
        raise BadInput(f"{name} must have shape (n, k), one row per example; got shape {array.shape}{hint}")
    n, k = array.shape
    if n == 0:
        raise BadInput(f"{name} must have at least one row; got shape {array.shape}")
    if k < 2:
        raise BadInput(
            f"{name} must have a column per class, two at least; got shape {array.shape}. For a binary score s "
            "stack two columns: logits (0, s), or probabilities (1 - s, s)"
        )
    view = array.view()
    view.flags.writeable = False
    return view


def as_labels(value: Any, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """``value`` as (n,) whole numbers in 0..k−1 for scores of shape (n, k)."""
    array = _array("labels", value)
    n, k = shape
    if array.shape != (n,):
        hints = {(n, 1): "; use labels.ravel()", (n, k): "; for one-hot labels use labels.argmax(1)"}
        raise BadInput(
            f"labels must have shape ({n},), one per row; got shape {array.shape}{hints.get(array.shape, '')}"
        )
    if array.dtype.kind not in "iu":
        raise BadInput(f"labels must be whole numbers; got dtype {array.dtype}; convert with .astype(int)")
    bad = np.flatnonzero((array < 0) | (array >= k))
    if len(bad):
        row = int(bad[0])
        raise BadInput(
            f"labels must lie in 0..{k - 1} for {k} classes; row {row} has {int(array[row])} "
            f"({len(bad)} such rows). Drop rows without a label; none is ignored silently"
        )
    return array.astype(np.int64)


def explain_bad_logits(tops: Floats) -> str:
    """The sentence for logits whose rows' largest entries ``tops`` (n,) are not all finite."""
    row = int(np.flatnonzero(~np.isfinite(tops))[0])
    top = tops[row]
    what = "NaN" if np.isnan(top) else "+inf" if top > 0 else "nothing but -inf"
    count = int((~np.isfinite(tops)).sum())
    hint = "a diverged model, or an overflow in half precision?"
    return (
        f"logits must be finite (or -inf beside finite values); row {row} has {what} "
        f"({count} of {len(tops)} rows are so): {hint} Drop or repair those rows"
    )
