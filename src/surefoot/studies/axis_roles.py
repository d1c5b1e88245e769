"""The role of every axis in a table, and the labels of the rows; both are known before the first run."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from surefoot.errors import BadInput
from surefoot.studies.spec import TableSpec
from surefoot.validation import suggest

__all__ = ["Roles", "check_baseline", "roles_of", "row_label"]


@dataclass(frozen=True)
class Roles:
    """The role of every axis in a table.

    Attributes:
        rows: axes that the rows are labelled with.
        over: axes that means are taken over.
        average: axes that are averaged before the means are taken.
    """

    rows: list[str]
    over: list[str]
    average: list[str]


def roles_of(axes: Sequence[str], entry_axes: Sequence[str], spec: TableSpec) -> Roles:
    """Assign a role to every axis of a study.

    By default the rows are the axes of entries. An axis that the table does not mention goes to ``over`` if the table
    gives no ``over``. Otherwise such an axis goes to the rows, except for the seed, which is averaged first.

    Args:
        axes: axes of the study.
        entry_axes: the axes that consist of entries.
        spec: the table.

    Returns:
        The roles.
    """
    row_axes = list(spec.rows) or [axis for axis in entry_axes if axis not in (*spec.over, *spec.average)]
    rest = [axis for axis in axes if axis not in (*row_axes, *spec.over, *spec.average)]
    seed = [] if "seed" in (*row_axes, *spec.over, *spec.average) else ["seed"]
    if not spec.over:
        return Roles(row_axes, rest + seed, list(spec.average))
    return Roles(row_axes + rest, list(spec.over), [*spec.average, *seed])


def row_label(place: Mapping[str, str], axes: Sequence[str], entry_axes: Container[str]) -> str:
    """Label a row by its values: ``"SGD lr=0.1"``.

    Args:
        place: value of every axis as text, including the seed.
        axes: axes of the rows. Axes that the place does not have are left out.
        entry_axes: axes of entries; the label shows their values without the axis' name.

    Returns:
        The label; ``"all"`` if no axis is left.

    Example:
        >>> row_label({"method": "SGD", "lr": "0.1", "seed": "0"}, ["method", "lr"], ["method"])
        'SGD lr=0.1'
    """
    parts = [place[axis] if axis in entry_axes else f"{axis}={place[axis]}" for axis in axes if axis in place]
    return " ".join(parts) or "all"


def check_baseline(spec: TableSpec, labels: Sequence[str]) -> None:
    """Check that the baseline of a table is one of its rows.

    Args:
        spec: the table.
        labels: labels of the rows.

    Raises:
        BadInput: if the table has a baseline that is no label.
    """
    if spec.baseline is not None and spec.baseline not in labels:
        near = suggest(spec.baseline, labels)
        raise BadInput(f"table {spec.name!r}: baseline must be one of {', '.join(labels)}; got {spec.baseline!r}{near}")
