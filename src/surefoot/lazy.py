"""Packages whose public names are imported on first use. No torch."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot.deprecated import OLD_NAMES, renamed_names

__all__ = ["attach"]


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package whose registry can be read without torch.

    The stub ``__init__.pyi`` beside the package's ``__init__.py`` holds the public names as ordinary imports, where
    type checkers read them too. This is the convention of SPEC 1 of Scientific Python.

    Args:
        package: the package's ``__name__``.
        file: the package's ``__file__``.

    Returns:
        The two functions and the sorted list of names.
    """
    homes: dict[str, str] = {}
    for statement in ast.parse(Path(file).with_suffix(".pyi").read_text()).body:
        if isinstance(statement, ast.ImportFrom) and statement.module is not None:
            homes |= {alias.name: statement.module for alias in statement.names}

    def attribute(name: str) -> Any:
        if name in OLD_NAMES.get(package, {}):
            return renamed_names(package, stacklevel=4)(name)
        home = homes.get(name, package)
        if home != package:
            return getattr(importlib.import_module(home), name)
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    return attribute, lambda: sorted(homes), sorted(homes)
