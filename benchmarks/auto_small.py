"""`Auto` on few validation rows: what the choice does to the NLL of fresh rows, on simulated problems.

``python benchmarks/auto_small.py [--problems N] [--rule auto|temperature|NAME] [--seed S] [--out DIR]``. Every problem
draws n (30 to 500) validation rows of k (2 to 10) classes, from logits that are distorted in one of eight ways, fits on
them and judges on 20,000 fresh rows. A gain is the NLL before minus the NLL after. Everything is drawn from the seed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine, report, table

from surefoot import Predictions, metrics
from surefoot.posthoc import Auto, build_calibrator

JUDGED = 20_000
WORSE = 0.005
DISTORTIONS = ("none", "hot", "cold", "shift", "stretch", "confused", "noise", "heavy")


def problem(seed: int) -> dict[str, Any]:
    """Validation and fresh predictions of one problem, and what they are."""
    random = np.random.default_rng([30, seed])
    n, k = int(np.exp(random.uniform(np.log(30), np.log(500)))), int(random.integers(2, 11))
    distortion = DISTORTIONS[seed % len(DISTORTIONS)]
    sharp, skew = random.uniform(1.0, 4.0), random.uniform(0.0, 1.5)
    prior = skew * random.normal(size=k)
    rows = n + JUDGED
    true = sharp * random.normal(size=(rows, k)) + prior
    labels = (true + random.gumbel(size=true.shape)).argmax(1)
    given = true
    if distortion == "hot":
        given = true * random.uniform(1.3, 4.0)
    elif distortion == "cold":
        given = true * random.uniform(0.25, 0.8)
    elif distortion == "shift":
        given = true + random.uniform(0.5, 2.0) * random.normal(size=k)
    elif distortion == "stretch":
        given = true * np.exp(0.4 * random.normal(size=k))
    elif distortion == "confused":
        given = true @ (np.eye(k) + random.uniform(0.1, 0.3) * random.normal(size=(k, k)))
    elif distortion == "noise":
        given = random.uniform(1.0, 3.0) * (true + sharp * random.uniform(0.2, 1.0) * random.normal(size=true.shape))
    elif distortion == "heavy":
        given = true * np.exp(0.5 * random.normal(size=(rows, 1))) * random.uniform(1.0, 3.0)
    return {
        "n": n, "k": k, "distortion": distortion,
        "val": Predictions(given[:n], labels[:n]), "test": Predictions(given[n:], labels[n:]),
    }  # fmt: skip


def outcome(seed: int, rule: str) -> dict[str, Any]:
    """The gain of one rule on one problem."""
    drawn = problem(seed)
    calibrator = Auto(nested=False) if rule == "auto" else build_calibrator(rule)
    begin = time.process_time()
    fitted = calibrator.fit(drawn["val"])
    took = time.process_time() - begin
    before, after = (float(metrics.nll(p)) for p in (drawn["test"], fitted.apply(drawn["test"])))
    name = getattr(fitted, "name_", rule)
    kept = {key: drawn[key] for key in ("n", "k", "distortion")}
    return {"seed": seed, **kept, "name": name, "before": before, "gain": before - after, "seconds": took}


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Share of problems that are worse, the worst of them, and mean gains."""
    gain = np.array([each["gain"] for each in found])
    rows = np.array([each["n"] for each in found])
    ok = gain >= -WORSE

    def mean(mask: np.ndarray) -> float | None:
        return float(gain[mask].mean()) if mask.any() else None

    return {
        "problems": len(found), "worse": float((~ok).mean()), "worst": float(gain.min()),
        "mean gain": mean(np.isfinite(gain)), "mean gain where not worse": mean(ok),
        "mean gain, n >= 250": mean((rows >= 250) & np.isfinite(gain)),
        "seconds": float(sum(each["seconds"] for each in found)),
    }  # fmt: skip


def main() -> None:
    """Simulate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0, help="number of the first problem")
    parser.add_argument("--rule", action="append", help="auto, or a calibrator; by default auto and temperature")
    parser.add_argument("--out", type=Path, help="folder for auto_small.md and auto_small.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rules = options.rule or ["auto", "temperature"]
    seeds = range(options.seed, options.seed + options.problems)
    found = {rule: [outcome(seed, rule) for seed in seeds] for rule in rules}
    summed = {rule: summary(each) for rule, each in found.items()}
    heads = list(summed[rules[0]])
    shown = [[rule, *(_shown(head, each[head]) for head in heads)] for rule, each in summed.items()]
    chosen: dict[str, int] = {}
    for each in found[rules[0]]:
        chosen[each["name"]] = chosen.get(each["name"], 0) + 1
    text = "\n".join([
        "# Auto on few rows\n",
        f"Made by `python benchmarks/auto_small.py --problems {options.problems} --seed {options.seed}`. n from 30 to "
        f"500, k from 2 to 10, judged on {JUDGED:,} fresh rows; worse: by more than {WORSE} nats. "
        "Goal: worse in at most 5 %, never by more than 0.2.\n",
        table(["rule", *heads], shown), "",
        f"Chosen by {rules[0]}: " + ", ".join(f"{name} {count}" for name, count in sorted(chosen.items())) + ".",
    ])  # fmt: skip
    report(options.out, "auto_small", text, {"machine": machine(), "summary": summed, "problems": found})


def _shown(head: str, value: Any) -> str:
    if value is None:
        return ""
    if head == "worse":
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:+.4f}" if head != "seconds" else f"{value:.0f}"


if __name__ == "__main__":
    main()
