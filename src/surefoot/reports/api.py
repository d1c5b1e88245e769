"""`sf.report`: the page of a folder, written to a file."""

from __future__ import annotations

from pathlib import Path

from surefoot.files import replace_file
from surefoot.reports.page import build

__all__ = ["report"]


def report(folder: str | Path, out: str | Path) -> Path:
    """Write the page of a run, a study, or a folder of them; it appears whole or not at all. Returns its path."""
    text = build(Path(folder))
    with replace_file(Path(out)) as stream:
        stream.write(text.encode())
    return Path(out)
