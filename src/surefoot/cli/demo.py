"""``surefoot demo``: the papers' phenomenon on the embedded digits, under seven optimizers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from surefoot.studies.plan import Plan

__all__ = ["demo"]

_SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
# name -> optimizer, batch size
_OPTIMIZERS: dict[str, tuple[dict[str, Any], int | str]] = {
    "GD": ({"name": "gd", "lr": 1.0}, "full"),
    "SGD": (_SGD, 32),
    "AdamW": ({"name": "adamw", "lr": 0.003}, 32),
    "Muon": ({"name": "muon", "lr": 0.02, "adamw_lr": 0.003}, 32),
    "SAM": ({"name": "sam", "rho": 0.2, "base": _SGD}, 32),
    "CSAM": ({"name": "csam", "rho": 0.2, "gamma": 1.0, "base": _SGD}, 32),
    "BulkSGD": ({"name": "bulk", "lr": 0.2, "k": 3, "refresh": 5}, 32),
}
_CHOSEN = (
    "300 of scikit-learn's digits, a fifth of their labels replaced by wrong ones, an MLP 64-64-64-10 with tanh: few\n"
    "and noisy enough that the network must grow sharp before it fits them. 60 readings over {steps:,} steps each."
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs, the figure and the page.")] = Path("demo"),
    steps: Annotated[int, typer.Option(help="Steps of each run.", min=10)] = 1500,
) -> None:
    """Train a small network on scikit-learn's digits under seven optimizers, and show calibration and sharpness."""
    import time

    from surefoot.cli.terminal import progress_bar, terminal
    from surefoot.reports.page import report
    from surefoot.reports.trajectory import save_trajectories
    from surefoot.runs.records import read_journal
    from surefoot.studies.folder import StudyFolder
    from surefoot.training.run import run

    plan = _plan(steps)
    StudyFolder(out).begin(plan, None)
    typer.echo(_CHOSEN.format(steps=steps) + "\n")
    start = time.perf_counter()
    runs: dict[str, list[dict[str, Any]]] = {}
    with progress_bar("training") as tick:
        for place, planned in enumerate(plan.runs):
            result = run(
                planned.spec,
                out / "runs",
                watch=lambda step, of, *_, at=place: tick(at * of + step, len(_OPTIMIZERS) * of),
            )
            runs[planned.shown["optimizer"]] = read_journal(result.folder / "journal.jsonl")[0]
    terminal().print(_table(runs))
    typer.echo(
        "r: Pearson's correlation of a calibration error with the sharpness (λ_max of the Gauss–Newton matrix) over\n"
        "the run. Near 1 on the training set: the calibration error is high exactly while the sharpness is high."
    )
    save_trajectories(runs, out / "trajectories.png")
    typer.echo(f"\n{len(runs)} runs in {time.perf_counter() - start:.0f} s. Curves: {out / 'trajectories.png'}")
    typer.echo(f"Report page: {report(out, out / 'page.html')}")
    typer.echo(
        "For your own models: surefoot train spec.toml, sf.Tracker in your loop, surefoot evaluate for predictions."
    )


def _plan(steps: int) -> Plan:
    from surefoot.studies.plan import DatasetIndex, make_plan
    from surefoot.studies.spec import study_of

    often = max(1, steps // 60)
    table = {
        "name": "demo",
        "seeds": [0],
        "base": {
            "data": {"name": "digits", "train": 300, "val": 300, "noisy": 0.2},
            "model": {"name": "mlp", "widths": [64, 64]},
            "stop": {"steps": steps},
            "track": {"every": often, "histograms": True, "bounds": 10 * often, "batch_sharpness": 15 * often},
        },
        "axes": {
            "optimizer": [
                {"name": name, "optimizer": optimizer, "stop": {"batch": batch}}
                for name, (optimizer, batch) in _OPTIMIZERS.items()
            ]
        },
    }
    return make_plan(study_of(table), None, DatasetIndex(None))


def _table(runs: dict[str, list[dict[str, Any]]]) -> Any:
    from rich.table import Table

    from surefoot.statistics import sharpness_correlations

    table = Table(box=None, pad_edge=False)
    headings = (
        "optimizer",
        "r train\nECE",
        "\nKCE",
        "r test\nECE",
        "\nKCE",
        "sharpness\npeak",
        "\nend",
        "test\naccuracy",
        "\nECE",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "optimizer" else "right", no_wrap=True)
    for name, readings in runs.items():
        last = readings[-1]
        peak = max(r["sharpness"] for r in readings)
        numbers = [*sharpness_correlations(readings).values(), peak, last["sharpness"], last["test.accuracy"]]
        table.add_row(name, *(f"{value:.2f}" for value in numbers), f"{last['test.ece']:.3f}")
    return table
