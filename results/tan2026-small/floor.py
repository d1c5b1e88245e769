"""The ECE that a perfectly calibrated network would show with the confidences of runs: python floor.py figure3."""

import json
import sys
from pathlib import Path

import numpy as np

folder = Path(sys.argv[1])
random = np.random.default_rng(0)
for run in json.loads((folder / "study.json").read_text())["runs"]:
    last = (folder / "runs" / run["id"] / "arrays.jsonl").read_text().splitlines()[-1]
    bins = json.loads(last)["test.reliability"]
    count, confidence = (np.array(bins[name], float) for name in ("count", "confidence"))
    some = count > 0
    n, p = count[some].astype(int), confidence[some]
    errors = np.abs(random.binomial(n, p, (10_000, len(n))) - n * p).sum(1) / n.sum()
    low, high = np.quantile(errors, [0.05, 0.95])
    print(f"{run['label']}: {errors.mean():.3f} [{low:.3f}, {high:.3f}] on {n.sum():,} images")
