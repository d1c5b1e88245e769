"""Each rule against hand computations, closed forms and other packages."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import surefoot as sf
from surefoot.curvature import GaussNewton, Hessian, Sharpness
from surefoot.errors import BadInput
from surefoot.optim import confidence_weight, orthogonalise, schedules
from surefoot.optim.two_pass import entropy_coefficients
from tests.optim.cases import batch, closure, network, same, train, weights

A = torch.tensor([1.0, 5.0, 20.0], dtype=torch.float64)


def quadratic(start: tuple[float, ...] = (1.0, -2.0, 0.5)) -> nn.Parameter:
    return nn.Parameter(torch.tensor(start, dtype=torch.float64))


def bowl(theta: Tensor):  # type: ignore[no-untyped-def]
    def run() -> Tensor:
        loss = 0.5 * (A * theta**2).sum()
        loss.backward()
        return loss

    return run


class TestSAM:
    def test_a_step_on_a_quadratic(self) -> None:
        theta = quadratic()
        opt = sf.optim.SAM(torch.optim.SGD([theta], lr=0.01), rho=0.1)
        loss = opt.step(bowl(theta))
        assert theta.tolist() == pytest.approx([0.98993, -1.89647, 0.38589], abs=5e-6)
        assert float(loss.detach()) == pytest.approx(0.5 * (1 + 20 + 5))
        assert opt.last["epsilon"] == pytest.approx(0.1)

    def test_weight_decay_does_not_enter_the_ascent(self) -> None:
        theta = quadratic()
        sf.optim.SAM(torch.optim.SGD([theta], lr=0.01, weight_decay=0.5), rho=0.1).step(bowl(theta))
        start = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
        g = A * start
        expected = start - 0.01 * (A * (start + 0.1 * g / g.norm()) + 0.5 * start)
        assert torch.allclose(theta, expected, atol=1e-14)

    def test_the_norm_is_over_all_groups_and_radii_may_differ(self) -> None:
        a, b = quadratic(), quadratic((3.0, 1.0, -1.0))
        base = torch.optim.SGD([{"params": [a]}, {"params": [b], "rho": 0.3}], lr=0.01)
        opt = sf.optim.SAM(base, rho=0.1)

        def run() -> Tensor:
            loss = 0.5 * (A * a**2).sum() + 0.5 * (A * b**2).sum()
            loss.backward()
            return loss

        starts = [a.detach().clone(), b.detach().clone()]
        opt.step(run)
        gradients = [A * start for start in starts]
        norm = torch.cat(gradients).norm()
        sizes = []
        for theta, start, g, rho in zip((a, b), starts, gradients, (0.1, 0.3), strict=True):
            assert torch.allclose(theta, start - 0.01 * A * (start + rho * g / norm), atol=1e-14)
            sizes.append(float(rho * g.norm() / norm))
        assert opt.last["epsilon"] == pytest.approx(math.hypot(*sizes))

    @given(seed=st.integers(0, 10_000), rho=st.floats(1e-3, 1.0))
    def test_epsilon_has_length_rho(self, seed: int, rho: float) -> None:
        model = network(seed % 7)
        opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.0), rho=rho)
        points = []
        run = closure(model, opt, *batch(seed=seed))

        def seen() -> Tensor:
            points.append(torch.cat([w.flatten() for w in weights(model)]))
            return run()

        opt.step(seen)
        assert float((points[1] - points[0]).norm()) == pytest.approx(rho, rel=1e-3)
        assert opt.last["epsilon"] == pytest.approx(rho, rel=1e-6)

    def test_weights_come_back_to_the_bit_in_low_precision(self) -> None:
        model = network().bfloat16()
        before = weights(model)
        opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.0), rho=0.3)
        x, y = batch()
        opt.step(closure(model, opt, x.bfloat16(), y))
        assert same(model, before)

    def test_against_pytorch_optimizer_where_it_is_right(self) -> None:
        """Called by its own two steps, which its closure form is not."""
        other = pytest.importorskip("pytorch_optimizer")
        ours, theirs = network(), network()
        one = sf.optim.SAM(torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9), rho=0.05)
        two = other.SAM(theirs.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9)
        for step in range(5):
            x, y = batch(seed=step)
            one.step(closure(ours, one, x, y))
            nn.functional.cross_entropy(theirs(x), y).backward()
            two.first_step(zero_grad=True)
            nn.functional.cross_entropy(theirs(x), y).backward()
            two.second_step(zero_grad=True)
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-6)

    def test_custom_batch_norm_classes_are_met(self) -> None:
        """USERS 2: a class of the user's own, held by nobody we know."""

        class Own(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("running_mean", torch.zeros(3))
                self.count = 0

            def forward(self, x: Tensor) -> Tensor:
                if self.training:
                    self.running_mean.mul_(0.9).add_(0.1 * x.detach().mean(0))  # type: ignore[operator]
                return x - self.running_mean

        model = nn.Sequential(nn.Linear(6, 3), Own())
        reference = nn.Sequential(nn.Linear(6, 3), Own())
        reference.load_state_dict(model.state_dict())
        opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.1))
        x, y = batch()
        opt.step(closure(model, opt, x, y))
        reference(x)
        assert torch.equal(model[1].running_mean, reference[1].running_mean)  # type: ignore[arg-type]

    def test_a_gradient_that_is_not_finite_is_the_bases_to_answer(self) -> None:
        ours, theirs = quadratic(), quadratic()
        ours.data[0] = theirs.data[0] = math.inf
        sf.optim.SAM(torch.optim.SGD([ours], lr=0.01)).step(bowl(ours))
        torch.optim.SGD([theirs], lr=0.01).step(bowl(theirs))
        assert torch.equal(ours.nan_to_num(7.0), theirs.nan_to_num(7.0))

    def test_lambda_bounds(self) -> None:
        """Tan et al. (2026), Eq. 2: λ₀ ≤ λ wherever Lemma 1 holds, here on a convex loss."""
        torch.manual_seed(0)
        model = nn.Linear(6, 3).double()
        opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.1)
        for step in range(20):
            x, y = batch(seed=step)
            opt.step(closure(model, opt, x.double(), y))
            assert 1 < opt.last["lambda0"] <= opt.last["lambda"]

    def test_entropy_coefficients(self) -> None:
        p, after = 0.8, 0.7
        found = entropy_coefficients(-math.log(p), -math.log(after), 0.1)
        assert found["lambda"] == pytest.approx(0.3 / 0.2)
        assert found["lambda0"] == pytest.approx(0.3 / (1 - math.exp(0.05) * 0.7))
        assert entropy_coefficients(1e-12, 2e-12, 0.0)["lambda"] == pytest.approx(2.0)
        assert entropy_coefficients(0.1, 0.05, 1.0)["lambda0"] == math.inf
        assert math.isnan(entropy_coefficients(0.0, 0.1, 0.1)["lambda"])

    @pytest.mark.parametrize("rho", [-0.1, math.nan, math.inf, "big", True, None])
    def test_bad_radius(self, rho: object) -> None:
        with pytest.raises(BadInput, match="rho must be a finite number of at least 0"):
            sf.optim.SAM(torch.optim.SGD([quadratic()], lr=0.1), rho=rho)  # type: ignore[arg-type]

    def test_bad_bases(self) -> None:
        theta = quadratic()
        with pytest.raises(BadInput, match="must be an optimizer"):
            sf.optim.SAM([theta], rho=0.1)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="takes several"):
            sf.optim.SAM(torch.optim.LBFGS([theta]))
        with pytest.raises(BadInput, match="takes several"):
            sf.optim.SAM(sf.optim.SAM(torch.optim.SGD([theta], lr=0.1)))
        with pytest.raises(BadInput, match="takes several"):
            sf.optim.SAM(sf.optim.BSAM([theta], examples=10))

    def test_a_base_is_wrapped_anew(self) -> None:
        theta = quadratic()
        base = torch.optim.SGD([theta], lr=0.0)
        for rho in (0.05, 0.2, 1.0):
            opt = sf.optim.SAM(base, rho=rho)
            opt.zero_grad()
            opt.step(bowl(theta))
            assert opt.last["epsilon"] == pytest.approx(rho)
        with pytest.raises(BadInput, match="another purpose"):
            sf.optim.SAM(torch.optim.Adadelta([theta]))
        with pytest.raises(BadInput, match="maximize"):
            sf.optim.SAM(torch.optim.SGD([theta], lr=0.1, maximize=True))

    def test_groups_stay_shared_and_radii_are_filled_in(self) -> None:
        theta = quadratic()
        plain = torch.optim.SGD([theta], lr=0.1)
        base = torch.optim.SGD([theta], lr=0.1)
        opt = sf.optim.SAM(base)
        base.load_state_dict(plain.state_dict())
        assert opt.param_groups is base.param_groups
        opt.step(bowl(theta))
        assert opt.last["epsilon"] == pytest.approx(0.05)
        opt.param_groups[0]["rho"] = math.nan
        with pytest.raises(BadInput, match="rho"):
            opt.step(bowl(theta))

    @pytest.mark.parametrize("bad", [(1.0, 2.0), {"loss": 1.0}, torch.ones(2)])
    def test_closures_return_one_number(self, bad: object) -> None:
        theta = quadratic()
        run = bowl(theta)
        opt = sf.optim.SAM(torch.optim.SGD([theta], lr=0.1))
        with pytest.raises(BadInput, match="must return the loss"):
            opt.step(lambda: (run(), bad)[1])
        assert theta.grad is None
        opt.step(run)

    def test_huge_gradients_have_a_norm(self) -> None:
        theta = nn.Parameter(torch.ones(3))

        def run() -> Tensor:
            loss = (theta * 5e20).sum()
            loss.backward()
            return loss

        opt = sf.optim.SAM(torch.optim.SGD([theta], lr=0.0), rho=0.1)
        opt.step(run)
        assert opt.last["epsilon"] == pytest.approx(0.1)

    def test_a_broken_gradient_says_nan(self) -> None:
        theta = quadratic()
        opt = sf.optim.SAM(torch.optim.SGD([theta], lr=0.0))
        theta.data[0] = math.inf
        opt.step(bowl(theta))
        assert opt.last["epsilon"] == 0.0
        assert math.isnan(opt.last["lambda"])

    def test_sparse_gradients_are_refused(self) -> None:
        embedding = nn.Embedding(5, 2, sparse=True)
        opt = sf.optim.SAM(torch.optim.SGD(embedding.parameters(), lr=0.1))

        def run() -> Tensor:
            loss = embedding(torch.tensor([1, 2])).square().sum()
            loss.backward()
            return loss

        with pytest.raises(BadInput, match="sparse"):
            opt.step(run)

    def test_hooks_of_torch_run(self) -> None:
        theta = quadratic()
        opt = sf.optim.SAM(torch.optim.SGD([theta], lr=0.1))
        seen = []
        opt.register_step_pre_hook(lambda *_: seen.append("before"))
        opt.register_step_post_hook(lambda *_: seen.append("after"))
        opt.step(bowl(theta))
        assert seen == ["before", "after"]


class TestASAM:
    def test_formula(self) -> None:
        w = nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64))
        b = nn.Parameter(torch.tensor([1.0, -1.0], dtype=torch.float64))
        opt = sf.optim.ASAM(torch.optim.SGD([w, b], lr=0.1), rho=0.5, eta=0.01)
        seen = []

        def run() -> Tensor:
            seen.append((w.detach().clone(), b.detach().clone()))
            loss = (w**2).sum() * 0.5 + (b**3).sum()
            loss.backward()
            return loss

        opt.step(run)
        (w0, b0), (w1, b1) = seen
        t, gw, gb = w0.abs() + 0.01, w0, 3 * b0**2
        norm = ((t * gw).square().sum() + gb.square().sum()).sqrt()
        assert torch.allclose(w1, w0 + 0.5 * t**2 * gw / norm, atol=1e-14)
        assert torch.allclose(b1, b0 + 0.5 * gb / norm, atol=1e-14)
        size = torch.cat([(w1 - w0).flatten(), b1 - b0]).norm()
        assert opt.last["epsilon"] == pytest.approx(float(size))

    def test_names_decide_where_they_are_known(self) -> None:
        model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        named = sf.optim.ASAM(torch.optim.SGD(model.named_parameters(), lr=0.1))
        assert len(named._adaptive()) == 2  # the norm's weight too
        assert len(sf.optim.ASAM(torch.optim.SGD(model.parameters(), lr=0.1))._adaptive()) == 1

    @given(a=st.floats(0.1, 10.0))
    def test_rescaling_layers_changes_nothing(self, a: float) -> None:
        """(w₁, w₂) → (a w₁, w₂/a) leaves the perturbed loss where it was, with η = 0."""

        def perturbed(scale: float) -> float:
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 3, bias=False)).double()
            with torch.no_grad():
                model[0].weight *= scale
                model[1].weight /= scale
            opt = sf.optim.ASAM(torch.optim.SGD(model.parameters(), lr=0.0), rho=0.5, eta=0.0)
            x, y = batch()
            opt.step(closure(model, opt, x.double(), y))
            return opt.last["perturbed_loss"]

        assert perturbed(a) == pytest.approx(perturbed(1.0), rel=1e-9)


class TestVASSO:
    def test_average(self) -> None:
        theta = quadratic()
        opt = sf.optim.VASSO(torch.optim.SGD([theta], lr=0.01), rho=0.1, theta=0.3)
        w, d = theta.detach().clone(), None
        for _ in range(4):
            g = A * w
            d = g if d is None else 0.7 * d + 0.3 * g
            w = w - 0.01 * A * (w + 0.1 * d / d.norm())
            opt.step(bowl(theta))
            assert torch.allclose(theta, w, atol=1e-13)
        assert "direction" in opt.state_dict()["state"][0]

    def test_the_average_survives_a_broken_step(self) -> None:
        theta = quadratic()
        opt = sf.optim.VASSO(torch.optim.SGD([theta], lr=0.0))
        opt.step(bowl(theta))
        before = opt.state_dict()["state"][0]["direction"].clone()

        def broken() -> Tensor:
            loss = (theta * math.inf).sum()
            loss.backward()
            return loss

        opt.step(broken)
        assert torch.equal(before, opt.state_dict()["state"][0]["direction"])

    @pytest.mark.parametrize("theta", [0, -0.1, 1.1, math.nan, "x"])
    def test_bad_theta(self, theta: object) -> None:
        with pytest.raises(BadInput, match="theta must lie above 0"):
            sf.optim.VASSO(torch.optim.SGD([quadratic()], lr=0.1), theta=theta)  # type: ignore[arg-type]


class TestCSAM:
    @pytest.mark.parametrize(
        ("gamma", "p", "factor"), [(1.0, 0.5 + 1e-9, 0.8207), (1.0, 1 - 1e-12, 0.5), (2.0, 1 - 1e-12, 0.25)]
    )
    def test_gradient_factor(self, gamma: float, p: float, factor: float) -> None:
        """(1 + p)^{−γ} [1 − γ p ln p / (1 + p)] times the gradient of cross-entropy."""
        z = torch.tensor([[math.log(p / (1 - p)), 0.0]], dtype=torch.float64, requires_grad=True)
        y = torch.tensor([0])
        loss = (confidence_weight(z, y, gamma) * nn.functional.cross_entropy(z, y, reduction="none")).mean()
        (ours,) = torch.autograd.grad(loss, z)
        (plain,) = torch.autograd.grad(nn.functional.cross_entropy(z, y), z)
        assert float(ours[0, 0] / plain[0, 0]) == pytest.approx(factor, abs=5e-5)

    @given(p=st.floats(0.001, 0.999), gamma=st.floats(0.0, 2.0))
    def test_weight(self, p: float, gamma: float) -> None:
        z = torch.tensor([[math.log(p / (1 - p)), 0.0]], dtype=torch.float64)
        found = float(confidence_weight(z, torch.tensor([0]), gamma))
        p = float(torch.softmax(z, 1)[0, 0])
        assert found == pytest.approx(1.0 if p <= 0.5 else (1 + p) ** -gamma, rel=1e-12)

    def test_extreme_logits_and_halves(self) -> None:
        z = torch.tensor([[1e4, 0.0], [0.0, 1e4]], dtype=torch.float32)
        assert confidence_weight(z, torch.tensor([0, 0]), 1.0).tolist() == [0.5, 1.0]
        assert (
            confidence_weight(torch.tensor([[1.0, 0.0]], dtype=torch.float16), torch.tensor([0]), 1.0).dtype
            == torch.float32
        )

    def step(self, detach: bool, loss: object = None) -> tuple[nn.Module, sf.optim.CSAM]:
        torch.manual_seed(0)
        model = nn.Linear(6, 3).double()
        with torch.no_grad():
            model.weight *= 8
        opt = sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.05, gamma=1.0, detach=detach)
        outer = opt.outer(loss or nn.CrossEntropyLoss())  # type: ignore[arg-type]
        x, y = batch()

        def run() -> Tensor:
            found = outer(model(x.double()), y)
            found.backward()
            return found

        opt.step(run)
        return model, opt

    @pytest.mark.parametrize("detach", [False, True])
    def test_by_hand(self, detach: bool) -> None:
        torch.manual_seed(0)
        model = nn.Linear(6, 3).double()
        with torch.no_grad():
            model.weight *= 8
        x, y = batch()
        w = model.weight.detach().clone().requires_grad_()
        b = model.bias.detach().clone().requires_grad_()
        g = torch.autograd.grad(nn.functional.cross_entropy(x.double() @ w.T + b, y), (w, b))
        norm = torch.cat([part.flatten() for part in g]).norm()
        there = [(v + 0.05 * part / norm).detach().requires_grad_() for v, part in zip((w, b), g, strict=True)]
        logits = x.double() @ there[0].T + there[1]
        values = nn.functional.cross_entropy(logits, y, reduction="none")
        p = torch.exp(-values)
        assert 0 < int((p > 0.5).sum()) < len(p)
        weight = torch.where(p > 0.5, (1 + p) ** -1.0, 1.0)
        outer = ((weight.detach() if detach else weight) * values).mean()
        steps = torch.autograd.grad(outer, there)
        ours, opt = self.step(detach)
        assert torch.allclose(ours.weight, w - 0.1 * steps[0], atol=1e-13)  # type: ignore[arg-type]
        assert torch.allclose(ours.bias, b - 0.1 * steps[1], atol=1e-13)  # type: ignore[arg-type]
        assert opt.last["perturbed_loss"] == pytest.approx(float(values.mean().detach()))

    def test_any_per_example_loss(self) -> None:
        def focal(logits: Tensor, labels: Tensor) -> Tensor:
            values = nn.functional.cross_entropy(logits, labels, reduction="none")
            return (1 - torch.exp(-values)) ** 3 * values

        model, _ = self.step(False, focal)
        assert torch.isfinite(model.weight).all()  # type: ignore[arg-type]

    def test_class_weights_keep_torchs_mean(self) -> None:
        model = network()
        opt = sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1))
        loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 10.0, 0.1]))
        x, y = batch()
        assert torch.allclose(opt.outer(loss)(model(x), y), loss(model(x), y))
        with pytest.raises(BadInput, match="ignored"):
            opt.outer(nn.CrossEntropyLoss(ignore_index=1))(model(x), y)

    def test_unsure_examples_make_it_sam(self) -> None:
        ours, theirs = network(), network()
        one = sf.optim.CSAM(torch.optim.SGD(ours.parameters(), lr=1e-3), gamma=2.0)
        two = sf.optim.SAM(torch.optim.SGD(theirs.parameters(), lr=1e-3))
        with torch.no_grad():
            for model in (ours, theirs):
                model[-1].weight.zero_()  # type: ignore[index, operator, union-attr]
        train(ours, one, 3)
        train(theirs, two, 3)
        assert same(ours, theirs)

    def test_outside_a_step_it_is_the_plain_mean(self) -> None:
        model = network()
        opt = sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1))
        x, y = batch()
        plain = nn.functional.cross_entropy(model(x), y)
        assert torch.allclose(opt.outer(nn.CrossEntropyLoss())(model(x), y), plain)

    def test_misuse(self) -> None:
        model = network()
        base = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = sf.optim.CSAM(base)
        x, y = batch()

        def forgot() -> Tensor:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        with pytest.raises(BadInput, match="outer"):
            opt.step(forgot)
        outer = opt.outer(nn.functional.cross_entropy)
        with pytest.raises(BadInput, match="reduction='none'"):
            outer(model(x), y)
        good = opt.outer(nn.CrossEntropyLoss())
        with pytest.raises(BadInput, match="integers"):
            good(model(x), torch.softmax(model(x), 1))
        with pytest.raises(BadInput, match=r"labels must lie in 0\.\.2"):
            good(model(x), torch.full_like(y, -100))
        with pytest.raises(BadInput, match="gamma"):
            sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1), gamma=-1.0)
        with pytest.warns(UserWarning, match="above 2"):
            sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1), gamma=2.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1), gamma=2.0)


class TestMuon:
    def test_singular_values(self) -> None:
        """[.01, 1] goes into [.682, 1.135]; .0485 at 1e-4."""
        sizes = torch.logspace(-4, 0, 400, dtype=torch.float64)
        sizes = sizes / sizes.norm()
        keep = sizes >= 0.01
        for columns in (400, 1000):  # both ways to iterate
            matrix = torch.nn.functional.pad(torch.diag(sizes), (0, columns - 400))
            found = orthogonalise(matrix[None])[0].diagonal()[keep]
            assert len(found) > 50
            assert 0.68 < float(found.min()) <= float(found.max()) < 1.14
        tiny = torch.diag(torch.tensor([1.0, 1e-4], dtype=torch.float64))[None]
        assert float(orthogonalise(tiny)[0, 1, 1]) == pytest.approx(0.0485, abs=5e-4)

    @pytest.mark.parametrize("shape", [(20, 20), (10, 50), (50, 10), (16, 144)])
    def test_two_ways_agree(self, shape: tuple[int, int]) -> None:
        x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
        wide = orthogonalise(x)
        y = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
        y = y.double().mT if shape[0] > shape[1] else y.double()
        for _ in range(5):
            gram = y @ y.mT
            y = 3.4445 * y + (-4.7750 * gram + 2.0315 * gram @ gram) @ y
        y = y.mT if shape[0] > shape[1] else y
        assert torch.allclose(wide.double(), y, atol=2e-4)

    @pytest.mark.parametrize("nesterov", [True, False])
    def test_against_torch(self, nesterov: bool) -> None:
        torch.manual_seed(0)
        ours = [nn.Parameter(torch.randn(30, 40)), nn.Parameter(torch.randn(60, 20)), nn.Parameter(torch.randn(3, 3))]
        theirs = [nn.Parameter(p.detach().clone()) for p in ours[:2]]
        one = sf.optim.Muon(ours, lr=0.02, weight_decay=0.1, nesterov=nesterov)
        two = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, nesterov=nesterov, adjust_lr_fn="original")
        for _ in range(5):
            for a, b in zip(ours, theirs, strict=False):
                a.grad = torch.randn(a.shape)
                b.grad = a.grad.clone()
            before = [p.grad.clone() for p in ours[:2]]  # type: ignore[union-attr]
            one.step()
            two.step()
            assert all(torch.equal(p.grad, g) for p, g in zip(ours, before, strict=False))  # type: ignore[arg-type]
        for a, b in zip(ours, theirs, strict=False):
            assert float((a - b).detach().norm() / (5 * 0.02 * min(a.shape) ** 0.5)) < 2e-2

    def test_adamw_part_is_torchs(self) -> None:
        ours, theirs = network(), network()
        one = sf.optim.Muon(ours.named_parameters(), adamw=["0", "2"], adamw_lr=0.01)
        two = torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0)
        assert set(one.routing.values()) == {"adamw"}
        train(ours, one, 4)
        train(theirs, two, 4)
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-6)

    def test_routing(self, caplog: pytest.LogCaptureFixture) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(4, 2))
        with caplog.at_level("INFO", logger="surefoot"):
            opt = sf.optim.Muon(model.named_parameters(), adamw=["0.weight"])
        assert "2.weight to muon" in caplog.text
        assert {name for name, rule in opt.routing.items() if rule == "muon"} == {"2.weight"}
        x = torch.randn(2, 3, 5, 5)
        model(x).square().sum().backward()
        before = model[2].weight.detach().clone()
        opt.step()
        step = (before - model[2].weight.detach()).flatten(1) / 0.02  # type: ignore[operator, arg-type]
        assert float(torch.linalg.svdvals(step).max()) < 1.3

    def test_names_shared_by_models_and_norms_of_several_dimensions(self) -> None:
        one, two = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        opt = sf.optim.Muon([{"params": one.named_parameters()}, {"params": two.named_parameters()}])
        assert opt.routing["0.1.weight"] == "adamw"
        assert [name for name, rule in opt.routing.items() if rule == "muon"] == ["0.0.weight", "1.0.weight"]
        model = nn.ModuleDict({"norm": nn.LayerNorm((4, 4)), "a": nn.Linear(4, 4), "b": nn.Linear(4, 2)})
        assert sf.optim.Muon(model.named_parameters()).routing["norm.weight"] == "adamw"

    def test_scale_of_the_gradient_does_not_matter(self) -> None:
        x = torch.randn(1, 8, 30, generator=torch.Generator().manual_seed(0))
        assert torch.allclose(orthogonalise(x), orthogonalise(1e4 * x), atol=1e-5)

    def test_misuse(self) -> None:
        model = network()
        with pytest.raises(BadInput, match="empty"):
            sf.optim.Muon([])
        with pytest.raises(BadInput, match="called 'headd'"):
            sf.optim.Muon(model.named_parameters(), adamw=["headd"])
        with pytest.raises(BadInput, match="list of names"):
            sf.optim.Muon(model.named_parameters(), adamw="0")
        with pytest.raises(BadInput, match="momentum"):
            sf.optim.Muon(model.named_parameters(), momentum=1.0)
        with pytest.raises(BadInput, match="lr"):
            sf.optim.Muon(model.named_parameters(), lr=-1)


class TestBSAM:
    def test_by_hand(self) -> None:
        """Without noise: m ← β₁m + (1 − β₁)(g̃ + δw), w ← w − lr m/s, s ← β₂s + (1 − β₂)(√s|g| + damping + δ)."""
        theta = quadratic()
        opt = sf.optim.BSAM([theta], examples=100, lr=0.05, rho=0.02, prior_precision=4.0, noise=False)
        w, m, s, delta = theta.detach().clone(), torch.zeros(3).double(), torch.ones(3).double(), 0.04
        for _ in range(3):
            g = A * w
            after = A * (w + 0.02 * g / s)
            m = 0.9 * m + 0.1 * (after + delta * w)
            w, s = w - 0.05 * m / s, 0.999 * s + 0.001 * (s.sqrt() * g.abs() + 0.1 + delta)
            opt.step(bowl(theta))
            assert torch.allclose(theta, w, atol=1e-13)
            assert torch.allclose(opt.state[theta]["precision"], s, atol=1e-13)

    def test_noise_has_the_posteriors_variance(self) -> None:
        theta = nn.Parameter(torch.zeros(20_000, dtype=torch.float64))
        opt = sf.optim.BSAM([theta], examples=400)
        torch.manual_seed(0)
        with opt.sampled():
            drawn = theta.detach().clone()
        assert float(drawn.std()) == pytest.approx(1 / 20, rel=0.03)
        assert float(theta.detach().abs().max()) == 0

    def test_sampling_leaves_the_callers_mode_and_frozen_weights(self) -> None:
        model = network()
        model[0].weight.requires_grad_(False)  # type: ignore[index, union-attr, operator]
        opt = sf.optim.BSAM(model.parameters(), examples=10)
        x, y = batch()
        before = model[0].weight.clone()  # type: ignore[index, union-attr, operator]
        with torch.inference_mode(), opt.sampled():
            assert torch.equal(model[0].weight, before)  # type: ignore[index, union-attr, arg-type]
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            plain = model(x)
            draws = []
            for _ in range(2):
                with opt.sampled():
                    draws.append(model(x))
            assert not draws[0].requires_grad
            assert not torch.equal(draws[0], draws[1])
            assert torch.equal(model(x), plain)
        opt.step(closure(model, opt, x, y))
        with pytest.raises(BadInput, match="another optimizer"):
            opt.load_state_dict(torch.optim.AdamW(model.parameters()).state_dict() | {"state": {0: {"exp_avg": x}}})

    def test_precision_stays_up(self) -> None:
        model = network()
        opt = sf.optim.BSAM(model.parameters(), examples=100)
        train(model, opt, 30)
        assert all(float(opt.state[p]["precision"].min()) >= min(1.0, 0.1 + 0.4) for p in model.parameters())

    def test_parts_of_a_batch(self) -> None:
        ours, theirs = quadratic(), quadratic()
        one = sf.optim.BSAM([ours], examples=100, noise=False)
        two = sf.optim.BSAM([theirs], examples=100, noise=False)
        one.step([bowl(ours), bowl(ours)])
        two.step(bowl(theirs))
        assert torch.allclose(ours, theirs, atol=1e-15)
        with pytest.raises(BadInput, match="closure"):
            one.step([])

    def test_misuse(self) -> None:
        for bad in (
            {"examples": 0},
            {"examples": 10, "rho": -1.0},
            {"examples": 10, "damping": 0.0},
            {"examples": 10, "betas": (1.0, 0.9)},
        ):
            with pytest.raises(BadInput):
                sf.optim.BSAM([quadratic()], **bad)  # type: ignore[arg-type]


class TestBulk:
    def operators(self, model: nn.Module) -> list[object]:
        x, y = batch(60)
        return [GaussNewton(model, x), Hessian(model, x, y), Sharpness(model, x)]

    @pytest.mark.parametrize("which", [0, 1, 2])
    def test_the_sharp_directions_are_left_alone(self, which: int) -> None:
        model = network()
        operator = self.operators(model)[which]
        opt = sf.optim.BulkSGD(model.parameters(), 0.1, operator, k=3)  # type: ignore[arg-type]
        dom_model = network()
        dom = sf.optim.DomSGD(dom_model.parameters(), 0.1, self.operators(dom_model)[which], k=3)  # type: ignore[arg-type]
        plain_model = network()
        plain = torch.optim.SGD(plain_model.parameters(), lr=0.1)
        start = torch.cat([w.flatten() for w in weights(model)])
        moves = []
        for each, rule in ((model, opt), (dom_model, dom), (plain_model, plain)):
            train(each, rule, 1)
            moves.append(torch.cat([w.flatten() for w in weights(each)]) - start)
        basis = opt.state[next(iter(model.parameters()))]["basis"]
        assert float((basis @ moves[0]).abs().max()) < 1e-6
        assert float((moves[1] - (basis @ moves[1]) @ basis).abs().max()) < 1e-6
        assert torch.allclose(moves[0] + moves[1], moves[2], atol=1e-6)
        assert 0 < opt.last["captured"] < 1

    def test_diagonal_quadratic_freezes_the_top_coordinate(self) -> None:
        class Diagonal(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.theta = nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))

            def forward(self, x: Tensor) -> Tensor:
                return x * (A.sqrt() * self.theta)

        model = Diagonal()
        x = torch.ones(1, 3, dtype=torch.float64)
        operator = Hessian(model, x, torch.zeros(1, dtype=torch.long), loss=lambda z, y: 0.5 * z.square().sum(1))
        opt = sf.optim.BulkSGD(model.parameters(), 0.01, operator, k=1, tol=1e-6, products=30)
        for _ in range(5):
            opt.step(bowl(model.theta))
            opt.zero_grad()
        assert float(model.theta[2].detach()) == pytest.approx(0.5, abs=1e-9)
        assert model.theta.tolist()[:2] == pytest.approx([0.99**5, -2 * 0.95**5], rel=1e-9)

    @pytest.mark.parametrize("k", [1, 3])
    def test_the_first_directions_are_the_sharpest_ones(self, k: int) -> None:
        model = network().double()
        x, y = batch(60)
        hessian = Hessian(model, x, y)
        opt = sf.optim.BulkSGD(model.parameters(), 0.1, hessian, k=k)
        vectors = torch.linalg.eigh(hessian.dense()).eigenvectors[:, -k:]
        opt.step(closure(model, opt, x.double(), y))
        basis = opt.state[next(iter(model.parameters()))]["basis"]
        assert float(torch.linalg.svdvals(basis @ vectors).min()) > 0.97
        assert opt.last["residual"] <= 0.05

    def test_parameters_that_stand_still_are_not_leant_on(self) -> None:
        model = network()
        opt = sf.optim.BulkSGD(model.parameters(), 0.1, GaussNewton(model, batch(60)[0]), k=2)
        run = closure(model, opt, *batch())
        start = torch.cat([w.flatten() for w in weights(model)])

        def partly() -> Tensor:
            loss = run()
            model[0].weight.grad = None  # type: ignore[index, union-attr]
            return loss

        opt.step(partly)
        moved = torch.cat([w.flatten() for w in weights(model)]) - start
        assert float((opt.state[model[0].weight]["basis"] @ moved).abs().max()) < 1e-6  # type: ignore[index]

    def test_frozen_layers(self) -> None:
        model = network()
        model[0].requires_grad_(False)  # type: ignore[index, operator]
        opt = sf.optim.BulkSGD(model.parameters(), 0.1, GaussNewton(model, batch()[0]), k=1)
        train(model, opt, 2)

    def test_refresh_interval_and_warm_start(self) -> None:
        model = network()
        opt = sf.optim.BulkSGD(model.parameters(), 0.05, GaussNewton(model, batch(60)[0]), k=2, refresh=3)
        found = []
        for step in range(7):
            train(model, opt, 1, seed=step)
            found.append("matvecs" in opt.last)
        assert found == [True, False, False, True, False, False, True]

    @pytest.mark.parametrize("k", [1, 2])
    def test_a_direction_that_overtakes_the_last_is_taken_out(self, k: int) -> None:
        class Moving(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.theta = nn.Parameter(torch.ones(20, dtype=torch.float64))
                self.register_buffer("values", 0.3 ** torch.arange(20, dtype=torch.float64))

            def forward(self, x: Tensor) -> Tensor:
                return x * (self.values.sqrt() * self.theta)

        model = Moving()
        x = torch.ones(1, 20, dtype=torch.float64)
        operator = Hessian(model, x, torch.zeros(1, dtype=torch.long), loss=lambda z, y: 0.5 * z.square().sum(1))
        opt = sf.optim.BulkSGD(model.parameters(), 0.01, operator, k=k)
        for step in range(40):
            model.values[:4] = torch.tensor([1.0, 0.9, 0.7, 0.1], dtype=torch.float64)
            model.values[k] = 0.5 + 0.02 * step  # past the last that is taken out
            model.theta.grad = torch.ones_like(model.theta)
            opt.step()
            sizes, places = model.values.topk(k + 1)
            basis = opt.state[model.theta]["basis"]
            assert basis.shape == (k, 20)
            if sizes[k - 1] - sizes[k] > 0.05:
                assert float(torch.linalg.svdvals(basis[:, places[:k]]).min()) > 0.9

    def test_groups_with_their_own_rates(self) -> None:
        model = network()
        groups = [
            {"params": list(model[0].parameters())},
            {"params": [*model[2].parameters(), *model[4].parameters()], "lr": 0.01},
        ]  # type: ignore[index]
        opt = sf.optim.BulkSGD(groups, 0.1, GaussNewton(model, batch(60)[0]), k=2)
        start = torch.cat([w.flatten() for w in weights(model)])
        train(model, opt, 1)
        moved = torch.cat([w.flatten() for w in weights(model)]) - start
        assert float((opt.state[model[0].weight]["basis"] @ moved).abs().max()) < 1e-6  # type: ignore[index]

    def test_misuse(self) -> None:
        model, other = network(), network()
        operator = GaussNewton(model, batch()[0])
        with pytest.raises(BadInput, match="same model"):
            sf.optim.BulkSGD(other.parameters(), 0.1, operator)
        d = sum(p.numel() for p in model.parameters())
        with pytest.raises(BadInput, match="k must be an integer"):
            sf.optim.BulkSGD(model.parameters(), 0.1, operator, k=d + 1)
        with pytest.raises(BadInput, match="operator must be"):
            sf.optim.BulkSGD(model.parameters(), 0.1, model)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="tol"):
            sf.optim.BulkSGD(model.parameters(), 0.1, operator, tol=-1)
        with pytest.raises(BadInput, match="cannot be added"):
            sf.optim.BulkSGD(model.parameters(), 0.1, operator).add_param_group({"params": [quadratic()]})
        with pytest.raises(BadInput, match="refresh"):
            sf.optim.BulkSGD(model.parameters(), 0.1, operator, refresh=0)
        with pytest.raises(BadInput, match="lr"):
            sf.optim.DomSGD(model.parameters(), -0.1, operator)


class TestSchedules:
    def test_factors(self) -> None:
        cosine = schedules.cosine(10, floor=0.1)
        assert [cosine(0), cosine(5), cosine(10), cosine(99)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
        steps = schedules.stepped([3, 6], 0.1)
        assert [steps(s) for s in (0, 2, 3, 6)] == pytest.approx([1, 1, 0.1, 0.01])
        warm = schedules.warm_up(4, schedules.cosine(10))
        assert [warm(s) for s in (0, 1, 3, 4, 9)] == pytest.approx([0.25, 0.5, 1.0, 1.0, 0.5])
        assert schedules.constant()(10**6) == 1.0

    def test_with_every_kind_of_rule(self) -> None:
        model = network()
        opt = sf.optim.SAM(sf.optim.Muon(model.named_parameters(), lr=0.1, adamw_lr=0.01))
        scheduler = schedules.schedule(opt, schedules.cosine(10))
        train(model, opt, 1)
        for _ in range(5):
            scheduler.step()
        assert [group["lr"] for group in opt.base.param_groups] == pytest.approx([0.05, 0.005])

    def test_against_torch(self) -> None:
        theta = quadratic()
        opt = torch.optim.SGD([theta], lr=1.0)
        theirs = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 7)
        found = []
        for _ in range(7):
            found.append(theirs.get_last_lr()[0])
            opt.step()
            theirs.step()
        assert found == pytest.approx([schedules.cosine(7)(step) for step in range(7)])

    def test_misuse(self) -> None:
        for wrong in (
            lambda: schedules.cosine(0),
            lambda: schedules.cosine(10, floor=2.0),
            lambda: schedules.stepped([5, 3]),
            lambda: schedules.stepped([0]),
            lambda: schedules.stepped(5),  # type: ignore[arg-type]
            lambda: schedules.schedule(torch.optim.SGD([quadratic()], lr=0.1), schedules.cosine),  # type: ignore[arg-type]
            lambda: schedules.warm_up(3, schedules.cosine),  # type: ignore[arg-type]
            lambda: schedules.warm_up(-1, schedules.constant()),
        ):
            with pytest.raises(BadInput):
                wrong()


def test_non_convex_descent_in_numpy() -> None:
    """SAM on a two-layer network against a float64 loop written out in numpy with finite differences."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)).double()
    x, y = torch.randn(4, 2).double(), torch.tensor([0, 1, 1, 0])
    flat = torch.cat([w.flatten() for w in weights(model)]).numpy()

    def loss(w: np.ndarray) -> float:
        w1, b1, w2, b2 = w[:4].reshape(2, 2), w[4:6], w[6:10].reshape(2, 2), w[10:]
        z = np.tanh(x.numpy() @ w1.T + b1) @ w2.T + b2
        z = z - np.log(np.exp(z).sum(1, keepdims=True))
        return float(-z[np.arange(4), y.numpy()].mean())

    def slope(w: np.ndarray) -> np.ndarray:
        h = 1e-5
        return np.array([(loss(w + h * e) - loss(w - h * e)) / (2 * h) for e in np.eye(len(w))])

    opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.3), rho=0.1)
    for _ in range(3):
        opt.step(closure(model, opt, x, y))
        g = slope(flat)
        flat = flat - 0.3 * slope(flat + 0.1 * g / np.linalg.norm(g))
    assert torch.cat([w.flatten() for w in weights(model)]).numpy() == pytest.approx(flat, abs=1e-7)
