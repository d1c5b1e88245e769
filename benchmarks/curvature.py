"""A sharpness reading in units of a full-batch gradient step, along a run at the edge of stability.

``python benchmarks/curvature.py --data FILE.npz [--out DIR] [--only SECTION ...] [--quick]``. The file holds
``x_train`` (n, 32, 32, 3) uint8 and ``y_train`` (n,): the first 5,000 images of CIFAR-10 are the workload of Morosini
et al. (2026). The network is their 3072-200-200-10 tanh MLP, trained by gradient descent with step 2/30, a reading
every ten steps; and ResNet-20 on 512 images. Peers are used where they are installed: curvlinops (without its
torchvision dependency) with scipy's ``eigsh``, and hessian-eigenthings; PyHessian's power iteration is written out
here. Sections run alone are merged into the figures already in the folder.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import alternate, machine, report, table
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from workloads import gradient_step, network, pictures, workload

from surefoot.curvature import GaussNewton, Hessian, Sharpness
from surefoot.models.resnet import CifarResNet


def by_eigsh(product: Any, dim: int, **options: Any) -> float:
    """The largest eigenvalue by scipy, from float32 products."""
    operator = LinearOperator((dim, dim), matvec=product, dtype=np.float32)
    return float(eigsh(operator, k=1, which="LA", return_eigenvectors=False, **options)[0])


def reference(model: nn.Module, x: Tensor) -> float:
    """By scipy to the precision of float32 products (1e-8 asked of it costs products and changes no digit here)."""
    operator = GaussNewton(model, x)
    return by_eigsh(lambda v: operator.matvec(torch.from_numpy(v).reshape(-1)).numpy(), operator.dim, tol=1e-6, ncv=30)


def curvlinops_reading(model: nn.Module, x: Tensor, y: Tensor, **options: Any) -> float:
    """As its documentation does it: a new operator for each reading, handed to eigsh."""
    from curvlinops import GGNLinearOperator

    params = list(model.parameters())
    made = GGNLinearOperator(model, nn.CrossEntropyLoss(), params, [(x, y)])
    operator = made.to_scipy()
    return float(eigsh(operator, k=1, which="LA", return_eigenvectors=False, **options)[0])


def eigenthings_reading(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """hessian-eigenthings' Gauss-Newton operator and its Lanczos, to 1e-2."""
    import hessian_eigenthings as he

    loss = he.supervised_loss_of_output(nn.functional.cross_entropy)
    operator = he.GGNOperator(model, [(x, y)], he.supervised_forward, loss)
    found = he.lanczos(operator, k=1, max_iter=12, tol=1e-2, which="LA", seed=0)
    return float(found.eigenvalues[0])


def power_iteration(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """PyHessian's way: power iteration on the Hessian until the quotient changes by less than 1e-3, 100 at most."""
    params = list(model.parameters())
    gradient = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), params, create_graph=True)
    v = [torch.randn_like(p) for p in params]
    value = 0.0
    for _ in range(100):
        size = float(sum((w * w).sum() for w in v)) ** 0.5
        v = [w / size for w in v]
        image = torch.autograd.grad(gradient, params, v, retain_graph=True)
        before, value = value, float(sum((a * b).sum() for a, b in zip(image, v, strict=True)))
        if before and abs(value - before) / (abs(value) + 1e-6) < 1e-3:
            break
        v = list(image)
    return value


def peers() -> dict[str, Callable[..., float]]:
    """The other ways to read λ_max that are installed here, as functions of model, inputs and labels."""
    found: dict[str, Callable[..., float]] = {}
    if importlib.util.find_spec("curvlinops"):
        found["curvlinops + eigsh"] = curvlinops_reading
        found["curvlinops + eigsh, ncv=8, tol=1e-2"] = lambda *a: curvlinops_reading(*a, ncv=8, tol=1e-2)
    if importlib.util.find_spec("hessian_eigenthings"):
        found["hessian-eigenthings, 12 Lanczos steps"] = eigenthings_reading
    found["power iteration (PyHessian's loop, Hessian)"] = power_iteration
    return found


def flops(run: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def products(model: nn.Module, x: Tensor, y: Tensor, repeats: int) -> dict[str, Any]:
    """Median seconds and FLOPs of a gradient step and of one product with each matrix, graphs built before."""
    gauss, hessian = GaussNewton(model, x), Hessian(model, x, y)
    v = torch.randn(gauss.dim, generator=torch.Generator().manual_seed(0))
    contestants: dict[str, Callable[[], Any]] = {
        "gradient step": lambda: gradient_step(model, x, y, 0.0),
        "Gauss-Newton product": lambda: gauss.matvec(v),
        "Hessian product": lambda: hessian.matvec(v),
    }
    seconds = alternate(contestants, repeats)
    counted = {name: flops(run) for name, run in contestants.items()}
    reader = Sharpness(model, x)
    reader.read()
    for name, verify in (("cold and warm reading, same model", False), ("verified reading, same model", True)):
        counted[name] = flops(lambda verify=verify: reader.read(verify=verify))
    return {"n": len(x), "seconds": seconds, "flops": counted}


def trajectory(x: Tensor, y: Tensor, seed: int, steps: int, check_every: int, peers_every: int) -> dict[str, Any]:
    """Readings every ten steps of gradient descent at step size 2/30: costs in gradient steps, errors, peers."""
    classes = int(y.max()) + 1
    model = network(classes, seed)
    start = time.perf_counter()
    reader = Sharpness(model, x)
    set_up = time.perf_counter() - start
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
            if peers_every and index % peers_every == 0:
                for name, peer in peers().items():
                    timed(name, lambda peer=peer: peer(model, x, y))
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


def resnet(images: Tensor, y: Tensor, readings: int, seed: int, with_peers: bool) -> dict[str, Any]:
    """ResNet-20 on 512 images by gradient descent, a reading every ten steps, after twenty."""
    torch.manual_seed(seed)
    model = CifarResNet(20, int(y.max()) + 1)
    seconds: dict[str, list[float]] = {}
    errors, matvecs = [], []

    def timed(name: str, run: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = run()
        seconds.setdefault(name, []).append(time.perf_counter() - begin)
        return result

    reader = Sharpness(model, images)
    for reading in range(readings):
        for _ in range(10 if reading else 20):
            model.train()
            timed("gradient step", lambda: gradient_step(model, images, y, 0.05))
        model.eval()
        found = timed("reading (always verified)" if reading else "first reading", reader.read)
        matvecs.append(found.matvecs)
        exact = GaussNewton(model, images).top(1, 1e-4, max_products=40)
        errors.append(abs(found.value / float(exact.values[0]) - 1))
        if with_peers and reading == readings - 1:
            for name, peer in peers().items():
                timed(name, lambda peer=peer: peer(model, images, y))
    return {
        "n": len(images),
        "seconds": {name: statistics.median(found) for name, found in seconds.items()},
        "errors": errors,
        "matvecs": matvecs,
    }


def leading(x: Tensor, y: Tensor, steps: int, warm_up: int, seed: int, k: int = 5) -> dict[str, Any]:
    """Top-5 pairs at every step of SGD (batch 128, step 2/70) after a warm-up: cost, and energy Σ vᵀGv / Σ λ."""
    model = network(int(y.max()) + 1, seed)
    random = torch.Generator().manual_seed(seed)
    reader = Sharpness(model, x)
    times, energies, used = [], [], []
    unit = []
    for step in range(warm_up + steps):
        rows = torch.randint(0, len(x), (128,), generator=random)
        gradient_step(model, x[rows], y[rows], 2 / 70)
        if step < warm_up - 1:
            continue
        begin = time.perf_counter()
        found = reader.top(k, tol=5e-2, max_products=20 if step < warm_up else 10)
        took = time.perf_counter() - begin
        begin = time.perf_counter()
        gradient_step(model, x, y, 0.0)
        unit.append(time.perf_counter() - begin)
        if step < warm_up:
            continue
        times.append(took)
        used.append(found.matvecs)
        if step % 5 == 0:
            operator = GaussNewton(model, x)
            exact = operator.top(k, 1e-3, max_products=200)
            kept = torch.linalg.qr(found.vectors).Q
            energies.append(float((kept * operator.matmat(kept)).sum() / exact.values.sum()))
    return {
        "k": k,
        "seconds": statistics.median(times),
        "unit": statistics.median(unit),
        "energies": energies,
        "matvecs": used,
    }


def scaling(x: Tensor, y: Tensor, repeats: int) -> dict[str, Any]:
    """Seconds of a Gauss-Newton product and of a cold reading over four numbers of examples and of parameters."""
    found: dict[str, Any] = {"examples": [], "parameters": []}

    def cost(model: nn.Module, n: int) -> dict[str, Any]:
        operator = GaussNewton(model, x[:n])
        v = torch.randn(operator.dim, generator=torch.Generator().manual_seed(0))
        seconds = alternate({"product": lambda: operator.matvec(v)}, repeats)["product"]
        return {"n": n, "parameters": operator.dim, "seconds": seconds, "flops": flops(lambda: operator.matvec(v))}

    for n in (625, 1250, 2500, 5000):
        found["examples"].append(cost(network(10, 0), n))
    for width in (100, 200, 400, 800):
        found["parameters"].append(cost(network(10, 0, width), 2500))
    for name, key in (("examples", "n"), ("parameters", "parameters")):
        sizes = np.log([row[key] for row in found[name]])
        for what in ("seconds", "flops"):
            slope = np.polyfit(sizes, np.log([row[what] for row in found[name]]), 1)[0]
            found[f"slope of {what} in {name}"] = float(slope)
    return found


_MEMORY = """
import json, sys, torch
from torch import nn
from surefoot.curvature import GaussNewton
torch.manual_seed(0)
width, rows, chunk, keep = (int(a) for a in sys.argv[1:])
model = nn.Sequential(nn.Linear(3072, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 10))
x = torch.randn(rows, 3072)
size = 4 * sum(p.numel() for p in model.parameters())
small = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))
GaussNewton(small, torch.randn(9, 8)).top(1)  # libraries loaded, threads made
def peak():  # of this process alone: getrusage would count the parent's peak too
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
before = peak()
operator = GaussNewton(model, x, batch_size=chunk, memory=0)
found = operator.top(1, 1e-9, max_products=keep, max_basis=keep)
extra = peak() - before
activations = chunk * operator._problem.row_bytes(lambda f, _: f(operator._problem.tensors)) * 2
print(json.dumps({"parameters": size // 4, "kept": keep, "extra": extra, "copy": size, "chunk": activations}))
"""


def memory(keeps: tuple[int, ...] = (4, 8, 16)) -> list[dict[str, Any]]:
    """Peak memory of a search that keeps several vectors, in copies of the parameters; a process each."""
    found = []
    for keep in keeps:
        command = [sys.executable, "-c", _MEMORY, "3000", "400", "100", str(keep)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
    return found


def tables(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    parts = ["# Curvature: what a sharpness reading costs\n"]
    parts.append("Made by `python benchmarks/curvature.py --data cifar10_5k.npz`. Unit: one full-batch gradient step.")
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n")
    if "products" in found:
        seconds, counted = found["products"]["seconds"], found["products"]["flops"]
        step, work = seconds["gradient step"], counted["gradient step"]
        rows = [
            [name, f"{seconds[name] / step:.2f}" if name in seconds else "", f"{counted[name] / work:.2f}"]
            for name in counted
        ]
        parts += ["## One product, n = 5,000, MLP 3072-200-200-10\n"]
        parts += [table(["", "time", "FLOPs"], rows), f"\nA gradient step: {work / 1e9:.1f} GFLOP in {step:.3f} s.\n"]
    for run in found.get("trajectories", []):
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
    if "resnet" in found:
        run = found["resnet"]
        unit = run["seconds"]["gradient step"]
        parts.append(f"## ResNet-20, {run['n']} images, gradient descent at 0.05, readings every ten steps\n")
        parts += [table(["", "median"], [[name, f"{s / unit:.2f}"] for name, s in run["seconds"].items()]), ""]
        parts.append(
            f"Errors of the readings: {', '.join(f'{e:.0e}' for e in run['errors'])}; products: "
            f"{', '.join(str(m) for m in run['matvecs'])}. A gradient step takes {unit:.2f} s.\n"
        )
    if "leading" in found:
        run = found["leading"]
        parts.append(f"## Top {run['k']} eigenpairs at every step of SGD, warm (MLP, n = 5,000)\n")
        parts.append(
            f"{run['seconds'] / run['unit']:.2f} full-batch gradient steps in the median (goal: at most 8), "
            f"{statistics.median(run['matvecs'])} products with the compressed matrix; captured energy Σ vᵀGv / Σ λ on "
            f"{len(run['energies'])} steps: median {statistics.median(run['energies']):.4f}, least "
            f"{min(run['energies']):.4f} (goal: 0.97).\n"
        )
    if "scaling" in found:
        parts.append("## Growth\n")
        for name, key in (("examples", "n"), ("parameters", "parameters")):
            rows = [
                [f"{r[key]:,}", f"{1e3 * r['seconds']:.1f} ms", f"{r['flops'] / 1e9:.2f}"]
                for r in found["scaling"][name]
            ]
            slopes = [found["scaling"][f"slope of {what} in {name}"] for what in ("seconds", "flops")]
            parts += [table([name, "product", "GFLOP"], rows), ""]
            parts.append(f"Slope of time in {name}, log-log: {slopes[0]:.2f}; of FLOPs: {slopes[1]:.2f}.\n")
    if "memory" in found:
        rows = [
            [m["kept"], f"{m['extra'] / m['copy']:.1f}", f"{m['kept'] + 6 + m['chunk'] / m['copy']:.1f}"]
            for m in found["memory"]
        ]
        parts.append(f"## Memory of `top`, {found['memory'][0]['parameters']:,} parameters, in copies of them\n")
        parts += [table(["vectors kept", "peak", "allowed: kept + 6 + one chunk's activations"], rows), ""]
    return "\n".join(parts)


SECTIONS = ("products", "trajectories", "resnet", "leading", "scaling", "memory")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help=".npz with x_train and y_train")
    parser.add_argument("--out", type=Path, help="folder for curvature.md and curvature.json")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that it runs")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--check-every", type=int, default=4, help="readings between checks against eigsh")
    parser.add_argument("--no-peers", action="store_true", help="leave the peers out of the trajectories")
    options = parser.parse_args()
    x, y = workload(options.data)
    quick = options.quick
    steps = 60 if quick else 1000
    peers_every = 0 if options.no_peers else 25
    sections: dict[str, Callable[[], Any]] = {
        "products": lambda: products(network(int(y.max()) + 1, 0), x, y, 3 if quick else 11),
        "trajectories": lambda: [
            trajectory(x, y, seed, steps, options.check_every, peers_every) for seed in options.seeds
        ],
        "resnet": lambda: resnet(
            *pictures(options.data, 64 if quick else 512), 2 if quick else 6, 0, not (quick or options.no_peers)
        ),
        "leading": lambda: leading(x, y, 5 if quick else 100, 20 if quick else 400, 0),
        "scaling": lambda: scaling(x, y, 3 if quick else 9),
        "memory": memory,
    }
    found: dict[str, Any] = {"machine": machine()}
    before = options.out / "curvature.json" if options.out else None
    if before is not None and before.exists():
        found |= {name: value for name, value in json.loads(before.read_text()).items() if name in SECTIONS}
    found |= {name: sections[name]() for name in SECTIONS if name in options.only}
    report(options.out, "curvature", tables(found), found)


if __name__ == "__main__":
    main()
