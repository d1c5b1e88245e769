"""What every post-hoc calibrator is: fitted on predictions, applied to predictions; also a scikit-learn estimator."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from surefoot.errors import BadInput
from surefoot.predictions import Predictions
from surefoot.validation import as_path, as_scores

__all__ = ["Calibrator", "NotFitted", "check_shape"]

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
    reads_logits: ClassVar[bool] = False  # whether a constant added to a row of logits changes what comes out

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

    def check_settings(self) -> None:
        """BadInput if a setting is not what it must be."""
        if self.scores not in ("logits", "probs"):
            raise BadInput(f"scores must be 'logits' or 'probs'; got {self.scores!r}")

    def check_learned(self) -> None:
        """ValueError if the learned numbers, read from a file, do not fit together."""

    # --- predictions --------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Learn from held-out `Predictions`, or from an array X (n, k) of scores and labels y; returns self."""
        self.check_settings()
        given = self._door(X, y)
        # On a copy: a fit that fails leaves what was learned before.
        fitted = copy.copy(self)
        fitted._fit(given)
        fitted.classes_, fitted.n_, fitted.kind_ = np.arange(given.classes), len(given), given._kind
        self.__dict__.update(fitted.__dict__)
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
        self.check_kind(p)
        scores, kind = self._map(p)
        return Predictions(scores, p.labels) if kind == "logits" else Predictions.from_probs(scores, p.labels)

    def check_kind(self, p: Predictions) -> None:
        """A clear error if the map was learned on logits and ``p`` holds probabilities, or the reverse."""
        if self.reads_logits and self.kind_ is not None and p._kind != self.kind_:
            raise BadInput(
                f"p must hold {self.kind_}, on which {self.method} was fitted: logits and log-probabilities differ by "
                f"a constant a row, which it reads; got {p._kind}. Fit and apply on one kind, or use dirichlet"
            )

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


def check_shape(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """ValueError if a learned array has another shape."""
    if np.shape(value) != shape:
        raise ValueError(f"{name} must have shape {shape}; got {np.shape(value)}")
