"""Probabilities and labels of fitted scikit-learn classifiers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.validation import as_scores

__all__ = ["is_estimator", "probs_of"]


def is_estimator(model: Any) -> bool:
    """Whether to call ``predict_proba``; a torch module with ``predict_proba`` is called for logits instead.

    Args:
        model: any object.

    Returns:
        True for a fitted object with ``predict_proba`` that is no torch module.

    Raises:
        BadInput: when the model is a class, or a classifier without probabilities.
    """
    torch = sys.modules.get("torch")  # if torch is not imported, the model cannot be a torch module
    if torch is not None and isinstance(model, torch.nn.Module):
        return False
    if isinstance(model, type) and hasattr(model, "predict_proba"):
        raise BadInput(f"model must be a fitted {model.__name__}, not the class; write {model.__name__}(...).fit(X, y)")
    if not isinstance(model, type) and callable(getattr(model, "predict_proba", None)):
        return True
    if not isinstance(model, type) and hasattr(model, "predict") and hasattr(model, "fit"):
        raise BadInput(
            f"model must have predict_proba; {type(model).__name__} has none. Make it with probabilities "
            "(SVC(probability=True), SGDClassifier(loss='log_loss')), or wrap it in scikit-learn's "
            "CalibratedClassifierCV; for scores of its own use Predictions(logits, labels)"
        )
    return False


def probs_of(estimator: Any, inputs: Any, labels: Any) -> tuple[NDArray[Any], Any]:
    """Probabilities of a fitted estimator, and labels as the numbers of its columns.

    Args:
        estimator: a fitted classifier with ``predict_proba``.
        inputs: (n, …) inputs.
        labels: (n,) labels among the ``classes_`` of the estimator, or integers if the estimator has none.

    Returns:
        (n, k) probabilities and (n,) labels.

    Raises:
        BadInput: when outputs and labels do not fit together.
    """
    name = type(estimator).__name__
    probs = estimator.predict_proba(inputs)
    if isinstance(probs, list):
        raise BadInput(f"model must have one target; {name} predicts {len(probs)}: take them one by one")
    scores = as_scores("predict_proba", probs)
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return scores, labels  # the constructor checks that the labels are integers
    if len(classes) != scores.shape[1]:
        raise BadInput(f"{name} has {len(classes)} classes_ and {scores.shape[1]} columns of predict_proba")
    given = np.asarray(labels)
    if given.shape != scores.shape[:1]:
        raise BadInput(f"labels must have shape ({len(scores)},), one per row of inputs; got shape {given.shape}")
    column = {label: index for index, label in enumerate(np.asarray(classes).tolist())}
    numbers = [column.get(label, -1) for label in given.tolist()]
    if -1 in numbers:
        row = numbers.index(-1)
        raise BadInput(
            f"labels must be among the {len(classes)} classes that {name} was fitted on; row {row} has "
            f"{given.tolist()[row]!r} ({numbers.count(-1)} such rows), classes_ begin with {list(column)[:5]}"
        )
    return scores, np.array(numbers)
