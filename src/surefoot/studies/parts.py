"""Whether a spec's model, loss and step rule can be built, before any run starts; the data's shape is enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.lanczos import Eigenpairs
from surefoot.curvature.losses import loss_named
from surefoot.models import model_named
from surefoot.optim.names import rule_named
from surefoot.training.spec import RunSpec

__all__ = ["check_parts"]


class _NoCurvature:
    """Stands for the curvature of a training loss where only the rule around it is built."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters: Mapping[str, Tensor] = {n: p for n, p in model.named_parameters() if p.requires_grad}

    def top(self, k: int, tol: float, start: Tensor | None, *, max_matvecs: int) -> Eigenpairs:
        """Never asked: the rule is built and thrown away."""
        raise AssertionError("a rule must not ask for curvature while it is built")


def check_parts(spec: RunSpec, shape: tuple[int, ...], classes: int) -> None:
    """Build the parts on no memory at all, or raise what building them raises."""
    loss_named(spec.loss.name)
    options: dict[str, Any] = spec.model.options
    with torch.device("meta"):
        model = model_named(spec.model.name, shape, classes, **options)
    rule_named(spec.rule.name, model, spec.rule.options, lambda: _NoCurvature(model))
