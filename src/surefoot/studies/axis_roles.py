"""What each axis is to a table, and how its rows are called: known before the first run, and the same afterwards."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from surefoot.errors import BadInput
from surefoot.studies.spec import TableSpec
from surefoot.validation import suggest

__all__ = ["Roles", "check_baseline", "roles_of", "row_label"]


@dataclass(frozen=True)
class Roles:
    """What each axis is to a table: part of the rows, what means are taken over, or averaged before that."""

    rows: list[str]
    over: list[str]
    average: list[str]


def roles_of(axes: Sequence[str], entry_axes: Sequence[str], spec: TableSpec) -> Roles:
    """The axes' roles: rows are those of entries if not said otherwise.

    An axis that a table says nothing of goes to ``over`` if that is not given, and else to the rows, but for the seed,
    which is then averaged first.
    """
    row_axes = list(spec.rows) or [axis for axis in entry_axes if axis not in (*spec.over, *spec.average)]
    rest = [axis for axis in axes if axis not in (*row_axes, *spec.over, *spec.average)]
    seed = [] if "seed" in (*row_axes, *spec.over, *spec.average) else ["seed"]
    if not spec.over:
        return Roles(row_axes, rest + seed, list(spec.average))
    return Roles(row_axes + rest, list(spec.over), [*spec.average, *seed])


def row_label(place: Mapping[str, str], axes: Sequence[str], entry_axes: Container[str]) -> str:
    """``"SGD lr=0.1"``: what the axes of the rows are at a place, the seed among them; an absent axis is left out."""
    parts = [place[axis] if axis in entry_axes else f"{axis}={place[axis]}" for axis in axes if axis in place]
    return " ".join(parts) or "all"


def check_baseline(spec: TableSpec, labels: Sequence[str]) -> None:
    """An error if the table's baseline is none of its rows."""
    if spec.baseline is not None and spec.baseline not in labels:
        near = suggest(spec.baseline, labels)
        raise BadInput(f"table {spec.name!r}: baseline must be one of {', '.join(labels)}; got {spec.baseline!r}{near}")
