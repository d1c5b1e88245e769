"""Lemmas and theorems of Tan et al. (2026): the slack's closed form, the corrected exponent, the path."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot as sf
from surefoot.errors import BadInput
from surefoot.theory.sam import SamStep, entropy_slack, largest_rho, sam_certificates, sam_step

logs = st.floats(-40, -1e-12)


def entropy(p):
    return -p * math.log(p) - (1 - p) * math.log1p(-p)


@settings(max_examples=500)
@given(logs, logs)
def test_slack_is_the_theorems(a, b):
    """Against the inequality written out, where float64 can write it out; its sign everywhere."""
    slack = float(entropy_slack(a, b))
    assert (slack >= 0) == (b <= a)
    p, q = math.exp(a), math.exp(b)
    if 1e-6 < p < 1 - 1e-6 and 1e-6 < q < 1 - 1e-6:
        weight = (1 - q) / (1 - p)
        plain = -b - (-a - weight * entropy(p) + entropy(q))
        assert slack == pytest.approx(plain, rel=1e-7, abs=1e-9 * (1 + weight))


@settings(max_examples=300)
@given(st.floats(-0.69, -1e-9), st.floats(0, 1), st.floats(0, 2))
def test_theorem_3(b, up, gamma):
    a = b * (1 - up)
    step = SamStep(0.1, 1.0, np.array([min(a, -1e-12)]), np.array([b]))
    third = sam_certificates(step, gamma)[-1]
    assert third.verdict == "holds"


def test_theorem_3_speaks_of_sure_examples_only():
    step = SamStep(0.1, 1.0, np.log([0.4, 0.9]), np.log([0.3, 0.95]))
    assert sam_certificates(step)[-1].verdict == "not applicable"
    sure = SamStep(0.1, 1.0, np.log([0.9]), np.log([0.8]))
    assert sam_certificates(sure, gamma=3.0)[-1].verdict == "not applicable"
    assert sam_certificates(sure, gamma=2.0)[-1].verdict == "holds"


def logistic():
    """w = 0, x = 10, ρ = 0.1; convex, so the condition on κ_min holds."""
    net = torch.nn.Linear(1, 2, bias=False).double()
    with torch.no_grad():
        net.weight.zero_()
    return net, torch.tensor([[10.0]], dtype=torch.float64), torch.tensor([0])


def test_the_printed_exponent_fails_and_the_corrected_one_holds():
    net, x, y = logistic()
    step = sam_step(net, x, y, 0.1, points=3)
    first = sam_certificates(step)[0]
    assert first.name == "Lemma 1"
    assert step.bounded
    assert first.verdict == "holds"
    ratio = math.exp(step.log_p_tilde[0] - step.log_p[0])
    published = math.exp(-0.1 * step.gradient_norm**2 / 2)
    assert ratio > published  # the square of the norm, as published, is refuted


def small(seed=0):
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    return net, torch.randn(20, 5, dtype=torch.float64), torch.arange(20) % 3


def test_a_step_against_plain_torch():
    net, x, y = small()
    before = [p.detach().clone() for p in net.parameters()]
    step = sam_step(net, x, y, 0.05, points=5)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
    loss = torch.nn.functional.cross_entropy(net(x), y)
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    norm = torch.sqrt(sum((g**2).sum() for g in gradients))
    with torch.no_grad():
        for p, g in zip(net.parameters(), gradients, strict=True):
            p.add_(0.05 * g / norm)
    after = torch.nn.functional.cross_entropy(net(x), y)
    assert step.loss == pytest.approx(float(loss.detach()), rel=1e-12)
    assert step.perturbed_loss == pytest.approx(float(after.detach()), rel=1e-12)
    assert step.gradient_norm == pytest.approx(float(norm.detach()), rel=1e-12)
    assert 0 <= step.rising <= 1
    assert len(step.path) == 5
    assert -1 <= step.linearity <= 1 or math.isnan(step.linearity)
    certificates = sam_certificates(step)
    assert [certificate.name for certificate in certificates] == ["Lemma 2", "Theorem 2", "Theorem 1", "Theorem 3"]
    assert not any(certificate.verdict == "violated" for certificate in certificates)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_lemma_2_holds_wherever_its_condition_does(seed):
    net, x, y = small(seed)
    for rho in (0.01, 0.1, 1.0, 10.0):
        first = sam_certificates(sam_step(net, x, y, rho, points=9))[0]
        assert first.verdict in ("holds", "not applicable")


def test_the_largest_radius():
    net, x, y = small(1)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(3)  # so that negative curvature comes into play
    rho = largest_rho(net, x, y, max_rho=50.0)
    assert 0 < rho < 50
    assert sam_step(net, x, y, rho, 3).bounded
    assert not sam_step(net, x, y, 1.1 * rho, 3).bounded
    assert largest_rho(*logistic(), max_rho=0.3) == 0.3  # convex: any radius


def test_no_gradient_no_direction():
    net, x, y = small()
    with torch.no_grad():
        net[2].weight.zero_()
        net[2].bias.copy_(torch.tensor([900.0, 0.0, 0.0]))
    with pytest.raises(BadInput, match="gradient"):
        sam_step(net, x[:1], torch.tensor([0]), 0.1)
    with pytest.raises(BadInput, match="rho"):
        sam_step(net, x, y, 0.0)


def test_coefficients_are_the_optimizers():
    net, x, y = small(2)
    step = sam_step(net, x, y, 0.05)
    opt = sf.optim.SAM(torch.optim.SGD(net.parameters(), lr=0.0), rho=0.05)

    def closure():
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        return loss

    opt.step(closure)
    assert step.coefficients["lambda"] == pytest.approx(opt.last["lambda"], rel=1e-9)
    assert step.coefficients["lambda0"] == pytest.approx(opt.last["lambda0"], rel=1e-9)
