"""Metrics against their peers and against physical limits: ``python benchmarks/metrics.py [--out DIR] [--quick]``.

Needs the extra ``oracles``. Every ratio is of medians of alternating runs in this process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import alternate, machine, milliseconds, report, table

from surefoot import Predictions, metrics
from surefoot.metrics.kce import laplacian_sum


def confidences(n: int, k: int = 2, seed: int = 0) -> Predictions:
    """Confidences from ½ to 1 crowded at 1, slightly too sure; columns derived already."""
    random = np.random.default_rng(seed)
    confidence = 1 - 0.5 * random.random(n) ** 2
    correct = random.random(n) < confidence**1.2
    probs = np.repeat(((1 - confidence) / (k - 1))[:, None], k, axis=1)
    probs[:, 0] = confidence
    p = Predictions.from_probs(probs, np.where(correct, 0, 1))
    assert len(p.confidence) == n
    return p


def fresh(metric: Any, p: Predictions) -> Any:
    """``metric(p)`` as for new predictions: what an earlier metric sorted is forgotten first."""

    def run() -> float:
        p._memo.clear()
        return float(metric(p))

    return run


def binned(repeats: int, n: int) -> dict[str, Any]:
    """ece, adaptive_ece and mce from confidences, against torchmetrics and netcal."""
    from netcal.metrics import ECE
    from torchmetrics.classification import MulticlassCalibrationError
    from torchmetrics.functional.classification.calibration_error import _ce_compute

    p = confidences(n)
    outcome = p.correct.astype(int)
    core = torch.tensor(p.confidence, dtype=torch.float32), torch.tensor(p.correct).float()
    tensors = {}
    for k in (2, 10):
        q = confidences(n, k)
        tensors[k] = torch.tensor(q.probs, dtype=torch.float32), torch.tensor(q.labels)

    def torchmetrics_class(k: int) -> float:
        peer = MulticlassCalibrationError(k, 15)
        peer.update(*tensors[k])
        return float(peer.compute())

    contestants = {
        "ece": fresh(metrics.ece, p),
        "adaptive_ece": fresh(metrics.adaptive_ece, p),
        "mce": fresh(metrics.mce, p),
        "netcal ECE": lambda: ECE(15).measure(p.confidence, outcome),
        "torchmetrics, 10 classes": partial(torchmetrics_class, 10),
        "torchmetrics, 2 classes": partial(torchmetrics_class, 2),
        "torchmetrics' inner function": lambda: float(_ce_compute(*core, torch.linspace(0, 1, 16))),
    }
    return {"n": n, "seconds": alternate(contestants, repeats)}


def start_up(repeats: int) -> dict[str, float]:
    """Seconds of whole processes: the bare interpreter, and --help."""
    commands = {"python -c pass": ["-c", "pass"], "surefoot --help": ["-m", "surefoot", "--help"]}
    return alternate(
        {
            name: partial(subprocess.run, [sys.executable, *c], capture_output=True, check=True)
            for name, c in commands.items()
        },
        repeats,
    )


def large(n: int) -> dict[str, Any]:
    """The value at 10⁷ rows: ours, the exact one, and torchmetrics' float32 sums."""
    from torchmetrics.functional.classification.calibration_error import _ce_compute

    p = confidences(n)
    index = np.minimum(np.ceil(p.confidence * 15) - 1, 14)
    residual = p.correct.astype(np.longdouble) - p.confidence
    exact = float(sum(abs(residual[index == b].sum()) for b in range(15)) / n)
    peer = _ce_compute(
        torch.tensor(p.confidence, dtype=torch.float32), torch.tensor(p.correct).float(), torch.linspace(0, 1, 16)
    )
    return {"n": n, "exact": exact, "surefoot": float(metrics.ece(p)), "torchmetrics": float(peer)}


def kernel(repeats: int, n: int) -> dict[str, Any]:
    """kce against the sort of its confidences, and its agreement with the double sum at a size that allows one."""
    p = confidences(n)
    seconds = alternate({"kce": fresh(metrics.kce, p), "np.argsort": lambda: np.argsort(p.confidence)}, repeats)
    small = confidences(8000)
    order = np.argsort(small.confidence)
    c, z = small.confidence[order], (small.correct - small.confidence)[order]
    weights = np.exp(-np.abs(c[:, None] - c) / 0.4)
    error = abs(laplacian_sum(c, z, 0.4) - z @ weights @ z) / (np.abs(z) @ weights @ np.abs(z))
    double = alternate({"double sum": lambda: z @ np.exp(-np.abs(c[:, None] - c) / 0.4) @ z}, 2)["double sum"]
    return {"n": n, "seconds": seconds, "agreement": error, "double sum": {"n": 8000, "seconds": double}}


def smooth(repeats: int, sizes: list[int]) -> list[dict[str, Any]]:
    """smooth_ece against relplot: time and value."""
    import relplot

    found = []
    for n in sizes:
        p = confidences(n)
        outcome = p.correct.astype(float)
        contestants = {
            "smooth_ece": fresh(metrics.smooth_ece, p),
            "relplot": partial(relplot.smECE, p.confidence, outcome),
        }
        values = {name: float(run()) for name, run in contestants.items()}
        found.append({"n": n, "seconds": alternate(contestants, repeats), "values": values})
    return found


_SUMMARY = """
import sys, time, json, statistics
import numpy as np, torch
from surefoot import Predictions, metrics
n, k, repeats = (int(a) for a in sys.argv[1:])
random = np.random.default_rng(0)
logits = np.empty((n, k), np.float32)
for row in range(0, n, 1000):
    logits[row:row + 1000] = 3 * random.standard_normal((1000, k), dtype=np.float32)
labels = random.integers(0, k, n)
metrics.summary(Predictions(logits[:100], labels[:100]))
def peak_now():  # of this process alone: getrusage would count the parent's peak too
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
before = peak_now()
metrics.summary(Predictions(logits, labels))
peak = peak_now() - before
tensor, times = torch.from_numpy(logits), {"summary": [], "log_softmax": []}
for turn in range(repeats + 1):
    for name, run in (("summary", lambda: metrics.summary(Predictions(logits, labels))),
                      ("log_softmax", lambda: torch.log_softmax(tensor, 1))):
        start = time.perf_counter(); run()
        if turn: times[name].append(time.perf_counter() - start)
print(json.dumps({"seconds": {m: statistics.median(t) for m, t in times.items()}, "extra": peak / logits.nbytes}))
"""


def summaries(repeats: int, n: int, k: int) -> dict[str, Any]:
    """summary (validation included) against torch's log_softmax, in a process of its own for the memory."""
    import json

    command = [sys.executable, "-c", _SUMMARY, str(n), str(k), str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"n": n, "k": k, **json.loads(done.stdout)}


def growth(sizes: list[int]) -> dict[str, dict[int, float]]:
    """Median seconds of every metric at each size; the quadratic one stops where its square does."""
    found: dict[str, dict[int, float]] = {}
    for n in sizes:
        p = confidences(n)
        for name, metric in metrics.metrics_table().items():
            if name == "skce" and n > 10**4:
                continue
            found.setdefault(name, {})[n] = alternate({name: fresh(metric, p)}, 3)[name]
    return found


def tables(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    parts = [
        "# Metrics: speed and memory\n",
        "Made by `make bench` (`python benchmarks/metrics.py`). Medians of alternating runs.",
    ]
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n")
    seconds = found["binned"]["seconds"]
    peers = list(seconds)[3:]
    rows = [
        [ours, milliseconds(seconds[ours]), *(f"{seconds[peer] / seconds[ours]:.1f}×" for peer in peers)]
        for ours in list(seconds)[:3]
    ]
    parts += [f"## Binned errors, n = {found['binned']['n']:,}, from confidences\n"]
    parts += [table(["", "time", *(f"faster than {peer}" for peer in peers)], rows), ""]
    big = found["large"]
    parts.append(
        f"At n = {big['n']:,} the exact ECE is {big['exact']:.9f}: ours {big['surefoot']:.9f}, "
        f"torchmetrics {big['torchmetrics']:.9f}.\n"
    )
    k = found["kernel"]
    ratio = k["seconds"]["kce"] / k["seconds"]["np.argsort"]
    parts += [f"## Kernel error, n = {k['n']:,}\n"]
    parts.append(
        f"kce {milliseconds(k['seconds']['kce'])}, np.argsort of the confidences "
        f"{milliseconds(k['seconds']['np.argsort'])}: "
        f"{ratio:.2f} times the sort (goal: at most 3). Against the double sum at n = 8,000 "
        f"({milliseconds(k['double sum']['seconds'])} there): {k['agreement']:.1e} of Σ|ZᵢZⱼ|k.\n"
    )
    rows = [
        [f"{s['n']:,}", *(milliseconds(t) for t in s["seconds"].values()), *(f"{v:.6f}" for v in s["values"].values())]
        for s in found["smooth"]
    ]
    parts += ["## Smooth error\n", table(["n", "smooth_ece", "relplot", "its value", "relplot's"], rows), ""]
    s = found["summary"]
    ratio = s["seconds"]["summary"] / s["seconds"]["log_softmax"]
    parts += [f"## Summary of {s['n']:,} × {s['k']:,} float32 logits\n"]
    parts.append(
        f"summary {milliseconds(s['seconds']['summary'])} (validation included), torch.log_softmax "
        f"{milliseconds(s['seconds']['log_softmax'])}: {ratio:.2f} times (goal: at most 3); "
        f"peak extra memory {s['extra']:.2f} times the logits (goal: at most 1.2).\n"
    )
    sizes = list(found["growth"]["ece"])
    rows = [
        [name, *(milliseconds(times[n]) if n in times else "" for n in sizes)]
        for name, times in found["growth"].items()
    ]
    parts += ["## Growth with n (two classes)\n", table(["metric", *(f"{n:,}" for n in sizes)], rows), ""]
    times = ", ".join(f"`{name}` {milliseconds(seconds)}" for name, seconds in found["start-up"].items())
    parts += ["## Start-up\n", f"{times} (goal: --help under 500 ms).", ""]
    return "\n".join(parts)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for metrics.md and metrics.json")
    parser.add_argument("--quick", action="store_true", help="a tenth of every size, to see that it runs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    scale = 10 if options.quick else 1
    sizes = [n // scale for n in (10**4, 10**5, 10**6, 10**7)]
    found = {
        "machine": machine(),
        "binned": binned(15, 10**6 // scale),
        "large": large(10**7 // scale),
        "kernel": kernel(15, 10**6 // scale),
        "smooth": smooth(5, [10**5 // scale, 10**6 // scale]),
        "summary": summaries(5, 10**5 // scale, 1000),
        "growth": growth(sizes),
        "start-up": start_up(9),
    }
    report(options.out, "metrics", tables(found), found)


if __name__ == "__main__":
    main()
