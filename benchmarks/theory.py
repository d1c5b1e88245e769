"""What the theorems cost: per-example Jacobian norms of an MLP, and all certificates of one sample.

The MLP is that of Morosini et al. (2026).

``python benchmarks/theory.py --data FILE.npz [--out DIR] [--quick]``; the file as for ``benchmarks/curvature.py``.
Costs are in forward and backward passes of the whole set; the peer forms every Jacobian (`torch.func.jacrev`) and takes
its singular values, on as many examples as memory allows, scaled up.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import alternate, machine, milliseconds, report, table
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from workloads import gradient_step, network, workload

from surefoot.curvature import jacobian_norms
from surefoot.predictions import Predictions
from surefoot.theory.interpolating import interpolating
from surefoot.theory.lemmas import lemmas
from surefoot.theory.overlap import overlap
from surefoot.theory.sample import Curvature, Sample

PEER = 100  # 100 Jacobians of 10 × 656,810 numbers are 2.6 GB in float32


def by_jacrev(model: nn.Module, x: Tensor) -> Tensor:
    """(n,) norms from whole Jacobians."""
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def logits(w: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(model, w, (row[None],))[0]

    norms = []
    for part in x.split(20):
        parts = vmap(jacrev(logits), (None, 0))(weights, part)
        j = torch.cat([each.flatten(2) for each in parts.values()], 2)
        norms.append(torch.linalg.svdvals(j)[:, 0])
    return torch.cat(norms)


def statements(p: Predictions, norms: Any) -> int:
    """Every statement on a sample whose quantities are known."""
    sample = Sample(p, Curvature(1.0, 0.0, norms))
    return len([*lemmas(sample), *overlap(sample), *interpolating(sample)])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help=".npz with x_train and y_train")
    parser.add_argument("--out", type=Path, help="folder for theory.md and theory.json")
    parser.add_argument("--quick", action="store_true", help="few examples, to see that it runs")
    options = parser.parse_args()
    x, y = workload(options.data)
    if options.quick:
        x, y = x[:200], y[:200]
    model = network(10, 0)
    for _ in range(50):
        gradient_step(model, x, y, 0.05)
    few = x[: 20 if options.quick else PEER]
    norms = jacobian_norms(model, x).double().numpy()
    p = Predictions.of(model, x, y)
    seconds = alternate(
        {
            "pass": lambda: gradient_step(model, x, y, 0.0),
            "norms": lambda: jacobian_norms(model, x),
            "few": lambda: jacobian_norms(model, few),
            "statements": lambda: statements(p, norms),
        },
        1 if options.quick else 7,
    )
    seconds["jacrev"] = alternate({"jacrev": lambda: by_jacrev(model, few)}, 1)["jacrev"]
    theirs = by_jacrev(model, few).double().numpy()
    error = float(np.abs(jacobian_norms(model, few).double().numpy() / theirs - 1).max())
    scaled = seconds["jacrev"] * len(x) / len(few)
    found = {"machine": machine(), "seconds": seconds, "relative difference": error, "examples": len(x)}
    rows = [
        ["forward and backward pass", milliseconds(seconds["pass"]), "1"],
        ["Jacobian norms (goal 25)", milliseconds(seconds["norms"]), f"{seconds['norms'] / seconds['pass']:.1f}"],
        ["jacrev + svdvals, scaled up", milliseconds(scaled), f"{scaled / seconds['pass']:.0f}"],
        ["all statements on known quantities", milliseconds(seconds["statements"]),
         f"{seconds['statements'] / seconds['pass']:.2f}"],
    ]  # fmt: skip
    text = "\n".join(
        [
            "# Theory: what the theorems cost\n",
            "Made by `python benchmarks/theory.py --data cifar10_5k.npz`.",
            ", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n",
            table(["MLP 3072-200-200-10, 5,000 examples", "time", "passes"], rows),
            f"\nNorms against jacrev + svdvals on {len(few)} examples: largest relative difference {error:.1e}; "
            f"{scaled / seconds['norms']:.0f} times faster.\n",
        ]
    )
    report(options.out, "theory", text, found)


if __name__ == "__main__":
    main()
