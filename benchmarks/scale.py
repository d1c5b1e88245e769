"""How a reading grows: time and memory against examples, parameters, layers, classes and ranks; and its cheap proxies.

``python benchmarks/scale.py [--data FILE.npz] [--out DIR] [--only SECTION ...] [--quick]``. A reading is the tracker's
default one (calibration, margins, curvature), warm, on random data. *Dense* networks are read through the principal
directions of their inputs, *convolutions* by products with the whole matrix. Every figure comes from a process of its
own. The goal: no slope above 1, log-log. ``proxies`` measures the bias and deviation of readings from a sample of the
examples, and from few directions, on scikit-learn's digits and, with a file as for ``benchmarks/curvature.py``, on
CIFAR-10. Sections run alone are merged into the figures already in the folder.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from harness import machine, report, table
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from workloads import gradient_step, network, workload

import surefoot as sf
from surefoot.curvature import GaussNewton, Sharpness

BASE = {"examples": 1000, "width": 32, "depth": 3, "classes": 10}
SIZES: dict[str, list[int]] = {
    "examples": [500, 1000, 2000, 4000],
    "width": [16, 32, 64, 128],
    "depth": [2, 4, 8, 16],
    "classes": [10, 40, 160, 640],
}
KINDS = ("dense", "convolutions")
_SIDE, _FEATURES = 8, 192


def made(kind: str, width: int, depth: int, classes: int) -> nn.Module:
    """A network of ``depth`` layers before its head, for inputs of 192 numbers, or of 3 × 8 × 8."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    if kind == "dense":
        for layer in range(depth):
            layers += [nn.Linear(width if layer else _FEATURES, width), nn.Tanh()]
        return nn.Sequential(*layers, nn.Linear(width, classes))
    for layer in range(depth):
        layers += [nn.Conv2d(width if layer else 3, width, 3, padding=1), nn.Tanh()]
    return nn.Sequential(*layers, nn.AvgPool2d(_SIDE), nn.Flatten(), nn.Linear(width, classes))


def examples(kind: str, n: int, classes: int) -> tuple[Tensor, Tensor]:
    """Inputs with a spectrum that falls as that of images does."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(n, _FEATURES, generator=random) / (1 + torch.arange(_FEATURES))
    y = torch.randint(0, classes, (n,), generator=random)
    return (x if kind == "dense" else x.view(n, 3, _SIDE, _SIDE)), y


def forward_flops(kind: str, width: int, depth: int, classes: int) -> tuple[float, float]:
    """FLOPs of one example's forward pass, and the first layer's share of them."""
    places = 1 if kind == "dense" else 9 * _SIDE**2
    first = (_FEATURES if kind == "dense" else 3) * width * places
    total = first + (depth - 1) * width**2 * places + width * classes
    return 2.0 * total, first / total


def expected_flops(kind: str, size: dict[str, int], products: int) -> float:
    """The cost model of docs/SCALE.md: FLOPs of a warm reading with so many products."""
    forward, share = forward_flops(kind, size["width"], size["depth"], size["classes"])
    if kind == "dense":  # the first layer is seen through r of its f inputs once its output is known
        small = share * min(100, _FEATURES) / _FEATURES
        graph, product = 1 + 2 * (1 - share) + 2 * small, 4 * (1 - share) + 2 * small
    else:
        graph, product = 1.0, 5 - 2 * share
    return size["examples"] * forward * (1.25 + graph + products * product)  # a quarter more for the test part


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def readings(tracker: sf.Tracker, model: nn.Module, x: Tensor, y: Tensor, repeats: int) -> list[float]:
    """Seconds of warm readings, ten small steps apart."""
    times = []
    for turn in range(repeats + 1):
        for _ in range(10):
            gradient_step(model, x[:256], y[:256], 0.02)
        start = time.perf_counter()
        tracker.step(turn)
        if turn:
            times.append(time.perf_counter() - start)
    return times


def one(kind: str, size: dict[str, int], repeats: int) -> dict[str, Any]:
    """Time, memory and FLOPs of a reading at one size, in this process."""
    torch.set_num_threads(1)
    small = examples(kind, 64, size["classes"])
    with sf.Tracker(made(kind, 4, 1, size["classes"]), small, small, every=1):
        pass  # what is loaded at the first reading belongs to no size
    x, y = examples(kind, size["examples"], size["classes"])
    model = made(kind, size["width"], size["depth"], size["classes"])
    before = peak()
    test = x[: len(x) // 4], y[: len(y) // 4]
    with sf.Tracker(model, (x, y), test, every=1) as tracker:
        times = readings(tracker, model, x, y, repeats)
        grown = peak() - before
        gradient_step(model, x[:256], y[:256], 0.02)
        with _products() as products, FlopCounterMode(display=False) as counter:
            tracker.step(repeats + 1)
    flops, expected = float(counter.get_total_flops()), expected_flops(kind, size, products[0])
    found = {"seconds": statistics.median(times), "peak_mb": grown, "flops": flops, "expected": expected}
    return {**size, **found, "parameters": sum(p.numel() for p in model.parameters()), "products": products[0]}


class _products:  # noqa: N801
    """Counts the products of readings inside the block."""

    def __enter__(self) -> list[int]:
        self._read, found = Sharpness.read, [0]

        def read(reader: Sharpness, *a: Any, **k: Any) -> Any:
            reading = self._read(reader, *a, **k)
            found[0] += reading.matvecs
            return reading

        Sharpness.read = read  # type: ignore[method-assign]
        return found

    def __exit__(self, *_: object) -> None:
        Sharpness.read = self._read  # type: ignore[method-assign]


def alone(order: dict[str, Any]) -> dict[str, Any]:
    """``one`` in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def growth(quick: bool) -> dict[str, Any]:
    """Each axis by itself, for both kinds of network."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        for axis, sizes in SIZES.items():
            chosen = sizes[:2] if quick else sizes
            base = {**BASE, "examples": 200} if quick else BASE
            runs = [alone({"kind": kind, "size": {**base, axis: n}, "repeats": 1 if quick else 5}) for n in chosen]
            found[f"{kind}, {axis}"] = runs
    return found


def slope(across: list[float], values: list[float]) -> float:
    return float(np.polyfit(np.log(across), np.log(values), 1)[0])


def rank(place: int, count: int, kind: str, size: dict[str, int], repeats: int, folder: str) -> None:
    """One of several ranks that share a reading; counts what it sends."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=place, world_size=count)
    calls = {"all_reduce": [0, 0], "all_gather": [0, 0], "broadcast": [0, 0]}
    for name, counted in calls.items():
        setattr(dist, name, _counting(getattr(dist, name), counted))
    x, y = examples(kind, size["examples"], size["classes"])
    model = made(kind, size["width"], size["depth"], size["classes"])
    own = slice(len(x) * place // count, len(x) * (place + 1) // count)
    part = x[own], y[own]
    test = part[0][: len(part[0]) // 4], part[1][: len(part[1]) // 4]
    with sf.Tracker(model, part, test, every=1, ranks=True) as tracker:
        cpu = time.process_time()
        times = readings(tracker, model, x, y, repeats)
        cpu = time.process_time() - cpu
        before = json.loads(json.dumps(calls))
        with _products() as products:
            tracker.step(repeats + 1)
    moved = {name: [now - then for now, then in zip(calls[name], before[name], strict=True)] for name in calls}
    found = {"seconds": statistics.median(times), "cpu": cpu, "collectives": moved, "products": products[0]}
    Path(folder, f"{place}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def _counting(call: Callable[..., Any], counted: list[int]) -> Callable[..., Any]:
    def counting(*arguments: Any, **options: Any) -> Any:
        sent = next(each for each in reversed(arguments) if isinstance(each, Tensor))
        counted[0] += 1
        counted[1] += sent.numel() * sent.element_size()
        return call(*arguments, **options)

    return counting


def over_ranks(quick: bool) -> dict[str, Any]:
    """The same reading shared by more and more ranks."""
    found: dict[str, Any] = {}
    size = {**BASE, "examples": 400 if quick else 8000}
    for kind in KINDS:
        runs = []
        for count in (1, 2) if quick else (1, 2, 4):
            with tempfile.TemporaryDirectory() as folder:
                arguments = (count, kind, size, 1 if quick else 5, folder)
                torch.multiprocessing.spawn(rank, args=arguments, nprocs=count)  # type: ignore[no-untyped-call]
                ranks = [json.loads(Path(folder, f"{place}.json").read_text()) for place in range(count)]
            runs.append({"ranks": count, **ranks[0], "seconds": max(each["seconds"] for each in ranks)})
        parameters = sum(p.numel() for p in made(kind, size["width"], size["depth"], size["classes"]).parameters())
        found[kind] = {"runs": runs, "size": size, "parameters": parameters}
    return found


def proxies(data: Path | None, quick: bool) -> dict[str, Any]:
    """Readings from samples and from few directions against the whole matrix, at two moments of a training."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = torch.tensor((digits.data - digits.data.mean(0)) / np.maximum(digits.data.std(0), 1e-3), dtype=torch.float32)
    sets = {"digits, MLP 64-100-100-10": (_mlp(64), x, torch.tensor(digits.target))}
    if data is not None:
        images, labels = workload(data)
        sets["CIFAR-10, MLP 3072-200-200-10"] = (network(int(labels.max()) + 1, 0), images, labels)
    return {name: _proxies_of(*given, quick) for name, given in sets.items()}


def _mlp(features: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(features, 100), nn.Tanh(), nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 10))


def _proxies_of(model: nn.Module, x: Tensor, y: Tensor, quick: bool) -> list[dict[str, Any]]:
    rows = []
    draws = 3 if quick else 30
    for steps in (0, 20 if quick else 400):
        for _ in range(steps):
            gradient_step(model, x, y, 0.05)
        exact = float(GaussNewton(model, x).top(1, 1e-4, max_products=80).values[0])
        for share in (0.02, 0.05, 0.1, 0.2, 0.5):
            size = max(8, round(share * len(x)))
            found = [_of_sample(model, x, size, seed) / exact - 1 for seed in range(draws)]
            deviation = statistics.stdev(found)
            spread = {"bias": statistics.mean(found), "deviation": deviation, "error": deviation / math.sqrt(draws)}
            rows.append({"step": steps, "proxy": "sample", "size": size, "exact": exact, **spread})
        for directions in (5, 20, 50, 100):
            value = Sharpness(model, x, directions=directions, max_products=60).read(tol=1e-4).value / exact - 1
            rows.append({"step": steps, "proxy": "directions", "size": directions, "exact": exact, "bias": value})
    return rows


def _of_sample(model: nn.Module, x: Tensor, size: int, seed: int) -> float:
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:size]
    return float(GaussNewton(model, x[chosen]).top(1, 1e-4, max_products=80).values[0])


def tables(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    parts = ["# Scale: how a reading grows\n", "Made by `python benchmarks/scale.py`, one thread a process."]
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n")
    if "growth" in found:
        parts += _growth_tables(found["growth"])
    if "ranks" in found:
        parts += _rank_tables(found["ranks"])
    if "proxies" in found:
        parts += _proxy_tables(found["proxies"])
    return "\n".join(parts)


def _growth_tables(found: dict[str, Any]) -> list[str]:
    parts, summary = [], []
    for name, runs in found.items():
        kind, axis = name.split(", ")
        # Of width and depth the right measure is the network's own work: the first layer costs little or much at any.
        deep = axis in ("width", "depth")
        works = [forward_flops(kind, run["width"], run["depth"], run["classes"])[0] for run in runs]
        across = works if deep else [float(run[axis]) for run in runs]
        slopes = [slope(across, [max(run[what], 1e-9) for run in runs]) for what in ("seconds", "flops")]
        # Below some megabytes memory is the allocator's affair.
        slopes.append(slope(across, [max(run["peak_mb"], 4.0) for run in runs]))
        summary.append([f"{name} (in work of a forward pass)" if deep else name, *(f"{each:.2f}" for each in slopes)])
        rows = [
            [
                f"{run[axis]:,}",
                f"{run['parameters']:,}",
                f"{1e3 * run['seconds']:.1f} ms",
                f"{run['peak_mb']:.0f} MB",
                run["products"],
                f"{run['flops'] / 1e9:.2f}",
                f"{run['flops'] / run['expected']:.2f}",
            ]
            for run in runs
        ]
        heads = [axis, "parameters", "reading", "memory", "products", "GFLOP", "over the cost model"]
        parts += [f"## {name[0].upper()}{name[1:]}\n", table(heads, rows), ""]
    heads = ["slope, log-log (goal: at most 1)", "time", "FLOPs", "memory"]
    note = (
        "Counts above 1: of a small dense network the first layer is most, and it is read through 100 of its 192 "
        "inputs; of a large one it is little. The cost model, linear in each layer's work, gives every count.\n"
    )
    return ["## Slopes\n", table(heads, summary), "", note, *parts]


def _rank_tables(found: dict[str, Any]) -> list[str]:
    parts = []
    for kind, each in found.items():
        size, rows = each["size"], []
        for run in each["runs"]:
            sums, gathers = run["collectives"]["all_reduce"], run["collectives"]["all_gather"]
            cells = [run["ranks"], f"{1e3 * run['seconds']:.1f} ms", run["products"]]
            rows.append([*cells, f"{sums[0]}: {sums[1] / 1e6:.2f} MB", f"{gathers[0]}: {gathers[1] / 1e6:.2f} MB"])
        parts.append(f"## Ranks: {kind}, {size['examples']:,} examples in all, {each['parameters']:,} parameters\n")
        heads = ["ranks", "reading", "products", "all-reduces: bytes of a rank", "all-gathers: bytes of a rank"]
        parts += [table(heads, rows), ""]
    return parts


def _proxy_tables(found: dict[str, Any]) -> list[str]:
    parts = []
    for name, rows in found.items():
        cells = [
            [
                row["step"],
                f"{row['size']:,} {'examples' if row['proxy'] == 'sample' else 'directions'}",
                f"{row['bias']:+.2%}" + (f" ± {row['error']:.2%}" if "error" in row else ""),
                f"{row['deviation']:.2%}" if "deviation" in row else "0",
            ]
            for row in rows
        ]
        parts += [f"## Proxies of λ_max: {name}\n", table(["step", "read", "bias", "deviation"], cells), ""]
    return parts


SECTIONS = ("growth", "ranks", "proxies")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help=".npz with x_train and y_train, for the proxies")
    parser.add_argument("--out", type=Path, help="folder for scale.md and scale.json")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(**json.loads(options.one))))
        return
    sections: dict[str, Callable[[], Any]] = {
        "growth": lambda: growth(options.quick),
        "ranks": lambda: over_ranks(options.quick),
        "proxies": lambda: proxies(options.data, options.quick),
    }
    found: dict[str, Any] = {"machine": machine()}
    before = options.out / "scale.json" if options.out else None
    if before is not None and before.exists():
        found |= {name: value for name, value in json.loads(before.read_text()).items() if name in SECTIONS}
    found |= {name: sections[name]() for name in SECTIONS if name in options.only}
    report(options.out, "scale", tables(found), found)


if __name__ == "__main__":
    main()
