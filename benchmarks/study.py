"""What a study costs beside its runs, and what its tables cost for a thousand runs.

``python benchmarks/study.py [--out DIR] [--quick]``. Scheduling: 40 short runs on digits by `sf.study` with two
workers, against the same runs by ``surefoot train``, one command after the other in each of two shells, and, harder,
against two plain processes that take twenty of them each without starting anew, in turns. Tables:
``surefoot table`` and ``status`` over folders of finished runs with 2,000 readings each, the same short record
repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from harness import alternate, machine, report, table

from surefoot.runs.records import canonical, encode
from surefoot.studies.folder import StudyFolder
from surefoot.studies.plan import DatasetIndex, Plan, make_plan
from surefoot.studies.spec import study_of

HAND = """
import json, sys
from surefoot.training.run import run
from surefoot.training.spec import spec_of
from pathlib import Path
for spec in json.loads(sys.stdin.read()):
    run(spec_of(spec), Path(sys.argv[1]))
"""
COMMANDS = """
import json, subprocess, sys
for seed in json.loads(sys.stdin.read()):
    command = [sys.executable, "-m", "surefoot", "train", f"{sys.argv[1]}/spec.toml", "--set", f"seed={seed}",
               "--out", f"{sys.argv[1]}/runs", "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
"""
STUDY = """
import json, sys
import surefoot as sf
sf.study(json.loads(sys.stdin.read()), sys.argv[1], workers=2)
"""
BASE = """
data = {{ name = "digits", train = 300, noisy = 0.2 }}
model = {{ name = "mlp", widths = [64, 64] }}
optimizer = {{ name = "sgd", lr = 0.05, momentum = 0.9 }}
stop = {{ steps = {steps}, batch = 32 }}
track = {{ every = {every} }}
"""


def every(steps: int) -> int:
    """Ten readings of a run."""
    return max(1, steps // 10)


def described(runs: int, steps: int) -> dict[str, Any]:
    """A study of ``runs`` seeds."""
    return {
        "name": "bench",
        "seeds": list(range(runs)),
        "limit": runs,
        "base": tomllib.loads(BASE.format(steps=steps, every=every(steps))),
        "axes": {"method": [{"name": "SGD"}]},
        "tables": [
            {"name": "ends", "kind": "summary", "metrics": ["test.ece"]},
            {"name": "coupling", "kind": "correlation"},
        ],
    }


def plan_of(study: dict[str, Any]) -> Plan:
    """The runs that it expands to."""
    return make_plan(study_of(study), None, DatasetIndex(None))


def scheduling(runs: int, steps: int, repeats: int) -> dict[str, float]:
    """Seconds of a study, and of its runs without one."""
    study = described(runs, steps)
    specs = [run.spec.resolved() for run in plan_of(study).runs]

    def fed(code: str, given: Any, place: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", code, place], stdin=subprocess.PIPE, text=True)
        assert process.stdin is not None
        process.stdin.write(json.dumps(given))
        process.stdin.close()
        return process

    def finish(*processes: subprocess.Popen[str]) -> None:
        for process in processes:
            if process.wait():
                raise SystemExit("a contestant failed")

    def by_hand() -> None:
        with tempfile.TemporaryDirectory() as place:
            finish(fed(HAND, specs[::2], place), fed(HAND, specs[1::2], place))

    def by_commands() -> None:
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "spec.toml").write_text(BASE.format(steps=steps, every=every(steps)))
            seeds = list(range(runs))
            finish(fed(COMMANDS, seeds[::2], place), fed(COMMANDS, seeds[1::2], place))

    def by_study() -> None:
        with tempfile.TemporaryDirectory() as place:
            finish(fed(STUDY, study, place))

    found = alternate({"plain processes": by_hand, "study": by_study}, repeats)
    return found | {"commands": alternate({"commands": by_commands}, 1)["commands"]}  # minutes each


def finished(place: Path, runs: int, readings: int) -> None:
    """A folder of finished runs with long journals."""
    plan = plan_of(described(runs, 2000))
    folder = StudyFolder(place)
    folder.begin(plan, None)
    lines = [
        {"step": step, "train.ece": 0.1 / (1 + step), "test.ece": 0.1, "train.kce": 0.1, "test.kce": 0.1,
         "sharpness": 30.0 / (1 + step)}
        for step in range(readings)
    ]  # fmt: skip
    journal = b"".join(encode(line) for line in lines)
    correlations = dict.fromkeys(("train.ece", "train.kce", "test.ece", "test.kce"), 0.5)
    result = {"outcome": "finished", "step": 2000, "final": lines[-1], "correlations": correlations}
    for run in plan.runs:
        assert run.id is not None
        target = folder.run(run.id)
        target.mkdir()
        (target / "spec.json").write_text(canonical(run.spec.resolved()))
        (target / "journal.jsonl").write_bytes(journal)
        (target / "result.json").write_text(canonical(result))


def cost(*arguments: str) -> tuple[float, float]:
    """Seconds and megabytes of one command."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "surefoot", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"surefoot {arguments[0]} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for study.md and study.json")
    parser.add_argument("--quick", action="store_true", help="few runs, to see that it runs")
    options = parser.parse_args()
    quick = options.quick
    seconds = scheduling(4 if quick else 40, 50 if quick else 1000, 1 if quick else 3)
    sizes = []
    for runs in (10, 20) if quick else (100, 300, 1000):
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            finished(place, runs, 100 if quick else 2000)
            sizes.append((runs, cost("table", str(place)), cost("status", str(place))))
    found = {"machine": machine(), "seconds": seconds, "sizes": sizes}
    rows = [[f"{n:,}", *(f"{s:.1f} s, {mb:.0f} MB" for s, mb in costs)] for n, *costs in sizes]
    text = "\n".join(
        [
            "# Studies: what they cost beside their runs\n",
            "Made by `python benchmarks/study.py`.",
            ", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n",  # type: ignore[attr-defined]
            f"40 short runs on two workers: {seconds['study']:.1f} s by a study, {seconds['commands']:.1f} s by "
            f"`surefoot train` in two shells: {seconds['study'] / seconds['commands']:.3f} (goal 1.02); "
            f"{seconds['plain processes']:.1f} s by two plain processes that start once and make twenty runs each: "
            f"{seconds['study'] / seconds['plain processes']:.3f}.\n",
            table(
                ["finished runs of 2,000 readings", "`surefoot table`", "`surefoot status` (goal 10 s, 500 MB)"], rows
            ),
            "",
        ]
    )
    report(options.out, "study", text, found)


if __name__ == "__main__":
    main()
