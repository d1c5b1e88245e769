"""A sharpness reading in units of a full-batch gradient step, along a run at the edge of stability.

``python benchmarks/curvature.py --data FILE.npz [--out DIR] [--quick]``. The file holds ``x_train`` (n, 32, 32, 3)
uint8 and ``y_train`` (n,): the first 5,000 images of CIFAR-10 are paper A's workload. The network is its
3072-200-200-10 tanh MLP, trained by gradient descent with step 2/30, a reading every ten steps. The peer is used
where it is installed: curvlinops (without its torchvision dependency) with scipy's ``eigsh``.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import alternate, machine, table, write
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

from surefoot.curvature import GaussNewton, Hessian, Sharpness


def workload(path: Path) -> tuple[Tensor, Tensor]:
    """5,000 flattened images, each feature centred and scaled (Cohen et al. 2021), and labels."""
    with np.load(path) as file:
        images, labels = file["x_train"][:5000], file["y_train"][:5000]
    x = images.transpose(0, 3, 1, 2).reshape(len(images), -1).astype(np.float64)
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-12)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(labels).long()


def network(classes: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3072, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, classes))


def gradient_step(model: nn.Module, x: Tensor, y: Tensor, rate: float) -> None:
    nn.functional.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= rate * p.grad
            p.grad = None


def by_eigsh(product: Any, dim: int, **options: Any) -> float:
    """The largest eigenvalue by scipy, from float32 products."""
    operator = LinearOperator((dim, dim), matvec=product, dtype=np.float32)
    return float(eigsh(operator, k=1, which="LA", return_eigenvectors=False, **options)[0])


def reference(model: nn.Module, x: Tensor) -> float:
    operator = GaussNewton(model, x)
    return by_eigsh(lambda v: operator.matvec(torch.from_numpy(v).reshape(-1)).numpy(), operator.dim, tol=1e-6, ncv=30)


def curvlinops_reading(model: nn.Module, x: Tensor, y: Tensor, **options: Any) -> float:
    """As its documentation does it: a new operator for each reading, handed to eigsh."""
    from curvlinops import GGNLinearOperator

    params = list(model.parameters())
    made = GGNLinearOperator(model, nn.CrossEntropyLoss(), params, [(x, y)])
    operator = made.to_scipy()
    return float(eigsh(operator, k=1, which="LA", return_eigenvectors=False, **options)[0])


def products(model: nn.Module, x: Tensor, y: Tensor, repeats: int) -> dict[str, float]:
    """Median seconds of a gradient step and of one product with each matrix, graphs built before."""
    gauss, hessian = GaussNewton(model, x), Hessian(model, x, y)
    v = torch.randn(gauss.dim, generator=torch.Generator().manual_seed(0))
    contestants = {
        "gradient step": lambda: gradient_step(model, x, y, 0.0),
        "Gauss-Newton product": lambda: gauss.matvec(v),
        "Hessian product": lambda: hessian.matvec(v),
    }
    return alternate(contestants, repeats)


def trajectory(x: Tensor, y: Tensor, seed: int, steps: int, check_every: int, peers_every: int) -> dict[str, Any]:
    """Readings every ten steps of gradient descent at step size 2/30: costs in gradient steps, errors, peers."""
    classes = int(y.max()) + 1
    model = network(classes, seed)
    start = time.perf_counter()
    reader = Sharpness(model, x)
    set_up = time.perf_counter() - start
    has_curvlinops = importlib.util.find_spec("curvlinops") is not None
    seconds: dict[str, list[float]] = {}
    errors, bounds, matvecs, values = [], [], [], []

    def timed(name: str, run: Any) -> Any:
        begin = time.perf_counter()
        result = run()
        seconds.setdefault(name, []).append(time.perf_counter() - begin)
        return result

    for step in range(steps + 1):
        if step % 10 == 0:
            index = step // 10
            # Plain and verified readings take turns, so that both are warm-started from ten steps before.
            verify = index % 2 == 1
            reading = timed(
                "verified reading" if verify else "reading", lambda verify=verify: reader.read(verify=verify)
            )
            matvecs.append(reading.matvecs)
            values.append(reading.value)
            if verify:
                bounds.append(reading.residual / reading.value)
            if index % check_every == 0:
                errors.append(abs(reading.value / reference(model, x) - 1))
            if has_curvlinops and index % peers_every == 0:
                timed("curvlinops + eigsh", lambda: curvlinops_reading(model, x, y))
                timed("curvlinops + eigsh, ncv=8, tol=1e-2", lambda: curvlinops_reading(model, x, y, ncv=8, tol=1e-2))
        timed("gradient step", lambda: gradient_step(model, x, y, 2 / 30))
    return {
        "seed": seed,
        "steps": steps,
        "set-up seconds": set_up,
        "seconds": {name: statistics.median(found) for name, found in seconds.items()},
        "p90": {name: float(np.quantile(found, 0.9)) for name, found in seconds.items()},
        "matvecs": {"median": statistics.median(matvecs), "p90": float(np.quantile(matvecs, 0.9))},
        "errors": errors,
        "residuals of verified readings": bounds,
        "values": values,
    }


def tables(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    parts = ["# Curvature: what a sharpness reading costs\n"]
    parts.append("Made by `python benchmarks/curvature.py --data cifar10_5k.npz`. Unit: one full-batch gradient step.")
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n")
    step = found["products"]["gradient step"]
    rows = [[name, f"{seconds / step:.2f}"] for name, seconds in found["products"].items()]
    parts += ["## One product, n = 5,000, MLP 3072-200-200-10\n", table(["", "gradient steps"], rows), ""]
    for run in found["trajectories"]:
        unit = run["seconds"]["gradient step"]
        parts.append(
            f"## Readings every ten steps, gradient descent at 2/30, seed {run['seed']}, {run['steps']} steps\n"
        )
        rows = [[name, f"{s / unit:.2f}", f"{run['p90'][name] / unit:.2f}"] for name, s in run["seconds"].items()]
        parts += [table(["", "median", "p90"], rows), ""]
        errors = np.array(run["errors"])
        parts.append(
            f"Set-up once: {run['set-up seconds'] / unit:.1f}. Products with the compressed matrix: median "
            f"{run['matvecs']['median']}, p90 {run['matvecs']['p90']:.0f}. Error against `eigsh` on {len(errors)} "
            f"readings: median {np.median(errors):.1e}, largest {errors.max():.1e}, {np.mean(errors > 1e-2):.1%} above "
            f"1e-2. Residual bound of verified readings: median "
            f"{np.median(run['residuals of verified readings']):.1e} of the value.\n"
        )
    return "\n".join(parts)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help=".npz with x_train and y_train")
    parser.add_argument("--out", type=Path, help="folder for curvature.md and curvature.json")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that it runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    x, y = workload(options.data)
    steps = 60 if options.quick else 1000
    found = {
        "machine": machine(),
        "products": products(network(int(y.max()) + 1, 0), x, y, 3 if options.quick else 11),
        "trajectories": [trajectory(x, y, seed, steps, check_every=4, peers_every=25) for seed in options.seeds],
    }
    text = tables(found)
    print(text)
    if options.out:
        write(options.out, "curvature", text, found)


if __name__ == "__main__":
    main()
