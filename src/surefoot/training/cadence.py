"""When a reading is due: every so many steps, at log-spaced steps, or as often as a budget allows."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field

from surefoot.errors import BadInput
from surefoot.validation import check_int

__all__ = ["GROUPS", "Budget", "Every", "Logarithmic"]

# What can be read, each at its own cadence.
GROUPS = (
    "calibration", "margins", "curvature", "hessian", "hessian_min", "batch_sharpness", "histograms", "bounds",
    "robust", "ascent", "test_curvature",
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
        return any(before < each <= step for each in self._steps)


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
        """Whether to read at ``step``; ``since`` is as in the other cadences, and does not count."""
        return self.last < 0 or (step > self.last and self.spent + 2 * self.price <= self.share * step)

    def paid(self, step: int, price: float, once: float = 0.0) -> None:
        """A reading was taken and cost ``price`` gradient steps, and ``once`` more that the next one will not."""
        if not (math.isfinite(price + once) and price >= 0 and once >= 0):
            raise BadInput(f"price must be finite and at least 0; got {price!r} and {once!r}")
        self.spent += price + once
        self.price, self.last = price, step
