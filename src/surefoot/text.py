"""Text for terminals: readable numbers, and no control characters."""

from __future__ import annotations

__all__ = ["number", "plain"]


def plain(text: str) -> str:
    r"""Escape control characters, so that a file name cannot move the cursor.

    Args:
        text: any text.

    Returns:
        ``text`` with every unprintable character as its Python escape.

    Example:
        >>> print(plain("run\x1b[2J"))
        run\x1b[2J
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def number(value: float, digits: int = 4) -> str:
    """Format a number with a fixed number of decimals.

    Args:
        value: the number.
        digits: number of decimals, at least 0.

    Returns:
        The number with ``digits`` decimals; in scientific notation where all these decimals would be 0.

    Example:
        >>> number(0.25), number(0.00001)
        ('0.2500', '1.0e-05')
    """
    if value != 0 and abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.1e}"
    return f"{value:.{digits}f}"
