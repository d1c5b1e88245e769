"""The binning convention against exact rational arithmetic, and sums that do not depend on order or split."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import BadInput
from surefoot.metrics.bins import SortedRows, bin_edges, bin_of, mass_table, ordered, tally_width, width_table
from surefoot.metrics.exact import carry, cell_sums

# Confidences with many ties, on the edges of many numbers of bins and one rounding beside them.
EDGES = [j / m for m in (1, 2, 3, 5, 7, 10, 15, 20) for j in range(m + 1)]
NEAR = [x for e in EDGES for x in (e, np.nextafter(e, 0), np.nextafter(e, 1)) if 0 <= x <= 1]
CONFIDENCE = st.one_of(st.sampled_from(NEAR), st.floats(0, 1, allow_subnormal=False), st.just(1e-20))
ROWS = st.lists(st.tuples(CONFIDENCE, st.booleans()), min_size=1, max_size=12)
BINS = st.sampled_from([1, 2, 3, 5, 7, 10, 15, 20, 50])


def columns(rows):
    c, hit = zip(*rows, strict=True)
    return np.array(c, dtype=np.float64), np.array(hit, dtype=bool)


def exact_width(rows, bins):
    """Σ_b |Σ (hit − c)| / n over the rational numbers, bins (a, b] with float64 edges, 0 in the first."""
    edges = [Fraction(float(e)) for e in bin_edges(bins)]
    sums = [Fraction(0)] * bins
    for c, hit in rows:
        c = Fraction(float(c))
        index = next((j for j in range(bins) if edges[j] < c <= edges[j + 1]), 0)
        sums[index] += int(hit) - c
    return sum(abs(s) for s in sums) / len(rows)


def exact_mass(rows, bins):
    """The same for bins of equal mass: sort, give each row its tie group's mean, cut by rank."""
    rows = sorted((Fraction(float(c)), hit) for c, hit in rows)
    n = len(rows)
    means = {}
    for c, _ in rows:
        group = [hit for other, hit in rows if other == c]
        means[c] = Fraction(sum(group), len(group)) - c
    z = [means[c] for c, _ in rows]
    cuts = sorted({j * n // bins for j in range(bins + 1)})
    return sum(abs(sum(z[a:b])) for a, b in pairwise(cuts)) / n


@given(ROWS, BINS)
def test_equal_width_against_rationals(rows, bins):
    table = width_table(tally_width(*columns(rows), bins))
    # Confidences below 1/16 are kept to 2^-58; everything else is exact until the last rounding.
    assert abs(Fraction(table.error(1)) - exact_width(rows, bins)) <= Fraction(2**-52)
    assert table.n == len(rows)


@given(ROWS, BINS)
def test_equal_mass_against_rationals(rows, bins):
    table = mass_table(*columns(rows), bins)
    assert abs(Fraction(table.error(1)) - exact_mass(rows, bins)) <= Fraction(1, 10**15)
    assert table.n == len(rows)
    assert len(table.count) == min(bins, len(rows))
    assert (table.count > 0).all()


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 15, 49, 100, 1000])
def test_bin_of_is_searchsorted_on_the_edges(bins):
    edges = bin_edges(bins)
    c = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1), np.random.default_rng(0).random(5000)])
    c = c.clip(0, 1)
    index = bin_of(c, bins)
    assert (index == np.searchsorted(edges[1:-1], c, "left")).all()
    assert index.min() == 0
    assert index.max() == bins - 1


@given(ROWS, BINS, st.randoms())
def test_order_and_split_do_not_matter_to_the_last_bit(rows, bins, random):
    c, hit = columns(rows)
    order = list(range(len(rows)))
    random.shuffle(order)
    cut = random.randrange(len(rows) + 1)
    whole = tally_width(c, hit, bins)
    c, hit = c[order], hit[order]
    parts = tally_width(c[:cut], hit[:cut], bins) + tally_width(c[cut:], hit[cut:], bins)
    carry(*parts[2:])
    assert (parts == whole).all()


@pytest.mark.parametrize("bins", [1, 7, 15])
@pytest.mark.parametrize("shape", ["uniform", "crowded at one", "ties"])
def test_many_blocks_and_orders(bins, shape):
    random = np.random.default_rng(0)
    n = 200_001
    c = {
        "uniform": random.random(n),
        "crowded at one": 1 - 10.0 ** (-17 * random.random(n)),
        "ties": random.choice([0.0, 0.2, 1 / 3, 0.8, 1.0], n),
    }[shape]
    hit = random.random(n) < c
    order = random.permutation(n)
    for table in (lambda c, hit: width_table(tally_width(c, hit, bins)), lambda c, hit: mass_table(c, hit, bins)):
        a, b = table(c, hit), table(c[order], hit[order])
        for name in ("lower", "upper", "count", "confidence", "accuracy", "residual"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    # Equal mass once more, from a full sort.
    a, b = mass_table(c, hit, bins), SortedRows.of(c, hit).table(np.arange(bins + 1) * n // bins)
    for name in ("lower", "upper", "count", "confidence"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    np.testing.assert_allclose(a.residual, b.residual, atol=1e-9)


def test_sums_stay_exact_where_naive_ones_drift():
    c = np.full(10**6, 0.1)
    table = width_table(tally_width(c, np.zeros(len(c), bool), 15))
    assert table.error(1) == 0.1
    assert abs(sum(c.tolist()) / len(c) - 0.1) > 1e-13  # what adding one by one gives


@given(ROWS)
def test_ordered_is_a_function_of_the_set_of_rows(rows):
    c, hit = columns(rows)
    order = np.lexsort((hit, c))
    a, b = ordered(c, hit)
    assert (a == c[order]).all()
    assert (b == hit[order]).all()
    again = ordered(c[::-1], hit[::-1])
    assert (again[0] == a).all()
    assert (again[1] == b).all()


@pytest.mark.parametrize("bins", [0, -1, 1.5, True, "15", None, 10_001, 10**22])
def test_bad_bins(bins, p):
    from surefoot import metrics

    for metric in (metrics.ece, metrics.adaptive_ece, metrics.classwise_ece, metrics.mce, metrics.rmsce):
        with pytest.raises(BadInput, match="bins must be an integer"):
            metric(p, bins=bins)
    with pytest.raises(BadInput, match="bins"):
        metrics.CalibrationState(bins)


def test_a_cell_outside_the_table_is_never_written():
    def outside(at, c, cell, *spare):
        cell[:] = 3

    with pytest.raises(AssertionError, match="outside"):
        cell_sums(np.full(5, 0.5), np.ones(5, bool), outside, 1)
