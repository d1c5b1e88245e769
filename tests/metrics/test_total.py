"""Sums that do not depend on order or split, against Python's exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.metrics.total import total_of, total_value

NUMBERS = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30)
UNIT = Fraction(1, 1 << 57)


def cut(value: float) -> Fraction:
    whole = abs(Fraction(value)) // UNIT * UNIT
    return whole if value >= 0 else -whole


@given(NUMBERS, st.randoms())
def test_equals_the_exact_sum_in_any_order_and_split(values, random):
    exact = sum((cut(value) for value in values), Fraction(0))
    shuffled = random.sample(values, len(values))
    half = len(values) // 2
    digits = total_of(np.array(shuffled[:half])) + total_of(np.array(shuffled[half:]))
    if abs(exact) < Fraction(10) ** 308:
        assert total_value(digits) == float(exact)
        assert total_value(digits, 3) == float(exact / 3)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 745.2, 1e-17, 1e300, 1.7976931348623157e308, -2.5])
def test_single_numbers(value):
    assert total_value(total_of(np.array([value]))) == float(cut(value))


def test_many_rows_do_not_overflow():
    values = np.full(1 << 20, np.nextafter(2.0**40, 0))
    assert total_value(total_of(values)) == np.nextafter(2.0**40, 0) * (1 << 20)
