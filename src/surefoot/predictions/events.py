"""`Events`: probability, outcome, weight and cluster of n events, the table that every calibration metric reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.validation import as_column

__all__ = ["Events", "check_weights", "cluster_codes", "counts_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Part = TypeVar("Part")

# Real weights are rounded once to multiples of this share of the largest weight; sums of the multiples are exact.
_WEIGHT_STEPS = 1 << 40
_MAX_REPEATED = 1 << 24  # rows


class Events:
    """A table of n events: predicted probability, whether each event happened, and optional weights and clusters.

    Kinds of predictions differ only in the events that they make: "the top class is right", "the case is positive",
    "the class is k". `Predictions.events` makes the tables.

    Args:
        prob: (n,) predicted probabilities, in [0, 1].
        happened: (n,) booleans, or numbers in [0, 1] where the outcome itself is uncertain (soft labels).
        weight: (n,) non-negative weights; None counts every event once. An event of weight 0 is left out.
        cluster: (n,) integers that mark the events that belong together, such as those of a patient; None if every
            event stands for itself.
        complement: (n,) probabilities that the events do not happen, where they are known more precisely than 1 − prob.
        name: which events these are, for results.

    Attributes:
        prob: (n,) float64 probabilities.
        happened: (n,) booleans or float64 outcomes.
        weight: (n,) float64 weights, or None.
        cluster: (n,) int64 cluster of each event, or None.
        complement: (n,) float64 probabilities of the opposite event.
        name: as the argument.

    Raises:
        BadInput: when an argument is not as described.

    Example:
        >>> e = Events([0.9, 0.9, 0.6], [1, 0, 1], weight=[2, 1, 1])
        >>> len(e), e.total, round(float(e.weight @ e.residual), 12)
        (3, 4.0, -0.3)
    """

    def __init__(
        self,
        prob: Any,
        happened: Any,
        weight: Any = None,
        cluster: Any = None,
        *,
        complement: Any = None,
        name: str = "given",
    ) -> None:
        c = as_column("prob", prob).astype(np.float64)
        outcome = as_column("happened", happened, len(c))
        for argument, column in (("prob", c), ("happened", outcome)):
            wrong = ~((column >= 0) & (column <= 1))
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise BadInput(f"{argument} must lie in [0, 1]; row {row} has {column[row]} ({wrong.sum()} such rows)")
        if outcome.dtype != np.bool_:
            outcome = outcome.astype(np.bool_) if ((outcome == 0) | (outcome == 1)).all() else outcome.astype(float)
        self._set(
            c,
            outcome,
            None if weight is None else check_weights(weight, len(c)),
            None if cluster is None else cluster_codes(cluster, len(c)),
            None if complement is None else as_column("complement", complement, len(c)).astype(np.float64),
            name,
        )

    @classmethod
    def trusted(
        cls,
        prob: Floats,
        happened: NDArray[Any],
        weight: Floats | None = None,
        cluster: Ints | None = None,
        complement: Floats | None = None,
        name: str = "given",
    ) -> Events:
        """Make a table of columns that are known to be valid, without checks and without copies.

        Args:
            prob: (n,) probabilities.
            happened: (n,) booleans, or float64 outcomes in [0, 1].
            weight: (n,) non-negative weights, or None.
            cluster: (n,) clusters, or None.
            complement: (n,) probabilities of the opposite events, or None.
            name: which events these are.

        Returns:
            The table, without the events of weight 0.
        """
        self = cls.__new__(cls)
        self._set(prob, happened, weight, cluster, complement, name)
        return self

    def _set(
        self,
        prob: Floats,
        happened: NDArray[Any],
        weight: Floats | None,
        cluster: Ints | None,
        complement: Floats | None,
        name: str,
    ) -> None:
        if weight is not None and (weight == 0).any():
            kept = weight > 0
            prob, happened, weight = prob[kept], happened[kept], weight[kept]
            cluster = None if cluster is None else cluster[kept]
            complement = None if complement is None else complement[kept]
        self.prob, self.happened, self.weight, self.cluster, self.name = prob, happened, weight, cluster, name
        self._complement = complement
        self._memo: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.prob)

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in ("weight", "cluster") if getattr(self, name) is not None)
        return f"Events({self.name!r}, n={len(self)}{extra})"

    @property
    def complement(self) -> Floats:
        """(n,) probability that the event does not happen; precise also where the probability rounds to 1."""
        return 1.0 - self.prob if self._complement is None else self._complement

    @property
    def log_odds(self) -> Floats:
        """(n,) log(prob / complement), infinite for probabilities 0 and 1."""
        with np.errstate(divide="ignore"):
            odds: Floats = np.log(self.prob) - np.log(self.complement)
        return odds

    @property
    def residual(self) -> Floats:
        """(n,) Z = happened − prob."""
        residual: Floats = self.happened - self.prob
        return residual

    @property
    def weights(self) -> Floats:
        """(n,) weights; ones where none were given."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @property
    def total(self) -> float:
        """Sum of the weights; the number of events without weights."""
        return float(len(self)) if self.weight is None else float(self.weight.sum())

    @property
    def effective(self) -> float:
        """Effective number of events (Σw)²/Σw², which is the number of events without weights."""
        return float(len(self)) if self.weight is None else self.total**2 / float(self.weight @ self.weight)

    @property
    def plain(self) -> bool:
        """Whether every event counts once and either happened or did not, so that all sums are of integers."""
        return self.weight is None and self.happened.dtype == np.bool_

    @property
    def repetitions(self) -> bool:
        """Whether the weights are integers: they then count how often an event was seen."""
        return self.weight is None or bool((self.weight == np.floor(self.weight)).all())

    def counts(self) -> tuple[Ints, float]:
        """The weights as integers.

        Returns:
            (n,) integers, and the weight that one of them stands for: 1 for integer weights, and 2⁻⁴⁰ of the largest
            weight otherwise, to whose multiples real weights are rounded.
        """
        return counts_of(self.weights)

    def repeated(self) -> Events | None:
        """The same events with each row repeated as often as its weight says.

        Returns:
            Events without weights and in an order of their own; None if the weights are no integers, or too large to
            hold every repetition in memory.

        Example:
            >>> Events([0.5, 0.75], [1, 0], weight=[2, 1]).repeated().prob.tolist()
            [0.5, 0.5, 0.75]
        """
        if self.weight is None:
            return self
        if not self.repetitions or self.total > _MAX_REPEATED:
            return None
        rows = np.repeat(np.arange(len(self)), self.weight.astype(np.int64))
        repeated = self.take(rows)
        repeated.weight = None
        return repeated

    def take(self, rows: Any) -> Events:
        """Select events.

        Args:
            rows: indices or a boolean mask.

        Returns:
            The chosen events.
        """
        return Events.trusted(
            self.prob[rows],
            self.happened[rows],
            None if self.weight is None else self.weight[rows],
            None if self.cluster is None else self.cluster[rows],
            None if self._complement is None else self._complement[rows],
            self.name,
        )

    def memo(self, name: str, make: Callable[[], Part]) -> Part:
        """Compute a value once and keep it, for values that several metrics derive from the events.

        Args:
            name: key of the value.
            make: computes the value; called only if the key is new.

        Returns:
            The value under ``name``.
        """
        if name not in self._memo:
            self._memo[name] = make()
        value: Part = self._memo[name]
        return value

    def facts(self) -> dict[str, Any]:
        """What a value that is measured on these events states of them.

        Returns:
            ``n``, and ``event``, ``weights`` and ``clusters`` where they are not the default.
        """
        facts: dict[str, Any] = {"n": len(self)}
        if self.name != "top":
            facts["event"] = self.name
        if self.weight is not None:
            facts["weights"] = "repetitions" if self.repetitions else "importance"
            facts["total_weight"] = self.total
        return facts


def check_weights(value: Any, n: int) -> Floats:
    """Check weights.

    Args:
        value: what the user gave.
        n: number of rows.

    Returns:
        (n,) float64 weights, non-negative, at least one of them positive.

    Raises:
        BadInput: when ``value`` is anything else.
    """
    weights = as_column("weights", value, n).astype(np.float64)
    wrong = ~((weights >= 0) & np.isfinite(weights))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadInput(
            f"weights must be finite numbers of at least 0; row {row} has {weights[row]} ({wrong.sum()} such rows)"
        )
    if not weights.any():
        raise BadInput("weights must have a positive entry; all are 0")
    return weights


def cluster_codes(value: Any, n: int) -> Ints:
    """Number clusters, which may be given by any values: integers, names, dates.

    Args:
        value: (n,) cluster of each row.
        n: number of rows.

    Returns:
        (n,) integers from 0, in the order of the sorted values.

    Raises:
        BadInput: when ``value`` has another length.
    """
    column = as_column("clusters", value, n)
    if column.dtype.kind == "f" and np.isnan(column).any():
        row = int(np.flatnonzero(np.isnan(column))[0])
        raise BadInput(f"clusters must have no missing entries; row {row} has none. Give each such row its own cluster")
    codes: Ints = np.unique(column, return_inverse=True)[1].astype(np.int64)
    return codes


def counts_of(weights: Floats) -> tuple[Ints, float]:
    """Weights as integers, so that sums of them are exact.

    Args:
        weights: (n,) non-negative weights, one at least positive.

    Returns:
        (n,) integers, and the weight that one of them stands for: 1 if all weights are integers below 2⁴⁰, and 2⁻⁴⁰ of
        the largest weight otherwise.

    Example:
        >>> counts, unit = counts_of(np.array([0.5, 1.0]))
        >>> (counts * unit).tolist()
        [0.5, 1.0]
    """
    largest = float(weights.max())
    if largest < _WEIGHT_STEPS and (weights == np.floor(weights)).all():
        return weights.astype(np.int64), 1.0
    unit = largest / _WEIGHT_STEPS
    counts: Ints = np.rint(weights / unit).astype(np.int64)
    return counts, unit
