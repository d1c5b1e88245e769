"""No calibration: the candidate that every calibrator has to beat."""

from __future__ import annotations

from surefoot.posthoc.calibrator import Calibrator, Floats
from surefoot.predictions import Predictions

__all__ = ["Identity"]


class Identity(Calibrator):
    """No calibration: predictions stay as they are.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Example:
        >>> p = Predictions([[4.0, 0.0]], [0])
        >>> Identity().fit(p).apply(p) is p
        True
    """

    method = "none"
    learned = ()

    def _fit(self, p: Predictions) -> None:
        pass

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        return p.log_probs, "logits"

    def apply(self, p: Predictions) -> Predictions:
        """Return ``p`` itself."""
        super().apply(p)
        return p
