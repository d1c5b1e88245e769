"""Post-hoc calibrators: speed against peers, and the figures on a published network's predictions.

``python benchmarks/posthoc.py [--data resnet110_cifar10_logits.npz] [--out DIR] [--quick]``. The file holds val_logits,
val_labels, test_logits and test_labels of Kull et al. 2019's ResNet-110 on CIFAR-10. probmetrics is used where it is
installed. Every ratio is of medians of alternating runs in this process.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import alternate, machine, report, table
from torch.nn.functional import cross_entropy

from surefoot import Predictions, metrics
from surefoot.posthoc import Auto, Dirichlet, Isotonic, Temperature, build_calibrator, default_candidates

# For this network and data set, as printed: ECE and NLL by Kull et al. 2019; the Kolmogorov-Smirnov error of the top
# label by Gupta et al. 2021 (Table 1), who fitted these maps with the code of Kull et al.
PUBLISHED = {"none": (0.04750, 0.35827), "temperature": (0.01132, 0.20926)}
PUBLISHED_KS = {"none": 0.04750, "temperature": 0.00916, "vector": 0.00996, "matrix": 0.00977, "dirichlet": 0.01060}
JUDGES = ("accuracy", "ece", "classwise_ece", "nll", "brier")


def logits(n: int, k: int, temperature: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, k) float32 logits, too sure by the factor ``temperature``, and labels."""
    random = np.random.default_rng(seed)
    z, labels = np.empty((n, k), np.float32), np.empty(n, np.int64)
    for at in range(0, n, 1000):
        block = random.standard_normal((min(1000, n - at), k), dtype=np.float32) * 2
        block[:, :10] += 3 * random.standard_normal((len(block), 10), dtype=np.float32)
        labels[at : at + 1000] = (block + random.gumbel(size=block.shape)).argmax(1)
        z[at : at + 1000] = temperature * block
    return z, labels


def by_lbfgs(z: torch.Tensor, y: torch.Tensor, **options: Any) -> float:
    """Temperature by torch's LBFGS on T itself, from 1.5, as the well-known recipe has it."""
    temperature = torch.nn.Parameter(torch.ones(1) * 1.5)
    optimizer = torch.optim.LBFGS([temperature], **options)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(z / temperature, y)
        loss.backward()
        return loss

    optimizer.step(closure)
    return float(temperature.detach())


def by_probmetrics(z: torch.Tensor, y: torch.Tensor) -> float:
    from probmetrics.calibrators import get_calibrator
    from probmetrics.distributions import CategoricalLogits

    calibrator = get_calibrator("temp-scaling")
    calibrator.fit_torch(CategoricalLogits(z), y)
    return 1.0 / float(calibrator.invtemp_)


def temperature(n: int, k: int, repeats: int) -> dict[str, Any]:
    """Time, answer and NLL of each way to a temperature."""
    z, labels = logits(n, k, 2.0)
    tensors = torch.from_numpy(z), torch.from_numpy(labels)
    found: dict[str, Any] = {}
    fitted = Temperature()

    def ours() -> float:
        fitted.fit(Predictions(z, labels))
        return fitted.temperature_

    ways: dict[str, Callable[[], float]] = {
        "surefoot": ours,
        "LBFGS with a line search": lambda: by_lbfgs(*tensors, max_iter=100, line_search_fn="strong_wolfe"),
    }
    seconds = alternate(ways, repeats)
    ways["the usual recipe: LBFGS, rate 0.01, 50 iterations"] = lambda: by_lbfgs(*tensors, lr=0.01, max_iter=50)
    if importlib.util.find_spec("probmetrics"):
        ways["probmetrics"] = lambda: by_probmetrics(*tensors)
    for name, way in ways.items():
        begin = time.perf_counter()
        answer = way()
        took = seconds.get(name, time.perf_counter() - begin)
        nll = float(cross_entropy(tensors[0].double() / answer, tensors[1])) if np.isfinite(answer) else None
        found[name] = {"seconds": took, "temperature": answer, "nll": nll}
    one = alternate({"log_softmax": lambda: torch.log_softmax(tensors[0], 1)}, repeats)["log_softmax"]
    return {"n": n, "k": k, "ways": found, "passes": fitted.passes_, "log_softmax": one}


def large(quick: bool) -> dict[str, dict[str, float]]:
    """Seconds, and seconds of processor time, of the costly calibrators."""
    found = {}
    scale = 10 if quick else 1
    for name, calibrator, n, k in (
        ("Dirichlet, l2=0.1", Dirichlet(l2=0.1), 10_000 // scale, 100),
        ("Dirichlet, l2 chosen over 3 folds", Dirichlet(), 10_000 // scale, 100),
        ("Auto, nested", Auto(), 5_000 // scale, 10),
        ("isotonic, one against the rest", Isotonic(), 20_000 // scale, 1000 // scale),
    ):
        p = Predictions(*logits(n, k, 2.0))
        begin, used = time.perf_counter(), time.process_time()
        calibrator.fit(p)
        middle, used = time.perf_counter(), time.process_time() - used
        calibrator.apply(p)
        took = {"fit": middle - begin, "processor": used, "apply": time.perf_counter() - middle}
        found[f"{name}; {n:,} × {k}"] = took
    return found


def judged(p: Predictions) -> dict[str, float]:
    """The metrics of the table; ``ks`` is the largest gap between running means of confidence and of correctness."""
    order = np.argsort(p.confidence, kind="stable")
    ks = np.abs(np.cumsum(p.confidence[order] - p.correct[order])).max() / len(p)
    return {name: float(getattr(metrics, name)(p)) for name in JUDGES} | {"ks": float(ks)}


def reference(path: Path) -> dict[str, Any]:
    """Every calibrator, fitted on the validation set, judged on the test set."""
    val, test = Predictions.load(path, split="val"), Predictions.load(path, split="test")
    rows = {}
    for name in default_candidates():
        begin = time.perf_counter()
        fitted = build_calibrator(name).fit(val)
        took = time.perf_counter() - begin
        rows[name] = judged(fitted.apply(test)) | {"seconds": took}
        if name == "temperature":
            rows[name]["temperature"] = fitted.temperature_
    begin = time.perf_counter()
    auto = Auto().fit(val)
    took = time.perf_counter() - begin
    rows[f"auto: {auto.name_}"] = judged(auto.apply(test)) | {"seconds": took}
    return {"rows": rows, "estimate": auto.estimate_}


def tables(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    parts = ["# Post-hoc calibration\n"]
    parts.append("Made by `python benchmarks/posthoc.py --data resnet110_cifar10_logits.npz`.")
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n")
    t = found["temperature"]
    parts.append(f"## Temperature on {t['n']:,} × {t['k']:,} float32 logits\n")
    ours = t["ways"]["surefoot"]["seconds"]
    rows = [
        [name, f"{w['seconds']:.2f} s", f"{w['seconds'] / ours:.1f}×", f"{w['temperature']:.6f}",
         "" if w["nll"] is None else f"{w['nll']:.9f}"]
        for name, w in t["ways"].items()
    ]  # fmt: skip
    parts += [table(["", "time", "over ours", "T", "NLL"], rows), ""]
    parts.append(
        f"{t['passes']:.1f} passes over the logits (goal: at most 8), validation included in the time; one "
        f"torch.log_softmax of them takes {t['log_softmax']:.2f} s.\n"
    )
    parts.append("## Costly fits\n")
    rows = [[name, *(f"{s[part]:.2f} s" for part in s)] for name, s in found["large"].items()]
    parts += [table(["", "fit", "processor time of it", "apply"], rows), ""]
    if "reference" in found:
        parts.append("## ResNet-110 on CIFAR-10: fitted on 5,000, judged on 10,000\n")
        rows = []
        for name, r in found["reference"]["rows"].items():
            shown = PUBLISHED.get(name)
            said = [] if shown is None else [f"ECE {shown[0]:.5f}", f"NLL {shown[1]:.5f}"]
            said += [f"KS {PUBLISHED_KS[name]:.5f}"] if name in PUBLISHED_KS else []
            figures = [f"{r[m]:.5f}" for m in (*JUDGES, "ks")]
            rows.append([name, *figures, f"{r['seconds']:.2f} s", ", ".join(said)])
        parts += [table(["", "accuracy", "ECE", "classwise ECE", "NLL", "Brier", "KS", "fit", "published"], rows), ""]
        parts.append(
            "Published: ECE and NLL by Kull et al. 2019; the Kolmogorov-Smirnov error of the top label by Gupta et al. "
            "2021, Table 1, with the code of Kull et al., which chooses penalties otherwise.\n"
        )
        r = found["reference"]
        parts.append(f"Temperature {r['rows']['temperature']['temperature']:.4f} (published 2.395).\n")
    return "\n".join(parts)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help=".npz with val_logits, val_labels, test_logits, test_labels")
    parser.add_argument("--out", type=Path, help="folder for posthoc.md and posthoc.json")
    parser.add_argument("--quick", action="store_true", help="a tenth of every size, to see that it runs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    quick = options.quick
    found: dict[str, Any] = {"machine": machine()}
    found["temperature"] = temperature(10**4 if quick else 10**5, 100 if quick else 1000, 2 if quick else 3)
    found["large"] = large(quick)
    if options.data:
        found["reference"] = reference(options.data)
    report(options.out, "posthoc", tables(found), found)


if __name__ == "__main__":
    main()
