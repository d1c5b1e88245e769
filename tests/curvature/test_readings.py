"""Batch sharpness, trace, density, Jacobian norms, the SAM path and the sharpness reader."""

import numpy as np
import pytest
import torch
from torch import nn

from surefoot.curvature import (
    GaussNewton,
    Hessian,
    Sharpness,
    batch_sharpness,
    curvature_along_sam,
    jacobian_norms,
    rayleigh,
    sharpness,
    spectral_density,
    trace,
)
from surefoot.curvature.principal import first_dense, principal_directions
from surefoot.errors import BadInput
from surefoot.training.tracker import Tracker

from .cases import MODELS, case, dense_gauss_newton, dense_hessian, flat_function


class Quadratic(nn.Module):
    """Logits whose 'loss' below is ½ Σ a_j (θ_j − x_j)²: every batch has the Hessian diag(a)."""

    def __init__(self, a):
        super().__init__()
        self.a, self.theta = a, nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))

    def forward(self, x):
        return self.a.sqrt() * (self.theta - x)


def quadratic_loss(logits, labels):
    return 0.5 * logits.square().sum(1)


A = torch.tensor([1.0, 5.0, 20.0], dtype=torch.float64)


class TestBatchSharpness:
    def test_of_a_quadratic_lies_in_its_spectrum(self):
        x = torch.randn(200, 3, dtype=torch.float64)
        for kind in ("mean of ratios", "ratio of means"):
            found = batch_sharpness(Quadratic(A), x, torch.zeros(200, dtype=int), 8, loss=quadratic_loss, kind=kind)
            assert 1 <= found.value <= 20
            assert found.batches >= 10
            assert found.standard_error <= 0.01 * found.value or found.batches == 500

    def test_all_rows_make_the_rayleigh_quotient_of_the_gradient(self):
        model, inputs, labels = case("mlp")
        hessian = Hessian(model, inputs, labels)
        expected = rayleigh(hessian, hessian.gradient())
        found = batch_sharpness(model, inputs, labels, len(inputs))
        np.testing.assert_allclose(found.value, expected, rtol=1e-9)
        assert (found.batches, found.standard_error) == (1, 0.0)
        gauss = batch_sharpness(model, inputs, labels, len(inputs), matrix="gauss-newton")
        np.testing.assert_allclose(gauss.value, rayleigh(GaussNewton(model, inputs), hessian.gradient()), rtol=1e-9)

    def test_every_batch_by_brute_force(self):
        """All batches of one row: the mean over 40 draws of a set of 5 equals the mean over its rows."""
        model, inputs, labels = case("mlp", n=5)
        each = [batch_sharpness(model, inputs[i : i + 1], labels[i : i + 1], 1).value for i in range(5)]
        found = batch_sharpness(model, inputs, labels, 1, tol=1e-9, max_batches=200)
        assert abs(found.value - np.mean(each)) <= 4 * found.standard_error

    def test_momentum(self):
        model, inputs, labels = case("mlp")
        hessian = Hessian(model, inputs, labels)
        g, v = hessian.gradient(), torch.randn(hessian.dim, dtype=torch.float64)
        s = 0.5 * v + g
        expected = float(s @ hessian.matvec(s) / (s @ g))
        found = batch_sharpness(model, inputs, labels, 11, kind="momentum", velocity=v, momentum=0.5)
        np.testing.assert_allclose(found.value, expected, rtol=1e-9)

    def test_flat_batches_are_left_out_and_counted(self):
        x = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64).repeat(6, 1)
        found = batch_sharpness(Quadratic(A), x, torch.zeros(6, dtype=int), 2, loss=quadratic_loss, max_batches=12)
        assert found.flat == found.batches == 12
        assert np.isnan(found.value)

    def test_seeds_and_bad_arguments(self):
        model, inputs, labels = case("mlp")
        a, b = (batch_sharpness(model, inputs, labels, 3, seed=1, max_batches=12) for _ in range(2))
        assert a == b
        for arguments, says in [
            ({"batch_size": 0}, "batch_size"),
            ({"batch_size": 12}, "batch_size"),
            ({"batch_size": 2, "kind": "max"}, "kind"),
            ({"batch_size": 2, "matrix": "fisher"}, "matrix"),
            ({"batch_size": 2, "kind": "momentum"}, "velocity"),
            ({"batch_size": 2, "kind": "momentum", "velocity": torch.ones(3)}, r"velocity must have shape \(79,\)"),
            ({"batch_size": 2, "max_batches": 0}, "max_batches"),
            ({"batch_size": 2, "tol": 0.0}, "tol"),
            ({"batch_size": 2, "tol": float("nan")}, "tol"),
        ]:
            with pytest.raises(BadInput, match=says):
                batch_sharpness(model, inputs, labels, **arguments)
        with pytest.raises(BadInput, match="no trainable parameter"):
            batch_sharpness(nn.Flatten(), inputs, labels, 2)
        with pytest.raises(BadInput, match="got -1 in row 10"):
            batch_sharpness(model, inputs, torch.cat([labels[:10], torch.tensor([-1])]), 2)
        normed = nn.Sequential(model, nn.BatchNorm1d(3).double())
        with pytest.raises(BadInput, match="more than 1 value per channel"):
            batch_sharpness(normed, inputs, labels, 1, batch_norm="train")

    @pytest.mark.parametrize("batch_size", [3, 11])
    def test_a_diverged_model_stops_at_once(self, batch_size):
        model, inputs, labels = case("mlp")
        with torch.no_grad():
            model[0].weight.fill_(torch.nan)
        found = batch_sharpness(model, inputs, labels, batch_size)
        assert found.batches == 1
        assert np.isnan(found.value)
        assert not np.isfinite(found.standard_error)


class TestTraceAndDensity:
    @pytest.mark.parametrize("kind", [GaussNewton, Hessian])
    def test_hutch_stays_inside_its_interval(self, kind):
        model, inputs, labels = case("mlp", n=40)
        operator = kind(model, inputs, labels)
        exact = float(operator.dense().trace())
        inside = 0
        for seed in range(40):
            found = trace(operator, 30, seed=seed)
            assert found.matvecs == 30
            inside += abs(found.value - exact) <= 3.5 * found.standard_error + 1e-9  # ten samples: wide tails
        assert inside >= 35

    def test_exact_where_the_sketch_spans_everything(self):
        model, inputs, _ = case("linear")
        operator = GaussNewton(model, inputs)
        found = trace(operator, 60)
        np.testing.assert_allclose(found.value, float(operator.dense().trace()), rtol=1e-9)
        assert found.standard_error == 0
        with pytest.raises(BadInput, match="products"):
            trace(operator, 3)

    def test_density_integrates_to_one_and_has_the_moments(self):
        model, inputs, labels = case("mlp", n=40)
        operator = Hessian(model, inputs, labels)
        values = torch.linalg.eigvalsh(operator.dense())
        found = spectral_density(operator, probes=60, steps=30, points=2000)
        step = found.grid[1] - found.grid[0]
        np.testing.assert_allclose(float(found.density.sum() * step), 1, atol=2e-3)
        mean = float((found.density * found.grid).sum() * step)
        assert abs(mean - float(values.mean())) < 0.15 * float(values.std())
        second = float((found.density * (found.grid - mean) ** 2).sum() * step)
        np.testing.assert_allclose(second, float(values.var(correction=0)) + found.width**2, rtol=0.25)
        assert (found.standard_error >= 0).all()

    def test_density_of_a_zero_matrix(self):
        model, inputs, labels = case("linear")
        found = spectral_density(GaussNewton(model, inputs, labels, loss=lambda z, y: z[:, 0]))
        assert torch.isfinite(found.density).all()
        with pytest.raises(BadInput, match="width"):
            spectral_density(GaussNewton(model, inputs), width=0.0)
        with pytest.raises(BadInput, match="points"):
            spectral_density(GaussNewton(model, inputs), points=1)

    @pytest.mark.parametrize("scale", [1e-25, 1e15])
    def test_density_at_any_scale(self, scale):
        model, inputs, labels = case("mlp", n=40, dtype=torch.float32)

        class Scaled(Hessian):
            def matvec(self, v):
                return scale * super().matvec(v)

        plain, scaled = (spectral_density(kind(model, inputs, labels)) for kind in (Hessian, Scaled))
        assert scaled.matvecs == plain.matvecs
        np.testing.assert_allclose(scaled.grid / scale, plain.grid, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk", [None, 4])
def test_jacobian_norms_against_dense_ones(name, chunk):
    model, inputs, _ = case(name)
    model.eval()
    logits, theta = flat_function(model, inputs)
    jacobian = torch.autograd.functional.jacobian(logits, theta)
    expected = torch.linalg.matrix_norm(jacobian, 2)
    torch.testing.assert_close(jacobian_norms(model, inputs, batch_size=chunk), expected, rtol=1e-8, atol=1e-10)


def test_jacobian_norms_of_some_parameters():
    model, inputs, _ = case("mlp")
    logits, theta = flat_function(model, inputs)
    jacobian = torch.autograd.functional.jacobian(logits, theta)[:, :, 30:36]
    found = jacobian_norms(model, inputs, names=["0.bias"])
    torch.testing.assert_close(found, torch.linalg.matrix_norm(jacobian, 2), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("length", [1e-25, 1.0, 1e25])
def test_jacobian_norms_of_many_rows_of_any_length(length, wrapped):
    torch.manual_seed(0)
    inputs = torch.randn(2100, 6)
    inputs[[0, 1500, 2099]] *= length  # whose squares float32 cannot hold
    model = nn.Linear(6, 3, bias=False)  # J_i = I ⊗ x_iᵀ
    found = jacobian_norms(nn.Sequential(model) if wrapped else model, inputs)
    torch.testing.assert_close(found, inputs.double().norm(dim=1), rtol=1e-6, atol=0)


def test_rayleigh_quotient():
    model, inputs, labels = case("mlp")
    dense = dense_hessian(model, inputs, labels, "ce")
    v = torch.randn(len(dense), dtype=torch.float64)
    np.testing.assert_allclose(rayleigh(Hessian(model, inputs, labels), v), float(v @ dense @ v / (v @ v)), rtol=1e-9)
    with pytest.raises(BadInput, match="zero"):
        rayleigh(Hessian(model, inputs, labels), 0 * v)


def test_curvature_along_the_sam_path():
    model, inputs, labels = case("mlp", n=60)
    before = [p.clone() for p in model.parameters()]
    g = Hessian(model, inputs, labels).gradient()
    found = curvature_along_sam(model, inputs, labels, rho=0.5, points=3, tol=1e-6, max_products=400)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert [point.t for point in found] == [0, 0.5, 1]
    logits, theta = flat_function(model, inputs)
    for point in found:
        moved = theta + point.t * 0.5 * g / g.norm()
        loss = lambda v: nn.functional.cross_entropy(logits(v), labels)  # noqa: E731
        values = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, moved))
        np.testing.assert_allclose([point.smallest, point.largest], [values[0], values[-1]], rtol=1e-4, atol=1e-6)
    with pytest.raises(BadInput, match="rho"):
        curvature_along_sam(model, inputs, labels, rho=0.0)
    with pytest.raises(BadInput, match="rho"):
        curvature_along_sam(model, inputs, labels, rho=float("inf"))


def fitted(steps):
    """A small network that learns labels of which a fifth is wrong; its smallest eigenvalue goes to zero."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 12, generator=generator)
    y = torch.where(torch.rand(200, generator=generator) < 0.2, torch.arange(200) % 4, x[:, :4].argmax(1))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 10), nn.Tanh(), nn.Linear(10, 4))
    step = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)
    for index in range(steps + 1):
        yield index, model, x, y
        step.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        step.step()


def smallest_of(model, x, y):
    return float(torch.linalg.eigvalsh(Hessian(model, x, y).dense().double())[0])


def test_the_smallest_eigenvalue_is_read_against_itself():
    """Against the largest one it was said to be above 0 as soon as it was small."""
    tracker, found, exact = None, [], []
    for index, model, x, y in fitted(1000):
        tracker = tracker or Tracker(model, (x, y), (x, y), every={"hessian_min": 50})
        reading = tracker.read(index)
        if reading is not None:
            found.append(reading)
            exact.append(smallest_of(model, x, y))
    assert [reading["hessian_min"] for reading in found] == pytest.approx(exact, rel=0.2)
    settled = [reading["hessian_min_residual"] <= 0.101 * -reading["hessian_min"] for reading in found]
    assert len(found) == 21
    assert sum(settled) >= 18  # in the others forty products did not suffice


def test_the_smallest_eigenvalue_along_the_sam_path_late_in_training():
    """Searched to a share of the largest one, it was above 0 at the first place, where it is below."""
    *_, (_, model, x, y) = fitted(300)
    g = Hessian(model, x, y).gradient()
    origin = [p.detach().clone() for p in model.parameters()]
    found = curvature_along_sam(model, x, y, rho=0.2, points=5, tol=5e-2)
    for point in found:
        with torch.no_grad():
            move = torch.split(point.t * 0.2 * g / g.norm(), [p.numel() for p in origin])
            for p, at, by in zip(model.parameters(), origin, move, strict=True):
                p.copy_(at + by.view_as(p))
        assert point.smallest == pytest.approx(smallest_of(model, x, y), rel=0.05)


class TestSharpness:
    def images(self, n=120, features=60, dtype=torch.float64):
        """Inputs whose variance falls off quickly, as that of natural images does."""
        torch.manual_seed(0)
        return (torch.randn(n, features) * 2.0 ** -torch.arange(features).div(4)).to(dtype)

    def net(self, dtype=torch.float64, width=20):
        torch.manual_seed(1)
        return nn.Sequential(nn.Flatten(), nn.Linear(60, width), nn.Tanh(), nn.Linear(width, 4)).to(dtype)

    def test_with_all_directions_it_is_the_whole_matrix(self):
        model, inputs = self.net(), self.images()
        reader = Sharpness(model, inputs, directions=60, max_products=40)
        exact = float(torch.linalg.eigvalsh(GaussNewton(model, inputs).dense())[-1])
        found = reader.read(verify=True, tol=1e-8)
        np.testing.assert_allclose(found.value, exact, rtol=1e-9)
        assert found.residual <= 1e-5 * exact
        assert found.full_products == 1

    @pytest.mark.parametrize("seed", range(4))
    def test_a_residual_is_not_the_rounding_of_squares(self, seed):
        torch.manual_seed(seed)
        turned = torch.linalg.qr(torch.randn(60, 10, dtype=torch.float64)).Q
        found = Sharpness(self.net(), self.images()[:, :10] @ turned.T, directions=10, max_products=80).read(
            True, 1e-13
        )
        assert 0 < found.residual <= 1e-12 * found.value

    @pytest.mark.parametrize("directions", [5, 20])
    def test_a_verified_reading_bounds_its_error(self, directions):
        model, inputs = self.net(width=8), self.images()
        reader = Sharpness(model, inputs, directions=directions, batch_size=50)
        for _ in range(4):
            values = torch.linalg.eigvalsh(GaussNewton(model, inputs).dense())
            found = reader.read(verify=True)
            assert found.value <= float(values[-1]) * (1 + 1e-9)
            assert float((values - found.value).abs().min()) <= found.residual
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(0.05 * torch.randn_like(p))

    def test_the_residual_is_that_of_the_lifted_vector(self):
        model, inputs = self.net(), self.images()
        reader = Sharpness(model, inputs, directions=6, max_products=60)
        y = reader.top(1, tol=1e-9, max_products=60).vectors[:, 0]
        found = reader.read(verify=True, tol=1e-9)
        operator = GaussNewton(model, inputs)
        np.testing.assert_allclose(float(y.norm()), 1, rtol=1e-9)
        np.testing.assert_allclose(float((operator.matvec(y) - found.value * y).norm()), found.residual, rtol=1e-6)

    @pytest.mark.parametrize("name", ["mlp", "no bias", "convolution", "residual"])
    def test_leading_pairs_in_the_order_of_the_parameters(self, name):
        model, inputs, labels = case(name)
        reader = Sharpness(model, inputs)
        exact, vectors = torch.linalg.eigh(dense_gauss_newton(model, inputs, labels, "ce"))
        for _ in range(2):  # the second time warm
            found = reader.top(3, tol=1e-6, max_products=60)
            np.testing.assert_allclose(found.values, exact.flip(0)[:3], rtol=1e-6)
            np.testing.assert_allclose((vectors.flip(1)[:, :3] * found.vectors).sum(0).abs(), 1, rtol=1e-4)
        assert reader.read().value == pytest.approx(float(exact[-1]), rel=1e-4)

    def test_it_follows_a_model_that_moves(self):
        model, inputs = self.net(torch.float32), self.images(dtype=torch.float32)
        labels = torch.randint(0, 4, (120,))
        reader = Sharpness(model, inputs)
        step = torch.optim.SGD(model.parameters(), 0.3)
        for _ in range(20):
            step.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            step.step()
            exact = GaussNewton(model, inputs).top(1, 1e-5, max_products=200)
            np.testing.assert_allclose(reader.read().value, float(exact.values[0]), rtol=1e-2)

    @pytest.mark.parametrize("name", ["convolution", "tied", "batch norm"])
    def test_any_other_model_by_the_whole_matrix(self, name):
        model, inputs, labels = case(name)
        found = Sharpness(model, inputs, max_products=30).read()
        exact = float(torch.linalg.eigvalsh(dense_gauss_newton(model, inputs, labels, "ce"))[-1])
        np.testing.assert_allclose(found.value, exact, rtol=1e-3)
        assert found.verified

    def test_nothing_about_the_model_changes(self):
        model, inputs = self.net(), self.images()
        model.train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        random = torch.get_rng_state()
        Sharpness(model, inputs).read(verify=True)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert all((p.grad == 1).all() for p in model.parameters())
        assert model.training
        assert torch.equal(random, torch.get_rng_state())
        assert not model[1]._forward_hooks

    def test_a_diverged_model_is_an_outcome_and_the_next_reading_recovers(self):
        model, inputs = self.net(), self.images()
        reader = Sharpness(model, inputs)
        kept = model[1].weight.detach().clone()
        with torch.no_grad():
            model[1].weight.fill_(torch.nan)
        assert reader.read(verify=True).outcome == "non-finite"
        with torch.no_grad():
            model[1].weight.copy_(kept)
        assert reader.read().outcome != "non-finite"

    def test_bad_arguments(self):
        with pytest.raises(BadInput, match="products"):
            Sharpness(self.net(), self.images(), max_products=1)
        with pytest.raises(BadInput, match="labels are needed"):
            Sharpness(self.net(), self.images(), loss=lambda z, y: z[:, 0])
        with pytest.raises(BadInput, match="directions"):
            Sharpness(self.net(), self.images(), directions=0)
        with pytest.raises(BadInput, match="labels must lie in"):
            Sharpness(self.net(), self.images(), torch.full((120,), 4))
        with pytest.raises(BadInput, match="convex"):
            Sharpness(self.net(), self.images(), torch.zeros(120, dtype=int), lambda z, y: -z.square().sum(1))
        reader = Sharpness(self.net(), self.images())
        for tol in (0.0, 1.0, float("nan")):
            with pytest.raises(BadInput, match="tol"):
                reader.read(tol=tol)
        with pytest.raises(BadInput, match="max_products"):
            reader.top(1, max_products=0)
        with pytest.raises(BadInput, match="k must be an integer"):
            reader.top(1.5)
        with pytest.raises(BadInput, match="start must have shape"):
            reader.load_state_dict({"start": torch.ones(7, 1)})

    @pytest.mark.parametrize("directions", [20, 60])
    def test_starts_of_every_kind(self, directions):
        reader = Sharpness(self.net(), self.images(), directions=directions)
        pairs = reader.top(1, 1e-6, max_products=60)
        for start in (pairs, pairs.vectors, pairs.vectors[:, 0]):
            found = reader.top(1, 1e-3, start, max_products=60)
            assert found.matvecs <= 5
            np.testing.assert_allclose(found.values, pairs.values, rtol=1e-5)


def test_first_dense_layer():
    plain = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3))
    x = torch.randn(4, 3, 4)
    assert first_dense(plain, x) == "1"
    assert first_dense(nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Linear(12, 3)), x) is None
    assert first_dense(nn.Sequential(nn.Conv1d(3, 2, 1), nn.Flatten(), nn.Linear(8, 3)), x) is None
    model, inputs, _ = case("tied")
    assert first_dense(model, inputs) is None


def test_principal_directions_are_the_leading_singular_vectors():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(80, 30, generator=random, dtype=torch.float64) * 1.5 ** -torch.arange(30.0)
    found = principal_directions(x, 6)
    torch.testing.assert_close(found.T @ found, torch.eye(6, dtype=torch.float64))
    exact = torch.linalg.svd(x).Vh[:6].T
    overlap = torch.linalg.svdvals(exact.T @ found)
    assert overlap.min() > 1 - 1e-6
    assert principal_directions(x[:4], 100).shape == (30, 4)


def test_a_model_that_is_its_own_first_layer():
    torch.manual_seed(0)
    model, inputs = nn.Linear(30, 3), torch.randn(60, 30)
    found = Sharpness(model, inputs, directions=30)
    exact = GaussNewton(model, inputs).top(1, 1e-6, max_products=100)
    assert found.read(verify=True).value == pytest.approx(float(exact.values[0]), rel=1e-3)
    assert found.top(2, start=exact.vectors).vectors.shape == (93, 2)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_inputs_that_no_few_directions_hold_are_read_by_the_whole_matrix(scale):
    """Through a hundred directions of these the value was 3 to 13 % too low, at a residual of half a percent."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 3), nn.Tanh(), nn.Linear(3, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= scale
    x = torch.randn(500, 300)
    reader = Sharpness(model, x)
    exact = float(GaussNewton(model, x).top(1, 1e-6, max_products=200).values[0])
    assert not reader.compressed
    assert reader.read().value == pytest.approx(exact, rel=5e-3)
    assert Sharpness(model, x * 0.7 ** torch.arange(300)).compressed


class Weighted(nn.Module):
    """Logits of one layer, each multiplied by a number: the eigenvalues are squares of these times those of XᵀX."""

    def __init__(self, numbers):
        super().__init__()
        self.layer = nn.Linear(20, len(numbers), bias=False)
        self.register_buffer("numbers", torch.tensor(numbers))

    def forward(self, x):
        return self.layer(x) * self.numbers


@pytest.mark.parametrize("directions", [100, 15])
def test_readings_follow_an_eigenvalue_that_overtakes_the_first(directions):
    """From the first's vector alone they stayed with it, up to 8 % too low, for ten readings and more."""
    torch.manual_seed(0)
    x = torch.randn(200, 20) * 0.8 ** torch.arange(20)
    model = Weighted([1.0, 0.9, 0.7, 0.5])
    reader = Sharpness(model, x, torch.zeros(200, dtype=torch.long), "mse", directions=directions)
    assert reader.compressed
    largest = float(torch.linalg.eigvalsh(x.T @ x / 200)[-1])
    for step in range(30):
        model.numbers[:] = torch.tensor([1.0, 0.9 + 0.02 * step, 0.7 + 0.04 * step, 0.5])
        exact = 2 / 4 * largest * float(model.numbers.square().max())
        assert reader.read().value == pytest.approx(exact, rel=1e-2)


@pytest.mark.parametrize("directions", [100, 15])
def test_leading_pairs_follow_one_that_overtakes_the_last(directions):
    """From the two first vectors alone they stayed with the second, up to 18 % too low."""
    torch.manual_seed(0)
    x = torch.randn(200, 20) * 0.3 ** torch.arange(20)
    model = Weighted([1.0, 0.9, 0.7, 0.5])
    reader = Sharpness(model, x, torch.zeros(200, dtype=torch.long), "mse", directions=directions)
    assert reader.compressed
    largest = float(torch.linalg.eigvalsh(x.T @ x / 200)[-1])
    for step in range(30):
        model.numbers[:] = torch.tensor([1.0, 0.9, 0.7 + 0.01 * step, 0.5])
        exact = 2 / 4 * largest * model.numbers.square().sort(descending=True).values[:2]
        found = reader.top(2)
        assert found.values.tolist() == pytest.approx(exact.tolist(), rel=1e-2)
        assert found.vectors.shape == (80, 2)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_inputs_that_are_not_finite(value):
    x = torch.randn(20, 4)
    x[7, 2] = value
    with pytest.raises(BadInput, match="row 7 is not"):
        Sharpness(nn.Linear(4, 3), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_reading_does_not_depend_on_the_signs_of_the_directions(dtype, monkeypatch):
    """Which rounding decides, and so the number of ranks; nor on how they are turned in their span."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
    x = (torch.randn(61, 12, dtype=torch.float64) * 0.7 ** torch.arange(12)).to(dtype)

    def values():
        reader = Sharpness(model, x, directions=7)
        assert reader.compressed
        return [reader.read().value for _ in range(2)]  # the second from a warm start

    expected = values()
    turned = torch.linalg.qr(torch.randn(7, 7, dtype=dtype)).Q
    for turn in (torch.diag((-1.0) ** torch.arange(7)).to(dtype), turned):
        with monkeypatch.context() as other:
            other.setattr(sharpness, "principal_directions", lambda *a, t=turn, **k: principal_directions(*a, **k) @ t)
            assert values() == pytest.approx(expected, rel={torch.float32: 1e-6, torch.float64: 1e-12}[dtype])


@pytest.mark.parametrize("seed", [18, 48, 63, 99])
def test_a_cold_reading_does_not_settle_on_the_second_eigenvalue(seed):
    """As it did here after seven products or fewer, by up to 17 %."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4), nn.BatchNorm1d(4))
    x = torch.randn(40, 12)
    for _ in range(5):
        model(x)
    model.eval()
    value = Sharpness(model, x).read().value
    exact = torch.linalg.eigvalsh(GaussNewton(model.double(), x.double()).dense())[-1]
    assert value == pytest.approx(float(exact), rel=1e-2)
