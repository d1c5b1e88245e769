"""The best reading so far, whose weights are kept, and early stopping."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from surefoot.metrics.registry import higher_is_better

__all__ = ["Best"]


@dataclass
class Best:
    """The best value of a metric over the readings, by the metric's own direction.

    Attributes:
        metric: Name of the metric, such as ``"val.nll"``.
        patience: Number of readings without improvement after which training stops; None never stops early.
        value: The best value so far; NaN before the first reading.
        step: The step of the best reading; -1 before the first reading.
        since: Number of readings since the best one.

    Example:
        >>> best = Best("val.nll", patience=1)
        >>> [best.improves({"step": step, "val.nll": nll}) for step, nll in ((0, 2.3), (50, 1.1), (100, 1.2))]
        [True, True, False]
        >>> best.step, best.exhausted
        (50, True)
    """

    metric: str
    patience: int | None = None
    value: float = math.nan
    step: int = -1
    since: int = 0

    def improves(self, reading: Mapping[str, Any]) -> bool:
        """Take a reading into account.

        Args:
            reading: Values by name with the ``"step"``; a reading without the metric does not count.

        Returns:
            Whether the reading is the best so far. A tie is no improvement.
        """
        if self.metric not in reading:
            return False
        value = float(reading[self.metric])
        larger = higher_is_better(self.metric)
        if math.isfinite(value) and (self.step < 0 or (value > self.value if larger else value < self.value)):
            self.value, self.step, self.since = value, int(reading["step"]), 0
            return True
        self.since += 1
        return False

    @property
    def exhausted(self) -> bool:
        """Whether the last ``patience`` readings brought no improvement."""
        return self.patience is not None and self.since >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """The state with which a resumed run continues.

        Returns:
            The attributes by name.
        """
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of `state_dict`.

        Args:
            state: The attributes by name; the metric and the patience are not changed.
        """
        self.value, self.step, self.since = float(state["value"]), int(state["step"]), int(state["since"])
