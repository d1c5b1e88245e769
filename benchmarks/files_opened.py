"""How many source files a reader opens to follow one datum: those with a function that runs in the flow.

    python benchmarks/files_opened.py

Functions that run while a module is imported (decorators, tables) do not count, nor does generated code.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

SPEC = {
    "rule": {"name": "sgd", "lr": 0.1},  # the former spelling, which every version reads
    "data": {"name": "digits", "train": 60, "test": 50},
    "stop": {"steps": 4, "batch": 20},
    "track": {"every": 2, "histograms": True},
}


def evaluate(folder: Path) -> None:
    """``surefoot evaluate FILE``."""
    from surefoot.cli import app

    random = np.random.default_rng(0)
    np.savez(folder / "p.npz", logits=random.normal(size=(200, 3)), labels=random.integers(0, 3, 200))
    app(["evaluate", str(folder / "p.npz")], standalone_mode=False)


def tracker(folder: Path) -> None:
    """A tracker in a loop of one's own."""
    import torch

    import surefoot as sf

    model, x, y = torch.nn.Linear(4, 3), torch.randn(60, 4), torch.arange(60) % 3
    with sf.Tracker(model, train=(x, y), test=(x, y), every=5, out=folder / "run") as t:
        for step in range(10):
            t.step(step)


def train(folder: Path) -> None:
    """``sf.train``."""
    import surefoot as sf

    sf.train(SPEC, folder)


def study(folder: Path) -> None:
    """From a study to its page; the runs themselves are in worker processes."""
    import surefoot as sf

    table = {"name": "ends", "metrics": ["test.ece"], "rows": ["seed"]}
    sf.study({"name": "s", "seeds": [0, 1], "base": SPEC, "tables": [table]}, folder / "s")
    sf.report(folder / "s", folder / "page.html")


def csam(folder: Path) -> None:
    """One step of CSAM."""
    import torch

    import surefoot as sf

    model, x, y = torch.nn.Linear(4, 3), torch.randn(60, 4), torch.arange(60) % 3
    optimizer = sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.05, gamma=1.0)
    criterion = optimizer.outer(torch.nn.CrossEntropyLoss())

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)


FLOWS = {flow.__name__: flow for flow in (evaluate, tracker, train, study, csam)}


def count(name: str) -> list[str]:
    """The files of the package with a function that runs in the flow, in a process of its own."""
    files: set[str] = set()
    importing = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal importing
        if frame.f_code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not importing and "/surefoot/" in frame.f_code.co_filename:
            path = frame.f_code.co_filename.rpartition("/surefoot/")[2]
            files.update([path] if path.endswith(".py") else [])

    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(profile)
        FLOWS[name](Path(folder))
        sys.setprofile(None)
    return sorted(files)


def main() -> None:
    """Print the number of files of each flow."""
    if len(sys.argv) > 1:
        print(json.dumps(count(sys.argv[1])))
        return
    for name in FLOWS:
        command = [sys.executable, __file__, name]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        print(f"{name:10} {len(json.loads(output.splitlines()[-1]))}")


if __name__ == "__main__":
    main()
