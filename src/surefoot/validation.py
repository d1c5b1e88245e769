"""Checks of what users give: plain arguments, paths, scores and labels.

Every error names the argument, the value and the remedy.
"""

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
    "as_array",
    "as_column",
    "as_path",
    "as_scores",
    "check_bool",
    "check_fraction",
    "check_int",
    "check_non_negative",
    "check_options",
    "check_positive",
    "check_real",
    "check_within",
    "explain_bad_logits",
    "precision",
    "rounding_of_sums",
    "suggest",
]

Floats = NDArray[np.float64]


def check_int(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """Check that an argument is an integer in a range.

    Args:
        name: name of the argument, for the error.
        value: what the user gave; booleans are not integers here.
        minimum: smallest allowed value.
        maximum: largest allowed value; None sets no upper end.

    Returns:
        ``value`` as a Python int.

    Raises:
        BadInput: when ``value`` is not an integer, or lies outside the range.

    Example:
        >>> check_int("bins", 15, 1, 10_000)
        15
    """
    wrong = isinstance(value, bool) or not isinstance(value, numbers.Integral)
    if wrong or value < minimum or (maximum is not None and value > maximum):
        span = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum:,}"
        raise BadInput(f"{name} must be an integer {span}; got {value!r}")
    return int(value)


def check_positive(name: str, value: Any, minimum: float = 0.0) -> float:
    """Check that an argument is a finite positive number.

    Args:
        name: name of the argument, for the error.
        value: what the user gave; booleans are not numbers here.
        minimum: smallest allowed value; 0 itself is never allowed.

    Returns:
        ``value`` as a Python float.

    Raises:
        BadInput: when ``value`` is not a finite number above 0, or is below ``minimum``.

    Example:
        >>> check_positive("bandwidth", 1)
        1.0
    """
    wrong = isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value)
    if wrong or value <= 0 or value < minimum:
        span = f"of at least {minimum:g}" if minimum else "above 0"
        raise BadInput(f"{name} must be a finite number {span}; got {value!r}")
    return float(value)


def check_fraction(name: str, value: Any) -> float:
    """Check that an argument lies strictly between 0 and 1.

    Args:
        name: name of the argument, for the error.
        value: what the user gave; booleans are not numbers here.

    Returns:
        ``value`` as a Python float.

    Raises:
        BadInput: when ``value`` is not a number strictly between 0 and 1.

    Example:
        >>> check_fraction("level", 0.95)
        0.95
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise BadInput(f"{name} must lie between 0 and 1, such as 0.95; got {value!r}")
    return float(value)


def check_non_negative(name: str, value: Any) -> float:
    """Check that a value is a finite number of at least 0.

    Args:
        name: the argument's name, for the error.
        value: the value as given.

    Returns:
        The value as a float.

    Raises:
        BadInput: if the value is negative, not finite or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadInput(f"{name} must be a finite number of at least 0; got {value!r}")
    return float(value)


def check_within(name: str, value: Any, lowest: float, highest: float) -> float:
    """Check that a value is a number from ``lowest`` to ``highest``.

    Args:
        name: the argument's name, for the error.
        value: the value as given.
        lowest: the smallest value allowed.
        highest: the largest value allowed.

    Returns:
        The value as a float.

    Raises:
        BadInput: if the value lies outside or is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        raise BadInput(f"{name} must be a number from {lowest:g} to {highest:g}; got {value!r}")
    return float(value)


def check_bool(name: str, value: Any) -> bool:
    """Check that a value is True or False; any other word would count as True.

    Args:
        name: the argument's name, for the error.
        value: the value as given.

    Returns:
        The value.

    Raises:
        BadInput: if the value is neither.
    """
    if not isinstance(value, bool):
        raise BadInput(f"{name} must be true or false; got {value!r}")
    return value


def suggest(name: str, choices: Iterable[str]) -> str:
    """End the error about a wrong name with the most similar choice, if one is similar.

    Args:
        name: the wrong name; anything but text resembles no choice.
        choices: the names that exist.

    Returns:
        ``"; did you mean ...?"``, or an empty string.

    Example:
        >>> suggest("temprature", ["temperature", "vector"])
        "; did you mean 'temperature'?"
    """
    near = isinstance(name, str) and get_close_matches(name, [choice for choice in choices if choice != name], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_options(what: str, options: Iterable[str], accepted: list[str]) -> None:
    """Check that every option is one that ``what`` accepts.

    Args:
        what: the thing that takes options, as the error names it.
        options: names of the given options.
        accepted: names of the accepted options.

    Raises:
        BadInput: when an option is not accepted; the error names the first such option and the accepted ones.
    """
    for option in options:
        if option not in accepted:
            has = f"it has {', '.join(accepted)}" if accepted else "it has none"
            raise BadInput(f"{what} has no option {option!r}; {has}{suggest(option, accepted)}")


def rounding_of_sums(block: Floats) -> Floats:
    """Bound how far rounding to decimals can move each row's sum of probabilities from 1.

    Args:
        block: (b, k) probabilities.

    Returns:
        (b,) k/2 units of the last decimal of a row whose entries have at most six decimals; otherwise 0.

    Example:
        >>> rounding_of_sums(np.array([[0.333, 0.333, 0.333], [0.5, 0.5, 0.0]])).round(6).tolist()
        [0.0015, 0.15]
    """
    bound = np.zeros(len(block))
    rest = np.flatnonzero(np.isfinite(block).all(axis=1))
    for decimals in range(1, 7):
        scaled = block[rest] * 10.0**decimals
        rounded = np.abs(scaled - np.rint(scaled)).max(axis=1, initial=0.0) < 1e-6
        bound[rest[rounded]] = 0.5 * block.shape[1] * 10.0**-decimals + 1e-9
        rest = rest[~rounded]
    return bound


def as_path(path: Any, name: str = "path") -> Path:
    """Convert an argument to a `Path`.

    Args:
        path: a string, bytes or path object.
        name: name of the argument, for the error.

    Returns:
        The path; the file system is not touched.

    Raises:
        BadInput: when ``path`` is no path, or contains a NUL character.
    """
    try:
        text = os.fsdecode(path)
    except TypeError as error:
        raise BadInput(f"{name} must be a file's path; got {path!r}") from error
    if "\0" in text:
        raise BadInput(f"{name} must not hold a NUL character; got {text!r}")
    return Path(text)


def as_array(name: str, value: Any) -> NDArray[Any]:
    """Convert an argument to an array of any shape and dtype.

    Args:
        name: name of the argument, for the error.
        value: an array, a tensor (which is detached), a series or nested lists. bfloat16, which numpy lacks, becomes
            float32 exactly.

    Returns:
        The array, without a copy where that is possible.

    Raises:
        BadInput: when ``value`` is not rectangular, or has masked entries.
    """
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
            return array.astype(np.float64)  # no computation here is wider than float64
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def precision(scores: Any) -> float:
    """Return the unit of rounding of the numbers as given.

    Args:
        scores: an array, a tensor or nested lists of numbers.

    Returns:
        The machine epsilon of the dtype, 2⁻⁷ for bfloat16, and 0 for integers.

    Example:
        >>> precision(np.ones((1, 2), np.float16)) == 2**-10
        True
    """
    if str(getattr(scores, "dtype", "")) == "torch.bfloat16":
        return 2.0**-7
    dtype = as_array("scores", scores).dtype
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0


def check_real(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Check that an array holds real numbers.

    Args:
        name: name of the argument, for the error.
        array: the array.

    Returns:
        A read-only view of the array.

    Raises:
        BadInput: when the dtype is another one.
    """
    if array.dtype.kind not in "fiu":
        raise BadInput(f"{name} must hold real numbers; got dtype {array.dtype}; convert with .astype(float)")
    view = array.view()
    view.flags.writeable = False
    return view


def as_column(name: str, value: Any, n: int | None = None) -> NDArray[Any]:
    """Convert an argument to a column of values.

    Args:
        name: name of the argument, for the error.
        value: (n,) values of any dtype.
        n: the required length; None for any length of at least 1.

    Returns:
        (n,) array.

    Raises:
        BadInput: when ``value`` has another shape.

    Example:
        >>> as_column("prob", [0.5, 1.0], 2).tolist()
        [0.5, 1.0]
    """
    array = as_array(name, value)
    if array.ndim != 1 or len(array) == 0 or (n is not None and len(array) != n):
        raise BadInput(f"{name} must have shape ({'n' if n is None else n},), one per row; got shape {array.shape}")
    return array


def as_scores(name: str, value: Any) -> NDArray[Any]:
    """Convert an argument to a read-only array of scores, without looking at the numbers.

    Args:
        name: name of the argument, for the error.
        value: (n, k) real numbers with n >= 1 and k >= 2: an array, a tensor or nested lists.

    Returns:
        (n, k) read-only view of the numbers, in the dtype as given; only what numpy cannot hold is converted.

    Raises:
        BadInput: when ``value`` is no rectangular array of real numbers of that shape, or has masked entries.
    """
    array = check_real(name, as_array(name, value))
    if array.ndim != 2:
        raise BadInput(f"{name} must have shape (n, k), one row per example; got shape {array.shape}")
    n, k = array.shape
    if n == 0:
        raise BadInput(f"{name} must have at least one row; got shape {array.shape}")
    if k < 2:
        raise BadInput(f"{name} must have a column per class, two at least; got shape {array.shape}")
    return array


def explain_bad_logits(tops: Floats) -> str:
    """Write the error about logits that are not finite.

    Args:
        tops: (n,) largest entry of each row; at least one entry is not finite.

    Returns:
        A sentence with the first such row, the number of such rows and the remedy.
    """
    row = int(np.flatnonzero(~np.isfinite(tops))[0])
    top = tops[row]
    what = "NaN" if np.isnan(top) else "+inf" if top > 0 else "nothing but -inf"
    count = int((~np.isfinite(tops)).sum())
    hint = "a diverged model, or an overflow in half precision?"
    return (
        f"logits must be finite (or -inf beside finite values); row {row} has {what} "
        f"({count} of {len(tops)} rows are so): {hint} Drop or correct those rows"
    )
