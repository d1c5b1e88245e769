"""The one table of calibrators, and how a name becomes a calibrator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surefoot.errors import BadInput
from surefoot.registry import CalibratorEntry, Citation, table

if TYPE_CHECKING:
    from surefoot.posthoc.calibrator import Calibrator

__all__ = ["CALIBRATORS", "build_calibrator"]

_GUO2017 = Citation("Guo et al.", 2017, "On Calibration of Modern Neural Networks")
_KULL2019 = Citation(
    "Kull et al.", 2019,
    "Beyond Temperature Scaling: Obtaining Well-Calibrated Multi-Class Probabilities with Dirichlet Calibration",
)  # fmt: skip
_ZADROZNY2002 = Citation(
    "Zadrozny and Elkan", 2002, "Transforming Classifier Scores into Accurate Multiclass Probability Estimates"
)
_MODULES = "surefoot.posthoc.modules"

# Simplest first: `Auto` prefers the earlier of two that are as good.
CALIBRATORS: dict[str, CalibratorEntry] = table(
    [
        CalibratorEntry(
            "none", "surefoot.posthoc.identity:Identity", keeps_order=True, module=f"{_MODULES}:temperature_module",
        ),
        CalibratorEntry(
            "temperature", "surefoot.posthoc.temperature:Temperature", keeps_order=True,
            module=f"{_MODULES}:temperature_module", citation=_GUO2017,
        ),
        CalibratorEntry(
            "ets", "surefoot.posthoc.ensemble:EnsembleTemperature", keeps_order=True,
            module=f"{_MODULES}:ensemble_module",
            citation=Citation(
                "Zhang, Kailkhura and Han", 2020,
                "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep Learning",
            ),
        ),
        CalibratorEntry(
            "platt", "surefoot.posthoc.ovr:Platt", module=f"{_MODULES}:logistic_module",
            citation=Citation(
                "Platt", 1999,
                "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood Methods",
            ),
        ),
        CalibratorEntry(
            "beta", "surefoot.posthoc.ovr:Beta", module=f"{_MODULES}:logistic_module",
            citation=Citation(
                "Kull, Silva Filho and Flach", 2017,
                "Beta Calibration: A Well-Founded and Easily Implemented Improvement on Logistic Calibration for "
                "Binary Classifiers",
            ),
        ),
        CalibratorEntry(
            "vector", "surefoot.posthoc.linear:Vector", module=f"{_MODULES}:affine_module", citation=_GUO2017,
        ),
        CalibratorEntry(
            "histogram", "surefoot.posthoc.tables:Histogram", module=f"{_MODULES}:table_module",
            citation=Citation(
                "Zadrozny and Elkan", 2001,
                "Obtaining Calibrated Probability Estimates from Decision Trees and Naive Bayesian Classifiers",
            ),
        ),
        CalibratorEntry(
            "isotonic", "surefoot.posthoc.tables:Isotonic", module=f"{_MODULES}:table_module", citation=_ZADROZNY2002,
        ),
        CalibratorEntry(
            "bbq", "surefoot.posthoc.tables:BBQ", module=f"{_MODULES}:table_module",
            citation=Citation(
                "Naeini, Cooper and Hauskrecht", 2015,
                "Obtaining Well Calibrated Probabilities Using Bayesian Binning",
            ),
        ),
        CalibratorEntry(
            "dirichlet", "surefoot.posthoc.linear:Dirichlet", module=f"{_MODULES}:affine_module", citation=_KULL2019,
        ),
        CalibratorEntry(
            "matrix", "surefoot.posthoc.linear:Matrix", module=f"{_MODULES}:affine_module", citation=_GUO2017,
        ),
        CalibratorEntry(
            "isotonic-pooled", "surefoot.posthoc.tables:Isotonic", fixed={"pooled": True},
            keeps_order=True, module=f"{_MODULES}:table_module", citation=_ZADROZNY2002,
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
