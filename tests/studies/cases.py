"""A small study, and what must be the same to the byte however it was run."""

import copy

STUDY = {
    "name": "small",
    "seeds": [0, 1, 2],
    "base": {
        "data": {"name": "digits", "train": 60, "val": 40, "test": 50, "noisy": 0.1},
        "model": {"name": "mlp", "widths": [8]},
        "stop": {"steps": 100, "batch": 20},
        "track": {"every": 10},
        "checkpoint": 10,
    },
    "axes": {
        "method": [
            {"name": "SGD", "optimizer": {"name": "sgd", "lr": 0.2}},
            {"name": "AdamW", "optimizer": {"name": "adamw", "lr": 0.01}},
        ]
    },
    "tables": [
        {"name": "ends", "metrics": ["test.accuracy", "test.ece", "max train.ece", "mean sharpness"]},
        {
            "name": "coupling",
            "kind": "correlation",
            "metrics": [
                "train.ece",
                "pearson test.nll sharpness",
                "spearman train.ece sharpness",
                "lag train.ece sharpness",
                "lag_steps train.ece sharpness",
            ],
            "paper": {"train.ece": {"SGD": ".84"}},
        },
        {"name": "hypotheses", "kind": "hypotheses", "baseline": "SGD"},
        {"name": "tests", "kind": "compare", "metrics": ["test.ece", "test.nll"]},
        {"name": "flips", "kind": "compare", "metrics": ["test.ece"], "test": "signs"},
    ],
}


def small(**changes):
    """A copy of the study with other top-level keys."""
    return copy.deepcopy(STUDY) | changes


def journals(out):
    """Of every run: its journal, its result and its spec."""
    names = ("journal.jsonl", "result.json", "spec.json")
    return {path.name: [(path / name).read_bytes() for name in names] for path in sorted((out / "runs").iterdir())}
