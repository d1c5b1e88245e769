"""How calibration holds up: subjects read on clean, corrupted and foreign images."""

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
    """What is measured: ``predict(pictures, labels)``, and calibrators fitted on clean held-out data, by name."""

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
    """A row for each subject, method and condition: accuracy, ECE (with its interval), NLL, AUROC against clean.

    Args:
        subjects: whom to ask.
        clean: test pictures and labels; severity 0 of the kind ``"clean"``.
        source: pictures and labels of a kind at a severity.
        kinds, severities: the conditions.
        resamples: for the intervals of ECE; none if 0.
        tick: called with the number of conditions done, and of all.
    """
    conditions = [(CLEAN, 0), *((kind, severity) for kind in kinds for severity in severities)]
    base: dict[str, Predictions] = {}
    rows: list[Row] = []
    for done, (kind, severity) in enumerate(conditions):
        pictures, labels = clean if kind == CLEAN else source(kind, severity)
        for subject in subjects:
            p = subject.predict(pictures, labels)
            first = base.setdefault(subject.name, p)
            facts = {"subject": subject.name, "kind": kind, "severity": severity, "n": len(p)}
            auroc = None if kind == CLEAN else float(auroc_ood(first, p))
            rows.append({**facts, "method": PLAIN, **_read(p, resamples), "auroc": auroc})
            for name, calibrator in subject.calibrators.items():
                rows.append({**facts, "method": name, **_read(calibrator.apply(p), resamples), "auroc": None})
        tick(done + 1, len(conditions))
    return rows


def ood_rows(subjects: Sequence[Subject], clean: tuple[Pictures, Labels], foreign: Mapping[str, Pictures]) -> list[Row]:
    """A row for each subject, foreign set and score: AUROC and FPR95 of telling it from the clean pictures."""
    rows = []
    for subject in subjects:
        inside = subject.predict(*clean)
        for name, pictures in foreign.items():
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
    """Means over the severities of corrupted rows, for each value of the columns ``by``, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["kind"] != CLEAN:
            groups.setdefault(tuple(row[name] for name in by), []).append(row)
    found = []
    for key, members in groups.items():
        mean = dict(zip(by, key, strict=True))
        for name in _averaged():
            values = [row[name] for row in members if row[name] is not None]
            mean[name] = float(np.mean(values)) if values else None
        found.append(mean)
    return found


def quantities(rows: Sequence[Row], foreign: Sequence[Row]) -> dict[str, float]:
    """The measures of one subject by name, as a run's result keeps them and tables ask for them.

    ``shift.ece`` is the mean over kinds and severities, ``shift.snow.ece`` that over the severities of one kind,
    ``shift.severity3.ece`` that over the kinds at one severity, where 0 is clean, and ``shift.temperature.ece`` and
    ``shift.temperature.severity3.ece`` after a calibrator; ``ood.svhn.auroc`` by the largest probability,
    ``ood.svhn.energy.auroc`` by another score.
    """
    found: dict[str, float] = {}
    for mean in means(rows, "method"):
        start = _start(mean["method"])
        found |= {f"{start}.{name}": mean[name] for name in _averaged() if mean[name] is not None}
    for mean in (*(row for row in rows if row["kind"] == CLEAN), *means(rows, "method", "severity")):
        start = f"{_start(mean['method'])}.severity{mean['severity']}"
        found |= {f"{start}.{name}": mean[name] for name in _averaged() if mean[name] is not None}
    for mean in means([row for row in rows if row["method"] == PLAIN], "kind"):
        found |= {f"shift.{mean['kind']}.{name}": mean[name] for name in _averaged()}
    for row in foreign:
        start = f"ood.{row['set']}" if row["score"] == "max_probability" else f"ood.{row['set']}.{row['score']}"
        found |= {f"{start}.auroc": row["auroc"], f"{start}.fpr95": row["fpr95"]}
    return found


def _averaged() -> list[str]:
    return [*shifted_metrics(), "auroc"]


def _start(method: str) -> str:
    return "shift" if method == PLAIN else f"shift.{method}"


def _read(p: Predictions, resamples: int) -> Row:
    table = metrics_table()
    values = {name: float(table[name](p)) for name in shifted_metrics()}
    low, high = interval(ece, p, resamples=resamples) if resamples else (None, None)
    return {**values, "ece_low": low, "ece_high": high}
