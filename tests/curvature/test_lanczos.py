"""Extreme eigenpairs against dense eigenvalues; residuals that really bound."""

import numpy as np
import pytest
import torch
from torch import nn

from surefoot.curvature import GaussNewton, Hessian
from surefoot.curvature.lanczos import extreme_pairs

from .cases import case


def solve(matrix, k=1, tol=1e-2, start=None, largest=True, **limits):
    dtype = matrix.dtype
    return extreme_pairs(
        lambda v: matrix @ v, len(matrix), k, tol, start, dtype, torch.device("cpu"), largest, **limits
    )


def random_matrix(random, n, dtype):
    """Symmetric, with a spectrum of one of several shapes: decaying, clustered, indefinite, low rank, equal."""
    shape = random.integers(5)
    values = {
        0: lambda: 2.0 ** -np.arange(n),
        1: lambda: 1 + 1e-3 * random.normal(size=n),
        2: lambda: random.normal(size=n),
        3: lambda: np.where(np.arange(n) < 3, random.normal(size=n) * 5, 0),
        4: lambda: np.repeat(random.normal(), n),
    }[int(shape)]() * 10.0 ** random.integers(-6, 7)
    q = np.linalg.qr(random.normal(size=(n, n)))[0]
    return torch.tensor(q * values @ q.T).to(dtype), values


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_residuals_bound_on_a_thousand_random_problems(dtype):
    """An eigenvalue lies within each residual, whether or not it converged; Ritz values stay inside the spectrum."""
    random = np.random.default_rng(0)
    for problem in range(500):
        n = int(random.integers(1, 40))
        matrix, _ = random_matrix(random, n, dtype)
        exact = np.linalg.eigvalsh((matrix.double() + matrix.double().T) / 2)
        k = int(random.integers(1, min(n, 4) + 1))
        largest = bool(random.integers(2))
        tol = float(random.choice([0.3, 1e-2, 1e-4]))
        found = solve(matrix, k, tol, largest=largest, max_products=int(random.integers(k, 80)), seed=problem)
        slack = 4 * torch.finfo(dtype).eps * np.abs(exact).max()
        for value, residual in zip(found.values.tolist(), found.residuals.tolist(), strict=True):
            assert np.abs(exact - value).min() <= residual + slack
            assert exact.min() - 20 * slack <= value <= exact.max() + 20 * slack
        # The residual is that of the vectors returned.
        y = found.vectors.double()
        true = (matrix.double() @ y - y * found.values).norm(dim=0)
        assert (true <= found.residuals + 40 * slack).all()
        assert torch.allclose(y.T @ y, torch.eye(k, dtype=torch.float64), atol=1e-4)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_algebraic_extremes_of_an_indefinite_matrix(largest, k):
    """The largest magnitude is at the other end: asking for the top must not return it."""
    random = np.random.default_rng(1)
    q = np.linalg.qr(random.normal(size=(40, 40)))[0]
    values = np.concatenate([np.linspace(-50, -1, 20), np.linspace(0, 10, 20)]) * (1 if largest else -1)
    matrix = torch.tensor(q * values @ q.T)
    found = solve(matrix, k, 1e-8, largest=largest, max_products=2000)
    expected = np.sort(values)[::-1][:k] if largest else np.sort(values)[:k]
    np.testing.assert_allclose(found.values, expected.copy(), rtol=1e-8, atol=1e-7)
    assert found.converged


def test_repeated_eigenvalues_are_all_found():
    values = np.array([3.0, 3.0, 3.0, 1.0] + [0.0] * 20)
    q = np.linalg.qr(np.random.default_rng(0).normal(size=(24, 24)))[0]
    found = solve(torch.tensor(q * values @ q.T), 4, 1e-8)
    np.testing.assert_allclose(found.values, [3, 3, 3, 1], rtol=1e-9)


def test_a_warm_start_saves_products_and_a_wrong_one_does_no_harm():
    model, inputs, _ = case("mlp", n=200)
    operator = GaussNewton(model, inputs)
    cold = operator.top(1, 1e-4)
    warm = operator.top(1, 1e-4, start=cold)
    assert warm.matvecs <= 2 < cold.matvecs
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01 * torch.randn_like(p))
    moved = GaussNewton(model, inputs)
    again = moved.top(1, 1e-4, start=cold)
    np.testing.assert_allclose(again.values, moved.top(1, 1e-4).values, rtol=1e-4)
    assert again.matvecs < cold.matvecs
    wrong = moved.top(1, 1e-4, start=moved.bottom(1).vectors, max_products=200)
    np.testing.assert_allclose(wrong.values, again.values, rtol=1e-3)


def test_a_model_that_is_not_finite_is_an_outcome():
    model, inputs, labels = case("mlp")
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    for operator in (GaussNewton(model, inputs), Hessian(model, inputs, labels)):
        found = operator.top(2)
        assert found.outcome == "non-finite"
        assert not found.converged
        assert torch.isnan(found.values).all()
        assert found.matvecs <= 2


def test_out_of_budget_is_said_and_gives_the_best_so_far():
    matrix = torch.diag(torch.linspace(0, 1, 500, dtype=torch.float64))
    found = solve(matrix, 1, 1e-10, max_products=5)
    assert found.outcome == "budget"
    assert found.matvecs == 5
    assert 0.5 < found.values[0] <= 1


def test_a_zero_matrix():
    found = solve(torch.zeros(20, 20), 2)
    assert found.converged
    assert found.values.tolist() == [0, 0]


def test_the_same_seed_gives_the_same_bits():
    model, inputs, _ = case("convolution", dtype=torch.float32)
    a, b = (GaussNewton(model, inputs).top(2, seed=3) for _ in range(2))
    assert torch.equal(a.vectors, b.vectors)


def test_restarts_keep_the_memory_and_still_converge():
    random = np.random.default_rng(3)
    q = np.linalg.qr(random.normal(size=(300, 300)))[0]
    matrix = torch.tensor(q * np.linspace(0, 1, 300) ** 3 @ q.T)
    found = solve(matrix, 2, 1e-6, max_products=5000, max_basis=12)
    assert found.converged
    np.testing.assert_allclose(found.values[0], 1, rtol=1e-6)


def test_top_of_a_wide_network_in_float32():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(50, 80), nn.Tanh(), nn.Linear(80, 10))
    inputs = torch.randn(300, 50)
    reference = GaussNewton(model.double(), inputs.double()).top(3, 1e-8, max_products=400)
    found = GaussNewton(model.float(), inputs).top(3, 1e-3, max_products=400)
    np.testing.assert_allclose(found.values, reference.values, rtol=1e-3)
    assert ((found.values - reference.values).abs() <= found.residuals).all()


@pytest.mark.parametrize("tol", [1e-2, 1e-5])
def test_a_start_in_an_invariant_space_is_left(tol):
    """The bottom is larger in magnitude, so that its residual alone would pass for converged."""
    values = np.concatenate([[-50.0], np.linspace(-1, 1, 38), [10.0]])
    matrix = torch.diag(torch.tensor(values))
    found = solve(matrix, 1, tol, start=solve(matrix, 1, 1e-10, largest=False), max_products=200)
    np.testing.assert_allclose(found.values, [10], rtol=10 * tol)
    assert found.converged
    start = torch.eye(40, dtype=torch.float64)[:, :3]
    np.testing.assert_allclose(solve(matrix, 1, 1e-6, start=start, max_products=200).values, [10], rtol=1e-5)


def test_the_hessian_from_its_own_bottom():
    model, inputs, labels = case("mlp", n=60)
    operator = Hessian(model, inputs, labels)
    cold = operator.top(1, 1e-4, max_products=400)
    warm = operator.top(1, 1e-4, start=operator.bottom(1, 1e-8, max_products=400), max_products=400)
    np.testing.assert_allclose(warm.values, cold.values, rtol=1e-3)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e18, 1e30])
def test_any_scale_that_float32_can_hold(scale):
    random = np.random.default_rng(0)
    q = np.linalg.qr(random.normal(size=(60, 60)))[0]
    values = np.linspace(-1, 2, 60)
    found = solve(torch.tensor(scale * (q * values @ q.T)).float(), 2, 1e-3, max_products=400)
    assert found.converged
    np.testing.assert_allclose(found.values / scale, values[::-1][:2], rtol=1e-2)


def test_a_start_wider_than_the_budget():
    matrix = torch.diag(torch.linspace(0, 1, 60, dtype=torch.float64))
    calls = []
    start = torch.randn(60, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = extreme_pairs(
        lambda v: calls.append(v.shape[1]) or matrix @ v,
        60,
        1,
        1e-2,
        start,
        torch.float64,
        torch.device("cpu"),
        True,
        max_products=5,
    )
    assert calls == [2, 2]  # two blocks of as many vectors as leave room for the second
    assert found.matvecs == 4


def test_one_start_vector_too_many_for_two_blocks_does_not_cost_the_second():
    """Five pairs from the five known and the next one, in ten products: the first block alone learns nothing."""
    random = np.random.default_rng(1)
    q = np.linalg.qr(random.normal(size=(80, 80)))[0]
    values = np.concatenate([np.linspace(3, 5, 6), np.linspace(0, 0.5, 74)])
    matrix = torch.tensor(q * values @ q.T)
    known = torch.tensor(q[:, :6][:, ::-1] + 0.05 * random.normal(size=(80, 6)))
    found = solve(matrix, 5, 1e-2, start=known, max_products=10)
    assert found.matvecs == 10
    np.testing.assert_allclose(found.values, [5, 4.6, 4.2, 3.8, 3.4], rtol=1e-2)
