"""Activations between straight lines: a line below and a line above the function on every interval [low, high].

A line is kept as its slope and its gap, the line minus the function at a point ``at`` of the interval (the value at the
clean input): no gap below is above 0 and none above is below 0. Sound up to rounding, also where low = high.
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
    """f(at) + gap + slope·(x − at), below and above f(x)."""

    lower_slope: Tensor
    lower_gap: Tensor
    upper_slope: Tensor
    upper_gap: Tensor


@dataclass(frozen=True)
class Activation:
    """A function applied to each coordinate.

    Args:
        name: for errors.
        apply: the function.
        image: (low, high) to bounds of its values on [low, high].
        lines: (low, high, at) to lines below and above it.
        lipschitz: a bound of its slope.
        kink: whether it is straight on intervals that do not hold 0 inside.
    """

    name: str
    apply: Callable[[Tensor], Tensor]
    image: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    lines: Callable[[Tensor, Tensor, Tensor], Lines]
    lipschitz: float = 1.0
    kink: bool = False


def _lines(lower_slope: Tensor, lower_gap: Tensor, upper_slope: Tensor, upper_gap: Tensor) -> Lines:
    """Lines whose gaps have the right sign: rounding may have left them on the wrong side of 0."""
    return Lines(lower_slope, lower_gap.clamp_max(0), upper_slope, upper_gap.clamp_min(0))


def _chord(low: Tensor, high: Tensor, f_low: Tensor, f_high: Tensor, slope: Tensor) -> Tensor:
    """The slope between the ends; ``slope`` where they are so close that it is 0/0 or rounding only."""
    width = high - low
    short = width <= 1e-14 * (low.abs() + high.abs())
    return torch.where(short, slope, (f_high - f_low) / torch.where(short, 1.0, width))


# ReLU


def _relu_lines(low: Tensor, high: Tensor, at: Tensor) -> Lines:
    """Above: the chord. Below: x or 0, whichever leaves the smaller triangle (CROWN, Zhang et al. 2018)."""
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
# Beyond this width a line of slope 0 loses next to nothing, and slopes near 0 would lose to rounding.
_WIDE = 1e3


@cache
def _tangent_table() -> Tensor:
    """For l = 0, −h, −2h, …, −8: where the tangent touches that passes through (l, tanh l), to the right of 0.

    Bisection; kept is the end at which the tangent passes above (l, tanh l), moved a little further that way.
    """
    distance = torch.linspace(0, _TABLE_END, _TABLE_STEPS + 1, dtype=torch.float64)
    near, far = torch.zeros_like(distance), distance.clone()
    for _ in range(60):
        middle = (near + far) / 2
        f = middle.tanh()
        above = f - (1 - f * f) * (middle + distance) >= -distance.tanh()
        near, far = torch.where(above, near, middle), torch.where(above, middle, far)
    # The touching point grows with the distance; this keeps it so where rounding decides, near 0.
    return torch.maximum(far, distance / 2).cummax(0).values * (1 + 1e-6)


def _touching(distance: Tensor) -> Tensor:
    """A point d ≥ 0 whose tangent to tanh passes above (−distance, tanh(−distance)); the next of the table.

    A tangent further right passes higher there, so that the table is read upwards. Beyond it: d = ½ log(4·distance)
    has e^{2d} + 1 ≥ 2(d + distance), which says that the tangent is above −1.
    """
    table = _tangent_table().to(distance.device)
    place = (distance * (_TABLE_STEPS / _TABLE_END)).clamp(0, _TABLE_STEPS - 1).long() + 1
    return torch.where(distance <= _TABLE_END, table[place], 0.5 * (4 * distance.clamp_min(1)).log())


def _tanh_above(
    low: Tensor, high: Tensor, at: Tensor, f_low: Tensor, f_high: Tensor, f_at: Tensor, chord: Tensor
) -> tuple[Tensor, Tensor]:
    """Slope and gap of a line above tanh: the chord where it is above, else a tangent."""
    takes_chord = (high <= 0) | ((low < 0) & (1 - f_high * f_high >= chord))
    # A tangent from 0 ≤ d ≤ high that passes above (low, tanh low) is above tanh: left of 0 tanh is convex, and the
    # line is above both ends; right of 0 tanh is concave. Where the chord is not above, d = high would do.
    d = torch.where(low >= 0, (low + high) / 2, torch.minimum(_touching(-low), high).clamp_min(0))
    f_d = d.tanh()
    slope = torch.where(takes_chord, chord, 1 - f_d * f_d)
    gap = torch.where(takes_chord, f_low + chord * (at - low), f_d + slope * (at - d)) - f_at
    wide = high - low > _WIDE
    return torch.where(wide, 0.0, slope), torch.where(wide, f_high - f_at, gap)


def _tanh_lines(low: Tensor, high: Tensor, at: Tensor) -> Lines:
    """tanh is odd: what is above it on [−high, −low] is below it on [low, high], mirrored."""
    f_low, f_high, f_at = low.tanh(), high.tanh(), at.tanh()
    chord = _chord(low, high, f_low, f_high, 1 - f_at * f_at)
    upper, upper_gap = _tanh_above(low, high, at, f_low, f_high, f_at, chord)
    lower, mirrored = _tanh_above(-high, -low, -at, -f_high, -f_low, -f_at, chord)
    return _lines(lower, -mirrored, upper, upper_gap)


TANH = Activation("tanh", torch.tanh, lambda low, high: (low.tanh(), high.tanh()), _tanh_lines)


# GELU, with the normal distribution or its approximation by tanh

_SAMPLES = 33
_GELU_BEND = 0.79789  # max |f''| = 2/√(2π), at 0, for both
_GELU_DIP = 0.1701  # relu(x) − f(x) lies between 0 and this
_GELU_WIDE = 40.0  # from here on the allowance between samples is larger than that


def _gelu_image(
    apply: Callable[[Tensor], Tensor], lowest_at: float, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """It falls to its one minimum, then rises."""
    f_low, f_high = apply(low), apply(high)
    # The minimum is known to 1e-9, and the function to 1e-17 there.
    lowest = apply(torch.full((), lowest_at, dtype=low.dtype, device=low.device))
    over = (low < lowest_at + 1e-8) & (high > lowest_at - 1e-8)
    ends = torch.minimum(f_low, f_high)
    return torch.where(over, torch.minimum(lowest, ends), ends), torch.maximum(f_low, f_high)


def _gelu_lines(apply: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, at: Tensor) -> Lines:
    """The chord's slope on both sides, moved to pass below and above 33 points and what can lie between them.

    A function g with |g''| ≤ M is at most M h²/8 above the larger of its values at the ends of an interval of length h.
    """
    f_at = apply(at)
    narrow = high - low <= _GELU_WIDE
    end = torch.where(narrow, high, low)
    slope = _chord(low, end, apply(low), apply(end), torch.zeros_like(low))
    h = (end - low) / (_SAMPLES - 1)
    least = most = torch.zeros_like(low)  # of f(x) − f(at) − slope·(x − at), which is 0 at ``at``
    for sample in range(_SAMPLES):
        x = low + sample * h
        found = apply(x) - f_at - slope * (x - at)
        least, most = torch.minimum(least, found), torch.maximum(most, found)
    allowance = _GELU_BEND / 8 * h * h
    straight = _relu_lines(low, high, at)
    dip = at.relu() - f_at
    return _lines(
        torch.where(narrow, slope, straight.lower_slope),
        torch.where(narrow, least - allowance, straight.lower_gap + dip - _GELU_DIP),
        torch.where(narrow, slope, straight.upper_slope),
        torch.where(narrow, most + allowance, straight.upper_gap + dip),
    )


def _gelu(approximate: str, lowest_at: float) -> Activation:
    apply = partial(functional.gelu, approximate=approximate)
    return Activation("GELU", apply, partial(_gelu_image, apply, lowest_at), partial(_gelu_lines, apply), 1.13)


GELU = _gelu("none", -0.7517915246935645)
GELU_TANH = _gelu("tanh", -0.7524614220710162)
assert math.sqrt(2 / math.pi) < _GELU_BEND
