"""Training-time objectives: losses of logits and labels, and objectives that need more of model or batch."""

from surefoot.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
