"""scikit-learn's digits: 1,797 real 8×8 images that come with the package."""

from __future__ import annotations

import numpy as np

from surefoot.predictions import Predictions

__all__ = ["digits_predictions"]


def digits_predictions(train: int = 300, noisy: float = 0.05, seed: int = 0) -> Predictions:
    """Predictions of a logistic regression for the digits it was not fitted to.

    Few images, a share of ``noisy`` labels and hardly any regularisation: what makes a classifier too sure.
    """
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    images, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(seed)
    order = random.permutation(len(images))
    images, labels = images[order] / 16.0, labels[order].astype(np.int64)
    given = labels[:train].copy()
    flipped = random.random(train) < noisy
    given[flipped] = (given[flipped] + random.integers(1, 10, int(flipped.sum()))) % 10
    model = LogisticRegression(C=1e3, max_iter=2000).fit(images[:train], given)
    return Predictions(model.decision_function(images[train:]), labels[train:])
