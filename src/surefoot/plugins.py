"""Modules of users that add methods to the registries: imported by name or by file, in every process of a study."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from surefoot.errors import BadInput

__all__ = ["VARIABLE", "load_plugins", "with_plugins"]

VARIABLE = "SUREFOOT_PLUGINS"


def load_plugins(names: Sequence[str] = ()) -> list[str]:
    """Import the modules that the environment variable ``SUREFOOT_PLUGINS`` lists, and further ones.

    Args:
        names: Names of modules, or paths of ``.py`` files. The variable separates them by commas.

    Returns:
        The modules as other processes can import them: a single file by its absolute path, anything else by its name.

    Raises:
        BadInput: If a module cannot be imported; the text names the module and the reason.

    Example:
        >>> load_plugins(["json.decoder"])[-1]
        'json.decoder'
    """
    if isinstance(names, str):
        raise BadInput(f"plugins must be a list of modules; got the text {names!r}; write [{names!r}]")
    listed = [name.strip() for name in os.environ.get(VARIABLE, "").split(",")]
    wanted = list(dict.fromkeys([*filter(None, listed), *map(str, names)]))
    return list(dict.fromkeys(_reference(name, _imported(name)) for name in wanted))


@contextlib.contextmanager
def with_plugins(names: Sequence[str] = ()) -> Iterator[None]:
    """Import plugins here, and in every process that is started inside of the block.

    Args:
        names: As of `load_plugins`.

    Yields:
        Nothing.

    Raises:
        BadInput: If a module cannot be imported.
    """
    before = os.environ.get(VARIABLE)
    references = load_plugins(names)
    try:
        if references:
            os.environ[VARIABLE] = ",".join(references)
        yield
    finally:
        if references:
            os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


def _imported(name: str) -> ModuleType:
    try:
        return _of_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise BadInput(
            f"plugin {name!r} cannot be imported: {type(error).__name__}: {first}; give the name of a module on "
            "Python's path, or the path of a .py file"
        ) from error


def _of_file(path: Path) -> ModuleType:
    """The module of a file under the file's name, so that entries can refer to it as ``"name:Class"``."""
    path = path.resolve()
    known = sys.modules.get(path.stem)
    if known is not None:
        if Path(getattr(known, "__file__", None) or "").resolve() == path:
            return known
        raise ImportError(f"there is another module of the name {path.stem}; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _reference(name: str, module: ModuleType) -> str:
    """A single file by its path, since a worker does not look for modules in the current folder."""
    file = getattr(module, "__file__", None)
    single = "." not in module.__name__ and not hasattr(module, "__path__")
    return str(Path(file).resolve()) if single and file is not None and file.endswith(".py") else module.__name__
