"""Curvature of a network on data: Gauss–Newton and Hessian as operators, and what these operators measure."""

from typing import TYPE_CHECKING

from surefoot.curvature.batch_sharpness import BatchSharpness, batch_sharpness
from surefoot.curvature.directions import PathPoint, curvature_along_sam, rayleigh
from surefoot.curvature.hessian import Hessian
from surefoot.curvature.jacobian import jacobian_norms
from surefoot.curvature.lanczos import Eigenpairs
from surefoot.curvature.operator import GaussNewton, Operator
from surefoot.curvature.sharpness import Sharpness, SharpnessReading
from surefoot.curvature.trace import Density, Trace, spectral_density, trace
from surefoot.deprecated import renamed_names
from surefoot.loss import CrossEntropy, FunctionLoss, SquaredError

__all__ = [
    "BatchSharpness",
    "CrossEntropy",
    "Density",
    "Eigenpairs",
    "FunctionLoss",
    "GaussNewton",
    "Hessian",
    "Operator",
    "PathPoint",
    "Sharpness",
    "SharpnessReading",
    "SquaredError",
    "Trace",
    "batch_sharpness",
    "curvature_along_sam",
    "jacobian_norms",
    "rayleigh",
    "spectral_density",
    "trace",
]

if not TYPE_CHECKING:  # a module's __getattr__ would hide wrong names from type checkers
    __getattr__ = renamed_names(__name__)
