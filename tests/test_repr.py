"""What objects show of themselves: settings and main numbers, on a line or in a small table."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

import surefoot as sf
from surefoot.theory import Certificates

from .conftest import random_predictions


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()


X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(20) % 2


def test_operators_and_readers():
    assert repr(sf.curvature.GaussNewton(model(), X)) == (
        "GaussNewton(dim=23, loss=CrossEntropy(), n=20, reduction='mean', batch_norm='eval')"
    )
    assert repr(sf.curvature.Hessian(model(), X, Y, "mse-half", reduction="sum")) == (
        "Hessian(dim=23, loss=SquaredError(convention='half'), n=20, reduction='sum', batch_norm='eval')"
    )
    compressed = sf.curvature.Sharpness(model(), X, max_products=8)
    assert repr(compressed) == (
        "Sharpness(compressed, PrincipalGaussNewton(dim=23, loss=CrossEntropy(), n=20, directions=4), max_products=8)"
    )
    whole = sf.curvature.Sharpness(nn.Sequential(nn.Tanh(), model()), X)
    assert repr(whole).startswith("Sharpness(whole, GaussNewton(dim=23")


def test_eigenpairs():
    values, residuals = torch.tensor([2.0, 0.5], dtype=torch.float64), torch.tensor([1e-3, 2e-4], dtype=torch.float64)
    pairs = sf.curvature.Eigenpairs(values, torch.zeros(7, 2), residuals, 12, "converged")
    assert (
        repr(pairs)
        == "Eigenpairs(values=[2, 0.5], residuals=[1.0e-03, 2.0e-04], dim=7, matvecs=12, outcome='converged')"
    )


def test_losses():
    shown = {
        sf.losses.CrossEntropy(): "CrossEntropy()",
        sf.losses.Focal(2.0, reduction="sum"): "Focal(gamma=2.0, reduction='sum')",
        sf.losses.MMCE(): "MMCE(weight=2.0, bandwidth=0.4, legacy=False)",
        sf.losses.Mixup(): "Mixup(alpha=1.0)",
        sf.losses.CalMO(
            eps=torch.ones(3, 4)
        ): "CalMO(eps=<3×4>, robust=0.5, smooth=0.01, steps=3, step_size=0.25, reuse=True)",
    }
    assert {repr(loss) for loss in shown} == set(shown.values())


def hinge(logits, labels):
    return (1 - logits.gather(1, labels[:, None])[:, 0]).relu()


class Own:
    needs_labels = True

    def values(self, logits, labels):
        return hinge(logits, labels)

    def hessian_product(self, logits, labels, u):
        return 0 * u


def test_losses_made_from_functions():
    assert repr(sf.loss.FunctionLoss(hinge)) == "FunctionLoss(function=hinge)"
    assert repr(sf.losses.as_loss(Own())) == "FunctionLoss(function=Own.values, hessian_product=hessian_product)"
    assert repr(sf.losses.as_objective(hinge)) == "Lifted(\n  (loss): FunctionLoss(function=hinge)\n)"
    assert "loss=FunctionLoss(function=hinge)" in repr(sf.curvature.GaussNewton(model(), X, Y, hinge))
    assert "loss=FunctionLoss(function=hinge)" in repr(sf.Tracker(model(), train=(X, Y), test=(X, Y), loss=hinge))
    with pytest.raises(sf.errors.BadInput, match=r"got FunctionLoss\(function=hinge\)"):
        sf.theory.certify(model(), X, Y, loss=hinge)


@pytest.mark.parametrize(
    ("loss", "shown"),
    [
        (nn.MultiMarginLoss(), "MultiMarginLoss()"),
        (nn.MultiMarginLoss(p=2, weight=torch.ones(3)), "MultiMarginLoss(p=2, weight=<3>)"),
        (
            nn.CrossEntropyLoss(weight=torch.ones(3), label_smoothing=0.2),
            "CrossEntropyLoss(weight=<3>, label_smoothing=0.2)",
        ),
        (nn.CrossEntropyLoss(ignore_index=0, reduction="sum"), "CrossEntropyLoss(ignore_index=0, reduction='sum')"),
        (nn.NLLLoss(reduction="none"), "NLLLoss(reduction='none')"),
    ],
)
def test_losses_of_torch(loss, shown):
    assert repr(sf.losses.as_loss(loss)) == shown


def test_data_sets():
    data = sf.data.as_dataset("train", (X, Y))
    assert repr(data) == "ArrayDataset(n=20, shape=(4,), classes=2, stored='float64')"
    images = sf.data.as_dataset("train", (np.zeros((3, 2, 2), np.uint8), [0, 1, 2]))
    assert repr(images) == "ArrayDataset(n=3, shape=(2, 2), classes=3, stored='uint8')"


def test_measures():
    p = sf.Predictions([[2.0, 0.0], [0.0, 1.0]] * 50, [0, 0] * 50)
    assert repr(sf.metrics.reliability(p, 10)) == (
        "Reliability(bins=10, binning='width', n=100, ece=0.4251, accuracy=0.5000, mean_confidence=0.8059)"
    )
    state = sf.metrics.CalibrationState()
    assert repr(state) == "CalibrationState(bins=15, n=0)"
    assert repr(state.update(p)) == (
        "CalibrationState(bins=15, n=100, ece=0.4251, mce=0.7311, rmsce=0.5238, accuracy=0.5000, confidence=0.8059)"
    )
    found = sf.metrics.interval(sf.metrics.accuracy, p)
    assert repr(found).startswith("Interval(0.40383")
    assert repr(found).endswith("method='Wilson', level=0.95)")
    assert pickle.loads(pickle.dumps(found)) == found == (found.low, found.high)


def test_comparison():
    p = random_predictions(200, 3, sharp=3.0)
    lines = repr(sf.posthoc.compare(p, sf.posthoc.Temperature().fit(p).apply(p))).splitlines()
    assert lines[0].split() == ["metric", "before", "after", "change", "95%", "interval", "verdict"]
    assert {line.split()[0]: line.split()[-1] for line in lines[1:4]}["nll"] == "better"
    assert lines[-1] == "0 of 200 predicted classes change"


def test_tracker():
    net = model()
    with sf.Tracker(net, train=(X, Y), test=(X[:8], Y[:8]), every={"calibration": 2, "curvature": 4}) as t:
        for step in range(4):
            t.step(step)
    heading, last = repr(t).splitlines()
    assert heading == "Tracker(train=20, test=8, loss=CrossEntropy(), every={'calibration': 2, 'curvature': 4})"
    assert last.startswith("  3 readings, the last at step 4: train.accuracy 0.")
    assert f"sharpness {t.readings[-1]['sharpness']:.4g}" in last


def test_certificates():
    found = sf.theory.certify(model(), X, Y)
    assert isinstance(found, list)
    assert isinstance(found, Certificates)
    lines = repr(found).splitlines()
    assert lines[0].split() == ["statement", "left", "right", "left/right", "verdict"]
    assert "Lemma B.1" in lines
    assert lines[-1] == f"{sum(c.verdict == 'holds' for c in found)} holds, " + lines[-1].partition(", ")[2]
    rows = found.to_dict()["certificates"]
    assert [row["name"] for row in rows] == [c.name for c in found]
    assert np.isclose(rows[0]["slack"], found[0].slack)
