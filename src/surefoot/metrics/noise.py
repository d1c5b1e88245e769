"""What a perfectly calibrated model would show at this n: is the measured error more than chance?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.metrics.bins import check_bins, tally_width, width_table
from surefoot.predictions import Predictions, takes_predictions
from surefoot.validation import check_int

__all__ = ["ChanceECE", "chance_ece"]

# The bins are cut into about this many cells in all. Inside a cell hits are drawn from one binomial with the mean
# confidence; that overstates the variance of a row by less than 1/cells², far below what can be seen.
_CELLS = 1024


@dataclass(frozen=True)
class ChanceECE:
    """ECE of labels redrawn from the stated confidences: its mean, its upper 5 % point, and the p-value."""

    observed: float
    mean: float
    upper: float
    p_value: float
    resamples: int


@takes_predictions
def chance_ece(p: Predictions, bins: int = 15, resamples: int = 1000, seed: int = 0) -> ChanceECE:
    """Redraw each row's correctness from its own confidence and measure `ece`, ``resamples`` times.

    The p-value is the share of redrawn errors at least as large as the observed one (which counts itself),
    a test of "every stated confidence is true"; cost O(n + bins·resamples).
    """
    bins = check_bins(bins)
    resamples = check_int("resamples", resamples, 1)
    n = len(p)
    each = max(1, _CELLS // bins)
    # The fine edges j/(each·M) contain the edges of the M bins exactly: quotients of the same numbers.
    fine = width_table(tally_width(p.confidence, p.correct, bins * each))
    observed = width_table(tally_width(p.confidence, p.correct, bins)).error(1)
    some = fine.count > 0
    owner = np.arange(bins * each)[some] // each
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    count, mean = fine.count[some], np.clip(fine.confidence[some], 0.0, 1.0)
    random = np.random.default_rng(check_int("seed", seed, 0))
    errors = np.empty(resamples)
    for index in range(resamples):
        gaps = np.add.reduceat(random.binomial(count, mean) - count * mean, starts)
        errors[index] = np.abs(gaps).sum() / n
    # A redrawn error equal to the observed one up to rounding counts as equal.
    extreme = int(np.count_nonzero(errors >= observed - 1e-12))
    return ChanceECE(
        observed=observed,
        mean=float(errors.mean()),
        upper=float(np.quantile(errors, 0.95)),
        p_value=(1 + extreme) / (1 + resamples),
        resamples=resamples,
    )
