"""Every exported callable of the modules in `DONE` documents its arguments and what it returns."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from types import ModuleType
from typing import Any

import pytest

from surefoot.cli import app

DONE = [
    "surefoot.cli",
    "surefoot.curvature",
    "surefoot.data",
    "surefoot.dataset",
    "surefoot.deprecated",
    "surefoot.ensembles",
    "surefoot.errors",
    "surefoot.evaluation",
    "surefoot.files",
    "surefoot.forward",
    "surefoot.integrations",
    "surefoot.loss",
    "surefoot.losses",
    "surefoot.margins",
    "surefoot.metrics",
    "surefoot.models",
    "surefoot.optim",
    "surefoot.posthoc",
    "surefoot.predictions",
    "surefoot.registry",
    "surefoot.reports",
    "surefoot.ranks",
    "surefoot.runs",
    "surefoot.seeds",
    "surefoot.shift",
    "surefoot.deprecated",
    "surefoot.statistics",
    "surefoot.studies",
    "surefoot.text",
    "surefoot.theory",
    "surefoot.training",
    "surefoot.threads",
    "surefoot.validation",
]


def modules_of(name: str) -> Iterator[ModuleType]:
    module = importlib.import_module(name)
    yield module
    for info in pkgutil.walk_packages(getattr(module, "__path__", []), f"{name}."):
        yield importlib.import_module(info.name)


def sections(value: Any) -> dict[str, list[str]]:
    """Names of the entries of each section of a Google-style docstring."""
    entries: dict[str, list[str]] = {}
    section = ""
    for line in (inspect.getdoc(value) or "").splitlines():
        if header := re.fullmatch(r"(Args|Attributes|Returns|Yields|Raises):", line):
            section = header[1]
            entries[section] = []
        elif line and not line.startswith(" "):
            section = ""
        elif section and (entry := re.match(r"    \*{0,2}(\w+)(?: \(.*?\))?:", line)):
            entries[section].append(entry[1])
    return entries


def undocumented(function: Callable[..., Any]) -> list[str]:
    signature, documented = inspect.signature(function), sections(function)
    given = arguments(signature)
    missing = [name for name in given if name not in ("self", "cls", *documented.get("Args", []))]
    returns = signature.return_annotation not in (None, "None", inspect.Signature.empty)
    return missing + ["Returns"] * (returns and not {"Returns", "Yields"} & set(documented))


def constructor(kind: type) -> Callable[..., Any] | None:
    """The `__init__` or `__new__` that surefoot defines for a class."""
    for base in kind.__mro__:
        for name in ("__init__", "__new__"):
            if name in vars(base):
                make = vars(base)[name]
                # The `__init__` of a Protocol is typing's.
                return make if getattr(make, "__module__", "").startswith("surefoot") else None
    return None


def arguments(signature: inspect.Signature) -> list[str]:
    """The names of a callable's arguments, but those that Ray adds where it makes an actor of a class."""
    return [name for name in signature.parameters if not name.startswith("_ray_")]


def problems(value: Any) -> Iterator[str]:
    """What the docstrings of a function, or of a class and its public methods, leave out."""
    if inspect.isfunction(value):
        yield from (f"{value.__qualname__}: {name}" for name in undocumented(value))
        return
    # A base describes the fields and arguments that a class inherits.
    documented = [sections(base) for base in value.__mro__ if base is not object]
    listed = {name for entries in documented for kind in ("Args", "Attributes") for name in entries.get(kind, [])}
    if is_dataclass(value):
        wanted = [field.name for field in fields(value) if not field.name.startswith("_")]
    else:
        make = constructor(value)
        wanted = arguments(inspect.signature(make))[1:] if make else []
    yield from (f"{value.__qualname__}: {name}" for name in wanted if name not in listed)
    for name, member in vars(value).items():
        # An override inherits the description of the method that it overrides.
        inherited = any(name in vars(base) for base in value.__mro__[1:] if base.__module__.startswith("surefoot"))
        method = getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(method) and not inherited:
            yield from (f"{method.__qualname__}: {problem}" for problem in undocumented(method))


@pytest.mark.parametrize("name", DONE)
def test_exported_callables_describe_what_they_take_and_return(name: str) -> None:
    exported = {
        id(value): value
        for module in modules_of(name)
        for value in (getattr(module, public) for public in getattr(module, "__all__", ()))
        # The package that a re-exported object is from describes the object.
        if (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__.startswith(name)
    }
    # A command's docstring is its help on the terminal, and each option describes itself there.
    for command in app.registered_commands:
        exported.pop(id(command.callback), None)
    assert exported
    assert [problem for value in exported.values() for problem in problems(value)] == []


def test_omissions_are_seen() -> None:
    def silent(told: int, untold: int) -> int:
        """A claim.

        Args:
            told: a number.
        """
        return told + untold

    @dataclass
    class Half:
        """A claim.

        Attributes:
            told: a number.
        """

        told: int
        untold: int

        def method(self, untold: int) -> None:
            """A claim."""

    assert [problem.rpartition(".")[2] for problem in problems(silent)] == ["silent: untold", "silent: Returns"]
    assert [problem.rpartition(".")[2] for problem in problems(Half)] == ["Half: untold", "method: untold"]
