"""Check that a spec's model, ensemble, loss and optimizer can be built, before any run; the data's shape is enough."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from surefoot.curvature.lanczos import Eigenpairs
from surefoot.losses.registry import Facts
from surefoot.optim.registry import build_optimizer
from surefoot.training.assemble import network_of, objective_of
from surefoot.training.spec import RunSpec, members_of

__all__ = ["check_parts"]


class _NoCurvature:
    """Stands for the curvature of a training loss while an optimizer that uses curvature is built."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters: Mapping[str, Tensor] = {n: p for n, p in model.named_parameters() if p.requires_grad}

    def top(self, k: int, tol: float, start: Tensor | None, *, max_products: int) -> Eigenpairs:
        """Never called: the optimizer is built and discarded."""
        raise AssertionError("an optimizer must not ask for curvature while it is built")


def check_parts(spec: RunSpec, shape: tuple[int, ...], classes: int) -> None:
    """Build the parts of a run without memory, on the ``meta`` device.

    Args:
        spec: the run.
        shape: shape of one example as the network receives it.
        classes: number of classes.

    Raises:
        BadInput: if a part cannot be built with its options. Other errors of constructors pass through.
    """
    if spec.ensemble is not None and spec.ensemble.name == "deep":
        members_of(spec)
    objective = objective_of(spec, Facts(1, classes, torch.tensor))
    with torch.device("meta"):
        model = network_of(spec, objective, shape, classes)
    build_optimizer(spec.optimizer.name, model, spec.optimizer.options, lambda: _NoCurvature(model))
