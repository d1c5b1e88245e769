"""Figure A14's table, SGD and BulkSGD at the readings that both have: python a14.py cifar100 (a study's folder)."""

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
readings = {}
for run in json.loads((folder / "study.json").read_text())["runs"]:
    method, rate = run["axes"]["method"], run["axes"]["lr"]
    if method in ("SGD", "BulkSGD k=1"):
        rows = [json.loads(line) for line in (folder / "runs" / run["id"] / "journal.jsonl").open()]
        readings.setdefault(rate, {})[method] = {row["step"]: row for row in rows if "train.ece" in row}
names = ["largest train ECE", "mean", "last", "last held-out ECE", "largest sharpness", "last train accuracy"]
print(",".join(["rate", "method", *names]))
for rate, both in readings.items():
    steps = sorted(set.intersection(*(set(rows) for rows in both.values())))
    for method, rows in both.items():
        ece = [rows[step]["train.ece"] for step in steps]
        last = rows[steps[-1]]
        sharpest = max(rows[step]["sharpness"] for step in steps)
        figures = [max(ece), sum(ece) / len(ece), ece[-1], last["test.ece"], sharpest, last["train.accuracy"]]
        print(f"{rate},{method},{','.join(f'{figure:.4g}' for figure in figures)}")
