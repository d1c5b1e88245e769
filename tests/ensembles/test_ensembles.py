"""Ensembles in closed form: what they are without noise, what members compute, what divergences are."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from surefoot import Predictions, metrics
from surefoot.ensembles import (
    MIMO,
    BatchEnsemble,
    DeepEnsemble,
    EnsembleObjective,
    MCDropout,
    MeanField,
    Rank1BNN,
    mean_predictions,
)
from surefoot.ensembles.dropout import AlwaysDropout
from surefoot.ensembles.ensemble import log_mean, tiled
from surefoot.ensembles.gaussian import Gaussian, kl_gaussian
from surefoot.ensembles.registry import build_ensemble
from surefoot.errors import BadInput
from surefoot.losses import MITL, Batch, CalMO, CrossEntropy, MarginTail, Mixup, Objective, as_objective
from surefoot.models import build_model
from surefoot.optim import CSAM, SAM
from tests.conftest import random_predictions

MODELS = {
    "mlp": ((1, 8, 8), {"widths": [12, 9]}),
    "resnet20": ((3, 8, 8), {}),
    "wrn": ((3, 8, 8), {"depth": 10, "width": 1}),
}


def network(name="mlp", classes=4):
    torch.manual_seed(0)
    shape, options = MODELS[name]
    return build_model(name, shape, classes, **options)


def batch(name="mlp", rows=6, classes=4):
    torch.manual_seed(1)
    return Batch(torch.randn(rows, *MODELS[name][0]), torch.arange(rows) % classes, torch.arange(rows), 0)


def objective(examples=100, anneal=0):
    return EnsembleObjective(as_objective(CrossEntropy()), examples, anneal)


def log_softmax(z):
    return torch.log_softmax(z, dim=-1)


class TestMean:
    def test_probabilities_are_averaged(self):
        members = [random_predictions(50, 4, seed) for seed in range(3)]
        members = [Predictions(member.logits, members[0].labels) for member in members]
        mean = mean_predictions(members)
        assert np.allclose(mean.probs, np.mean([member.probs for member in members], axis=0), rtol=1e-12)

    @given(st.integers(0, 10_000))
    def test_nll_of_the_mean_is_at_most_the_mean_nll(self, seed):
        random = np.random.default_rng(seed)
        n, k, m = random.integers(2, 20), random.integers(2, 6), random.integers(1, 5)
        labels = random.integers(0, k, n)
        members = [Predictions(5 * random.standard_normal((n, k)), labels) for _ in range(m)]
        assert metrics.nll(mean_predictions(members)) <= np.mean([metrics.nll(member) for member in members]) + 1e-12

    def test_saturated_members_keep_their_doubt(self):
        one = Predictions([[900.0, 0.0]], [1])
        assert mean_predictions([one, one]).log_true[0] == pytest.approx(-900)
        assert float(log_mean(torch.tensor([[[900.0, 0.0]]] * 2, dtype=torch.float64))[0, 1]) == pytest.approx(-900)

    def test_bad_members(self):
        p = random_predictions(10, 3)
        with pytest.raises(BadInput, match="member 0 has 3, member 1 4"):
            mean_predictions([p, random_predictions(10, 4)])
        with pytest.raises(BadInput, match="same rows"):
            mean_predictions([p, random_predictions(9, 3)])
        with pytest.raises(BadInput, match="one member at least"):
            mean_predictions([])
        with pytest.raises(BadInput, match=r"members\[1\] must be Predictions"):
            mean_predictions([p, p.logits])


class TestDeep:
    def test_identical_members_are_one(self):
        base, b = network(), batch()
        logits = DeepEnsemble([base, copy.deepcopy(base)]).eval()(b.inputs)
        assert torch.allclose(logits, log_softmax(base(b.inputs)), atol=1e-6)

    def test_other_class_counts(self):
        model = DeepEnsemble([network(), network(classes=5)])
        for mode in (False, True):
            with pytest.raises(BadInput, match="they give 4, 5"):
                model.train(mode)(batch().inputs)

    def test_trained_as_one_under_sgd_is_each_alone(self):
        torch.manual_seed(3)
        members, b = [network("mlp") for _ in range(2)], batch()
        with torch.no_grad():
            members[1].layers[1].weight.mul_(1.5)
        alone = copy.deepcopy(members)
        model = DeepEnsemble(members)
        objective()(model.train(), b).backward()
        for one, other in zip(model.networks, alone, strict=True):
            cross_entropy(other(b.inputs), b.labels).backward()
            for p, q in zip(one.parameters(), other.parameters(), strict=True):
                assert torch.allclose(2 * p.grad, q.grad, atol=1e-6)


class TestDropout:
    @pytest.mark.parametrize("name", MODELS)
    def test_rate_zero_is_the_network(self, name):
        base, b = network(name), batch(name)
        logits = MCDropout(copy.deepcopy(base), rate=0.0).eval()(b.inputs)
        assert torch.allclose(logits, log_softmax(base.eval()(b.inputs)), atol=1e-5)

    @pytest.mark.parametrize("name", MODELS)
    def test_noise_is_on_and_its_own(self, name):
        model, b = MCDropout(network(name), rate=0.3, samples=3).eval(), batch(name)
        before = torch.get_rng_state()
        members = model.member_logits(b.inputs)
        assert (torch.get_rng_state() == before).all()
        assert torch.equal(members, model.member_logits(b.inputs))
        assert not torch.allclose(members[0], members[1])
        assert torch.allclose(model(b.inputs).exp(), members.softmax(-1).mean(0), atol=1e-6)

    def test_where_it_stands(self):
        places = {
            name: sum(isinstance(m, AlwaysDropout) for m in MCDropout(network(name)).modules()) for name in MODELS
        }
        # Two dense layers after the first; 18 convolutions after the stem; the three blocks' own places.
        assert places == {"mlp": 2, "resnet20": 18, "wrn": 3}

    def test_the_mean_of_many_samples(self):
        """A linear network: dropout leaves the expected logits where they are."""
        base = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 4))
        b = batch()
        with torch.no_grad():
            members = MCDropout(copy.deepcopy(base), rate=0.2, samples=4000).member_logits(b.inputs)
            error = (members.mean(0) - base(b.inputs)).abs() / (members.std(0) / 4000**0.5)
        assert float(error.max()) < 5


class TestBatchEnsemble:
    @pytest.mark.parametrize("name", MODELS)
    def test_factors_of_one_are_the_network(self, name):
        base, b = network(name), batch(name)
        model = BatchEnsemble(copy.deepcopy(base), members=3)
        with torch.no_grad():
            for key, p in model.named_parameters():
                if key.endswith((".r", ".s")):
                    p.fill_(1.0)
        for mode in (False, True):  # in this order: running variances divide by n − 1, and n differs
            base.train(mode)
            model.train(mode)
            members = model.member_logits(b.inputs)
            assert torch.allclose(members, base(b.inputs).expand(3, -1, -1), atol=1e-4)

    def test_a_member_is_the_network_with_its_weights(self):
        torch.manual_seed(4)
        model, b = BatchEnsemble(nn.Sequential(nn.Conv2d(3, 5, 3, 2, 1), nn.Flatten(), nn.Linear(80, 4))), batch("wrn")
        members = model.eval().member_logits(b.inputs)
        conv, dense = model.model[0], model.model[2]
        for m in range(4):
            w = conv.weight * conv.r[m][:, None, None, None] * conv.s[m][:, None, None]
            hidden = torch.nn.functional.conv2d(b.inputs, w, conv.bias[m], 2, 1).flatten(1)
            explicit = hidden @ (dense.weight * torch.outer(dense.r[m], dense.s[m])).T + dense.bias[m]
            assert torch.allclose(members[m], explicit, atol=1e-5)

    def test_the_loss_is_the_mean_over_members(self):
        model, b = BatchEnsemble(network(), members=3), batch()
        members = model.member_logits(b.inputs)
        mean = torch.stack([cross_entropy(logits, b.labels) for logits in members]).mean()
        assert torch.allclose(objective()(model.train(), b), mean, atol=1e-6)

    def test_parameters(self):
        base = network()
        model = BatchEnsemble(copy.deepcopy(base), members=4)
        shared = sum(layer.weight.numel() for layer in base.layers if isinstance(layer, nn.Linear))
        factors = 4 * ((64 + 12) + (12 + 9) + (9 + 4))
        assert sum(p.numel() for p in model.parameters()) == shared + factors + 4 * (12 + 9 + 4)


class TestRankOne:
    def test_no_deviation_and_mean_one_is_the_network(self):
        base, b = network("wrn"), batch("wrn")
        model = Rank1BNN(copy.deepcopy(base), members=2).eval()
        with torch.no_grad():
            for part in model.modules():
                if isinstance(part, Gaussian):
                    part.mean.fill_(1.0)
                    part.rho.fill_(-60.0)
        assert torch.allclose(model(b.inputs), log_softmax(base.eval()(b.inputs)), atol=1e-4)

    def test_divergence_is_zero_at_the_prior_only(self):
        model = Rank1BNN(network(), members=2, prior_std=0.1)
        parts = [part for part in model.modules() if isinstance(part, Gaussian)]
        with torch.no_grad():
            for part in parts:
                part.mean.fill_(1.0)
                part.rho.fill_(math.log(math.expm1(0.1)))
        assert model.divergence().item() == pytest.approx(0, abs=1e-3)
        with torch.no_grad():
            parts[0].mean[0, 0] = 1.3
        assert model.divergence().item() == pytest.approx(0.09 / 0.02 / 2, abs=1e-3)

    def test_first_deviation(self):
        part = next(p for p in Rank1BNN(network(), rate=1e-3).modules() if isinstance(p, Gaussian))
        assert part.std.min().item() == pytest.approx((1e-3 / 0.999) ** 0.5, rel=1e-4)
        assert set(part.mean.unique().tolist()) == {-1.0, 1.0}


class TestMeanField:
    @pytest.mark.parametrize("flipout", [False, True])
    @pytest.mark.parametrize("name", MODELS)
    def test_no_deviation_is_the_network(self, name, flipout):
        base, b = network(name), batch(name)
        model = MeanField(copy.deepcopy(base), std=1e-12, flipout=flipout, samples=2)
        for mode in (True, False):
            base.train(mode)
            model.train(mode)
            logits = model.training_logits(b.inputs)
            assert torch.allclose(logits, base(b.inputs), atol=1e-4)

    def test_divergence(self):
        model = MeanField(network(), prior_std=0.1)
        parts = [part for part in model.modules() if isinstance(part, Gaussian)]
        mean, std = (torch.cat([getattr(p, n).flatten() for p in parts]).double() for n in ("mean", "std"))
        prior, posterior = torch.distributions.Normal(0, 0.1), torch.distributions.Normal(mean, std)
        theirs = torch.distributions.kl_divergence(posterior, prior).sum()
        assert model.divergence().item() == pytest.approx(theirs.item(), rel=1e-5)
        tied = MeanField(network(), std=0.1, prior_std=0.1, tied=True)
        assert tied.divergence().item() == pytest.approx(0, abs=1e-3)
        assert float(kl_gaussian(torch.zeros(3), torch.full((3,), 0.1), 0.0, 0.1)) == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize("kind", ["dense", "conv"])
    def test_flipout_has_the_moments_of_whole_draws(self, kind):
        """Mean and variance of each output agree; between examples Flipout's noise is not correlated."""
        torch.manual_seed(5)
        layer = nn.Linear(6, 3) if kind == "dense" else nn.Conv2d(6, 3, 1)
        x = torch.randn(2, 6) if kind == "dense" else torch.randn(2, 6, 1, 1)
        draws = {}
        for flipout in (False, True):
            model = MeanField(nn.Sequential(copy.deepcopy(layer)), std=0.5, flipout=flipout).train()
            with torch.no_grad():
                draws[flipout] = torch.stack([model.training_logits(x).flatten(1) for _ in range(6000)])
        exact = layer(x).flatten(1)
        variance = 0.25 * x.flatten(1).pow(2).sum(1, keepdim=True)
        for drawn in draws.values():
            assert float(((drawn.mean(0) - exact).abs() / (variance / 6000).sqrt()).detach().max()) < 4.5
            assert float((drawn.var(0) / variance - 1).abs().max()) < 0.1
        between = {f: np.corrcoef(drawn[:, 0, 0], drawn[:, 1, 0])[0, 1] for f, drawn in draws.items()}
        cosine = torch.cosine_similarity(x[0].flatten(), x[1].flatten(), dim=0)
        assert between[False] == pytest.approx(float(cosine), abs=0.06)
        assert between[True] == pytest.approx(0, abs=0.06)

    def test_annealed_divergence_in_the_objective(self):
        model, b = MeanField(network(), std=1e-12), batch()
        kl, plain = model.divergence().item(), cross_entropy(model.train()(b.inputs), b.labels).item()
        for step, weight in ((0, 0.25), (1, 0.5), (3, 1.0), (9, 1.0)):
            loss = objective(50, anneal=4)(model, b._replace(step=step)).item()
            assert loss == pytest.approx(plain + weight * kl / 50, rel=1e-5)


class TestMIMO:
    @pytest.mark.parametrize("name", MODELS)
    def test_shapes_and_parameters(self, name):
        base, b = network(name), batch(name)
        count = sum(p.numel() for p in base.parameters())
        layers = [m for m in base.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        first, last = layers[0], layers[-1]
        extra = 2 * first.weight.numel() + 2 * (last.weight.numel() + last.bias.numel())
        model = MIMO(base, members=3, repetitions=2)
        assert sum(p.numel() for p in model.parameters()) == count + extra
        assert model.eval().member_logits(b.inputs).shape == (3, 6, 4)
        spread = model.spread(b)
        assert spread.inputs.shape[:2] == (12, 3 * b.inputs.shape[1])
        assert model.train()(spread.inputs).shape == (36, 4)
        assert spread.labels.shape == (36,)

    @pytest.mark.parametrize("same", [0.0, 1.0])
    def test_rows_and_labels_belong_together(self, same):
        model, b = MIMO(network(), members=3, repetitions=4, input_repetition_probability=same), batch()
        spread = model.spread(b)
        rows = spread.indices.reshape(-1, 3)
        assert torch.equal(spread.labels, b.labels[spread.indices])
        for head in range(3):
            assert torch.equal(spread.inputs[:, head : head + 1], b.inputs[rows[:, head]])
            assert (rows[:, head].bincount() == 4).all()
        assert bool((rows == rows[:, :1]).all()) == bool(same)

    def test_the_loss_is_the_sum_over_heads(self):
        model, b = MIMO(network(), members=3, repetitions=1), batch()
        model.train()
        torch.manual_seed(7)
        loss = objective()(model, b)
        torch.manual_seed(7)
        spread = model.spread(b)
        logits = model.model(spread.inputs).unflatten(1, (3, 4))
        heads = [cross_entropy(logits[:, head], spread.labels.reshape(-1, 3)[:, head]) for head in range(3)]
        assert torch.allclose(loss, torch.stack(heads).sum(), atol=1e-6)


@pytest.mark.parametrize("rule", [SAM, CSAM])
@pytest.mark.parametrize("name", ["dropout", "rank1", "vi", "flipout", "mimo"])
def test_both_passes_see_the_same_noise(name, rule):
    """With a radius of almost 0 the second gradient is the first: any new noise would show."""
    model, b = build_ensemble(name, network(), **({"rate": 0.4} if name in ("dropout", "rank1") else {})), batch()
    optimizer = rule(torch.optim.SGD(model.parameters(), lr=0.1), rho=1e-9, **({"gamma": 0.0} if rule is CSAM else {}))
    goal, seen = objective(), []
    model.train()

    def closure():
        optimizer.zero_grad()
        loss = goal(model, b)
        loss.backward()
        seen.append(torch.cat([p.grad.flatten().clone() for p in model.parameters()]))
        return loss

    optimizer.step(closure)
    assert len(seen) == 2
    assert torch.allclose(seen[0], seen[1], atol=1e-4)
    optimizer.step(closure)
    assert not torch.allclose(seen[0], seen[2], atol=1e-4)


@pytest.mark.parametrize("kind", [BatchEnsemble, Rank1BNN, MeanField])
def test_a_layer_in_two_places_is_replaced_in_both(kind):
    layer = nn.Linear(3, 3)
    layers = kind(nn.Sequential(layer, nn.ReLU(), layer)).model
    assert layers[0] is layers[2]
    assert layers[0] is not layer


def test_large_deviations():
    for part, deviation in (
        (MeanField(network(), std=1000.0), 1000.0),
        (Rank1BNN(network(), rate=0.999999), 999999**0.5),
    ):
        gaussian = next(module for module in part.modules() if isinstance(module, Gaussian))
        assert gaussian.std.max().item() == pytest.approx(deviation, rel=1e-4)


@pytest.mark.parametrize("loss", [Mixup(), MITL(), CalMO(eps=0.1), MarginTail(eps=0.1)])
def test_losses_that_go_by_inputs_refuse_several_in_one(loss):
    goal, model = EnsembleObjective(loss, 100), MIMO(network())
    for refused in (lambda: goal(model.train(), batch()), lambda: goal.wrap(model)):
        with pytest.raises(BadInput, match=f"{type(loss).__name__} takes one label for each input"):
            refused()
    assert torch.isfinite(goal(MIMO(network(), members=1, repetitions=1).train(), batch()))


def test_weights_of_a_rule_reach_the_inner_loss():
    model, b = BatchEnsemble(network(), members=2), batch()
    goal = objective()
    plain = goal(model.train(), b)
    goal.weigh = lambda logits, labels, values: 3 * values
    assert torch.allclose(goal(model, b), 3 * plain)


def test_tiled():
    repeated = tiled(batch(rows=2), 3)
    assert repeated.indices.tolist() == [0, 1, 0, 1, 0, 1]
    assert repeated.inputs.shape == (6, 1, 8, 8)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("mino", {}, "did you mean 'mimo'"),
        ("deep", {}, "runs of their own"),
        ("dropout", {"rate": 1.0}, r"rate must lie in \[0, 1\)"),
        ("dropout", {"sample": 3}, "no option 'sample'"),
        ("batch", {"members": 0}, "members"),
        ("rank1", {"prior_std": 0}, "prior_std must"),
        ("vi", {"std": -1.0}, "std must"),
        ("mimo", {"input_repetition_probability": 2}, "input_repetition_probability must"),
        ("flipout", {"flipout": False}, "no option 'flipout'"),
    ],
)
def test_bad_input(name, options, said):
    with pytest.raises(BadInput, match=said):
        build_ensemble(name, network(), **options)


def test_networks_that_do_not_fit():
    with pytest.raises(BadInput, match="dense or convolutional"):
        BatchEnsemble(nn.Sequential(nn.Flatten()))
    with pytest.raises(BadInput, match="one layer"):
        MCDropout(nn.Linear(3, 3))
    with pytest.raises(BadInput, match=r"models of surefoot\.ensembles"):
        objective()(network(), batch())
    for bare in (nn.Linear(3, 3), nn.Conv2d(3, 3, 1)):
        for kind in (BatchEnsemble, Rank1BNN, MeanField):
            with pytest.raises(BadInput, match=r"nn\.Sequential"):
                kind(bare)


def test_an_objective_sees_one_batch_in_all_passes_of_a_step_and_its_price():
    seen = []

    class Watching(Objective):
        gradients = 2

        def forward(self, model, batch):
            seen.append(batch)
            return model(batch.inputs).sum()

    goal, model = EnsembleObjective(Watching(), 100), BatchEnsemble(network(), members=3).train()
    first, second = (
        Batch(torch.randn(4, 1, 8, 8), torch.zeros(4, dtype=torch.long), torch.arange(4), n) for n in (0, 1)
    )
    for batch in (first, first, second):
        goal(model, batch)
    assert seen[0] is seen[1]
    assert seen[2] is not seen[0]
    assert goal.gradients == 6
