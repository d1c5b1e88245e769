"""``surefoot status DIR``: the state of every run in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["status"]


def status(
    folder: Annotated[Path, typer.Argument(help="A folder of runs, a study, or one run.")],
    figure: Annotated[Path | None, typer.Option(help="Draw ECE and sharpness of each run: .png, .svg or .pdf.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """List the runs: optimizer, outcome or step, and the last reading; or draw their curves."""
    from rich.table import Table

    from surefoot.cli.terminal import terminal
    from surefoot.errors import BadInput
    from surefoot.runs.reader import overview, run_folders
    from surefoot.runs.records import canonical

    runs = overview(folder)
    if not runs:
        raise BadInput(f"there is no run in {str(folder)!r}; runs are made by surefoot train SPEC.toml --out DIR")
    if figure is not None:
        from surefoot.reports.runs import places, read_run
        from surefoot.reports.trajectory import save_trajectories
        from surefoot.runs.records import JOURNAL, read_journal

        methods = {place.folder: read_run(place).method for place in places(folder.resolve())}
        curves = {
            f"{methods.get(path, run['optimizer'])} {run['id'][:6]}": read_journal(path / JOURNAL)[0]
            for run, path in zip(runs, run_folders(folder), strict=True)
        }
        save_trajectories(curves, figure)
    if json_:
        typer.echo(canonical({"runs": runs}))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "optimizer", "seed", "outcome", "step", "test accuracy", "test ECE", "sharpness"):
        left = heading in ("run", "optimizer", "outcome")
        table.add_column(heading, justify="left" if left else "right", no_wrap=left)
    for run in runs:
        shown = [_number(run["last"].get(key)) for key in ("test.accuracy", "test.ece", "sharpness")]
        of = "" if run["steps"] is None else f"/{run['steps']:,}"
        table.add_row(run["id"], run["optimizer"], str(run["seed"]), run["outcome"], f"{run['step']:,}{of}", *shown)
    terminal().print(table)


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else ""
