"""What our loop and tracker cost: against a hand-written torch loop, and tracked against untracked.

``python benchmarks/training.py --data FILE.npz [--out DIR] [--quick]``; the file as for ``benchmarks/curvature.py``.
Blocks of steps alternate; ratios are of medians.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import alternate, machine, milliseconds, report, table
from torch import Tensor, nn
from workloads import network, pictures, workload

import surefoot as sf
from surefoot.dataset import as_dataset
from surefoot.models.resnet import CifarResNet
from surefoot.training.loop import Batches, train


def by_hand(model: nn.Module, x: Tensor, y: Tensor, batch: int, steps: int) -> None:
    """The loop one would write: shuffled batches, SGD with momentum."""
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model.train()
    done = 0
    while done < steps:
        order = torch.randperm(len(x))
        for at in range(0, len(x) - batch + 1, batch):
            rows = slice(None) if batch == len(x) else order[at : at + batch]
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            opt.step()
            loss.item()  # whoever trains looks at the loss
            done += 1
            if done == steps:
                return


class Untracked:
    """In a tracker's place: reads nothing, not even at the end."""

    price = 0.0

    def count(self, gradients: int) -> None:
        """As of a tracker."""

    def advance(self, step: int, everything: bool = False) -> None:
        """As of a tracker."""


def ours(model: nn.Module, x: Tensor, y: Tensor, batch: int, steps: int, budget: float | None) -> float:
    """The same by our loop; the tracker's price in gradient steps."""
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    tracker: Any = Untracked()
    if budget is not None:
        groups = dict.fromkeys(("calibration", "margins", "curvature"), 1)
        part = x[: len(x) // 5], y[: len(x) // 5]
        tracker = sf.Tracker(model, (x, y), part, optimizer=opt, every=groups, budget=budget, batch_size=batch)
    objective = sf.losses.as_objective(sf.losses.CrossEntropy())
    data = as_dataset("train", (x, y))
    train(model, opt, objective, data, Batches(len(x), batch, 0), steps, lambda step: 1.0, tracker)
    return tracker.price


def compare(
    model: nn.Module, x: Tensor, y: Tensor, batch: int, steps: int, repeats: int, tracked: int, rounds: int = 2
) -> dict[str, Any]:
    """Seconds of a block of steps by hand and by our loop; of a longer one, ``rounds`` times, untracked and tracked."""
    fresh: Callable[[], nn.Module] = lambda: copy.deepcopy(model)  # noqa: E731
    plain = alternate(
        {
            "by hand": lambda: by_hand(fresh(), x, y, batch, steps),
            "ours": lambda: ours(fresh(), x, y, batch, steps, None),
        },
        repeats,
    )
    found: dict[str, Any] = {"steps": steps, "seconds": plain}
    if tracked:
        found["tracked steps"] = tracked
        found["tracked seconds"] = alternate(
            {
                "untracked": lambda: ours(fresh(), x, y, batch, tracked, None),
                "tracked": lambda: ours(fresh(), x, y, batch, tracked, 0.1),
            },
            rounds,
        )
    return found


def growth(x: Tensor, y: Tensor, steps: int) -> dict[str, float]:
    """Resident memory after a fifth of the steps and after all of them, readings every 50."""

    def resident() -> float:
        with open("/proc/self/status") as status:
            return float(next(line.split()[1] for line in status if line.startswith("VmRSS"))) / 1024

    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    small = as_dataset("small", (x[:500, :64].contiguous(), y[:500]))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    tracker = sf.Tracker(model, small, small, optimizer=opt, every=50)
    sizes = {}

    def after(step: int, loss: float, reading: dict[str, Any] | None) -> None:
        if step in (steps // 5, steps):
            sizes[f"after {step:,} steps"] = resident()

    objective = sf.losses.as_objective(sf.losses.CrossEntropy())
    train(model, opt, objective, small, Batches(500, 50, 0), steps, lambda step: 1.0, tracker, after=after)
    return sizes


def tables(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    parts = ["# Training: what the loop and the tracker cost\n"]
    parts.append("Made by `python benchmarks/training.py --data cifar10_5k.npz`.")
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n")
    rows = []
    for name, run in found["loops"].items():
        seconds, steps = run["seconds"], run["steps"]
        tracked = run.get("tracked seconds")
        ratio = "" if tracked is None else f"{tracked['tracked'] / tracked['untracked']:.2f}"
        hand = seconds["by hand"]
        rows.append([name, milliseconds(hand / steps), f"{seconds['ours'] / hand:.3f}", ratio])
    headings = ["", "a step by hand", "our loop (goal 1.05)", "tracked, budget 0.1, over untracked (goal 1.12)"]
    parts += [table(headings, rows), ""]
    sizes = ", ".join(f"{size:.0f} MB {when}" for when, size in found["growth"].items())
    parts.append(f"Resident memory with readings every 50 steps: {sizes}.\n")
    return "\n".join(parts)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help=".npz with x_train and y_train")
    parser.add_argument("--out", type=Path, help="folder for training.md and training.json")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that it runs")
    options = parser.parse_args()
    x, y = workload(options.data)
    images, labels = pictures(options.data, 1024)
    quick = options.quick
    repeats = 1 if quick else 7
    torch.manual_seed(0)
    found: dict[str, Any] = {"machine": machine()}
    found["loops"] = {
        "MLP 3072-200-200-10, batch 128": compare(
            network(10, 0), x, y, 128, 20 if quick else 117, repeats, 0 if quick else 3000
        ),
        "MLP 3072-200-200-10, full batch": compare(
            network(10, 0), x, y, len(x), 2 if quick else 10, repeats, 0 if quick else 200
        ),
        "ResNet-20, batch 128": compare(
            CifarResNet(20), images[:256], labels[:256], 128, 1 if quick else 2, 1 if quick else 41, 0 if quick else 360
        ),
    }
    found["growth"] = growth(x, y, 500 if quick else 5000)
    report(options.out, "training", tables(found), found)


if __name__ == "__main__":
    main()
