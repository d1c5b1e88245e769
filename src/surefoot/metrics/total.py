"""Sums of numbers that do not depend on their order or split: whole multiples of 2⁻⁵⁷, in digits that ranks can add."""

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
    """(DIGITS,) the exact sum of finite ``values`` (n,), each cut to a multiple of 2⁻⁵⁷; such arrays can be added.

    >>> halves = total_of(np.array([0.1, 0.2])) + total_of(np.array([0.3]))
    >>> total_value(halves) == total_value(total_of(np.array([0.3, 0.2, 0.1])))
    True
    """
    fraction, exponent = np.frexp(np.abs(values))
    whole = (fraction * 2.0**53).astype(np.int64)  # value = whole · 2^(exponent − 53)
    shift = exponent.astype(np.int64) - 53 + _UNIT_BITS
    whole >>= np.clip(-shift, 0, 63)
    place, within = np.divmod(np.maximum(shift, 0), _BITS)
    digits = np.zeros(DIGITS, np.int64)
    sign = np.where(values < 0, -1, 1)
    # In two pieces, which a shift within a digit keeps below 2^63.
    for piece, offset in ((whole & (1 << 27) - 1, 0), (whole >> 27, 27)):
        at, by = np.divmod(within + offset, _BITS)
        shifted = piece << by
        np.add.at(digits, place + at, sign * (shifted & (1 << _BITS) - 1))
        np.add.at(digits, place + at + 1, sign * (shifted >> _BITS))
    return digits


def total_value(digits: Any, divisor: int = 1) -> float:
    """The sum that the digits hold, divided by ``divisor`` and rounded once."""
    whole = sum(int(digit) << (_BITS * place) for place, digit in enumerate(digits))
    return whole / (divisor << _UNIT_BITS)
