"""The runs that a deep ensemble is made of."""

from __future__ import annotations

from surefoot.training.spec import RunSpec
from surefoot.validation import check_int, check_options

__all__ = ["members_of"]


def members_of(spec: RunSpec) -> list[RunSpec]:
    """The members' specs: the same run from other seeds. Those of one ensemble never serve another.

    A run without an ensemble that has one of those seeds is that member, and is not trained again.
    """
    assert spec.ensemble is not None
    check_options("ensemble deep", spec.ensemble.options, ["members"])
    size = check_int("ensemble.members", spec.ensemble.options.get("members", 5), 1)
    return [spec.model_copy(update={"ensemble": None, "seed": spec.seed * size + m}) for m in range(size)]
