"""`surefoot certify` on a run made on the spot."""

import json

import pytest

from surefoot.training.run import run
from tests.conftest import surefoot
from tests.training.test_runs import spec


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    chosen = spec({"name": "adamw", "lr": 0.02}, steps=60, track={"every": 30}, best={"metric": "val.nll"},
                  data={"name": "digits", "train": 40, "val": 40, "test": 50})  # fmt: skip
    return run(chosen, tmp_path_factory.mktemp("runs")).folder


def test_table_and_tail(folder, tmp_path):
    done = surefoot("certify", folder, "--eps", "0.1", "--rho", "0.05", "--figure", tmp_path / "tail.png")
    assert done.exit_code == 0, done.stderr
    for text in ("interpolating regime", "Theorem 4.1 (i)", "Theorem 4.2 (ii)", "tighter:", "λ_max ≤ 2C_J² ECE",
                 "What carries the tail", "Lemma 2", "κ_min from"):  # fmt: skip
        assert text in done.stdout, text
    assert "Lemma B.1" not in done.stdout
    assert "violated" not in done.stdout
    assert (tmp_path / "tail.png").stat().st_size > 3000


def test_json_and_other_weights(folder):
    done = surefoot("certify", folder, "--json", "--split", "test", "--best")
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["split"] == "test"
    assert {each["verdict"] for each in said["certificates"]} <= {"holds", "not applicable"}
    assert any(each["name"].endswith("population") for each in said["certificates"])
    newest = surefoot("certify", folder / "best.safetensors", "--json", "--split", "test")
    assert json.loads(newest.stdout) == said


def test_an_attack_is_never_called_certified(folder):
    done = surefoot("certify", folder, "--eps", "0.1", "--method", "pgd", "--all")
    assert done.exit_code == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "ε" in line and "δ" in line]
    assert lines
    assert all("holds" not in line and "certified" not in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("certify", "nowhere"), "no intact checkpoint"),
        (("certify", "RUN", "--split", "val"), "train or test"),
        (("certify", "RUN", "--eps", "-1"), "eps"),
        (("certify", "RUN", "--eps", "0.1", "--norm", "7"), "norm"),
        (("certify", "RUN", "--rho", "0"), "rho"),
    ],
)
def test_bad_input(folder, arguments, said):
    done = surefoot(*(str(folder) if each == "RUN" else each for each in arguments))
    assert done.exit_code == 2, done.stderr
    assert said in done.stderr
