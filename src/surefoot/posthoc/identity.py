"""Leaving predictions as they are: the candidate that every repair has to beat."""

from __future__ import annotations

from surefoot.posthoc.calibrator import Calibrator, Floats
from surefoot.predictions import Predictions

__all__ = ["Identity"]


class Identity(Calibrator):
    """No change."""

    method = "none"
    learned = ()
    keeps_order = True

    def _fit(self, p: Predictions) -> None:
        pass

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        return p.log_probs, "logits"

    def apply(self, p: Predictions) -> Predictions:
        """The same predictions."""
        super().apply(p)
        return p
