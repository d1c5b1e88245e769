"""The command line: one command, one file. Heavy imports happen inside the commands, so that --help is quick."""

from __future__ import annotations

import io
import os
import re
import sys

import typer

from surefoot.cli import (
    calibrate,
    certify,
    data,
    demo,
    evaluate,
    figures,
    predict,
    report,
    serve,
    shift,
    status,
    study,
    table,
    train,
)
from surefoot.errors import BadInput, SurefootError
from surefoot.plugins import load_plugins

__all__ = ["OLD_FLAGS", "app", "invoke", "main"]

app = typer.Typer(
    name="surefoot",
    help="Track calibration, curvature and margins while a classifier trains; intervene, recalibrate, certify.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("evaluate")(evaluate.evaluate)
app.command("calibrate")(calibrate.calibrate)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("status")(status.status)
app.command("serve")(serve.serve)
app.command("report")(report.report)
app.command("figures")(figures.figures)
app.command("study")(study.study)
app.command("table")(table.table)
app.command("certify")(certify.certify)
app.command("shift")(shift.shift)
app.add_typer(data.app, name="data")


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


# Flags of version 0.1, by command; they leave in 0.3 (docs/MIGRATING.md).
OLD_FLAGS = {
    ("calibrate", "--early-stopped"): "--val-used-for-selection",
    ("calibrate", "--map"): "--calibrator",
    ("study", "--from"): "--reuse",
    ("train", "--other-versions"): "--allow-version-mismatch",
}


def _renamed(arguments: list[str]) -> list[str]:
    """Replace flags of version 0.1, and report each replaced flag on stderr."""
    command = next((word for word in arguments if not word.startswith("-")), "")
    current = []
    for word in arguments:
        flag, equals, value = word.partition("=")
        new = OLD_FLAGS.get((command, flag))
        if new is not None:
            if any(other.partition("=")[0] == new for other in arguments):
                raise BadInput(f"{flag} is the old flag of {new}; give {new} alone")
            print(f"surefoot: {flag} is now {new}; the old flag leaves in 0.3", file=sys.stderr)
        current.append(f"{new or flag}{equals}{value}")
    return current


# Arguments in error messages of the library, and the flags that the command line has for them.
_AS_FLAGS = {
    r"surefoot\.study\(spec, out=\.\.\.\)": "surefoot study STUDY.toml --out DIR",
    r"surefoot\.train\(spec, out=\.\.\.\)": "surefoot train SPEC.toml --out DIR",
    r"Predictions\.from_probs, or Predictions\.load\(file, kind='probs'\)": "--probs",
    r"\bkind='logits' or kind='probs'": "--logits or --probs",
    r"\bkind='(logits|probs)'": r"--\1",
    r"\b(label|prob|logit|confidence|correct|weight|cluster|time|id|by)=\.\.\.": r"--\1 COLUMN",
    r"\bpositive=(?:\.\.\.)?": "--positive ",
    r"\bignore_index=?(?:\.\.\.)?": "--ignore-index ",
    r"\bnames=\[\.\.\.\]": "--names A,B,...",
    r"\bdata=\.\.\.": "--data DIR",
    r"\bout=\.\.\.": "--out DIR",
    r"^changes\b": "--set",
    r"^which\b": "--which",
    r"\ballow_version_mismatch=True": "--allow-version-mismatch",
    r"\b(only|port|ray|scale|split)=(?:\.\.\.)?": r"--\1 ",
}


def _as_flags(text: str, command: str = "") -> str:
    """Write the arguments in an error message of the library as flags of a command."""
    for argument, flag in _AS_FLAGS.items():
        text = re.sub(argument, flag, text)
    if command == "calibrate":
        text = re.sub(r"--split '\w+'(?: or --split '\w+')*", "them by --val-split and --test-split", text)
    return re.sub(r"(--\w+) (?=[:;]|$)", r"\1", text)


def main() -> None:
    """Run the command line as a process that ends with the exit code of `invoke`."""
    for stream in (sys.stdout, sys.stderr):
        # If the locale lacks a character, print a replacement instead of failing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = invoke()
    # A closed or full output must not complain again at shutdown, and under torchrun a thread of torch.distributed that
    # is late may abort an interpreter on its way out.
    os._exit(code) if code == 4 or int(os.environ.get("WORLD_SIZE", 1)) > 1 else sys.exit(code)


def invoke(arguments: list[str] | None = None) -> int:
    """Run the command line; an expected error is one sentence on stderr.

    Args:
        arguments: the words after ``surefoot``; None takes the words of this process.

    Returns:
        The exit code.
    """
    from surefoot.text import plain

    code, words = 0, sys.argv[1:] if arguments is None else arguments
    try:
        words = _renamed(words)
        load_plugins()
        app(words)
    except SystemExit as done:  # how the parser of the command line ends, with or without an error
        code = done.code if isinstance(done.code, int) else 1
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            code = 0  # click's mark that the reader of the output has closed it (`| head`)
    except SurefootError as error:
        print(f"surefoot: {plain(_as_flags(str(error), *words[:1]))}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except OSError as error:
        code = _output_failed(error)
    try:
        if sys.stdout is not None:  # closed by the caller (`>&-`)
            sys.stdout.flush()
    except OSError as error:
        code = _output_failed(error)
    return code


def _output_failed(error: OSError) -> int:
    """Exit code 4; 0 if only the reader of the output has closed it (`| head`)."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    print(f"surefoot: cannot write the output: {error.strerror or error}", file=sys.stderr)
    sys.stderr.flush()
    return 4
