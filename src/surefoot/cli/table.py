"""``surefoot table STUDY``: a study's tables as text, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["table"]


def table(
    study: Annotated[Path, typer.Argument(help="The folder of a study, or its .toml file.")],
    which: Annotated[str | None, typer.Option(help="One of the study's tables; all by default.")] = None,
    format_: Annotated[str, typer.Option("--format", help="text, markdown, latex, csv or json.")] = "text",
    scale: Annotated[str | None, typer.Option(help="With a .toml file: which scale's folder.")] = None,
    out: Annotated[Path | None, typer.Option(help="With a .toml file: the folder of the study.")] = None,
) -> None:
    """Print a study's tables: means and standard deviations, correlations, hypotheses, paired tests."""
    from surefoot.errors import BadInput
    from surefoot.studies.folder import default_folder, gather
    from surefoot.studies.render import FORMATS, render
    from surefoot.studies.spec import read_study
    from surefoot.studies.tables import tables_of
    from surefoot.validation import suggest

    if format_ not in FORMATS:
        raise BadInput(f"--format must be one of {', '.join(FORMATS)}; got {format_!r}{suggest(format_, FORMATS)}")
    specs = None
    if study.suffix == ".toml":
        # The tables of the current file: a table may be added after the runs.
        wanted = read_study(study)
        name, _ = wanted.at_scale(scale)
        study = out or default_folder(wanted.name, name)
        specs = wanted.tables_at(name)
    tables = tables_of(gather(study), which, specs)
    typer.echo(render(tables, format_))
    if format_ == "csv":  # CSV has no place for a table that could not be made
        for made in tables:
            if not made.columns:
                typer.echo(f"{made.name}: {' '.join(made.notes)}", err=True)
