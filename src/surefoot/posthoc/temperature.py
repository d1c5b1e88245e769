"""Temperature scaling: one number T, computed as the root of the derivative of the NLL.

NLL(β) = mean log Σ_k exp(β z_k) − β z_y is convex in β = 1/T. The derivative g(β) = mean Σ_k p_k(β) z_k − z_y rises,
and the slope of g is the mean variance of z under p(β). Newton's method finds the root, and stays between a point with
negative g and a point with positive g.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.errors import BadInput
from surefoot.posthoc.calibrator import Calibrator, Floats, keep_predicted
from surefoot.posthoc.rows import row_count, row_weights
from surefoot.predictions import Predictions
from surefoot.validation import check_positive

__all__ = ["Temperature", "fit_beta"]

# The signs of the derivative at β(1 − _WIDTH) and β(1 + _WIDTH) certify the optimum.
_WIDTH = 1e-6
_PATIENCE = 5  # steps outwards before a test whether the data are separable
_MAX_PASSES = 60  # evaluations before giving up; Newton's method with a bracket needs fewer than ten
_ROUGH = 1 << 22  # arrays of at least so many numbers are first read in single precision
_SAMPLE = 1 << 11  # rows of the sample whose optimum starts Newton's method
# These numbers replace −inf where a square must stay finite, by precision.
_LOWEST = {torch.float64: -1e150, torch.float32: -1e18}
# If the logits rank the classes worse than chance, the range of the logits of every row shrinks to this number.
_FLAT = 1e-3
_ONE_MINIMUM = 2.0  # with a prior, log β up to which there is one minimum in practice
_GRID = 41  # values of log β that are tried beyond
_FARTHEST = 600.0  # bound of log β, whose exponential must be finite
_SMALLEST = 1e-300  # bound of T and 1/T, whose reciprocals must be finite
# Margins below this share of the median margin count as ties: a high confidence in such rows would need a T near 0.
_TIE = 1e-3


class Temperature(Calibrator):
    """Temperature scaling: softmax(z / T) with the T > 0 that minimises the NLL; no predicted class changes.

    The fit ends with one of four outcomes:

    - ``"optimum"``: T is certified by the bracket.
    - ``"uncertified"``: rounding hid the sign of the derivative.
    - ``"separable"``: every row is right, so that the NLL falls for ever as T falls to 0. T then gives the mean
      confidence (m + 1)/(m + 2), the rule of succession. The mean is over the m rows whose margin is finite and no tie;
      T = 1 if m = 0.
    - ``"uninformative"``: the logits rank the classes no better than chance. T is then at least 1, and so large that
      any two finite logits of a row are at most 0.001 apart after the division.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.
        prior: standard deviation of a normal prior of log T around 0, for few rows; None for no prior. With a prior, T
            maximises the posterior density.
        mixed: mix the result with the uniform distribution, with the share 1/(n + 1).

    Attributes:
        temperature_: T.
        bracket_: (low, high) around T, where the derivative of the NLL has opposite signs; the optimum is between.
            With a prior, T and its rounding.
        outcome_: one of the four outcomes.
        passes_: how often all rows were read.
        impossible_: number of rows whose label has a logit of −inf; no temperature helps these rows, and the fit leaves
            them out.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10, [0] * 8 + [1] * 2)
        >>> round(Temperature().fit(p).temperature_, 5)  # the NLL is lowest at the confidence 0.8
        2.88539

    References:
        Guo, Pleiss, Sun & Weinberger (2017), "On Calibration of Modern Neural Networks".
    """

    method = "temperature"
    learned = ("temperature_", "uniform_")
    added: ClassVar[dict[str, Any]] = {"uniform_": 0.0, "prior": None, "mixed": False}

    def __init__(self, scores: str = "logits", *, prior: float | None = None, mixed: bool = False) -> None:
        super().__init__(scores)
        self.prior, self.mixed = prior, mixed

    def _fit(self, p: Predictions) -> None:
        possible = p.possible
        self.impossible_ = int(len(p) - possible.sum())
        if self.impossible_ == len(p):
            raise BadInput("every row's label has probability 0; no temperature can help. Are the labels those of p?")
        kept = p if self.impossible_ == 0 else p.take(np.flatnonzero(possible))
        beta, low, high, self.outcome_, self.passes_ = fit_beta(kept)
        if self.prior is not None:
            beta, used = _with_prior(kept, beta, self.outcome_, float(self.prior))
            low, high, self.passes_ = beta * (1 - _WIDTH), beta * (1 + _WIDTH), self.passes_ + used
        self.temperature_ = 1.0 / min(max(beta, _SMALLEST), 1 / _SMALLEST)
        self.bracket_ = (1.0 / high, 1.0 / low if low > 0 else math.inf)

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        return scaled_logits(p, 1.0 / self.temperature_), "logits"

    def check_learned(self) -> None:
        """Check that the temperature is above 0."""
        super().check_learned()
        check_positive("temperature_", self.temperature_)

    def number_of_parameters(self, classes: int) -> int:
        """Return 1."""
        return 1


def scaled_logits(p: Predictions, beta: float) -> Floats:
    """(n, k) β (z − max z): logits of softmax(β z), none above 0, with the same predicted classes."""
    if p.scores == "logits" and (quick := _scaled_blocks(p, beta)) is not None:
        return quick
    logits = np.array(p.logits, dtype=np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    try:
        with np.errstate(under="raise"):
            scaled = np.multiply(logits, beta, out=logits if beta >= 1 else None)
    except FloatingPointError:  # differences below 1e-300 become ties
        return keep_predicted(logits * beta, p)
    # Logarithms of two neighbouring probabilities may be equal.
    return keep_predicted(scaled, p) if p._kind == "probs" else scaled


def _scaled_blocks(p: Predictions, beta: float) -> Floats | None:
    """`scaled_logits` block by block, in one pass through memory; None if a difference underflows."""
    scaled = np.empty((len(p), p.classes))
    try:
        with np.errstate(under="raise"):
            for rows in (rows for part in p.parts() for rows in part):
                z = p.logit_block(rows, scaled[rows])
                # Torch's maximum of short rows takes a quarter of numpy's time.
                z -= torch.from_numpy(z).amax(1, keepdim=True).numpy()
                z *= beta
    except FloatingPointError:
        return None
    return scaled


def fit_beta(p: Predictions) -> tuple[float, float, float, str, float]:
    """Minimise the NLL of softmax(β z) over β > 0.

    Large arrays start from the optimum of a sample of about 2,000 rows.

    Args:
        p: predictions in which no label has a logit of −inf.

    Returns:
        β, the lower and upper ends of a bracket with certified signs, the outcome as in `Temperature`, and the number
        of passes over the rows.
    """
    sample = p if len(p) <= 4 * _SAMPLE else p.take(np.arange(0, len(p), len(p) // _SAMPLE))
    start = 1.0 / max(_typical_margin(sample), 1e-12)
    passes = 0.0
    if sample is not p:
        result = _newton(sample, start)
        if isinstance(result, tuple):
            start, passes = result[0], result[3] * len(sample) / len(p)
    result = _newton(p, start)
    if result == "separable":
        return _separable(p)
    if isinstance(result, str):
        beta = min(1.0, _FLAT / max(_widest_range(p), _FLAT))
        return beta, beta, beta, result, passes
    beta, low, high, used = result
    return beta, low, high, "optimum" if used < _MAX_PASSES else "uncertified", passes + used


def _newton(p: Predictions, start: float) -> tuple[float, float, float, int] | str:
    """The root of the derivative, a bracket of relative width 2·_WIDTH around the root, and passes over the rows.

    The result is ``"uninformative"`` if the derivative is not negative at 0, ``"separable"`` if it is negative
    everywhere. Large arrays of single precision are first read in single precision; the bracket always uses double
    precision.
    """
    low, high, beta = 0.0, math.inf, start
    used, certifying, falls_at_zero, rises, curvature = 0, False, False, False, 0.0
    rough = 2 if p.low_precision and len(p) * p.classes >= _ROUGH else 0
    while used < _MAX_PASSES:
        # If only the sign is needed, the curvature of the previous pass suffices for a step.
        slope, bend = _slope(p, beta, torch.float32 if rough else torch.float64, bend=not certifying)
        curvature = curvature if bend is None else bend
        used += 1
        root = beta - slope / curvature if curvature > 0 else math.nan
        if rough:
            # Single precision contributes two steps, and only sensible ones.
            rough -= 1
            sensible = beta / 4 < root < 4 * beta
            certifying = sensible and not rough and abs(root - beta) <= 1e-3 * beta
            beta = root * (1 - _WIDTH if certifying else 1) if sensible else beta
            continue
        if slope == 0 and (unbounded := _unbounded(p)):  # so far out that the derivative underflows
            return unbounded
        if slope < 0:
            low = beta
        else:
            high = beta
        if high - low <= 2.5 * _WIDTH * low:
            return (low + high) / 2, low, high, used
        if low < root < high and math.isfinite(root):
            # Close to the root a step is nearly exact: the signs on both sides of its end are checked, first below. A
            # known point just below suffices if it makes the bracket narrow enough to end.
            certifying = certifying or abs(root - beta) <= 1e-3 * beta
            beta = root * (1 + _WIDTH if low >= root * (1 - 1.4 * _WIDTH) else 1 - _WIDTH) if certifying else root
            if certifying or used < _PATIENCE or math.isfinite(high):
                continue
        certifying = False
        if math.isinf(high):
            # The root is beyond every point so far, if a root exists at all.
            if not rises and (unbounded := _unbounded(p)):
                return unbounded
            rises, beta = True, 8 * low
            continue
        if low == 0 and not falls_at_zero:
            used += 1
            falls_at_zero = _slope(p, 0.0, torch.float64, bend=False)[0] < 0
            if not falls_at_zero:
                return "uninformative"
        beta = (low * high) ** 0.5 if low else high / 8
    return beta, low, high, used


def _unbounded(p: Predictions) -> str | None:
    """The outcome if the NLL rises nowhere, because every label's logit is the largest of its row or ties with it."""
    if p.soft_labels is not None:
        if any(float(_of_label(p, z, rows).min()) < 0 for z, _, _, rows in _blocks(p, torch.float64)):
            return None
        return "separable" if _widest_range(p) > 0 else "uninformative"
    if not (p.true_margin >= 0).all():
        return None
    return "separable" if (p.true_margin > 0).any() or _widest_range(p) > 0 else "uninformative"


def _with_prior(p: Predictions, beta: float, outcome: str, spread: float) -> tuple[float, int]:
    """The β that minimises n NLL(β) + log²β / (2 spread²), and the number of passes.

    The first term falls towards the optimum without a prior and the second towards β = 1, so that every minimum is
    between. There may be two of them where the prior contradicts the rows: a grid finds the lower one.
    """
    n, used = row_count(p), 0

    def slopes(u: float) -> tuple[float, float]:
        nonlocal used
        used += 1
        slope, bend = _slope(p, math.exp(u), torch.float64, bend=True)
        first = n * slope * math.exp(u)
        return first + u / spread**2, first + n * (bend or 0.0) * math.exp(2 * u) + spread**-2

    if outcome in ("separable", "uninformative"):
        # The prior costs no more than the NLL at β = 1, which it can save.
        far = min(spread * math.sqrt(2 * n * _mean_nll(p, 1.0)), _FARTHEST)
        end = far if outcome == "separable" else -far
    else:
        end = math.log(beta)

    low, u, high = min(0.0, end), end, max(0.0, end)
    if abs(end) > _ONE_MINIMUM:
        grid = np.linspace(0.0, end, _GRID)
        costs = [n * _mean_nll(p, math.exp(at)) + at**2 / (2 * spread**2) for at in grid]
        best, step, used = float(grid[int(np.argmin(costs))]), abs(end) / (_GRID - 1), _GRID
        low, u, high = max(low, best - step), best, min(high, best + step)
    for _ in range(_MAX_PASSES):
        first, second = slopes(u)
        low, high = (u, high) if first < 0 else (low, u)
        root = u - first / second if second > 0 else math.nan
        last, u = u, root if low <= root <= high else (low + high) / 2
        if abs(u - last) <= 1e-9:
            break
    return math.exp(u), used


def _mean_nll(p: Predictions, beta: float) -> float:
    total = 0.0
    for z, _, e, rows in _blocks(p, torch.float64):
        true = _of_label(p, z, rows)
        total += _sum(p, torch.mul(z, beta, out=e).exp_().sum(1).log_() - beta * true, rows)
    return total / row_count(p)


def _typical_margin(p: Predictions) -> float:
    """The median distance between the two largest logits of a row, without ties; 1 if no distance is finite."""
    margins = torch.cat([-z.topk(2, dim=1).values[:, 1] for z, *_ in _blocks(p, torch.float64)]).numpy()
    finite = (margins > 0) & (margins < -_LOWEST[torch.float64])
    return _median(p, margins, finite) if finite.any() else 1.0


def _median(p: Predictions, values: Floats, chosen: NDArray[np.bool_]) -> float:
    """The lower median of the chosen values, each repeated as often as its row's weight says."""
    weights = row_weights(p)
    if weights is None:
        kept = values[chosen]
        return float(np.partition(kept, (len(kept) - 1) // 2)[(len(kept) - 1) // 2])
    order = np.flatnonzero(chosen)[np.argsort(values[chosen], kind="stable")]
    up_to = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(up_to, math.ceil(up_to[-1] / 2))]])


def _widest_range(p: Predictions) -> float:
    """The largest distance between two finite logits of a row."""
    lowest = _LOWEST[torch.float64]
    return max(-float(z.masked_fill(z <= lowest, 0.0).min()) for z, *_ in _blocks(p, torch.float64))


def _slope(p: Predictions, beta: float, dtype: torch.dtype, bend: bool) -> tuple[float, float | None]:
    """First derivative of the mean NLL at β, and with ``bend`` the second derivative; one pass over the rows."""
    first = second = 0.0
    for z, low, e, rows in _blocks(p, dtype):
        true = _of_label(p, z, rows)
        torch.mul(z, beta, out=e)
        e.exp_()
        if low:
            e[z <= _LOWEST[dtype]] = 0.0  # at β = 0 too, as the limit from above
        weight = 1.0 / e.sum(1)
        mean = e.mul_(z).sum(1) * weight
        first += _sum(p, mean - true, rows)
        if bend:
            second += _sum(p, e.mul_(z).sum(1) * weight - mean.square(), rows)
    n = row_count(p)
    return first / n, second / n if bend else None


def _of_label(p: Predictions, z: Tensor, rows: slice) -> Tensor:
    """(b,) logit of the label of each row; of a soft label, the mean logit."""
    if p.soft_labels is None:
        return z.gather(1, torch.from_numpy(p.labels[rows].copy())[:, None])[:, 0]
    return z.mul(torch.from_numpy(p.soft_labels[rows].astype(np.float64)).to(z.dtype)).sum(1)


def _sum(p: Predictions, values: Tensor, rows: slice) -> float:
    """The sum of values of the rows of a block, by their weights."""
    weights = row_weights(p)
    if weights is None:
        return float(values.double().sum())
    return float(values.double() @ torch.from_numpy(weights[rows].copy()))


def _blocks(p: Predictions, dtype: torch.dtype) -> Iterator[tuple[Tensor, bool, Tensor, slice]]:
    """For every block: clipped logits, whether some were clipped, a spare buffer of the same shape, and the rows.

    The logits (b, k) are relative to the largest logit of their row, and at least `_LOWEST`. Torch's threads share one
    block: numpy's exponential takes three times as long, and Python threads wait for the interpreter's lock.
    """
    slices = [rows for part in p.parts() for rows in part]
    longest = max(rows.stop - rows.start for rows in slices)
    buffer, spare = (torch.empty(longest, p.classes, dtype=dtype) for _ in range(2))
    for rows in slices:
        z = torch.from_numpy(p.logit_block(rows, buffer.numpy()))
        z.sub_(z.amax(1, keepdim=True))
        low = float(z.min()) <= _LOWEST[dtype]
        if low:
            z.clamp_(min=_LOWEST[dtype])
        yield z, low, spare[: len(z)], rows


def _separable(p: Predictions) -> tuple[float, float, float, str, float]:
    """β at which the mean confidence is (m + 1)/(m + 2) over the m rows that β can change, by bisection in log β.

    A tie stays a tie at every β, and a row whose other logits are −inf keeps the confidence 1: with such rows the goal
    might be out of reach.
    """
    margin = np.where(np.isfinite(p.predicted_margin), p.predicted_margin, 0.0)
    rows = np.flatnonzero(margin > _TIE * _median(p, margin, margin > 0) if margin.any() else margin > 0)
    if len(rows) == 0:
        return 1.0, 1.0, 1.0, "separable", 0.0
    moving = p.take(rows)
    number = row_count(moving)
    goal = (number + 1) / (number + 2)
    # At the lower end no confidence is much above 1/2; at the upper end every confidence is above the goal.
    low = 1e-3 / float(margin[rows].max())
    high = 2 * math.log(p.classes * (number + 2)) / float(margin[rows].min())
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
    for z, _, e, rows in _blocks(p, torch.float64):
        total += _sum(p, 1.0 / torch.mul(z, beta, out=e).exp_().sum(1), rows)
    return total / row_count(p)
