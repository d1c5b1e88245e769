"""What a reading holds: flat dictionaries of numbers, from predictions and from a model's curvature."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot import metrics
from surefoot.margins.moments import log_moment, tail
from surefoot.metrics.registry import tracked_metrics
from surefoot.predictions import Predictions

__all__ = ["arrays_of", "calibration_of", "margins_of"]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def calibration_of(part: str, p: Predictions) -> dict[str, float]:
    """How right and how sure: ``part.accuracy``, ``.nll``, ``.ece``, … and the mean binary entropy of p_y.

    The registry says which metrics are read; of the test part also the classwise error and both AUROCs.
    """
    table = metrics.metrics_table()
    found = {name: table[name](p) for name in tracked_metrics(part)}
    found["confidence"] = p.confidence.mean()
    found["entropy"] = _entropy(p.log_true).mean()
    return {f"{part}.{name}": float(value) for name, value in found.items()}


def margins_of(part: str, p: Predictions, count: int = 10) -> dict[str, Any]:
    """The true margin's mean, minimum and quantiles, log Q, and the examples that carry Q, heaviest first."""
    m = p.true_margin
    found: dict[str, Any] = {f"{part}.margin": float(m.mean()), f"{part}.margin_min": float(m.min())}
    for q, value in zip(_QUANTILES, np.quantile(m, _QUANTILES), strict=True):
        found[f"{part}.margin_q{round(100 * q):02d}"] = float(value)
    found[f"{part}.log_q"] = log_moment(m)
    heavy = tail(m, count)
    found[f"{part}.wrong"], found[f"{part}.tail_half"] = heavy.wrong, heavy.half
    found[f"{part}.tail"] = {
        "rows": heavy.rows.tolist(),
        "margins": heavy.margins.tolist(),
        "shares": heavy.shares.tolist(),
        "labels": p.labels[heavy.rows].tolist(),
        "predicted": p.predicted[heavy.rows].tolist(),
        "confidence": p.confidence[heavy.rows].tolist(),
    }
    return found


def arrays_of(part: str, p: Predictions, bins: int = 30) -> dict[str, Any]:
    """Histograms of margin and confidence, and the reliability table, as small lists."""
    low, high = float(p.true_margin.min()), float(p.true_margin.max())
    margins, edges = np.histogram(p.true_margin, bins, (low, high if high > low else low + 1.0))
    confidence, _ = np.histogram(p.confidence, bins, (0.0, 1.0))
    table = metrics.reliability(p).table
    return {
        f"{part}.margin_histogram": {"low": float(edges[0]), "high": float(edges[-1]), "counts": margins.tolist()},
        f"{part}.confidence_histogram": confidence.tolist(),
        f"{part}.reliability": {
            "count": table.count.tolist(),
            "confidence": table.confidence.tolist(),
            "accuracy": table.accuracy.tolist(),
        },
    }


def _entropy(log_p: Any) -> Any:
    """H(p) = −p log p − (1 − p) log(1 − p) of log p, the limits included."""
    p = np.exp(log_p)
    rest = -np.expm1(log_p)
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(p > 0, p * log_p, 0.0) - np.where(rest > 0, rest * np.log(rest), 0.0)
