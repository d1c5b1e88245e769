"""Maps of a probability by a table: isotonic regression, histogram binning, and Bayesian binning into quantiles.

The table of a class has sorted knots and values. The map interpolates linearly between the points (knot, value), or it
is a step function. A step function takes value j between knot j − 1 (exclusive) and knot j (inclusive), and the last
value beyond the last knot.
"""

from __future__ import annotations

from abc import abstractmethod
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from sklearn.isotonic import IsotonicRegression

from surefoot.errors import BadInput
from surefoot.metrics.bins import bin_edges, bin_of, check_bins
from surefoot.posthoc.calibrator import Calibrator, Floats, check_share, keep_predicted
from surefoot.posthoc.ovr import check_every_class, log_normalised, maps_of
from surefoot.posthoc.rows import row_count, row_weights, targets
from surefoot.predictions import Predictions
from surefoot.validation import check_int

__all__ = ["BBQ", "Histogram", "Isotonic", "Tables"]

Table = tuple[Floats, Floats]


class Tables(Calibrator):
    """Base class of the maps by tables.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        steps: whether the map is a step function; otherwise the map interpolates linearly.
        knots_: knots of all classes in one array; those of class c begin at ``knot_starts_[c]``.
        values_: values of all classes in one array; those of class c begin at ``value_starts_[c]``.
        knot_starts_: (c + 1,) where the knots of every class begin, and the total number.
        value_starts_: (c + 1,) where the values of every class begin, and the total number.
    """

    learned: ClassVar[tuple[str, ...]] = ("knots_", "values_", "knot_starts_", "value_starts_")
    steps = True

    @abstractmethod
    def _fit_tables(self, probs: Floats, outcomes: NDArray[Any], weights: Floats | None) -> None:
        """Learn a table for each column of ``probs`` (n, c), from how much each row is of that class."""

    def _fit(self, p: Predictions) -> None:
        check_every_class(self.method, p)
        first = 1 if p.classes == 2 else 0
        self._fit_tables(p.probs[:, first:], targets(p)[:, first:], row_weights(p))

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        probs = p.probs
        if p.classes == 2 and len(self.tables()) == 1:
            mapped = self._look_up(probs[:, 1:])
            return np.concatenate([1 - mapped, mapped], axis=1), "probs"
        mapped = self._look_up(probs)
        total = mapped.sum(axis=1, keepdims=True)
        return np.where(total > 0, mapped / np.where(total > 0, total, 1), probs), "probs"

    def _keep(self, tables: list[Table]) -> None:
        self.knots_: Floats = np.concatenate([knots for knots, _ in tables])
        self.values_: Floats = np.concatenate([values for _, values in tables])
        self.knot_starts_: NDArray[np.int64] = np.cumsum([0, *(len(knots) for knots, _ in tables)])
        self.value_starts_: NDArray[np.int64] = np.cumsum([0, *(len(values) for _, values in tables)])

    def tables(self) -> list[Table]:
        """Return the tables of the classes.

        Returns:
            Knots and values of every class that has a map.
        """
        knots = np.split(self.knots_, self.knot_starts_[1:-1])
        return list(zip(knots, np.split(self.values_, self.value_starts_[1:-1]), strict=True))

    def check_learned(self) -> None:
        """Check that every class has a table with sorted knots and with values in [0, 1]."""
        extra = int(self.steps)
        for starts, entries in ((self.knot_starts_, self.knots_), (self.value_starts_, self.values_)):
            flat = starts.ndim == entries.ndim == 1
            if not flat or starts[0] != 0 or starts[-1] != len(entries) or (np.diff(starts) < 0).any():
                raise ValueError("the tables of the classes do not fit together")
        tables = self.tables()
        if len(tables) != self._tables_for(len(self.classes_)) or any(
            len(values) != len(knots) + extra or (np.diff(knots) < 0).any() or values.min() < 0 or values.max() > 1
            for knots, values in tables
        ):
            raise ValueError("a table is not one of sorted knots with values from 0 to 1")

    def _tables_for(self, classes: int) -> int:
        return maps_of(classes)

    def _look_up(self, probs: Floats) -> Floats:
        mapped = np.empty_like(probs)
        tables = self.tables()
        for c in range(probs.shape[1]):
            knots, values = tables[c if len(tables) > 1 else 0]
            if self.steps:
                mapped[:, c] = values[np.searchsorted(knots, probs[:, c], "left")]
            else:
                mapped[:, c] = np.interp(probs[:, c], knots, values)
        return mapped


class Isotonic(Tables):
    """Isotonic regression of the probability of every class, or one regression for all classes.

    With the regression g of n rows, the map is (n g(p) + p)/(n + 1). The map rises strictly, and gives probability 0 to
    no class that had a higher probability before.

    Args:
        pooled: learn one map for all classes from all n·k probabilities (IRM). The one map keeps the order of the
            classes, so that no predicted class changes.
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        old_weight_: the weight 1/(n + 1) of the old probability; 0 in maps of old files, which add 10⁻⁹ p.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 9 + [0])
        >>> Isotonic().fit(p).apply(p).probs[[0, -1]].round(4).tolist()
        [[0.8087, 0.1913], [0.0961, 0.9039]]

    References:
        Zadrozny & Elkan (2002), "Transforming Classifier Scores into Accurate Multiclass Probability Estimates".
        Zhang, Kailkhura & Han (2020), "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in
        Deep Learning", for ``pooled``.
    """

    method = "isotonic"
    learned = (*Tables.learned, "old_weight_")
    added: ClassVar[dict[str, Any]] = {"old_weight_": 0.0}
    steps = False

    def __init__(self, pooled: bool = False, scores: str = "logits") -> None:
        super().__init__(scores)
        self.pooled = pooled

    def check_settings(self) -> None:
        """Check that ``pooled`` is True or False."""
        super().check_settings()
        if not isinstance(self.pooled, bool | np.bool_):
            raise BadInput(f"pooled must be True or False; got {self.pooled!r}")

    def _tables_for(self, classes: int) -> int:
        return 1 if self.pooled else super()._tables_for(classes)

    def check_learned(self) -> None:
        """Check the tables, and that ``old_weight_`` is a share below 1."""
        super().check_learned()
        check_share("old_weight_", self.old_weight_)

    def _fit(self, p: Predictions) -> None:
        self.old_weight_ = 1 / (row_count(p) + 1)
        if self.pooled:
            weights = row_weights(p)
            weights = None if weights is None else np.repeat(weights, p.classes)
            self._fit_tables(p.probs.reshape(-1, 1), targets(p).reshape(-1, 1), weights)
        else:
            super()._fit(p)

    def _fit_tables(self, probs: Floats, outcomes: NDArray[Any], weights: Floats | None) -> None:
        tables = []
        for column, target in zip(probs.T, outcomes.T, strict=True):
            model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(column, target, weights)
            tables.append((model.X_thresholds_, model.y_thresholds_))
        self._keep(tables)

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        if self.old_weight_ == 0:
            return super()._map(p)
        # In logarithms, probabilities that would round to 0 stay apart.
        probs, log_probs = p.probs, p.log_probs
        if p.classes == 2 and not self.pooled:
            second = super()._look_up(probs[:, 1:])
            return self._mixed(np.concatenate([1 - second, second], axis=1), log_probs), "logits"
        mapped = log_normalised(self._mixed(super()._look_up(probs), log_probs), log_probs)
        return (keep_predicted(mapped, p) if self.pooled else mapped), "logits"

    def _mixed(self, image: Floats, log_probs: Floats) -> Floats:
        """Logarithm of the mixture of ``image`` and the old probabilities."""
        with np.errstate(divide="ignore"):
            log_image = np.log(np.clip(image, 0.0, 1.0))
        mixed: Floats = np.logaddexp(log_image + np.log1p(-self.old_weight_), log_probs + np.log(self.old_weight_))
        return mixed

    def _look_up(self, probs: Floats) -> Floats:
        # Maps of old files: the old probability breaks ties; 1e-9 is that of Zhang et al.
        return np.minimum(super()._look_up(probs) + 1e-9 * probs, 1.0)


class Histogram(Tables):
    """Histogram binning: the frequency of the class in every bin of equal width; an empty bin keeps its middle.

    With n rows, h hits and the mean probability m in a bin, the value is (h + 2 m)/(n + 2). With N rows in all, m is at
    least 1/(k (N + 1))² and at most 1 minus that. No value is therefore 0 or 1.

    Args:
        bins: number of bins, from 1 to 10,000.
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 9 + [0])
        >>> Histogram().fit(p).apply(p).probs[[0, -1]].round(4).tolist()
        [[0.8303, 0.1697], [0.0863, 0.9137]]

    References:
        Zadrozny & Elkan (2001), "Obtaining calibrated probability estimates from decision trees and naive Bayesian
        classifiers".
    """

    method = "histogram"

    def __init__(self, bins: int = 15, scores: str = "logits") -> None:
        super().__init__(scores)
        self.bins = bins

    def check_settings(self) -> None:
        """Check that ``bins`` is an integer from 1 to 10,000."""
        super().check_settings()
        check_bins(self.bins)

    def _fit_tables(self, probs: Floats, outcomes: NDArray[Any], weights: Floats | None) -> None:
        bins, n = int(self.bins), len(probs) if weights is None else float(weights.sum())
        lowest = (max(2, probs.shape[1]) * (n + 1)) ** -2.0  # of two classes, one has a table
        edges = bin_edges(bins)
        tables = []
        for column, target in zip(probs.T, outcomes.T, strict=True):
            bin_ = bin_of(np.ascontiguousarray(column), bins)
            count, (hits, total) = (
                np.bincount(bin_, weights, bins),
                (
                    np.bincount(bin_, values if weights is None else values * weights, bins)
                    for values in (target, column)
                ),
            )
            mean = np.clip(total / np.where(count > 0, count, 1), lowest, 1 - lowest)
            middle = (edges[:-1] + edges[1:]) / 2
            tables.append((edges[1:-1], np.where(count > 0, (hits + 2 * mean) / (count + 2), middle)))
        self._keep(tables)

    def number_of_parameters(self, classes: int) -> int:
        """Return one value for every bin of every map."""
        return self.bins * maps_of(classes)


class BBQ(Tables):
    """Bayesian binning into quantiles (BBQ): a weighted average of binnings with b = 1, 2, ... bins of equal mass.

    The weight of a binning is its marginal likelihood under a Beta prior for every bin. The prior has the strength 2
    and is centred on the middle of the bin.

    Args:
        least: smallest share of the total weight, in [0, 1); binnings with a smaller share are left out.
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 9 + [0])
        >>> BBQ().fit(p).apply(p).probs[[0, -1]].round(3).tolist()
        [[0.795, 0.205], [0.114, 0.886]]

    References:
        Naeini, Cooper & Hauskrecht (2015), "Obtaining Well Calibrated Probabilities Using Bayesian Binning".
    """

    method = "bbq"

    def __init__(self, least: float = 1e-3, scores: str = "logits") -> None:
        super().__init__(scores)
        self.least = least

    def check_settings(self) -> None:
        """Check that ``least`` is a share in [0, 1)."""
        super().check_settings()
        wrong = isinstance(self.least, bool) or not isinstance(self.least, Real)
        if wrong or not 0 <= self.least < 1:
            raise BadInput(f"least must lie in [0, 1); got {self.least!r}")

    def _fit_tables(self, probs: Floats, outcomes: NDArray[Any], weights: Floats | None) -> None:
        columns = zip(probs.T, outcomes.T, strict=True)
        self._keep([_bbq(column, target, weights, self.least) for column, target in columns])


def _bbq(column: Floats, target: NDArray[Any], weights: Floats | None, least: float) -> Table:
    order = np.argsort(column, kind="stable")
    x, happened = column[order], target[order]
    # A row of weight w stands for w rows of consecutive ranks.
    # Rounding: the sum of equal weights must not miss the rank of a cut by the rounding of a sum.
    up_to = np.arange(len(x) + 1) if weights is None else np.round(np.append(0.0, np.cumsum(weights[order])), 9)
    hits = np.concatenate([[0], np.cumsum(happened if weights is None else happened * weights[order])])
    total = up_to[-1]
    numbers = bbq_numbers_of_bins(max(1, round(float(total))))
    binnings, marginals = [], np.empty(len(numbers))
    for index, bins in enumerate(numbers):
        ranks = np.arange(1, bins) * total // bins
        cuts = ranks if weights is None else np.searchsorted(up_to, ranks, "right") - 1
        cuts = np.unique(np.searchsorted(x, x[cuts], "left"))  # equal probabilities stay together
        cuts = np.concatenate([[0], cuts[cuts > 0], [len(x)]])
        edges = (x[cuts[1:-1] - 1] + x[cuts[1:-1]]) / 2
        ones, count = np.diff(hits[cuts]), np.diff(up_to[cuts])
        bounds = np.concatenate([[0.0], edges, [1.0]])
        prior = np.clip((bounds[:-1] + bounds[1:]) / 2, 0.005, 0.995)
        marginals[index] = log_marginal(ones, count, prior)
        binnings.append((edges, (ones + prior) / (count + 1)))
    weights = np.exp(marginals - marginals.max())
    weights /= weights.sum()
    weights[weights < least] = 0
    weights /= weights.sum()
    kept = [(w, table) for w, table in zip(weights, binnings, strict=True) if w > 0]
    knots = np.unique(np.concatenate([edges for _, (edges, _) in kept]))
    # Every binning is evaluated at one point inside each cell of the common refinement.
    inside = np.append(knots, 1.0)
    values = sum(w * v[np.searchsorted(edges, inside, "left")] for w, (edges, v) in kept)
    return knots, np.asarray(values)


def bbq_numbers_of_bins(n: int) -> range:
    """Numbers of bins from ⌊n^⅓/10⌋ to min(⌈n/5⌉, ⌈10 n^⅓⌉), at least 1, as in the authors' code."""
    check_int("n", n, 1)
    root = n ** (1 / 3)
    return range(max(1, int(root / 10)), max(1, min(-(-n // 5), int(np.ceil(10 * root)))) + 1)


def log_marginal(ones: NDArray[Any], count: NDArray[Any], prior: Floats, strength: float = 2.0) -> float:
    """Sum over bins of the log marginal B(n₁ + Cp, n₀ + C(1 − p)) / B(Cp, C(1 − p)), C the strength."""
    a, b = strength * prior, strength * (1 - prior)
    top = gammaln(ones + a) + gammaln(count - ones + b) - gammaln(count + strength)
    return float((top - gammaln(a) - gammaln(b) + gammaln(strength)).sum())
