"""A verdict in sentences: which way predictions err, whether that is more than noise, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.metrics.ece import ChanceECE, chance_ece
from surefoot.metrics.reliability import wilson
from surefoot.metrics.scores import accuracy, mean_confidence
from surefoot.predictions import Predictions

__all__ = ["Verdict", "verdict"]


@dataclass(frozen=True)
class Verdict:
    """Direction and size of the miscalibration of a set of predictions.

    Attributes:
        confidence: mean confidence.
        accuracy: share of rows that are right.
        gap: mean confidence − accuracy.
        gap_low: lower end of the interval of the gap.
        gap_high: upper end of the interval of the gap.
        chance: ECE that a calibrated model would show on as many rows.
        n: number of rows.
        level: coverage of the interval.
    """

    confidence: float
    accuracy: float
    gap: float
    gap_low: float
    gap_high: float
    chance: ChanceECE
    n: int
    level: float

    @property
    def direction(self) -> str:
        """``"over"``, ``"under"``, or ``"neither"`` where the interval of the gap contains 0."""
        return "over" if self.gap_low > 0 else "under" if self.gap_high < 0 else "neither"

    @property
    def beyond_chance(self) -> bool:
        """Whether the ECE exceeds the ECE of a calibrated model in all but 5 % of cases."""
        return self.chance.p_value < 0.05

    @property
    def sentences(self) -> tuple[str, str, str]:
        """Three sentences: the direction and its size, the comparison with noise, and the advice."""
        return self._direction(), self._chance(), self._advice()

    def _direction(self) -> str:
        kinds = {"over": "Overconfident", "under": "Underconfident", "neither": "Neither over- nor underconfident"}
        low, high = 100 * self.gap_low, 100 * self.gap_high
        return (
            f"{kinds[self.direction]}: the mean confidence is {self.confidence:.1%} and the accuracy "
            f"{self.accuracy:.1%}, a gap of {100 * self.gap:+.1f} points ({self.level:.0%} interval {low:+.1f} to "
            f"{high:+.1f})."
        )

    def _chance(self) -> str:
        chance = self.chance
        smallest = 1 / (1 + chance.resamples)
        value = f"p < {2 * smallest:.3f}" if chance.p_value <= smallest else f"p = {chance.p_value:.3f}"
        would = f"a calibrated model would show {chance.mean:.4f} at n = {self.n:,}, seldom above {chance.upper:.4f}"
        if self.beyond_chance:
            return f"The ECE of {chance.observed:.4f} is more than noise: {would} ({value})."
        return f"The ECE of {chance.observed:.4f} cannot be distinguished from noise: {would} ({value})."

    def _advice(self) -> str:
        if not self.beyond_chance:
            return "Leave the model as it is, or measure again on more examples."
        if self.direction == "over":
            return (
                "Fit a temperature above 1 on held-out predictions; it lowers every confidence and changes no "
                "predicted class."
            )
        if self.direction == "under":
            return (
                "Fit a temperature below 1 on held-out predictions; it raises every confidence and changes no "
                "predicted class."
            )
        return "Some bins are overconfident and others underconfident: fit a calibrator with more than one parameter."


def verdict(p: Predictions, bins: int = 15, level: float = 0.95, seed: int = 0) -> Verdict:
    """Judge predictions by the gap of confidence and accuracy, and by `surefoot.metrics.chance_ece`.

    The interval of the gap is Wilson's interval of the accuracy, which has a width even where every row is right; the
    spread of the residuals has none there.

    Args:
        p: the predictions.
        bins: number of bins of the ECE.
        level: coverage of the interval, between 0 and 1.
        seed: seed of the draws behind ``chance``.

    Returns:
        The verdict.

    Example:
        >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]] * 50, [0, 0] * 50)
        >>> judged = verdict(p)
        >>> judged.direction, round(judged.gap, 4), judged.beyond_chance
        ('over', 0.3059, True)
    """
    right, claimed = float(accuracy(p)), float(mean_confidence(p))
    low, high = wilson(np.float64(right), np.float64(len(p)), level)  # type: ignore[arg-type]
    chance = chance_ece(p, bins, seed=seed)
    return Verdict(claimed, right, claimed - right, claimed - float(high), claimed - float(low), chance, len(p), level)
