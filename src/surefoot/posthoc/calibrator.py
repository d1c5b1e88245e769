"""The base class of calibrators: fitted on predictions, applied to predictions; also a scikit-learn estimator."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from surefoot.errors import BadInput
from surefoot.posthoc.rows import row_count
from surefoot.predictions import Predictions
from surefoot.validation import as_path, as_scores, check_positive

__all__ = [
    "Calibrator",
    "NotFitted",
    "check_names",
    "check_shape",
    "check_share",
    "keep_predicted",
    "mix_uniform",
]

Floats = NDArray[np.float64]


class NotFitted(BadInput, NotFittedError):  # type: ignore[misc]
    """A calibrator was used before `fit`."""


class Calibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the calibrators: the constructor takes settings, and learned attributes end in ``_``.

    ``fit`` and ``apply`` take `Predictions`. As a scikit-learn estimator a calibrator takes arrays (n, k) of logits and
    labels, or arrays of probabilities with ``scores="probs"``: ``fit(X, y).predict_proba(X)``.

    A subclass defines ``method``, ``learned``, ``_fit`` and ``_map``.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        method: name of the calibrator, in files and on the command line.
        learned: names of the learned attributes that files hold.
        added: values of the settings and learned attributes that files of earlier versions lack.
        reads_logits: whether a constant added to a row of logits changes the result.
        classes_: (k,) the classes 0..k−1, after fitting.
        n_: number of rows of the fit.
        kind_: ``"logits"`` or ``"probs"``, as the predictions of the fit; None if an old file does not tell.
        names_: names of the classes of the fit, or None.
        form_: form of the predictions of the fit, as `Predictions.form`; None if an old file does not tell.
        uniform_: the share of the uniform distribution in the result: 1/(n + 1) where the setting ``mixed`` is True,
            0 otherwise.
    """

    method: ClassVar[str]
    learned: ClassVar[tuple[str, ...]]
    added: ClassVar[dict[str, Any]] = {}
    reads_logits: ClassVar[bool] = False
    uniform_: float = 0.0
    form_: str | None = None

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
        """Count the numbers that the calibrator learns.

        Args:
            classes: number of classes k.

        Returns:
            The count; 0 for a calibrator whose count depends on the data.
        """
        return 0

    def check_settings(self) -> None:
        """Check the settings.

        Raises:
            BadInput: when a setting is not as the class describes.
        """
        if self.scores not in ("logits", "probs"):
            raise BadInput(f"scores must be 'logits' or 'probs'; got {self.scores!r}")
        mixed, prior = getattr(self, "mixed", False), getattr(self, "prior", None)
        if not isinstance(mixed, bool | np.bool_):
            raise BadInput(f"mixed must be True or False; got {mixed!r}")
        if prior is not None:
            check_positive("prior", prior)

    def check_learned(self) -> None:
        """Check that the learned numbers, read from a file, fit together.

        Raises:
            ValueError: when the numbers do not fit together.
        """
        check_share("uniform_", self.uniform_)

    # --- predictions --------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Learn from held-out predictions.

        Args:
            X: `Predictions`, or an array (n, k) of scores.
            y: (n,) integers in 0..k−1 for an array, or (n, k) soft labels; None for `Predictions`, which carry their
                labels.
            sample_weight: (n,) weights of the rows of an array, or None; `Predictions` carry their weights. Integer
                weights give the fit of repeated rows. Real weights have no scale, and stand for (Σw)²/Σw² rows.

        Returns:
            The calibrator itself.

        Raises:
            BadInput: when a setting or the data are not as described, or the method cannot learn from these rows.
        """
        self.check_settings()
        given = self._as_predictions(X, y, sample_weight)
        p = given.as_classes()
        # The fit works on a copy: a fit that fails keeps the learned numbers of the earlier fit.
        fitted = copy.copy(self)
        fitted.uniform_ = 1 / (row_count(p) + 1) if getattr(self, "mixed", False) else 0.0
        fitted.form_ = given.form
        fitted._fit(p)
        fitted.classes_, fitted.n_, fitted.kind_ = np.arange(p.classes), len(p), p.scores
        fitted.names_ = p.names
        self.__dict__.update(fitted.__dict__)
        return self

    def apply(self, p: Predictions) -> Predictions:
        """Calibrate predictions.

        Args:
            p: predictions with the same number of classes as those of the fit.

        Returns:
            Calibrated predictions of the same rows, labels, weights, clusters, groups and form.

        Raises:
            BadInput: when ``p`` is no `Predictions`, or has other classes or another kind of scores than the fit.
            NotFitted: when nothing is learned yet.
        """
        if not isinstance(p, Predictions):
            raise BadInput(
                f"p must be Predictions; got {type(p).__name__}. For arrays use predict_proba, or make them with "
                "Predictions(logits, labels)"
            )
        self.check_fitted()
        self.check_classes(p)
        self.check_kind(p)
        scores, kind = self._mapped(p.as_classes())
        if kind == "logits" and p.form != "classes" and np.isneginf(scores).any():
            # One score a row stands for the log-odds, which must be finite; a probability may be 0 or 1.
            scores, kind = softmax(scores, axis=1), "probs"
        return p.with_scores(scores, kind)

    def check_classes(self, p: Predictions) -> None:
        """Check that predictions have the classes of the fit, in the same order.

        Args:
            p: predictions to calibrate.

        Raises:
            BadInput: when the number of classes differs, or their names or their order where both are known.
        """
        if p.classes != len(self.classes_):
            raise BadInput(f"p has {p.classes} classes; {self.method} was fitted on {len(self.classes_)}")
        form = self.form_
        if form is not None and (form == "confidence") != (p.form == "confidence"):
            known = ("probabilities of events", "confidences of predictions")
            raise BadInput(
                f"p must hold what {self.method} was fitted on, {known[form == 'confidence']}; got "
                f"{known[p.form == 'confidence']}, which another map calibrates. Fit on predictions of one form"
            )
        check_names(getattr(self, "names_", None), p.names, f"the predictions that {self.method} was fitted on", "p")

    def _mapped(self, p: Predictions) -> tuple[Floats, str]:
        """As `_map`, with the share of the uniform distribution."""
        scores, kind = self._map(p)
        return (mix_uniform(scores, self.uniform_), kind) if self.uniform_ else (scores, kind)

    def check_kind(self, p: Predictions) -> None:
        """Check that predictions hold the same kind of scores as the predictions of the fit, where the kind matters.

        Args:
            p: predictions to calibrate.

        Raises:
            BadInput: when the map was learned on logits and ``p`` holds probabilities, or the reverse.
        """
        if self.reads_logits and self.kind_ is not None and p.scores != self.kind_:
            raise BadInput(
                f"p must hold {self.kind_}, on which {self.method} was fitted: logits and log-probabilities differ by "
                f"a constant a row, which it reads; got {p.scores}. Fit and apply on one kind, or use dirichlet"
            )

    def check_fitted(self) -> None:
        """Check that the calibrator is fitted.

        Raises:
            NotFitted: when nothing is learned yet.
        """
        missing = [name for name in ("classes_", *self.learned) if not hasattr(self, name)]
        if missing:
            raise NotFitted(f"{type(self).__name__} is not fitted; call fit with held-out predictions first")

    # --- scikit-learn -------------------------------------------------------------------------------

    def predict_proba(self, scores: Any) -> Floats:
        """Compute calibrated probabilities of an array.

        Args:
            scores: (n, k) logits, or probabilities with ``scores="probs"`` in the constructor.

        Returns:
            (n, k) calibrated probabilities.

        Raises:
            BadInput: when the array is not as described.
            NotFitted: when nothing is learned yet.
        """
        return self.apply(self._unlabelled(scores)).probs

    def predict(self, scores: Any) -> NDArray[np.int64]:
        """Compute the predicted classes of an array after calibration.

        Args:
            scores: (n, k) logits, or probabilities with ``scores="probs"`` in the constructor.

        Returns:
            (n,) most probable class of every row.

        Raises:
            BadInput: when the array is not as described.
            NotFitted: when nothing is learned yet.
        """
        return self.apply(self._unlabelled(scores)).predicted

    def _unlabelled(self, scores: Any) -> Predictions:
        array = as_scores(self.scores, scores)
        return self._as_predictions(array, np.zeros(len(array), np.int64))

    def _as_predictions(self, p: Any, labels: Any, weights: Any = None) -> Predictions:
        if isinstance(p, Predictions):
            if labels is not None:
                raise BadInput("labels come with the predictions; give them for arrays only")
            if weights is not None:
                raise BadInput(
                    "sample_weight is for arrays only; give the weights to the predictions: Predictions(logits, "
                    "labels, weights=...)"
                )
            return p
        if labels is None:
            raise BadInput(f"labels are needed with an array; got only {type(p).__name__}. Or give Predictions")
        make = Predictions if self.scores == "logits" else Predictions.from_probs
        return make(p, labels, weights=weights)

    # --- files and modules --------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted calibrator as JSON; `surefoot.posthoc.load` reads the file.

        Args:
            path: the file to write or replace.

        Raises:
            BadInput: when the learned numbers are not finite, or the class is not one of surefoot's methods.
            NotFitted: when nothing is learned yet.
            StorageFault: when the file system refuses the write.
        """
        from surefoot.posthoc.files import write_calibrator

        write_calibrator(self, as_path(path))

    def to_module(self) -> Any:
        """Convert the fitted calibrator to a torch module for deployment.

        Returns:
            A ``torch.nn.Module`` from logits (n, k) to calibrated log-probabilities (n, k).

        Raises:
            BadInput: when the class has no module.
            NotFitted: when nothing is learned yet.
        """
        from surefoot.posthoc.modules import module_of

        self.check_fitted()
        return module_of(self)


def check_shape(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Check the shape of a learned array.

    Args:
        name: name of the attribute, for the error.
        value: the array.
        shape: the required shape.

    Raises:
        ValueError: when the array has another shape.
    """
    if np.shape(value) != shape:
        raise ValueError(f"{name} must have shape {shape}; got {np.shape(value)}")


def check_names(first: Sequence[str] | None, second: Sequence[str] | None, of_first: str, of_second: str) -> None:
    """Check that two sets of predictions have the same classes in the same order, where both have names.

    Args:
        first: names of the classes of one set, or None.
        second: names of the classes of the other set, or None.
        of_first: what errors call the one set.
        of_second: what errors call the other set.

    Raises:
        BadInput: when the names or their order differ.

    Example:
        >>> check_names(["cat", "dog"], ["cat", "dog"], "val", "test")
    """
    if first is None or second is None:
        return
    # Files of other programs write the same class as "Cat" and "cat".
    if [str(name).lower() for name in first] == [str(name).lower() for name in second]:
        return
    remedy = "reorder the columns of one of them" if sorted(first) == sorted(second) else "both must be of one model"
    raise BadInput(
        f"{of_first} and {of_second} must have the same class columns in the same order; got "
        f"{', '.join(map(str, first))} and {', '.join(map(str, second))}: {remedy}"
    )


def check_share(name: str, value: Any) -> None:
    """Check that a learned number is a share.

    Args:
        name: name of the attribute, for the error.
        value: the number.

    Raises:
        ValueError: when the number is not at least 0 and below 1.
    """
    if not (isinstance(value, float) and 0 <= value < 1):
        raise ValueError(f"{name} must be a number in [0, 1); got {value!r}")


def mix_uniform(scores: Floats, share: float) -> Floats:
    """Mix softmax(scores) with the uniform distribution; in every row the same entry stays the largest.

    Args:
        scores: (n, k) logits.
        share: share of the uniform distribution, above 0 and below 1.

    Returns:
        (n, k) logarithms of (1 − share) softmax(scores) + share / k.
    """
    top, rows = scores.argmax(axis=1), np.arange(len(scores))
    log_probs = scores - logsumexp(scores, axis=1, keepdims=True)
    mixed: Floats = np.logaddexp(log_probs + np.log1p(-share), np.log(share / scores.shape[1]))
    lost = np.flatnonzero(mixed.argmax(axis=1) != top)  # to rounding
    mixed[rows[lost], top[lost]] = np.nextafter(mixed[lost].max(axis=1), np.inf)
    return mixed


def keep_predicted(scores: Floats, p: Predictions) -> Floats:
    """Raise the score of the predicted class where rounding tied it with another class; works in place.

    Args:
        scores: (n, k) scores of an order-preserving map, equal to or below the predicted class's in every row.
        p: the predictions that were mapped.

    Returns:
        ``scores``, whose largest entry is that of the predicted class in every row.
    """
    lost = np.flatnonzero(scores.argmax(axis=1) != p.predicted)
    scores[lost, p.predicted[lost]] = np.nextafter(scores[lost].max(axis=1), np.inf)
    return scores
