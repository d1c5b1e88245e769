"""Calibration by group: each group's gap and ECE with intervals, and tests of "the same in all groups".

Here Z = happened − prob are the residuals of the events, w the weights, and gap_g = −Σ w Z / Σ w over group g.

*The same in all groups.* Q = Σ_g (gap_g − ḡ)² / v_g with the precision-weighted mean ḡ is compared with χ² of G − 1
degrees of freedom. A calibrated group has v_g = Σ w² c (1 − c) / W_g². Groups that share one error do not have that
variance: with it, twenty groups of one overconfident network are "different" in 34 to 99 % of simulated sets. Therefore
c (1 − c) is also computed at c − ḡ, the larger sum counts, and all v_g are multiplied by the ratio of the squared
residuals to the sums where the ratio exceeds 1. With clusters, v_g comes from sums over clusters, and Q is compared
with the Q of random signs of the clusters, because clusters may have rows in several groups.

*The worst groups.* The test of gap_g = 0 uses the larger of the stated and the observed variance and, for confidences
near 1, a Pearson III curve with the skewness of the errors. With clusters, both are enlarged by the design effect of
all rows, and the p-value is at least that of a t test of sums over clusters. Holm's correction covers all tested groups
of all columns.

References:
    Cochran (1954), "The Combination of Estimates from Different Experiments", for Q.
    Holm (1979), "A simple sequentially rejective multiple test procedure".
    Liang & Zeger (1986), "Longitudinal Data Analysis Using Generalized Linear Models", for sums over clusters.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bin_noise import square_root
from surefoot.metrics.bins import bin_of, check_bins
from surefoot.metrics.ece import cluster_bin_sums, ece
from surefoot.metrics.gap import gap_interval
from surefoot.metrics.paired import standard_error
from surefoot.metrics.reliability import wilson
from surefoot.metrics.scores import accuracy
from surefoot.predictions import Events, Predictions, check_predictions
from surefoot.statistics import holm
from surefoot.text import plain
from surefoot.validation import check_fraction, check_int, suggest

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Group", "Groups", "SameInAll", "by_group", "codes_of", "columns_of", "design_effect"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_GROUPS = 10_000
_FEWEST_CLUSTERS = 10  # fewer cluster sums do not tell their variance
_DRAWS = 1000  # of bin sums, as for the intervals of all rows
_FLIPS = 999
_SHOWN = 20  # groups of a column in the terminal
_NARROWEST = 12  # of the column with the names of groups
_NAMED = 3  # worst groups in sentences
MISSING = "(missing)"


@dataclass(frozen=True)
class Group:
    """The rows of one value of a column, and how calibrated the predictions of these rows are.

    Attributes:
        column: name of the column.
        value: the value, as text.
        n: number of rows.
        weight: sum of the weights; n without weights.
        confidence: mean confidence, or mean probability of the events.
        accuracy: share of rows that are right.
        accuracy_low: lower end of the interval of the accuracy.
        accuracy_high: upper end.
        gap: mean confidence − share of events that happened.
        gap_low: lower end of the interval of the gap; it is for this group alone.
        gap_high: upper end.
        ece: expected calibration error.
        ece_low: lower end of the interval of the ECE.
        ece_high: upper end.
        p_value: of "the gap of this group is 0"; None for a group that is too small to test.
        p_adjusted: the p-value after Holm's correction over all tested groups.
        positive_gap: for predictions of two classes, mean P(positive) − share of positives; otherwise None.
        positive_low: lower end of the interval of ``positive_gap``.
        positive_high: upper end.
        positive_p: of "``positive_gap`` is 0".
        positive_adjusted: ``positive_p`` after Holm's correction, over the same tests as ``p_adjusted``.
    """

    column: str
    value: str
    n: int
    weight: float
    confidence: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    gap: float
    gap_low: float
    gap_high: float
    ece: float
    ece_low: float
    ece_high: float
    p_value: float | None = None
    p_adjusted: float | None = None
    positive_gap: float | None = None
    positive_low: float | None = None
    positive_high: float | None = None
    positive_p: float | None = None
    positive_adjusted: float | None = None

    @property
    def tested(self) -> bool:
        """Whether the group is large enough for the tests."""
        return self.p_value is not None

    @property
    def smallest(self) -> float:
        """The smallest adjusted p-value of the group; 1 for a group that is not tested."""
        found = [p for p in (self.p_adjusted, self.positive_adjusted) if p is not None]
        return min(found, default=1.0)


@dataclass(frozen=True)
class SameInAll:
    """The test of "the gap is the same in all groups of this column".

    Attributes:
        column: name of the column.
        event: which events' gap; ``"top"`` for the predicted class.
        groups: number of tested groups.
        left_out: number of groups that are too small.
        statistic: Q.
        p_value: of the test; None for fewer than two groups, or fewer than ten clusters.
        lowest: smallest gap of the tested groups.
        highest: largest gap of the tested groups.
        method: ``"chi-squared"``, ``"signs of clusters"`` or ``"none"``.
    """

    column: str
    event: str
    groups: int
    left_out: int
    statistic: float | None
    p_value: float | None
    lowest: float | None
    highest: float | None
    method: str


@dataclass(frozen=True)
class Groups:
    """All groups of the chosen columns, with the tests.

    Attributes:
        groups: one entry for each group of each column.
        tests: one test for each column; two for predictions of two classes.
        min_rows: smallest number of rows of a tested group.
        level: coverage of the intervals.
        clustered: whether rows belong to clusters.
    """

    groups: list[Group]
    tests: list[SameInAll]
    min_rows: int
    level: float
    clustered: bool = False

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the tests say: differences between groups, the worst groups, the groups that are too small."""
        said = [_difference(test) for test in self.tests]
        tested = [group for group in self.groups if group.tested]
        two = any(group.positive_p is not None for group in tested)
        checks = f"{len(tested) * (1 + two)} tests" if two else f"{len(tested)} groups"
        worst = sorted((group for group in tested if group.smallest < 0.05), key=lambda group: group.smallest)
        said += [_worst(group, self.level, checks) for group in worst[:_NAMED]]
        if (more := len(worst) - _NAMED) > 0:
            have = "has" if more == 1 else "have"
            said.append(f"{_count(more, 'more group')} {have} a gap beyond noise after the same correction.")
        if tested and not worst:
            said.append(f"No group's gap differs from 0 by more than noise, after Holm's correction over {checks}.")
        small = len(self.groups) - len(tested)
        if small:
            few = " or fewer than 10 clusters" if self.clustered else ""
            which = f"{_count(small, 'group')} with fewer than {self.min_rows} rows{few}"
            said.append(f"{which} {_be(small)} listed and not tested.")
        return tuple(said)

    def rows(self) -> list[tuple[str, ...]]:
        """The table as text: group, n, accuracy, gap and ECE with intervals, adjusted p-value.

        Returns:
            One tuple of cells for each group.
        """
        two = any(group.positive_gap is not None for group in self.groups)
        return [_cells(group, two) for group in self.groups]

    def headings(self) -> tuple[str, ...]:
        """The headings of `rows`.

        Returns:
            One heading for each cell.
        """
        two = any(group.positive_gap is not None for group in self.groups)
        level = f"{self.level:.0%}"
        return (
            "group", "n", "accuracy", "gap", level, "ECE", level, *(("P(positive)", level) if two else ()), "Holm p",
        )  # fmt: skip

    def to_list(self) -> list[dict[str, Any]]:
        """The groups as plain values.

        Returns:
            One dictionary for each group.
        """
        return [dataclasses.asdict(group) for group in self.groups]

    def print_to(self, console: Console) -> None:
        """Print one table; of a column with many groups, those with the smallest p-values.

        Args:
            console: a console of the package rich.
        """
        from rich.table import Table
        from rich.text import Text

        kept = self._fitting(console.width)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        for index in kept:
            heading = self.headings()[index]
            table.add_column(heading, justify="right" if index else "left", no_wrap=index > 0, overflow="fold")
        cells, hidden, column = self.rows(), 0, None
        shown = self._shown()
        for index, group in enumerate(self.groups):
            if group.column != column:
                column = group.column
                table.add_row(Text(plain(column), style="bold"))
            if index not in shown:
                hidden += 1
                continue
            style = "red" if group.smallest < 0.05 else "" if group.tested else "dim"
            first, *rest = (cells[index][each] for each in kept)
            table.add_row(Text(f"  {first}", style=style), *(Text(cell, style=style) for cell in rest))
        console.print(table)
        if hidden:
            console.print(f"{_count(hidden, 'more group')} {_be(hidden)} not shown; the JSON output lists all of them.")

    def _fitting(self, width: int) -> list[int]:
        """The columns that fit a terminal: accuracy goes first, then the intervals other than the gap's."""
        headings, kept = self.headings(), list(range(len(self.headings())))
        cells = [headings, *self.rows()]
        wide = [max(len(row[index]) for row in cells) for index in kept]
        for index in (2, 6, *((8,) if len(headings) > 8 else ())):
            if _NARROWEST + sum(wide[each] + 1 for each in kept[1:]) <= width:
                break
            kept.remove(index)
        return kept

    def _shown(self) -> set[int]:
        shown: set[int] = set()
        for column in dict.fromkeys(group.column for group in self.groups):
            own = [index for index, group in enumerate(self.groups) if group.column == column]
            # The smallest p-values first, then the largest groups.
            own.sort(key=lambda index: (self.groups[index].smallest, -self.groups[index].n))
            shown.update(own[:_SHOWN])
        return shown

    def html(self) -> str:
        """The table as HTML.

        Returns:
            One ``table`` element.
        """
        head = "".join(f"<th>{html.escape(heading)}</th>" for heading in ("column", *self.headings()))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in (plain(group.column), *cells)) + "</tr>"
            for group, cells in zip(self.groups, self.rows(), strict=True)
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def by_group(
    p: Predictions,
    by: str | Sequence[str],
    bins: int = 15,
    *,
    level: float = 0.95,
    min_rows: int = 30,
    seed: int = 0,
) -> Groups:
    """Measure calibration in each group of each column, and test whether groups differ.

    The docstring of the module describes the tests.

    Args:
        p: the predictions, whose ``groups`` have the columns.
        by: name of a column, or several names.
        bins: number of bins of the ECE.
        level: coverage of the intervals, between 0 and 1.
        min_rows: smallest number of rows of a group that is tested, at least 2. Weighted rows count as their effective
            number (Σw)²/Σw².
        seed: seed of the draws behind the intervals of the ECE, and of the signs of clusters.

    Returns:
        The groups in the order of the columns and of their values, and the tests.

    Raises:
        BadInput: when a column is unknown, has more than 10,000 values, or an argument is out of range.

    Example:
        >>> probs = [[0.9, 0.1]] * 200
        >>> labels = ([0] * 9 + [1]) * 10 + ([0] * 6 + [1] * 4) * 10
        >>> p = Predictions.from_probs(probs, labels, groups={"country": ["fr"] * 100 + ["it"] * 100})
        >>> found = by_group(p, "country")
        >>> [(group.value, group.n, round(group.gap, 3), group.smallest < 0.05) for group in found.groups]
        [('fr', 100, 0.0, False), ('it', 100, 0.3, True)]
        >>> found.tests[0].p_value < 0.001
        True
    """
    check_predictions("p", p)
    check_bins(bins)
    check_fraction("level", level)
    check_int("min_rows", min_rows, 2)
    check_int("seed", seed, 0)
    events = p.events()
    two = p.form == "classes" and p.positive is not None
    positive = p.events("positive") if two else None
    kinds = [events] if positive is None else [events, positive]
    groups: list[Group] = []
    tests: list[SameInAll] = []
    for column in columns_of(p, by):
        values, owner = codes_of(column, p.groups[column])
        own = _groups_of(p, events, positive, column, values, owner, bins, level, min_rows, seed)
        groups += own
        tests += [_same_in_all(e, owner, _long(e, owner, min_rows), column, seed) for e in kinds]
    tested = [(group.p_value, group.positive_p) for group in groups]
    family = [math.nan if value is None else value for pair in tested for value in pair]
    adjusted = [None if math.isnan(value) else value for value in holm(family)]
    groups = [
        dataclasses.replace(group, p_adjusted=adjusted[2 * index], positive_adjusted=adjusted[2 * index + 1])
        for index, group in enumerate(groups)
    ]
    return Groups(groups, tests, int(min_rows), float(level), p.clusters is not None)


# --- columns ----------------------------------------------------------------------------------------


def columns_of(p: Predictions, by: Any) -> list[str]:
    """Check names of columns of groups.

    Args:
        p: the predictions.
        by: a name, or several.

    Returns:
        The names, each once.

    Raises:
        BadInput: when there is no such column, or no name.
    """
    names = [by] if isinstance(by, str) else list(by) if isinstance(by, list | tuple) else None
    if not names or not all(isinstance(name, str) for name in names):
        raise BadInput(f"by must be a name of a column of groups, or a list of names; got {by!r}")
    for name in names:
        if name not in p.groups:
            known = ", ".join(map(repr, list(p.groups)[:8])) or "none: give groups={'country': [...]} with the rows"
            raise BadInput(f"by must name a column of groups; got {name!r}{suggest(name, p.groups)}. Columns: {known}")
    return list(dict.fromkeys(names))


def codes_of(name: str, column: NDArray[Any]) -> tuple[list[str], Ints]:
    """Number the groups of a column.

    Args:
        name: name of the column, for the error.
        column: (n,) values of any kind; None, NaN and empty text are one group, ``"(missing)"``.

    Returns:
        The values as text, in their order (numbers by size), and the (n,) number of each row's group.

    Raises:
        BadInput: when there are more than 10,000 groups.

    Example:
        >>> values, owner = codes_of("age", np.array([10, 9, 10]))
        >>> values, owner.tolist()
        (['9', '10'], [1, 0, 1])
    """
    array = np.asarray(column)
    if array.dtype.kind == "f":
        found, inverse = np.unique(array, return_inverse=True)  # one NaN at the end
        names = [MISSING if math.isnan(value) else f"{value:g}" for value in found.tolist()]
        if len(set(names)) < len(names):
            names = [MISSING if math.isnan(value) else repr(value) for value in found.tolist()]
    elif array.dtype.kind in "iub":
        found, inverse = np.unique(array, return_inverse=True)
        names = [str(value) for value in found.tolist()]
    else:
        texts = np.array([_text(value) for value in array.tolist()])
        found, inverse = np.unique(texts, return_inverse=True)
        names = found.tolist()
    if len(names) > _MOST_GROUPS:
        raise BadInput(
            f"{name!r} has {len(names):,} different values, more than {_MOST_GROUPS:,}; by is for groups of rows: cut "
            "numbers into ranges first"
        )
    return names, inverse.astype(np.int64)


def _text(value: Any) -> str:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# --- each group -------------------------------------------------------------------------------------


def _groups_of(
    p: Predictions,
    e: Events,
    positive: Events | None,
    column: str,
    values: list[str],
    owner: Ints,
    bins: int,
    level: float,
    min_rows: int,
    seed: int,
) -> list[Group]:
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=len(values)))
    effect = design_effect(e)
    found, start = [], 0
    for value, end in zip(values, ends.tolist(), strict=True):
        rows = order[start:end]
        start = end
        own = e.take(rows)
        right, right_low, right_high = _accuracy(p, rows, level)
        error = float(ece(own, bins))
        share, said = (float(own.weights @ each) / own.total for each in (own.happened, own.prob))
        low, high = gap_interval(own, level)
        tested = _rows_count(own) >= min_rows and _clusters_count(own) >= _FEWEST_CLUSTERS
        extra: dict[str, Any] = {}
        if positive is not None:
            chosen = positive.take(rows)
            extra["positive_gap"] = -float(chosen.weights @ chosen.residual) / chosen.total
            extra["positive_low"], extra["positive_high"] = gap_interval(chosen, level)
            extra["positive_p"] = _p_value(chosen, design_effect(positive)) if tested else None
        found.append(
            Group(
                column,
                value,
                len(own),
                own.total,
                said,
                right,
                right_low,
                right_high,
                said - share,
                low,
                high,
                error,
                *_ece_interval(own, error, bins, level, seed),
                p_value=_p_value(own, effect) if tested else None,
                **extra,
            )
        )
    return found


def _rows_count(e: Events) -> float:
    """Number of rows, or the effective number if that is smaller."""
    return min(float(len(e)), e.effective * (1 + 1e-12))


def _clusters_count(e: Events) -> float:
    return math.inf if e.cluster is None else len(np.unique(e.cluster))


def _long(e: Events, owner: Ints, min_rows: int) -> NDArray[np.bool_]:
    """Which groups have enough rows to be compared with the others."""
    w = e.weights
    count = np.bincount(owner)
    effective = np.bincount(owner, w) ** 2 / np.bincount(owner, w * w)
    return np.minimum(count, effective * (1 + 1e-12)) >= min_rows


def _accuracy(p: Predictions, rows: Ints, level: float) -> tuple[float, float, float]:
    """Accuracy of some rows with its interval: Wilson's, or Student's with weights or clusters."""
    from scipy.special import stdtrit

    q = p.take(rows)
    value = float(accuracy(q))
    if q.weights is None and q.clusters is None and q.soft_labels is None:
        low, high = wilson(np.array([value]), np.array([float(len(q))]), level)
        return value, float(low[0]), float(high[0])
    right = q.correct.astype(np.float64)
    weighted = right if q.weights is None else right * q.weights
    owner = None if q.clusters is None else np.unique(q.clusters, return_inverse=True)[1]
    error, units = standard_error(weighted, q.weights, owner)
    if units < 2:
        return value, 0.0, 1.0
    half = float(stdtrit(units - 1, (1 + level) / 2)) * error
    return value, max(0.0, value - half), min(1.0, value + half)


def _ece_interval(e: Events, value: float, bins: int, level: float, seed: int) -> tuple[float, float]:
    """The bias-corrected interval of the ECE from normal bin sums, on the scale of squares.

    As `surefoot.metrics.interval`, and also for weights and clusters: the sums have the covariance Σ_g R_g R_gᵀ.
    """
    z = e.weights * e.residual
    cell = bin_of(e.prob, bins)
    sums = np.bincount(cell, z, bins)
    noise = np.random.default_rng(seed).standard_normal((_DRAWS, bins))
    if e.cluster is None:
        drawn = noise * np.sqrt(np.bincount(cell, z * z, bins))
    else:
        compact = Events.trusted(e.prob, e.happened, e.weight, np.unique(e.cluster, return_inverse=True)[1])
        by_cluster = cluster_bin_sums(compact, bins)
        drawn = noise @ square_root((by_cluster.T @ by_cluster).toarray()).T
    squares = (np.abs(drawn + sums).sum(axis=1) / e.total) ** 2
    mean = float(squares.mean())
    tails = np.quantile(squares, [(1 - level) / 2, (1 + level) / 2], method="nearest")
    low, high = (math.sqrt(max(0.0, float(tail) + 2 * (value**2 - mean))) for tail in tails)
    return low, high


def design_effect(e: Events) -> float:
    """How far clusters enlarge the variance of Σ w Z over that of independent rows, at least 1.

    A group in which nothing went wrong has small sums over clusters. The effect of all rows is a floor for it.

    Args:
        e: all events.

    Returns:
        Σ_clusters (Σ w Z)² / Σ w² c (1 − c), at least 1; 1 without clusters.

    Example:
        >>> design_effect(Events([0.5] * 4, [1, 1, 0, 0], cluster=[0, 0, 1, 1]))
        2.0
    """
    if e.cluster is None:
        return 1.0
    w, c = e.weights, e.prob
    sums = np.bincount(np.unique(e.cluster, return_inverse=True)[1], w * e.residual)
    return max(1.0, float(sums @ sums) / max(float(w**2 @ (c * (1 - c))), 1e-300))


def _p_value(e: Events, effect: float) -> float:
    """Two-sided p-value of "the gap of these events is 0"; the effect is `design_effect` of all events."""
    from scipy.special import stdtr
    from scipy.stats import norm, pearson3

    w, z, c = e.weights, e.residual, e.prob
    total, mean = float(w @ z), float(w @ z) / e.total
    stated = effect * float(w**2 @ (c * (1 - c)))
    owner = np.arange(len(e)) if e.cluster is None else np.unique(e.cluster, return_inverse=True)[1]
    sums = np.bincount(owner, w * (z - mean))
    count = len(sums)
    variance = max(stated, count / (count - 1) * float(sums @ sums))
    if variance <= 0:
        return 1.0 if abs(total) < 1e-12 else 0.0
    deviation = math.sqrt(variance)
    # Clusters of m equal rows have m² times the third moment of as many independent rows, and m times their variance.
    skew = effect**2 * float(w**3 @ (c * (1 - c) * (1 - 2 * c))) / deviation**3
    # Counts change in steps of 1: half a step of continuity correction.
    step = 0.5 if e.plain and e.cluster is None else 0.0
    size = max(0.0, abs(total) - step) / deviation
    side = math.copysign(1.0, total) * skew
    tail = float(norm.sf(size)) if abs(side) < 1e-6 else float(pearson3.sf(size, side))
    if e.cluster is not None:
        tail = max(tail, float(stdtr(count - 1, -size)))
    return min(1.0, 2 * tail)


# --- the same in all groups -------------------------------------------------------------------------


def _same_in_all(e: Events, owner: Ints, large: NDArray[np.bool_], column: str, seed: int) -> SameInAll:
    from scipy.special import chdtrc

    tested = int(large.sum())
    left_out = len(large) - tested
    if tested < 2 or _clusters_count(e) < _FEWEST_CLUSTERS:
        return SameInAll(column, e.name, tested, left_out, None, None, None, None, "none")
    number = np.cumsum(large) - 1
    rows = np.flatnonzero(large[owner])
    kept, group = e.take(rows), number[owner[rows]]

    def total(values: Floats) -> Floats:
        return np.bincount(group, values, tested).astype(np.float64)

    w, z, c = kept.weights, kept.residual, kept.prob
    mass = total(w)
    gaps = -total(w * z) / mass
    common = -float(w @ z) / kept.total
    shifted = np.clip(c - common, 0.0, 1.0)
    base = np.maximum(total(w**2 * c * (1 - c)), total(w**2 * shifted * (1 - shifted)))
    base = np.maximum(base, 1e-12 * mass**2)  # confidences of exactly 1 state no variance at all
    if kept.cluster is None:
        squares = float(w**2 @ (z + gaps[group]) ** 2) * len(kept) / (len(kept) - tested)
        variance = base * max(1.0, squares / float(base.sum())) / mass**2
        statistic = float(_spread(gaps, variance))
        p_value, method = float(chdtrc(tested - 1, statistic)), "chi-squared"
    else:
        from scipy.sparse import csr_array

        cluster = np.unique(kept.cluster, return_inverse=True)[1]
        count = int(cluster.max()) + 1
        sums = csr_array((-w * (z + common), (cluster, group)), shape=(count, tested))
        base = base * design_effect(kept)
        variance = np.maximum(base, np.asarray(sums.multiply(sums).sum(axis=0)).ravel()) / mass**2
        statistic = float(_spread(gaps, variance))
        random, extreme = np.random.default_rng(seed), 0
        for _ in range(_FLIPS):
            signs = random.integers(0, 2, count) * 2.0 - 1.0
            extreme += _spread((signs @ sums) / mass, variance) >= statistic * (1 - 1e-12)
        p_value, method = (1 + int(extreme)) / (1 + _FLIPS), "signs of clusters"
    return SameInAll(column, e.name, tested, left_out, statistic, p_value, float(gaps.min()), float(gaps.max()), method)


def _spread(gaps: Floats, variance: Floats) -> float:
    """Q = Σ (gap − ḡ)²/v with the precision-weighted mean ḡ."""
    weight = 1 / variance
    mean = float(weight @ gaps) / float(weight.sum())
    return float(weight @ (gaps - mean) ** 2)


# --- text -------------------------------------------------------------------------------------------

_EVENTS = {"top": "gap", "given": "gap", "positive": "gap of P(positive)", "pooled": "gap of the probabilities"}


def _difference(test: SameInAll) -> str:
    what, column = _EVENTS.get(test.event, f"gap of P({test.event})"), plain(test.column)
    if test.p_value is None or test.lowest is None or test.highest is None:
        few = f"only {_count(test.groups, 'group')} {_be(test.groups)} large enough"
        return f"The groups of {column} cannot be compared: {few if test.groups < 2 else 'fewer than 10 clusters'}."
    span = f"from {100 * test.lowest:+.1f} to {100 * test.highest:+.1f} points over {test.groups} groups"
    shown = _p(test.p_value)
    if test.p_value < 0.05:
        return f"The {what} differs between the groups of {column} by more than noise: {span} ({shown})."
    return f"The {what} may be the same in all groups of {column}: {span}, no more than noise ({shown})."


def _worst(group: Group, level: float, checks: str) -> str:
    gap, low, high, adjusted, what = group.gap, group.gap_low, group.gap_high, group.p_adjusted, "gap"
    if group.positive_adjusted is not None and group.positive_adjusted < (1.0 if adjusted is None else adjusted):
        gap, low, high = group.positive_gap or 0.0, group.positive_low or 0.0, group.positive_high or 0.0
        adjusted, what = group.positive_adjusted, "gap of P(positive)"
    return (
        f"{plain(group.column)} = {plain(group.value)} has a {what} of {100 * gap:+.1f} points ({level:.0%} interval "
        f"{100 * low:+.1f} to {100 * high:+.1f}, n = {group.n:,}); {_p(adjusted or 0.0)} after Holm's correction over "
        f"{checks}."
    )


def _cells(group: Group, two: bool) -> tuple[str, ...]:
    cells = [
        plain(group.value),
        f"{group.n:,}",
        f"{group.accuracy:.3f}",
        f"{group.gap:+.3f}",
        f"{group.gap_low:+.3f} – {group.gap_high:+.3f}",
        f"{group.ece:.3f}",
        f"{group.ece_low:.3f} – {group.ece_high:.3f}",
    ]
    if two and group.positive_gap is not None:
        cells += [f"{group.positive_gap:+.3f}", f"{group.positive_low:+.3f} – {group.positive_high:+.3f}"]
    found = "<.001" if group.smallest < 0.001 else f"{group.smallest:.3f}"
    return (*cells, found if group.tested else "–")


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _be(number: int) -> str:
    return "is" if number == 1 else "are"
