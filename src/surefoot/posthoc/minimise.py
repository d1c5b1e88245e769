"""Minimisation of smooth functions of a vector: Newton's method and L-BFGS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from surefoot.posthoc.calibrator import Floats

__all__ = ["Objective", "minimise", "newton"]

Objective = Callable[[Floats], tuple[float, Floats]]


def newton(objective: Objective, curvature: Callable[[Floats], Floats], theta: Floats, tol: float) -> Floats:
    """Minimise a convex objective by Newton's method with step halving.

    Args:
        objective: value and gradient at θ.
        curvature: (m, m) second derivative at θ.
        theta: (m,) the start.
        tol: the search ends where no entry of the gradient is larger.

    Returns:
        (m,) the minimiser.
    """
    value, slope = objective(theta)
    for _ in range(100):
        if np.abs(slope).max() <= tol:
            break
        matrix = curvature(theta)
        # Adding a constant to a column of W changes only the penalty: a small multiple of the trace keeps the step
        # finite in these flat directions.
        matrix[np.diag_indices_from(matrix)] += 1e-10 * np.trace(matrix) / len(matrix)
        step = np.linalg.solve(matrix, slope)
        gain, size = float(slope @ step), 1.0
        while size > 1e-6:
            new_value, new_slope = objective(theta - size * step)
            if new_value <= value - 1e-4 * size * gain:
                break
            size /= 2
        else:
            break  # rounding: no smaller step lowers the objective
        theta, value, slope = theta - size * step, new_value, new_slope
    return theta


def minimise(objective: Objective, start: Floats, tol: float = 1e-8) -> Floats:
    """Minimise an objective by L-BFGS.

    Args:
        objective: value and gradient at θ.
        start: (m,) the start.
        tol: the search ends where no entry of the gradient is larger.

    Returns:
        (m,) the minimiser.
    """
    # The search ends when a step gains less than a thousandth of the tolerance; the NLL itself is known to 1/√n only.
    options = {"maxiter": 2000, "maxfun": 4000, "gtol": tol, "ftol": max(1e-3 * tol, 1e-13), "maxcor": 20}
    theta: Floats = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
    return theta
