"""Tables as text, Markdown, LaTeX, CSV or JSON; no program executes the contents of a cell."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from surefoot.runs.records import canonical
from surefoot.studies.tables import Cell, Table
from surefoot.text import plain

__all__ = ["FORMATS", "render"]


def render(tables: Sequence[Table], how: str) -> str:
    """Write tables in a format.

    Args:
        tables: the tables.
        how: one of `FORMATS`: ``"text"``, ``"markdown"``, ``"latex"``, ``"csv"`` or ``"json"``.

    Returns:
        The text.
    """
    return FORMATS[how](tables)


def _joined(one: Callable[[Table], str]) -> Callable[[Sequence[Table]], str]:
    return lambda tables: "\n\n".join(one(table) for table in tables)


def _grid(table: Table) -> list[list[str]]:
    head = ["", *(plain(column) for column in table.columns)]
    return [head, *([plain(label), *(plain(cell.text) for cell in cells)] for label, cells in table.rows)]


def _text(table: Table) -> str:
    grid = _grid(table)
    widths = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
    lines = [plain(table.caption or table.name)]
    for row in grid:
        first, *rest = (
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join([*lines, *(f"  {plain(note)}" for note in table.notes)])


def _marked(text: str) -> str:
    """Text that Markdown shows literally: no end of a cell, no HTML, no code, no link."""
    for sign in ("\\", "|", "<", "`"):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("](", "]\\(")


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_marked(cell.strip()) for cell in cells) + " |"

    head, *rows = _grid(table)
    rule = "|---|" + "---:|" * (len(head) - 1)
    title = _marked(plain(table.caption or table.name))
    lines = [f"**{title}**", "", line(head), rule, *(line(row) for row in rows), ""]
    return "\n".join([*lines, *(f"- {_marked(plain(note))}" for note in table.notes)])


_SPECIAL = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
            "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$", "–": "--",
            "ρ": r"$\rho$", "≥": r"$\geq$", "≤": r"$\leq$", "<": "$<$", ">": "$>$", "[": "{[}"}  # fmt: skip


def _latex(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(_SPECIAL.get(char, char) for char in cell.strip()) for cell in cells) + r" \\"

    head, *rows = _grid(table)
    lines = [
        f"% {plain(table.name)}",
        rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
        r"\toprule",
        line(head),
        r"\midrule",
        *(line(row) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([*lines, *(f"% {plain(note)}" for note in table.notes)])


_FACTS = ("mean", "std", "n", "low", "high", "p", "runs", "of", "paper", "spearman")


def _cell(text: str) -> str:
    """Text that a spreadsheet shows and does not compute; numbers stay numbers."""
    return f"'{text}" if re.match(r"[=+@]|-(?![\d.])", text) else text


def _csv(tables: Sequence[Table]) -> str:
    """One line per cell, with all digits."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["table", "row", "column", "text", *_FACTS])
    for table in tables:
        for label, cells in table.rows:
            for column, cell in zip(table.columns, cells, strict=True):
                facts = [cell.facts.get(name, "") for name in _FACTS]
                words = (table.name, label.strip(), column, cell.text)
                writer.writerow([*(_cell(plain(word)) for word in words), *facts])
    return stream.getvalue().rstrip("\n")


def _json(tables: Sequence[Table]) -> str:
    def cell(column: str, shown: Cell) -> dict[str, object]:
        return {"column": column, "text": shown.text, **shown.facts}

    return canonical(
        {
            "tables": [
                {
                    "name": table.name,
                    "kind": table.kind,
                    "caption": table.caption,
                    "notes": table.notes,
                    "rows": [
                        {
                            "row": label.strip(),
                            "cells": [cell(*pair) for pair in zip(table.columns, cells, strict=True)],
                        }
                        for label, cells in table.rows
                    ],
                }
                for table in tables
            ]
        }
    )


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "text": _joined(_text),
    "markdown": _joined(_markdown),
    "latex": _joined(_latex),
    "csv": _csv,
    "json": _json,
}
