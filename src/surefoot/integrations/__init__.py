"""Into training that others wrote: Lightning, Hugging Face, torchmetrics, loggers. Each is imported when asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["huggingface", "lightning", "loggers", "torchmetrics"]

if TYPE_CHECKING:
    from surefoot.integrations import huggingface, lightning, loggers, torchmetrics


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'surefoot.integrations' has no attribute {name!r}; it has {', '.join(__all__)}")
    return importlib.import_module(f"surefoot.integrations.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
