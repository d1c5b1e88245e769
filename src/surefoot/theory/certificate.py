"""A theorem as a value: hypotheses, whether the hypotheses hold, both sides of the inequality, and a verdict."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.deprecated import warn_renamed

__all__ = ["Certificate", "Certificates", "Hypothesis", "inequality", "pointwise", "published_form"]

_UNDERFLOW = 1e-300  # below this float64 has no digits left to compare
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Hypothesis:
    """A condition of a theorem.

    Attributes:
        text: the condition in words and symbols.
        holds: whether the condition holds.
        assumed: whether the condition is assumed, because no data can show it.

    Example:
        >>> Hypothesis("γ > 0", True)
        Hypothesis(text='γ > 0', holds=True, assumed=False)
    """

    text: str
    holds: bool
    assumed: bool = False


class _Published(str):
    """``"published"``, which 0.2.x also finds equal to the former name ``"printed"``, with a notice."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, _current(other))

    def __ne__(self, other: object) -> bool:
        return str.__ne__(self, _current(other))

    __hash__ = str.__hash__


def _current(form: object) -> object:
    if isinstance(form, _Published) or form != "printed":
        return form
    warn_renamed("the form 'printed' of a certificate", "'published'", stacklevel=4)
    return "published"


_IN_FILES = {"published": "printed"}  # files written by any version have the former name


def published_form(form: str) -> str:
    """The current name of a form: files have ``"printed"`` for a bound as published.

    Args:
        form: a form, in either spelling.

    Returns:
        The form.

    Example:
        >>> published_form("printed"), published_form("tighter")
        ('published', 'tighter')
    """
    if isinstance(form, _Published):
        return form
    return _Published("published") if form in ("printed", "published") else form


@dataclass(frozen=True)
class Certificate:
    """The inequality ``left`` ≤ ``right``, under hypotheses.

    Attributes:
        name: the theorem, lemma or section of the paper.
        statement: the inequality in words and symbols.
        left: value of the left side.
        right: value of the right side.
        form: ``"published"`` for a bound as published; ``"tighter"`` for a valid bound that is at least as good.
        hypotheses: the conditions of the theorem.
        budget: an upper bound of the error of ``right`` − ``left`` by rounding and the eigenvalue solver.
        estimated: whether a side relies on an attack or another estimate; an estimate proves nothing.
        note: a remark on this instance.
        example: the row with the smallest slack, for a statement about every row; otherwise None.

    Example:
        >>> certificate = Certificate("Lemma", "a ≤ b", 1.0, 2.0, hypotheses=(Hypothesis("a > 0", True),))
        >>> certificate.verdict, certificate.slack, certificate.tightness
        ('holds', 1.0, 0.5)
    """

    name: str
    statement: str
    left: float
    right: float
    form: str = "published"
    hypotheses: tuple[Hypothesis, ...] = ()
    budget: float = 0.0
    estimated: bool = False
    note: str = ""
    example: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "form", published_form(self.form))

    @property
    def applies(self) -> bool:
        """Whether every hypothesis holds."""
        return all(hypothesis.holds for hypothesis in self.hypotheses)

    @property
    def slack(self) -> float:
        """``right`` − ``left`` − ``budget``; a value between −2 ``budget`` and 0 is equality up to rounding."""
        if math.isinf(self.right) and self.left != self.right:
            return math.inf
        return self.right - self.left - self.budget

    @property
    def verdict(self) -> str:
        """``"holds"``, ``"not applicable"``, ``"estimate"`` or ``"violated"``.

        ``"violated"`` means a defect of surefoot or of the theorem.
        """
        if not self.applies:
            return "not applicable"
        if self.estimated:
            return "estimate"
        return "holds" if self.slack >= -2 * self.budget else "violated"

    @property
    def tightness(self) -> float:
        """``left`` / ``right`` in [0, 1]: 1 is equality, 0 carries no information; NaN where the ratio is undefined."""
        if math.isinf(self.right):
            return 0.0
        return self.left / self.right if self.right > 0 and self.left >= 0 else math.nan

    @property
    def explanation(self) -> str:
        """The verdict, with the hypotheses that fail and the note."""
        failed = "; ".join(f"not so: {hypothesis.text}" for hypothesis in self.hypotheses if not hypothesis.holds)
        return "; ".join(part for part in (self.verdict, failed, self.note) if part)

    def under(self, *hypotheses: Hypothesis) -> Certificate:
        """Return a copy with more hypotheses.

        Args:
            hypotheses: the additional conditions.

        Returns:
            The certificate under all conditions.
        """
        return replace(self, hypotheses=(*self.hypotheses, *hypotheses))


class Certificates(list[Certificate]):
    """A list of certificates that prints as a table.

    Example:
        >>> Certificates([Certificate("Lemma 1", "a ≤ b", 1.0, 2.0), Certificate("Lemma 1", "a ≤ c", 1.0, 4.0)])
        statement                                                            left      right left/right  verdict
        Lemma 1
          a ≤ b                                                                 1          2        0.5  holds
          a ≤ c                                                                 1          4       0.25  holds
        2 holds.
    """

    def __repr__(self) -> str:
        counts = Counter(certificate.verdict for certificate in self)
        return "\n".join([*self.lines(), ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()) + "."])

    def lines(self) -> list[str]:
        """The table, a line for each certificate under the name of its statement.

        Returns:
            Lines of text, the heading first.
        """
        lines = [f"{'statement':62}{'left':>11}{'right':>11}{'left/right':>11}  verdict"]
        name = ""
        for certificate in self:
            if certificate.name != name:
                lines.append(certificate.name)
                name = certificate.name
            text = ("  tighter: " if certificate.form == "tighter" else "  ") + certificate.statement
            ratio = "" if math.isnan(certificate.tightness) else f"{certificate.tightness:.3g}"
            lines.append(
                f"{text:62}{certificate.left:>11.4g}{certificate.right:>11.4g}{ratio:>11}  {certificate.explanation}"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values.

        Returns:
            The certificates under ``"certificates"``, each with its slack, verdict and tightness. ``"form"`` of a
            published bound is ``"printed"``, as in all files of earlier versions.
        """
        return {
            "certificates": [
                {
                    **asdict(certificate),
                    "form": _IN_FILES.get(certificate.form, certificate.form),
                    "slack": certificate.slack,
                    "verdict": certificate.verdict,
                    "tightness": certificate.tightness,
                }
                for certificate in self
            ]
        }


def inequality(
    name: str, statement: str, left: float, right: float, *hypotheses: Hypothesis, form: str = "published",
    error: float = 0.0, estimated: bool = False, note: str = "",
) -> Certificate:  # fmt: skip
    """Make a certificate of two numbers.

    Args:
        name: the theorem, lemma or section of the paper.
        statement: the inequality in words and symbols.
        left: value of the left side.
        right: value of the right side.
        hypotheses: the conditions of the theorem.
        form: ``"published"`` or ``"tighter"``; see `Certificate`.
        error: an upper bound of the solver's error, at least 0; a bound of the rounding of both sides is added.
        estimated: whether a side relies on an estimate.
        note: a remark on this instance.

    Returns:
        The certificate.

    Example:
        >>> inequality("Lemma", "a ≤ b", 2.0, 1.0).verdict
        'violated'
    """
    left, right = float(left), float(right)
    size = max((abs(side) for side in (left, right) if math.isfinite(side)), default=0.0) + _UNDERFLOW
    # The relative error of a side e^{−m} is the absolute error of the exponent: it grows with the logarithm.
    budget = error + _UNDERFLOW + _ROUNDING * (1 + abs(math.log(size))) * size
    return Certificate(name, statement, left, right, form, hypotheses, budget, estimated, note)


def pointwise(
    name: str, statement: str, left: ArrayLike, right: ArrayLike, *hypotheses: Hypothesis, form: str = "published",
    error: float = 0.0, estimated: bool = False, rows: NDArray[np.int64] | None = None,
) -> Certificate:  # fmt: skip
    """Make a certificate of n inequalities, with the sides of the row whose slack is smallest relative to its size.

    Args:
        name: the theorem, lemma or section of the paper.
        statement: the inequality in words and symbols.
        left: (n,) left sides.
        right: (n,) right sides.
        hypotheses: the conditions of the theorem.
        form: ``"published"`` or ``"tighter"``; see `Certificate`.
        error: an upper bound of the solver's error, at least 0.
        estimated: whether a side relies on an estimate.
        rows: (n,) row numbers, for a statement about some rows; None stands for all rows.

    Returns:
        The certificate; not applicable if n = 0.

    Example:
        >>> pointwise("Lemma", "a ≤ b", [1.0, 1.0], [3.0, 2.0]).example
        1
    """
    lefts, rights = np.asarray(left, np.float64), np.asarray(right, np.float64)
    if len(lefts) == 0:
        empty = Hypothesis("the statement is about at least one row", False)
        return Certificate(name, statement, math.nan, math.nan, form, (*hypotheses, empty))
    size = np.maximum(np.abs(lefts), np.where(np.isinf(rights), 0.0, np.abs(rights))) + _UNDERFLOW
    slack = np.where(np.isinf(rights), np.inf, (rights - lefts + _UNDERFLOW) / size)
    worst = int(slack.argmin())
    certificate = inequality(
        name, statement, lefts[worst], rights[worst], *hypotheses, form=form, error=error, estimated=estimated
    )
    return replace(certificate, example=worst if rows is None else int(rows[worst]))
