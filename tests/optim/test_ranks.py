"""Two gloo ranks: the perturbation of the whole batch, or each rank's own (USERS 4)."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import surefoot as sf
from tests.optim.cases import batch, closure, network, weights
from tests.ranks.spawn import on_two_ranks


def _three_steps(own: bool, rank: int, _: Path) -> list[Tensor]:
    model = network().double()
    parallel = DistributedDataParallel(model)
    opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), rho=0.1, per_rank=own)
    x, y = batch()
    x, y = x[12 * rank : 12 * rank + 12].double(), y[12 * rank : 12 * rank + 12]

    def run() -> Tensor:
        alone = parallel.no_sync() if opt.alone else contextlib.nullcontext()
        with alone:
            loss = nn.functional.cross_entropy(parallel(x), y)
            loss.backward()
        return loss

    for _ in range(3):
        opt.step(run)
    return weights(model)


@pytest.mark.parametrize("own", [False, True], ids=["synchronised", "per rank"])
def test_two_ranks(own: bool, tmp_path: Path) -> None:
    first, second = on_two_ranks(functools.partial(_three_steps, own), tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    model = network().double()
    x, y = batch()
    x = x.double()
    if not own:
        opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), rho=0.1)
        for _ in range(3):
            opt.step(closure(model, opt, x, y))
    else:
        _by_halves(model, x, y)
    for a, b in zip(first, weights(model), strict=True):
        assert torch.allclose(a, b, atol=1e-10)


def _by_halves(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """m-sharpness by hand: each half perturbs by its own gradient, the two second gradients are averaged."""
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    parameters = list(model.parameters())
    for _ in range(3):
        total = [torch.zeros_like(p) for p in parameters]
        for half in (slice(0, 12), slice(12, 24)):
            g = torch.autograd.grad(nn.functional.cross_entropy(model(x[half]), y[half]), parameters)
            norm = torch.cat([part.flatten() for part in g]).norm()
            before = weights(model)
            with torch.no_grad():
                for p, part in zip(parameters, g, strict=True):
                    p.add_(part, alpha=float(0.1 / norm))
            there = torch.autograd.grad(nn.functional.cross_entropy(model(x[half]), y[half]), parameters)
            with torch.no_grad():
                for p, start, sum_, part in zip(parameters, before, total, there, strict=True):
                    p.copy_(start)
                    sum_.add_(part, alpha=0.5)
        for p, part in zip(parameters, total, strict=True):
            p.grad = part
        base.step()
