import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import BadInput
from surefoot.margins import log_moment, tail
from surefoot.margins.moments import tail_shares


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=20))
def test_against_the_definition(margins):
    assert log_moment(margins) == pytest.approx(float(np.log(np.mean(np.exp(-np.array(margins))))), abs=1e-9)


def test_where_the_moment_itself_overflows():
    assert log_moment([-1e5, 0.0]) == pytest.approx(1e5 - np.log(2))
    assert log_moment([1e5]) == -1e5
    assert log_moment([np.inf, np.inf]) == -np.inf
    assert log_moment([-np.inf, 0.0]) == np.inf
    for wrong in ([], [[1.0]], [np.nan]):
        with pytest.raises(BadInput):
            log_moment(wrong)


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=30), st.integers(1, 40))
def test_who_carries_the_moment(margins, count):
    heavy = tail(margins, count)
    shares = tail_shares(margins)
    assert shares.sum() == pytest.approx(1)
    assert len(heavy.rows) == min(count, len(margins))
    assert list(heavy.margins) == sorted(margins)[:count]
    assert heavy.shares.tolist() == shares[heavy.rows].tolist()
    heaviest = np.sort(shares)[::-1]
    assert heaviest[: heavy.half].sum() >= 0.5 - 1e-9
    assert heaviest[: heavy.half - 1].sum() < 0.5
    assert heavy.wrong == sum(m < 0 for m in margins)


def test_one_example_may_carry_it_all():
    heavy = tail([5.0, -900.0, 3.0, 4.0], 2)
    assert (heavy.rows[0], heavy.shares[0], heavy.half, heavy.wrong) == (1, 1.0, 1, 1)
    assert tail_shares([-np.inf, 0.0]).tolist() == [1.0, 0.0]
    with pytest.raises(BadInput, match="count"):
        tail([1.0], 0)
