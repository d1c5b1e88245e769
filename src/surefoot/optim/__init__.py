"""Optimizers: torch's own, and those that torch lacks."""

from surefoot.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
