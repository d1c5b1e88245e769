"""The one table of calibrators, and how a name becomes a calibrator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surefoot.errors import BadInput
from surefoot.registry import CalibratorEntry, Citation, table

if TYPE_CHECKING:
    from surefoot.posthoc.calibrator import Calibrator

__all__ = ["CALIBRATORS", "build_calibrator"]

_BERTA2026 = Citation("Berta et al.", 2026, "Structured Matrix Scaling for Multi-Class Calibration")
_GUO2017 = Citation("Guo et al.", 2017, "On Calibration of Modern Neural Networks")
_KULL2019 = Citation(
    "Kull et al.", 2019,
    "Beyond Temperature Scaling: Obtaining Well-Calibrated Multi-Class Probabilities with Dirichlet Calibration",
)  # fmt: skip
_ZADROZNY2002 = Citation(
    "Zadrozny and Elkan", 2002, "Transforming Classifier Scores into Accurate Multiclass Probability Estimates"
)
_MODULES = "surefoot.posthoc.modules"

# What keeps small fits from harm: a prior on the temperature, and a share of the uniform distribution.
_SAFE = {"prior": 0.5, "mixed": True}

# Simplest first: `Auto` lets the first that may change anything stand, unless a later one is clearly better.
CALIBRATORS: dict[str, CalibratorEntry] = table(
    [
        CalibratorEntry(
            "none", "surefoot.posthoc.identity:Identity", keeps_order=True, module=f"{_MODULES}:temperature_module",
        ),
        CalibratorEntry(
            "temperature", "surefoot.posthoc.temperature:Temperature", keeps_order=True, auto=_SAFE,
            module=f"{_MODULES}:temperature_module", citation=_GUO2017,
        ),
        CalibratorEntry(
            "ets", "surefoot.posthoc.ensemble:EnsembleTemperature", keeps_order=True, auto=_SAFE,
            module=f"{_MODULES}:ensemble_module",
            citation=Citation(
                "Zhang, Kailkhura and Han", 2020,
                "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep Learning",
            ),
        ),
        CalibratorEntry(
            "svs", "surefoot.posthoc.structured:StructuredVector", auto=_SAFE,
            module=f"{_MODULES}:structured_module", citation=_BERTA2026,
        ),
        CalibratorEntry(
            "sms", "surefoot.posthoc.structured:StructuredMatrix", auto=_SAFE,
            module=f"{_MODULES}:structured_module", citation=_BERTA2026,
        ),
        CalibratorEntry(
            "platt", "surefoot.posthoc.ovr:Platt", auto=None, module=f"{_MODULES}:logistic_module",
            citation=Citation(
                "Platt", 1999,
                "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood Methods",
            ),
        ),
        CalibratorEntry(
            "beta", "surefoot.posthoc.ovr:Beta", auto=None, module=f"{_MODULES}:logistic_module",
            citation=Citation(
                "Kull, Silva Filho and Flach", 2017,
                "Beta Calibration: A Well-Founded and Easily Implemented Improvement on Logistic Calibration for "
                "Binary Classifiers",
            ),
        ),
        CalibratorEntry(
            "vector", "surefoot.posthoc.linear:Vector", auto=None, module=f"{_MODULES}:affine_module",
            citation=_GUO2017,
        ),
        CalibratorEntry(
            "histogram", "surefoot.posthoc.tables:Histogram", auto=None, module=f"{_MODULES}:table_module",
            citation=Citation(
                "Zadrozny and Elkan", 2001,
                "Obtaining Calibrated Probability Estimates from Decision Trees and Naive Bayesian Classifiers",
            ),
        ),
        CalibratorEntry(
            "isotonic", "surefoot.posthoc.tables:Isotonic", auto=None, module=f"{_MODULES}:table_module",
            citation=_ZADROZNY2002,
        ),
        CalibratorEntry(
            "bbq", "surefoot.posthoc.tables:BBQ", auto=None, module=f"{_MODULES}:table_module",
            citation=Citation(
                "Naeini, Cooper and Hauskrecht", 2015,
                "Obtaining Well Calibrated Probabilities Using Bayesian Binning",
            ),
        ),
        CalibratorEntry(
            "dirichlet", "surefoot.posthoc.linear:Dirichlet", auto_rows=250, module=f"{_MODULES}:affine_module",
            citation=_KULL2019,
        ),
        CalibratorEntry(
            "matrix", "surefoot.posthoc.linear:Matrix", auto_rows=250, module=f"{_MODULES}:affine_module",
            citation=_GUO2017,
        ),
        CalibratorEntry(
            "isotonic-pooled", "surefoot.posthoc.tables:Isotonic", fixed={"pooled": True},
            keeps_order=True, auto=None, module=f"{_MODULES}:table_module", citation=_ZADROZNY2002,
        ),
    ]
)  # fmt: skip


def build_calibrator(name: Any) -> Calibrator:
    """Make a calibrator with default settings.

    Args:
        name: a key of `CALIBRATORS`; ``"isotonic-pooled"`` is `Isotonic` with one map for all classes.

    Returns:
        A new calibrator, not fitted.

    Raises:
        BadInput: when there is no calibrator of that name; the error lists the names.

    Example:
        >>> build_calibrator("temperature")
        Temperature()
    """
    entry = CALIBRATORS.get(name) if isinstance(name, str) else None
    if entry is None:
        raise BadInput(f"method must be one of auto, {', '.join(CALIBRATORS)}; got {name!r}")
    calibrator: Calibrator = entry.build()
    return calibrator
