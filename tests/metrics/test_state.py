import numpy as np
import pytest

from surefoot import metrics
from surefoot.errors import BadInput

from ..conftest import random_predictions


def test_any_split_and_merge_gives_the_same_bits():
    p = random_predictions(5000, 4)
    whole = metrics.CalibrationState(10).update(p)
    random = np.random.default_rng(0)
    order = random.permutation(5000)
    state = metrics.CalibrationState(10)
    for rows in np.array_split(order, 37):
        state = metrics.CalibrationState(10).update(p.take(rows)).merge(state)
    assert (state.sums == whole.sums).all()
    assert state.compute() == whole.compute()


def test_equals_the_metrics_of_all_rows_at_once():
    p = random_predictions(3000, 5)
    found = metrics.CalibrationState().update(p).compute()
    for name in ("ece", "mce", "rmsce", "accuracy"):
        assert found[name] == getattr(metrics, name)(p)
        assert found[name].n == 3000
    np.testing.assert_allclose(found["confidence"], p.confidence.mean(), rtol=1e-13)


def test_the_state_is_an_array_that_ranks_can_add():
    p = random_predictions(1000, 3)
    ranks = [metrics.CalibrationState().update(p.take(slice(r, None, 4))).sums for r in range(4)]
    total = metrics.CalibrationState(15, np.sum(ranks, axis=0))
    assert total.compute()["ece"] == metrics.ece(p)
    assert total.sums.nbytes == 4 * 15 * 8


def test_bad_use(p):
    with pytest.raises(BadInput, match="no rows"):
        metrics.CalibrationState().compute()
    with pytest.raises(BadInput, match="same bins"):
        metrics.CalibrationState(10).merge(metrics.CalibrationState(15))
    with pytest.raises(BadInput, match="sums must be"):
        metrics.CalibrationState(10, np.zeros((4, 9), int))
    with pytest.raises(BadInput, match="sums must be"):
        metrics.CalibrationState(10, np.zeros((4, 10)))
    for sums in ([[1, 0], [5, 0], [0, 0], [0, 0]], [[-1, 0], [0, 0], [0, 0], [0, 0]]):
        with pytest.raises(BadInput, match="not of a state"):
            metrics.CalibrationState(2, sums)
    with pytest.raises(BadInput, match="CalibrationState only"):
        metrics.CalibrationState().merge(None)
    assert metrics.CalibrationState(15, metrics.CalibrationState().update(p).sums.astype(np.uint64)).n == 500
