"""What the verbs share: a console, a progress bar, and checks of where results go before the long work starts."""

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
    """A console for which a reader that has gone (`| head`) is no failure."""
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
    """A bar on stderr while working, where a person watches; it is gone when the work is done."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def check_figure(figure: Path) -> None:
    """Refuse a figure that cannot be written."""
    from surefoot.errors import BadInput
    from surefoot.reports.figure import FORMATS

    if figure.suffix.lower() not in FORMATS:
        raise BadInput(f"--figure must end in {', '.join(FORMATS)}; got {figure.name!r}")
    check_folder("--figure", figure)


def check_folder(option: str, path: Path) -> None:
    """Refuse a file whose folder is not there."""
    from surefoot.errors import BadInput

    if not path.parent.is_dir():
        raise BadInput(f"{option}: there is no folder {str(path.parent)!r}; make it first")
