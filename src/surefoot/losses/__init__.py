"""Training objectives: losses of logits and labels, and objectives that also need the model or the batch."""

from surefoot.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
