"""What a step costs: two-pass rules in base steps, Muon against torch's, BulkSGD in gradient steps, memory in copies.

``python benchmarks/optim.py --data FILE.npz [--out DIR] [--quick]``; the file as for ``benchmarks/curvature.py``. Every
ratio is of medians of alternating runs in this process; memory is of a process of its own.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import alternate, machine, milliseconds, report, table
from torch import Tensor, nn
from torch.optim import Optimizer
from workloads import gradient_step, network, pictures, workload

import surefoot as sf
from surefoot.curvature import Sharpness
from surefoot.models.resnet import CifarResNet

RULES: dict[str, Callable[[Optimizer], Optimizer]] = {
    "SGD": lambda base: base,
    "SAM": sf.optim.SAM,
    "CSAM": sf.optim.CSAM,
    "ASAM": sf.optim.ASAM,
    "VASSO": sf.optim.VASSO,
}


def stepper(model: nn.Module, rule: str, x: Tensor, y: Tensor) -> Callable[[], Any]:
    """One step of the rule around SGD with momentum, closure included."""
    model = copy.deepcopy(model)
    opt = RULES[rule](torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
    loss_of: Any = nn.CrossEntropyLoss()
    if isinstance(opt, sf.optim.CSAM):
        loss_of = opt.outer(loss_of)

    def closure() -> Tensor:
        opt.zero_grad()
        loss: Tensor = loss_of(model(x), y)
        loss.backward()
        return loss

    return lambda: opt.step(closure)


def two_pass(model: nn.Module, x: Tensor, y: Tensor, repeats: int) -> dict[str, Any]:
    """Seconds of a step of each rule, and of one pass over the parameters (a copy of them)."""
    contestants = {rule: stepper(model, rule, x, y) for rule in RULES}
    parameters = [p.detach() for p in model.parameters()]
    room = [p.clone() for p in parameters]
    contestants["a copy of the parameters"] = lambda: torch._foreach_copy_(room, parameters)
    return {"n": len(x), "seconds": alternate(contestants, repeats)}


def muon(model: nn.Module, repeats: int) -> dict[str, Any]:
    """Seconds of a Muon step on given gradients, ours and torch's with AdamW beside it for what it refuses."""
    ours, theirs = copy.deepcopy(model), copy.deepcopy(model)
    random = torch.Generator().manual_seed(0)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        a.grad = torch.randn(a.shape, generator=random)
        b.grad = a.grad.clone()
    one = sf.optim.Muon(ours.named_parameters())
    matrices = [p for name, p in theirs.named_parameters() if one.routing[name] == "muon"]
    if any(p.ndim != 2 for p in matrices):
        raise SystemExit("torch.optim.Muon takes matrices only")
    others = [p for name, p in theirs.named_parameters() if one.routing[name] == "adamw"]
    two, three = torch.optim.Muon(matrices), torch.optim.AdamW(others, lr=3e-4)
    contestants = {"surefoot": one.step, "torch.optim.Muon": lambda: (two.step(), three.step())}
    return alternate(contestants, repeats)


def bulk(x: Tensor, y: Tensor, steps: int, k: int = 5) -> dict[str, Any]:
    """BulkSGD (batch 128, step 2/70), directions anew at every step: its cost in full-batch gradient steps."""
    model = network(int(y.max()) + 1, 0)
    opt = sf.optim.BulkSGD(model.parameters(), 2 / 70, Sharpness(model, x), k=k)
    random = torch.Generator().manual_seed(0)
    took, unit, captured = [], [], []
    for step in range(steps):
        rows = torch.randint(0, len(x), (128,), generator=random)
        opt.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        begin = time.perf_counter()
        opt.step()
        middle = time.perf_counter()
        opt.zero_grad()
        gradient_step(model, x, y, 0.0)
        if step:  # the first search starts from nothing
            took.append(middle - begin)
            unit.append(time.perf_counter() - middle)
            captured.append(opt.last["captured"])
    return {"k": k, "seconds": statistics.median(took), "unit": statistics.median(unit), "captured": captured}


_MEMORY = """
import json, sys, torch
from torch import nn
import surefoot as sf
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3072, 3000), nn.Tanh(), nn.Linear(3000, 3000), nn.Tanh(), nn.Linear(3000, 10))
x, y = torch.randn(4, 3072), torch.arange(4)
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
if sys.argv[1] != "SGD":
    opt = getattr(sf.optim, sys.argv[1])(opt)
criterion = opt.outer(nn.CrossEntropyLoss()) if sys.argv[1] == "CSAM" else nn.CrossEntropyLoss()
def closure():
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    return loss
for _ in range(3):
    opt.step(closure)
with open("/proc/self/status") as status:
    peak = 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(json.dumps({"peak": peak, "copy": 4 * sum(p.numel() for p in model.parameters())}))
"""


def memory() -> dict[str, Any]:
    """Peak memory of each rule, in copies of the parameters above SGD's; a process each."""
    found = {}
    for rule in RULES:
        done = subprocess.run([sys.executable, "-c", _MEMORY, rule], capture_output=True, text=True, check=True)
        found[rule] = json.loads(done.stdout)
    return {rule: (f["peak"] - found["SGD"]["peak"]) / f["copy"] for rule, f in found.items()}


def tables(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    parts = ["# Step rules: what a step costs\n"]
    parts.append("Made by `python benchmarks/optim.py --data cifar10_5k.npz`.")
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n")
    parts.append("## Two passes, in steps of SGD with momentum\n")
    parts.append("Allowed for SAM and CSAM: 2.05 base steps and three passes over the parameters.\n")
    headings = ["", *(rule for rule in RULES if rule != "SGD"), "allowed", "an SGD step"]
    rows = []
    for name, run in found["two passes"].items():
        seconds = run["seconds"]
        base = seconds["SGD"]
        allowed = 2.05 + 3 * seconds["a copy of the parameters"] / base
        ratios = [f"{seconds[rule] / base:.2f}" for rule in RULES if rule != "SGD"]
        rows.append([name, *ratios, f"{allowed:.2f}", milliseconds(base)])
    parts += [table(headings, rows), ""]
    parts.append("## Memory above SGD, in copies of the parameters (18 million, 4 examples)\n")
    parts += [table(list(found["memory"]), [[f"{copies:.2f}" for copies in found["memory"].values()]]), ""]
    parts.append("## A Muon step on the MLP 3072-200-200-10, gradients given\n")
    ours, theirs = found["muon"]["surefoot"], found["muon"]["torch.optim.Muon"]
    parts.append(f"{milliseconds(ours)}; torch.optim.Muon {milliseconds(theirs)}, {theirs / ours:.0f} times as long.\n")
    run = found["bulk"]
    parts.append(f"## BulkSGD, k = {run['k']}, directions anew at every step (MLP, n = 5,000)\n")
    parts.append(
        f"{run['seconds'] / run['unit']:.2f} full-batch gradient steps in the median over {len(run['captured'])} steps "
        f"(goal: at most 8); the sharp directions held {statistics.median(run['captured']):.2f} of the update.\n"
    )
    return "\n".join(parts)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help=".npz with x_train and y_train")
    parser.add_argument("--out", type=Path, help="folder for optim.md and optim.json")
    parser.add_argument("--quick", action="store_true", help="few repeats, to see that it runs")
    options = parser.parse_args()
    repeats = 3 if options.quick else 15
    x, y = workload(options.data)
    images, labels = pictures(options.data, 128)
    classes = int(y.max()) + 1
    torch.manual_seed(0)
    found: dict[str, Any] = {"machine": machine()}
    found["two passes"] = {
        "MLP 3072-200-200-10, 128 images": two_pass(network(classes, 0), x[:128], y[:128], 4 * repeats),
        "MLP 3072-200-200-10, 5,000 images": two_pass(network(classes, 0), x, y, repeats),
        "ResNet-20, 128 images": two_pass(CifarResNet(20, classes), images, labels, repeats),
    }
    found["memory"] = memory()
    found["muon"] = muon(network(classes, 0), repeats)
    found["bulk"] = bulk(x, y, 5 if options.quick else 100)
    report(options.out, "optim", tables(found), found)


if __name__ == "__main__":
    main()
