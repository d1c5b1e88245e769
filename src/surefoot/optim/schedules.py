"""Learning rates over a run, as factors of the step: pure functions, and torch schedulers made of them."""

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
    """1 throughout."""
    return lambda step: 1.0


def cosine(total: int, floor: float = 0.0) -> Factor:
    """From 1 at step 0 to ``floor`` at step ``total`` along half a cosine, and ``floor`` from there on."""
    check_int("total", total, 1)
    if not 0 <= floor <= 1:
        raise BadInput(f"floor must lie in [0, 1]; got {floor!r}")
    return lambda step: floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(step, total) / total))


def stepped(milestones: Sequence[int], factor: float = 0.1) -> Factor:
    """Times ``factor`` from each milestone on."""
    if not isinstance(milestones, Sequence) or list(milestones) != sorted(set(milestones)):
        raise BadInput(f"milestones must be a list of increasing steps; got {milestones!r}")
    for milestone in milestones:
        check_int("milestones", milestone, 1)
    check_positive("factor", factor)
    return lambda step: factor ** sum(step >= milestone for milestone in milestones)


def warm_up(steps: int, then: Factor) -> Factor:
    """A straight line from 1/``steps`` at step 0 to 1 at step ``steps`` − 1, and then ``then``, started at 0."""
    check_int("steps", steps, 0)
    _check_made("then", then)
    return lambda step: (step + 1) / steps if step < steps else then(step - steps)


def schedule(optimizer: Optimizer, factor: Factor) -> LambdaLR:
    """A torch scheduler that multiplies every group's learning rate by ``factor(step)``.

    >>> import torch
    >>> opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    >>> s = schedule(opt, warm_up(2, cosine(10)))
    >>> s.get_last_lr()
    [0.05]
    """
    _check_made("factor", factor)
    return LambdaLR(optimizer, factor)


def _check_made(name: str, factor: Factor) -> None:
    makers: tuple[object, ...] = (constant, cosine, stepped, warm_up)
    if factor in makers or not callable(factor):
        raise BadInput(f"{name} must be a function of the step, such as cosine(1000); got {factor!r}")
