"""What a loss costs: forward and backward against torch's cross-entropy; a CalMO step against a cross-entropy step.

``python benchmarks/losses.py [--out DIR] [--quick]``. Every ratio is of medians of alternating runs in this process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import alternate, machine, milliseconds, report, table
from torch import Tensor
from torch.nn.functional import cross_entropy

import surefoot as sf
from surefoot.losses import Batch, as_objective
from surefoot.models.resnet import CifarResNet

LOSSES: dict[str, Callable[[], Any]] = {
    "CrossEntropy": sf.losses.CrossEntropy,
    "SquaredError": sf.losses.SquaredError,
    "LabelSmoothing": sf.losses.LabelSmoothing,
    "ConfidencePenalty": sf.losses.ConfidencePenalty,
    "Focal": sf.losses.Focal,
    "FLSD53": sf.losses.FLSD53,
    "DualFocal": sf.losses.DualFocal,
    "AdaFocal": sf.losses.AdaFocal,
    "MbLS": sf.losses.MbLS,
    "ACLS": sf.losses.ACLS,
    "MMCE": sf.losses.MMCE,
    "MDCA": sf.losses.MDCA,
    "CPC": sf.losses.CPC,
    "SoftECE": sf.losses.SoftECE,
}
SHAPES = ((128, 10), (128, 100), (4096, 1000))
# 4,096 × 999² / 2 differences: once is enough.
SLOW = {("CPC", (4096, 1000))}

OBJECTIVES: dict[str, Callable[[], Any]] = {
    "CE": lambda: as_objective(sf.losses.CrossEntropy()),
    "CalMO": lambda: sf.losses.CalMO(eps=0.1),
    "CalMO, Flat.": lambda: sf.losses.CalMO(robust=0.0),
    "CalMO, Rob.": lambda: sf.losses.CalMO(eps=0.1, smooth=0.0),
    "margin tail": lambda: sf.losses.MarginTail(eps=0.1),
    "MIT-L": sf.losses.MITL,
    "mixup": sf.losses.Mixup,
    "CRL": lambda: sf.losses.CRL(128),
    "BalCAL": lambda: sf.losses.BalCAL(10),
    "AR-AdaLS": lambda: sf.losses.ARAdaLS(128),
}


def once(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor) -> None:
    """Forward and backward."""
    logits.grad = None
    loss(logits, labels).backward()


def losses(shape: tuple[int, int], repeats: int) -> dict[str, float]:
    """Seconds of each loss at a shape, and of torch's cross-entropy."""
    n, k = shape
    logits = (3 * torch.randn(n, k)).requires_grad_()
    labels = torch.randint(0, k, (n,))
    contestants: dict[str, Callable[[], Any]] = {"torch": partial(once, cross_entropy, logits, labels)}
    contestants |= {name: partial(once, make(), logits, labels) for name, make in LOSSES.items()}
    slow = {name: contestants.pop(name) for name in LOSSES if (name, shape) in SLOW}
    return alternate(contestants, repeats) | alternate(slow, 1)


def stepper(objective: Any) -> Callable[[], Any]:
    """One step of SGD for a ResNet-20 on 128 random images."""
    torch.manual_seed(0)
    model = objective.wrap(CifarResNet(20)).train()
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x, y = torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))
    step = [0]

    def run() -> None:
        step[0] += 1
        opt.zero_grad()
        objective(model, Batch(x, y, torch.arange(128), step[0])).backward()
        opt.step()

    return run


def networks(repeats: int) -> dict[str, float]:
    """Seconds of a step of each objective."""
    contestants: dict[str, Callable[[], Any]] = {name: stepper(make()) for name, make in OBJECTIVES.items()}
    return alternate(contestants, repeats)


def text(found: dict[str, Any]) -> str:
    """The figures as a page."""
    facts = found["machine"]
    lines = [
        "# What losses cost",
        f"{facts['cpu']}, {found['threads']} thread(s), torch {facts['torch']}. "
        "Medians of alternating runs; ratios are to torch's cross-entropy, checks of the arguments included.\n",
    ]
    rows = []
    for name in ("torch", *LOSSES):
        row = [name]
        for shape in found["shapes"]:
            seconds = found["losses"][shape]
            ratio = f" ({seconds[name] / seconds['torch']:.2f})" if name in seconds else ""
            row.append(milliseconds(seconds[name]) + ratio if name in seconds else "—")
        rows.append(row)
    lines.append(table(["forward + backward", *(shape.replace("x", " × ") for shape in found["shapes"])], rows))
    if found["steps"]:
        lines.append("\nCPC compares all pairs of classes: at 1,000 of them it is timed once.\n")
        base = found["steps"]["CE"]
        rows = [[name, milliseconds(s), f"{s / base:.2f}"] for name, s in found["steps"].items()]
        lines.append(table(["a step, ResNet-20, batch 128", "time", "in steps of cross-entropy"], rows))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shapes = SHAPES[:2] if options.quick else SHAPES
    found: dict[str, Any] = {"machine": machine(), "threads": 1, "shapes": [f"{n}x{k}" for n, k in shapes]}
    found["losses"] = {f"{n}x{k}": losses((n, k), 3 if options.quick else 300 if n == 128 else 11) for n, k in shapes}
    found["steps"] = networks(1 if options.quick else 9)
    report(options.out, "losses", text(found), found)


if __name__ == "__main__":
    main()
