"""`ByGroup`: one map for all rows, and an offset for each group that is shrunk towards that map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from surefoot.errors import BadInput
from surefoot.evaluation.groups import codes_of, columns_of
from surefoot.metrics.paired import standard_error
from surefoot.posthoc.calibrator import Calibrator, Floats, check_shape, keep_predicted
from surefoot.posthoc.registry import build_calibrator
from surefoot.predictions import Predictions
from surefoot.validation import as_path, check_int

__all__ = ["ByGroup", "GroupGain", "check_base", "firth_offset", "spread_of"]

Ints = NDArray[np.int64]

BASES = ("temperature", "platt")
_FARTHEST = 50.0  # bound of an offset on the log-odds: a group in which everything happens has no finite optimum


@dataclass(frozen=True)
class GroupGain:
    """What the offset of one group does.

    Attributes:
        value: the group.
        n: number of rows of the fit.
        offset: offset on the log-odds, after the shrinkage.
        separate: offset that the rows of the group alone would give.
        error: standard error of ``separate``.
        gain: mean NLL under the map of all rows minus mean NLL with the offset, on rows that the fit had not seen; None
            for a group with fewer rows than folds.
        gain_error: standard error of the gain.
    """

    value: str
    n: int
    offset: float
    separate: float
    error: float
    gain: float | None
    gain_error: float | None

    @property
    def verdict(self) -> str:
        """``"pays"`` or ``"does not pay"`` for a gain above or below 0 by its standard error, else ``"undecided"``."""
        if self.gain is None or self.gain_error is None or not np.isfinite(self.gain_error):
            return "undecided"
        if abs(self.gain) <= self.gain_error:
            return "undecided"
        return "pays" if self.gain > 0 else "does not pay"


class ByGroup(Calibrator):
    """A calibrator of all rows, then an offset on the log-odds for each group, shrunk towards the calibrator.

    With two classes the offset o_g is added to the log-odds of the positive class. With more classes it is added to the
    log-odds of the predicted class, as far as no predicted class changes. The estimate of a group alone has the
    variance v_g = 1 / Σ p (1 − p), see `firth_offset`. With Q = Σ (o_g − ō)² / v_g over G groups and weights u = 1/v,

        τ² = max(0, (Q − G + 1) / (Σu − Σu²/Σu)),   offset = τ² / (τ² + v_g) · o_g.

    Groups that differ by no more than noise have τ = 0 and get the map of all rows. A group that the fit has not seen
    gets the map of all rows too.

    Args:
        calibrator: the map of all rows, ``"temperature"`` or ``"platt"``.
        by: name of the column of groups.
        folds: number of folds behind the gains, at least 2. Clusters stay in one fold.
        seed: seed of the folds, an integer of at least 0.
        scores: what arrays hold; arrays have no groups, so that `ByGroup` takes only `Predictions`.

    Attributes:
        base_: the fitted calibrator of all rows.
        values_: the groups, as text.
        offsets_: (G,) offsets after the shrinkage.
        spread_: τ, the standard deviation of the true offsets.
        gains_: one `GroupGain` for each group.

    Example:
        >>> p = Predictions.from_probs(
        ...     [0.5] * 400, [1] * 150 + [0] * 50 + [1] * 50 + [0] * 150, groups={"g": ["a"] * 200 + ["b"] * 200})
        >>> fitted = ByGroup("platt", by="g").fit(p)
        >>> fitted.apply(p).events().prob[[0, -1]].round(2).tolist()
        [0.75, 0.25]
        >>> [gain.verdict for gain in fitted.gains_]
        ['pays', 'pays']

    References:
        DerSimonian & Laird (1986), "Meta-Analysis in Clinical Trials", for τ².
        Firth (1993), "Bias Reduction of Maximum Likelihood Estimates", for the offset of a group alone.
    """

    method = "by-group"
    learned = ("offsets_", "spread_")
    added: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        calibrator: str = "temperature",
        by: str = "group",
        folds: int = 5,
        seed: int = 0,
        scores: str = "logits",
    ) -> None:
        super().__init__(scores)
        self.calibrator, self.by, self.folds, self.seed = calibrator, by, folds, seed

    def check_settings(self) -> None:
        """Check the name of the calibrator and of the column, the folds and the seed."""
        super().check_settings()
        check_base(self.calibrator)
        if not isinstance(self.by, str):
            raise BadInput(f"by must be the name of one column of groups; got {self.by!r}")
        check_int("folds", self.folds, 2)
        check_int("seed", self.seed, 0)

    def _fit(self, p: Predictions) -> None:
        columns_of(p, self.by)
        values, owner = codes_of(self.by, p.groups[self.by])
        self.base_, self.spread_, self.offsets_, separate, error = self._learn(p, owner, len(values))
        self.values_ = tuple(values)
        gains, gain_errors = self._out_of_fold(p, owner, len(values))
        count = np.bincount(owner, minlength=len(values))
        self.gains_ = [
            GroupGain(
                value, int(count[g]), float(self.offsets_[g]), float(separate[g]), float(error[g]),
                gains[g], gain_errors[g],
            )
            for g, value in enumerate(values)
        ]  # fmt: skip

    def _learn(self, p: Predictions, owner: Ints, groups: int) -> tuple[Calibrator, float, Floats, Floats, Floats]:
        """The map of all rows, τ, and each group's offset, separate offset and standard error; 0 for no rows."""
        base = build_calibrator(self.calibrator).fit(p)
        log_odds, happened = _event(base.apply(p))
        weights = np.ones(len(p)) if p.weights is None else p.weights
        separate, variance = np.zeros(groups), np.full(groups, np.inf)
        for g in np.unique(owner).tolist():
            rows = owner == g
            clusters = None if p.clusters is None else p.clusters[rows]
            separate[g], variance[g] = firth_offset(log_odds[rows], happened[rows], weights[rows], clusters)
        known = np.isfinite(variance)
        spread = spread_of(separate[known], variance[known])
        offsets = np.where(known, separate * spread**2 / (spread**2 + variance), 0.0) if spread else np.zeros(groups)
        return base, spread, offsets, separate, np.sqrt(variance)

    def _out_of_fold(self, p: Predictions, owner: Ints, groups: int) -> tuple[list[float | None], list[float | None]]:
        """Each group's mean gain in NLL over the map of all rows, on rows outside of the fit, and standard errors."""
        folds = int(self.folds)
        fold = _folds(owner, p.clusters, folds, int(self.seed))
        gain = np.full(len(p), np.nan)
        for each in range(folds):
            test, train = np.flatnonzero(fold == each), np.flatnonzero(fold != each)
            if len(test) == 0 or len(train) == 0:
                continue
            try:
                base, _, offsets, *_ = self._learn(p.take(train), owner[train], groups)
            except BadInput:  # a class is missing from these folds
                continue
            whole = base.apply(p.take(test))
            gain[test] = whole.with_scores(_moved(whole, offsets[owner[test]]), "logits").log_true - whole.log_true
        gain[~np.isfinite(gain)] = np.nan
        gains: list[float | None] = []
        errors: list[float | None] = []
        for g in range(groups):
            rows = np.flatnonzero((owner == g) & ~np.isnan(gain))
            if len(rows) < folds:
                gains.append(None)
                errors.append(None)
                continue
            weights = None if p.weights is None else p.weights[rows]
            clusters = None if p.clusters is None else np.unique(p.clusters[rows], return_inverse=True)[1]
            weighted = gain[rows] if weights is None else gain[rows] * weights
            total = len(rows) if weights is None else float(weights.sum())
            gains.append(float(weighted.sum() / total))
            errors.append(standard_error(weighted, weights, clusters)[0])
        return gains, errors

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        columns_of(p, self.by)
        values, owner = codes_of(self.by, p.groups[self.by])
        known = dict(zip(self.values_, self.offsets_.tolist(), strict=True))
        offsets = np.array([known.get(value, 0.0) for value in values])
        whole = p.with_scores(*self.base_._mapped(p))
        return (_moved(whole, offsets[owner]), "logits") if offsets.any() else (np.asarray(whole.log_probs), "logits")

    @property
    def sentences(self) -> list[str]:
        """Where the offsets pay, where not, and where that is undecided."""
        if self.spread_ == 0:
            return [
                f"The groups of {self.by} differ by no more than noise: every group gets the {self.calibrator} map of "
                "all rows."
            ]
        said = [
            f"Each group of {self.by} has its own offset on the log-odds after {self.calibrator}; the offsets have a "
            f"standard deviation of {self.spread_:.3f} between groups."
        ]
        for verdict, words in (("pays", "pays"), ("does not pay", "does NOT pay")):
            chosen = [gain for gain in self.gains_ if gain.verdict == verdict]
            if chosen:
                shown = ", ".join(f"{g.value} ({g.gain:+.4f} ± {g.gain_error:.4f} nats)" for g in chosen[:5])
                more = f" and {len(chosen) - 5} more" if len(chosen) > 5 else ""
                said.append(f"On rows outside of the fit it {words} for {shown}{more}.")
        undecided = sum(gain.verdict == "undecided" for gain in self.gains_)
        if undecided:
            said.append(f"For {undecided} of {len(self.gains_)} groups the gain is within one standard error of 0.")
        return said

    def check_kind(self, p: Predictions) -> None:
        """Check what the map of all rows checks."""
        self.base_.check_kind(p.as_classes())

    def save(self, path: Any) -> None:
        """Write the fitted calibrator as JSON, with the map of all rows inside.

        Args:
            path: the file to write or replace.

        Raises:
            BadInput: when a learned number is not finite.
            NotFitted: when nothing is learned yet.
            StorageFault: when the file system refuses the write.
        """
        from surefoot.posthoc.files import write_by_group

        write_by_group(self, Path(as_path(path)))

    def check_learned(self) -> None:
        """Check that every group has an offset."""
        super().check_learned()
        check_shape("offsets_", self.offsets_, (len(self.values_),))
        if not (isinstance(self.spread_, float) and self.spread_ >= 0):
            raise ValueError(f"spread_ must be at least 0; got {self.spread_!r}")

    def number_of_parameters(self, classes: int) -> int:
        """Return 0: the number of groups depends on the data."""
        return 0


def check_base(name: Any) -> str:
    """Check the name of the calibrator that all groups share.

    Args:
        name: what the user gave.

    Returns:
        The name.

    Raises:
        BadInput: when it is not one of the two.
    """
    if name not in BASES:
        raise BadInput(f"calibrator must be one of {', '.join(BASES)} by group; got {name!r}")
    return str(name)


def _event(p: Predictions) -> tuple[Floats, Floats]:
    """(n,) finite log-odds and outcomes of the event that offsets move: the second class of two, or the top class."""
    q = p.as_classes()
    e = q.events(1 if q.classes == 2 and q.form == "classes" else None)
    if q.form in ("positive", "multilabel"):
        e = q.events("positive")
    return np.clip(e.log_odds, -700.0, 700.0), e.happened.astype(np.float64)


def _moved(p: Predictions, offsets: Floats) -> Floats:
    """(n, k) logits after adding each row's offset to the log-odds of its event."""
    logits = np.array(p.as_classes().log_probs)
    rows = np.arange(len(p))
    if logits.shape[1] == 2:
        logits[:, 1] += offsets
        return logits
    top = p.predicted
    others = logits.copy()
    others[rows, top] = -np.inf
    logits[rows, top] = np.maximum(logits[rows, top] + offsets, np.minimum(others.max(axis=1), logits[rows, top]))
    return keep_predicted(logits, p)


def firth_offset(
    log_odds: Floats, happened: Floats, weights: Floats, clusters: Ints | None = None
) -> tuple[float, float]:
    """Estimate the offset o of happened ~ σ(log-odds + o), with Firth's correction, which keeps it finite.

    Args:
        log_odds: (n,) finite log-odds.
        happened: (n,) outcomes in [0, 1].
        weights: (n,) positive weights; only their ratios matter.
        clusters: (n,) cluster of each row; None makes rows independent.

    Returns:
        The offset in [−50, 50], and its variance Σ w² p (1 − p) / (Σ w p (1 − p))², the larger of its values at the
        offset and at 0. With clusters, it is at least the variance from sums over clusters.

    Example:
        >>> offset, variance = firth_offset(np.zeros(4), np.array([1.0, 1.0, 1.0, 0.0]), np.ones(4))
        >>> round(offset, 4), round(variance, 4)  # (3 + 1/2) to (1 + 1/2)
        (0.8473, 1.1905)
    """
    w = weights * (float(weights.sum()) / float(weights @ weights))  # their sum is the effective number of rows

    def slope(offset: float) -> float:
        p = expit(log_odds + offset)
        bend = p * (1 - p)
        information = float(w @ bend)
        lean = float(w @ (bend * (1 - 2 * p))) / information if information > 0 else 0.0
        return float(w @ (happened - p)) + 0.5 * lean

    low, high = -_FARTHEST, _FARTHEST
    for _ in range(60):  # bisection: the slope falls
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    offset = (low + high) / 2
    variances = []
    for at in (0.0, offset):
        bend = expit(log_odds + at) * expit(-log_odds - at)
        information = float(w @ bend)
        variances.append(float(w**2 @ bend) / information**2 if information > 1e-100 else np.inf)
    if clusters is not None and np.isfinite(variances[1]):
        owner = np.unique(clusters, return_inverse=True)[1]
        sums = np.bincount(owner, w * (happened - expit(log_odds + offset)))
        count = len(sums)
        # A single cluster does not tell its variance: the group gets the map of all rows.
        variances.append(count / (count - 1) * float(sums @ sums) / information**2 if count > 1 else np.inf)
    return offset, max(variances)


def spread_of(offsets: Floats, variance: Floats) -> float:
    """Estimate the standard deviation τ of true offsets from their estimates, by the method of moments.

    Args:
        offsets: (G,) estimated offsets.
        variance: (G,) their variances.

    Returns:
        τ, at least 0.

    Example:
        >>> spread_of(np.array([-1.0, 1.0]), np.array([0.5, 0.5])).__round__(4)
        1.2247
        >>> spread_of(np.array([-0.1, 0.1]), np.array([0.5, 0.5]))
        0.0
    """
    if len(offsets) < 2:
        return 0.0
    u = 1 / variance
    centre = float(u @ offsets) / float(u.sum())
    excess = float(u @ (offsets - centre) ** 2) - (len(offsets) - 1)
    scale = float(u.sum()) - float(u @ u) / float(u.sum())
    return float(np.sqrt(max(0.0, excess / scale))) if scale > 0 else 0.0


def _folds(owner: Ints, clusters: Ints | None, folds: int, seed: int) -> Ints:
    """(n,) fold of each row: rows of a cluster stay together, otherwise the groups are spread evenly."""
    random = np.random.default_rng(seed)
    if clusters is not None:
        number = np.unique(clusters, return_inverse=True)[1]
        mixed: Ints = (random.permutation(int(number.max()) + 1) % folds)[number]
        return mixed
    shuffled = random.permutation(len(owner))
    order = shuffled[np.argsort(owner[shuffled], kind="stable")]
    fold = np.empty(len(owner), np.int64)
    fold[order] = np.arange(len(owner)) % folds
    return fold
