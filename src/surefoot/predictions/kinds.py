"""Whether scores are what they are said to be: logits, or probabilities.

Libraries that guess whether an array holds logits or probabilities guess wrong at times. Scores are therefore given as
one or the other, and refused if they plainly are something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.validation import explain_bad_logits, rounding_of_sums

__all__ = ["check_logits", "check_probs"]

Floats = NDArray[np.float64]
Blocks = Callable[[], Iterator[Floats]]

# A row of probabilities may be off 1 by the rounding of half precision, or by the rounding of its own decimals up to
# the second number.
_SUM_TOLERANCE, _LARGEST_TOLERANCE = 1e-3, 1e-2 + 1e-9
# bfloat16 rounds a probability by at most 2^-9 of itself, and so the sum of a row; twice that is allowed.
_HALF_ROUNDING = 2.0**-8
# Scores are refused as outputs of sigmoids only from this many rows and this largest score on: a few logits, or very
# small ones, lie in [0, 1] by accident.
_SUSPICIOUS_ROWS, _SUSPICIOUS_SCORE = 10, 0.1


def check_logits(scores: NDArray[np.generic], blocks: Blocks) -> None:
    """Check that scores are logits.

    Args:
        scores: (n, k) scores as given, or (n, 1) for logits of the positive class.
        blocks: gives the same scores block by block, in float64.

    Raises:
        BadInput: when a row is not finite, or the scores are probabilities, outputs of sigmoids or percentages.
    """
    if scores.dtype.kind in "iu" and max(-int(scores.min()), int(scores.max())) > 2**53:
        raise BadInput("logits given as integers must be at most 2**53 in size; give floating-point numbers")
    tops = np.concatenate([block.max(axis=1) for block in blocks()])
    if scores.shape[1] == 1:
        tops = np.where(np.isneginf(tops), 0.0, tops)  # the other class has the logit 0
    if not np.isfinite(tops).all():
        raise BadInput(explain_bad_logits(tops))
    if tops.min() < 0 or tops.max() > 100:  # every kind of probability lies in between
        return
    kind = _kind(blocks, scores.shape)
    if kind is not None:
        raise BadInput(
            f"logits must be unnormalised scores; {kind}. If they truly are logits, add 1 to all of them: nothing else "
            "changes"
        )


def _kind(blocks: Blocks, shape: tuple[int, ...]) -> str | None:
    """What scores seem to be instead of logits, and the constructor for that; None if they may be logits."""
    single = shape[1] == 1
    low, high, off_one, off_hundred, fractions = np.inf, 0.0, 0.0, 0.0, False
    rounding = _HALF_ROUNDING
    for block in blocks():
        low, high = min(low, float(block.min())), max(high, float(block.max()))
        if low < 0:
            return None
        sums = block.sum(axis=1)
        off_hundred = max(off_hundred, float(np.abs(sums - 100).max()))
        if high <= 1:
            off = np.abs(sums - 1)
            far = off > _HALF_ROUNDING
            if far.any():
                off[far] = np.where(off[far] <= rounding_of_sums(block[far]), 0.0, off[far])
            off_one = max(off_one, float(off.max()))
        inside = ((block > 0) & (block < 1)).any(axis=1)
        if not single:
            inside &= block.max(axis=1) > block.min(axis=1)  # one-hot and flat rows may be logits
        fractions = fractions or bool(inside.any())
    if high <= 1 and not fractions:
        return None
    many = shape[0] >= _SUSPICIOUS_ROWS and high >= _SUSPICIOUS_SCORE
    if high <= 1 and not single and off_one <= rounding:
        return (
            "every row lies in [0, 1] and sums to 1, so these are probabilities: use Predictions.from_probs, or "
            "Predictions.load(file, kind='probs')"
        )
    if high <= 1 and single and many:
        return "every score lies in [0, 1], so these are probabilities: use Predictions.from_probs(probs, labels)"
    if high <= 1 and many:
        return (
            "every entry lies in [0, 1] and the rows do not sum to 1, so these are outputs of sigmoids: use "
            "Predictions.multilabel if each column is a label of its own; for one label a row divide each row by its "
            "sum and use Predictions.from_probs"
        )
    if high > 1 and not single and many and off_hundred <= 1:
        return "every row sums to 100, so these are percentages: divide by 100 and use Predictions.from_probs"
    return None


def check_probs(name: str, blocks: Blocks, unit: float = 0.0) -> None:
    """Check that scores are probabilities, each row by itself.

    Args:
        name: name of the argument, for errors.
        blocks: gives the scores (b, k), or (b, 1) for probabilities of the positive class, block by block in float64.
        unit: unit of rounding of the numbers as given.

    Raises:
        BadInput: when an entry is below 0, or a row does not sum to 1 within the rounding of its own numbers.
    """
    begin = 0
    for block in blocks():
        low, sums = block.min(axis=1), block.sum(axis=1)
        if block.shape[1] == 1:
            bad = ~((low >= 0) & (sums <= 1))
        else:
            off = np.abs(sums - 1)
            slack = np.full(len(block), min(_LARGEST_TOLERANCE, max(_SUM_TOLERANCE, unit)))
            far = np.flatnonzero(off > slack)
            slack[far] = np.clip(rounding_of_sums(block[far]), slack[far], _LARGEST_TOLERANCE)
            bad = ~((low >= 0) & (off <= slack))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise BadInput(_explain(name, begin + row, block[row], blocks))
        begin += len(block)


def _explain(name: str, row: int, values: Floats, blocks: Blocks) -> str:
    """The error about a row that is not a row of probabilities, and what the scores seem to be."""
    everything = list(blocks())
    low = min(float(block.min()) for block in everything)
    high = max(float(block.max()) for block in everything)
    if len(values) == 1:
        hint = "For logits use Predictions(logits, labels)"
        if low >= 0 and 1 < high <= 100:
            hint = "These look like percentages: divide them by 100"
        elif high <= 0:
            hint = "For log-probabilities give their exponentials; for logits use Predictions(logits, labels)"
        return f"{name} must lie in [0, 1]; row {row} has {values[0]:.6g}. {hint}"
    sums = np.concatenate([block.sum(axis=1) for block in everything])
    hint = "For logits use Predictions(logits, labels); for rounded numbers divide each row by its sum"
    if high <= 0 and all(np.abs(np.exp(block).sum(axis=1) - 1).max() <= 1e-2 for block in everything):
        hint = "These are log-probabilities: use Predictions(log_probs, labels)"
    elif low >= 0 and high <= 100 and np.abs(sums - 100).max() <= 1:
        hint = "These are percentages: divide them by 100"
    elif low >= 0 and high <= 1 and (np.abs(sums - 1) > _LARGEST_TOLERANCE).mean() > 0.5:
        hint = (
            "If each column is a label of its own (outputs of sigmoids), use Predictions.multilabel; if each row is "
            "one distribution, divide each row by its sum"
        )
    what = f"its smallest entry is {values.min():.6g}" if not values.min() >= 0 else f"it sums to {values.sum():.6g}"
    return (
        f"{name} must be non-negative with rows summing to 1 (within {_SUM_TOLERANCE:.0e}, or the rounding of the "
        f"row's decimals up to {_LARGEST_TOLERANCE:.0e}); row {row} is not: {what}. {hint}"
    )
