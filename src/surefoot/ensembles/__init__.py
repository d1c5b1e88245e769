"""Ensembles: modules with several members, whose probabilities are averaged in log space."""

from surefoot.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
