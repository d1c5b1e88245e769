"""Bounds from below: sound for every layer, every line and every Lipschitz constant; and which layers are refused."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from surefoot.errors import BadInput
from surefoot.margins import certified, lipschitz, pgd
from surefoot.margins.ball import Ball
from surefoot.margins.interval import deviations
from surefoot.margins.linear_bounds import Bounds, tightened
from surefoot.margins.lipschitz import coordinate_reaches
from surefoot.margins.max_pool import MaxPool
from surefoot.margins.relaxation import GELU, GELU_TANH, RELU, TANH
from surefoot.margins.tracing import network_of
from surefoot.models import ViT

from .cases import MODELS, NETS, lowest, margins, net, points

NORMS = ["inf", 2]
BOUNDS = ["interval", "lipschitz", "cheap", "crown"]


@settings(max_examples=60)
@given(st.sampled_from(sorted(NETS)), st.sampled_from(NORMS), st.integers(0, 10**6), st.sampled_from([0.01, 0.1, 1.0]))
def test_no_point_of_the_ball_is_below(name, norm, seed, eps):
    model, x, y = net(name, n=3, seed=seed)
    bounds = {bound: certified(model, x, y, eps, norm, bound) for bound in BOUNDS}
    upper = torch.minimum(lowest(model, x, y, eps, norm, 60), pgd(model, x, y, eps, norm))
    for bound, values in bounds.items():
        assert (values <= upper).all(), bound
        assert values.isfinite().all()
    slack = 1e-12 * (1 + bounds["interval"].abs())
    assert (bounds["cheap"] >= torch.maximum(bounds["interval"], bounds["lipschitz"]) - slack).all()
    assert (bounds["crown"] >= bounds["cheap"] - slack).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MODELS)
def test_the_papers_networks(name, norm):
    model, x, y = net(name, n=2)
    bounds = [certified(model, x, y, 1e-4, norm, bound) for bound in ("interval", "cheap", "lipschitz")]
    upper = torch.minimum(lowest(model, x, y, 1e-4, norm, 10), pgd(model, x, y, 1e-4, norm))
    assert all((lower <= upper).all() for lower in bounds)
    assert (bounds[1] >= bounds[0]).all()


@pytest.mark.parametrize("name", NETS)
def test_a_small_ball_costs_what_the_gradient_says(name):
    """To first order the bounds with lines are exact: that they are tight, no soundness test would see."""
    model, x, y = net(name)
    for norm in NORMS:
        clean, eps = margins(model, x, y), 1e-6
        attacked = pgd(model, x, y, eps, norm)
        lower = certified(model, x, y, eps, norm, "crown")
        # Two windows that hold the same pixel tie, and no line says that they move together.
        factor = 3 if name == "overlapping and ceil" else 1.5
        near = (clean - lower) <= factor * (clean - attacked) + 1e-8
        assert near.float().mean() >= 0.6, (clean - lower) / (clean - attacked)


@pytest.mark.parametrize("bound", ["interval", "lipschitz"])
@pytest.mark.parametrize("name", NETS)
def test_larger_balls_have_smaller_bounds(name, bound):
    model, x, y = net(name)
    for norm in NORMS:
        bounds = [certified(model, x, y, eps, norm, bound) for eps in (0.0, 0.01, 0.1, 0.5, 3.0)]
        assert all((b <= a + 1e-7).all() for a, b in itertools.pairwise(bounds))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETS)
def test_intervals_hold_what_is_sampled(name, norm):
    model, x, _ = net(name)
    network = network_of(model, x[:1])
    values = network.values(x)
    ball = Ball.of(0.3, norm, tuple(x.shape[1:]), x.device)
    plain = deviations(network, values, ball)
    capped = deviations(network, values, ball, coordinate_reaches(network, ball))
    better = tightened(network, ball, values, coordinate_reaches(network, ball)).deviations
    for point in points(x, 0.3, norm, 40):
        for at, moved, *boxes in zip(values, network.values(point), plain, capped, better, strict=True):
            for box in boxes:
                slack = 1e-9 * (1 + at.abs())
                assert (moved >= at + box.low - slack).all()
                assert (moved <= at + box.high + slack).all()
    for wide, tight, tightest in zip(plain, capped, better, strict=True):
        assert (tight.radius <= wide.radius * (1 + 1e-9)).all()
        assert (tightest.radius <= tight.radius * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", NETS)
def test_bounds_of_every_layer_hold(name):
    """Random coefficients on the value of every node, pushed back to the input."""
    model, x, _ = net(name)
    network = network_of(model, x[:1])
    values = network.values(x)
    for norm in NORMS:
        ball = Ball.of(0.2, norm, tuple(x.shape[1:]), x.device)
        bounds = Bounds(network, ball, values, deviations(network, values, ball))
        moved = [network.values(point) for point in points(x, 0.2, norm, 20)]
        for number, at in enumerate(values):
            c = torch.randn(len(x), 2, *at.shape[1:], dtype=at.dtype)
            minimum = bounds.minimum(c, number)
            for point in moved:
                assert ((c * (point[number] - at)[:, None]).flatten(2).sum(2) >= minimum - 1e-9).all()


ACTIVATIONS = {"relu": RELU, "tanh": TANH, "gelu": GELU, "gelu by tanh": GELU_TANH}


def intervals(count, scale):
    """Random low ≤ at ≤ high of widths from 0 to far beyond the scale."""
    generator = torch.Generator().manual_seed(int(1000 * scale))
    middle, place = (torch.rand(count, generator=generator, dtype=torch.float64) for _ in range(2))
    width = scale * 10.0 ** (torch.rand(count, generator=generator, dtype=torch.float64) * 12 - 11)
    width[: count // 20] = 0
    low = scale * (4 * middle - 2) - place * width
    low[-count // 10 :] = -place[-count // 10 :] * width[-count // 10 :]  # 0 inside, however narrow
    return low, low + width, low + width * torch.rand(count, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("scale", [1e-6, 0.1, 1.0, 3.0, 20.0, 1e4])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_lines_are_below_and_above(name, scale):
    activation = ACTIVATIONS[name]
    low, high, at = intervals(4000, scale)
    lines = activation.lines(low, high, at)
    assert all(part.isfinite().all() for part in lines)
    bottom, top = activation.image(low, high)
    f_at = activation.apply(at)
    for share in torch.linspace(0, 1, 301, dtype=torch.float64):
        x = low + share * (high - low)
        f = activation.apply(x)
        slack = 1e-12 * (1 + f.abs() + x.abs())
        assert (f_at + lines.lower_gap + lines.lower_slope * (x - at) <= f + slack).all()
        assert (f_at + lines.upper_gap + lines.upper_slope * (x - at) >= f - slack).all()
        assert (bottom <= f + slack).all()
        assert (top >= f - slack).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_lines_of_narrow_intervals_are_tangents(name):
    activation = ACTIVATIONS[name]
    at = torch.linspace(-3, 3, 200, dtype=torch.float64)  # 0 is not among them
    lines = activation.lines(at - 1e-5, at + 1e-5, at)
    slope = torch.func.vmap(torch.func.grad(activation.apply))(at)
    for tangent in (lines.lower_slope, lines.upper_slope):
        torch.testing.assert_close(tangent, slope, atol=1e-4, rtol=0)
    assert (lines.upper_gap - lines.lower_gap).max() < 1e-9


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slopes_are_at_most_the_lipschitz_constant(name):
    activation = ACTIVATIONS[name]
    x = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    slope = torch.func.vmap(torch.func.grad(activation.apply))(x)
    assert slope.abs().max() <= activation.lipschitz
    assert slope.abs().max() >= activation.lipschitz - 2e-3


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.booleans(), st.integers(0, 10**6))
def test_max_pooling(size, stride, dilation, ceil_mode, seed):
    torch.manual_seed(seed)
    pool = MaxPool((size, 2), (stride, 1), (size // 2, 0), (dilation, 1), ceil_mode)
    at = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    wide = torch.rand(2, 3, 7, 6, dtype=torch.float64)
    choice = pool.choose(at - wide, at + wide, at)
    maxima = pool.apply(at)
    c = torch.randn(2, 4, *maxima.shape[1:], dtype=torch.float64)
    back, constant = pool.back(c, choice, tuple(at.shape[1:]))
    for _ in range(20):
        moved = at + wide * (2 * torch.rand_like(at) - 1).sign() * torch.rand_like(at).round()
        exact = (c * (pool.apply(moved) - maxima)[:, None]).flatten(2).sum(2)
        assert ((back * (moved - at)[:, None]).flatten(2).sum(2) + constant <= exact + 1e-9).all()


class TestLipschitz:
    @pytest.mark.parametrize("norm", NORMS)
    @pytest.mark.parametrize("name", [*NETS, "cnn", "resnet"])
    def test_no_difference_is_steeper(self, name, norm):
        model, x, _ = net(name)
        bound = lipschitz(model, x, norm)
        torch.testing.assert_close(bound, bound.T)
        assert (bound.diagonal() == 0).all()
        model.eval()
        with torch.no_grad():
            z = model(x)
            for eps in (1e-3, 0.1, 5.0):
                for point in points(x, eps, norm, 10):
                    far = torch.linalg.vector_norm((point - x).flatten(1), torch.inf if norm == "inf" else 2, dim=1)
                    moved = model(point) - z
                    difference = (moved[:, :, None] - moved[:, None]).abs()
                    assert (difference <= bound * far[:, None, None] + 1e-12).all()

    def test_of_matrices(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
        first, last = model[0].weight, model[2].weight
        two = torch.linalg.matrix_norm(first, 2) * (last[0] - last[1]).norm()
        torch.testing.assert_close(lipschitz(model, (6,), 2)[0, 1], two.detach(), rtol=1e-7, atol=0)
        inf = ((last[0] - last[1]).abs() @ first.abs()).sum()
        torch.testing.assert_close(lipschitz(model, (6,))[0, 1], torch.minimum(inf, two * 6**0.5).detach())
        # In units of ε, and per coordinate.
        eps = torch.tensor([0.1, 0.2, 0.3, 0.1, 0.1, 0.5], dtype=torch.float64)
        scaled = torch.linalg.matrix_norm(first * eps, 2) * (last[0] - last[1]).norm()
        torch.testing.assert_close(lipschitz(model, (6,), 2, eps)[0, 1], scaled.detach(), rtol=1e-7, atol=0)

    @pytest.mark.parametrize("settings_", [{}, {"stride": 2}, {"groups": 2}, {"dilation": 2, "padding": 1}])
    def test_of_convolutions_against_dense_matrices(self, settings_):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(4, 6, 3, **settings_), nn.Flatten()).double()
        x = torch.zeros(1, 4, 6, 6, dtype=torch.float64)
        dense = torch.autograd.functional.jacobian(model, x).flatten(2)[0]
        dense = dense.reshape(dense.shape[0], -1)
        layer = network_of(model, x).nodes[1].layer
        for radius in (torch.ones_like(x), torch.rand_like(x)):
            exact = float(torch.linalg.matrix_norm(dense * radius.flatten(), 2))
            assert exact <= layer.spectral_norm(radius) <= 4 * exact
            rows = torch.linalg.vector_norm(dense * radius.flatten(), dim=1)
            torch.testing.assert_close(layer.row_norms(radius).flatten(), rows.detach())

    def test_bad_examples(self):
        model = nn.Linear(2, 2)
        for example in ((), (0,), (2.0,), torch.zeros(2), (2, True)):
            with pytest.raises(BadInput, match="example must be inputs"):
                lipschitz(model, example)
        with pytest.raises(BadInput, match="model must take inputs of shape"):
            lipschitz(model, (3,))
        with pytest.raises(BadInput, match="got int"):
            lipschitz(3, (2,))


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Overwriting(nn.Module):
    def forward(self, x):
        hidden = x * 2
        return functional.relu(hidden, inplace=True) + hidden


class Calling(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class TestRefusals:
    @pytest.mark.parametrize(
        ("model", "says"),
        [
            (nn.Sequential(nn.Linear(4, 4), nn.Softplus()), r"the layer 1 \(Softplus\)"),
            (nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.LayerNorm(4))), r"the layer 1.0 \(LayerNorm\)"),
            (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)), "running statistics"),
            (nn.Sequential(Calling(torch.sigmoid)), r"sigmoid, called by 0 \(Calling\)"),
            (Calling(lambda x: x * x), r"mul of two tensors that depend on the input, called by the model \(Calling\)"),
            (Calling(lambda x: 1 / x), "truediv by something that depends"),
            (Calling(lambda x: x - x.mean(dim=0)), "mean over the rows"),
            (Calling(lambda x: x.T.T), "getattr of 'T'"),
            (Calling(lambda x: x[[2, 1, 0]]), "getitem of rows"),
            (Calling(lambda x: functional.pad(x, (0, 1), value=1.0)), "pad with anything but zeros"),
            (Calling(lambda x: functional.dropout(x, 0.0) + functional.dropout(x)), "stays on in eval"),
            (Branching(), r"always makes the same calls; the model \(Branching\)"),
            (Overwriting(), "other logits than the model"),
            (nn.Sequential(nn.Linear(3, 4)), "model must take inputs of shape"),
        ],
    )  # fmt: skip
    def test_what_no_bound_is_known_for_is_named(self, model, says):
        with pytest.raises(BadInput, match=says):
            certified(model.double(), torch.randn(2, 4).double(), [0, 1], 0.1)

    def test_convolutions_with_other_padding(self):
        model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten())
        with pytest.raises(BadInput, match=r"the layer 0 \(Conv2d\) with padding_mode='circular'"):
            certified(model, torch.zeros(1, 1, 4, 4), [0], 0.1)

    def test_hooks(self):
        model = nn.Sequential(nn.Linear(4, 4))
        model[0].register_forward_hook(lambda *_: None)
        with pytest.raises(BadInput, match=r"0 \(Linear\) has one"):
            certified(model, torch.zeros(1, 4), [0], 0.1)

    def test_transformers(self):
        model = ViT(4, 8, classes=3, width=12, depth=1, heads=2)
        with pytest.raises(BadInput, match=r"blocks.0.first_norm \(LayerNorm\); method='pgd' takes any model"):
            certified(model, torch.zeros(1, 3, 8, 8), [0], 0.1)

    def test_parametrised_weights_are_followed(self):
        torch.manual_seed(0)
        model = nn.Sequential(weight_norm(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 3)).double()
        x, y = torch.randn(3, 4).double(), torch.tensor([0, 1, 2])
        torch.testing.assert_close(certified(model, x, y, 0.0), margins(model, x, y), atol=1e-8, rtol=0)
        assert (certified(model, x, y, 0.1) <= pgd(model, x, y, 0.1)).all()
