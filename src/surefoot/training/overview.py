"""Where the runs of a folder stand, from their files alone; torch is not needed, and nothing in them is trusted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput
from surefoot.spellings import current_keys
from surefoot.training.journal import read_journal
from surefoot.training.records import read_json

__all__ = ["overview", "run_folders"]


def overview(folder: Path) -> list[dict[str, Any]]:
    """One dictionary a run: id, rule, seed, outcome (``"unfinished"`` if there is none), step, steps, last reading."""
    return [_one(place) for place in run_folders(folder)]


def run_folders(folder: Path) -> list[Path]:
    """The run itself, the runs in a folder of runs, or those of a study."""
    folder = folder.resolve()  # what lies in it may be no link
    if os.path.lexists(folder / "spec.json"):
        return [folder]
    if os.path.lexists(folder / "study.json"):
        folder = folder / "runs"
    try:
        with os.scandir(folder) as entries:
            inner = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [folder / name for name in inner if os.path.lexists(folder / name / "spec.json")]


def _one(place: Path) -> dict[str, Any]:
    spec, result = current_keys(_read(place / "spec.json")), _read(place / "result.json")
    try:
        readings = read_journal(place / "journal.jsonl")[0] if not result else []
    except BadInput:  # no regular file, say; the other runs are shown all the same
        readings = []
    last = _table(result.get("final")) if result else (readings[-1] if readings else {})
    steps = _table(spec.get("stop")).get("steps")
    return {
        "id": place.name,
        "optimizer": str(_table(spec.get("optimizer")).get("name", "?")),
        "seed": spec.get("seed") if isinstance(spec.get("seed"), int) else "?",
        "outcome": str(result.get("outcome", "unfinished")),
        "step": int(result["step"]) if isinstance(result.get("step"), int) else int(last.get("step", 0)),
        "steps": steps if isinstance(steps, int) else None,
        "last": last,
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        return _table(read_json(path))
    except (OSError, ValueError):
        return {}


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
