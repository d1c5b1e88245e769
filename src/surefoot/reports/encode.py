"""Values that JSON can hold: arrays become lists, NaN null, infinities strings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["plain_json"]


def plain_json(value: Any) -> Any:
    """``value`` with nothing in it that strict JSON lacks; NaN (an empty bin) is null, ±inf a string."""
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain_json(value.tolist())
    if isinstance(value, np.generic):
        return plain_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(float(value))
    return value
