"""Measurements under shift: subjects evaluated on clean, corrupted and out-of-distribution (OOD) images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics import ece, interval, metrics_table
from surefoot.metrics.registry import shifted_metrics
from surefoot.posthoc.calibrator import Calibrator
from surefoot.predictions import Predictions
from surefoot.shift.scores import SCORES, auroc_ood, fpr95_ood

__all__ = ["CLEAN", "PLAIN", "TOGETHER", "Subject", "means", "ood_rows", "quantities", "shifted_rows"]

CLEAN = "clean"  # the kind of images that are not corrupted
PLAIN = "none"  # the method of predictions that are not calibrated
TOGETHER = "ensemble"  # the subject that is the mean of all others

Row = dict[str, Any]
Pictures = NDArray[Any]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Subject:
    """A model to measure.

    Attributes:
        name: name of the subject in the rows.
        predict: function of (pictures, labels) that returns predictions.
        calibrators: calibrators fitted on clean held-out data, by name.
    """

    name: str
    predict: Callable[[Pictures, Labels], Predictions]
    calibrators: Mapping[str, Calibrator] = field(default_factory=dict)


def shifted_rows(
    subjects: Sequence[Subject],
    clean: tuple[Pictures, Labels],
    source: Callable[[str, int], tuple[Pictures, Labels]],
    kinds: Sequence[str],
    severities: Sequence[int],
    resamples: int = 0,
    tick: Callable[[int, int], None] = lambda done, of: None,
) -> list[Row]:
    """Measure subjects on clean and corrupted images.

    Args:
        subjects: the subjects.
        clean: test pictures and labels; severity 0 of the kind ``"clean"``.
        source: function of (kind, severity) that returns pictures and labels.
        kinds: names of corruptions.
        severities: severities, 1 to 5.
        resamples: number of resamples for the intervals of the ECE; 0 for no intervals.
        tick: called as ``tick(done, total)`` after every condition.

    Returns:
        One row per subject, method and condition: accuracy, ECE with its interval, NLL, and the AUROC of telling the
        condition from the clean images.
    """
    conditions = [(CLEAN, 0), *((kind, severity) for kind in kinds for severity in severities)]
    base: dict[str, Predictions] = {}
    rows: list[Row] = []
    for done, (kind, severity) in enumerate(conditions):
        pictures, labels = clean if kind == CLEAN else source(kind, severity)
        for subject in subjects:
            p = subject.predict(pictures, labels)
            first = base.setdefault(subject.name, p)
            condition = {"subject": subject.name, "kind": kind, "severity": severity, "n": len(p)}
            auroc = None if kind == CLEAN else float(auroc_ood(first, p))
            rows.append({**condition, "method": PLAIN, **_read(p, resamples), "auroc": auroc})
            for name, calibrator in subject.calibrators.items():
                rows.append({**condition, "method": name, **_read(calibrator.apply(p), resamples), "auroc": None})
        tick(done + 1, len(conditions))
    return rows


def ood_rows(subjects: Sequence[Subject], clean: tuple[Pictures, Labels], sets: Mapping[str, Pictures]) -> list[Row]:
    """Measure how well subjects tell out-of-distribution pictures from clean pictures.

    Args:
        subjects: the subjects.
        clean: test pictures and labels.
        sets: out-of-distribution pictures, by name.

    Returns:
        One row per subject, set and score, with AUROC and FPR95.
    """
    rows = []
    for subject in subjects:
        inside = subject.predict(*clean)
        for name, pictures in sets.items():
            outside = subject.predict(pictures, np.zeros(len(pictures), np.int64))
            for score in SCORES:
                try:
                    area, accepted = auroc_ood(inside, outside, score), fpr95_ood(inside, outside, score)
                except BadInput:
                    continue  # the mean of an ensemble has no energy
                rows.append(
                    {"subject": subject.name, "set": name, "score": score, "n": len(outside),
                     "auroc": float(area), "fpr95": float(accepted)}
                )  # fmt: skip
    return rows


def means(rows: Sequence[Row], *by: str) -> list[Row]:
    """Average the rows of corrupted images over groups.

    Args:
        rows: rows of `shifted_rows`.
        by: names of columns; rows with equal values in these columns make a group.

    Returns:
        One row per group in order of appearance, with the columns ``by`` and the means; None for a mean of no values.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["kind"] != CLEAN:
            groups.setdefault(tuple(row[name] for name in by), []).append(row)
    averages = []
    for key, members in groups.items():
        mean = dict(zip(by, key, strict=True))
        for name in _averaged():
            values = [row[name] for row in members if row[name] is not None]
            mean[name] = float(np.mean(values)) if values else None
        averages.append(mean)
    return averages


def quantities(rows: Sequence[Row], ood: Sequence[Row]) -> dict[str, float]:
    """Name the measures of one subject, as the result of a run and tables use them.

    - ``shift.ece``: mean over kinds and severities.
    - ``shift.snow.ece``: mean over the severities of one kind.
    - ``shift.severity3.ece``: mean over the kinds at one severity, where 0 is clean.
    - ``shift.temperature.ece`` and ``shift.temperature.severity3.ece``: after a calibrator.
    - ``ood.svhn.auroc``: by the largest probability.
    - ``ood.svhn.energy.auroc``: by another score.

    Args:
        rows: rows of `shifted_rows` of one subject.
        ood: rows of `ood_rows` of the same subject.

    Returns:
        The measures by name.
    """
    measures: dict[str, float] = {}
    for mean in means(rows, "method"):
        start = _start(mean["method"])
        measures |= {f"{start}.{name}": mean[name] for name in _averaged() if mean[name] is not None}
    for mean in (*(row for row in rows if row["kind"] == CLEAN), *means(rows, "method", "severity")):
        start = f"{_start(mean['method'])}.severity{mean['severity']}"
        measures |= {f"{start}.{name}": mean[name] for name in _averaged() if mean[name] is not None}
    for mean in means([row for row in rows if row["method"] == PLAIN], "kind"):
        measures |= {f"shift.{mean['kind']}.{name}": mean[name] for name in _averaged()}
    for row in ood:
        start = f"ood.{row['set']}" if row["score"] == "max_probability" else f"ood.{row['set']}.{row['score']}"
        measures |= {f"{start}.auroc": row["auroc"], f"{start}.fpr95": row["fpr95"]}
    return measures


def _averaged() -> list[str]:
    """Names of the columns that are averaged."""
    return [*shifted_metrics(), "auroc"]


def _start(method: str) -> str:
    """The first part of the names of a method's measures."""
    return "shift" if method == PLAIN else f"shift.{method}"


def _read(p: Predictions, resamples: int) -> Row:
    """The metrics of predictions, with the interval of the ECE."""
    table = metrics_table()
    values = {name: float(table[name](p)) for name in shifted_metrics()}
    low, high = interval(ece, p, resamples=resamples) if resamples else (None, None)
    return {**values, "ece_low": low, "ece_high": high}
