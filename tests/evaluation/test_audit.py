"""The audit of overlapping groups: it finds a combination, and calibrated data are seldom accused."""

import itertools

import numpy as np
import pytest

from surefoot import Predictions
from surefoot.errors import BadInput
from surefoot.evaluation import audit


def sixty_four(n, seed, wrong=0.0, **columns):
    """Three columns of four values; the rows of one pair of values have a gap."""
    random = np.random.default_rng(seed)
    groups = {name: random.integers(0, 4, n) for name in "abc"}
    c = random.uniform(0.5, 1, n)
    share = np.where((groups["a"] == 1) & (groups["b"] == 2), np.clip(c - wrong, 0, 1), c)
    return Predictions.from_confidence(c, random.random(n) < share, groups=groups, **columns)


@pytest.mark.parametrize("sets", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_calibrated_data_are_seldom_accused(sets):
    found = [audit(sixty_four(2000, seed), ["a", "b", "c"], depth=3, draws=99)[0] for seed in range(sets)]
    slack = 3 * np.sqrt(0.05 * 0.95 / sets)
    assert np.mean([worst.p_adjusted <= 0.05 for worst in found]) <= 0.05 + slack
    assert np.mean([worst.score > 1.96 for worst in found]) > 0.7  # each score alone would accuse most of them


def test_clusters_are_seldom_accused():
    accused = 0
    for seed in range(40):
        p = sixty_four(400, seed)
        rows = np.repeat(np.arange(400), 5)
        groups = {name: column[rows] for name, column in p.groups.items()}
        copies = Predictions.from_confidence(p.confidence[rows], p.correct[rows], groups=groups, clusters=rows)
        accused += audit(copies, ["a", "b", "c"], draws=99)[0].p_adjusted <= 0.05
    assert accused <= 6  # 2 expected; copies taken for rows would accuse nearly all


def test_a_combination_is_found_and_exact():
    p = sixty_four(4000, 0, wrong=0.3)
    found = audit(p, ["a", "b", "c"], depth=2)
    assert found[0].values == {"a": "1", "b": "2"}
    assert found[0].p_adjusted < 0.01
    assert "a = 1 and b = 2: a gap of +" in str(found[0])
    assert [segment.score for segment in found] == sorted((s.score for s in found), reverse=True)
    c, z = p.confidence, p.correct - p.confidence
    for segment in audit(p, ["a", "b", "c"], depth=3, top=1000):
        rows = np.all([p.groups[name] == int(value) for name, value in segment.values.items()], axis=0)
        assert segment.n == rows.sum()
        assert segment.gap == pytest.approx(-z[rows].mean())
        assert segment.score == pytest.approx(abs(z[rows].sum()) / np.sqrt((c * (1 - c))[rows].sum()))
    count = sum(4**size for size in (1, 2, 3) for _ in itertools.combinations("abc", size))
    assert len(audit(p, ["a", "b", "c"], depth=3, top=1000)) == count


def test_small_segments_and_bad_input():
    p = sixty_four(100, 0)
    assert audit(p, "a", min_rows=101) == []
    with pytest.raises(BadInput, match="by must name"):
        audit(p, "d")
    with pytest.raises(BadInput, match="depth"):
        audit(p, "a", depth=0)
