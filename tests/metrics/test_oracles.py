"""Against independent libraries, on data where they are right; and where they are not, by how much.

Bins: none of them shares our convention on the edges, so the data have no confidence on one, unless a test is
about that. docs/ORACLES.md tells the differences in words.
"""

import numpy as np
import pytest
import torch

from surefoot import metrics
from surefoot.metrics.bins import tally_width, width_table

from ..conftest import binary_predictions, random_predictions

calibration = pytest.importorskip("calibration")
netcal = pytest.importorskip("netcal.metrics")
relplot = pytest.importorskip("relplot")
torchmetrics = pytest.importorskip("torchmetrics.classification")
_ce_compute = pytest.importorskip("torchmetrics.functional.classification.calibration_error")._ce_compute

CASES = [(300, 2, 0), (1500, 5, 1), (3000, 10, 2), (600, 100, 3)]


@pytest.fixture(params=CASES, ids=str)
def q(request):
    n, k, seed = request.param
    return random_predictions(n, k, seed)


@pytest.mark.parametrize("bins", [1, 10, 15])
class TestEqualWidth:
    def test_netcal_in_float64(self, q, bins):
        outcome = q.correct.astype(int)
        np.testing.assert_allclose(metrics.ece(q, bins), netcal.ECE(bins).measure(q.confidence, outcome), rtol=1e-10)
        np.testing.assert_allclose(metrics.mce(q, bins), netcal.MCE(bins).measure(q.confidence, outcome), rtol=1e-10)

    @pytest.mark.parametrize(("norm", "metric"), [("l1", metrics.ece), ("max", metrics.mce), ("l2", metrics.rmsce)])
    def test_torchmetrics(self, q, bins, norm, metric):
        peer = torchmetrics.MulticlassCalibrationError(q.classes, bins, norm)
        value = peer(torch.tensor(q.probs), torch.tensor(q.labels))
        np.testing.assert_allclose(metric(q, bins), float(value), rtol=2e-5, atol=2e-6)

    def test_uncertainty_calibration(self, q, bins):
        value = calibration.get_ece(q.probs, q.labels, num_bins=bins)
        np.testing.assert_allclose(metrics.ece(q, bins), value, rtol=1e-9)


def equal_mass(q):
    data = list(zip(q.confidence.tolist(), q.correct.astype(float).tolist(), strict=True))
    return calibration.bin(data, calibration.get_equal_bins(q.confidence.tolist(), 15))


def test_equal_mass_and_debiasing_as_uncertainty_calibration(q):
    """n is a multiple of the bins in every case, so their split by rank is ours."""
    binned = equal_mass(q)
    np.testing.assert_allclose(metrics.adaptive_ece(q), calibration.plugin_ce(binned, power=1), rtol=1e-10)
    square = max(0.0, calibration.unbiased_square_ce(binned))
    np.testing.assert_allclose(metrics.debiased_ece(q), np.sqrt(square), rtol=1e-9, atol=1e-12)
    np.random.seed(0)  # noqa: NPY002 - their resampling; ours is its closed form
    noisy = calibration.normal_debiased_ce(binned, power=1, resamples=4000)
    assert metrics.debiased_ece(q, norm=1) == pytest.approx(noisy, abs=2e-3)


def test_smooth_as_relplot(q):
    """They halve ten times, to a width within 1e-3 of the fixed point; few rows make the error steep in it."""
    value = relplot.smECE(q.confidence, q.correct.astype(float))
    assert metrics.smooth_ece(q) == pytest.approx(value, abs=1e-3 if len(q) >= 1000 else 3e-3)


def test_smooth_where_relplot_differs():
    """Two groups of confidences: the fixed point by brute force over image sources of the reflected kernel."""
    from surefoot.predictions import Events

    random = np.random.default_rng(0)
    c = np.where(random.random(2000) < 0.5, 0.05, 0.95)
    y = random.random(2000) < 0.5
    width = float(metrics.smooth_ece(Events(c, y)))
    grid = (np.arange(2000) + 0.5) / 2000
    curve = np.zeros(2000)
    for place in (0.05, 0.95):
        mass = (y - c)[c == place].sum() / len(c)
        sources = (sign * place + 2 * k for k in range(-4, 5) for sign in (1, -1))
        curve += mass * sum(np.exp(-0.5 * ((grid - x) / width) ** 2) for x in sources) / (width * np.sqrt(2 * np.pi))
    assert np.abs(curve).mean() == pytest.approx(width, abs=1e-5)
    assert relplot.smECE(c, y.astype(float)) > width + 0.05


# --- where they are wrong ---------------------------------------------------------------------------


def test_torchmetrics_has_a_phantom_bin_for_confidence_one():
    """Half of the rows claim 1.0 and are right, half claim 0.99 and are wrong: one bin, of gap 0.495.

    torchmetrics (issue 3510) gives 1.0 a bin of its own, and a maximum error of 0.99. Should this fail, the fault
    was mended: say so in docs/ORACLES.md.
    """
    p = binary_predictions(np.repeat([1.0, 0.99], 50), np.repeat([True, False], 50))
    peer = torchmetrics.MulticlassCalibrationError(p.classes, 10, "max")
    np.testing.assert_allclose(metrics.mce(p, 10), 0.495, rtol=1e-12)
    np.testing.assert_allclose(float(peer(torch.tensor(p.probs), torch.tensor(p.labels))), 0.99, rtol=1e-6)


def test_torchmetrics_loses_rows_in_float32_sums():
    """Adding 0.99 to a float32 sum near 2²⁴ adds 1, and beyond it nothing; ours are whole numbers."""
    n = 3 * 2**23
    peer = _ce_compute(torch.full((n,), 0.99), torch.ones(n), torch.linspace(0, 1, 16))
    ours = width_table(tally_width(np.full(n, 0.99), np.ones(n, bool), 15)).error(1)
    np.testing.assert_allclose(ours, 0.01, rtol=1e-12)
    assert abs(float(peer) - 0.01) > 1e-3
