"""Errors of a spec as one sentence: the key, its required form, its value and the nearest right name."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Union

import annotated_types
from pydantic import BaseModel, ValidationError

from surefoot.errors import BadInput
from surefoot.validation import suggest

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

__all__ = ["ClearErrors", "clear_error"]

_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", dict: "a table"}
_PLURALS = {int: "integers", float: "numbers", str: "texts"}


@dataclass
class _Place:
    """Place of an error: its keys, the innermost table, and the required form of the value."""

    keys: list[str]
    table: type[BaseModel]
    kind: Any
    metadata: Sequence[Any] = ()
    description: str | None = None

    @property
    def form(self) -> str:
        """The required form of the value, in words."""
        return self.description or _form(self.kind, self.metadata)


class ClearErrors(ModelMetaclass):
    """The metaclass of tables: a wrong argument of the class raises `BadInput`, as a wrong key of a file does.

    The class's own validation, which calls no constructor of inner tables, is unchanged.
    """

    def __call__(self: Any, /, *args: Any, **values: Any) -> Any:
        """Make a table, or raise `BadInput` with the sentence of `clear_error`."""
        try:
            return super().__call__(*args, **values)
        except ValidationError as error:
            raise clear_error(error, self, self.__name__) from error


def clear_error(error: ValidationError, model: type[BaseModel], source: str) -> BadInput:
    """Convert pydantic's first error to one sentence, in which a union of types counts as one type.

    Args:
        error: The error that ``model.model_validate`` raised.
        model: The validated model. A table may describe its form in ``form``, and name the fields that no file holds
            in ``hidden``.
        source: Name of the file, with which the sentence begins.

    Returns:
        The error to raise.
    """
    first = error.errors()[0]
    location = first["loc"]
    if location and location[-1] == "[key]":
        return BadInput(f"{source}: keys must be text; got {first['input']!r}")
    place = _find(model, location)
    name = ".".join(place.keys)
    if first["type"] == "value_error":  # from the validators of the model
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
    """The keys that a file may have."""
    return [name for name in table.model_fields if name not in getattr(table, "hidden", ())]


def _find(model: type[BaseModel], location: Sequence[int | str]) -> _Place:
    """Follow pydantic's location through the types; its names of union members are no keys."""
    place, rest = _Place([], model, model), list(location)
    while rest:
        part = rest.pop(0)
        choices = _choices(place.kind)
        if len(choices) > 1:  # the part names one of the choices
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
    """The types of a union without None; for any other type, the type alone."""
    if typing.get_origin(kind) in (Union, types.UnionType):
        return [choice for choice in typing.get_args(kind) if choice is not type(None)]
    return [kind]


def _form(kind: Any, metadata: Sequence[Any]) -> str:
    """A type with its bounds in words."""
    choices = _choices(kind)
    if len(choices) > 1:
        return " or ".join(_form(choice, metadata) for choice in choices)
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
        return f"{named}, one at least" if _is_nonempty(metadata) else named
    if origin is str and _is_nonempty(metadata):
        return "text that is not empty"
    bounds = " and ".join(filter(None, map(_bound, metadata)))
    return f"{_WORDS.get(origin, 'a value')} {bounds}".rstrip()


def _is_nonempty(metadata: Sequence[Any]) -> bool:
    return any(isinstance(constraint, annotated_types.MinLen) for constraint in metadata)


def _bound(constraint: Any) -> str:
    """A bound in words."""
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
