"""The loss type: every loss at every place that takes one, and torch's own losses against torch."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import surefoot as sf
from surefoot.curvature import GaussNewton, Hessian, Sharpness, batch_sharpness, curvature_along_sam
from surefoot.errors import BadInput
from surefoot.losses import Batch, as_loss, as_objective

WEIGHT = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)


def cross_entropy(logits, labels):
    return functional.cross_entropy(logits, labels, reduction="none")


def margins(logits, labels):
    """torch's own cannot be differentiated twice."""
    falls = (1 - logits[torch.arange(len(labels)), labels][:, None] + logits).relu().square()
    return ((falls * (1 - functional.one_hot(labels, 3))).sum() / 3) / len(labels)


class Own(nn.Module):
    """A loss of one's own, written as torch's are."""

    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, logits, labels):
        values = cross_entropy(logits, labels)
        return values if self.reduction == "none" else getattr(values, self.reduction)()


# (loss, the mean as torch computes it); each is convex in the logits.
LOSSES = {
    "name": ("ce", functional.cross_entropy),
    "name of the squared error": ("mse-half", lambda z, y: 1.5 * nn.MSELoss()(z, functional.one_hot(y, 3).to(z))),
    "ours": (sf.losses.CrossEntropy(), functional.cross_entropy),
    "the curvature's": (sf.curvature.CrossEntropy(), functional.cross_entropy),
    "smoothed": (sf.losses.LabelSmoothing(0.2), nn.CrossEntropyLoss(label_smoothing=0.2)),
    "squared error": (sf.losses.SquaredError(), lambda z, y: nn.MSELoss()(z, functional.one_hot(y, 3).to(z))),
    "torch mean": (nn.CrossEntropyLoss(), functional.cross_entropy),
    "torch sum": (nn.CrossEntropyLoss(reduction="sum"), functional.cross_entropy),
    "torch none": (nn.CrossEntropyLoss(reduction="none"), functional.cross_entropy),
    "torch smoothed": (nn.CrossEntropyLoss(label_smoothing=0.2), nn.CrossEntropyLoss(label_smoothing=0.2)),
    "torch weighted": (nn.CrossEntropyLoss(WEIGHT), nn.CrossEntropyLoss(WEIGHT)),
    "torch weighted and smoothed": (
        nn.CrossEntropyLoss(WEIGHT, label_smoothing=0.3),
        nn.CrossEntropyLoss(WEIGHT, label_smoothing=0.3),
    ),
    "torch squared error": (nn.MSELoss(), lambda z, y: nn.MSELoss()(z, functional.one_hot(y, 3).to(z))),
    "torch margins": (nn.MultiMarginLoss(p=2), margins),
    "function": (cross_entropy, functional.cross_entropy),
    "module": (Own(), functional.cross_entropy),
}


def problem():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    return model, torch.randn(12, 6, dtype=torch.float64), torch.arange(12) % 3


@pytest.fixture(params=LOSSES)
def loss(request):
    return LOSSES[request.param]


def test_the_objective_and_its_gradient_are_torchs(loss):
    model, x, y = problem()
    objective = as_objective(loss[0])
    ours = torch.autograd.grad(objective(model, Batch(x, y, torch.arange(12), 0)), list(model.parameters()))
    theirs = torch.autograd.grad(loss[1](model(x), y), list(model.parameters()))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_csams_criterion_is_torchs_mean_or_sum(loss):
    model, x, y = problem()
    opt = sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1), gamma=1.0)
    criterion = opt.outer(loss[0])
    times = 12 if getattr(loss[0], "reduction", "mean") == "sum" else 1
    torch.testing.assert_close(criterion(model(x), y), times * loss[1](model(x), y))

    def closure():
        found = criterion(model(x), y)
        found.backward()
        return found

    opt.step(closure)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


def test_csam_with_a_sum_is_csam_with_a_mean_at_a_larger_rate():
    ends, last = [], []
    for reduction, rate in (("mean", 0.12), ("sum", 0.01)):
        model, x, y = problem()
        opt = sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=rate), gamma=1.0)
        criterion = opt.outer(nn.CrossEntropyLoss(reduction=reduction))

        def closure(model=model, criterion=criterion, x=x, y=y):
            found = criterion(model(x), y)
            found.backward()
            return found

        opt.step(closure)
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        last.append(opt.last)
    torch.testing.assert_close(*ends)
    assert last[0]["lambda"] == pytest.approx(last[1]["lambda"])
    assert last[0]["lambda0"] == pytest.approx(last[1]["lambda0"])
    assert last[1]["perturbed_loss"] == pytest.approx(12 * last[0]["perturbed_loss"])


def test_hessian_against_torchs(loss):
    model, x, y = problem()
    parameters = dict(model.named_parameters())
    flat = torch.cat([p.detach().flatten() for p in parameters.values()])

    def value(vector):
        parts = torch.split(vector, [p.numel() for p in parameters.values()])
        own = {name: part.view_as(p) for (name, p), part in zip(parameters.items(), parts, strict=True)}
        return loss[1](torch.func.functional_call(model, own, (x,)), y)

    expected = torch.autograd.functional.hessian(value, flat)
    torch.testing.assert_close(Hessian(model, x, y, loss[0]).dense(), expected, rtol=1e-8, atol=1e-10)


def test_gauss_newton_of_a_linear_model_is_the_hessian(loss):
    _, x, y = problem()
    model = nn.Linear(6, 3).double()
    torch.testing.assert_close(
        GaussNewton(model, x, y, loss[0]).dense(), Hessian(model, x, y, loss[0]).dense(), rtol=1e-8, atol=1e-10
    )


def test_sharpness_and_batch_sharpness(loss):
    """Through the principal directions of the inputs, and whole."""
    model, x, y = problem()
    exact = float(GaussNewton(model, x, y, loss[0]).top(1, 1e-6).values[0])
    reader = Sharpness(model, x, y, loss[0], directions=6)
    assert reader.compressed
    assert reader.read(tol=1e-6).value == pytest.approx(exact, rel=1e-6)
    whole = Sharpness(model, x, y, loss[0], directions=1)
    assert not whole.compressed
    assert whole.read(tol=1e-6).value == pytest.approx(exact, rel=1e-6)
    assert batch_sharpness(model, x, y, 12, loss=loss[0]).batches == 1
    assert len(curvature_along_sam(model, x, y, 0.05, 2, loss=loss[0])) == 2


def test_tracker(loss):
    model, x, y = problem()
    groups = {"calibration": 1, "curvature": 1, "hessian": 1, "batch_sharpness": 1}
    with sf.Tracker(model, train=(x, y), test=(x, y), loss=loss[0], every=groups) as t:
        pass
    exact = float(GaussNewton(model, x, y, loss[0]).top(1, 1e-6).values[0])
    assert t.readings[0]["sharpness"] == pytest.approx(exact, rel=1e-3)


def test_certify_takes_both_losses_of_the_theorems():
    model, x, y = problem()
    for same in (("ce", nn.CrossEntropyLoss()), ("mse", nn.MSELoss(), sf.losses.SquaredError())):
        found = [[(c.name, c.left) for c in sf.theory.certify(model, x, y, loss=loss)] for loss in same]
        assert all(each == found[0] for each in found)
    with pytest.raises(BadInput, match=r"the theorems are of the cross-entropy \(loss='ce'\)"):
        sf.theory.certify(model, x, y, loss=sf.losses.Focal())


def test_one_class_under_both_names():
    assert sf.losses.CrossEntropy is sf.curvature.CrossEntropy
    assert sf.losses.SquaredError is sf.curvature.SquaredError


def test_log_probabilities():
    """NLLLoss of a model that ends in log_softmax is the cross-entropy of that model, curvature included."""
    model, x, y = problem()
    model.append(nn.LogSoftmax(dim=1))
    for kind in (GaussNewton, Hessian):
        torch.testing.assert_close(kind(model, x, y, nn.NLLLoss()).dense(), kind(model, x, y).dense())
        torch.testing.assert_close(
            kind(model, x, y, nn.NLLLoss(WEIGHT)).dense(), kind(model, x, y, nn.CrossEntropyLoss(WEIGHT)).dense()
        )
    with pytest.raises(BadInput, match="NLLLoss takes log-probabilities"):
        GaussNewton(model[:3], x, y, nn.NLLLoss()).dense()


def test_a_loss_with_negative_curvature_has_a_hessian_only():
    model, x, y = problem()
    for loss in (sf.losses.Focal(), nn.CrossEntropyLoss(torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64))):
        assert Hessian(model, x, y, loss).dense().isfinite().all()
        for reader in (GaussNewton, Sharpness):
            with pytest.raises(BadInput, match=r"must be convex in the logits.*loss='ce'"):
                reader(model, x, y, loss)


def test_multi_margin_loss_has_torchs_values():
    _, x, y = problem()
    for p in (1, 2):
        loss = nn.MultiMarginLoss(p=p, margin=0.7, weight=WEIGHT, reduction="none")
        torch.testing.assert_close(as_loss(loss).values(x[:, :3], y), loss(x[:, :3], y))


def test_the_given_module_is_left_alone():
    module = nn.CrossEntropyLoss(WEIGHT)
    as_loss(module)
    assert module.reduction == "mean"


WRONG = {
    "unknown name": ("cross-entropy", "loss must be one of 'ce', 'mse'"),
    "near name": ("mse_half", "did you mean 'mse-half'"),
    "class": (nn.CrossEntropyLoss, r"write CrossEntropyLoss\(\)"),
    "objective": (sf.losses.CalMO(), "CalMO is an objective of the model"),
    "other targets": (nn.BCEWithLogitsLoss(), "BCEWithLogitsLoss needs targets other than one class"),
    "number": (3, "loss must be a name or a function"),
}


@pytest.mark.parametrize("case", WRONG)
def test_no_loss(case):
    loss, match = WRONG[case]
    model, x, y = problem()
    opt = sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1))
    for take in (as_objective, opt.outer) if case != "objective" else (opt.outer,):
        with pytest.raises(BadInput, match=match):
            take(loss)
    for take in (GaussNewton, Hessian, Sharpness):
        with pytest.raises(BadInput, match=match):
            take(model, x, y, loss)


def test_a_term_of_the_batch_has_no_curvature():
    model, x, y = problem()
    for take in (GaussNewton, Hessian, Sharpness, lambda m, x, y, loss: sf.Tracker(m, (x, y), (x, y), loss=loss)):
        with pytest.raises(BadInput, match="MMCE has a term of the whole batch"):
            take(model, x, y, sf.losses.MMCE())


def test_labels_to_be_ignored_are_refused():
    model, x, y = problem()
    for ignored, match in ((-100, "got -100 in row 3"), (1, "leave those rows out")):
        loss = nn.CrossEntropyLoss(ignore_index=ignored)
        labels = y.index_fill(0, torch.tensor([3]), ignored)
        for take in (GaussNewton, Hessian, Sharpness):
            with pytest.raises(BadInput, match=match):
                take(model, x, labels, loss).read() if take is Sharpness else take(model, x, labels, loss).dense()
