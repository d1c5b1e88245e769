"""Intervals for any metric by resampling rows, with the bias of the plug-in taken out.

A binned or kernel error is biased upwards: noise in a bin never cancels, it adds. A resample of the data is
noisier still, so the usual percentile interval sits too high, often above the truth altogether. Here the
spread of the resampled values *around the value that is true of the data resampled from* is turned round the
estimate (the basic bootstrap):

    [θ̂ − (q_high − T(data)), θ̂ − (q_low − T(data))],

with T the plug-in: the metric itself, or, for an estimator that already removes its bias, the error without
that correction. This takes the first-order bias out of the interval. Scores that are plain means or rankings
(accuracy, NLL, Brier, AUROC, ...) are nearly unbiased and keep the percentile interval, which never leaves
their range. A user's own metric is treated as a plug-in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from surefoot.metrics.reliability import check_level
from surefoot.predictions import Predictions

__all__ = ["Interval", "interval", "intervals"]

AnyMetric = Callable[[Predictions], float]
