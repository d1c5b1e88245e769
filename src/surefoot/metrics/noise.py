"""The ECE that a perfectly calibrated model would show at this n, and a test of the measured ECE against chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.metrics.bins import check_bins, tally_width, width_table
from surefoot.predictions import Predictions, takes_predictions
from surefoot.validation import check_int

__all__ = ["ChanceECE", "chance_ece"]

# The bins are cut into about this many cells in total. The hits in a cell are drawn from one binomial with the mean
# confidence, which overstates the variance of a row by less than 1/cells²: far too little to be seen.
_CELLS = 1024


@dataclass(frozen=True)
class ChanceECE:
    """The ECE of labels redrawn from the stated confidences, compared with the observed ECE.

    Attributes:
        observed: ECE of the predictions.
        mean: mean ECE over the redrawn labels.
        upper: 95 % quantile of the ECE over the redrawn labels.
        p_value: share of redrawn errors that are at least as large as the observed error.
        resamples: number of redrawn sets of labels.
    """

    observed: float
    mean: float
    upper: float
    p_value: float
    resamples: int


@takes_predictions
def chance_ece(p: Predictions, bins: int = 15, resamples: int = 1000, seed: int = 0) -> ChanceECE:
    """Test whether the ECE is larger than chance explains: redraw the correctness of all rows from their confidences.

    The p-value is the share of redrawn errors at least as large as the observed error, which counts as one of them. The
    tested hypothesis is "every stated confidence is true". The cost is O(n + bins·resamples).

    Args:
        p: the predictions.
        bins: number of bins M of the ECE, from 1 to 10,000.
        resamples: how often the correctness is redrawn, at least 1.
        seed: seed of the draws, an integer of at least 0.

    Returns:
        The observed ECE, the mean and upper end of the redrawn ECE, and the p-value.

    Raises:
        BadInput: when an argument is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> chance = chance_ece(p)
        >>> round(chance.observed, 12), chance.p_value < 0.05
        (0.3, True)
    """
    bins = check_bins(bins)
    resamples = check_int("resamples", resamples, 1)
    n = len(p)
    per_bin = max(1, _CELLS // bins)
    # The fine edges j/(per_bin·M) contain the edges of the M bins exactly: both are quotients of the same numbers.
    fine = width_table(tally_width(p.confidence, p.correct, bins * per_bin))
    observed = width_table(tally_width(p.confidence, p.correct, bins)).error(1)
    filled = fine.count > 0
    owner = np.arange(bins * per_bin)[filled] // per_bin
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    count, mean = fine.count[filled], np.clip(fine.confidence[filled], 0.0, 1.0)
    random = np.random.default_rng(check_int("seed", seed, 0))
    errors = np.empty(resamples)
    for index in range(resamples):
        gaps = np.add.reduceat(random.binomial(count, mean) - count * mean, starts)
        errors[index] = np.abs(gaps).sum() / n
    # A redrawn error that differs from the observed error by rounding alone counts as equal.
    extreme = int(np.count_nonzero(errors >= observed - 1e-12))
    return ChanceECE(
        observed=observed,
        mean=float(errors.mean()),
        upper=float(np.quantile(errors, 0.95)),
        p_value=(1 + extreme) / (1 + resamples),
        resamples=resamples,
    )
