"""Each loss against its paper's formula, worked out example by example in plain Python."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import surefoot as sf
from surefoot.losses.batch_gaps import soft_ece, weighted_mmce
from tests.losses.cases import examples


def softmax(z):
    e = [math.exp(v - max(z)) for v in z]
    return [v / sum(e) for v in e]


def rows(logits, labels):
    """(logits, probabilities, label, cross-entropy) of each example."""
    for z, y in zip(logits.tolist(), labels.tolist(), strict=True):
        p = softmax(z)
        yield z, p, y, -math.log(p[y])


def against(loss, by_example, logits=None, labels=None):
    if logits is None:
        logits, labels = examples(40, 6)
    expected = [by_example(*row) for row in rows(logits, labels)]
    value = loss(logits, labels)
    torch.testing.assert_close(value, torch.tensor(expected, dtype=torch.float64))


def test_cross_entropy():
    against(sf.losses.CrossEntropy("none"), lambda z, p, y, ce: ce)


@pytest.mark.parametrize(("convention", "scale"), [("mean", 1 / 6), ("half", 0.5), ("sum", 1.0)])
def test_squared_error(convention, scale):
    def by_example(z, p, y, ce):
        return scale * sum((v - (k == y)) ** 2 for k, v in enumerate(z))

    against(sf.losses.SquaredError(convention, "none"), by_example)


def test_squared_error_is_the_curvatures():
    """One convention for the loss that is trained on and the one whose curvature is read."""
    from surefoot.loss import as_loss

    logits, labels = examples()
    for convention in ("mean", "half", "sum"):
        loss = sf.losses.SquaredError(convention, "none")
        assert torch.equal(loss(logits, labels), as_loss(loss.curvature).values(logits, labels))
        z = logits[:1].clone().requires_grad_()
        hessian = torch.autograd.functional.hessian(lambda z, loss=loss: loss(z, labels[:1]).sum(), z)
        u = torch.ones_like(z)
        expected = as_loss(loss.curvature).hessian_product(z, labels[:1], u)
        torch.testing.assert_close((hessian.reshape(5, 5) @ u.T).T, expected)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5])
def test_label_smoothing(alpha):
    def by_example(z, p, y, ce):
        return (1 - alpha) * ce + alpha * sum(-math.log(v) for v in p) / 6

    against(sf.losses.LabelSmoothing(alpha, "none"), by_example)


def test_the_optimum_of_label_smoothing():
    """Ten classes, α = 0.1: p_y = 0.91 and a margin of log 91 = 4.511."""
    z = torch.zeros(1, 10, dtype=torch.float64).requires_grad_()
    loss, y = sf.losses.LabelSmoothing(0.1), torch.tensor([3])
    solver = torch.optim.LBFGS([z], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        value = loss(z, y)
        value.backward()
        return value

    solver.step(closure)
    z = z.detach()
    assert float(z.softmax(1)[0, 3]) == pytest.approx(0.91, abs=1e-6)
    assert float(z[0, 3] - z[0, 0]) == pytest.approx(4.511, abs=1e-3)


def test_confidence_penalty():
    def by_example(z, p, y, ce):
        return ce - 0.3 * sum(-v * math.log(v) for v in p)

    against(sf.losses.ConfidencePenalty(0.3, "none"), by_example)


def test_confidence_penalty_of_a_class_ruled_out():
    z = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y, loss = torch.tensor([0, 1, 2, 3, 0]), sf.losses.ConfidencePenalty(0.3)
    masked = torch.cat([z, torch.full((5, 1), -math.inf, dtype=torch.float64)], dim=1).requires_grad_()
    plain = z.clone().requires_grad_()
    assert loss(masked, y).item() == pytest.approx(loss(plain, y).item())
    loss(masked, y).backward()
    loss(plain, y).backward()
    assert torch.allclose(masked.grad[:, :4], plain.grad)
    assert torch.equal(masked.grad[:, 4], torch.zeros(5, dtype=torch.float64))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_focal(gamma):
    against(sf.losses.Focal(gamma, reduction="none"), lambda z, p, y, ce: (1 - p[y]) ** gamma * ce)


def test_flsd_53():
    def by_example(z, p, y, ce):
        return (1 - p[y]) ** (5 if p[y] < 0.2 else 3) * ce

    logits, labels = examples(200, 6)
    p = logits.softmax(1).gather(1, labels[:, None])
    assert bool((p < 0.2).any() and (p > 0.2).any())
    against(sf.losses.FLSD53("none"), by_example, logits, labels)


def g(p, gamma):
    return (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * math.log(p)


@given(st.floats(0.02, 0.6))
def test_the_rule_for_gamma(p):
    """The gradient's factor is 1 at p, and at most 1 above it."""
    gamma = sf.losses.focal_gamma(p)
    if gamma > 0:
        assert g(p, gamma) == pytest.approx(1, abs=1e-7)
    assert all(g(q, gamma) <= 1 + 1e-7 for q in np.linspace(p, 0.999, 200))
    if gamma > 1e-3:  # the least one
        assert max(g(q, gamma * 0.99) for q in np.linspace(p, 0.999, 200)) > 1


def test_the_rule_for_gamma_by_the_card():
    assert sf.losses.focal_gamma(0.2) == pytest.approx(4.851, abs=5e-4)
    assert sf.losses.focal_gamma(0.25) == pytest.approx(3.070, abs=5e-4)
    assert sf.losses.Focal(p0=0.25).gamma == sf.losses.focal_gamma(0.25)


def test_dual_focal():
    def by_example(z, p, y, ce):
        below = [v for v in p if v < p[y]]
        return (1 - p[y] + max(below, default=0.0)) ** 5 * ce

    against(sf.losses.DualFocal(reduction="none"), by_example)
    tied = torch.tensor([[1.0, 1.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)  # ties, and the label last
    against(sf.losses.DualFocal(reduction="none"), by_example, tied, torch.tensor([0, 0]))


def test_ada_focal_values():
    loss = sf.losses.AdaFocal(bins=4, reduction="none")
    loss.gammas.copy_(torch.tensor([3.0, 0.5, -0.7, -2.0]))

    def by_example(z, p, y, ce):
        gamma = loss.gammas[min(3, int(p[y] * 4))].item()
        return (1 - p[y]) ** gamma * ce if gamma > 0 else (1 + p[y]) ** -gamma * ce

    against(loss, by_example, *examples(200, 6))


def test_mbls():
    def by_example(z, p, y, ce):
        return ce + 0.1 * sum(max(0.0, max(z) - v - 2.0) for v in z) / 6

    against(sf.losses.MbLS(2.0, reduction="none"), by_example)


def test_acls():
    def by_example(z, p, y, ce):
        top = max(0.0, max(z) - 1.0) ** 2
        others = sum(max(0.0, max(z) - v - 1.0) ** 2 for v in z) / 5
        return ce + 0.1 * (1.0 * top + 0.1 * others)

    against(sf.losses.ACLS(margin=1.0, reduction="none"), by_example)


def test_acls_does_not_lower_the_top_by_its_second_term():
    logits = torch.tensor([[4.0, 0.0, 0.0]], dtype=torch.float64).requires_grad_()
    loss = sf.losses.ACLS(alpha=1.0, top=0.0, others=1.0, margin=1.0)
    penalty = loss(logits, torch.tensor([0])) - sf.losses.CrossEntropy()(logits, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(penalty, logits)
    torch.testing.assert_close(gradient, torch.tensor([[0.0, -3.0, -3.0]], dtype=torch.float64))


def mmce_by_pairs(c, right, legacy):
    """Kumar et al. 2018, the three sums of pairs; in the reference code each is a mean, divided by the counts again."""
    n1, n0 = sum(right), len(right) - sum(right)
    sums = {"cc": 0.0, "ii": 0.0, "ci": 0.0}
    for a, ra in zip(c, right, strict=True):
        for b, rb in zip(c, right, strict=True):
            k = math.exp(-abs(a - b) / 0.4)
            if ra and rb:
                sums["cc"] += (1 - a) * (1 - b) * k
            elif ra:
                sums["ci"] += (1 - a) * b * k
            elif not rb:
                sums["ii"] += a * b * k
    counts = {"cc": n1 * n1, "ii": n0 * n0, "ci": n1 * n0}
    means = {key: sums[key] / max(1, counts[key]) for key in sums}
    if legacy:
        means = {key: means[key] / (counts[key] + 1e-5) for key in means}
    squared = means["cc"] + means["ii"] - 2 * means["ci"]
    if legacy:
        return math.sqrt(squared + 1e-10) if n1 and n0 else 0.0
    return math.sqrt(squared)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kind", ["mixed", "right", "wrong"])
def test_mmce(legacy, kind):
    c = [0.9, 0.8, 0.55, 0.7, 0.95]
    right = {"mixed": [1, 1, 0, 0, 1], "right": [1] * 5, "wrong": [0] * 5}[kind]
    value = weighted_mmce(torch.tensor(c).double(), torch.tensor(right).double(), legacy=legacy)
    assert float(value) == pytest.approx(mmce_by_pairs(c, right, legacy), abs=1e-6)


def test_mmce_does_not_shrink_with_the_batch():
    """The same examples ten times over: the corrected form stays, the authors' falls by about that factor."""
    c, right = torch.tensor([0.9, 0.8, 0.55, 0.7]).double(), torch.tensor([1.0, 1, 0, 0]).double()
    more = c.repeat(10), right.repeat(10)
    assert float(weighted_mmce(*more)) == pytest.approx(float(weighted_mmce(c, right)))
    ratio = float(weighted_mmce(c, right, legacy=True) / weighted_mmce(*more, legacy=True))
    assert ratio == pytest.approx(10, rel=0.01)


def test_mmce_loss_is_its_term():
    logits, labels = examples(30, 4)
    confidence, predicted = logits.softmax(1).max(1)
    expected = sf.losses.CrossEntropy()(logits, labels) + 2 * weighted_mmce(confidence, (predicted == labels).double())
    torch.testing.assert_close(sf.losses.MMCE()(logits, labels), expected)


def test_mdca():
    logits, labels = examples(40, 6)
    all_rows = list(rows(logits, labels))
    gaps = [
        abs(sum(p[k] for _, p, _, _ in all_rows) / 40 - sum(y == k for _, _, y, _ in all_rows) / 40) for k in range(6)
    ]
    expected = sum(ce for *_, ce in all_rows) / 40 + 3 * sum(gaps) / 6
    assert float(sf.losses.MDCA(3.0)(logits, labels)) == pytest.approx(expected)


def test_cpc():
    def by_example(z, p, y, ce):
        others = [k for k in range(6) if k != y]
        first = sum(math.log1p(math.exp(z[j] - z[y])) for j in others) / 5
        second = sum(math.log1p(math.exp(z[k] - z[j])) for j in others for k in others if j != k) / (5 * 4)
        return ce + 0.1 * first + 0.5 * second

    against(sf.losses.CPC(reduction="none"), by_example)


def test_cpc_in_pieces(monkeypatch):
    logits, labels = examples(40, 6)
    expected = sf.losses.CPC(reduction="none")(logits, labels)
    gradient = cpc_gradient(logits, labels)
    for size in (1, 450, 700):  # a class at a time, two or three, more and more
        monkeypatch.setattr("surefoot.losses.pairwise._PAIRS", size)
        torch.testing.assert_close(sf.losses.CPC(reduction="none")(logits, labels), expected)
        torch.testing.assert_close(cpc_gradient(logits, labels), gradient)


def cpc_gradient(logits, labels):
    z = logits.clone().requires_grad_()
    return torch.autograd.grad(sf.losses.CPC()(z, labels), z)[0]


def test_cpc_loops_over_classes_and_not_over_examples(monkeypatch):
    calls = []
    tanh = torch.Tensor.tanh_
    monkeypatch.setattr(torch.Tensor, "tanh_", lambda tensor: calls.append(1) or tanh(tensor))
    monkeypatch.setattr("surefoot.losses.pairwise._PAIRS", 1)  # the smallest pieces
    sf.losses.CPC()(*examples(60, 8))
    assert len(calls) == 7


def test_soft_ece_becomes_the_binned_one():
    """As the temperature falls: bins of equal width, and both norms."""
    logits, labels = examples(300, 6)
    p = sf.Predictions(logits, labels)
    c, right = torch.tensor(p.confidence), torch.tensor(p.correct).double()
    assert float(soft_ece(c, right, 15, 1e-7, 1)) == pytest.approx(float(sf.metrics.ece(p)), abs=1e-6)
    assert float(soft_ece(c, right, 15, 1e-7, 2)) == pytest.approx(float(sf.metrics.rmsce(p)), abs=1e-6)
    assert float(soft_ece(c, right, 15, 1e9, 1)) == pytest.approx(abs(float((right - c).mean())), abs=1e-6)
