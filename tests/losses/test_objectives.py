"""Objectives: what they need of model and batch, their pitfalls, and what they remember."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import surefoot as sf
from surefoot.dataset import as_dataset
from surefoot.errors import BadInput
from surefoot.losses import Batch, Validation, as_objective
from surefoot.losses.adversary import adversary
from surefoot.losses.ar_adals import boundary_distance
from surefoot.losses.frozen_network import frozen_network, recorded_statistics
from surefoot.losses.margin_tail import first_order_margins
from surefoot.losses.mixing import taken_apart
from surefoot.losses.two_heads import BalancedHead, bisected, simplex
from surefoot.margins.ball import Ball
from tests.losses.cases import OBJECTIVES, batch, network


def made(name):
    objective = OBJECTIVES[name]()
    return objective, objective.wrap(network()).double()


def value(objective, model, b, seed=0):
    torch.manual_seed(seed)
    return objective(model, b)


def plain(model, b):
    return cross_entropy(model(b.inputs), b.labels)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients(name):
    """By every weight, against differences; CalMO's adversary is kept, as within one step of a rule."""
    objective, model = made(name)
    b = batch()
    if name == "crl":
        objective.right.copy_(torch.arange(12) % 4)
        objective.epochs.fill_(4)
    if name == "ar-adals":
        objective.group.copy_(torch.arange(12) % 3)
        objective.smoothing.copy_(torch.tensor([0.0, 0.1, 0.3]))
    value(objective, model, b)
    names, weights = zip(*model.named_parameters(), strict=True)

    def function(*parameters):
        return value(objective, _Called(model, dict(zip(names, parameters, strict=True))), b)

    assert torch.autograd.gradcheck(function, [w.detach().clone().requires_grad_() for w in weights])


class _Called(nn.Module):
    """A model called with other parameters, its modules in sight."""

    def __init__(self, model, parameters):
        super().__init__()
        self.model, self.other = model, parameters

    def forward(self, x):
        return torch.func.functional_call(self.model, self.other, (x,))


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("kind", ["one", "right", "wrong", "huge"])
def test_odd_batches(name, kind):
    objective, model = made(name)
    objective.float()
    model = model.float()
    b = batch()
    b = b._replace(inputs=b.inputs.float())
    logits = model(b.inputs)
    if kind == "one":
        b = Batch(b.inputs[:1], b.labels[:1], b.indices[:1], 0)
    elif kind == "huge":
        with torch.no_grad():
            model[-1].linear.weight.mul_(1e5) if name == "balcal" else model[-1].weight.mul_(1e5)
    else:
        b = b._replace(labels=logits.argmax(1) if kind == "right" else logits.argmin(1))
    result = value(objective, model, b)
    result.backward()
    assert bool(result.isfinite())
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    "objective",
    [
        sf.losses.CalMO(robust=0.0, smooth=0.0),
        sf.losses.CalMO(eps=0.0, smooth=0.0),
        sf.losses.MarginTail(alpha=0.0, beta=0.0),
        sf.losses.CRL(12, weight=0.0),
        sf.losses.CRL(12),  # nothing is known yet
        sf.losses.Mixup(alpha=0.0),
        sf.losses.ARAdaLS(12),
        as_objective(sf.losses.CrossEntropy()),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_without_its_own_part_it_is_cross_entropy(objective):
    model, b = network(), batch()
    torch.testing.assert_close(objective(model, b), plain(model, b), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (torch.full((12, 5), 0.2), "integers.*Mixup or LabelSmoothing"),
        (torch.zeros(12), "integers"),
        (torch.eye(5)[torch.arange(12) % 5].long(), r"shape \(n,\).*got \(12, 5\)"),
        ([0] * 12, "labels must be a tensor"),
    ],
    ids=["soft", "float", "one-hot", "list"],
)
def test_a_batch_has_one_whole_label_for_each_example(labels, match):
    with pytest.raises(BadInput, match=match):
        Batch(batch().inputs, labels, torch.arange(12), 0)


WHOLE = {
    "mmce": sf.losses.MMCE,
    "mdca": sf.losses.MDCA,
    "soft-ece": sf.losses.SoftECE,
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_rule_weighs_examples_and_not_the_batch(name):
    """With no weight on any example the term is left, here and in CSAM's own criterion."""
    model, b, loss = network(), batch(), WHOLE[name]()
    objective = as_objective(loss)
    objective.weigh = lambda logits, labels, values: 0 * values
    logits = model(b.inputs)
    torch.testing.assert_close(objective(model, b), loss.term(logits, b.labels))
    opt = sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1), gamma=2.0)
    opt.phase = "descent"
    weighed = opt.weighted(logits, b.labels, loss.values(logits, b.labels)).mean()
    torch.testing.assert_close(opt.outer(loss)(logits, b.labels), weighed + loss.term(logits, b.labels))


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"crl", "margin-tail log"}))
def test_the_rest_is_weighed_whole(name):
    objective, model = made(name)
    objective.weigh = lambda logits, labels, values: 0 * values
    assert float(value(objective, model, batch()).detach()) == 0


# --- a network held still ---


def test_held_still_it_gives_the_logits_of_training_mode():
    model, x = network(norm=True), batch().inputs
    model.train()
    with recorded_statistics(model) as statistics:
        expected = model(x)
    running = copy.deepcopy(model.state_dict())
    with frozen_network(model, statistics):
        output = model(x)
        alone = model(x[3:4])
        assert not model[2].training
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(alone, expected[3:4])  # a function of one example
    assert model[2].training
    assert all(torch.equal(value, running[name]) for name, value in model.state_dict().items())


def test_batch_norm_advances_once_and_by_the_clean_batch():
    b = batch()
    one, other = network(norm=True).train(), network(norm=True).train()
    one(b.inputs)
    for objective in (sf.losses.CalMO(eps=0.3), sf.losses.MarginTail(eps=0.3)):
        other.load_state_dict(network(norm=True).state_dict())
        objective(other, b)
        assert torch.equal(one[2].running_mean, other[2].running_mean)
        assert torch.equal(one[2].running_var, other[2].running_var)
        assert int(other[2].num_batches_tracked) == 1


@pytest.mark.parametrize("objective", [sf.losses.CalMO(eps=0.3), sf.losses.MarginTail(eps=0.3)], ids=["calmo", "tail"])
def test_examples_do_not_mix(objective):
    """With frozen statistics the regularisers of a batch are the mean of those of its examples."""
    model = network(norm=True).eval()
    b = batch()
    whole = objective(model, b) - plain(model, b)
    parts = []
    for i in range(12):
        single = Batch(b.inputs[i : i + 1], b.labels[i : i + 1], b.indices[i : i + 1], 0)
        parts.append(objective(model, single) - plain(model, single))
    torch.testing.assert_close(whole, torch.stack(parts).mean())


HELD = [
    sf.losses.CalMO(eps=0.3),
    sf.losses.CalMO(eps=0.3, robust=0.0, smooth=1.0),
    sf.losses.CalMO(eps=0.3, smooth=0.0),
    sf.losses.MarginTail(eps=0.3),
    sf.losses.MarginTail(eps=0.3, form="log"),
]


@pytest.mark.parametrize("objective", HELD, ids=["calmo", "flat", "rob", "tail", "log"])
def test_with_batch_norm_the_gradient_is_that_of_the_value(objective):
    """By central differences along random directions: statistics of the batch depend on the weights, too."""
    model, b = network(norm=True).train(), batch()
    weights = list(model.parameters())
    gradient = torch.autograd.grad(value(objective, model, b), weights)
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        along = [torch.randn(weight.shape, generator=generator, dtype=weight.dtype) for weight in weights]
        ends = []
        for step in (1e-6, -2e-6):
            with torch.no_grad():
                for weight, direction in zip(weights, along, strict=True):
                    weight.add_(direction, alpha=step)
            ends.append(float(value(objective, model, b).detach()))
        with torch.no_grad():
            for weight, direction in zip(weights, along, strict=True):
                weight.add_(direction, alpha=1e-6)
        expected = (ends[0] - ends[1]) / 2e-6
        derivative = sum(float((g * d).sum()) for g, d in zip(gradient, along, strict=True))
        assert derivative == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("objective", HELD, ids=["calmo", "flat", "rob", "tail", "log"])
def test_a_layer_before_batch_norm_is_not_pulled_along_itself(objective):
    """Its scale changes nothing, so the gradient is orthogonal to it."""
    torch.manual_seed(2)
    b = batch()
    norm = nn.BatchNorm1d(8, eps=1e-12)
    model = nn.Sequential(nn.Linear(b.inputs.shape[1], 8), norm, nn.Tanh(), nn.Linear(8, 5)).double()
    (gradient,) = torch.autograd.grad(value(objective, model, b), [model[0].weight])
    assert float(gradient.norm()) > 1e-3
    assert float((gradient * model[0].weight).sum().detach()) == pytest.approx(0, abs=1e-8)


class _Twice(nn.Module):
    """One batch norm, called twice and by its argument's name."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 5)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        once = torch.tanh(self.norm(input=self.first(x)))
        return self.last(torch.tanh(self.norm(input=3 * self.second(once))))


def test_held_still_a_norm_that_is_called_twice_has_the_statistics_of_each_call():
    model, x = _Twice().double().train(), batch().inputs
    with recorded_statistics(model) as statistics:
        expected = model(x)
    with frozen_network(model, statistics) as still:
        torch.testing.assert_close(still(x), expected)
        torch.testing.assert_close(still(x[3:4]), expected[3:4])


def test_held_still_norms_without_running_statistics_do_not_mix_examples():
    b = batch()
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    model = nn.Sequential(nn.Linear(6, 8), norm, nn.Linear(8, 5)).double().eval()
    with recorded_statistics(model) as statistics:
        expected = model(b.inputs)
    with frozen_network(model, statistics) as still:
        torch.testing.assert_close(still(b.inputs[3:4]), expected[3:4])
    assert norm.running_mean is None


@pytest.mark.parametrize("objective", HELD, ids=["calmo", "flat", "rob", "tail", "log"])
def test_the_value_is_the_same_where_no_gradient_is_recorded(objective):
    model, b = network(norm=True).train(), batch()
    expected = value(objective, model, b).detach()
    with torch.no_grad():
        assert float(value(objective, model, b)) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("objective", HELD, ids=["calmo", "flat", "rob", "tail", "log"])
def test_a_compiled_network_has_the_gradient_of_the_plain_one(objective):
    """torch.compile keeps graphs that know nothing of hooks made later."""
    b = batch()
    plainly = network(norm=True).train()
    weights = list(plainly.parameters())
    compiled = torch.compile(plainly, backend="eager")
    with torch.no_grad():
        compiled(b.inputs)
    before = copy.deepcopy(plainly.state_dict())
    gradients = []
    for model in (plainly, compiled, compiled):
        plainly.load_state_dict(before)
        gradients.append(torch.autograd.grad(value(objective, model, copy.copy(b)), weights))
    for other in gradients[1:]:
        for one, two in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(one, two)
    torch.compiler.reset()


@pytest.mark.parametrize("objective", HELD, ids=["calmo", "flat", "rob", "tail", "log"])
def test_networks_in_half_precision_with_batch_norm(objective):
    model, b = network(norm=True).train().bfloat16(), batch()
    result = value(objective, model, b._replace(inputs=b.inputs.bfloat16()))
    result.backward()
    assert bool(result.isfinite())
    assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters())


def test_dropout_takes_no_part_in_the_regularisers():
    model, b = network(dropout=0.5).train(), batch()
    torch.manual_seed(0)
    expected = plain(model, b)
    torch.manual_seed(0)
    result = sf.losses.CalMO(eps=0.0, smooth=0.0)(model, b)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=0)


# --- CalMO ---


def linear(features=6, classes=5):
    torch.manual_seed(1)
    return nn.Linear(features, classes).double()


def rival(model, b):
    others = model(b.inputs).detach().scatter(1, b.labels[:, None], -torch.inf)
    return others.argmax(1)


def test_the_slope_of_a_linear_model():
    model, b = linear(), batch()
    w = model.weight
    expected = (w[b.labels] - w[rival(model, b)]).square().sum(1).mean()
    penalty = sf.losses.CalMO(robust=0.0, smooth=1.0)(model, b) - plain(model, b)
    torch.testing.assert_close(penalty, expected)
    ours, theirs = (torch.autograd.grad(term, w)[0] for term in (penalty, expected))
    torch.testing.assert_close(ours, theirs)


def test_the_divergence_by_hand():
    model, b = linear(), batch()
    objective = sf.losses.CalMO(eps=0.3, robust=1.0, smooth=0.0)
    penalty = objective(model, b) - plain(model, b)
    ball = Ball.of(0.3, "inf", (6,), torch.device("cpu"))
    moved = adversary(model, b.inputs, b.labels, ball, 3, 0.25)
    p, q = model(b.inputs).softmax(1), model(moved).softmax(1)
    torch.testing.assert_close(penalty, (p * (p / q).log()).sum(1).mean())
    assert bool(penalty > 0)


def test_a_constant_network_has_no_regularisers():
    model, b = network(), batch()
    with torch.no_grad():
        model[0].weight.zero_()
    torch.testing.assert_close(sf.losses.CalMO()(model, b), plain(model, b))
    constant = _Constant()
    torch.testing.assert_close(sf.losses.CalMO()(constant, b), plain(constant, b))
    torch.testing.assert_close(sf.losses.MarginTail(beta=1.0, alpha=0.0)(constant, b), plain(constant, b))


class _Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.arange(5.0).double())

    def forward(self, x):
        return self.bias.expand(len(x), -1)


def test_the_adversary_is_worse_and_nearby():
    model, b = network(), batch()
    ball = Ball.of(0.4, "inf", (6,), torch.device("cpu"))
    moved = adversary(model, b.inputs, b.labels, ball, 3, 0.25)
    # Three steps of a quarter: the ball's edge is never met, as with the authors' 3 × 2/255 in 8/255.
    assert float((moved - b.inputs).abs().max()) == pytest.approx(0.3)
    assert bool(cross_entropy(model(moved), b.labels) > plain(model, b))
    far = adversary(model, b.inputs, b.labels, ball, 20, 0.25)
    assert float((far - b.inputs).abs().max()) <= 0.4 + 1e-12
    assert not moved.requires_grad


def test_a_radius_for_each_coordinate():
    model, b = network(), batch()
    eps = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    ball = Ball.of(eps, "inf", (6,), torch.device("cpu"))
    moved = adversary(model, b.inputs, b.labels, ball, 8, 0.25)
    torch.testing.assert_close((moved - b.inputs).abs().amax(0), eps.double())


@pytest.mark.parametrize("reuse", [True, False])
def test_the_second_pass_may_reuse_the_adversaries(reuse, monkeypatch):
    import surefoot.losses.calmo as module

    calls = []
    original = module.adversary
    monkeypatch.setattr(module, "adversary", lambda *a: calls.append(1) or original(*a))
    model, objective, b = network(), sf.losses.CalMO(eps=0.3, reuse=reuse), batch()
    opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.1))

    def closure():
        loss = objective(model, b)
        loss.backward()
        return loss

    opt.step(closure)
    assert len(calls) == (1 if reuse else 2)
    objective(model, batch(seed=1))
    assert len(calls) == (2 if reuse else 3)


def test_half_precision_stays_out_of_the_regularisers():
    """Under autocast the clean pass alone is in bfloat16; a scaled loss has a scaled gradient."""
    model, b = network().float(), batch()
    b = b._replace(inputs=b.inputs.float())
    exact = sf.losses.CalMO(eps=0.3)(model, b) - plain(model, b)
    with torch.autocast("cpu", torch.bfloat16):
        rough = plain(model, b).float()
        result = sf.losses.CalMO(eps=0.3)(model, b)
    assert not torch.equal(rough, plain(model, b))
    torch.testing.assert_close(result - rough, exact, rtol=1e-4, atol=1e-6)

    def regularised(rounded):
        with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
            term = sf.losses.CalMO(eps=0.3, robust=0.0, smooth=1.0)(model, b) - plain(model, b)
        return torch.autograd.grad(term, model[0].weight)[0]

    torch.testing.assert_close(regularised(True), regularised(False), rtol=1e-4, atol=1e-6)
    once, scaled = (torch.autograd.grad(s * sf.losses.CalMO(eps=0.3)(model, b), model[0].weight)[0] for s in (1, 1024))
    torch.testing.assert_close(scaled, 1024 * once)


def test_costs_are_what_the_study_says():
    from surefoot.losses.registry import LOSSES, Facts, build_objective

    facts = Facts(12, 5, torch.tensor)
    assert {n: build_objective(n, {}, facts).gradients for n in LOSSES} == {n: e.gradients for n, e in LOSSES.items()}
    assert sf.losses.CalMO(robust=0.0).gradients == 4
    assert sf.losses.CalMO(smooth=0.0).gradients == 5


# --- the margin-tail objective ---


@pytest.mark.parametrize("norm", ["inf", 2])
def test_margins_of_a_linear_model_are_exact(norm):
    model, b = linear(), batch()
    ball = Ball.of(0.3, norm, (6,), torch.device("cpu"))
    margins, _ = first_order_margins(model, b.inputs, b.labels, ball, runner_ups=4)
    w, c = model.weight, model.bias
    expected = []
    for x, y in zip(b.inputs, b.labels, strict=True):
        gaps = [
            (w[y] - w[j]) @ x + c[y] - c[j] - 0.3 * (w[y] - w[j]).norm(p=1 if norm == "inf" else 2)
            for j in range(5)
            if j != int(y)
        ]
        expected.append(torch.stack(gaps).min())
    torch.testing.assert_close(margins, torch.stack(expected))


def test_the_bounded_tail_by_hand():
    model, b = linear(), batch()
    ball = Ball.of(0.3, "inf", (6,), torch.device("cpu"))
    m, fall = first_order_margins(model, b.inputs, b.labels, ball, runner_ups=2)
    tail = (4 * (-m).exp() / (1 + 4 * (-m).exp())).mean()
    expected = plain(model, b) + 0.5 * tail + 0.1 * fall.square().mean()
    torch.testing.assert_close(sf.losses.MarginTail(eps=0.3, beta=0.1)(model, b), expected)
    log = plain(model, b) + 0.5 * 2.0 * (-m / 2.0).exp().mean().log()
    torch.testing.assert_close(sf.losses.MarginTail(eps=0.3, beta=0.0, form="log", tau=2.0)(model, b), log)


def test_the_tail_is_the_certificate():
    """At eps = 0 the mean tail bounds the calibration error of any predictions (Morosini et al. 2026, Theorem 4.1)."""
    for seed in range(20):
        model, b = network(seed=seed), batch(n=60, seed=seed)
        ball = Ball.of(0.0, "inf", (6,), torch.device("cpu"))
        m, _ = first_order_margins(model, b.inputs, b.labels, ball)
        p = sf.Predictions(model(b.inputs).detach(), b.labels)
        np.testing.assert_allclose(m.detach().numpy(), p.true_margin)
        assert bool(float(sf.metrics.ece(p)) <= torch.sigmoid(math.log(4) - m).mean() + 1e-12)


def test_one_mislabelled_example_does_not_take_over():
    """Its share of the gradient by the margins: bounded in one form, all of it in the other."""
    margins = torch.tensor([5.0] * 99 + [-40.0]).requires_grad_()
    bounded = torch.sigmoid(math.log(9) - margins).mean()
    log = torch.logsumexp(-margins, 0)
    shares = [g.abs()[-1] / g.abs().sum() for g in (torch.autograd.grad(f, margins)[0] for f in (bounded, log))]
    assert float(shares[0]) < 1e-10
    assert float(shares[1]) > 0.999


def test_warm_up():
    model, b = network(), batch()
    objective = sf.losses.MarginTail(eps=0.1, warm_up=10)
    full = sf.losses.MarginTail(eps=0.1)(model, b) - plain(model, b)
    for step, share in ((0, 0.1), (4, 0.5), (9, 1.0), (50, 1.0)):
        torch.testing.assert_close(objective(model, b._replace(step=step)) - plain(model, b), share * full)


# --- those that look at validation examples ---


class Held(Validation):
    """Validation predictions given as they are."""

    def __init__(self, p):
        self.p = p

    def __call__(self):
        return self.p


def predictions(confidence, correct):
    rest = (1 - np.asarray(confidence)) / 2
    probs = np.stack([confidence, rest, rest], 1)
    return sf.Predictions.from_probs(probs, np.where(correct, 0, 1))


def test_ada_focal_moves_each_bin_by_its_gap():
    """Two bins by hand: too sure below, not sure enough above; then a change of sides at 0.2."""
    loss = sf.losses.AdaFocal(bins=2)
    low, high = np.linspace(0.5, 0.6, 10), np.linspace(0.8, 0.9, 10)
    p = predictions(np.concatenate([low, high]), [True] * 2 + [False] * 8 + [True] * 10)
    loss.epoch(Held(p))
    expected = [math.exp(0.55 - 0.2), math.exp(0.85 - 1.0)]
    torch.testing.assert_close(loss.gammas, torch.tensor(expected).double())
    torch.testing.assert_close(loss.edges, torch.tensor([0.6]).double())
    loss.gammas.copy_(torch.tensor([-0.25, 0.21]))
    loss.epoch(Held(p))
    torch.testing.assert_close(loss.gammas, torch.tensor([0.2, -0.2]).double())
    for _ in range(60):
        loss.epoch(Held(p))
    torch.testing.assert_close(loss.gammas, torch.tensor([20.0, -2.0]).double())


def test_ada_focal_changes_sides_however_large_the_step():
    loss = sf.losses.AdaFocal(bins=1, rate=1e5)
    loss.epoch(Held(predictions(np.full(10, 0.5), [True] * 10)))  # exp(−5·10⁴) is 0
    assert loss.gammas.tolist() == [-0.2]


def test_ada_focal_with_few_validation_examples():
    loss = sf.losses.AdaFocal(bins=15)
    loss.epoch(Held(predictions(np.array([0.5, 0.7, 0.9]), [True, False, True])))
    logits = torch.randn(20, 3).requires_grad_()
    assert bool(loss(logits, torch.arange(20) % 3).isfinite())
    loss.epoch(Held(None))  # not finite any more: nothing moves


def test_crl_by_pairs():
    model, b = network(), batch()
    objective = sf.losses.CRL(12, weight=2.0)
    objective.right.copy_(torch.tensor([0, 1, 2, 3, 3, 2, 1, 0, 0, 3, 1, 2]))
    objective.epochs.fill_(3)
    right = objective.right / 3
    c = model(b.inputs).softmax(1).amax(1)
    pairs = []
    for i in range(12):
        j = (i + 1) % 12
        s = float(torch.sign(right[i] - right[j]))
        pairs.append(torch.relu(-s * (c[i] - c[j]) + (right[i] - right[j]).abs()) if s else c.new_zeros(()))
    before = objective.right.clone()
    torch.testing.assert_close(objective(model, b), plain(model, b) + 2 * torch.stack(pairs).mean())
    counted = (model(b.inputs).argmax(1) == b.labels).double()
    torch.testing.assert_close(objective.right, before + counted)


@pytest.mark.parametrize("rule", ["sam", "csam"])
def test_crl_counts_once_a_step(rule):
    model, objective, b = network(), sf.losses.CRL(12), batch()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = sf.optim.SAM(base) if rule == "sam" else sf.optim.CSAM(base)
    objective.weigh = getattr(opt, "weighted", objective.weigh)
    expected = (model(b.inputs).argmax(1) == b.labels).double()

    def closure():
        loss = objective(model, b)
        loss.backward()
        return loss

    opt.step(closure)
    torch.testing.assert_close(objective.right, expected)


def test_crl_counts_a_row_once_however_often_it_is_seen():
    """Three members of an ensemble see each row: their share of right answers is what is counted."""
    model, b, objective = network(), batch(), sf.losses.CRL(12)
    three = Batch(b.inputs.repeat(3, 1), b.labels.repeat(3), b.indices.repeat(3), 0)
    objective(model, three)
    torch.testing.assert_close(objective.right, (model(b.inputs).argmax(1) == b.labels).double())
    assert bool(objective.right.any())


def test_mixup_by_hand():
    model, b = network(), batch()
    result = value(sf.losses.Mixup(alpha=0.7), model, b, seed=3)
    torch.manual_seed(3)
    alpha = torch.tensor(0.7, dtype=torch.float64)
    share, order = float(torch.distributions.Beta(alpha, alpha).sample()), torch.randperm(12)
    z = model(share * b.inputs + (1 - share) * b.inputs[order])
    soft = share * torch.eye(5).double()[b.labels] + (1 - share) * torch.eye(5).double()[b.labels[order]]
    torch.testing.assert_close(result, cross_entropy(z, soft))


def test_mixtures_of_a_linear_model_come_apart():
    """And the formulas are those of the reference code, with its coefficients."""
    model, b = linear(), batch()
    x, other = b.inputs, b.inputs.flip(0)
    a, c = 0.8, 0.3
    first, second = model(a * x + (1 - a) * other), model(c * x + (1 - c) * other)
    own, theirs = taken_apart(first, second, a, c)
    torch.testing.assert_close(own, model(x))
    torch.testing.assert_close(theirs, model(other))
    c1, c2 = (1 - a) / (1 - c), c / a
    torch.testing.assert_close(own, (first - c1 * second) / (a - c * c1))
    torch.testing.assert_close(theirs, (second - c2 * first) / (1 - c - (1 - a) * c2))


def test_mit_l_of_a_linear_model_is_cross_entropy():
    model, b = linear(), batch()
    torch.testing.assert_close(value(sf.losses.MITL(), model, b), plain(model, b))


def test_mit_l_keeps_its_margin():
    torch.manual_seed(0)
    for _ in range(50):
        larger, smaller = sf.losses.MITL(margin=0.6)._shares()
        assert larger >= 0.5 >= smaller
        assert larger - smaller >= 0.6
    with pytest.raises(BadInput, match="out of reach"):
        sf.losses.MITL(alpha=1000.0, margin=0.9)._shares()


def test_the_simplex():
    corners = simplex(4).double()
    torch.testing.assert_close(corners.T @ corners, (4 * torch.eye(4) - 1).double() / 3, atol=1e-6, rtol=0)


def test_balcal_by_hand():
    objective = sf.losses.BalCAL(5)
    model = objective.wrap(network())
    assert isinstance(model[-1], BalancedHead)
    b = batch()
    hidden = model[:-1](b.inputs)
    head = model[-1]
    z = head.linear(hidden)
    unit = head.adaptor(hidden)
    fixed = unit / unit.norm(dim=1, keepdim=True) @ head.corners
    torch.testing.assert_close(model(b.inputs), 0.8 * z + 0.2 * fixed)
    counts = torch.bincount(b.labels, minlength=5)
    present = int((counts > 0).sum())
    scale = torch.tensor([math.sqrt(12 / (present * int(n))) if n else 1.0 for n in counts]).double()
    expected = 0.8 * cross_entropy(z, b.labels) + 0.2 * cross_entropy(fixed * scale, b.labels)
    torch.testing.assert_close(objective(model, b), expected)


def test_balcal_bisects_the_share():
    random = torch.Generator().manual_seed(0)
    z = 8 * torch.randn(400, 5, generator=random, dtype=torch.float64)
    labels = z.argmax(1)
    labels[:80] = torch.randint(0, 5, (80,), generator=random)
    fixed = z / z.norm(dim=1, keepdim=True)
    share = bisected(z, fixed, labels, 0.95)
    mixed = share * z + (1 - share) * fixed
    accuracy = float((mixed.argmax(1) == labels).double().mean())
    assert float(mixed.softmax(1).amax(1).mean()) == pytest.approx(0.95 * accuracy, abs=2e-3)
    assert bisected(0.1 * z, fixed, labels, 0.95) == 1.0


def test_balcal_between_epochs():
    objective = sf.losses.BalCAL(5)
    model, b = objective.wrap(network()), batch()
    with torch.no_grad():
        model[-1].linear.weight.mul_(50)
    model.train()
    model(b.inputs)
    heads = [logits.detach() for logits in model[-1].taken()]
    objective.epoch(Validation(model, as_dataset("train", (b.inputs, b.labels)), None))
    assert model.training
    assert float(model[-1].share) == bisected(*heads, b.labels, 0.95) < 0.8


def test_balcal_needs_its_heads():
    with pytest.raises(BadInput, match=r"model = objective\.wrap"):
        sf.losses.BalCAL(5)(network(), batch())
    with pytest.raises(BadInput, match=r"nn\.Linear of 7 outputs"):
        sf.losses.BalCAL(7).wrap(network())


def test_the_distance_to_a_linear_boundary():
    model, b = linear(), batch()
    w, z = model.weight.detach(), model(b.inputs).detach()
    expected = []
    for row in z:
        top = int(row.argmax())
        expected.append(min(float((row[top] - row[j]) / (w[top] - w[j]).norm()) for j in range(5) if j != top))
    np.testing.assert_allclose(boundary_distance(model, b.inputs, 4), expected)


def test_ar_adals_smooths_where_it_is_too_sure():
    model, b = network(), batch()
    with torch.no_grad():
        model[-1].weight.mul_(30)
    objective = sf.losses.ARAdaLS(12, groups=2, rate=0.5)
    val = batch(n=30, seed=5)
    train, held_out = as_dataset("train", (b.inputs, b.labels)), as_dataset("val", (val.inputs, val.labels))
    objective.epoch(Validation(model, train, held_out))
    p = sf.Predictions(model(val.inputs).detach(), val.labels)
    order = boundary_distance(model, val.inputs).argsort(stable=True)
    gaps = [float(np.mean((p.confidence - p.correct)[part])) for part in (order[:15].numpy(), order[15:].numpy())]
    expected = torch.tensor([min(max(0.5 * gap, 0.0), 0.8) for gap in gaps]).double()
    torch.testing.assert_close(objective.smoothing, expected)
    assert torch.bincount(objective.group).tolist() == [6, 6]
    epsilon = objective.smoothing[objective.group]
    soft = torch.full((12, 5), 0.0).double()
    soft += (epsilon / 4)[:, None]
    soft[torch.arange(12), b.labels] = 1 - epsilon
    torch.testing.assert_close(objective(model, b), cross_entropy(model(b.inputs), soft))


def test_validation_examples_are_asked_for():
    train = as_dataset("train", (batch().inputs, batch().labels))
    with pytest.raises(BadInput, match=r"set data\.val"):
        sf.losses.AdaFocal().epoch(Validation(network(), train, None))
