"""Integrations with other training code: Lightning, Hugging Face, torchmetrics, loggers; imported on first access."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["huggingface", "lightning", "loggers", "torchmetrics"]

if TYPE_CHECKING:
    from surefoot.integrations import huggingface, lightning, loggers, torchmetrics


def __getattr__(name: str) -> Any:
    """Import an integration on first access."""
    if name not in __all__:
        raise AttributeError(f"module 'surefoot.integrations' has no attribute {name!r}; it has {', '.join(__all__)}")
    return importlib.import_module(f"surefoot.integrations.{name}")


def __dir__() -> list[str]:
    """List the integrations as well, imported or not."""
    return sorted({*globals(), *__all__})
