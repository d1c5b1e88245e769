"""Table 1's correlations with fewer readings: python cadence.py table1 (a folder of the study)."""

import json
import sys
from pathlib import Path

import numpy as np

folder = Path(sys.argv[1])
found: dict[tuple[str, int, str], list[float]] = {}
for run in json.loads((folder / "study.json").read_text())["runs"]:
    rows = [json.loads(line) for line in (folder / "runs" / run["id"] / "journal.jsonl").open()]
    for every in (1, 2, 5, 10):
        for pair in (("train.ece", "sharpness"), ("test.ece", "test.sharpness")):
            values = np.array([[row[name] for name in pair] for row in rows[::every]])
            key = pair[0], every, run["axes"]["method"]
            found.setdefault(key, []).append(float(np.corrcoef(values.T)[0, 1]))
for (ece, every, method), values in sorted(found.items()):
    print(f"{ece} every {every} readings, {method}: {np.mean(values):.2f}")
