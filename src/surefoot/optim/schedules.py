"""Schedules of the learning rate as factors of the step: pure functions, and torch schedulers made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from surefoot.errors import BadInput
from surefoot.validation import check_int, check_positive

__all__ = ["constant", "cosine", "schedule", "stepped", "warm_up"]

Factor = Callable[[int], float]


def constant() -> Factor:
    """The factor 1 at every step.

    Returns:
        The factor as a function of the step.

    Example:
        >>> constant()(100)
        1.0
    """
    return lambda step: 1.0


def cosine(total: int, floor: float = 0.0) -> Factor:
    """Half a cosine from 1 at step 0 to ``floor`` at step ``total``, and ``floor`` afterwards.

    Args:
        total: steps of the half cosine, at least 1.
        floor: the last factor, in [0, 1].

    Returns:
        The factor as a function of the step.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> [cosine(10)(step) for step in (0, 10, 20)]
        [1.0, 0.0, 0.0]
    """
    check_int("total", total, 1)
    if not 0 <= floor <= 1:
        raise BadInput(f"floor must lie in [0, 1]; got {floor!r}")
    return lambda step: floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(step, total) / total))


def stepped(milestones: Sequence[int], factor: float = 0.1) -> Factor:
    """Multiply by ``factor`` at each milestone.

    Args:
        milestones: increasing steps, each at least 1.
        factor: above 0.

    Returns:
        The factor as a function of the step.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> [stepped([2, 4], factor=0.5)(step) for step in (1, 2, 4)]
        [1.0, 0.5, 0.25]
    """
    if not isinstance(milestones, Sequence) or list(milestones) != sorted(set(milestones)):
        raise BadInput(f"milestones must be a list of increasing steps; got {milestones!r}")
    for milestone in milestones:
        check_int("milestones", milestone, 1)
    check_positive("factor", factor)
    return lambda step: factor ** sum(step >= milestone for milestone in milestones)


def warm_up(steps: int, then: Factor) -> Factor:
    """A straight line from 1/``steps`` at step 0 to 1 at step ``steps`` − 1, followed by ``then``, which starts at 0.

    Args:
        steps: length of the warm-up, at least 0.
        then: factor after the warm-up, a function of the step.

    Returns:
        The factor as a function of the step.

    Raises:
        BadInput: if ``steps`` is out of its range, or ``then`` is no function of the step.

    Example:
        >>> [warm_up(2, constant())(step) for step in (0, 1, 2)]
        [0.5, 1.0, 1.0]
    """
    check_int("steps", steps, 0)
    _check_made("then", then)
    return lambda step: (step + 1) / steps if step < steps else then(step - steps)


def schedule(optimizer: Optimizer, factor: Factor) -> LambdaLR:
    """A torch scheduler that multiplies every group's learning rate by ``factor(step)``.

    Args:
        optimizer: the optimizer.
        factor: a function of the step, such as ``cosine(1000)``.

    Returns:
        The scheduler.

    Raises:
        BadInput: if ``factor`` is no function of the step.

    Example:
        >>> import torch
        >>> opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        >>> scheduler = schedule(opt, warm_up(2, cosine(10)))
        >>> scheduler.get_last_lr()
        [0.05]
    """
    _check_made("factor", factor)
    return LambdaLR(optimizer, factor)


def _check_made(name: str, factor: Factor) -> None:
    makers: tuple[object, ...] = (constant, cosine, stepped, warm_up)
    if factor in makers or not callable(factor):
        raise BadInput(f"{name} must be a function of the step, such as cosine(1000); got {factor!r}")
