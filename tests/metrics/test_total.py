"""Sums that do not depend on order or split, against Python's exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.metrics.total import DIGITS, carry_digits, digits_of, dot_of, int_of, total_of, total_value

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


SMALL = st.floats(0, 1e6, allow_subnormal=True)


@given(st.lists(st.tuples(SMALL | st.floats(0, 1e300), st.integers(0, 1 << 40)), max_size=30))
def test_products_with_integers_are_summed_exactly(pairs):
    exact = sum((cut(value) * count for value, count in pairs), Fraction(0))
    values, counts = np.array([v for v, _ in pairs], float), np.array([c for _, c in pairs], np.int64)
    assert Fraction(dot_of(values, counts), 1 << 57) == exact


def test_products_over_several_blocks():
    random = np.random.default_rng(0)
    values, counts = random.exponential(size=5000) * 100, random.integers(0, 1 << 40, 5000, endpoint=True)
    exact = sum((cut(v) * c for v, c in zip(values.tolist(), counts.tolist(), strict=True)), Fraction(0))
    assert Fraction(dot_of(values, counts), 1 << 57) == exact
    # As many bits as there can be: sums of 2^13 products of two pieces would be rounded.
    values = 65536 - random.integers(1, 1 << 20, 1 << 15) * 2.0**-37
    counts = (1 << 40) - random.integers(1, 1 << 10, 1 << 15)
    exact = sum(int(v * 2.0**57) * c for v, c in zip(values.tolist(), counts.tolist(), strict=True))
    assert dot_of(values, counts) == exact
    assert dot_of(np.full(1 << 12, values[0]), np.full(1 << 12, 1 << 40)) == int(values[0] * 2.0**57) << 52


def test_small_and_large_numbers_over_several_blocks():
    values = np.concatenate([np.random.default_rng(0).standard_normal(40_000) * 3, [1e200, -7e4, 65536.0, -65536.5]])
    exact = sum(map(cut, values.tolist()), Fraction(0))
    assert total_value(total_of(values)) == float(exact)
    extreme = np.full(1 << 15, np.nextafter(2.0**16, 0))
    assert int_of(total_of(extreme)) == int(extreme[0] * 2.0**57) << 15
    # As many bits as there can be: float64 sums of 2^18 of these would be rounded.
    units = (1 << 53) - np.random.default_rng(0).integers(1, 1 << 50, 1 << 20)
    exact = (int((units >> 30).sum()) << 30) + int((units & (1 << 30) - 1).sum())
    assert int_of(total_of(units * 2.0**-37)) == exact << 20


@given(st.lists(st.integers(-(1 << 200), 1 << 200), max_size=5))
def test_digits_carry_to_one_form(numbers):
    total = sum((digits_of(number) for number in numbers), np.zeros(DIGITS, np.int64))
    carry_digits(total)
    assert (total == digits_of(sum(numbers))).all()
    assert int_of(total) == sum(numbers)
