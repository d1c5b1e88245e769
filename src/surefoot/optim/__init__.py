"""Step rules: torch optimizers, those of torch and those that it lacks."""

from surefoot.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
