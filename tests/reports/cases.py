"""Folders of runs as training writes them, made up in milliseconds, with hostile and damaged ones among them."""

import base64
import json

import numpy as np

from surefoot.runs.records import canonical, encode

HOSTILE = '</script><img src=x onerror="window.hurt=1">&amp;<b>%{x}</b>\u2028\u2029\\u003c@@DATA@@=1+1'


def reading(step, steps, lr, seed, bounds=True):
    """Numbers of one reading that rise and fall as real ones do."""
    t = step / steps
    noise = np.random.default_rng([seed, step]).normal(0, 0.01)
    found = {"step": step, "lr": lr, "threshold": 2 / lr, "sharpness": 1 + 30 * t * np.exp(-4 * t) + noise}
    for part, worse in (("train", 0.0), ("test", 0.1)):
        found |= {
            f"{part}.accuracy": min(1.0, 0.1 + 0.85 * t) - worse,
            f"{part}.nll": 2.3 * np.exp(-3 * t) + worse + 0.01,
            f"{part}.ece": 0.3 * t * np.exp(-3 * t) + worse * t + 0.01 + abs(noise),
            f"{part}.kce": 0.25 * t * np.exp(-3 * t) + 0.01,
            f"{part}.margin": 6 * t - 0.5,
            f"{part}.confidence": 0.1 + 0.89 * t,
            f"{part}.log_q": 1 - 5 * t,
        }
    found |= {
        "test.sharpness": 1 + 50 * t,
        "test.tce": 0.05 * t,
        "temperature": 1 + t,
        "batch_sharpness": found["sharpness"] * 1.3,
    }
    if bounds:
        found |= {"train.regime": "overlap", "train.theorems.holds": 12, "train.theorems.violated": 0}
        for name, left in (("ece", found["train.ece"]), ("sharpness", found["sharpness"])):
            found |= {f"train.bound.{name}.printed": 9 * left, f"train.bound.{name}.tight": 2 * left}
    return {name: float(value) if not isinstance(value, (int, str)) else value for name, value in found.items()}


def frame(step, steps, seed):
    """Histograms, reliability and tail of one reading."""
    t = step / steps
    found = {"step": step}
    random = np.random.default_rng([seed, step, 1])
    for part in ("train", "test"):
        counts = np.histogram(random.beta(1 + 4 * t, 1.2, 200), 15, (0, 1))[0]
        middle = (np.arange(15) + 0.5) / 15
        found |= {
            f"{part}.margin_histogram": {
                "low": -3.0,
                "high": 1.0 + 8 * t,
                "counts": np.histogram(random.normal(6 * t, 2, 200), 30)[0].tolist(),
            },
            f"{part}.confidence_histogram": np.histogram(random.beta(1 + 4 * t, 1.2, 200), 30, (0, 1))[0].tolist(),
            f"{part}.reliability": {
                "count": counts.tolist(),
                "confidence": [float(c) if n else float("nan") for c, n in zip(middle, counts, strict=True)],
                "accuracy": [float(c * 0.8) if n else float("nan") for c, n in zip(middle, counts, strict=True)],
            },
            f"{part}.tail": {
                "rows": [7, 3, 5],
                "margins": [-4.0, -2.0, -1.0],
                "shares": [0.6, 0.3, 0.05],
                "labels": [1, 2, 3],
                "predicted": [3, 2, 1],
                "confidence": [0.9, 0.8, 0.7],
            },
        }
    return found


def shift_numbers(seed, kinds=("fog", "motion_blur"), foreign=("svhn",), worse=0.0):
    """What a ``[shift]`` table adds to the final reading, at severities 1, 3 and 5."""
    found = {"shift.auroc": 0.7 + 0.01 * seed - worse}
    for start, share in (("shift", 1.0), ("shift.temperature", 0.6)):
        for severity in (0, 1, 3, 5):
            ece = share * (0.05 + 0.06 * severity) + 0.01 * seed + worse
            found |= {f"{start}.severity{severity}.{name}": value for name, value in read_as(ece)}
        found |= {f"{start}.{name}": value for name, value in read_as(share * 0.23 + 0.01 * seed + worse)}
    for place, kind in enumerate(kinds):
        found |= {f"shift.{kind}.{name}": value for name, value in read_as(0.2 + 0.1 * place + worse)}
    for name in foreign:
        found |= {f"ood.{name}.auroc": 0.8 + 0.01 * seed, f"ood.{name}.fpr95": 0.5, f"ood.{name}.energy.auroc": 0.9}
    return found


def read_as(ece):
    """A condition's measures, told apart by their size."""
    return ("ece", ece), ("accuracy", 1 - ece), ("nll", 3 * ece)


def spec(rule="sgd", lr=0.1, seed=0, steps=1000):
    """A spec as it is stored, in short."""
    return {
        "seed": seed,
        "data": {"name": "digits", "train": 300},
        "model": {"name": "mlp", "widths": [64]},
        "optimizer": {"name": rule, "lr": lr},
        "stop": {"steps": steps, "batch": 32},
    }


def write_run(
    place, rule="sgd", lr=0.1, seed=0, readings=20, outcome="finished", frames=True, bounds=True, images=True,
    shift=None,
):  # fmt: skip
    """A run's folder; ``shift`` joins the final reading."""
    place.mkdir(parents=True)
    steps = 1000
    (place / "spec.json").write_text(canonical(spec(rule, lr, seed, steps)))
    (place / "facts.json").write_text(canonical({"torch": "2", "machine": "x86_64", "data": {"train": 300}}))
    at = [round(steps * each / max(readings - 1, 1)) for each in range(readings)]
    lines = [reading(step, steps, lr, seed, bounds) for step in at]
    (place / "journal.jsonl").write_bytes(b"".join(encode(line) for line in lines))
    timings = [{"step": step, "time": 1e9 + 0.5 * step, "peak_mb": 1.0} for step in at]
    (place / "timings.jsonl").write_bytes(b"".join(encode(line) for line in timings))
    if frames:
        (place / "arrays.jsonl").write_bytes(b"".join(encode(frame(step, steps, seed)) for step in at))
    if images:
        pixels = {str(row): base64.b64encode(bytes([row * 30] * 64)).decode() for row in (7, 3, 5)}
        (place / "examples.json").write_text(canonical({"shape": [8, 8, 1], "train": pixels, "test": pixels}))
    if outcome is not None:
        final = lines[-1] | (shift or {})
        result = {"outcome": outcome, "step": steps, "final": final, "correlations": {"train.ece": 0.9}}
        (place / "result.json").write_text(canonical(result))
    return place


def hostile_folder(place):
    """Runs of every kind: well, diverged, unfinished, torn, harmed, absurd, with markup wherever text may be."""
    runs = place / "runs"
    for seed in (0, 1, 2):
        write_run(runs / f"{seed:016x}", "sgd", 0.1, seed, shift=shift_numbers(seed))
    write_run(runs / "sam", "sam", 0.05, outcome="diverged")
    write_run(runs / "open", "muon", 0.02, outcome=None)
    write_run(runs / "plain", "gd", 1.0, frames=False, bounds=False, images=False)
    torn = write_run(runs / "torn", "adamw", 0.003, outcome=None) / "journal.jsonl"
    torn.write_bytes(torn.read_bytes()[:-40])
    harmed = write_run(runs / "harmed", "adamw", 0.003) / "journal.jsonl"
    lines = harmed.read_bytes().splitlines(keepends=True)
    lines[8] = lines[8].replace(b"0", b"1", 1)
    harmed.write_bytes(b"".join(lines))
    nothing = write_run(runs / "nothing", "adamw", 0.003)
    (nothing / "spec.json").write_bytes(b"\xff{not json")
    (nothing / "journal.jsonl").write_bytes(b"")
    (nothing / "result.json").write_text("[1, 2]")
    (nothing / "arrays.jsonl").write_bytes(b"[" * 100_000)
    name = HOSTILE.replace(".", "")[:60]  # no kind and no set has a dot
    evil = write_run(runs / "evil", HOSTILE, 0.07, shift=shift_numbers(0, [name], [name], 0.1))
    table = json.loads((evil / "spec.json").read_text())
    table["data"]["name"] = table[HOSTILE] = HOSTILE
    (evil / "spec.json").write_text(canonical(table))
    (evil / "facts.json").write_text(canonical({HOSTILE: HOSTILE}))
    tracked = write_run(place / "mine", "none", 0.1, outcome=None)
    (tracked / "spec.json").unlink()
    return place
