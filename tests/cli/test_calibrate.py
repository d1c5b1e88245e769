import json

import numpy as np
import pytest

from surefoot import Predictions, metrics
from surefoot.posthoc import load

from ..posthoc.test_calibrators import calibrated
from .test_evaluate import in_process, run


@pytest.fixture
def files(tmp_path):
    calibrated(800, 3, 0, 3.0).save(tmp_path / "val.csv")
    calibrated(700, 3, 1, 3.0).save(tmp_path / "test.csv")
    return tmp_path


def test_a_csv_becomes_a_calibrated_csv_and_a_page(files):
    out, page, saved = files / "calibrated.csv", files / "page.html", files / "map.json"
    arguments = ("--out", out, "--figure", page, "--map", saved, "--early-stopped")
    text = in_process("calibrate", files / "val.csv", files / "test.csv", *arguments)
    assert "NLL goes from" in text
    assert "more than noise" in text
    assert "Beware: The validation set also chose" in text
    assert "chosen" in text
    after, before = Predictions.load(out), Predictions.load(files / "test.csv")
    assert metrics.ece(after) < 0.5 * metrics.ece(before)
    markup = page.read_text()
    assert "before" in markup
    assert "more than noise" in markup
    np.testing.assert_allclose(load(saved).apply(before).probs, after.probs, atol=1e-12)


def test_a_saved_map_is_applied_without_fitting(files):
    saved = files / "map.json"
    in_process("calibrate", files / "val.csv", files / "test.csv", "--method", "temperature", "--map", saved)
    found = json.loads(in_process("calibrate", saved, files / "test.csv", "--json"))
    assert found["method"] == "temperature"
    assert found["learned"]["temperature_"] == load(saved).temperature_
    assert found["changes"]["ece"]["verdict"] == "better"
    assert found["answers_changed"] == 0


def test_json_names_every_candidate(files):
    found = json.loads(in_process("calibrate", files / "val.csv", files / "test.csv", "--json", "--metric", "brier"))
    assert {c["name"] for c in found["candidates"]} >= {"none", "temperature", "dirichlet", "isotonic-pooled"}
    assert found["nested estimate"] > 0


@pytest.mark.parametrize("method", ["vector", "isotonic", "isotonic-pooled", "ets", "none"])
@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_methods_and_pictures(files, method, suffix):
    figure = files / f"figure{suffix}"
    text = in_process("calibrate", files / "val.csv", files / "test.csv", "--method", method, "--figure", figure)
    assert "Repair" in text
    assert figure.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["val.csv", "none.csv"], "no file"),
        (["val.csv", "test.csv", "--method", "magic"], "method must be one of"),
        (["val.csv", "test.csv", "--metric", "magic"], "metric must be one of"),
        (["val.csv", "other.csv"], "VAL has 3 classes and TEST 4"),
        (["val.csv", "test.csv", "--out", "x.txt"], "--out must end in"),
        (["val.csv", "test.csv", "--map", "x.txt"], "--map must end in"),
        (["val.csv", "test.csv", "--out", "nowhere/x.csv"], "no folder"),
        (["val.csv", "test.csv", "--figure", "x.bmp"], "--figure must end in"),
        (["broken.json", "test.csv"], "not a calibrator"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(files, arguments, says):
    calibrated(50, 4).save(files / "other.csv")
    (files / "broken.json").write_text("{}")
    done = run("calibrate", *arguments, cwd=files)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (files / "x.txt").exists()
