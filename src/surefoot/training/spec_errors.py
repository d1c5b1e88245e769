"""What is wrong with a spec, as one sentence: the key, what it must be, what it was, and the nearest right name."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

import annotated_types
from pydantic import BaseModel, ValidationError

from surefoot.errors import BadInput
from surefoot.validation import suggest

__all__ = ["clear_error"]

_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", dict: "a table"}
_PLURALS = {int: "integers", float: "numbers", str: "texts"}


@dataclass
class _Place:
    """Where an error lies: its keys, the innermost table, and what the value there must be."""

    keys: list[str]
    table: type[BaseModel]
    kind: Any
    metadata: Sequence[Any] = ()
    description: str | None = None

    @property
    def form(self) -> str:
        """What the value must be, in words."""
        return self.description or _form(self.kind, self.metadata)


def clear_error(error: ValidationError, model: type[BaseModel], source: str) -> BadInput:
    """pydantic's first complaint in our words; a choice of types is told as one.

    Args:
        error: raised by ``model.model_validate``.
        model: what was validated. A table may say what it is written as in ``form``, and name fields that no file
            holds in ``hidden``.
        source: the file's name, which begins the sentence.

    Returns:
        The error to raise.
    """
    first = error.errors()[0]
    location = first["loc"]
    if location and location[-1] == "[key]":
        return BadInput(f"{source}: keys must be text; got {first['input']!r}")
    place = _find(model, location)
    name = ".".join(place.keys)
    if first["type"] == "value_error":  # from our own validators
        return BadInput(f"{source}: {name}{': ' if name else ''}{first['msg'].removeprefix('Value error, ')}")
    if first["type"] in ("extra_forbidden", "invalid_key"):
        known = _keys(place.table)
        hint = suggest(place.keys[-1], known) or (f"; there are {', '.join(known)}" if known else "")
        return BadInput(f"{source}: there is no key {name!r}{hint}")
    if first["type"] == "missing":
        return BadInput(f"{source}: the key {name!r} is missing; it must be {place.form}")
    given = first["input"]
    shown = repr(given) if len(repr(given)) <= 80 else f"{repr(given)[:77]}..."
    near = suggest(given, map(str, typing.get_args(place.kind))) if isinstance(given, str) else ""
    return BadInput(f"{source}: {name} must be {place.form}; got {shown}{near}")


def _keys(table: type[BaseModel]) -> list[str]:
    """The keys that a file may hold."""
    return [name for name in table.model_fields if name not in getattr(table, "hidden", ())]


def _find(model: type[BaseModel], location: Sequence[int | str]) -> _Place:
    """Follow pydantic's location through the types; its words for a choice of types are no keys."""
    place, rest = _Place([], model, model), list(location)
    while rest:
        part = rest.pop(0)
        choices = _choices(place.kind)
        if len(choices) > 1:  # the part names one of them
            if rest:
                place.kind = next((kind for kind in choices if getattr(kind, "__name__", "") == part), choices[0])
            continue
        (kind,) = choices
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(str(part))
            place.table = kind
            if part in _keys(kind) or field is None:
                place.keys.append(str(part))
            if field is None:
                break
            place.kind, place.metadata, place.description = field.annotation, field.metadata, field.description
        else:
            values = typing.get_args(kind)
            place.keys.append(str(part))
            place.kind = values[1 if typing.get_origin(kind) is dict else 0] if values else Any
            place.metadata, place.description = (), None
    return place


def _choices(kind: Any) -> list[Any]:
    """The types of a union without None; a single type is the only one."""
    if typing.get_origin(kind) in (Union, types.UnionType):
        return [each for each in typing.get_args(kind) if each is not type(None)]
    return [kind]


def _form(kind: Any, metadata: Sequence[Any]) -> str:
    """A type with its bounds in words."""
    choices = _choices(kind)
    if len(choices) > 1:
        return " or ".join(_form(each, metadata) for each in choices)
    (kind,) = choices
    origin = typing.get_origin(kind) or kind
    if origin is Literal:
        *names, last = map(repr, typing.get_args(kind))
        return f"{', '.join(names)} or {last}" if names else last
    if isinstance(origin, type) and issubclass(origin, BaseModel):
        return str(getattr(origin, "form", "a table"))
    if origin is tuple:
        plural = _PLURALS.get(typing.get_args(kind)[0])
        named = f"a list of {plural}" if plural else "a list"
        return f"{named}, one at least" if any(isinstance(each, annotated_types.MinLen) for each in metadata) else named
    if origin is str and any(isinstance(each, annotated_types.MinLen) for each in metadata):
        return "text that is not empty"
    bounds = " and ".join(filter(None, map(_bound, metadata)))
    return f"{_WORDS.get(origin, 'a value')} {bounds}".rstrip()


def _bound(constraint: Any) -> str:
    match constraint:
        case annotated_types.Ge(low):
            return f"of at least {low}"
        case annotated_types.Gt(low):
            return f"above {low}"
        case annotated_types.Le(high):
            return f"at most {high}"
        case annotated_types.Lt(high):
            return f"below {high}"
    return ""
