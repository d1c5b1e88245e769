"""Sums of numbers that do not depend on order or split: multiples of 2⁻⁵⁷, as digits that ranks can add.

Numbers below 2¹⁶ are split into multiples of 2⁻²⁰ and of 2⁻⁵⁷, whose float64 sums over a block of rows are exact.
Larger numbers, which losses and scores seldom are, are summed digit by digit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "DIGITS", "add_block", "carry_digits", "digits_of", "dot_of", "int_of", "total_of", "total_value"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNIT_BITS = 57  # as in `surefoot.metrics.exact`
_UNIT = 2.0**_UNIT_BITS
_BITS = 32  # of a digit: sums over 2^30 rows, and over as many ranks as there are, stay within 64 bits
_MASK = (1 << _BITS) - 1
DIGITS = (1024 + _UNIT_BITS) // _BITS + 2  # of the largest double
BLOCK = 1 << 14  # rows whose buffers stay in a core's cache; 2^16 rows at most, for exact sums of 36-bit numbers
_SMALL = 2.0**16
# Adding and subtracting 1.5·2^89 rounds a multiple of 1 below 2^73 to a multiple of 2^37.
_ROUND_HIGH = 1.5 * 2.0**89
_PIECE = 20  # bits of the factors of a product
_DOT_ROWS = 1 << 12  # products of at most 2^40 then sum to at most 2^52


def add_block(values: Floats, whole: Floats, high: Floats) -> int:
    """Sum a block of small numbers, exactly.

    Args:
        values: (n,) numbers below 2¹⁶ in size, n at most 2¹⁶; a number is truncated to a multiple of 2⁻⁵⁷.
        whole: (n,) memory to work in.
        high: (n,) memory to work in.

    Returns:
        The sum in units of 2⁻⁵⁷.

    Example:
        >>> add_block(np.array([0.5, 0.25]), np.empty(2), np.empty(2)) / 2**57
        0.75
    """
    np.multiply(values, _UNIT, out=whole)
    np.trunc(whole, out=whole)
    np.add(whole, _ROUND_HIGH, out=high)
    high -= _ROUND_HIGH
    whole -= high
    return int(high.sum()) + int(whole.sum())


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
    total, large = 0, np.zeros(DIGITS, np.int64)
    whole, high = np.empty((2, min(BLOCK, len(values))))
    for at in range(0, len(values), BLOCK):
        block = values[at : at + BLOCK]
        if not (block.max() < _SMALL and block.min() > -_SMALL):
            big = np.abs(block) >= _SMALL
            large += _large_total(block[big])
            block = np.where(big, 0.0, block)
        total += add_block(block, whole[: len(block)], high[: len(block)])
    return digits_of(total) + large


def _large_total(values: Floats) -> Ints:
    """(DIGITS,) digits of the sum of numbers of any size."""
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
        np.add.at(digits, place + at, sign * (shifted & _MASK))
        np.add.at(digits, place + at + 1, sign * (shifted >> _BITS))
    return digits


def dot_of(values: Floats, counts: Ints) -> int:
    """Sum the products of numbers and integers, exactly.

    Args:
        values: (n,) finite numbers of at least 0, each truncated to a multiple of 2⁻⁵⁷.
        counts: (n,) integers from 0 to 2⁴⁰.

    Returns:
        Σ counts · values in units of 2⁻⁵⁷.

    Example:
        >>> dot_of(np.array([0.5, 0.25]), np.array([3, 1 << 40])) / 2**57 - 1.5 == 2**38
        True
    """
    large = values >= _SMALL
    total = 0
    if large.any():
        total = sum(
            int(count) * (int(value) << _UNIT_BITS if value >= 2.0**53 else int(value * _UNIT))
            for value, count in zip(values[large].tolist(), counts[large], strict=True)
        )
        values = np.where(large, 0.0, values)
    for at in range(0, len(values), BLOCK):
        total += _dot_block(values[at : at + BLOCK], counts[at : at + BLOCK])
    return total


def _dot_block(values: Floats, counts: Ints) -> int:
    """The same of at most ``BLOCK`` numbers below 2¹⁶."""
    factors = [(0, (counts & (1 << _PIECE) - 1).astype(np.float64)), (1, (counts >> _PIECE).astype(np.float64))]
    factors = [(place, factor) for place, factor in factors if factor.any()]
    total = 0
    rest = np.trunc(values * _UNIT)
    for place in range(4):  # 73 bits
        above = np.floor(rest * 2.0**-_PIECE)
        piece = rest - above * 2.0**_PIECE
        rest = above
        for index, factor in factors:
            for at in range(0, len(piece), _DOT_ROWS):
                rows = slice(at, at + _DOT_ROWS)
                total += int(np.dot(factor[rows], piece[rows])) << _PIECE * (place + index)
    return total


def digits_of(total: int, digits: int = DIGITS) -> Ints:
    """Convert an integer to digits.

    Args:
        total: an integer.
        digits: number of digits.

    Returns:
        (digits,) int64 digits in base 2³², lowest first; the last one holds all that remains, with the sign.

    Raises:
        OverflowError: when the integer needs more digits.

    Example:
        >>> digits_of((7 << 32) + 5, 3).tolist()
        [5, 7, 0]
    """
    parts = [total >> _BITS * place & _MASK for place in range(digits - 1)]
    return np.array([*parts, total >> _BITS * (digits - 1)], np.int64)


def carry_digits(digits: Ints) -> None:
    """Carry along the first axis, in place: equal sums then have equal digits.

    Args:
        digits: (d, ...) digits in base 2³², lowest first; modified so that all but the last lie in [0, 2³²).

    Example:
        >>> digits = np.array([1 << 33, 1])
        >>> carry_digits(digits)
        >>> digits.tolist()
        [0, 3]
    """
    while (over := digits[:-1] >> _BITS).any():  # seldom more than twice
        digits[:-1] -= over << _BITS
        digits[1:] += over


def int_of(digits: Any) -> int:
    """Convert digits to the integer that they stand for.

    Args:
        digits: integers from `digits_of` or `total_of`, or sums of such arrays.

    Returns:
        The integer.

    Example:
        >>> int_of(digits_of(-(1 << 70)))
        -1180591620717411303424
    """
    return sum(int(digit) << (_BITS * place) for place, digit in enumerate(digits))


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
    return int_of(digits) / (divisor << _UNIT_BITS)
