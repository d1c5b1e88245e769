"""surefoot: watch calibration, curvature and margins while a network trains.

The root is lazy: ``import surefoot`` costs milliseconds, and torch is imported only by what needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from surefoot import deprecated

deprecated.install()

__version__ = "0.1.0"
__all__ = [
    "Evaluation",
    "Predictions",
    "Tracker",
    "__version__",
    "curvature",
    "data",
    "ensembles",
    "errors",
    "evaluate",
    "evaluation",
    "integrations",
    "losses",
    "margins",
    "metrics",
    "models",
    "optim",
    "posthoc",
    "report",
    "shift",
    "study",
    "theory",
    "train",
]

# Public name -> module that defines it; a module standing for itself maps to its own name.
_HOMES = {
    "Evaluation": "surefoot.evaluation",
    "Predictions": "surefoot.predictions",
    "Tracker": "surefoot.training.tracker",
    "curvature": "surefoot.curvature",
    "data": "surefoot.data",
    "ensembles": "surefoot.ensembles",
    "errors": "surefoot.errors",
    "evaluate": "surefoot.evaluation",
    "evaluation": "surefoot.evaluation",
    "integrations": "surefoot.integrations",
    "losses": "surefoot.losses",
    "margins": "surefoot.margins",
    "metrics": "surefoot.metrics",
    "models": "surefoot.models",
    "optim": "surefoot.optim",
    "posthoc": "surefoot.posthoc",
    "report": "surefoot.reports.page",
    "shift": "surefoot.shift",
    "study": "surefoot.studies.api",
    "theory": "surefoot.theory",
    "train": "surefoot.training.run",
}

if TYPE_CHECKING:
    from surefoot import (
        curvature,
        data,
        ensembles,
        errors,
        evaluation,
        integrations,
        losses,
        margins,
        metrics,
        models,
        optim,
        posthoc,
        shift,
        theory,
    )
    from surefoot.evaluation import Evaluation, evaluate
    from surefoot.predictions import Predictions
    from surefoot.reports.page import report
    from surefoot.studies.api import study
    from surefoot.training.run import train
    from surefoot.training.tracker import Tracker


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'surefoot' has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}")
    module = importlib.import_module(home)
    value = module if home == f"surefoot.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
