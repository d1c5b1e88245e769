"""`PriorShift`: known shares in closed form, EM against its likelihood, BBSE, and what cannot be estimated."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.posthoc import PriorShift
from surefoot.posthoc.prior import em_shares, parse_prior, prior_of

from ..conftest import surefoot


def shifted(n, shares, signal=1.5, seed=0, implied=None, **columns):
    """Calibrated predictions of Gaussian classes under the shares ``implied``, of rows with the shares ``shares``."""
    random, k = np.random.default_rng(seed), len(shares)
    labels = random.choice(k, n, p=shares)
    x = random.normal(size=(n, k))
    x[np.arange(n), labels] += signal
    return Predictions(signal * x + np.log(shares if implied is None else implied), labels, **columns)


EVEN, OTHER = np.full(3, 1 / 3), np.array([0.6, 0.3, 0.1])


def test_the_closed_form_of_two_classes():
    p = np.array([0.8, 0.6, 0.3, 0.1])
    test = Predictions.from_probs(np.stack([p, 1 - p], 1), [0, 0, 1, 1])
    val = Predictions.from_probs(np.tile(np.stack([p, 1 - p], 1), (30, 1)), [0, 0, 1, 1] * 30)
    shares = PriorShift("em").fit(val).estimate(test)
    assert shares.tolist() == pytest.approx([0.32442, 0.67558], abs=5e-6)
    after = PriorShift("em").fit(val).apply(test)
    assert after.probs.mean(0) == pytest.approx(shares)  # the fixed point of EM
    odds = p / (1 - p) * shares[0] / shares[1]
    assert after.probs[:, 0] == pytest.approx(odds / (1 + odds))


@pytest.mark.parametrize("signal", [3.0, 1.0, 0.3])
def test_em_maximises_the_likelihood(signal):
    p = shifted(2000, OTHER, signal, implied=EVEN)
    found = em_shares(p.log_probs, EVEN)

    def loss(theta):
        prior = np.exp(theta - np.logaddexp.reduce(theta))
        return -np.log(p.probs @ (prior / EVEN)).mean()

    best = minimize(loss, np.zeros(3), tol=1e-14).x
    np.testing.assert_allclose(found, np.exp(best - np.logaddexp.reduce(best)), atol=2e-4)
    weights = np.random.default_rng(1).integers(1, 4, 2000)
    repeated = em_shares(np.repeat(p.log_probs, weights, axis=0), EVEN)
    np.testing.assert_allclose(em_shares(p.log_probs, EVEN, weights.astype(float)), repeated, atol=1e-8)


def test_em_converges_where_a_hundred_steps_do_not():
    p = shifted(2000, OTHER, 0.3, implied=EVEN)
    found = em_shares(p.log_probs, EVEN)
    plain = EVEN
    for _ in range(100):
        plain = plain * (p.probs / EVEN / (p.probs @ (plain / EVEN))[:, None]).mean(0)
    step = found * (p.probs / EVEN / (p.probs @ (found / EVEN))[:, None]).mean(0)
    assert np.abs(step - found).max() < 1e-10
    assert np.abs(plain - found).max() > 1e-3


@pytest.mark.parametrize("prior", ["em", "bbse", OTHER, {0: 0.6, 1: 0.3, 2: 0.1}])
def test_shifted_rows_become_calibrated(prior):
    before = np.array([0.2, 0.3, 0.5])
    val, test = shifted(4000, before), shifted(4000, OTHER, seed=1, implied=before)
    fitted = PriorShift(prior).fit(val)
    after = fitted.apply(test)
    np.testing.assert_allclose(fitted.estimate(test), OTHER, atol=0.03)
    ideal = shifted(4000, OTHER, seed=1)
    assert metrics.nll(after) < metrics.nll(ideal) + 0.01 < metrics.nll(test)
    np.testing.assert_allclose(after.probs.sum(1), 1)


def test_weights_count():
    val = shifted(600, EVEN)
    times = np.random.default_rng(0).integers(1, 4, 600)
    weighted = Predictions(np.array(val.logits), val.labels, weights=times)
    one, other = PriorShift("bbse").fit(weighted), PriorShift("bbse").fit(val.take(np.repeat(np.arange(600), times)))
    np.testing.assert_allclose(one.shares_, other.shares_)
    np.testing.assert_allclose(one.confusion_, other.confusion_)
    assert one.noise_ > other.noise_  # repeated rows are not independent


@pytest.mark.parametrize("prior", ["em", "bbse"])
def test_what_cannot_be_estimated_is_refused(prior):
    for seed in range(10):
        random = np.random.default_rng(seed)
        blind = Predictions(random.normal(size=(500, 3)), random.integers(0, 3, 500))
        with pytest.raises(BadInput, match="cannot be estimated"):
            PriorShift(prior, seed=seed).fit(blind)
    PriorShift(OTHER).fit(blind)  # given shares need no estimate
    PriorShift(prior).fit(shifted(500, EVEN))
    # Copies of a row know no more than the row: 17 of 30 right are chance, 340 of 600 are not.
    said = [0.6] * 17 + [0.4] * 13 + [0.4] * 17 + [0.6] * 13
    probs = np.repeat([[c, 1 - c] for c in said], 20, axis=0)
    labels = np.repeat([0] * 30 + [1] * 30, 20)
    PriorShift(prior).fit(Predictions.from_probs(probs, labels))
    with pytest.raises(BadInput, match="cannot be estimated"):
        PriorShift(prior).fit(Predictions.from_probs(probs, labels, clusters=np.repeat(np.arange(60), 20)))


def test_a_negative_share_is_refused():
    # Class 1 is predicted less often than its false alarms alone explain.
    val = Predictions.from_probs([[0.9, 0.1]] * 70 + [[0.1, 0.9]] * 30 + [[0.1, 0.9]] * 100, [0] * 100 + [1] * 100)
    test = Predictions.from_probs([[0.9, 0.1]] * 100, [0] * 100)
    with pytest.raises(BadInput, match="negative share"):
        PriorShift("bbse").fit(val).apply(test)
    assert PriorShift("em").fit(val).apply(test).probs.min() > 0


def test_bad_input_is_explained():
    p = shifted(300, EVEN, names=["cat", "dog", "eel"])
    for prior, match in [
        ("emm", "did you mean 'em'"),
        ({"cat": 0.5, "dgo": 0.3, "eel": 0.2}, "did you mean 'dog'"),
        ({"cat": 0.5, "dog": 0.5}, "'eel' has none"),
        ({"cat": 0.5, "dog": 0.5, "eel": 0.0}, "above 0"),
        ({"cat": 0.5, "dog": 0.5, "eel": 0.5}, "sum to 1"),
        ([0.5, 0.5], "must have 3 shares"),
        (0.2, "one number for 3 classes"),
        (["a", "b", "c"], "numbers"),
    ]:
        with pytest.raises(BadInput, match=match):
            PriorShift(prior).fit(p)
    with pytest.raises(BadInput, match="class 2 has no example"):
        PriorShift(OTHER).fit(p.take(p.labels < 2))
    with pytest.raises(BadInput, match="predictions of classes"):
        PriorShift(0.3).fit(Predictions.from_confidence([0.5, 0.6], [0, 1]))
    with pytest.raises(BadInput, match="is not saved"):
        PriorShift(OTHER).fit(p).save("x.json")
    with pytest.raises(BadInput, match="class shares must be em"):
        parse_prior("cat=a,dog=.2")
    assert prior_of(0.2, 2).tolist() == [0.8, 0.2]
    assert prior_of(0.2, 2, positive=0).tolist() == [0.2, 0.8]
    assert prior_of([0.33, 0.33, 0.33], 3).tolist() == pytest.approx([1 / 3] * 3)


class TestCommand:
    @pytest.fixture
    def files(self, tmp_path):
        names = ["cat", "dog", "eel"]
        shifted(1500, EVEN, names=names).save(tmp_path / "val.csv")
        shifted(1500, OTHER, seed=1, implied=EVEN, names=names).save(tmp_path / "test.csv")
        return tmp_path / "val.csv", tmp_path / "test.csv"

    @pytest.mark.parametrize("prior", ["em", "bbse", "eel=.1,cat=.6,dog=.3"])
    def test_to_prior(self, files, prior, tmp_path):
        done = surefoot("calibrate", *files, "--to-prior", prior, "--method", "temperature", "--json", "-o",
                        tmp_path / "o.csv")  # fmt: skip
        assert (done.exit_code, done.stderr) == (0, "")
        found = json.loads(done.stdout)
        assert list(found["prior"]["new"].values()) == pytest.approx(OTHER.tolist(), abs=0.05)
        assert found["changes"]["nll"]["verdict"] == "better"
        assert float(metrics.nll(Predictions.load(tmp_path / "o.csv"))) == pytest.approx(
            found["changes"]["nll"]["after"]
        )

    def test_text_and_refusals(self, files):
        done = surefoot("calibrate", *files, "--to-prior", "em", "--method", "temperature", env={"COLUMNS": "300"})
        assert "Class shares move as estimated by EM on TEST: cat from 3" in done.stdout
        assert surefoot("calibrate", *files, "--to-prior", "cat=.5,dog=.5").exit_code == 2
        assert surefoot("calibrate", *files, "--to-prior", "maximum").exit_code == 2
