"""The command line: one verb, one file. Heavy imports happen inside the verbs, so that --help is quick."""

from __future__ import annotations

import sys

import typer

from surefoot.cli import demo, evaluate
from surefoot.errors import SurefootError

__all__ = ["app", "main"]

app = typer.Typer(
    name="surefoot",
    help="Watch calibration, curvature and margins while a classifier trains; intervene, repair, prove.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("evaluate")(evaluate.evaluate)


def _version(wanted: bool) -> None:
    if wanted:
        from surefoot import __version__

        typer.echo(f"surefoot {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Run the command line; an expected error is one sentence on stderr and its own exit code."""
    from surefoot.reports.text import plain

    try:
        app(standalone_mode=True)
    except SurefootError as error:
        print(f"surefoot: {plain(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); nothing is left to say, not even at shutdown.
        sys.stderr.close()
        sys.exit(0)
