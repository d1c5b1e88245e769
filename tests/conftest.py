"""Predictions to test with, and the profile of the random tests."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from surefoot import Predictions

# Several test processes share the cores; threads inside each would only wait for one another.
torch.set_num_threads(1)

# Times vary on shared machines; a failing example is printed so that it can be replayed.
settings.register_profile("default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


def random_predictions(n: int, k: int, seed: int = 0, scale: float = 2.0, sharp: float = 1.5) -> Predictions:
    """Labels drawn from softmax(logits), predictions too sure by a factor ``sharp``."""
    random = np.random.default_rng(seed)
    logits = scale * random.standard_normal((n, k))
    gumbel = random.gumbel(size=(n, k))
    return Predictions(sharp * logits, (logits + gumbel).argmax(1))


def binary_predictions(confidence: np.ndarray, correct: np.ndarray) -> Predictions:
    """Predictions of two or more classes with exactly these confidences (any in (0, 1]) and outcomes."""
    confidence = np.asarray(confidence, dtype=np.float64)
    k = max(2, int(np.ceil(1 / confidence.min())) + 1)
    probs = np.repeat(((1 - confidence) / (k - 1))[:, None], k, axis=1)
    probs[:, 0] = confidence
    # The rows sum to one up to rounding, and such rows are kept to the bit.
    return Predictions.from_probs(probs, np.where(correct, 0, 1))


@pytest.fixture
def p() -> Predictions:
    return random_predictions(500, 5)
