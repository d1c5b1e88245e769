"""Schedules of measurements: every so many steps, at log-spaced steps, or as often as a budget allows."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from surefoot.errors import BadInput
from surefoot.validation import check_int

__all__ = ["GROUPS", "Budget", "Every", "Logarithmic", "Schedule", "schedules_of"]

_DEFAULT = ("calibration", "margins", "curvature")
# What can be read, in the order in which it is read; `surefoot.training.groups` says how.
GROUPS = (
    "calibration", "margins", "histograms", "robust", "bounds", "curvature", "hessian", "hessian_min",
    "batch_sharpness", "ascent", "test_curvature",
)  # fmt: skip


@dataclass(frozen=True)
class Every:
    """At steps 0, n, 2n, … ."""

    steps: int

    def __post_init__(self) -> None:
        check_int("every", self.steps, 1)

    def due(self, step: int, since: int | None = None) -> bool:
        """Whether to read at ``step``: a step of ours is it, or lies after ``since``, the one before by default."""
        before = step - 1 if since is None else since
        return step // self.steps > before // self.steps


@dataclass(frozen=True)
class Logarithmic:
    """At step 0 and at ``count`` steps spaced evenly in the logarithm up to ``total``."""

    count: int
    total: int
    _steps: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_int("log", self.count, 2)
        check_int("total", self.total, 1)
        spaced = {round(self.total ** (place / (self.count - 1))) for place in range(self.count)}
        object.__setattr__(self, "_steps", frozenset({0} | spaced))

    def due(self, step: int, since: int | None = None) -> bool:
        """Whether to read at ``step``: a step of ours is it, or lies after ``since``, the one before by default."""
        before = step - 1 if since is None else since
        return any(before < at <= step for at in self._steps)


@dataclass
class Budget:
    """Whenever the readings so far, this one and one at the end cost at most ``share`` of the steps so far.

    The first reading is taken in any case and paid for by waiting. Prices are counted in gradient steps, never in
    seconds, so that a journal does not depend on the clock.
    """

    share: float
    spent: float = 0.0
    price: float = 0.0
    last: int = -1

    def __post_init__(self) -> None:
        wrong = isinstance(self.share, bool) or not isinstance(self.share, numbers.Real)
        if wrong or not 0 < self.share <= 1:
            raise BadInput(f"budget must lie in (0, 1]; got {self.share!r}")

    def due(self, step: int, since: int | None = None) -> bool:
        """Whether to read at ``step``; ``since`` is as in the other schedules, and does not count."""
        return self.last < 0 or (step > self.last and self.spent + 2 * self.price <= self.share * step)

    def paid(self, step: int, price: float, once: float = 0.0) -> None:
        """A reading was taken and cost ``price`` gradient steps, and ``once`` more that the next one will not."""
        if not (math.isfinite(price + once) and price >= 0 and once >= 0):
            raise BadInput(f"price must be finite and at least 0; got {price!r} and {once!r}")
        self.spent += price + once
        self.price, self.last = price, step


Schedule = Every | Logarithmic | Budget


def schedules_of(
    every: int | Schedule | Mapping[str, int | Schedule] | None, budget: float | None
) -> dict[str, Schedule]:
    """The schedule of each group, of what `surefoot.Tracker` is given as ``every`` and ``budget``."""
    if budget is not None:
        if every is not None and not isinstance(every, Mapping):
            raise BadInput("a budget spaces the readings itself; give budget or every, not both")
        shared = Budget(budget)
        names = list(every) if isinstance(every, Mapping) else list(_DEFAULT)
        return dict.fromkeys(_known(names), shared)
    if not isinstance(every, Mapping):
        every = dict.fromkeys(_DEFAULT, 50 if every is None else every)
    return {
        name: schedule if isinstance(schedule, Schedule) else Every(check_int("every", schedule, 1))
        for name, schedule in zip(_known(every), every.values(), strict=True)
    }


def _known(names: Any) -> list[str]:
    if not names:
        raise BadInput(f"every must name a group at least, among {', '.join(GROUPS)}; got {{}}")
    for name in names:
        if name not in GROUPS:
            raise BadInput(f"every: groups are {', '.join(GROUPS)}; got {name!r}")
    return list(names)
