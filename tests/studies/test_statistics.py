"""Statistics against scipy, and against cases worked by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from surefoot.statistics import correlated, holm, lead, paired_t, pearson, sign_flips, spearman, summarise

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("n", [3, 10, 57])
def test_correlations(n):
    x = RANDOM.standard_normal(n)
    y = x + RANDOM.standard_normal(n)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    ties = RANDOM.integers(0, 3, n)
    ties[:2] = 0, 1
    assert spearman(x, ties) == pytest.approx(stats.spearmanr(x, ties).statistic)


def test_correlations_that_are_none():
    assert math.isnan(pearson([1, 2], [1, 2]))
    assert math.isnan(pearson([1, 1, 1], [1, 2, 3]))
    assert math.isnan(spearman([], []))
    assert math.isnan(lead([1, 2, 3], [1, 2, 3])[0])


@pytest.mark.parametrize("shift", [-4, -1, 0, 2, 7])
@pytest.mark.parametrize("sign", [1, -1])
def test_who_leads(shift, sign):
    """A bump that one shows ``shift`` places before the other."""
    t = np.arange(80.0)
    one, other = np.exp(-(((t - 40) / 6) ** 2)), sign * np.exp(-(((t - 40 - shift) / 6) ** 2))
    ahead, r = lead(one, other)
    assert ahead == shift
    x, y = stats.zscore(one), stats.zscore(other)
    by_hand = sum(x[t] * y[t + shift] for t in range(80) if 0 <= t + shift < 80) / 80
    assert r == pytest.approx(by_hand)


def test_summaries():
    x = [0.3, 0.1, 0.7, 0.4]
    found = summarise([*x, math.nan])
    assert (found.mean, found.std, found.n) == (pytest.approx(np.mean(x)), pytest.approx(np.std(x, ddof=1)), 4)
    theirs = stats.bootstrap((x,), np.mean, method="percentile", n_resamples=20000, rng=1).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(theirs), abs=0.01)
    assert summarise(x) == summarise(x)
    one = summarise([2.0])
    assert (one.mean, one.n) == (2.0, 1)
    assert math.isnan(one.std)
    assert math.isnan(summarise([]).mean)


def test_seeds_of_one_setting_count_once():
    """Copies add nothing: interval and error are those of the groups' means, never those of all values."""
    x = [0.3, 0.1, 0.7, 0.4]
    alone, copied = summarise(x), summarise(np.repeat(x, 3), groups=np.repeat(range(4), 3).tolist())
    assert (copied.mean, copied.n) == (pytest.approx(alone.mean), 12)
    assert (copied.low, copied.high) == pytest.approx((alone.low, alone.high), abs=0.02)
    assert copied.error == pytest.approx(alone.error) == pytest.approx(stats.sem(x))
    assert summarise(np.repeat(x, 3)).error < 0.6 * copied.error
    lone = summarise(x, groups=["one"] * 4)
    assert lone.std == alone.std
    assert all(map(math.isnan, (lone.low, lone.high, lone.error)))


def test_what_differs_inside_groups_counts_where_groups_are_alike():
    """Two groups with the same mean: drawing them whole would give an interval of no width."""
    x = [0.1, 0.5, 0.9, 0.2, 0.5, 0.8]
    apart, found = summarise(x), summarise(x, groups="aaabbb")
    assert found.error == apart.error == pytest.approx(stats.sem(x))
    assert found.high - found.low == pytest.approx(apart.high - apart.low, rel=0.15)


def test_groups_lose_what_is_not_finite():
    found = summarise([1.0, math.nan, 3.0, math.nan], groups=["a", "a", "b", "c"])
    assert (found.mean, found.n, found.error) == (2.0, 2, pytest.approx(1.0))


def test_rank_correlation_draws_groups_together():
    x = np.random.default_rng(2).standard_normal((8, 2))
    x[:, 1] += 2 * x[:, 0]
    pairs = [tuple(row) for row in x]
    alone = correlated(pairs)
    copied = correlated([*pairs, *pairs, (math.nan, 1.0)], groups=[*range(8), *range(8), 9])
    assert copied.n == 16
    assert copied.mean == pytest.approx(alone.mean)
    assert copied.high - copied.low == pytest.approx(alone.high - alone.low, rel=0.2)


@pytest.mark.parametrize("n", [2, 5, 30])
def test_paired_t(n):
    x, y = RANDOM.standard_normal(n), RANDOM.standard_normal(n)
    assert paired_t(x, y) == pytest.approx(stats.ttest_rel(x, y).pvalue)
    assert paired_t(x, y) == paired_t(y, x)


def test_differences_without_noise():
    assert paired_t([1, 2, 3], [1, 2, 3]) == 1.0
    assert math.isnan(paired_t([1.0, 2.0, 3.0], [0.0, 1.0, 2.0]))
    assert math.isnan(paired_t([0.8607, 0.8412, 0.8217], [0.8774, 0.8579, 0.8384]))  # equal but for rounding
    assert sign_flips([1, 2, 3], [1, 2, 3]) == 1.0
    assert math.isnan(paired_t([1], [2]))
    assert math.isnan(sign_flips([], []))


def test_sign_flips_are_all_patterns():
    """Differences 1, 2, 3: of the eight sums only ±6 are as far out; of 1, 2, -3 (sum 0) all are."""
    assert sign_flips([1, 2, 3], [0, 0, 0]) == 2 / 8
    assert sign_flips([1, 2, -3], [0, 0, 0]) == 1.0
    x, y = RANDOM.standard_normal(8), RANDOM.standard_normal(8) + 0.5
    theirs = stats.permutation_test(
        (x, y), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert sign_flips(x, y) == pytest.approx(theirs)
    x, y = RANDOM.standard_normal(40), RANDOM.standard_normal(40) + 0.5
    assert sign_flips(x, y) == pytest.approx(paired_t(x, y), abs=0.03)


def test_holm_by_hand():
    """Sorted 0.005, 0.011, 0.02, 0.04 by 4, 3, 2, 1: 0.02, 0.033, 0.04, 0.04; never falling."""
    assert holm([0.02, 0.005, 0.04, 0.011]) == pytest.approx([0.04, 0.02, 0.04, 0.033])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    found = holm([0.01, math.nan, 0.03])
    assert found[0] == pytest.approx(0.02)
    assert math.isnan(found[1])
    assert holm([]) == []
