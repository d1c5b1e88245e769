import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import BadInput
from surefoot.margins import log_moment


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
