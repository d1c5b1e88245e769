"""Data sets: the `Dataset` protocol, sets by name, and what is made of them for training."""

from surefoot.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
