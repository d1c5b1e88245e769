"""Curvature of a network on data: Gauss–Newton and Hessian as operators, and what is read off them."""

from surefoot.curvature.batch_sharpness import BatchSharpness, batch_sharpness
from surefoot.curvature.directions import PathPoint, curvature_along_sam, rayleigh
from surefoot.curvature.gauss_newton import GaussNewton
from surefoot.curvature.hessian import Hessian
from surefoot.curvature.jacobian import jacobian_norms
from surefoot.curvature.lanczos import Eigenpairs
from surefoot.curvature.losses import Convex, CrossEntropy, SquaredError
from surefoot.curvature.operator import Operator
from surefoot.curvature.sharpness import Sharpness, SharpnessReading
from surefoot.curvature.trace import Density, Trace, spectral_density, trace

__all__ = [
    "BatchSharpness",
    "Convex",
    "CrossEntropy",
    "Density",
    "Eigenpairs",
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
