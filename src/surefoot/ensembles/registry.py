"""The one table from names, as specs write them, to ensembles made of a network."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from surefoot.ensembles.batch_ensemble import BatchEnsemble
from surefoot.ensembles.dropout import MCDropout
from surefoot.ensembles.ensemble import Ensemble
from surefoot.ensembles.mimo import MIMO
from surefoot.ensembles.rank_one import Rank1BNN
from surefoot.ensembles.variational import MeanField
from surefoot.errors import BadInput
from surefoot.validation import check_options, suggest

__all__ = ["ENSEMBLES", "build_ensemble"]

ENSEMBLES: dict[str, Callable[..., Ensemble]] = {
    "dropout": MCDropout,
    "batch": BatchEnsemble,
    "rank1": Rank1BNN,
    "vi": MeanField,
    "flipout": partial(MeanField, flipout=True),
    "mimo": MIMO,
}


def build_ensemble(name: str, model: nn.Module, **options: Any) -> Ensemble:
    """The ensemble ``name`` made of ``model``, which it takes over, with its own options."""
    if name not in ENSEMBLES:
        raise BadInput(f"ensemble must be one of deep, {', '.join(ENSEMBLES)}; got {name!r}{suggest(name, ENSEMBLES)}")
    build = ENSEMBLES[name]
    accepted = [each for each in inspect.signature(build).parameters if each not in ("model", "flipout")]
    check_options(f"ensemble {name}", options, accepted)
    return build(model, **options)
