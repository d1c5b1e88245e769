"""What every post-hoc calibrator is: fitted on predictions, applied to predictions; also a scikit-learn estimator."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from surefoot.door import as_path, as_scores
from surefoot.errors import BadInput
from surefoot.predictions import Predictions

__all__ = ["Calibrator", "NotFitted"]

Floats = NDArray[np.float64]


class NotFitted(BadInput, NotFittedError):  # type: ignore[misc]
    """A calibrator was used before `fit`."""


class Calibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the calibrators: settings in the constructor, what is learned in attributes that end in ``_``.

    ``fit`` and ``apply`` take `Predictions`. As a scikit-learn estimator it takes arrays (n, k) of logits (of
    probabilities with ``scores="probs"``) and labels: ``fit(X, y).predict_proba(X)``.

    A subclass gives ``learned`` (names of its learned attributes), ``_fit`` and ``_map``.
    """

    method: ClassVar[str]
    learned: ClassVar[tuple[str, ...]]
    keeps_order: ClassVar[bool] = False  # whether no answer can change

    def __init__(self, scores: str = "logits") -> None:
        self.scores = scores

    # --- to implement -------------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, p: Predictions) -> None:
        """Set the learned attributes."""

    @abstractmethod
    def _map(self, p: Predictions) -> tuple[Floats, str]:
        """(n, k) calibrated scores, and ``"logits"`` or ``"probs"``."""

    def number_of_parameters(self, classes: int) -> int:
        """How many numbers are learned for so many classes; 0 where that is not a fixed number."""
        return 0

    def check_learned(self) -> None:
        """ValueError if the learned numbers, read from a file, do not fit together."""
        probe = Predictions(np.eye(len(self.classes_))[:2] * 3, [0, 1])
        self.apply(probe)

    # --- predictions --------------------------------------------------------------------------------

    def fit(self, p: Any, labels: Any = None) -> Self:
        """Learn from held-out predictions; returns self."""
        given = self._door(p, labels)
        self.classes_ = np.arange(given.classes)
        self.n_ = len(given)
        self._fit(given)
        return self

    def apply(self, p: Predictions) -> Predictions:
        """Calibrated predictions of the same rows and labels."""
        if not isinstance(p, Predictions):
            raise BadInput(
                f"p must be Predictions; got {type(p).__name__}. For arrays use predict_proba, or make them with "
                "Predictions(logits, labels)"
            )
        self.check_fitted()
        if p.classes != len(self.classes_):
            raise BadInput(f"p has {p.classes} classes; {self.method} was fitted on {len(self.classes_)}")
        scores, kind = self._map(p)
        return Predictions(scores, p.labels) if kind == "logits" else Predictions.from_probs(scores, p.labels)

    def check_fitted(self) -> None:
        """A clear error if nothing was learned yet."""
        missing = [name for name in ("classes_", *self.learned) if not hasattr(self, name)]
        if missing:
            raise NotFitted(f"{type(self).__name__} is not fitted; call fit with held-out predictions first")

    # --- scikit-learn -------------------------------------------------------------------------------

    def predict_proba(self, scores: Any) -> Floats:
        """(n, k) calibrated probabilities of an array of scores."""
        return self.apply(self._unlabelled(scores)).probs

    def predict(self, scores: Any) -> NDArray[np.int64]:
        """(n,) most probable class of an array of scores, after calibration."""
        return self.apply(self._unlabelled(scores)).predicted

    def _unlabelled(self, scores: Any) -> Predictions:
        array = as_scores(self.scores, scores)
        return self._door(array, np.zeros(len(array), np.int64))

    def _door(self, p: Any, labels: Any) -> Predictions:
        if self.scores not in ("logits", "probs"):
            raise BadInput(f"scores must be 'logits' or 'probs'; got {self.scores!r}")
        if isinstance(p, Predictions):
            if labels is not None:
                raise BadInput("labels come with the predictions; give them for arrays only")
            return p
        if labels is None:
            raise BadInput(f"labels are needed with an array; got only {type(p).__name__}. Or give Predictions")
        return Predictions(p, labels) if self.scores == "logits" else Predictions.from_probs(p, labels)

    # --- to keep and to deploy ----------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learned as JSON; `surefoot.posthoc.load` reads it back."""
        from surefoot.posthoc.files import write_calibrator

        write_calibrator(self, as_path(path))

    def to_module(self) -> Any:
        """A ``torch.nn.Module`` from logits (n, k) to calibrated log-probabilities (n, k), for deployment."""
        from surefoot.posthoc.modules import module_of

        self.check_fitted()
        return module_of(self)
