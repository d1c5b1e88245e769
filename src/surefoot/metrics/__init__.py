"""Calibration metrics: pure functions from `Predictions` to a `Value`, a float that carries its bins, norm and n.

Modules import scipy inside the functions that need scipy: specs and reports read the registry without scipy.
"""

from surefoot.metrics.cox import calibration_in_the_large, calibration_intercept, calibration_slope
from surefoot.metrics.debiased import debiased_ece, sweep_ece
from surefoot.metrics.ece import ChanceECE, adaptive_ece, chance_ece, classwise_ece, ece, mce, rmsce
from surefoot.metrics.gap import event_ece, gap, over_confidence, under_confidence
from surefoot.metrics.grouped import GroupedState, accumulate
from surefoot.metrics.ici import e50, e90, ici
from surefoot.metrics.interval import Interval, interval, intervals
from surefoot.metrics.kce import kce
from surefoot.metrics.ranking import aurc, auroc_misclassification, auroc_ovr, e_aurc, fpr95
from surefoot.metrics.registry import metrics_table, summary
from surefoot.metrics.reliability import Reliability, reliability
from surefoot.metrics.scores import BrierDecomposition, accuracy, brier, brier_decomposition, mean_confidence, nll
from surefoot.metrics.skce import skce
from surefoot.metrics.skill import brier_skill, spiegelhalter_z
from surefoot.metrics.smooth import smooth_ece
from surefoot.metrics.state import CalibrationState
from surefoot.metrics.threshold import threshold_ece
from surefoot.metrics.top_k import top_k_accuracy, top_k_ece
from surefoot.metrics.value import Value

__all__ = [
    "BrierDecomposition",
    "CalibrationState",
    "ChanceECE",
    "GroupedState",
    "Interval",
    "Reliability",
    "Value",
    "accumulate",
    "accuracy",
    "adaptive_ece",
    "aurc",
    "auroc_misclassification",
    "auroc_ovr",
    "brier",
    "brier_decomposition",
    "brier_skill",
    "calibration_in_the_large",
    "calibration_intercept",
    "calibration_slope",
    "chance_ece",
    "classwise_ece",
    "debiased_ece",
    "e50",
    "e90",
    "e_aurc",
    "ece",
    "event_ece",
    "fpr95",
    "gap",
    "ici",
    "interval",
    "intervals",
    "kce",
    "mce",
    "mean_confidence",
    "metrics_table",
    "nll",
    "over_confidence",
    "reliability",
    "rmsce",
    "skce",
    "smooth_ece",
    "spiegelhalter_z",
    "summary",
    "sweep_ece",
    "threshold_ece",
    "top_k_accuracy",
    "top_k_ece",
    "under_confidence",
]
