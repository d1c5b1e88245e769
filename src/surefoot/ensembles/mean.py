"""The mean of several predictions, with probabilities averaged in log space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from surefoot.errors import BadInput
from surefoot.predictions import Predictions, check_predictions

__all__ = ["mean_predictions"]


def mean_predictions(members: Sequence[Predictions]) -> Predictions:
    """Average the probabilities of several members: the result has the logits log((1/M) Σ_m exp(log p_m)).

    Args:
        members: M predictions, at least one, of the same rows in the same order and of the same classes.

    Returns:
        The predictions with the mean probabilities.

    Raises:
        BadInput: when ``members`` is not as described.

    Example:
        >>> one, two = Predictions([[0.0, 0.0]], [0]), Predictions([[2.0, 0.0]], [0])
        >>> mean_predictions([one, two]).probs.round(4).tolist()
        [[0.6904, 0.3096]]
    """
    if len(members) == 0:
        raise BadInput("an ensemble needs one member at least; got none")
    first = check_predictions("members[0]", members[0])
    for index, member in enumerate(members):
        check_predictions(f"members[{index}]", member)
        if member.classes != first.classes:
            raise BadInput(
                f"members must have the same classes; member 0 has {first.classes}, member {index} {member.classes}"
            )
        if len(member) != len(first) or (member.labels != first.labels).any():
            raise BadInput(f"members must have the same rows in the same order; member {index} differs")
    stack = np.stack([member.log_probs for member in members])
    return Predictions(logsumexp(stack, axis=0) - np.log(len(members)), first.labels)
