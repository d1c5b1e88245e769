"""Temperature scaling (Guo et al. 2017): one number, found where the derivative of the NLL changes sign.

NLL(β) = mean log Σ_k exp(β z_k) − β z_y is convex in β = 1/T. Its derivative g(β) = mean Σ_k p_k(β) z_k − z_y rises,
and its slope is the mean variance of z under p(β); Newton's method finds the root, kept between a point where g
is negative and one where it is positive.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from surefoot.checks import positive
from surefoot.errors import BadInput
from surefoot.posthoc.calibrator import Calibrator, Floats
from surefoot.predictions import LOWEST_LOGIT, Predictions
from surefoot.threads import run_ranges

__all__ = ["Temperature", "fit_beta"]

# The optimum is certified by the signs of the derivative at β(1 − WIDTH) and β(1 + WIDTH).
_WIDTH = 1e-6
_PATIENCE = 5  # steps outwards before asking whether the data are separable
_MOST = 60  # evaluations before giving up; Newton with a bracket needs fewer than ten
_ROUGH = 1 << 22  # numbers from which a pass in single precision pays
_SAMPLE = 1 << 11  # rows of the sample that gives Newton its start
# Where any confidence at all is too much (the logits rank worse than chance), all margins shrink to this.
_FLAT = 1e-3


class Temperature(Calibrator):
    """softmax(z / T) with the T > 0 that minimises the NLL; no answer changes.

    Learned:
        temperature_: T.
        bracket_: (low, high) around T, at which the derivative of the NLL has opposite signs; the optimum lies between.
        outcome_: ``"optimum"``; ``"uncertified"`` where rounding hid the sign of the derivative; ``"separable"`` where
            every row is right, so that the NLL falls for ever: T is then such that the mean confidence is
            (n + 1)/(n + 2), the rule of succession; or ``"uninformative"`` where the logits rank the classes no better
            than chance: T is then so large that all margins are at most 0.001.
        passes_: how often all rows were read.
        impossible_: rows whose label has a logit of −inf; no temperature helps them, so they are left out.

    >>> p = Predictions([[4.0, 0.0]] * 10, [0] * 8 + [1] * 2)
    >>> round(Temperature().fit(p).temperature_, 5)  # the NLL is least where the confidence is 0.8
    2.88539
    """

    method = "temperature"
    learned = ("temperature_",)
    keeps_order = True

    def _fit(self, p: Predictions) -> None:
        possible = p.possible
        self.impossible_ = int(len(p) - possible.sum())
        if self.impossible_ == len(p):
            raise BadInput("every row's label has probability 0; no temperature can help. Are the labels those of p?")
        kept = p if self.impossible_ == 0 else p.take(np.flatnonzero(possible))
        beta, low, high, self.outcome_, self.passes_ = fit_beta(kept)
        self.temperature_ = 1.0 / beta
        self.bracket_ = (1.0 / high, 1.0 / low if low > 0 else math.inf)

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        return scaled_logits(p, 1.0 / self.temperature_), "logits"

    def check_learned(self) -> None:
        """A temperature is above 0."""
        positive("temperature_", self.temperature_)
        super().check_learned()

    def number_of_parameters(self, classes: int) -> int:
        """One."""
        return 1


def scaled_logits(p: Predictions, beta: float) -> Floats:
    """(n, k) β (z − max z): the logits of softmax(β z), none above 0."""
    logits = np.array(p.logits, dtype=np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    logits *= beta
    return logits


def fit_beta(p: Predictions) -> tuple[float, float, float, str, float]:
    """The β that minimises the NLL, a bracket with certified signs, the outcome, and passes over the rows."""
    few = p if len(p) <= 4 * _SAMPLE else p.take(np.arange(0, len(p), len(p) // _SAMPLE))
    margin = few.predicted_margin[np.isfinite(few.predicted_margin)]
    start = 1.0 / max(float(np.median(margin)) if len(margin) else 1.0, 1e-12)
    passes = 0.0
    if few is not p:
        found = _newton(few, start)
        if isinstance(found, tuple):
            start, passes = found[0], found[3] * len(few) / len(p)
    found = _newton(p, start)
    if found == "separable":
        return _separable(p)
    if isinstance(found, str):
        widest = float(p.predicted_margin[np.isfinite(p.predicted_margin)].max(initial=0.0))
        beta = _FLAT / widest if widest > 0 else 1.0
        return beta, beta, beta, found, passes
    beta, low, high, used = found
    return beta, low, high, "optimum" if used < _MOST else "uncertified", passes + used


def _newton(p: Predictions, start: float) -> tuple[float, float, float, int] | str:
    """The root of the derivative, a bracket around it of relative width 2·_WIDTH, and passes over the rows.

    ``"uninformative"`` if the derivative is not negative at 0, ``"separable"`` if it is negative for ever. Large
    arrays of single precision are first looked at in single precision; the bracket is of double precision only.
    """
    low, high, beta = 0.0, math.inf, start
    used, certifying, falls_at_zero, rises = 0, False, False, False
    rough = p.low_precision and len(p) * p.classes >= _ROUGH
    while used < _MOST:
        slope, curvature = _slope(p, beta, np.float32 if rough else np.float64)
        used += 1
        root = beta - slope / curvature if curvature > 0 else math.nan
        if rough:
            # One step in single precision, if it makes sense, is all that is taken from it.
            rough = False
            beta = root if beta / 4 < root < 4 * beta else beta
            continue
        if slope < 0:
            low = beta
        else:
            high = beta
        if high - low <= 2.5 * _WIDTH * low:
            return (low + high) / 2, low, high, used
        if low < root < high and math.isfinite(root):
            # Close enough that this step is all but exact: look at both sides of where it leads, first below; a point
            # already known to be just below will do, if the bracket it makes is narrow enough to end.
            certifying = certifying or abs(root - beta) <= 1e-3 * beta
            beta = root * (1 + _WIDTH if low >= root * (1 - 1.4 * _WIDTH) else 1 - _WIDTH) if certifying else root
            if certifying or used < _PATIENCE or math.isfinite(high):
                continue
        certifying = False
        if math.isinf(high):
            # Beyond every point so far: is there a far side at all?
            if not rises and bool((p.true_margin >= 0).all()):
                return "separable" if (p.true_margin > 0).any() else "uninformative"
            rises, beta = True, 8 * low
            continue
        if low == 0 and not falls_at_zero:
            used += 1
            falls_at_zero = _slope(p, 0.0, np.float64)[0] < 0
            if not falls_at_zero:
                return "uninformative"
        beta = (low * high) ** 0.5 if low else high / 8
    return beta, low, high, used


def _slope(p: Predictions, beta: float, dtype: Any) -> tuple[float, float]:
    """First and second derivative of the mean NLL at β, one pass over the rows."""

    def visit(part: list[slice]) -> tuple[float, float]:
        first = second = 0.0
        longest = max((rows.stop - rows.start for rows in part), default=0)
        buffers = np.empty((2, longest, p.classes), dtype)
        for rows in part:
            z, labels = p.logit_block(rows, buffers[0]), p.labels[rows]
            true = z[np.arange(len(z)), labels]
            e = np.multiply(z, dtype(beta), out=buffers[1][: len(z)])
            torch.from_numpy(e).exp_()  # three times as fast as numpy's in double precision
            lowest = LOWEST_LOGIT[z.dtype]
            if z.min() <= lowest:
                e[z <= lowest] = 0.0  # also at β = 0: the limit from above
            weight = 1.0 / e.sum(axis=1)
            mean = np.vecdot(e, z) * weight
            first += float((mean - true).sum(dtype=np.float64))
            e *= z
            second += float((np.vecdot(e, z) * weight - mean**2).sum(dtype=np.float64))
        return first, second

    sums = run_ranges(visit, p.parts(), len(p) * p.classes >= 1 << 20)
    first, second = np.sum(sums, axis=0) / len(p)
    return float(first), float(second)


def _separable(p: Predictions) -> tuple[float, float, float, str, float]:
    """β at which the mean confidence is (n + 1)/(n + 2), by bisection in log β."""
    goal = (len(p) + 1) / (len(p) + 2)
    finite = p.predicted_margin[np.isfinite(p.predicted_margin) & (p.predicted_margin > 0)]
    if len(finite) == 0:
        return 1.0, 1.0, 1.0, "separable", 0.0
    typical = 1.0 / float(np.median(finite))
    low, high = 1e-6 * typical, 1e6 * typical
    used = 0
    while high > low * (1 + _WIDTH):
        beta = (low * high) ** 0.5
        used += 1
        if _mean_confidence(p, beta) < goal:
            low = beta
        else:
            high = beta
    return (beta := (low * high) ** 0.5), beta, beta, "separable", float(used)


def _mean_confidence(p: Predictions, beta: float) -> float:
    total = 0.0
    for part in p.parts():
        for rows in part:
            total += float((1.0 / np.exp(beta * p.logit_block(rows)).sum(axis=1)).sum())
    return total / len(p)
