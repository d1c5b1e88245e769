"""From a sample to its distribution: the bounds of the sample plus a concentration term, at a stated confidence."""

from __future__ import annotations

import math

from surefoot.errors import BadInput
from surefoot.theory.certificate import Certificate, Hypothesis, inequality
from surefoot.theory.sample import Sample
from surefoot.theory.softmax import tail_upper

__all__ = ["hoeffding_term", "population"]


def hoeffding_term(n: int, confidence: float) -> float:
    """Compute √(−ln(1 − confidence) / (2n)), the concentration term of Hoeffding's inequality.

    The mean of n independent draws from [0, 1] falls short of its expectation by more than this number with
    probability at most 1 − confidence.

    Args:
        n: number of draws, at least 1.
        confidence: confidence, between 0 and 1.

    Returns:
        The term.

    Raises:
        BadInput: when ``confidence`` is not between 0 and 1.

    Example:
        >>> round(hoeffding_term(10_000, 0.95), 4)
        0.0122

    References:
        Hoeffding (1963), "Probability Inequalities for Sums of Bounded Random Variables".
    """
    if not 0 < confidence < 1:
        raise BadInput(f"confidence must lie in (0, 1), such as 0.95; got {confidence!r}")
    return math.sqrt(-math.log1p(-confidence) / (2 * n))


def population(sample: Sample, held_out: bool, confidence: float = 0.95) -> list[Certificate]:
    """Check Theorem 4.1 (i) for the distribution π: ECE_M(π) ≤ E(1 − p_y), where 1 − p_y is in [0, 1].

    Args:
        sample: the sample.
        held_out: whether the model never saw the sample; nothing follows from a training set.
        confidence: confidence of the bounds, between 0 and 1.

    Returns:
        The certificates; 0 stands for the left side, which is not observable.

    Raises:
        BadInput: when ``confidence`` is not between 0 and 1.
    """
    n = len(sample.predictions)
    more = hoeffding_term(n, confidence)
    unseen = Hypothesis("the model did not see the sample, drawn independently from π", held_out, assumed=held_out)
    name, at = "Theorem 4.1 (i), population", f"with confidence {confidence:.0%}"
    plain, tail = sample.one_minus_p_true.mean(), tail_upper(sample.margins, sample.classes).mean()
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
