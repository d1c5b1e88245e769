"""The rule of `Auto` on few rows, and the calibrators that it needs: priors, mixtures, structured scaling."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.base import clone

from surefoot import Predictions, metrics, threads
from surefoot.errors import BadInput
from surefoot.posthoc import (
    CALIBRATORS,
    Auto,
    Dirichlet,
    EnsembleTemperature,
    Identity,
    Matrix,
    StructuredMatrix,
    StructuredVector,
    Temperature,
    load,
)
from surefoot.posthoc.auto import _folds
from surefoot.posthoc.linear import _GRID, odir
from surefoot.posthoc.linear import Path as Minimiser

from .test_calibrators import calibrated

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def small():
    """The benchmark's problems, judged on fewer rows."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("auto_small", FOLDER / "auto_small.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    module.JUDGED = 4000
    return module


def test_few_rows_do_no_harm(small):
    gains = np.array([small.outcome(seed, "auto")["gain"] for seed in range(16)])
    assert gains.min() > -0.2
    assert (gains < -0.01).sum() <= 1
    assert gains.mean() > 0.1


def plain(p, seed=0, folds=5):
    """The rule once more, without shared fits: the name, and the mean NLL out of fold of everything tried."""
    n = len(p)
    shuffled = np.random.default_rng(seed).permutation(n)
    fold = np.empty(n, int)
    fold[shuffled[np.argsort(p.labels[shuffled], kind="stable")]] = np.arange(n) % folds
    safe = {"prior": 0.5, "mixed": True}
    tried = {
        "none": Identity(), "temperature": Temperature(**safe), "ets": EnsembleTemperature(**safe),
        "svs": StructuredVector(**safe), "sms": StructuredMatrix(**safe),
    }  # fmt: skip
    if n >= 250:
        tried |= {"dirichlet": Dirichlet(), "matrix": Matrix()}
    if np.bincount(p.labels, minlength=p.classes).min() < 2:
        tried = dict(list(tried.items())[:2])
    losses = {}
    for name, candidate in tried.items():
        loss = np.empty(n)
        for each in range(folds):
            test = np.flatnonzero(fold == each)
            fitted = clone(candidate).fit(p.take(np.flatnonzero(fold != each)))
            loss[test] = -fitted.apply(p.take(test)).log_true
        losses[name] = loss

    def gains(over, name, errors):
        gain = losses[over] - losses[name]
        return gain.mean() > errors * gain.std(ddof=1) / n**0.5

    standing = "temperature" if gains("none", "temperature", 0.5) else "none"
    later = [name for name in losses if name not in ("none", "temperature") and gains(standing, name, 1.64)]
    return min([standing, *later], key=lambda name: losses[name].mean()), {k: v.mean() for k, v in losses.items()}


@pytest.mark.parametrize("seed", [3, 4, 6, 12, 21])
def test_the_choice_is_that_of_the_plain_rule(small, seed):
    p = small.problem(seed)["val"]
    name, scores = plain(p)
    auto = Auto(nested=False).fit(p)
    assert auto.name_ == name
    found = {c.name: c.score for c in auto.scores_ if c.left_out is None}
    assert found == pytest.approx(scores, abs=1e-9)


def test_who_is_considered():
    few = {c.name: c.left_out for c in Auto(nested=False).fit(calibrated(100, 3)).scores_}
    assert set(few) == set(CALIBRATORS)
    assert [name for name, why in few.items() if why is None and name != "none"]
    assert "needs 250 rows" in few["dirichlet"]
    assert "asked for by name" in few["histogram"]
    p = calibrated(300, 3)
    rare = Predictions(p.logits, np.r_[2, p.labels[1:] % 2])
    left = {c.name: c.left_out for c in Auto(nested=False).fit(rare).scores_}
    assert "2 rows of every class to be safe; class 2 has 1" in left["sms"]
    assert left["temperature"] is None
    assert {c.name for c in Auto(nested=False).fit(p).scores_ if c.left_out is None} >= {"dirichlet", "matrix", "sms"}


def test_an_infinite_loss_before_is_left():
    z = np.asarray(calibrated(60, 3).logits).copy()
    labels = z.argmax(1)
    z[0, labels[0]] = -np.inf
    auto = Auto(nested=False).fit(Predictions(z, labels))
    assert auto.name_ != "none"
    assert np.isfinite(float(metrics.nll(auto.apply(Predictions(z, labels)))))


def test_the_estimate_repeats_the_choice():
    p = calibrated(250, 3, 0, 3.0)
    auto = Auto().fit(p)
    assert auto.name_ != "none"
    assert auto.estimate_ == pytest.approx(auto.scores_[0].score, abs=0.02)
    assert Auto(folds=2).fit(p).estimate_ < auto.before_


def posterior(p, spread):
    z = np.asarray(p.logits, float)
    rows = np.arange(len(z))

    def cost(u):
        log_probs = log_softmax(z * np.exp(-u), axis=1)
        return -log_probs[rows, p.labels].sum() + u**2 / (2 * spread**2)

    grid = np.linspace(-12, 12, 2001)
    near = grid[np.argmin([cost(u) for u in grid])]
    found = minimize_scalar(cost, bounds=(near - 0.02, near + 0.02), method="bounded", options={"xatol": 1e-10})
    return float(np.exp(found.x))


@pytest.mark.parametrize("spread", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("scale", [1e-4, 0.2, 1.0, 5.0, 1e3])
def test_a_prior_on_the_temperature(scale, spread):
    for seed, n in ((0, 30), (1, 300)):
        p = calibrated(n, 3, seed, scale)
        assert Temperature(prior=spread).fit(p).temperature_ == pytest.approx(posterior(p, spread), rel=1e-5)
    z = scale * np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0]] * 10) - 1
    right, wrong = Predictions(z, [0, 1] * 10), Predictions(z, [2, 2] * 10)
    for p, outcome in ((right, "separable"), (wrong, "uninformative")):
        fitted = Temperature(prior=spread).fit(p)
        assert fitted.outcome_ == outcome
        assert fitted.temperature_ == pytest.approx(posterior(p, spread), rel=1e-5)


@pytest.mark.parametrize("kind", [Temperature, EnsembleTemperature, StructuredVector, StructuredMatrix])
def test_mixed_with_the_uniform_distribution(kind, tmp_path):
    p, q = calibrated(49, 4, 0, 3.0), calibrated(30, 4, 1, 30.0)
    unmixed, mixed = kind().fit(p), kind(mixed=True).fit(p)
    expected = (49 * unmixed.apply(q).probs + 0.25) / 50
    np.testing.assert_allclose(mixed.apply(q).probs, expected, atol=1e-12)
    assert (mixed.apply(q).predicted == unmixed.apply(q).predicted).all()
    mixed.save(tmp_path / "map.json")
    np.testing.assert_array_equal(load(tmp_path / "map.json").apply(q).probs, mixed.apply(q).probs)
    module = mixed.to_module()(torch.tensor(np.asarray(q.logits)))
    np.testing.assert_allclose(module.exp(), expected, atol=1e-12)
    impossible = np.asarray(q.logits).copy()
    impossible[:, 1] = -np.inf
    assert mixed.apply(Predictions(impossible, np.ones(30, int))).probs.min() >= 0.25 / 50 * (1 - 1e-9)
    with pytest.raises(BadInput, match="mixed must be"):
        kind(mixed="yes").fit(p)
    with pytest.raises(BadInput, match="prior must be"):
        kind(prior=0.0).fit(p)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("kind", [StructuredVector, StructuredMatrix])
def test_structured_scaling_minimises_its_objective(kind, k):
    p = calibrated(120, k, 0, 2.0)
    fitted = kind().fit(p)
    n = len(p)
    cooled = softmax(np.asarray(p.logits) / Temperature().fit(p).temperature_, axis=1)
    x = np.log((n * cooled + 1 / k) / (n + 1))
    diagonal = kind is StructuredVector

    def cost(theta):
        m = np.diag(theta[:k]) if diagonal else theta[: k * k].reshape(k, k)
        b = theta[-k:]
        z = x + x @ m.T + b
        own = np.diag(m)
        nll = (logsumexp(z, axis=1) - z[np.arange(n), p.labels]).mean()
        ridge = k / n * ((own**2).sum() + (b**2).sum())
        return nll + ridge + k * (k - 1) / n * ((m**2).sum() - (own**2).sum())

    best = minimize(cost, np.zeros(2 * k if diagonal else k * k + k), method="BFGS", options={"gtol": 1e-7})
    weight = fitted.weight_ - (1 if diagonal else np.eye(k))
    np.testing.assert_allclose(np.r_[weight.ravel(), fitted.bias_], best.x, atol=1e-4)
    assert cost(np.r_[weight.ravel(), fitted.bias_]) <= best.fun + 1e-9


@pytest.mark.parametrize("kind", [StructuredVector, StructuredMatrix])
def test_structured_scaling_of_a_class_without_examples(kind):
    p = calibrated(60, 4, 0, 2.0)
    fitted = kind().fit(Predictions(p.logits, p.labels % 3))
    assert np.isfinite(fitted.apply(p).log_true).all()
    assert abs(fitted.bias_[3]) < 5


@pytest.mark.parametrize("seed", range(2))
def test_the_strength_is_that_of_the_whole_grid(seed):
    p = calibrated(300, 4, seed, 2.0)
    fitted = Dirichlet().fit(p)
    x = fitted._features(p)
    fold = np.random.default_rng(0).permutation(300) % 3
    path, totals = Minimiser(x, p.labels), []
    for l2 in _GRID:
        total = 0.0
        for each in range(3):
            theta = path.fit(odir(4, l2), np.flatnonzero(fold != each), None, 1e-8)
            total += path.nll(theta, np.flatnonzero(fold == each)) * (fold == each).sum()
        totals.append(total)
    assert fitted.l2_ == _GRID[int(np.argmin(totals))]


def test_threads_are_given_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads.one_thread():
            with threads.one_thread():
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with pytest.raises(ValueError, match="inside"), threads.one_thread():
            raise ValueError("inside")
        Auto(nested=False).fit(calibrated(60, 3))
        assert torch.get_num_threads() == 2
        with threads.one_thread(worthwhile=False):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# --- weights, clusters and every form ---------------------------------------------------------------


def clustered(seed, groups=60, size=10, k=3):
    """Rows of a cluster share an error of the logits, so that they are no independent evidence."""
    random = np.random.default_rng(seed)
    z = 1.5 * random.normal(size=(groups * size, k))
    owner = np.repeat(np.arange(groups), size)
    labels = (z + random.normal(size=(groups, k))[owner] + random.gumbel(size=z.shape)).argmax(1)
    order = random.permutation(len(z))
    return Predictions(z[order], labels[order], clusters=owner[order])


@pytest.mark.parametrize("folds", [2, 5])
def test_folds_never_split_a_cluster(folds):
    random = np.random.default_rng(0)
    owner = random.choice(200, 3000, p=random.dirichlet(np.ones(200)))
    labels = np.where(random.random(3000) < 0.7, owner % 3, random.integers(0, 3, 3000))
    fold = _folds(labels, folds, 0, owner)
    assert set(fold.tolist()) == set(range(folds))
    assert all(len(np.unique(fold[owner == each])) == 1 for each in np.unique(owner))
    sizes = np.bincount(fold)
    assert sizes.max() < 1.15 * sizes.min()
    for label in range(3):  # classes are spread
        counts = np.bincount(fold[labels == label], minlength=folds)
        assert counts.max() < 1.6 * counts.min()
    assert (_folds(labels, folds, 0, owner) == fold).all()
    assert (_folds(labels, folds, 1, owner) != fold).any()


def test_the_fit_sees_whole_clusters():
    """A calibrator that remembers clusters gains nothing out of fold, because no fold shares a cluster with it."""
    p = clustered(0)

    class Remembers(Identity):
        learned = ("seen_",)

        def _fit(self, p):
            self.seen_ = np.unique(p.clusters)

        def apply(self, p):
            assert not np.isin(p.clusters, self.seen_).any() or len(p) == 600
            return p

    auto = Auto(candidates={"remembers": Remembers()}).fit(p)
    assert auto.name_ == "none"
    with pytest.raises(BadInput, match="at least 10 clusters for 5 folds; got 6"):
        Auto().fit(clustered(0, 6))


def test_standard_errors_are_over_clusters_and_weights():
    p = clustered(1)
    plain = Predictions(p.logits, p.labels)
    candidates = {"temperature": Temperature()}
    other = Auto(nested=False, candidates=candidates).fit(plain).scores_[0]
    weights = np.random.default_rng(0).integers(1, 6, len(p))
    heavy = Auto(nested=False, candidates=candidates).fit(Predictions(p.logits, p.labels, weights=weights)).scores_[0]
    scaled = Auto(nested=False, candidates=candidates).fit(Predictions(p.logits, p.labels, weights=0.37 * weights))
    assert heavy.gain_error != other.gain_error
    assert scaled.scores_[0].gain_error == pytest.approx(heavy.gain_error, rel=1e-5)
    assert scaled.scores_[0].gain == pytest.approx(heavy.gain, rel=1e-5)
    # As clusters, copies of every row change neither the gain nor its error.
    rows = np.repeat(np.arange(len(p)), 3)
    copies = Predictions(plain.logits[rows], plain.labels[rows], clusters=rows)
    again = Auto(nested=False, candidates=candidates).fit(copies).scores_[0]
    assert again.gain_error == pytest.approx(other.gain_error, rel=0.15)
    blind = Auto(nested=False, candidates=candidates).fit(Predictions(copies.logits, copies.labels)).scores_[0]
    assert blind.gain_error < 0.7 * again.gain_error


@pytest.mark.parametrize("metric", ["nll", "ece", "brier", "accuracy"])
def test_every_form_has_a_choice(metric):
    random = np.random.default_rng(0)
    odds = random.normal(size=300)
    happened = random.random(300) < 1 / (1 + np.exp(-odds))
    prob = 1 / (1 + np.exp(-3 * odds))
    for p in (
        Predictions.from_probs(prob, happened),
        Predictions.from_confidence(prob, happened, weights=random.uniform(0.5, 2, 300)),
        Predictions.multilabel(prob.reshape(-1, 3), happened.reshape(-1, 3)),
        Predictions(np.stack([0 * odds, 3 * odds], 1), np.stack([0.8 - 0.6 * happened, 0.2 + 0.6 * happened], 1)),
    ):
        auto = Auto(metric).fit(p)
        after = auto.apply(p)
        assert after.form == p.form
        assert np.isfinite(auto.estimate_)
        if metric == "nll":
            assert auto.name_ != "none"
            assert auto.estimate_ < auto.before_ - 0.05
