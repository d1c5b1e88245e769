"""`sf.report`: the page of a folder, written to a file."""

from __future__ import annotations

from pathlib import Path

from surefoot.files import replace_file
from surefoot.reports.page import build

__all__ = ["report"]


def report(folder: str | Path, out: str | Path) -> Path:
    """Write the page of a run, a study, or a folder of runs and studies.

    Args:
        folder: the folder.
        out: path of the HTML file, which appears complete or not at all.

    Returns:
        The path of the file.

    Raises:
        BadInput: if there is no run in the folder.
    """
    text = build(Path(folder))
    with replace_file(Path(out)) as stream:
        stream.write(text.encode())
    return Path(out)
