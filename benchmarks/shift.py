"""What corruptions cost: 10,000 images of 32×32 under each kind, against the same work one image at a time.

``python benchmarks/shift.py [--data FILE.npz] [--out DIR] [--quick]``; the file holds ``x_test`` or ``x_train`` as
bytes (n, 32, 32, 3), such as CIFAR-10; without it, blurred noise of that shape. The loop calls the same function for
each image and is measured on some of them, scaled up.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from harness import alternate, machine, report, table
from scipy.ndimage import gaussian_filter

from surefoot.shift import CORRUPTIONS, EXTRA, corrupt

ROWS, SINGLE = 10_000, 300


def pictures(path: Path | None, rows: int) -> Any:
    """(rows, 32, 32, 3) bytes."""
    if path is None:
        random = np.random.default_rng(0)
        # Channels of photographs are much alike.
        noise = random.standard_normal((rows, 32, 32, 1)) + 0.5 * random.standard_normal((rows, 32, 32, 3))
        smooth = gaussian_filter(noise.astype(np.float32), (0, 2, 2, 0))
        return np.clip(128 + 60 * smooth / smooth.std(), 0, 255).astype(np.uint8)
    with np.load(path, allow_pickle=False) as file:
        return file["x_test" if "x_test" in file else "x_train"][:rows]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help=".npz with x_test or x_train")
    parser.add_argument("--out", type=Path, help="folder for shift.md and shift.json")
    parser.add_argument("--quick", action="store_true", help="few images, to see that it runs")
    options = parser.parse_args()
    x = pictures(options.data, 500 if options.quick else ROWS)
    single = x[: 20 if options.quick else SINGLE]
    seconds, distances = {}, {}
    for kind in (*CORRUPTIONS, *EXTRA):
        found = alternate(
            {
                "together": lambda kind=kind: corrupt(x, kind, 3),
                "one by one": lambda kind=kind: [corrupt(image[None], kind, 3) for image in single],
            },
            1 if options.quick else 3,
        )
        found["one by one"] *= len(x) / len(single)
        seconds[kind] = found
        few = x[:500].astype(np.float64)
        distances[kind] = [
            float(np.sqrt(((corrupt(x[:500], kind, severity) - few) ** 2).mean((1, 2, 3))).mean())
            for severity in (1, 2, 3, 4, 5)
        ]
    rows = [
        [kind, f"{s['together']:.2f} s", f"{s['one by one']:.1f} s", f"{s['one by one'] / s['together']:.1f}",
         " · ".join(f"{d:.1f}" for d in distances[kind])]
        for kind, s in seconds.items()
    ]  # fmt: skip
    slowest = max(seconds, key=lambda kind: seconds[kind]["together"])
    found = {"machine": machine(), "images": len(x), "seconds": seconds, "distances": distances}
    text = "\n".join(
        [
            "# Shift: what corruptions cost\n",
            f"Made by `python benchmarks/shift.py{' --data cifar10.npz' if options.data else ''}`; {len(x):,} images, "
            "severity 3.",
            ", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n",
            table(["kind", "together", "one by one", "ratio", "distance to clean at severities 1–5"], rows),
            f"\nSlowest: {slowest}, {seconds[slowest]['together']:.2f} s. Distances are root mean squares in bytes, "
            "over 500 images.\n",
        ]
    )
    report(options.out, "shift", text, found)


if __name__ == "__main__":
    main()
