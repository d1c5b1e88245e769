"""``surefoot serve DIR``: the report as a live page for browsers on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["serve"]


def serve(
    folder: Annotated[Path, typer.Argument(help="A folder of runs, a study, or one run.")],
    port: Annotated[int, typer.Option(help="Port to listen on; a free port by default.", min=0, max=65535)] = 0,
) -> None:
    """Show the runs in a browser while they train. The page is for this machine only, and no file is written."""
    from surefoot.reports.serve.server import serve as serve_folder
    from surefoot.text import plain

    def say(address: str) -> None:
        typer.echo(f"The runs in {plain(str(folder))}, live:\n\n    {address}\n")
        typer.echo("The address works on this machine only, for everyone who knows it. Ctrl-C stops the server.")

    serve_folder(folder, port, say, lambda text: typer.echo(f"surefoot: {plain(text)}", err=True))
