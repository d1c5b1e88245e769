import errno
import json
import os

import numpy as np
import pytest

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.evaluation import verdict

from ..conftest import binary_predictions, random_predictions, surefoot


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "p.npz"
    random_predictions(400, 4, sharp=2.0).save(path)
    return path


def output(*arguments):
    """What the command prints when it succeeds."""
    done = surefoot(*arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def test_json_is_one_object_with_every_metric(file):
    found = json.loads(output("evaluate", file, "--json", "--bins", "10"))
    p = Predictions.load(file)
    for name, value in metrics.summary(p, bins=10).items():
        entry = found["metrics"][name]
        assert entry["value"] == float(value)
        assert entry["low"] <= entry["high"]
        assert entry["n"] == 400
        assert entry["interval"]
    assert found["metrics"]["ece"]["bins"] == 10
    assert found["reliability"]["count"] == metrics.reliability(p, 10).table.count.tolist()
    assert len(found["verdict"]["sentences"]) == 3
    assert found["verdict"]["direction"] == "over"


def test_json_of_hard_values_is_strict(tmp_path):
    Predictions([[0.0, -np.inf], [1.0, 0.0]], [1, 0]).save(tmp_path / "p.npz")
    text = output("evaluate", tmp_path / "p.npz", "--json")
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"not JSON: {name}"))
    assert found["metrics"]["nll"]["value"] == "inf"
    assert None in found["reliability"]["accuracy"]


@pytest.mark.parametrize(("n", "least"), [(1000, 0.999), (200, 0.98), (1000, 0.995), (30, 0.5)])
def test_calibrated_models_are_seldom_called_over_or_under_confident(n, least):
    false = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        c = least + (1 - least) * random.random(n)
        false += verdict(binary_predictions(c, random.random(n) < c)).direction != "neither"
    assert false <= 12  # 5 expected


def test_every_row_right_is_no_proof(tmp_path):
    Predictions(np.tile([np.log(999.0), 0], (1000, 1)), np.zeros(1000, int)).save(tmp_path / "p.npz")
    text = " ".join(output("evaluate", tmp_path / "p.npz").split())
    assert "Neither over- nor underconfident" in text
    assert "rule of three" in text
    assert "-0.0000" not in text.replace("-0.0 to", "")


def test_a_single_row_with_all(tmp_path):
    random_predictions(1, 3).save(tmp_path / "p.npz")
    assert (
        json.loads(output("evaluate", tmp_path / "p.npz", "--all", "--json"))["metrics"]["skce"]["estimator"]
        == "biased"
    )


def test_the_costly_ones_come_with_all(file):
    found = json.loads(output("evaluate", file, "--json", "--all"))
    assert found["metrics"]["auroc_ovr"]["value"] == float(metrics.auroc_ovr(Predictions.load(file)))
    assert found["metrics"]["skce"]["low"] is None
    assert "skce" in output("evaluate", file, "--all")


def test_the_table_for_people(file):
    text = output("evaluate", file)
    assert "400 predictions of 4 classes" in text
    for name in metrics.summary(Predictions.load(file)):
        assert name in text
    assert "Overconfident: the mean confidence is" in text
    assert "more than noise" in text
    assert "temperature above 1" in text
    assert "(0.9333, 1.0000]" in text


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize(
    ("gap", "says"),
    [(0.0, "Neither over- nor underconfident"), (0.2, "Overconfident"), (-0.2, "Underconfident")],
)
def test_the_verdict_names_the_direction(tmp_path, gap, says):
    random = np.random.default_rng(0)
    c = 0.5 + 0.25 * random.random(2000)
    binary_predictions(c, random.random(2000) < c - gap).save(tmp_path / "p.csv")
    text = " ".join(output("evaluate", tmp_path / "p.csv").split())
    assert says in text
    assert ("cannot be distinguished from noise" in text) == (gap == 0)


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf", ".html"])
def test_figures(file, tmp_path, suffix):
    out = tmp_path / f"fig{suffix}"
    assert str(out) in output("evaluate", file, "--figure", out).replace("\n", "")
    data = out.read_bytes()
    start = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF", ".html": b"<!doctype html>"}[suffix]
    assert data.startswith(start)
    if suffix == ".html":
        assert b"<script src" not in data
        assert b"<link" not in data
        assert f"ECE {metrics.ece(Predictions.load(file)):.4f}".encode() in data


@pytest.mark.usefixtures("few_resamples")
def test_a_hostile_file_name_stays_text(tmp_path):
    name = "<img src=x onerror=alert(1)>\x1b[31m.npz"
    random_predictions(30, 3).save(tmp_path / name)
    out = tmp_path / "page.html"
    text = output("evaluate", tmp_path / name, "--figure", out)
    assert "\x1b[31m" not in text
    assert "<img src=x" not in out.read_text()


@pytest.mark.usefixtures("few_resamples")
def test_splits_and_probs(tmp_path):
    a, b = random_predictions(50, 3, 1), random_predictions(60, 3, 2)
    path = tmp_path / "two.npz"
    np.savez(path, val_logits=a.logits, val_labels=a.labels, test_logits=b.logits, test_labels=b.labels)
    assert json.loads(output("evaluate", path, "--json", "--split", "test"))["n"] == 60
    csv = tmp_path / "p.csv"
    csv.write_text("label,cat,dog\n0,0.75,0.25\n1,0.4,0.6\n")
    assert json.loads(output("evaluate", csv, "--json", "--probs"))["metrics"]["accuracy"]["value"] == 1


BAD_CALLS = {
    "absent": (["absent.npz"], "no file"),
    "foreign": (["foreign.npz"], "not an intact .npz"),
    "softmaxed": (["soft.csv"], "--probs"),
    "figure format": (["good.npz", "--figure", "x.bmp"], ".svg"),
    "figure folder": (["good.npz", "--figure", "no/x.svg"], "no folder"),
    "split": (["good.npz", "--split", "test"], "test_logits"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_bad_call_is_one_sentence_and_exit_code_2(tmp_path, case):
    random_predictions(20, 3).save(tmp_path / "good.npz")
    (tmp_path / "foreign.npz").write_bytes(b"hello")
    (tmp_path / "soft.csv").write_text("label,cat,dog\n0,0.75,0.25\n")
    arguments, says = BAD_CALLS[case]
    done = surefoot("evaluate", *arguments, cwd=tmp_path)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("surefoot: ")


@pytest.mark.parametrize(
    "arguments", [["--bins", "0"], ["--bins", "x"], ["--unknown"], ["--seed", "-1"], ["--bins", str(10**22)], []]
)
def test_bad_options_exit_with_2(file, arguments):
    assert surefoot("evaluate", *([file] if arguments else []), *arguments).exit_code == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_exits_with_4(file, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert surefoot("evaluate", file, "--figure", closed / "x.svg").exit_code == 4


@pytest.mark.usefixtures("few_resamples")
def test_a_full_disk_exits_with_4(file, tmp_path, monkeypatch):
    assert surefoot("evaluate", file, "--figure", "/dev/full/x.svg").exit_code == 2  # no such folder

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = surefoot("evaluate", file, "--figure", tmp_path / "x.svg")
    assert done.exit_code == 4
    assert "No space left" in done.stderr
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("name", ["m$\\frac$.npz", "図.npz", os.fsdecode(b"bad\xff.npz")])
@pytest.mark.parametrize("suffix", [".png", ".svg", ".html"])
def test_any_file_name_can_be_drawn(tmp_path, name, suffix):
    random_predictions(30, 3).save(tmp_path / name)
    output("evaluate", tmp_path / name, "--figure", tmp_path / f"x{suffix}")


def test_saturated_and_right_is_not_over_confident():
    found = verdict(Predictions([[50.0, 0], [0, 50.0]] * 5, [0, 1] * 5))
    assert found.direction == "neither"


def test_version():
    assert output("--version").startswith("surefoot ")


@pytest.mark.parametrize("steps", [12, pytest.param(1500, marks=pytest.mark.slow)])
def test_demo(tmp_path, monkeypatch, steps):
    monkeypatch.chdir(tmp_path)
    text = output("demo", "--steps", steps)
    for rule in ("GD", "SGD", "AdamW", "Muon", "SAM", "CSAM", "BulkSGD"):
        assert rule in text
    assert len(list((tmp_path / "demo" / "runs").glob("*/result.json"))) == 7
    assert (tmp_path / "demo" / "trajectories.png").exists()
    assert "demo/page.html" in text
    assert (tmp_path / "demo" / "page.html").read_text().startswith("<!doctype html>")


def test_the_api_refuses_what_the_command_refuses(p, tmp_path):
    from surefoot.reports.figure import save_figure

    with pytest.raises(BadInput, match="figure is written to"):
        save_figure([("x", metrics.reliability(p))], tmp_path / "x.bmp")
