"""What the report page costs for a thousand runs of two thousand readings, and how soon a browser shows it.

``python benchmarks/report.py [--out DIR] [--quick]``. The folder is made up: records as long as real ones; twenty
different journals, which the runs share in turn, each read anew. ``surefoot report`` runs in a process of its own;
seconds, peak memory of the largest of its processes, size of the page. Then Chromium opens the page, where there is
one: the time until the overview and the trajectories are drawn, and until a filter has chosen.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine, report, table

from surefoot.runs.records import canonical, encode

PARTS = ("accuracy", "adaptive_ece", "brier", "confidence", "ece", "entropy", "kce", "log_q", "margin", "margin_min",
         "margin_q05", "margin_q25", "margin_q50", "margin_q75", "margin_q95", "nll", "tail_half", "wrong")  # fmt: skip
DIFFERENT = 20
METHODS = ("gd", "sgd", "adamw", "muon", "sam", "csam", "bulk")


def made_up(place: Path, number: int, readings: int) -> None:
    """A finished run with a journal of readings and, at every tenth, histograms."""
    random = np.random.default_rng(number)
    names = [f"{part}.{name}" for part in ("train", "test") for name in PARTS] + [
        "sharpness",
        "batch_sharpness",
        "loss",
    ]
    walks = np.abs(np.cumsum(random.normal(0, 0.02, (readings, len(names))), axis=0) + 1.0)
    lr = 0.01 * (1 + number % 5)
    lines, arrays = [], []
    bins = {"count": [20] * 15, "confidence": [0.5123456789] * 15, "accuracy": [0.4123456789] * 15}
    for step, row in enumerate(walks.tolist()):
        lines.append({"step": 10 * step, "lr": lr, "threshold": 2 / lr, **dict(zip(names, row, strict=True))})
        if step % 10 == 0:
            frame: dict[str, Any] = {"step": 10 * step}
            for part in ("train", "test"):
                frame[f"{part}.margin_histogram"] = {"low": -3.0, "high": 9.0, "counts": [10] * 30}
                frame[f"{part}.confidence_histogram"] = [10] * 30
                frame[f"{part}.reliability"] = bins
                frame[f"{part}.tail"] = {"rows": list(range(10)), "margins": row[:10], "shares": [0.1] * 10}
            arrays.append(frame)
    place.mkdir(parents=True)
    write_spec(place, number, readings, lr)
    (place / "journal.jsonl").write_bytes(b"".join(encode(line) for line in lines))
    (place / "arrays.jsonl").write_bytes(b"".join(encode(line) for line in arrays))
    result = {"outcome": "finished", "step": 10 * readings, "final": lines[-1], "correlations": {}}
    (place / "result.json").write_text(canonical(result))


def write_spec(place: Path, number: int, readings: int, lr: float) -> None:
    """What tells one run from another."""
    rule = {"name": METHODS[number % len(METHODS)], "lr": lr}
    spec = {
        "seed": number // 35,
        "rule": rule,
        "stop": {"steps": 10 * readings, "batch": 32},
        "data": {"name": "made up"},
    }
    (place / "spec.json").write_text(canonical(spec))


def repeated(before: Path, place: Path, number: int) -> None:
    """Another run with the same journal."""
    place.mkdir()
    for name in ("journal.jsonl", "arrays.jsonl", "result.json"):
        os.link(before / name, place / name)
    write_spec(place, number, 2000, 0.01 * (1 + number % 5))


def cost(folder: Path, page: Path) -> dict[str, float]:
    """Seconds and megabytes of ``surefoot report``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "surefoot", "report", str(folder), "-o", str(page)], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Memory is of the largest process, parent or reader; there are three at most at once.
    return {
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "largest_mb": used.ru_maxrss / 1024,
        "page_mb": page.stat().st_size / 1e6,
    }


def shown(page: Path) -> dict[str, float]:
    """Seconds until a browser shows the overview and the trajectories; empty where there is no browser."""
    program = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    if program is None:
        return {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        start = time.perf_counter()
        tab.goto(page.as_uri(), wait_until="commit")
        tab.wait_for_selector("#overview tbody tr")
        found = {"overview": time.perf_counter() - start}
        tab.wait_for_function("() => document.querySelectorAll('#trajectories .main-svg').length >= 7")
        found["trajectories"] = time.perf_counter() - start
        all_ = tab.locator("#shown").inner_text()
        start = time.perf_counter()
        tab.fill("#filter", "sgd")
        tab.wait_for_function("(all) => document.querySelector('#shown').textContent !== all", arg=all_)
        found["filter"] = time.perf_counter() - start
        browser.close()
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for report.md and report.json")
    parser.add_argument("--quick", action="store_true", help="few runs, to see that it runs")
    options = parser.parse_args()
    runs, readings = (20, 100) if options.quick else (1000, 2000)
    with tempfile.TemporaryDirectory() as name:
        folder, page = Path(name) / "runs", Path(name) / "page.html"
        for number in range(runs):
            place = folder / f"{number:016x}"
            if number < DIFFERENT:
                made_up(place, number, readings)
            else:
                repeated(folder / f"{number % DIFFERENT:016x}", place, number)
        size = sum(path.stat().st_size for path in folder.rglob("*.jsonl")) / 1e9
        found = {"machine": machine(), "journals_gb": size, **cost(folder, page), "browser": shown(page)}
    rows = [
        ["`surefoot report`", f"{found['seconds']:.1f} s", "60 s"],
        ["processor time of it, over two processes", f"{found['cpu_seconds']:.1f} s", ""],
        ["memory of its largest process", f"{found['largest_mb']:.0f} MB", "1 GB in all"],
        ["page", f"{found['page_mb']:.1f} MB", "15 MB"],
        *([f"browser: {what}", f"{seconds:.2f} s", "3 s"] for what, seconds in found["browser"].items()),
    ]
    text = "\n".join(
        [
            f"# The report page of {runs:,} runs of {readings:,} readings ({size:.1f} GB of journals)\n",
            "Made by `python benchmarks/report.py`.",
            ", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n",
            table(["what", "took", "goal"], rows),
            "",
        ]
    )
    report(options.out, "report", text, found)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
