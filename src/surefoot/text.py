"""Values as text and as JSON: numbers as people read them, and nothing that a terminal would obey."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["number", "plain", "plain_json", "settings_of"]


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


def plain_json(value: Any) -> Any:
    """Convert a value to what strict JSON can hold.

    Args:
        value: dictionaries, lists, tuples, arrays, numbers, text, nested as they like.

    Returns:
        ``value`` with arrays as lists, NaN (an empty bin) as None and infinities as ``"inf"`` and ``"-inf"``.

    Example:
        >>> plain_json({"low": float("nan"), "high": (1, float("inf"))})
        {'low': None, 'high': [1, 'inf']}
    """
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if hasattr(value, "tolist"):  # arrays and numbers of numpy, which this module does not import
        return plain_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(float(value))
    return value


def settings_of(thing: Any, hidden: Mapping[str, Any] | None = None) -> str:
    """Format the settings of an object: ``name=value`` of every constructor argument kept under its own name.

    Args:
        thing: any object.
        hidden: values that are left out, by name, such as defaults that nobody asks about.

    Returns:
        One line for a ``repr``; arrays and tensors are given by their shapes.
    """
    shown = []
    for name in inspect.signature(type(thing)).parameters:
        if not hasattr(thing, name) or name in getattr(thing, "_modules", ()):  # torch shows modules by itself
            continue
        value = getattr(thing, name)
        if getattr(value, "__self__", None) is thing:  # a method of the argument's name, whose repr is the object's
            continue
        if hidden and name in hidden and hidden[name] is value:
            continue
        shape = getattr(value, "shape", ())
        if not len(shape) and hidden and name in hidden and hidden[name] == value:
            continue
        shown.append(f"{name}=<{'×'.join(map(str, shape))}>" if len(shape) else f"{name}={_setting(value)}")
    return ", ".join(shown)


def _setting(value: Any) -> str:
    """The ``repr`` of a value; a function or a method by its name, without its address."""
    if inspect.ismethod(value):
        return f"{type(value.__self__).__name__}.{value.__name__}"
    return value.__name__ if inspect.isroutine(value) else repr(value)
