"""Schedules of measurements: at a fixed interval, at log-spaced steps, or as often as a budget allows."""

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
# The groups of readings in the order in which they are read; `surefoot.training.groups` implements them.
GROUPS = (
    "calibration", "margins", "histograms", "robust", "bounds", "curvature", "hessian", "hessian_min",
    "batch_sharpness", "ascent", "test_curvature",
)  # fmt: skip


@dataclass(frozen=True)
class Every:
    """At steps 0, n, 2n, … .

    Attributes:
        steps: The interval n, at least 1.

    Example:
        >>> [step for step in range(8) if Every(3).due(step)]
        [0, 3, 6]
    """

    steps: int

    def __post_init__(self) -> None:
        check_int("every", self.steps, 1)

    def due(self, step: int, since: int | None = None) -> bool:
        """Whether a reading is due: a scheduled step lies after ``since`` and not after ``step``.

        Args:
            step: The current step.
            since: The step at which the schedule was last asked; ``step`` - 1 if None.

        Returns:
            Whether a reading is due.
        """
        before = step - 1 if since is None else since
        return step // self.steps > before // self.steps


@dataclass(frozen=True)
class Logarithmic:
    """At step 0 and at ``count`` steps spaced evenly in the logarithm up to ``total``.

    Attributes:
        count: Number of steps after step 0, at least 2; steps that round to the same integer are read once.
        total: The last step, at least 1.

    Example:
        >>> [step for step in range(101) if Logarithmic(3, 100).due(step)]
        [0, 1, 10, 100]
    """

    count: int
    total: int
    _steps: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_int("log", self.count, 2)
        check_int("total", self.total, 1)
        spaced = {round(self.total ** (place / (self.count - 1))) for place in range(self.count)}
        object.__setattr__(self, "_steps", frozenset({0} | spaced))

    def due(self, step: int, since: int | None = None) -> bool:
        """Whether a reading is due: a scheduled step lies after ``since`` and not after ``step``.

        Args:
            step: The current step.
            since: The step at which the schedule was last asked; ``step`` - 1 if None.

        Returns:
            Whether a reading is due.
        """
        before = step - 1 if since is None else since
        return any(before < at <= step for at in self._steps)


@dataclass
class Budget:
    """Whenever all readings so far, this one and one at the end cost at most ``share`` of the steps so far.

    The first reading is always taken, and the next one waits until the budget covers its cost. Costs are counted in
    gradient steps, not in seconds, so that a journal does not depend on the clock.

    Attributes:
        share: Share of the gradient steps, in (0, 1], that readings may cost.
        spent: Cost of all readings so far.
        price: Cost of the last reading.
        last: Step of the last reading; -1 before the first reading.

    Example:
        >>> budget = Budget(0.1)
        >>> budget.due(0)
        True
        >>> budget.paid(0, price=1.0)
        >>> budget.due(29), budget.due(30)
        (False, True)
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
        """Whether a reading is due.

        Args:
            step: The current step.
            since: Not used; the argument is that of the other schedules.

        Returns:
            Whether the budget covers a reading.
        """
        return self.last < 0 or (step > self.last and self.spent + 2 * self.price <= self.share * step)

    def paid(self, step: int, price: float, once: float = 0.0) -> None:
        """Record the cost of a reading.

        Args:
            step: Step of the reading.
            price: Cost in gradient steps.
            once: Additional cost that later readings do not have.

        Raises:
            BadInput: If a cost is negative or not finite.
        """
        if not (math.isfinite(price + once) and price >= 0 and once >= 0):
            raise BadInput(f"price must be finite and at least 0; got {price!r} and {once!r}")
        self.spent += price + once
        self.price, self.last = price, step


Schedule = Every | Logarithmic | Budget


def schedules_of(
    every: int | Schedule | Mapping[str, int | Schedule] | None, budget: float | None
) -> dict[str, Schedule]:
    """Make the schedules of the groups from the arguments of `surefoot.Tracker`.

    Args:
        every: An interval in steps or a schedule for the default groups, or one of these for each named group. None
            reads the default groups every 50 steps.
        budget: Share of the gradient steps, in (0, 1]; replaces the intervals of ``every``. None sets no budget.

    Returns:
        The schedule of each group by name.

    Raises:
        BadInput: If a group is unknown, an interval is no positive integer, or both arguments space the readings.

    Example:
        >>> schedules_of({"calibration": 10, "curvature": 100}, None)
        {'calibration': Every(steps=10), 'curvature': Every(steps=100)}
    """
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
