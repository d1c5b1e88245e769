"""From a sample to the distribution behind it: the same bounds with a concentration term, at a stated confidence."""

from __future__ import annotations

import math

from surefoot.errors import BadInput
from surefoot.theory.certificate import Certificate, Hypothesis, inequality
from surefoot.theory.sample import Sample
from surefoot.theory.softmax import tail_upper

__all__ = ["deviation", "population"]


def deviation(n: int, confidence: float) -> float:
    """Hoeffding: n draws from [0, 1] have a mean that falls short of its expectation by more seldom enough.

    >>> round(deviation(10_000, 0.95), 4)
    0.0122
    """
    if not 0 < confidence < 1:
        raise BadInput(f"confidence must lie in (0, 1), such as 0.95; got {confidence!r}")
    return math.sqrt(-math.log1p(-confidence) / (2 * n))


def population(sample: Sample, held_out: bool, confidence: float = 0.95) -> list[Certificate]:
    """Theorem 4.1 (i) for the distribution: ECE_M(π) ≤ E(1 − p_y), whose sample mean lies in [0, 1].

    Args:
        held_out: whether the model never saw the sample; on its training set nothing follows.
    """
    n = len(sample.predictions)
    more = deviation(n, confidence)
    unseen = Hypothesis("the model did not see the sample, drawn independently from π", held_out, assumed=held_out)
    name, at = "Theorem 4.1 (i), population", f"with confidence {confidence:.0%}"
    plain, tail = sample.mistrust.mean(), tail_upper(sample.margins, sample.classes).mean()
    return [
        inequality(
            name,
            f"ECE(π) ≤ mean (1 − p_y) + {more:.3g} {at}",
            0.0,
            plain + more,
            unseen,
            form="tighter",
            note="the left side is not observable; 0 stands for it",
        ),
        inequality(
            name,
            f"ECE(π) ≤ mean tail + {more:.3g} {at}",
            0.0,
            tail + more,
            unseen,
            form="tighter",
            note="the left side is not observable; 0 stands for it",
        ),
    ]  # fmt: skip
