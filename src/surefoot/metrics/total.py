"""Sums of numbers that do not depend on order or split: multiples of 2⁻⁵⁷, as digits that ranks can add."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIGITS", "total_of", "total_value"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNIT_BITS = 57  # as in `surefoot.metrics.exact`
_BITS = 32  # of a digit: sums over 2^30 rows, and over as many ranks as there are, stay within 64 bits
DIGITS = (1024 + _UNIT_BITS) // _BITS + 2  # of the largest double


def total_of(values: Floats) -> Ints:
    """Sum numbers exactly; sums of the returned arrays are the sums of all numbers.

    Args:
        values: (n,) finite numbers, n at most 2³⁰; a number is truncated to a multiple of 2⁻⁵⁷.

    Returns:
        (DIGITS,) int64 digits of the sum, in units of 2⁻⁵⁷.

    Example:
        >>> halves = total_of(np.array([0.1, 0.2])) + total_of(np.array([0.3]))
        >>> total_value(halves) == total_value(total_of(np.array([0.3, 0.2, 0.1])))
        True
    """
    fraction, exponent = np.frexp(np.abs(values))
    mantissa = (fraction * 2.0**53).astype(np.int64)  # value = mantissa · 2^(exponent − 53)
    shift = exponent.astype(np.int64) - 53 + _UNIT_BITS
    mantissa >>= np.clip(-shift, 0, 63)
    place, within = np.divmod(np.maximum(shift, 0), _BITS)
    digits = np.zeros(DIGITS, np.int64)
    sign = np.where(values < 0, -1, 1)
    # The mantissa is added in two pieces: after a shift within a digit a piece stays below 2^63.
    for piece, offset in ((mantissa & (1 << 27) - 1, 0), (mantissa >> 27, 27)):
        at, by = np.divmod(within + offset, _BITS)
        shifted = piece << by
        np.add.at(digits, place + at, sign * (shifted & (1 << _BITS) - 1))
        np.add.at(digits, place + at + 1, sign * (shifted >> _BITS))
    return digits


def total_value(digits: Any, divisor: int = 1) -> float:
    """Convert digits to the sum divided by a divisor, rounded once.

    Args:
        digits: (DIGITS,) integers from `total_of`, or sums of such arrays.
        divisor: positive integer, such as the number of values for a mean.

    Returns:
        The quotient as the nearest float.

    Example:
        >>> total_value(total_of(np.array([0.5, 0.25, 0.25])), divisor=2)
        0.5
    """
    total = sum(int(digit) << (_BITS * place) for place, digit in enumerate(digits))
    return total / (divisor << _UNIT_BITS)
