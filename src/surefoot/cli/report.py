"""``surefoot report DIR -o page.html``: one page with the results of the runs of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    folder: Annotated[Path, typer.Argument(help="A run, a study, or a folder of runs and studies.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page: an .html file.")] = Path("page.html"),
    json_: Annotated[bool, typer.Option("--json", help="Print the page's data and write no page.")] = False,
) -> None:
    """Write one self-contained page: overview, trajectories, time machine, tail, certificates, methods compared."""
    import json

    from surefoot.cli.terminal import check_folder
    from surefoot.errors import BadInput
    from surefoot.reports.page import payload
    from surefoot.reports.page import report as write
    from surefoot.text import plain

    if json_:
        # In ASCII: names come from strangers, and a terminal executes some characters.
        typer.echo(json.dumps(payload(folder), allow_nan=False, separators=(",", ":")))
        return
    if out.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"--out must end in .html; got {out.name!r}")
    check_folder("--out", out)
    path = write(folder, out)
    typer.echo(f"{plain(str(path))}: {path.stat().st_size / 1e6:.1f} MB, opens in any browser, needs no network")
