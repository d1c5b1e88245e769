"""``surefoot study STUDY.toml``: a grid of runs; the same command again resumes the study."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from surefoot.studies.api import StudyResult
    from surefoot.studies.plan import Plan

__all__ = ["study"]


def study(
    spec: Annotated[Path, typer.Argument(help="The study's .toml file.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the study; named after it by default.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that run at once.", min=1)] = 1,
    ray: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster for the workers, or 'local' to start one.")
    ] = None,
    scale: Annotated[str | None, typer.Option(help="One of the study's scales.")] = None,
    only: Annotated[str | None, typer.Option(help="Only runs whose label contains this text.")] = None,
    others: Annotated[
        list[Path] | None,
        typer.Option("--reuse", help="Take runs that this other study has finished; may be repeated."),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also runs that failed before.")] = False,
    plugins: Annotated[
        list[str] | None,
        typer.Option("--plugin", help="Module, or .py file, that adds methods of yours; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the remaining runs and their cost; train nothing.")
    ] = False,
    data: Annotated[Path | None, typer.Option(envvar="SUREFOOT_DATA", help="Folder of data sets.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Run a study with workers that may die; finished runs are never run again. Run again to resume."""
    from surefoot.plugins import load_plugins
    from surefoot.studies.folder import default_folder
    from surefoot.studies.spec import read_study

    load_plugins(plugins or ())
    wanted = read_study(spec)
    name, _ = wanted.at_scale(scale)
    place = out or default_folder(wanted.name, name)
    if dry_run:
        _dry_run(wanted, scale, only, data, place, others or [], json_)
        return
    from surefoot.studies.api import study as run_study
    from surefoot.studies.show import Lines, Live

    show = Live() if sys.stderr.isatty() else Lines(lambda line: typer.echo(line, err=json_))
    options: dict[str, Any] = {"scale": scale, "only": only, "retry_failed": retry_failed, "ray": ray, "show": show}
    result = run_study(spec, place, workers, data, others=others or (), plugins=plugins or (), **options)
    _json(result) if json_ else _say(result, bool(wanted.tables_at(name)))
    code = 130 if result.outcome == "interrupted" else 1 if result.count("failed") or result.reason else 0
    raise typer.Exit(code)


def _say(result: StudyResult, has_tables: bool) -> None:
    from surefoot.errors import BadInput
    from surefoot.studies.render import render
    from surefoot.studies.show import sentence
    from surefoot.text import plain

    counts = [f"{result.count(state)} {state}" for state in ("finished", "diverged", "failed", "interrupted")]
    counts = [text for text in counts if not text.startswith("0 ")]
    left = result.count("waiting") + result.count("elsewhere")
    typer.echo(f"{result.folder}: {', '.join(counts) or 'no run ended'}" + (f", {left} not begun" if left else ""))
    if sys.stderr.isatty():  # the live table disappears; failed and diverged runs stay visible
        for task in result.tasks:
            if task.state in ("diverged", "failed"):
                typer.echo(f"  {sentence(task)}")
    if result.reason:
        typer.echo(f"  {result.reason}")
    if result.outcome == "interrupted":
        typer.echo("interrupted; the same command resumes the study")
    elif has_tables and result.count("finished"):
        try:
            typer.echo("\n" + render(result.tables(), "text"))
        except BadInput as error:  # the runs are finished all the same
            typer.echo(f"no tables: {plain(str(error))}")
            return
        typer.echo(f"\nagain, or in another format: surefoot table {result.folder}")


def _json(result: StudyResult) -> None:
    from surefoot.runs.records import canonical

    runs = [
        {"label": task.run.label, "id": task.id, "state": task.state, "step": task.step, "error": task.error}
        for task in result.tasks
    ]
    contents = {"folder": str(result.folder), "outcome": result.outcome, "reason": result.reason, "runs": runs}
    typer.echo(canonical(contents))


def _dry_run(
    wanted: Any, scale: str | None, only: str | None, data: Path | None, place: Path, others: list[Path], json_: bool
) -> None:
    from surefoot.errors import BadInput
    from surefoot.studies.api import check_studies
    from surefoot.studies.folder import StudyFolder
    from surefoot.studies.plan import DatasetIndex, make_plan

    check_studies(others)
    library = DatasetIndex(data, lenient=True)
    plan = make_plan(wanted, scale, library)
    text = (only or "").lower()
    runs = [run for run in plan.runs if text in run.label.lower()]
    if not runs:
        raise BadInput(f"--only {only!r} is in no label; there is {plan.runs[0].label!r}, for one")
    done = [run for run in runs if run.id and StudyFolder(place).result(run.id)]
    runs = [run for run in runs if run not in done]
    elsewhere = [run for run in runs if run.id and any(StudyFolder(other).result(run.id) for other in others)]
    runs = [run for run in runs if run not in elsewhere]
    total = sum(run.cost or 0.0 for run in runs)
    if json_:
        from surefoot.runs.records import canonical

        listed = [
            {"label": run.label, "id": run.id, "stage": run.stage, "steps": run.steps, "cost": run.cost} for run in runs
        ]
        contents = {"name": wanted.name, "scale": plan.scale, "cost": total, "runs": listed}
        contents |= {"finished": [run.id for run in done], "taken_over": [run.id for run in elsewhere]}
        typer.echo(canonical(contents))
        return
    _list(plan, runs)
    typer.echo(
        f"\n{len(runs):,} runs, {total:,.0f} gradients of the whole training set by prediction (a batch counts by its "
        "share; readings are not counted)"
    )
    if done:
        typer.echo(f"{len(done):,} more have ended in {place}")
    if elsewhere:
        typer.echo(f"{len(elsewhere):,} more are taken over from other studies")
    for missing in library.missing:
        typer.echo(f"ids need the data: {missing}")


def _list(plan: Plan, runs: list[Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from surefoot.cli.terminal import terminal
    from surefoot.text import plain

    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("id", no_wrap=True)
    for heading in ("steps", "gradients"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        later = "decided after stage 1" if not run.decided else "?"
        numbers = ["?" if value is None else f"{value:,.0f}" for value in (run.steps, run.cost)]
        table.add_row(Text(plain(run.label)), run.id or later, *numbers)
    terminal().print(table)
