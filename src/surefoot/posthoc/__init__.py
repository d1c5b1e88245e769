"""Post-hoc calibration: recalibrate a trained classifier from held-out predictions."""

from typing import TYPE_CHECKING

from surefoot.deprecated import renamed_names
from surefoot.posthoc.auto import Auto, Candidate, default_candidates
from surefoot.posthoc.calibrator import Calibrator, NotFitted
from surefoot.posthoc.compare import Change, Comparison, check_splits, compare
from surefoot.posthoc.ensemble import EnsembleTemperature
from surefoot.posthoc.files import load
from surefoot.posthoc.gain import recalibration_gain
from surefoot.posthoc.groups import ByGroup, GroupGain
from surefoot.posthoc.identity import Identity
from surefoot.posthoc.linear import Dirichlet, Matrix, Vector
from surefoot.posthoc.ovr import Beta, Platt
from surefoot.posthoc.prior import PriorShift
from surefoot.posthoc.registry import CALIBRATORS, build_calibrator
from surefoot.posthoc.structured import StructuredMatrix, StructuredVector
from surefoot.posthoc.tables import BBQ, Histogram, Isotonic
from surefoot.posthoc.temperature import Temperature

__all__ = [
    "BBQ",
    "CALIBRATORS",
    "Auto",
    "Beta",
    "ByGroup",
    "Calibrator",
    "Candidate",
    "Change",
    "Comparison",
    "Dirichlet",
    "EnsembleTemperature",
    "GroupGain",
    "Histogram",
    "Identity",
    "Isotonic",
    "Matrix",
    "NotFitted",
    "Platt",
    "PriorShift",
    "StructuredMatrix",
    "StructuredVector",
    "Temperature",
    "Vector",
    "build_calibrator",
    "check_splits",
    "compare",
    "default_candidates",
    "load",
    "recalibration_gain",
]

if not TYPE_CHECKING:  # a module's __getattr__ would hide wrong names from type checkers
    __getattr__ = renamed_names(__name__)
