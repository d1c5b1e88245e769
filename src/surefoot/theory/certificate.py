"""A theorem as a value: what it asks for, whether that is so, both sides of its inequality, and a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Certificate", "Hypothesis", "inequality", "pointwise"]

_UNDERFLOW = 1e-300  # below this float64 has no digits left to compare
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Hypothesis:
    """A condition; ``assumed`` where it was taken on trust, since no data can show it."""

    text: str
    holds: bool
    assumed: bool = False


@dataclass(frozen=True)
class Certificate:
    """``left`` ≤ ``right``, under ``hypotheses``.

    Attributes:
        name: where it stands in the paper.
        statement: the inequality in words and symbols.
        form: ``"printed"``, as in the paper, or ``"tighter"``, a bound at least as good that is valid as well.
        budget: what rounding and the eigenvalue solver may have moved ``right`` − ``left`` by.
        estimated: True if a side rests on an attack or another estimate: then nothing is proved.
        note: a remark on this instance.
        example: the row with the least slack, for a statement about each row.
    """

    name: str
    statement: str
    left: float
    right: float
    form: str = "printed"
    hypotheses: tuple[Hypothesis, ...] = ()
    budget: float = 0.0
    estimated: bool = False
    note: str = ""
    example: int | None = None

    @property
    def applies(self) -> bool:
        """Whether every hypothesis holds."""
        return all(each.holds for each in self.hypotheses)

    @property
    def slack(self) -> float:
        """``right`` − ``left``, less what rounding may have added; −0 and a little below are equality to rounding."""
        if math.isinf(self.right) and self.left != self.right:
            return math.inf
        return self.right - self.left - self.budget

    @property
    def verdict(self) -> str:
        """``"holds"``, ``"not applicable"``, ``"estimate"``, or ``"violated"``: a defect of ours, or of the theorem."""
        if not self.applies:
            return "not applicable"
        if self.estimated:
            return "estimate"
        return "holds" if self.slack >= -2 * self.budget else "violated"

    @property
    def tightness(self) -> float:
        """``left`` / ``right`` in [0, 1]: 1 is equality, 0 says nothing; NaN where it has no meaning."""
        if math.isinf(self.right):
            return 0.0
        return self.left / self.right if self.right > 0 and self.left >= 0 else math.nan

    def under(self, *hypotheses: Hypothesis) -> Certificate:
        """The same, with more hypotheses."""
        return replace(self, hypotheses=(*self.hypotheses, *hypotheses))


def inequality(
    name: str, statement: str, left: float, right: float, *hypotheses: Hypothesis, form: str = "printed",
    error: float = 0.0, estimated: bool = False, note: str = "",
) -> Certificate:  # fmt: skip
    """A certificate of two numbers; ``error`` is of the solver, and rounding of both sides is added to it."""
    left, right = float(left), float(right)
    size = max((abs(side) for side in (left, right) if math.isfinite(side)), default=0.0) + _UNDERFLOW
    # A side e^{−m} is as exact as its exponent is: the relative error grows with the logarithm.
    budget = error + _UNDERFLOW + _ROUNDING * (1 + abs(math.log(size))) * size
    return Certificate(name, statement, left, right, form, hypotheses, budget, estimated, note)


def pointwise(
    name: str, statement: str, left: ArrayLike, right: ArrayLike, *hypotheses: Hypothesis, form: str = "printed",
    error: float = 0.0, estimated: bool = False, rows: NDArray[np.int64] | None = None,
) -> Certificate:  # fmt: skip
    """A certificate of n inequalities: the sides are of the row with the least slack relative to its size.

    ``rows`` gives the rows' numbers where only some are spoken of; none at all make the statement not applicable.
    """
    lefts, rights = np.asarray(left, np.float64), np.asarray(right, np.float64)
    if len(lefts) == 0:
        return Certificate(
            name, statement, math.nan, math.nan, form, (*hypotheses, Hypothesis("some row is spoken of", False))
        )
    size = np.maximum(np.abs(lefts), np.where(np.isinf(rights), 0.0, np.abs(rights))) + _UNDERFLOW
    slack = np.where(np.isinf(rights), np.inf, (rights - lefts + _UNDERFLOW) / size)
    worst = int(slack.argmin())
    found = inequality(
        name, statement, lefts[worst], rights[worst], *hypotheses, form=form, error=error, estimated=estimated
    )
    return replace(found, example=worst if rows is None else int(rows[worst]))
