"""One table of step rules, and small problems to run them on; a new rule is a new row of RULES."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import surefoot as sf
from surefoot.curvature import GaussNewton


@dataclass(frozen=True)
class Rule:
    """How to build a rule for a model, and what to expect of it."""

    name: str
    build: Callable[[nn.Module, float], Optimizer]
    passes: int = 1
    # As `build` with the setting that must reduce it to a simpler rule, and that rule.
    reduced: Callable[[nn.Module, float], Optimizer] | None = None
    simpler: Callable[[nn.Module, float], Optimizer] | None = None


def sgd(model: nn.Module, lr: float) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def adamw(model: nn.Module, lr: float) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr)


def muon(model: nn.Module, lr: float) -> Optimizer:
    return sf.optim.Muon(model.named_parameters(), lr=lr, adamw_lr=lr)


def plain(model: nn.Module, lr: float) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def sam(model: nn.Module, lr: float) -> Optimizer:
    return sf.optim.SAM(sgd(model, lr), rho=0.05)


def operator(model: nn.Module) -> GaussNewton:
    device = next(model.parameters())
    return GaussNewton(model, batch()[0].to(device))


RULES = [
    Rule(
        "gd",
        lambda m, lr: sf.optim.GD(m.parameters(), lr),
        simpler=plain,
        reduced=lambda m, lr: sf.optim.GD(m.parameters(), lr),
    ),
    Rule("sgd", sgd),
    Rule("adamw", adamw),
    Rule("muon", muon),
    Rule("sam", sam, 2, lambda m, lr: sf.optim.SAM(sgd(m, lr), rho=0.0), sgd),
    Rule(
        "sam on adamw",
        lambda m, lr: sf.optim.SAM(adamw(m, lr)),
        2,
        lambda m, lr: sf.optim.SAM(adamw(m, lr), rho=0.0),
        adamw,
    ),
    Rule(
        "sam on muon",
        lambda m, lr: sf.optim.SAM(muon(m, lr)),
        2,
        lambda m, lr: sf.optim.SAM(muon(m, lr), rho=0.0),
        muon,
    ),
    Rule(
        "asam",
        lambda m, lr: sf.optim.ASAM(sgd(m, lr), rho=0.1),
        2,
        lambda m, lr: sf.optim.ASAM(sgd(m, lr), rho=0.0),
        sgd,
    ),
    Rule(
        "vasso",
        lambda m, lr: sf.optim.VASSO(sgd(m, lr), rho=0.05),
        2,
        lambda m, lr: sf.optim.VASSO(sgd(m, lr), rho=0.05, theta=1.0),
        sam,
    ),
    Rule("vasso on adamw", lambda m, lr: sf.optim.VASSO(adamw(m, lr)), 2),
    Rule(
        "csam",
        lambda m, lr: sf.optim.CSAM(sgd(m, lr), rho=0.05),
        2,
        lambda m, lr: sf.optim.CSAM(sgd(m, lr), rho=0.05, gamma=0.0),
        sam,
    ),
    Rule("csam on muon", lambda m, lr: sf.optim.CSAM(muon(m, lr)), 2),
    Rule("bsam", lambda m, lr: sf.optim.BSAM(m.parameters(), examples=1000, lr=lr), 2),
    Rule(
        "bulk",
        lambda m, lr: sf.optim.BulkSGD(m.parameters(), lr, operator(m), k=2),
        1,
        lambda m, lr: sf.optim.BulkSGD(m.parameters(), lr, operator(m), k=0),
        plain,
    ),
    Rule("dom", lambda m, lr: sf.optim.DomSGD(m.parameters(), lr, operator(m), k=2), 1),
]
TWO_PASS = [rule for rule in RULES if rule.passes == 2]


def batch(n: int = 24, seed: int = 0, features: int = 6) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=random)
    return x, (x[:, :3] + 0.5 * torch.randn(n, 3, generator=random)).argmax(1)


def network(seed: int = 0, norm: bool = False, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(6, 8), nn.Tanh()]
    if norm:
        layers.append(nn.BatchNorm1d(8))
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, 3))


def criterion(opt: Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
    """Cross-entropy, through `outer` where the rule asks for it."""
    loss = nn.CrossEntropyLoss()
    return opt.outer(loss) if isinstance(opt, sf.optim.CSAM) else loss


def closure(model: nn.Module, opt: Optimizer, x: Tensor, y: Tensor, zero: bool = True) -> Callable[[], Tensor]:
    loss_of = criterion(opt)

    def run() -> Tensor:
        if zero:
            opt.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        return loss

    return run


def train(model: nn.Module, opt: Optimizer, steps: int = 3, seed: int = 0) -> list[float]:
    return [float(opt.step(closure(model, opt, *batch(seed=seed + step))).detach()) for step in range(steps)]


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def same(model: nn.Module, other: Any) -> bool:
    ours = weights(model)
    theirs = weights(other) if isinstance(other, nn.Module) else other
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def twin(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)
