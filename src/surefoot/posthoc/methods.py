"""The calibrators by name, for the command line and for files."""

from __future__ import annotations

from surefoot.errors import BadInput
from surefoot.posthoc.calibrator import Calibrator
from surefoot.posthoc.ensemble import EnsembleTemperature
from surefoot.posthoc.identity import Identity
from surefoot.posthoc.linear import Dirichlet, Matrix, Vector
from surefoot.posthoc.ovr import Beta, Platt
from surefoot.posthoc.tables import BBQ, Histogram, Isotonic
from surefoot.posthoc.temperature import Temperature

__all__ = ["METHODS", "build_calibrator"]

# Simplest first.
METHODS: dict[str, type[Calibrator]] = {
    kind.method: kind
    for kind in (
        Identity,
        Temperature,
        EnsembleTemperature,
        Platt,
        Beta,
        Vector,
        Histogram,
        Isotonic,
        BBQ,
        Dirichlet,
        Matrix,
    )
}


def build_calibrator(name: str) -> Calibrator:
    """Make a calibrator with default settings.

    Args:
        name: a key of `METHODS`, or ``"isotonic-pooled"``, which is `Isotonic` with one map for all classes.

    Returns:
        A new calibrator, not fitted.

    Raises:
        BadInput: when there is no calibrator of that name; the error lists the names.

    Example:
        >>> build_calibrator("temperature")
        Temperature()
    """
    if name == "isotonic-pooled":
        return Isotonic(pooled=True)
    kind = METHODS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise BadInput(f"method must be one of auto, {', '.join(METHODS)} or isotonic-pooled; got {name!r}")
    return kind()
