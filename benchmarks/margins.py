"""Robust margins of the MLP of Morosini et al. (2026): what the bounds and the attack cost, and how far they are apart.

``python benchmarks/margins.py --data FILE.npz [--out DIR] [--quick]``; the file as for ``benchmarks/curvature.py``. The
3072-200-200-10 tanh MLP after 300 steps of SGD; ε = 2/255 of a pixel's range, in the units of the standardised inputs.
Costs are in forward passes of the same images; bounds are computed in float64, the forward pass in float32.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import alternate, machine, milliseconds, report, table
from torch import Tensor, nn
from workloads import gradient_step, network, workload

from surefoot.margins import certified, pgd

CROWN_IMAGES = 200  # full CROWN takes a pass for every unit, so its cost is measured on these and scaled up


def pixel_radius(path: Path, levels: float) -> Tensor:
    """(3072,) ``levels`` of 255 as each standardised feature has them."""
    with np.load(path) as file:
        images = file["x_train"][:5000]
    spread = images.transpose(0, 3, 1, 2).reshape(len(images), -1).astype(np.float64).std(0)
    return torch.tensor(levels / np.maximum(spread, 1e-12))


def trained(x: Tensor, y: Tensor, steps: int) -> nn.Module:
    model = network(10, 0)
    for _ in range(steps):
        rows = torch.randint(0, len(x), (128,))
        gradient_step(model, x[rows], y[rows], 0.05)
    return model


def costs(model: nn.Module, x: Tensor, y: Tensor, eps: Tensor, norm: Any, repeats: int) -> dict[str, float]:
    """Seconds for all images: a forward pass, each bound and the attack."""

    def forward() -> None:
        with torch.no_grad():
            model(x)

    contestants: dict[str, Callable[[], Any]] = {
        "forward": forward,
        "interval": lambda: certified(model, x, y, eps, norm, "interval"),
        "cheap": lambda: certified(model, x, y, eps, norm, "cheap"),
        "pgd": lambda: pgd(model, x, y, eps, norm),
    }
    found = alternate(contestants, repeats)
    few = x[:CROWN_IMAGES], y[:CROWN_IMAGES]
    crown = alternate({"crown": lambda: certified(model, *few, eps, norm, "crown")}, 1)["crown"]
    return {**found, "crown": crown * len(x) / len(few[0])}


def gaps(model: nn.Module, x: Tensor, y: Tensor, eps: Tensor, norm: Any) -> dict[str, Any]:
    """What the values say: how far apart they are, and how many margins are proved to be positive."""
    with torch.no_grad():
        accuracy = float((model(x).argmax(1) == y).float().mean())
    attack, clean = pgd(model, x, y, eps, norm), pgd(model, x, y, 0.0, norm)
    found: dict[str, Any] = {"accuracy": accuracy, "attack positive": float((attack > 0).double().mean())}
    found["median clean - attack"] = float((clean - attack).median())
    values = {bound: certified(model, x, y, eps, norm, bound) for bound in ("interval", "lipschitz", "cheap")}
    for bound, value in values.items():
        found[bound] = {
            "median attack - bound": float((attack - value).median()),
            "positive": float((value > 0).double().mean()),
        }
    found["cheap above interval"] = float((values["cheap"] > values["interval"]).double().mean())
    crown = certified(model, x[:CROWN_IMAGES], y[:CROWN_IMAGES], eps, norm, "crown")
    found["crown"] = {
        "images": len(crown),
        "median attack - bound": float((attack[: len(crown)] - crown).median()),
        "cheap on the same": float((attack - values["cheap"])[: len(crown)].median()),
        "positive": float((crown > 0).double().mean()),
    }
    return found


def tables(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    parts = ["# Robust margins: costs and gaps\n"]
    parts.append("Made by `python benchmarks/margins.py --data cifar10_5k.npz`.")
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n")
    for name, run in found["balls"].items():
        seconds, values = run["seconds"], run["values"]
        forward = seconds["forward"]
        parts.append(f"## {name}\n")
        parts.append(
            f"{found['images']:,} images; a forward pass {milliseconds(forward)}; right on "
            f"{100 * values['accuracy']:.1f} %, under attack on {100 * values['attack positive']:.1f} %; "
            f"the attack lowers the median margin by {values['median clean - attack']:.3g}.\n"
        )
        rows = []
        for bound in ("interval", "lipschitz", "cheap", "crown"):
            each = values[bound]
            passes = f"{seconds[bound] / forward:.1f}" if bound in seconds else ""
            gap, share = f"{each['median attack - bound']:.3g}", f"{100 * each['positive']:.1f} %"
            rows.append([bound, passes, gap, share])
        rows.append(["pgd, 10 steps", f"{seconds['pgd'] / forward:.1f}", "", ""])
        headings = ["", "forward passes (goal for cheap: 60)", "median attack − bound", "margins proved positive"]
        parts += [table(headings, rows), ""]
        parts.append(
            f"`cheap` is above `interval` on {100 * values['cheap above interval']:.1f} % of the images. `crown` on "
            f"{values['crown']['images']} images, its cost scaled up; `cheap` has a gap of "
            f"{values['crown']['cheap on the same']:.3g} on the same.\n"
        )
    return "\n".join(parts)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help=".npz with x_train and y_train")
    parser.add_argument("--out", type=Path, help="folder for margins.md and margins.json")
    parser.add_argument("--quick", action="store_true", help="few images, to see that it runs")
    options = parser.parse_args()
    x, y = workload(options.data)
    model = trained(x, y, 300)
    if options.quick:
        x, y = x[:500], y[:500]
    box = pixel_radius(options.data, 2.0)
    # The second is about half as long as the box has half-diagonals: 2/255 · √3072 = 0.43.
    balls: dict[str, tuple[Tensor, Any]] = {
        "∞-norm, 2/255 a pixel": (box, "inf"),
        "2-norm, 0.25 over the image": (pixel_radius(options.data, 0.25 * 255), 2),
    }
    found: dict[str, Any] = {"machine": machine(), "images": len(x), "balls": {}}
    for name, (eps, norm) in balls.items():
        found["balls"][name] = {
            "seconds": costs(model, x, y, eps, norm, 1 if options.quick else 5),
            "values": gaps(model, x, y, eps, norm),
        }
    report(options.out, "margins", tables(found), found)


if __name__ == "__main__":
    main()
