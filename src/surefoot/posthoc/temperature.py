"""Temperature scaling (Guo et al. 2017): one number, found where the derivative of the NLL changes sign.

NLL(β) = mean log Σ_k exp(β z_k) − β z_y is convex in β = 1/T. Its derivative g(β) = mean Σ_k p_k(β) z_k − z_y rises,
and its slope is the mean variance of z under p(β); Newton's method finds the root, kept between a point where g
is negative and one where it is positive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from surefoot.errors import BadInput
from surefoot.posthoc.calibrator import Calibrator, Floats
from surefoot.predictions import Predictions
from surefoot.validation import check_positive

__all__ = ["Temperature", "fit_beta"]

# The optimum is certified by the signs of the derivative at β(1 − WIDTH) and β(1 + WIDTH).
_WIDTH = 1e-6
_PATIENCE = 5  # steps outwards before asking whether the data are separable
_MOST = 60  # evaluations before giving up; Newton with a bracket needs fewer than ten
_ROUGH = 1 << 22  # numbers from which a pass in single precision pays
_SAMPLE = 1 << 11  # rows of the sample that gives Newton its start
# Stands for −inf where a square must stay finite, by the precision.
_LOWEST = {torch.float64: -1e150, torch.float32: -1e18}
# Where any confidence at all is too much (the logits rank worse than chance), every row's range shrinks to this.
_FLAT = 1e-3
# Of the median margin: a smaller one is a tie but for rounding, and to be sure of it would take a T near 0.
_TIE = 1e-3


class Temperature(Calibrator):
    """softmax(z / T) with the T > 0 that minimises the NLL; no answer changes.

    Learned:
        temperature_: T.
        bracket_: (low, high) around T, at which the derivative of the NLL has opposite signs; the optimum lies between.
        outcome_: ``"optimum"``; ``"uncertified"`` where rounding hid the sign of the derivative; ``"separable"`` where
            every row is right, so that the NLL falls for ever: T is then such that the mean confidence is
            (m + 1)/(m + 2), the rule of succession, over the m rows whose margin is finite and no tie (1 if m = 0); or
            ``"uninformative"`` where the logits rank the classes no better than chance: T is then so large, and at
            least 1, that no two finite logits of a row are more than 0.001 apart.
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
        check_positive("temperature_", self.temperature_)

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
    start = 1.0 / max(_typical_margin(few), 1e-12)
    passes = 0.0
    if few is not p:
        found = _newton(few, start)
        if isinstance(found, tuple):
            start, passes = found[0], found[3] * len(few) / len(p)
    found = _newton(p, start)
    if found == "separable":
        return _separable(p)
    if isinstance(found, str):
        beta = min(1.0, _FLAT / max(_widest_range(p), _FLAT))
        return beta, beta, beta, found, passes
    beta, low, high, used = found
    return beta, low, high, "optimum" if used < _MOST else "uncertified", passes + used


def _newton(p: Predictions, start: float) -> tuple[float, float, float, int] | str:
    """The root of the derivative, a bracket around it of relative width 2·_WIDTH, and passes over the rows.

    ``"uninformative"`` if the derivative is not negative at 0, ``"separable"`` if it is negative for ever. Large
    arrays of single precision are first looked at in single precision; the bracket is of double precision only.
    """
    low, high, beta = 0.0, math.inf, start
    used, certifying, falls_at_zero, rises, curvature = 0, False, False, False, 0.0
    rough = 2 if p.low_precision and len(p) * p.classes >= _ROUGH else 0
    while used < _MOST:
        # Where a sign is all that is asked for, the curvature of the pass before will do for a step.
        slope, bend = _slope(p, beta, torch.float32 if rough else torch.float64, bend=not certifying)
        curvature = curvature if bend is None else bend
        used += 1
        root = beta - slope / curvature if curvature > 0 else math.nan
        if rough:
            # Two steps in single precision, if they make sense, are all that is taken from it.
            rough -= 1
            sensible = beta / 4 < root < 4 * beta
            certifying = sensible and not rough and abs(root - beta) <= 1e-3 * beta
            beta = root * (1 - _WIDTH if certifying else 1) if sensible else beta
            continue
        if slope == 0 and (endless := _endless(p)):  # so far out that nothing is left of it
            return endless
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
            if not rises and (endless := _endless(p)):
                return endless
            rises, beta = True, 8 * low
            continue
        if low == 0 and not falls_at_zero:
            used += 1
            falls_at_zero = _slope(p, 0.0, torch.float64, bend=False)[0] < 0
            if not falls_at_zero:
                return "uninformative"
        beta = (low * high) ** 0.5 if low else high / 8
    return beta, low, high, used


def _endless(p: Predictions) -> str | None:
    """What to call it if the NLL rises nowhere: every label's logit is a largest one of its row."""
    if not (p.true_margin >= 0).all():
        return None
    return "separable" if (p.true_margin > 0).any() or _widest_range(p) > 0 else "uninformative"


def _typical_margin(p: Predictions) -> float:
    """The median distance between the two largest logits of a row, ties left out; 1 if none is finite."""
    margins = torch.cat([-z.topk(2, dim=1).values[:, 1] for z, *_ in _blocks(p, torch.float64)])
    margins = margins[(margins > 0) & (margins < -_LOWEST[torch.float64])]
    return float(margins.median()) if len(margins) else 1.0


def _widest_range(p: Predictions) -> float:
    """The largest distance between two finite logits of a row."""
    lowest = _LOWEST[torch.float64]
    return max(-float(z.masked_fill(z <= lowest, 0.0).min()) for z, *_ in _blocks(p, torch.float64))


def _slope(p: Predictions, beta: float, dtype: torch.dtype, bend: bool) -> tuple[float, float | None]:
    """First derivative of the mean NLL at β, and if ``bend`` the second; one pass over the rows."""
    first = second = 0.0
    for z, low, e, labels in _blocks(p, dtype):
        true = z.gather(1, labels[:, None])[:, 0]
        torch.mul(z, beta, out=e)
        e.exp_()
        if low:
            e[z <= _LOWEST[dtype]] = 0.0  # also at β = 0: the limit from above
        weight = 1.0 / e.sum(1)
        mean = e.mul_(z).sum(1) * weight
        first += float((mean - true).double().sum())
        if bend:
            second += float((e.mul_(z).sum(1) * weight - mean.square()).double().sum())
    return first / len(p), second / len(p) if bend else None


def _blocks(p: Predictions, dtype: torch.dtype) -> Iterator[tuple[Tensor, bool, Tensor, Tensor]]:
    """Of every block: logits (b, k) less the largest of their row, none below `_LOWEST`, and whether some are there;
    room of that shape; labels.

    In torch, whose threads share one block: numpy's exponential takes three times as long, and threads of our own
    wait for the interpreter's lock.
    """
    slices = [rows for part in p.parts() for rows in part]
    longest = max(rows.stop - rows.start for rows in slices)
    given, room = (torch.empty(longest, p.classes, dtype=dtype) for _ in range(2))
    for rows in slices:
        z = torch.from_numpy(p.logit_block(rows, given.numpy()))
        z.sub_(z.amax(1, keepdim=True))
        low = float(z.min()) <= _LOWEST[dtype]
        if low:
            z.clamp_(min=_LOWEST[dtype])
        yield z, low, room[: len(z)], torch.from_numpy(p.labels[rows].copy())


def _separable(p: Predictions) -> tuple[float, float, float, str, float]:
    """β at which the mean confidence is (m + 1)/(m + 2) over the m rows that can move, by bisection in log β.

    A tie stays a tie at every β, and a row whose other logits are −inf stays sure: with them the goal might be out of
    reach.
    """
    margin = np.where(np.isfinite(p.predicted_margin), p.predicted_margin, 0.0)
    rows = np.flatnonzero(margin > _TIE * np.median(margin[margin > 0]) if margin.any() else margin > 0)
    if len(rows) == 0:
        return 1.0, 1.0, 1.0, "separable", 0.0
    moving, goal = p.take(rows), (len(rows) + 1) / (len(rows) + 2)
    # At the lower end no row is much surer than 1/2; at the upper one every row is surer than the goal.
    low = 1e-3 / float(margin[rows].max())
    high = 2 * math.log(p.classes * (len(rows) + 2)) / float(margin[rows].min())
    used = 0
    while high > low * (1 + _WIDTH):
        beta = low**0.5 * high**0.5
        used += 1
        if _mean_confidence(moving, beta) < goal:
            low = beta
        else:
            high = beta
    return (beta := low**0.5 * high**0.5), beta, beta, "separable", float(used)


def _mean_confidence(p: Predictions, beta: float) -> float:
    total = 0.0
    for z, _, e, _ in _blocks(p, torch.float64):
        total += float((1.0 / torch.mul(z, beta, out=e).exp_().sum(1)).sum())
    return total / len(p)
