"""Linear relaxations of activations: a line below and a line above the function on every interval [low, high].

A line is stored as its slope and its gap. The gap is the line minus the function at a point ``at`` of the interval, the
value at the clean input. The gap of a lower line is at most 0, the gap of an upper line at least 0. The lines are sound
up to rounding, also where low = high.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["GELU", "GELU_TANH", "RELU", "TANH", "Activation", "Lines"]


class Lines(NamedTuple):
    """The lines f(at) + gap + slope·(x − at) below and above f(x).

    Attributes:
        lower_slope: slope of the lower line.
        lower_gap: gap of the lower line, at most 0.
        upper_slope: slope of the upper line.
        upper_gap: gap of the upper line, at least 0.
    """

    lower_slope: Tensor
    lower_gap: Tensor
    upper_slope: Tensor
    upper_gap: Tensor


@dataclass(frozen=True)
class Activation:
    """A function applied to every coordinate.

    Attributes:
        name: name for error messages.
        apply: the function.
        image: function of (low, high) that returns bounds of the values on [low, high].
        lines: function of (low, high, at) that returns lines below and above the function on [low, high].
        lipschitz: an upper bound of the absolute slope.
        kink: whether the function is linear on every interval without 0 in its interior.

    Example:
        >>> low, high, at = torch.tensor(-1.0), torch.tensor(3.0), torch.tensor(1.0)
        >>> lines = RELU.lines(low, high, at)
        >>> float(lines.upper_slope), float(lines.upper_gap)
        (0.75, 0.5)
    """

    name: str
    apply: Callable[[Tensor], Tensor]
    image: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    lines: Callable[[Tensor, Tensor, Tensor], Lines]
    lipschitz: float = 1.0
    kink: bool = False


def _lines(lower_slope: Tensor, lower_gap: Tensor, upper_slope: Tensor, upper_gap: Tensor) -> Lines:
    """Lines whose gaps have the right sign, also where rounding gave a gap the wrong sign."""
    return Lines(lower_slope, lower_gap.clamp_max(0), upper_slope, upper_gap.clamp_min(0))


def _chord(low: Tensor, high: Tensor, f_low: Tensor, f_high: Tensor, slope: Tensor) -> Tensor:
    """Slope of the chord; ``slope`` where the ends are so close that the quotient is 0/0 or mostly rounding."""
    width = high - low
    short = width <= 1e-14 * (low.abs() + high.abs())
    return torch.where(short, slope, (f_high - f_low) / torch.where(short, 1.0, width))


# ReLU


def _relu_lines(low: Tensor, high: Tensor, at: Tensor) -> Lines:
    """Above: the chord. Below: x or 0, whichever leaves the smaller triangle (CROWN, Zhang et al., 2018)."""
    bent = (low < 0) & (high > 0)
    on = (low >= 0).to(low.dtype)
    upper = torch.where(bent, high / (high - low), on)
    lower = torch.where(bent, (high > -low).to(low.dtype), on)
    f_at = at.relu()
    upper_gap = torch.where(bent, upper * (at - low) - f_at, 0.0)
    lower_gap = torch.where(bent, lower * at - f_at, 0.0)
    return _lines(lower, lower_gap, upper, upper_gap)


RELU = Activation("ReLU", torch.relu, lambda low, high: (low.relu(), high.relu()), _relu_lines, kink=True)


# tanh

_TABLE_END, _TABLE_STEPS = 8.0, 4096
# Beyond this width a line of slope 0 is almost as tight, and slopes near 0 would suffer from rounding.
_WIDE = 1e3


@cache
def _tangent_table() -> Tensor:
    """For l = 0, −h, −2h, …, −8: the point d ≥ 0 whose tangent to tanh passes through (l, tanh l).

    The points are computed by bisection. The table stores the end of the bracket whose tangent passes above
    (l, tanh l), moved slightly further in the safe direction.
    """
    distance = torch.linspace(0, _TABLE_END, _TABLE_STEPS + 1, dtype=torch.float64)
    near, far = torch.zeros_like(distance), distance.clone()
    for _ in range(60):
        middle = (near + far) / 2
        f = middle.tanh()
        above = f - (1 - f * f) * (middle + distance) >= -distance.tanh()
        near, far = torch.where(above, near, middle), torch.where(above, middle, far)
    # The touching point increases with the distance; cummax enforces this near 0, where rounding may not.
    return torch.maximum(far, distance / 2).cummax(0).values * (1 + 1e-6)


def _touching(distance: Tensor) -> Tensor:
    """A point d ≥ 0 whose tangent to tanh passes above (−distance, tanh(−distance)).

    The point is the next larger entry of the table, because a tangent further right passes higher there. Beyond the
    table, d = ½ log(4·distance) satisfies e^{2d} + 1 ≥ 2(d + distance), so the tangent is above −1.
    """
    table = _tangent_table().to(distance.device)
    place = (distance * (_TABLE_STEPS / _TABLE_END)).clamp(0, _TABLE_STEPS - 1).long() + 1
    return torch.where(distance <= _TABLE_END, table[place], 0.5 * (4 * distance.clamp_min(1)).log())


def _tanh_above(
    low: Tensor, high: Tensor, at: Tensor, f_low: Tensor, f_high: Tensor, f_at: Tensor, chord: Tensor
) -> tuple[Tensor, Tensor]:
    """Slope and gap of a line above tanh: the chord where the chord is above tanh, otherwise a tangent."""
    takes_chord = (high <= 0) | ((low < 0) & (1 - f_high * f_high >= chord))
    # A tangent at 0 ≤ d ≤ high that passes above (low, tanh low) is above tanh: left of 0 tanh is convex and the line
    # is above both ends; right of 0 tanh is concave. Where the chord is not above tanh, d = high is also valid.
    d = torch.where(low >= 0, (low + high) / 2, torch.minimum(_touching(-low), high).clamp_min(0))
    f_d = d.tanh()
    slope = torch.where(takes_chord, chord, 1 - f_d * f_d)
    gap = torch.where(takes_chord, f_low + chord * (at - low), f_d + slope * (at - d)) - f_at
    wide = high - low > _WIDE
    return torch.where(wide, 0.0, slope), torch.where(wide, f_high - f_at, gap)


def _tanh_lines(low: Tensor, high: Tensor, at: Tensor) -> Lines:
    """Lines of tanh; tanh is odd, so an upper line on [−high, −low], mirrored, is a lower line on [low, high]."""
    f_low, f_high, f_at = low.tanh(), high.tanh(), at.tanh()
    chord = _chord(low, high, f_low, f_high, 1 - f_at * f_at)
    upper, upper_gap = _tanh_above(low, high, at, f_low, f_high, f_at, chord)
    lower, mirrored = _tanh_above(-high, -low, -at, -f_high, -f_low, -f_at, chord)
    return _lines(lower, -mirrored, upper, upper_gap)


TANH = Activation("tanh", torch.tanh, lambda low, high: (low.tanh(), high.tanh()), _tanh_lines)


# GELU, with the normal distribution function or its approximation by tanh

_SAMPLES = 33
_GELU_BEND = 0.79789  # max |f''| = 2/√(2π), at 0, for both
_GELU_DIP = 0.1701  # relu(x) − f(x) is between 0 and this number
_GELU_WIDE = 40.0  # from this width on, the allowance between samples exceeds _GELU_DIP


def _gelu_image(
    apply: Callable[[Tensor], Tensor], lowest_at: float, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """Bounds of GELU on [low, high]: GELU decreases to its only minimum, then increases."""
    f_low, f_high = apply(low), apply(high)
    # The place of the minimum is known to 1e-9, and therefore the value to 1e-17.
    lowest = apply(torch.full((), lowest_at, dtype=low.dtype, device=low.device))
    over = (low < lowest_at + 1e-8) & (high > lowest_at - 1e-8)
    ends = torch.minimum(f_low, f_high)
    return torch.where(over, torch.minimum(lowest, ends), ends), torch.maximum(f_low, f_high)


def _gelu_lines(apply: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, at: Tensor) -> Lines:
    """Two lines with the slope of the chord, moved below and above 33 points plus an allowance between the points.

    Let |g''| ≤ M on an interval of length h. There g is at most M h²/8 above the larger of its values at the ends.
    """
    f_at = apply(at)
    narrow = high - low <= _GELU_WIDE
    end = torch.where(narrow, high, low)
    slope = _chord(low, end, apply(low), apply(end), torch.zeros_like(low))
    h = (end - low) / (_SAMPLES - 1)
    smallest = largest = torch.zeros_like(low)  # values of f(x) − f(at) − slope·(x − at), which is 0 at ``at``
    for sample in range(_SAMPLES):
        x = low + sample * h
        difference = apply(x) - f_at - slope * (x - at)
        smallest, largest = torch.minimum(smallest, difference), torch.maximum(largest, difference)
    allowance = _GELU_BEND / 8 * h * h
    straight = _relu_lines(low, high, at)
    dip = at.relu() - f_at
    return _lines(
        torch.where(narrow, slope, straight.lower_slope),
        torch.where(narrow, smallest - allowance, straight.lower_gap + dip - _GELU_DIP),
        torch.where(narrow, slope, straight.upper_slope),
        torch.where(narrow, largest + allowance, straight.upper_gap + dip),
    )


def _gelu(approximate: str, lowest_at: float) -> Activation:
    """The activation of one form of GELU, whose minimum is at ``lowest_at``."""
    apply = partial(functional.gelu, approximate=approximate)
    return Activation("GELU", apply, partial(_gelu_image, apply, lowest_at), partial(_gelu_lines, apply), 1.13)


GELU = _gelu("none", -0.7517915246935645)
GELU_TANH = _gelu("tanh", -0.7524614220710162)
assert math.sqrt(2 / math.pi) < _GELU_BEND
