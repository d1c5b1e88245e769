"""``surefoot train``, ``status`` and ``data`` as a person runs them."""

import json

import pytest

from tests.conftest import surefoot

SPEC = """
data = { name = "digits", train = 60, test = 50 }
model = { name = "mlp", widths = [8] }
rule = { name = "sgd", lr = 0.1 }
stop = { steps = 6, batch = 20 }
track = { every = 3 }
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


def test_train_then_again_then_status(folder):
    first = surefoot("train", "spec.toml", cwd=folder)
    assert first.exit_code == 0, first.stderr
    assert "finished after 6 steps" in first.stdout
    again = surefoot("train", "spec.toml", "--json", cwd=folder)
    found = json.loads(again.stdout)
    assert found["outcome"] == "finished"
    assert found["final"]["step"] == 6
    assert "had finished" in surefoot("train", "spec.toml", cwd=folder).stdout
    told = surefoot("status", "runs", cwd=folder)
    assert "sgd" in told.stdout
    assert "6/6" in told.stdout
    runs = json.loads(surefoot("status", "runs", "--json", cwd=folder).stdout)["runs"]
    assert [run["outcome"] for run in runs] == ["finished"]


def test_divergence_exits_with_three(folder):
    done = surefoot("train", "spec.toml", "--set", "optimizer.lr=1e38", cwd=folder)
    assert done.exit_code == 3
    assert "diverged at step" in done.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("optimizer.name=sgdd", "did you mean 'sgd'"),
        ("optimizer.momentumm=0.9", "did you mean 'momentum'"),
        ("model.name=resnet21", "did you mean 'resnet"),
        ("model.name=resnet20", "images of 3 channels"),
        ("data.name=cifar10", "SUREFOOT_DATA"),
        ("data.train=100000", "train must be"),
        ("stop.stepz=3", "did you mean 'steps'"),
        ("loss.name=hinge", "loss"),
        ("track.every=0", "track.every"),
    ],
)
def test_wrong_specs_exit_with_two(folder, change, said):
    done = surefoot("train", "spec.toml", "--set", change, cwd=folder)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_status_of_hostile_folders(folder):
    assert surefoot("status", ".", cwd=folder).exit_code == 2
    place = folder / "runs" / "0123"
    place.mkdir(parents=True)
    (place / "spec.json").write_text('{"rule": [1], "seed": "\\u001b[31m", "stop": 5}')
    (place / "result.json").write_text('{"outcome": {}, "final": 3, "step": "x"}')
    (place / "journal.jsonl").write_bytes(b"\xff\xfe garbage")
    done = surefoot("status", "runs", cwd=folder)
    assert done.exit_code == 0, done.stderr
    assert "\x1b[31m" not in done.stdout


def test_data(folder):
    assert "cifar10" in surefoot("data", "list", cwd=folder).stdout
    found = json.loads(surefoot("data", "check", "digits", "--json", cwd=folder).stdout)
    assert (found["train"], found["test"], found["classes"]) == (1438, 359, 10)
    for arguments, said in (
        (("data", "check", "cifar10"), "SUREFOOT_DATA"),
        (("data", "fetch", "svhn"), "SUREFOOT_DATA"),
    ):
        done = surefoot(*arguments, cwd=folder)
        assert done.exit_code == 2
        assert said in done.stderr
    done = surefoot("data", "fetch", "svhn", "--data", "here", cwd=folder)
    assert "cannot be fetched" in done.stderr


def test_status_draws_the_curves(folder):
    surefoot("train", "spec.toml", "--set", "track.hessian=true", cwd=folder)
    told = surefoot("status", "runs", "--figure", "curves.png", cwd=folder)
    assert told.exit_code == 0, told.stderr
    assert (folder / "curves.png").stat().st_size > 5000
    wrong = surefoot("status", "runs", "--figure", "curves.gif", cwd=folder)
    assert wrong.exit_code == 2
    assert ".png, .svg or .pdf" in wrong.stderr
