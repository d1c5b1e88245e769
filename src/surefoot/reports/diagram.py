"""A reliability diagram in the terminal: one line a bin, from the table that the numbers come from."""

from __future__ import annotations

from rich.text import Text

from surefoot.metrics.reliability import Reliability

__all__ = ["terminal_diagram"]

_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def terminal_diagram(diagram: Reliability, width: int = _WIDTH) -> Text:
    """Bars for accuracy, a mark for mean confidence; red where a bin leaves its consistency band."""
    table = diagram.table
    text = Text()
    text.append(f"{'confidence':^16}{'n':>10}  {'accuracy ▉  confidence ┃':<{width + 2}}  gap\n", style="bold")
    for index, count in enumerate(table.count.tolist()):
        bracket = "(" if index and diagram.binning == "width" else "["
        text.append(f"{bracket}{table.lower[index]:.4f}, {table.upper[index]:.4f}]".center(16))
        text.append(f"{count:>10,}  ")
        if count == 0:
            text.append("·" * (width + 2) + "\n", style="dim")
            continue
        low, high = diagram.band[:, index]
        accuracy, confidence = float(table.accuracy[index]), float(table.confidence[index])
        inside = low <= accuracy <= high
        style = "green" if inside else "red"
        text.append(_bar(accuracy, confidence, width), style=style)
        text.append(f"  {confidence - accuracy:+.3f}\n", style=style)
    return text


def _bar(accuracy: float, confidence: float, width: int) -> str:
    eighths = round(accuracy * width * 8)
    cells = list(("█" * (eighths // 8) + _EIGHTHS[eighths % 8].rstrip()).ljust(width + 2))
    cells[min(int(confidence * width), width)] = "┃"
    return "".join(cells)
