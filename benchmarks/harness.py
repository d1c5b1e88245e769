"""Times as medians of alternating runs in one process, written as JSON and as a Markdown table."""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def alternate(contestants: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each contestant; they take turns in random order, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    shuffle = random.Random(0).sample  # a fixed order would give one of them the cache that the other has left
    for turn in range(repeats + 1):
        for name in shuffle(list(contestants), len(contestants)):
            start = time.perf_counter()
            contestants[name]()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def machine() -> dict[str, Any]:
    """What the figures depend on, without naming the machine."""
    import numpy
    import torch

    cpu = next(
        (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.processor()
    )
    versions = {"python": platform.python_version(), "numpy": numpy.__version__, "torch": torch.__version__}
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), **versions}


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def table(headings: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table; numbers are right-aligned by the reader's renderer."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def milliseconds(seconds: float) -> str:
    """Three digits, in milliseconds."""
    return f"{1e3 * seconds:.3g} ms"


def report(out: Path | None, name: str, text: str, data: dict[str, Any]) -> None:
    """Print the figures; with a folder ``out`` also write them there, ``name.md`` and ``name.json``."""
    print(text)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.md").write_text(text)
        (out / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
