"""Peak memory of data, from the stored bytes to a trained and evaluated model, as a ratio to the bytes as stored.

``python benchmarks/data_memory.py [--out DIR] [--quick]``. Random images stand in for a data set. Each figure is the
growth of the largest resident memory (``ru_maxrss``) of a process of its own, from the moment before the data exist.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine, report, table

import surefoot as sf
from surefoot.data.prepare import prepare
from surefoot.data.sets import StoredData

_SIDE, _CLASSES, _TEST = 32, 10, 1000
_RUN = {
    "model": {"name": "mlp", "widths": [16]},
    "rule": {"name": "sgd", "lr": 0.01},
    "track": {"every": 10, "curvature": False},
}
# The same script on version 0.1.0, which made a float64 copy of all images (50,000 of them, same machine).
BEFORE = {
    "prepare, per feature": 22.5,
    "prepare, per channel": 22.5,
    "train, batch 128": 25.0,
    "train, full batch": 25.0,
}
CASES = {
    "prepare, per feature": "subset, validation part and standardisation of each pixel",
    "prepare, per channel": "the same, standardisation of each channel",
    "train, batch 128": "20 steps and 3 readings of calibration and margins, from a file",
    "train, full batch": "the same, every step on all examples as float32",
}


def images(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes (n, 32, 32, 3) and labels."""
    random = np.random.default_rng(0)
    return random.integers(0, 256, (n, _SIDE, _SIDE, 3), dtype=np.uint8), np.arange(n) % _CLASSES


def peak() -> float:
    """Largest resident memory so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def measure(case: str, n: int) -> float:
    """Growth of peak memory in this process, over the bytes of the training images."""
    raw = n * _SIDE * _SIDE * 3
    with tempfile.TemporaryDirectory() as folder:
        if case.startswith("prepare"):
            warm = images(200)
            prepare(StoredData("warm", *warm, *warm, _CLASSES))
            before = peak()
            data = StoredData("random", *images(n), *images(_TEST), _CLASSES)
            prepare(data, val=n // 10, standardise=case.split()[-1])
        else:
            place = Path(folder)
            for name, size in (("warm", 500), ("random", n)):
                (x_train, y_train), (x_test, y_test) = images(size), images(_TEST)
                arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
                np.savez(place / f"{name}.npz", **arrays)
            subprocess.run([sys.executable, __file__, "--run", folder, "--case", case], check=True)
            return float((place / "growth").read_text()) / raw
    return (peak() - before) / raw


def train(place: Path, case: str) -> None:
    """Two runs from files, the first to import everything; the growth of peak memory by the second."""
    before = 0.0
    for name in ("warm", "random"):
        before = peak()
        stop = {"steps": 20, "batch": "full" if "full" in case else 128}
        sf.train({**_RUN, "data": f"arrays:{name}", "stop": stop}, place / "runs", place)
    (place / "growth").write_text(str(peak() - before))


def tables(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    rows = [[name, CASES[name], BEFORE[name], f"{ratio:.1f}"] for name, ratio in found["ratios"].items()]
    return "\n".join(
        [
            "# Data: peak memory over the bytes as stored\n",
            "Made by `python benchmarks/data_memory.py`.",
            ", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n",
            f"{found['images']:,} random images 32×32×3, {found['megabytes']:.0f} MB; these bytes count as 1.\n",
            table(["", "what", "peak / bytes, version 0.1.0", "peak / bytes"], rows),
            "",
            "A full batch as float32 is 4 times the bytes, and an MLP flattens it to another 4.",
            "",
        ]
    )


def main() -> None:
    """Measure each case in a process of its own, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for data_memory.md and data_memory.json")
    parser.add_argument("--quick", action="store_true", help="few images, to see that it runs")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--images", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run is not None:
        return train(options.run, options.case)
    if options.case is not None:
        return print(measure(options.case, options.images))
    n = 2000 if options.quick else 50_000
    found: dict[str, Any] = {"machine": machine(), "images": n, "megabytes": n * _SIDE * _SIDE * 3 / 1e6, "ratios": {}}
    for case in CASES:
        command = [sys.executable, __file__, "--case", case, "--images", str(n)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found["ratios"][case] = float(done.stdout)
    report(options.out, "data_memory", tables(found), found)
    return None


if __name__ == "__main__":
    main()
