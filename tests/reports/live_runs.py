"""Folders of runs as training writes them, without training; and a look at everything in a folder."""

import json

from surefoot.runs.records import canonical, encode


def begin(place, steps=1000, stop=None, rule="sgd", seed=0):
    """A run that has begun."""
    place.mkdir(parents=True)
    spec = {"optimizer": {"name": rule, "lr": 0.1}, "seed": seed, "stop": stop or {"steps": steps, "batch": 10}}
    (place / "spec.json").write_text(canonical(spec) + "\n")
    (place / "facts.json").write_text(json.dumps({"data": {"train": 205}}))
    return place


def reading(step):
    """A record of a journal."""
    return {"step": step, "train.ece": 0.1, "test.ece": 0.2, "test.accuracy": 0.5, "sharpness": 3.0 + step, "lr": 0.1}


def grow(place, *steps, start=1.7e9, pace=2.0):
    """More readings, ``pace`` seconds a step apart."""
    with (place / "journal.jsonl").open("ab") as journal, (place / "timings.jsonl").open("ab") as timings:
        for step in steps:
            journal.write(encode(reading(step)))
            timings.write(encode({"step": step, "time": start + pace * step, "peak_mb": 1.0}))


def end(place, step, outcome="finished"):
    """The run's result."""
    result = {"outcome": outcome, "step": step, "final": reading(step), "correlations": {}}
    (place / "result.json").write_text(canonical(result) + "\n")


def everything(folder):
    """All that a folder holds, with times of change; what only reads leaves it as it is."""
    paths = sorted([folder, *folder.rglob("*")])
    return [
        (str(path), path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in paths
    ]  # fmt: skip
