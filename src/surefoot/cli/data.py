"""``surefoot data list|fetch|check``: the available data sets and their files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(help="Data sets: list, fetch, check.", no_args_is_help=True)

_Root = Annotated[Path | None, typer.Option("--data", envvar="SUREFOOT_DATA", help="Folder of data sets.")]


@app.command("list")
def list_(data: _Root = None) -> None:
    """List the data sets that specs may name, and how to get them."""
    from surefoot.data.registry import DATASETS

    for name, entry in DATASETS.items():
        typer.echo(f"{name:14} {entry.what}" + (f"; {entry.remedy}" if entry.remedy else ""))
    typer.echo("arrays:NAME    NAME.npz of your own in the data folder, with x_train, y_train, x_test, y_test")
    typer.echo(f"data folder: {data if data is not None else 'none; give --data DIR or set SUREFOOT_DATA'}")


@app.command()
def fetch(name: Annotated[str, typer.Argument(help="Such as cifar10.")], data: _Root = None) -> None:
    """Download a data set into the data folder; it is checked before it gets its name."""
    import sys

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from surefoot.data.fetch import fetch as bring
    from surefoot.errors import BadInput

    if data is None:
        raise BadInput("fetch needs a folder to put data in; give --data DIR or set SUREFOOT_DATA")
    columns = (TextColumn(name), BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=1.0)
        path = bring(name, data, lambda text, share: bar.update(task, completed=share, description=text))
    typer.echo(f"{name}: {path}")


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="Such as cifar10, or arrays:mine.")],
    data: _Root = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Read a complete data set, and print its contents."""
    import json

    from surefoot.data.fetch import check as look

    summary = look(name, data)
    if json_:
        typer.echo(json.dumps(summary))
        return
    verified = "its pixels are as published" if summary["verified"] else "no published figures to compare with"
    typer.echo(
        f"{name}: {summary['train']:,} to train, {summary['test']:,} to test, {summary['classes']} classes, examples "
        f"of shape {tuple(summary['shape'])}; {verified}; sha256 {summary['sha256']}"  # type: ignore[arg-type]
    )
