import json

import numpy as np
import pytest

from surefoot import Predictions, metrics
from surefoot.posthoc import Vector, load

from ..conftest import surefoot
from ..posthoc.test_calibrators import calibrated
from ..posthoc.test_weights import forms
from .test_evaluate import output


@pytest.fixture
def files(tmp_path):
    calibrated(800, 3, 0, 3.0).save(tmp_path / "val.csv")
    calibrated(700, 3, 1, 3.0).save(tmp_path / "test.csv")
    return tmp_path


def test_a_csv_becomes_a_calibrated_csv_and_a_page(files):
    out, page, saved = files / "calibrated.csv", files / "page.html", files / "map.json"
    arguments = ("--out", out, "--figure", page, "--calibrator", saved, "--val-used-for-selection")
    text = output("calibrate", files / "val.csv", files / "test.csv", *arguments)
    assert "NLL goes from" in text
    assert "more than noise" in text
    assert "Beware: The validation set also chose" in text
    assert "chosen" in text
    assert f"calibrator: {saved}" in text
    after, before = Predictions.load(out), Predictions.load(files / "test.csv")
    assert metrics.ece(after) < 0.5 * metrics.ece(before)
    markup = page.read_text()
    assert "before" in markup
    assert "more than noise" in markup
    np.testing.assert_allclose(load(saved).apply(before).probs, after.probs, atol=1e-12)


def test_a_saved_map_is_applied_without_fitting(files):
    saved = files / "map.json"
    output("calibrate", files / "val.csv", files / "test.csv", "--method", "temperature", "--calibrator", saved)
    found = json.loads(output("calibrate", saved, files / "test.csv", "--json"))
    assert found["method"] == "temperature"
    assert found["learned"]["temperature_"] == load(saved).temperature_
    assert found["changes"]["ece"]["verdict"] == "better"
    assert found["answers_changed"] == 0


def test_json_names_every_candidate(files):
    found = json.loads(output("calibrate", files / "val.csv", files / "test.csv", "--json", "--metric", "brier"))
    assert {c["name"] for c in found["candidates"]} >= {"none", "temperature", "dirichlet", "isotonic-pooled"}
    assert found["nested estimate"] > 0


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("method", ["vector", "isotonic", "isotonic-pooled", "ets", "none"])
@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_methods_and_pictures(files, method, suffix):
    figure = files / f"figure{suffix}"
    text = output("calibrate", files / "val.csv", files / "test.csv", "--method", method, "--figure", figure)
    assert "Recalibration" in text
    assert figure.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["val.csv", "none.csv"], "no file"),
        (["val.csv", "test.csv", "--method", "magic"], "method must be one of"),
        (["val.csv", "test.csv", "--metric", "magic"], "metric must be one of"),
        (["val.csv", "other.csv"], "VAL has 3 classes and TEST 4"),
        (["val.csv", "test.csv", "--out", "x.txt"], "--out must end in"),
        (["val.csv", "test.csv", "--calibrator", "x.txt"], "--calibrator must end in"),
        (["val.csv", "test.csv", "--out", "nowhere/x.csv"], "no folder"),
        (["val.csv", "test.csv", "--figure", "x.bmp"], "--figure must end in"),
        (["broken.json", "test.csv"], "not a calibrator"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(files, arguments, says):
    calibrated(50, 4).save(files / "other.csv")
    (files / "broken.json").write_text("{}")
    done = surefoot("calibrate", *arguments, cwd=files)
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (files / "x.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["val.csv", "test.csv", "--method", "temperature", "--metric", "magic"], "metric must be one of"),
        (["map.json", "test.csv", "--method", "auto"], "--method is for fitting"),
        (["map.json", "test.csv", "--metric", "nll"], "--metric is for fitting"),
        (["map.json", "test.csv", "--val-split", "val"], "--val-split is for fitting"),
        (["map.json", "test.csv", "--val-used-for-selection"], "--val-used-for-selection is for fitting"),
        (["val.csv", "test.csv", "--out", "./val.csv"], "--out must not be an input file"),
        (["val.csv", "test.csv", "--out", "test.csv"], "--out must not be an input file"),
        (["map.json", "test.csv", "--calibrator", "map.json"], "--calibrator must not be an input file"),
        (["map.json", "probs.csv"], "p must hold logits"),
        (["cats.csv", "dogs.csv"], "got cat, dog, eel and dog, cat, eel"),
    ],
)
def test_what_would_be_ignored_overwritten_or_mixed_up_is_refused(files, arguments, says):
    p = calibrated(50, 3)
    Vector().fit(p).save(files / "map.json")
    Predictions.from_probs(p.probs, p.labels).save(files / "probs.csv")
    rename(files / "val.csv", files / "cats.csv", "label,logit_cat,logit_dog,logit_eel")
    rename(files / "test.csv", files / "dogs.csv", "label,logit_dog,logit_cat,logit_eel")
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    done = surefoot("calibrate", *arguments, cwd=files)
    assert (done.exit_code, says in done.stderr) == (2, True)
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


def rename(source, target, header):
    target.write_text("\n".join([header, *source.read_text().split("\n")[1:]]))


@pytest.mark.usefixtures("few_resamples")
def test_the_same_names_and_numbers_are_no_conflict(files):
    rename(files / "val.csv", files / "named.csv", "label,logit_cat,logit_dog,logit_eel")
    rename(files / "test.csv", files / "upper.csv", "label,Logit Cat,Logit Dog,Logit Eel")
    for test in ("upper.csv", "test.csv"):
        assert "Recalibration" in output("calibrate", files / "named.csv", files / test, "--method", "temperature")


def test_a_training_set_in_place_of_a_held_out_one_is_told(files):
    p = Predictions.load(files / "val.csv")
    Predictions(p.logits, p.predicted).save(files / "val.csv")
    text = output("calibrate", files / "val.csv", files / "test.csv", "--method", "temperature")
    assert "Beware: Every validation row is classified correctly" in text
    assert "is it the training set?" in text
    Predictions(p.logits, (p.predicted + 1) % 3).save(files / "val.csv")
    found = json.loads(output("calibrate", files / "val.csv", files / "test.csv", "--method", "ets", "--json"))
    assert any("no better than chance" in said for said in found["warnings"])


def test_impossible_labels_and_few_rows_are_told(files):
    p = Predictions.load(files / "test.csv")
    z = np.asarray(p.logits).copy()
    z[np.arange(2), p.labels[:2]] = -np.inf
    Predictions(z, p.labels).save(files / "test.npz")
    arguments = ("calibrate", files / "val.csv", files / "test.npz", "--method", "temperature")
    text = output(*arguments, "--figure", files / "page.html")
    assert "NLL goes from inf to inf: infinite before and after, so not comparable" in text
    assert "2 of 700 rows give their label probability 0 before and 2 after" in text
    assert "nan" not in text
    assert "+nan" not in (files / "page.html").read_text()
    found = json.loads(output(*arguments, "--json"))
    assert found["impossible"] == {"before": 2, "after": 2}
    assert found["changes"]["nll"]["verdict"] == "undefined"
    p.take(np.arange(2)).save(files / "test.csv")
    text = output("calibrate", files / "val.csv", files / "test.csv", "--method", "temperature")
    assert "too few rows to judge" in text
    assert "more than noise" not in text


@pytest.mark.usefixtures("few_resamples")
def test_the_table_shows_the_metric_as_it_is(files):
    for name in ("val.csv", "test.csv"):
        calibrated(60, 2, 0).save(files / name)
    text = output("calibrate", files / "val.csv", files / "test.csv", "--metric", "skce")
    table = [line.split() for line in text.split("\n\n")[1].split("\n")[1:]]
    assert any(len(row) > 1 and row[1].startswith("-") for row in table)


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("form", ["classes", "soft labels", "positions", "probability", "multilabel", "confidence"])
@pytest.mark.parametrize("method", ["auto", "beta", "temperature"])
def test_every_form_goes_through_files(tmp_path, form, method):
    """The numbers of the command are those of the library, and the result keeps form, weights and clusters."""
    suffix = "npz" if form == "soft labels" else "csv"
    val, test = forms(seed=0)[form], forms(seed=1)[form]
    paths = [tmp_path / f"{name}.{suffix}" for name in ("val", "test", "out")]
    val.save(paths[0])
    test.save(paths[1])
    saved, figure = tmp_path / "map.json", tmp_path / "both.svg"
    arguments = (*paths[:2], "--method", method, "--json", "--out", paths[2], "--calibrator", saved, "--figure", figure)
    found = json.loads(output("calibrate", *arguments))
    before, after = Predictions.load(paths[1]), Predictions.load(paths[2])
    assert after.form == before.form == test.form
    for column in ("labels", "weights", "clusters", "soft_labels"):
        np.testing.assert_array_equal(getattr(after, column), getattr(before, column))
    np.testing.assert_allclose(load(saved).apply(before).as_classes().probs, after.as_classes().probs, atol=1e-12)
    assert found["changes"]["nll"]["after"] == pytest.approx(float(metrics.nll(after)), rel=1e-9)
    assert found["changes"]["nll"]["before"] == pytest.approx(float(metrics.nll(before)), rel=1e-9)
    assert found["changes"]["nll"]["after"] < found["changes"]["nll"]["before"]
    assert figure.exists()
    text = output("calibrate", saved, paths[1])
    assert "NLL goes from" in text
