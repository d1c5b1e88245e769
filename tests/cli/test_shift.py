"""`surefoot shift` on runs made on the spot."""

import json
import shutil

import numpy as np
import pytest

from surefoot.training.run import run
from tests import conftest
from tests.training.test_runs import spec


def surefoot(*arguments):
    return conftest.surefoot("shift", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    chosen = spec({"name": "adamw", "lr": 0.02}, steps=60, track={"every": 30, "curvature": False},
                  data={"name": "digits", "train": 100, "val": 60, "test": 80, "order": "first"},
                  ensemble={"name": "deep", "members": 2})  # fmt: skip
    return run(chosen, tmp_path_factory.mktemp("runs")).folder


def members(folder):
    return sorted(each for each in folder.parent.iterdir() if each != folder)


def test_table_and_figure(folder, tmp_path):
    done = surefoot(folder, "--corruptions", "fog,impulse_noise", "--severities", "1,5", "--resamples", "20",
                    "--ood", "digits", "--figure", tmp_path / "shift.png")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    for text in ("cifar-c-like", "impulse_noise", "ECE 5", "after temperature, fitted on clean",
                 "clean against corrupted", "digits by max_probability: AUROC", "digits by margin"):  # fmt: skip
        assert text in done.stdout, text
    assert "energy" not in done.stdout  # the mean of an ensemble has none
    assert (tmp_path / "shift.png").stat().st_size > 3000


def test_the_figure_of_clean_data_is_of_the_calibrators(folder, tmp_path):
    clean = ("--corruptions", "none", "--resamples", "0", "--calibrate", "temperature,beta")
    done = surefoot(*members(folder), *clean, "--figure", tmp_path / "clean.svg")
    assert done.exit_code == 0, done.stderr
    text = (tmp_path / "clean.svg").read_text()
    assert all(f"<!-- {each} -->" in text for each in ("untouched", "temperature", "beta", "adamw, η = 0.02"))
    assert "mean over 2 seeds" in text
    assert "severity" not in text


def test_members_together_are_the_ensemble(folder):
    """The mean of the members by ``--ensemble`` is the run that is made of them."""
    common = (
        "--corruptions",
        "fog",
        "--severities",
        "3",
        "--resamples",
        "0",
        "--json",
        "--calibrate",
        "temperature,beta",
    )
    asked = [surefoot(*members(folder), "--ensemble", *common), surefoot(folder, *common)]
    assert [done.exit_code for done in asked] == [0, 0]
    both, one = (json.loads(done.stdout)["rows"] for done in asked)
    theirs = [row for row in both if row["subject"] == "ensemble"]
    assert len(theirs) == len(one) == 6
    for a, b in zip(theirs, one, strict=True):
        assert (a["kind"], a["method"]) == (b["kind"], b["method"])
        assert np.allclose([a[k] for k in ("accuracy", "ece", "nll")], [b[k] for k in ("accuracy", "ece", "nll")], 1e-4)


FEW = ("--corruptions", "fog", "--severities", "3", "--resamples", "0", "--json")


def subjects(done):
    assert done.exit_code == 0, done.stderr
    return list(dict.fromkeys(row["subject"] for row in json.loads(done.stdout)["rows"]))


def test_runs_whose_folders_have_one_name(folder, tmp_path):
    """Neither takes the other's place, nor that of the ensemble."""
    places = [tmp_path / name / "ensemble" for name in "ab"]
    for place, member in zip(places, members(folder), strict=True):
        shutil.copytree(member, place)
    assert subjects(surefoot(*places, "--ensemble", *FEW)) == [*map(str, places), "ensemble"]
    assert subjects(surefoot(places[0], members(folder)[0], "--ensemble", *FEW))[2] == "ensemble"
    assert surefoot(places[0], places[0], *FEW).exit_code == 2


def test_an_ensemble_of_runs_with_other_validation_examples(folder, tmp_path):
    """They cannot be averaged, and some have trained a member: there is no calibrator, and everything else."""
    other = spec({"name": "adamw", "lr": 0.02}, steps=5, track={"every": 5, "curvature": False},
                 data={"name": "digits", "train": 120, "val": 60, "test": 80, "order": "first"})  # fmt: skip
    done = surefoot(members(folder)[0], run(other, tmp_path).folder, "--ensemble", *FEW)
    assert subjects(done)[-1] == "ensemble"
    assert {row["method"] for row in json.loads(done.stdout)["rows"] if row["subject"] == "ensemble"} == {"none"}


def test_runs_with_another_white(tmp_path):
    """A subset may lack the brightest number of the data; each run must still see the same pictures."""
    random = np.random.default_rng(0)
    x, y = random.random((200, 8, 8, 1)), random.integers(0, 3, 200)
    x[150] *= 2
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:60], y_test=y[:60])
    runs = [
        run(spec({"name": "adamw", "lr": 0.02}, steps=30, track={"every": 30, "curvature": False},
                 data={"name": "arrays:own", "train": train, "test": 60, "order": "first"}), tmp_path, tmp_path)
        for train in (100, 180)
    ]  # fmt: skip
    done = surefoot(*(each.folder for each in runs), "--corruptions", "none", "--resamples", "0", "--json",
                    "--data", tmp_path)  # fmt: skip
    found = {row["subject"]: row["nll"] for row in json.loads(done.stdout)["rows"]}
    for each in runs:
        assert found[each.folder.name] == pytest.approx(each.final["test.nll"], rel=0.05)


def test_foreign_data_that_is_not(folder):
    """Digits are no strangers to a model of digits."""
    done = surefoot(members(folder)[0], "--ood", "digits", *FEW)
    assert all(0.4 < row["auroc"] < 0.6 for row in json.loads(done.stdout)["ood"])


def test_severities_are_a_set(folder):
    done = surefoot(folder, *FEW, "--severities", "5,1,5")
    assert [row["severity"] for row in json.loads(done.stdout)["rows"] if row["method"] == "none"] == [0, 1, 5]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "no intact checkpoint"),
        (("RUN", "--corruptions", "forst"), "did you mean 'frost'"),
        (("RUN", "--severities", "0,1"), "severity must be an integer from 1 to 5; got 0"),
        (("RUN", "--severities", "two"), "--severities"),
        (("RUN", "--severities", "1,²"), "--severities"),
        (("RUN", "--corruptions", "saturate"), "images in colour"),
        (("RUN", "--calibrate", "temprature"), "method must be one of"),
        (("RUN", "--ensemble"), "two runs at least"),
        (("RUN", "--ood", "svhn"), "--data DIR"),
        (("RUN", "--official"), "official corruptions of cifar10"),
        (("RUN", "--figure", "nowhere/a.png"), "there is no folder"),
    ],
)
def test_bad_input(folder, arguments, said):
    done = surefoot(*(str(folder) if each == "RUN" else each for each in arguments))
    assert done.exit_code == 2
    assert said in done.stderr
