"""The best reading so far: whose weights are kept, and how long to wait for a better one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from surefoot.metrics.registry import higher_is_better

__all__ = ["Best"]


@dataclass
class Best:
    """The best ``metric`` over the readings, by the metric's own direction; ``since`` counts readings after it."""

    metric: str
    patience: int | None = None
    value: float = math.nan
    step: int = -1
    since: int = 0

    def improves(self, reading: Mapping[str, Any]) -> bool:
        """Take a reading into account; whether it is the best so far. A tie is no improvement."""
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
        """Whether ``patience`` readings in a row brought nothing better."""
        return self.patience is not None and self.since >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs."""
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.value, self.step, self.since = float(state["value"]), int(state["step"]), int(state["since"])
