"""The one table from names, as specs write them, to objectives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from surefoot.errors import BadInput
from surefoot.loss import CrossEntropy, Loss, SquaredError
from surefoot.losses.ada_focal import AdaFocal
from surefoot.losses.ar_adals import ARAdaLS
from surefoot.losses.batch_gaps import MDCA, MMCE, SoftECE
from surefoot.losses.calmo import CalMO
from surefoot.losses.cross_entropy import ConfidencePenalty, LabelSmoothing
from surefoot.losses.focal import FLSD53, DualFocal, Focal
from surefoot.losses.logit_margins import ACLS, MbLS
from surefoot.losses.margin_tail import MarginTail
from surefoot.losses.mixing import MITL, Mixup
from surefoot.losses.objective import Objective, as_objective
from surefoot.losses.pairwise import CPC
from surefoot.losses.ranking import CRL
from surefoot.losses.two_heads import BalCAL
from surefoot.validation import check_options, suggest

__all__ = ["LOSSES", "Facts", "build_objective"]

LOSSES: dict[str, Callable[..., Loss | Objective]] = {
    "ce": CrossEntropy,
    "mse": SquaredError,
    "mse-half": partial(SquaredError, "half"),
    "mse-sum": partial(SquaredError, "sum"),
    "label-smoothing": LabelSmoothing,
    "confidence-penalty": ConfidencePenalty,
    "focal": Focal,
    "flsd-53": FLSD53,
    "dual-focal": DualFocal,
    "ada-focal": AdaFocal,
    "mbls": MbLS,
    "acls": ACLS,
    "mmce": MMCE,
    "mdca": MDCA,
    "cpc": CPC,
    "crl": CRL,
    "mixup": Mixup,
    "mit-l": MITL,
    "balcal": BalCAL,
    "ar-adals": ARAdaLS,
    "soft-ece": SoftECE,
    "calmo": CalMO,
    "margin-tail": MarginTail,
}


@dataclass(frozen=True)
class Facts:
    """What a loss may need to know of the data: numbers of training examples and classes, radii in the inputs' units.

    ``radius`` turns a radius in units of the raw data, as specs have it, into one for each coordinate of an input.
    """

    examples: int
    classes: int
    radius: Callable[[float], Tensor]


def build_objective(name: str, options: Mapping[str, Any], facts: Facts) -> Objective:
    """The objective ``name`` with its own options; ``eps`` is in units of the raw data.

    >>> build_objective("focal", {"gamma": 2.0}, Facts(100, 10, Tensor)).loss.gamma
    2.0
    """
    if name not in LOSSES:
        raise BadInput(f"loss must be one of {', '.join(LOSSES)}; got {name!r}{suggest(name, LOSSES)}")
    build = LOSSES[name]
    parameters = inspect.signature(build).parameters
    own = {"examples": facts.examples, "classes": facts.classes}
    # The loop takes the mean, and what the data say is not asked for again.
    check_options(f"loss {name}", options, [each for each in parameters if each not in ("reduction", *own)])
    given = dict(options) | {fact: value for fact, value in own.items() if fact in parameters}
    if "eps" in parameters:
        given["eps"] = facts.radius(_radius(name, given.get("eps", parameters["eps"].default)))
    try:
        return as_objective(build(**given))
    except BadInput as error:
        raise BadInput(f"loss {name}: {error}") from error


def _radius(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise BadInput(f"loss {name}: eps must be a number of at least 0, in units of the raw data; got {value!r}")
    return float(value)
