"""`ByGroup`: offsets of groups, their shrinkage, and where they pay."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.posthoc import ByGroup, NotFitted, Platt, Temperature, load
from surefoot.posthoc.groups import firth_offset, spread_of

from ..conftest import random_predictions, surefoot


def binary(offsets, sizes, seed=0, **columns):
    """P(positive) that is right up to an offset on the log-odds of each group."""
    random = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    z = random.normal(0, 1.5, len(owner))
    happened = random.random(len(owner)) < expit(z + np.asarray(offsets)[owner])
    return Predictions.from_probs(expit(z), happened.astype(int), groups={"g": owner}, **columns)


def test_the_offset_of_a_group_alone():
    random = np.random.default_rng(0)
    z = random.normal(size=40)
    y = (random.random(40) < expit(z + 1)).astype(float)

    def penalised(offset):
        p = expit(z + offset)
        return -(y @ np.log(p) + (1 - y) @ np.log1p(-p) + 0.5 * np.log(p @ (1 - p)))

    offset, variance = firth_offset(z, y, np.ones(40))
    assert offset == pytest.approx(minimize_scalar(penalised, bracket=(-1, 1)).x, abs=1e-6)
    bend = [expit(z + at) * expit(-z - at) for at in (0.0, offset)]
    assert variance == pytest.approx(1 / min(b.sum() for b in bend))
    everything, _ = firth_offset(np.zeros(10), np.ones(10), np.ones(10))
    assert everything == pytest.approx(np.log(10.5 / 0.5))
    assert firth_offset(z, y, np.full(40, 7.0)) == pytest.approx((offset, variance))  # only ratios of weights matter
    copied = [np.repeat(column, 5) for column in (z, y, np.ones(40))]
    assert (
        firth_offset(*copied, clusters=np.repeat(np.arange(40), 5))[1] > 0.7 * variance > 3 * firth_offset(*copied)[1]
    )


def test_the_spread_of_offsets():
    assert spread_of(np.array([0.1, -0.1, 0.0]), np.full(3, 0.04)) == 0
    estimates, variance = np.array([-1.0, 0.5, 2.0]), np.array([0.1, 0.2, 0.4])
    u = 1 / variance
    centre = (u * estimates).sum() / u.sum()
    q = (u * (estimates - centre) ** 2).sum()
    assert spread_of(estimates, variance) ** 2 == pytest.approx((q - 2) / (u.sum() - (u**2).sum() / u.sum()))
    assert spread_of(np.array([3.0]), np.array([0.1])) == 0


def test_offsets_are_shrunk_by_their_noise():
    fitted = ByGroup("platt", by="g").fit(binary([1.5, -1.5, 0.5, -0.5], [1000, 1000, 20, 1000]))
    spread = fitted.spread_**2
    for gain in fitted.gains_:
        assert gain.offset == pytest.approx(gain.separate * spread / (spread + gain.error**2))
    assert [round(gain.offset) for gain in fitted.gains_[:2]] == [1, -1]
    assert abs(fitted.gains_[2].offset / fitted.gains_[2].separate) < abs(
        fitted.gains_[3].offset / fitted.gains_[3].separate
    )


@pytest.mark.parametrize(("spread", "sets"), [(0.0, 20), (0.3, 20)])
def test_shrinkage_beats_separate_offsets_and_costs_little(spread, sets):
    """Twenty groups of 20 to 200 rows, NLL on new rows."""
    total = dict.fromkeys(("whole", "separate", "shrunk"), 0.0)
    for seed in range(sets):
        random = np.random.default_rng(seed)
        offsets, sizes = spread * random.normal(size=20), random.integers(20, 201, 20)
        fitted = ByGroup("platt", by="g", folds=2).fit(binary(offsets, sizes, seed))
        test = binary(offsets, [300] * 20, 1000 + seed)
        total["shrunk"] += metrics.nll(fitted.apply(test)) / sets
        total["whole"] += metrics.nll(fitted.base_.apply(test)) / sets
        fitted.offsets_ = np.array([gain.separate for gain in fitted.gains_])
        total["separate"] += metrics.nll(fitted.apply(test)) / sets
    assert total["shrunk"] < total["separate"] - 0.001
    if spread:
        assert total["shrunk"] < total["whole"] - 0.001
    else:
        assert total["shrunk"] < total["whole"] + 0.001


def test_equal_groups_get_the_map_of_all_rows():
    p = binary([0.0] * 4, [500] * 4, seed=3)
    fitted = ByGroup("platt", by="g").fit(p)
    assert fitted.spread_ == 0
    np.testing.assert_allclose(fitted.apply(p).probs, Platt().fit(p).apply(p).probs, atol=1e-12)
    assert "differ by no more than noise" in fitted.sentences[0]


@pytest.mark.parametrize("name", ["temperature", "platt"])
def test_unseen_groups_get_the_map_of_all_rows(name):
    p = binary([1.0, -1.0, 0.0], [400] * 3)
    fitted = ByGroup(name, by="g").fit(p)
    unseen = Predictions.from_probs(p.events().prob, p.labels, groups={"g": ["new"] * len(p)})
    np.testing.assert_allclose(fitted.apply(unseen).probs, fitted.base_.apply(unseen).probs, atol=1e-12)
    assert np.abs(fitted.apply(p).probs - fitted.base_.apply(p).probs).max() > 0.1


def test_it_says_where_it_pays():
    p = binary([1.0, -1.0, 0.02, 0.0], [800] * 4, seed=1)
    fitted = ByGroup("platt", by="g").fit(p)
    assert [gain.verdict for gain in fitted.gains_[:2]] == ["pays", "pays"]
    assert all(gain.gain > 2 * gain.gain_error for gain in fitted.gains_[:2])
    assert all(abs(gain.gain) < 0.005 for gain in fitted.gains_[2:])
    assert "it pays for 0 (" in " ".join(fitted.sentences)
    few = ByGroup("platt", by="g").fit(binary([1.0, -1.0, 0.0], [400, 400, 3]))
    assert few.gains_[2].gain is None
    assert few.gains_[2].verdict == "undecided"


def test_gains_are_of_rows_outside_of_the_fit():
    """Offsets of equal groups cannot pay on new rows; on the rows of the fit they always seem to."""
    gains = []
    for seed in range(10):
        p = binary([2.0, -2.0] + [0.0] * 10, [60] * 12, seed)
        gains += [gain.gain for gain in ByGroup("platt", by="g", seed=seed).fit(p).gains_[2:]]
    assert np.mean(gains) < -0.002


def test_clusters_make_offsets_less_certain():
    """Ten copies of each row: with clusters, offsets and gains are as uncertain as without copies."""
    single = binary([0.6, -0.6], [200] * 2)
    rows = np.repeat(np.arange(400), 10)
    scores, groups = single.events().prob[rows], {"g": np.repeat([0, 1], 2000)}
    copies = Predictions.from_probs(scores, single.labels[rows], groups=groups)
    marked = Predictions.from_probs(scores, single.labels[rows], groups=groups, clusters=rows)
    of = [ByGroup("platt", by="g").fit(p).gains_[0] for p in (single, marked, copies)]
    assert of[1].error == pytest.approx(of[0].error, rel=0.15)
    assert of[1].gain_error == pytest.approx(of[0].gain_error, rel=0.3)
    assert of[2].error < 0.4 * of[0].error


def test_several_classes_keep_the_predicted_class():
    p = random_predictions(1500, 4, sharp=1.0)
    logits, owner = np.array(p.logits), np.arange(1500) % 3
    rows = np.arange(1500)
    logits[rows, logits.argmax(1)] += np.array([2.0, 0.0, -0.5])[owner]
    q = Predictions(logits, p.labels, groups={"g": owner})
    fitted = ByGroup("temperature", by="g").fit(q)
    after = fitted.apply(q)
    assert (after.predicted == q.predicted).all()
    assert metrics.nll(after) < metrics.nll(Temperature().fit(q).apply(q)) - 0.01
    assert fitted.offsets_[0] < 0 < fitted.offsets_[1]


@pytest.mark.parametrize("kind", ["confidence", "multilabel"])
def test_other_kinds(kind):
    random = np.random.default_rng(0)
    owner, c = np.arange(1200) % 3, random.random(1200)
    happened = random.random(1200) < expit(np.log(c / (1 - c)) + np.array([1.0, -1.0, 0.0])[owner])
    if kind == "confidence":
        p = Predictions.from_confidence(c, happened, groups={"g": owner})
    else:
        p = Predictions.multilabel(c.reshape(-1, 3), happened.reshape(-1, 3).astype(int), names=["x", "y", "z"])
    after = ByGroup("platt", by="g" if kind == "confidence" else "label").fit(p).apply(p)
    assert after.form == p.form
    assert metrics.ece(after) < 0.5 * max(metrics.ece(p.take(owner == g)) for g in (0, 1))
    gap = [float(metrics.gap(after.take(owner == g))) for g in range(3)]
    np.testing.assert_allclose(gap, 0, atol=0.02)


class TestFiles:
    def test_saved_and_loaded(self, tmp_path):
        p = binary([1.0, -1.0, 0.0], [300] * 3)
        fitted = ByGroup("platt", by="g").fit(p)
        fitted.save(tmp_path / "map.json")
        read = load(tmp_path / "map.json")
        assert read.get_params() == fitted.get_params()
        np.testing.assert_array_equal(read.apply(p).log_probs, fitted.apply(p).log_probs)
        with pytest.raises(NotFitted):
            ByGroup().save(tmp_path / "other.json")

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            ({"groups": ["0", "1"]}, "offsets_ must have shape"),
            ({"groups": ["0", "1", "1"]}, "different names"),
            ({"groups": [0, 1, 2]}, "different names"),
            ({"base": None}, "map of all rows"),
            ({"base": {"method": "temperature"}}, "map of all rows"),
            ({"learned": {"offsets_": [0, 0, 0], "spread_": -1.0}}, "spread_"),
            ({"learned": {"offsets_": [0, 0, 1e999], "spread_": 1.0}}, "finite"),
            ({"settings": {"calibrator": "auto", "by": "g", "folds": 5, "seed": 0, "scores": "logits"}}, "calibrator"),
        ],
    )
    def test_damaged_files(self, tmp_path, change, match):
        path = tmp_path / "map.json"
        ByGroup("platt", by="g").fit(binary([1.0, -1.0, 0.0], [300] * 3)).save(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(BadInput, match=match):
            load(path)


def test_bad_input_is_explained():
    p = binary([0, 0], [50] * 2)
    with pytest.raises(BadInput, match="temperature, platt by group; got 'auto'"):
        ByGroup("auto", by="g").fit(p)
    with pytest.raises(BadInput, match="by must name a column of groups; got 'country'"):
        ByGroup("platt", by="country").fit(p)
    with pytest.raises(BadInput, match="by must be the name of one column"):
        ByGroup("platt", by=["g"]).fit(p)
    with pytest.raises(BadInput, match="by must name a column"):
        ByGroup("platt", by="g").fit(p).apply(Predictions.from_probs([0.5], [1]))
    with pytest.raises(BadInput, match="none: give groups"):
        ByGroup("platt", by="g").fit(np.zeros((4, 2)), [0, 1, 0, 1])


class TestCommand:
    @pytest.fixture
    def files(self, tmp_path):
        for seed, name in enumerate(("val", "test")):
            binary([1.0, -1.0, 0.0], [300] * 3, seed).save(tmp_path / f"{name}.csv")
        return tmp_path / "val.csv", tmp_path / "test.csv"

    def test_by(self, files, tmp_path):
        done = surefoot("calibrate", *files, "--by", "g", "--json", "-o", tmp_path / "o.csv", "--calibrator",
                        tmp_path / "m.json")  # fmt: skip
        assert (done.exit_code, done.stderr) == (0, "")
        found = json.loads(done.stdout)
        assert (found["method"], found["by"], found["settings"]["calibrator"]) == ("by-group", "g", "platt")
        assert [(group["value"], group["n"]) for group in found["groups"]] == [("0", 300), ("1", 300), ("2", 300)]
        assert [group["verdict"] for group in found["groups"][:2]] == ["pays", "pays"]
        expected = ByGroup("platt", by="g").fit(Predictions.load(files[0])).apply(Predictions.load(files[1]))
        np.testing.assert_allclose(Predictions.load(tmp_path / "o.csv").probs, expected.probs)
        again = surefoot("calibrate", tmp_path / "m.json", files[1], "--json")
        assert json.loads(again.stdout)["changes"] == found["changes"]

    def test_text(self, files):
        done = surefoot("calibrate", *files, "--by", "g", "--method", "temperature", env={"COLUMNS": "100"})
        assert (done.exit_code, done.stderr) == (0, "")
        assert "gain in nats" in done.stdout
        assert "it pays for 0" in done.stdout

    def test_bad_options(self, files):
        done = surefoot("calibrate", *files, "--by", "g", "--method", "dirichlet")
        assert done.exit_code == 2
        assert "temperature, platt" in done.stderr
        assert surefoot("calibrate", *files, "--by", "land").exit_code == 2
        assert surefoot("calibrate", *files, "--by", "g", "--to-prior", "em").exit_code == 2
