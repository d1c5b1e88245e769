"""``surefoot figures DIR --style paper -o figs/``: the papers' figures from the runs of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["figures"]


def figures(
    folder: Annotated[Path, typer.Argument(help="A run, a study, or a folder of runs and studies.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the figures.")] = Path("figures"),
    style: Annotated[str, typer.Option(help="paper: the width of a column, small type.")] = "paper",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Draw the papers' figures that the runs have readings for, each as PDF, SVG and PNG."""
    from surefoot.errors import BadInput
    from surefoot.reports.figures.paper import save_figures
    from surefoot.runs.records import canonical
    from surefoot.text import plain

    if style != "paper":
        raise BadInput(f"--style must be paper; got {style!r}")
    written, skipped = save_figures(folder, out)
    if json_:
        typer.echo(canonical({"written": [str(path) for path in written], "skipped": skipped}))
        return
    for path in written:
        typer.echo(f"{plain(str(path))}.pdf, .svg, .png")
    for name, reason in skipped.items():
        typer.echo(f"no {name}: {reason}")
