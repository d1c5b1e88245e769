"""Robust margins from above, and the door: which arguments are taken, and what is left as it was."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import surefoot as sf
from surefoot.errors import BadInput
from surefoot.margins import certified, pgd, robust
from surefoot.models import ViT

from .cases import NETS, exact_linear, lowest, margins, net

NORMS = ["inf", 2]


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from(NORMS), st.floats(0, 2))
def test_linear_models_by_their_formula(seed, norm, eps):
    model, x, y = net("linear", seed=seed)
    layer = model[1]
    expected = exact_linear(layer.weight, layer.bias, x, y, eps, norm)
    for bound in ("interval", "cheap", "crown", "lipschitz"):
        torch.testing.assert_close(certified(model, x, y, eps, norm, bound), expected, atol=1e-7, rtol=0)
    for bound in ("cheap", "crown"):
        bounds = certified(model, x, y, eps, norm, bound)
        assert (bounds <= expected).all()
        torch.testing.assert_close(bounds, expected, atol=1e-8, rtol=1e-8)  # the allowance for rounding
    upper = pgd(model, x, y, eps, norm, steps=20)
    assert (upper >= expected - 1e-9).all()
    assert (upper <= margins(model, x, y) + 1e-12).all()


def test_a_linear_model_of_two_classes_is_solved_by_pgd():
    torch.manual_seed(0)
    model = nn.Linear(6, 2).double()
    x, y = torch.randn(9, 6).double(), torch.arange(9) % 2
    for norm in NORMS:
        expected = exact_linear(model.weight, model.bias, x, y, 0.3, norm)
        torch.testing.assert_close(pgd(model, x, y, 0.3, norm), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETS)
def test_pgd_lies_between_the_infimum_and_the_clean_margin(name, norm):
    model, x, y = net(name)
    clean = margins(model, x, y)
    for random in (False, True):
        upper = pgd(model, x, y, 0.2, norm, random_start=random, seed=3)
        assert upper.dtype == torch.float64
        assert (upper <= clean).all()
        for bound in ("interval", "cheap", "lipschitz"):
            assert (certified(model, x, y, 0.2, norm, bound) <= upper).all()
    # An attack of many steps beats blind sampling on nearly all rows.
    blind = lowest(model, x, y, 0.2, norm)
    assert (pgd(model, x, y, 0.2, norm, steps=40) <= blind + 1e-6).float().mean() >= 0.8


@pytest.mark.parametrize("method", ["pgd", "certified"])
@pytest.mark.parametrize("name", NETS)
def test_no_ball_is_the_clean_margin(name, method):
    model, x, y = net(name)
    expected = margins(model, x, y)
    for norm in NORMS:
        bounds = [{}] if method == "pgd" else [{"bound": b} for b in ("interval", "cheap", "crown", "lipschitz")]
        for options in bounds:
            values = robust(model, x, y, 0.0, norm, method, **options)
            torch.testing.assert_close(values, expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("method", ["pgd", "certified"])
def test_eps_per_channel_is_scaled_inputs(method, norm):
    """A ball of ε_c around x is a ball of 1 around x/ε for the network that multiplies by ε first."""
    model, x, y = net("batch norm")
    eps = torch.tensor([0.1, 0.02, 0.2], dtype=torch.float64)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.eps = model, eps.reshape(3, 1, 1)

        def forward(self, inputs):
            return self.inner(inputs * self.eps)

    expected = robust(Scaled(), x / eps.reshape(3, 1, 1), y, 1.0, norm, method)
    for given_as in (eps, eps.tolist(), eps.reshape(3, 1, 1), eps.reshape(3, 1, 1).expand(3, 5, 5).numpy()):
        torch.testing.assert_close(robust(model, x, y, given_as, norm, method), expected, atol=1e-8, rtol=1e-8)
    assert not torch.allclose(robust(model, x, y, eps.flip(0), norm, method), expected, atol=1e-5)


def test_the_box_keeps_pixels_in_range():
    model, x, y = net("max pool")
    x = torch.rand_like(x)
    seen = []

    class Watching(nn.Module):
        def forward(self, inputs):
            seen.append(inputs.detach().clone())
            return model(inputs)

    watching = Watching()
    for norm in NORMS:
        seen.clear()
        boxed = pgd(watching, x, y, 0.6, norm, box=(0, 1))
        reach = torch.inf if norm == "inf" else 2
        for point in seen:
            assert point.min() >= 0
            assert point.max() <= 1
            assert torch.linalg.vector_norm((point - x).flatten(1), reach, dim=1).max() <= 0.6 + 1e-9
        assert (boxed >= certified(model, x, y, 0.6, norm)).all()
    channels = torch.zeros(3, 1, 1), torch.ones(3, 1, 1)
    torch.testing.assert_close(pgd(model, x, y, 0.6, box=channels), pgd(model, x, y, 0.6, box=(0.0, 1.0)))
    with pytest.raises(BadInput, match="row 2 lies outside"):
        pgd(model, x.index_fill(0, torch.tensor([2]), 3.0), y, 0.1, box=(0, 1))
    with pytest.raises(BadInput, match="box must be two numbers"):
        pgd(model, x, y, 0.1, box=1.0)


def test_rows_do_not_depend_on_each_other():
    model, x, y = net("tanh", n=7)
    for options in ({"random_start": True}, {"steps": 3, "step_size": 0.25}):
        whole = pgd(model, x, y, 0.3, **options, batch_size=100)
        torch.testing.assert_close(whole, pgd(model, x, y, 0.3, **options, batch_size=2))
    assert not torch.equal(
        pgd(model, x, y, 0.3, steps=1, step_size=0.1, random_start=True),
        pgd(model, x, y, 0.3, steps=1, step_size=0.1, random_start=True, seed=1),
    )
    for bound in ("cheap", "crown"):
        torch.testing.assert_close(
            certified(model, x, y, 0.3, bound=bound), certified(model, x, y, 0.3, bound=bound, batch_size=2)
        )


def test_single_precision_and_arrays():
    model, x, y = net("relu")
    expected = robust(model, x, y, 0.1, method="certified")
    single = robust(model.float(), x.float().numpy(), y.numpy().astype(np.int32), 0.1, method="certified")
    assert single.dtype == torch.float64
    torch.testing.assert_close(single, expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(robust(model, x, y, 0.1), pgd(model.double(), x, y, 0.1), atol=1e-4, rtol=0)


@pytest.mark.parametrize("method", ["pgd", "certified"])
def test_nothing_about_the_model_changes(method):
    model, x, y = net("batch norm")
    model[1].eval()  # modes of their own are kept
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    robust(model, x, y, 0.1, method=method)
    assert modes == [module.training for module in model.modules()]
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.requires_grad and torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters())
    with torch.inference_mode():
        values = robust(model, x.clone(), y, 0.1, method=method)
    torch.testing.assert_close(values, robust(model, x, y, 0.1, method=method))


def test_any_model_can_be_attacked():
    torch.manual_seed(0)
    model = ViT(4, 8, classes=3, width=12, depth=1, heads=2)
    x, y = torch.rand(2, 3, 8, 8), torch.tensor([0, 2])
    assert (pgd(model, x, y, 0.05) <= pgd(model, x, y, 0.0)).all()
    constant = nn.Sequential(nn.Flatten(), nn.Threshold(1e9, 0.5))
    assert pgd(constant, x, y, 0.1).tolist() == [0, 0]


def test_models_that_overflow():
    model, x, y = net("relu")
    with torch.no_grad():
        model[1].weight[0] = torch.nan
    for method in ("pgd", "certified"):
        assert robust(model, x, y, 0.1, method=method).isnan().all()


@pytest.mark.parametrize("method", ["pgd", "certified"])
def test_bad_arguments(method):
    model, x, y = net("relu")
    good = {"model": model, "inputs": x, "labels": y, "eps": 0.1, "method": method}
    for change, says in [
        ({"model": 3}, "model must be a torch.nn.Module; got int"),
        ({"model": nn.Linear(5, 1).double()}, r"two classes at least"),
        ({"model": nn.Unflatten(1, (5, 1))}, r"logits of shape"),
        ({"inputs": x[0]}, r"inputs must have shape \(n, ...\)"),
        ({"inputs": x[:0], "labels": y[:0]}, "n at least 1"),
        ({"inputs": (10 * x).long()}, "floating-point"),
        ({"inputs": "text"}, "tensors or arrays"),
        ({"labels": y[:3]}, r"labels must have shape \(5,\)"),
        ({"labels": y.double()}, "integers"),
        ({"labels": y.index_fill(0, torch.tensor([3]), 4)}, "got 4 in row 3"),
        ({"labels": y.index_fill(0, torch.tensor([3]), -1)}, "got -1 in row 3"),
        ({"eps": -0.1}, "eps must be finite and at least 0; got -0.1"),
        ({"eps": float("nan")}, "eps"),
        ({"eps": float("inf")}, "eps"),
        ({"eps": "much"}, "eps must be a number"),
        ({"eps": [0.1, 0.2]}, r"fit one input's shape \(5,\); got shape \(2,\)"),
        ({"norm": 1}, "norm must be 'inf' or 2; got 1"),
        ({"norm": [2]}, "norm"),
        ({"method": "pdg"}, "method must be one of pgd, certified; got 'pdg'; did you mean 'pgd'"),
        ({"batch_size": 0}, "batch_size"),
        ({"stepps": 3}, f"method '{method}' has no option 'stepps'"),
    ]:
        with pytest.raises(BadInput, match=says):
            sf.margins.robust(**{**good, **change})


def test_bad_options():
    model, x, y = net("relu")
    for options, says in [({"steps": -1}, "steps"), ({"step_size": 0.0}, "step_size must"), ({"seed": -1}, "seed")]:
        with pytest.raises(BadInput, match=says):
            pgd(model, x, y, 0.1, **options)
    with pytest.raises(BadInput, match="bound must be one of interval, cheap, crown, lipschitz; got 'crwon'"):
        certified(model, x, y, 0.1, bound="crwon")
    with pytest.raises(BadInput, match="steps"):
        pgd(model, x, y, 0.1, steps=0)
    assert torch.equal(pgd(model, x, y, 0.1, norm="2"), pgd(model, x, y, 0.1, norm=2.0))
    assert torch.equal(pgd(model, x, y, 0.1, norm=float("inf")), pgd(model, x, y, 0.1))
