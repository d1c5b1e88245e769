"""Text for terminals: numbers as people read them, and nothing that a terminal would obey."""

from __future__ import annotations

__all__ = ["number", "plain"]


def plain(text: str) -> str:
    """``text`` with control characters escaped: a file name must not move the cursor."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def number(value: float, digits: int = 4) -> str:
    """``value`` with ``digits`` decimals, or in scientific notation where that would show nothing."""
    if value != 0 and abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.1e}"
    return f"{value:.{digits}f}"
