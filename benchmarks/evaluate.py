"""What the first-screen metrics cost: reading and judging predictions, against a table library and a softmax.

``python benchmarks/evaluate.py [--out DIR] [--quick]``. The first screen is accuracy, gap, ECE, NLL and Brier score.

- Binary: a parquet file with a label and a probability a row. The peer is a polars process that reads both columns and
  sums them in 15 bins. Both are processor times of a process of their own, after the imports.
- Classes in memory: the first screen, against one float64 ``log_softmax`` of the same logits.
- Streams: peak memory of the first screen batch by batch, against the bytes of the columns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine, report, table

OURS = """
import json, resource, sys, time
from surefoot import Predictions, metrics
import surefoot.predictions.tables
names = ("accuracy", "gap", "ece", "nll", "brier")
calls = [getattr(metrics, name) for name in names]
few = Predictions.from_probs([0.5, 0.25], [0, 1])  # what is imported on first use
values = [float(call(few)) for call in calls]
start = time.process_time()
p = Predictions.load(sys.argv[1])
values = [float(call(p)) for call in calls]
spent = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": spent, "megabytes": peak, "ece": values[2]}))
"""
POLARS = """
import json, resource, sys, time
import polars
start = time.process_time()
frame = polars.read_parquet(sys.argv[1])
cell = ((frame["prob"] * 15).ceil() - 1).clip(0, 14).cast(polars.Int8)
groups = frame.with_columns(cell=cell).group_by("cell")
sums = groups.agg(polars.len(), polars.col("label").sum(), polars.col("prob").sum())
ece = (sums["label"] - sums["prob"]).abs().sum() / len(frame)
spent = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": spent, "megabytes": peak, "ece": ece}))
"""
STREAM = """
import json, resource, sys, time
from surefoot import Predictions
from surefoot.evaluation import evaluate_batches
start = time.process_time()
result = evaluate_batches(Predictions.batches(sys.argv[1]))
spent = time.process_time() - start
print(json.dumps({"seconds": spent, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""
CLASSES = """
import json, sys, time
import numpy as np
from scipy.special import log_softmax
from surefoot import Predictions, metrics
n, k = int(sys.argv[1]), int(sys.argv[2])
random = np.random.default_rng(0)
logits = random.normal(size=(n, k))
labels = random.integers(0, k, n)
calls = [getattr(metrics, name) for name in ("accuracy", "gap", "ece", "nll", "brier")]
def spent(call):
    start = time.process_time()
    call()
    return time.process_time() - start
def ours():
    p = Predictions(logits, labels)
    for call in calls:
        call(p)
times = {"log_softmax": [], "ours": []}
for _ in range(int(sys.argv[3])):
    times["log_softmax"].append(spent(lambda: log_softmax(logits, axis=1)))
    times["ours"].append(spent(ours))
print(json.dumps({name: sorted(values)[len(values) // 2] for name, values in times.items()}))
"""


def process(code: str, *arguments: Any) -> dict[str, Any]:
    """What a process of its own prints as JSON."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def binary(rows: int, repeats: int) -> dict[str, Any]:
    """Medians of alternating processes on one parquet file."""
    import pyarrow
    import pyarrow.parquet

    random = np.random.default_rng(0)
    prob = random.beta(1, 3, rows)
    columns = {"label": (random.random(rows) < prob).astype(np.int64), "prob": prob}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.parquet"
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        runs = [(process(OURS, path), process(POLARS, path)) for _ in range(repeats)]
    ours, peer = runs[0]
    if abs(ours["ece"] - peer["ece"]) > 1e-9:
        raise SystemExit(f"the peers disagree: {ours['ece']} and {peer['ece']}")
    median = {
        name: {key: statistics.median(run[side][key] for run in runs) for key in ("seconds", "megabytes")}
        for side, name in enumerate(("ours", "polars"))
    }
    return {"rows": rows, **median}


def stream(rows: int) -> dict[str, Any]:
    """Peak memory and processor time of a parquet file of ten logits a row, written a million rows at a time."""
    import pyarrow
    import pyarrow.parquet

    random, part = np.random.default_rng(0), min(rows, 10**6)
    schema = pyarrow.schema(
        [("label", pyarrow.int64()), *((f"logit_{index}", pyarrow.float64()) for index in range(10))]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.parquet"
        with pyarrow.parquet.ParquetWriter(path, schema) as file:
            for _ in range(0, rows, part):
                columns = [random.integers(0, 10, part), *random.normal(size=(10, part))]
                file.write_table(pyarrow.table([pyarrow.array(column) for column in columns], schema=schema))
        return {"rows": rows, "column megabytes": rows * 11 * 8 / 1e6, **process(STREAM, path)}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for evaluate.md and evaluate.json")
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it runs")
    options = parser.parse_args()
    quick = options.quick
    found: dict[str, Any] = {"machine": machine()}
    found["binary"] = [binary(rows, 1 if quick else 5) for rows in ([10**5] if quick else [10**6, 10**7])]
    shapes = [(10**4, 10)] if quick else [(10**6, 10), (10**5, 1000)]
    found["classes"] = [{"rows": n, "classes": k, **process(CLASSES, n, k, 1 if quick else 5)} for n, k in shapes]
    found["stream"] = [stream(rows) for rows in ([10**5] if quick else [2 * 10**6, 2 * 10**7])]
    parts = ["# Evaluation: what the first screen costs\n", "Made by `python benchmarks/evaluate.py`, processor time."]
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n")
    rows = [
        [f"{run['rows']:,}", f"{run['ours']['seconds']:.2f} s", f"{run['polars']['seconds']:.2f} s",
         f"{run['ours']['seconds'] / run['polars']['seconds']:.2f}", f"{run['ours']['megabytes']:.0f} MB"]
        for run in found["binary"]
    ]  # fmt: skip
    parts.append(
        table(["binary rows", "ours", "polars reads and bins", "ratio (goal 1.3)", "peak memory"], rows) + "\n"
    )
    rows = [
        [f"{run['rows']:,} × {run['classes']}", f"{run['ours']:.2f} s", f"{run['log_softmax']:.2f} s",
         f"{run['ours'] / run['log_softmax']:.2f}"]
        for run in found["classes"]
    ]  # fmt: skip
    parts.append(table(["logits in memory", "ours", "log_softmax", "ratio (goal 3)"], rows) + "\n")
    rows = [
        [f"{run['rows']:,} × 10", f"{run['column megabytes']:,.0f} MB", f"{run['megabytes']:.0f} MB",
         f"{run['seconds']:.2f} s"]
        for run in found["stream"]
    ]  # fmt: skip
    parts.append(table(["batch by batch", "columns", "peak memory", "processor time"], rows) + "\n")
    report(options.out, "evaluate", "\n".join(parts), found)


if __name__ == "__main__":
    main()
