"""Shared by the commands: a console, a progress bar, and checks of output paths before the long work starts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["check_figure", "check_folder", "progress_bar", "terminal"]


def terminal() -> Console:
    """Make a console that does not fail if the reader of the output closes it (`| head`).

    Returns:
        A console of the package rich.
    """
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            try:
                super().on_broken_pipe()
            except SystemExit as done:
                raise SystemExit(0) from done

    return Terminal(highlight=False)


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr while working, if stderr is a terminal; the bar disappears at the end.

    Args:
        what: description of the work.

    Yields:
        A function ``report(done, of)``.
    """
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def check_figure(figure: Path) -> None:
    """Refuse a figure that cannot be written.

    Args:
        figure: path of the figure.

    Raises:
        BadInput: if the path has an unknown suffix, or its folder does not exist.
    """
    from surefoot.errors import BadInput
    from surefoot.reports.figure import FORMATS

    if figure.suffix.lower() not in FORMATS:
        raise BadInput(f"--figure must end in {', '.join(FORMATS)}; got {figure.name!r}")
    check_folder("--figure", figure)


def check_folder(option: str, path: Path) -> None:
    """Refuse a file whose folder does not exist.

    Args:
        option: the option's name for the error message.
        path: path of the file.

    Raises:
        BadInput: if the folder does not exist.
    """
    from surefoot.errors import BadInput

    if not path.parent.is_dir():
        raise BadInput(f"{option}: there is no folder {str(path.parent)!r}; make it first")
