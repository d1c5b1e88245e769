"""What a stranger met: each has its case."""

import json

import numpy as np
import pytest

import surefoot as sf
from surefoot.errors import BadInput, StorageFault
from surefoot.training.loaded import open_run
from surefoot.training.run import run
from surefoot.training.spec import read_spec, spec_of
from tests.conftest import surefoot_process
from tests.training.test_runs import files, spec


@pytest.mark.parametrize("seeds", ["1", pytest.param("23456", marks=pytest.mark.slow)])
def test_bounds_do_not_depend_on_the_order_of_hashes(tmp_path, seeds):
    """Strings hash differently in each process; a sum over a set of layer names once showed it."""
    (tmp_path / "spec.toml").write_text(
        'data = { name = "digits", train = 40, test = 30 }\nmodel = { name = "mlp", widths = [9, 8, 7] }\n'
        'rule = { name = "sgd", lr = 0.1 }\nstop = { steps = 4, batch = 20 }\ntrack = { every = 2, bounds = true }\n'
    )
    here = files(run(read_spec(tmp_path / "spec.toml"), tmp_path / "here").folder)
    for seed in seeds:
        done = surefoot_process("train", "spec.toml", "--out", seed, cwd=tmp_path, env={"PYTHONHASHSEED": seed})
        assert done.exit_code == 0, done.stderr
        (folder,) = (tmp_path / seed).iterdir()
        assert files(folder) == here


def arrays(tmp_path, **changes):
    x, y = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32), np.arange(30) % 3
    np.savez(tmp_path / "mine.npz", **({"x_train": x, "y_train": y, "x_test": x, "y_test": y} | changes))
    table = {"data": "arrays:mine", "rule": {"name": "sgd", "lr": 0.1}, "stop": {"steps": 1}}
    return run(spec_of(table), tmp_path / "runs", tmp_path)


def test_labels_and_inputs_of_odd_kinds(tmp_path):
    y = np.arange(30) % 3
    assert arrays(tmp_path, y_train=y.astype(float)).outcome == "finished"
    for wrong, match in (
        ({"y_train": y + 0.5}, r"y_train must hold class numbers.*0\.5"),
        ({"y_test": y.astype(str)}, "y_test must hold class numbers"),
        ({"x_train": np.zeros(30)}, r"x_train must have shape \(n, features\)"),
    ):
        with pytest.raises(BadInput, match=match):
            arrays(tmp_path, **wrong)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e39])
def test_numbers_that_are_not_finite(value):
    with pytest.raises(BadInput, match=r"optimizer.base.lr must be a finite number"):
        spec({"name": "sam", "base": {"name": "sgd", "lr": value}})


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ({"rule": {"name": "sgd", "lr": -1}}, "optimizer sgd cannot take lr=-1"),
        ({"rule": {"name": "sgd", "lr": "abc"}}, "optimizer sgd: lr must be a number, such as 0.001; got 'abc'"),
        ({"model": {"name": "lenet"}}, r"model lenet cannot take examples of shape \(1, 8, 8\)"),
        ({"stop": {"steps": 1, "batch": 80_000}}, "stop.batch is 80,000, and there are 60"),
    ],
)
def test_what_cannot_be_built_is_named(table, match, tmp_path):
    base = {"data": {"name": "digits", "train": 60}, "rule": {"name": "gd", "lr": 0.1}, "stop": {"steps": 1}}
    with pytest.raises(BadInput, match=match):
        run(spec_of(base | table), tmp_path)


def test_cadences(tmp_path):
    assert spec(track={"hessian_min": 20}).track.hessian_min.every == 20
    assert spec(track={"hessian_min": True}).track.hessian_min is True
    for wrong in ({"budget": 0.1, "every": 2}, {"budget": 0.1, "hessian": 5}):
        with pytest.raises(BadInput, match="budget or every, not both"):
            spec(track=wrong)
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    for options, match in (({"budget": 0.5, "every": 5}, "not both"), ({"batch_size": 0}, "batch_size")):
        with pytest.raises(BadInput, match=match):
            sf.Tracker(__import__("torch").nn.Linear(2, 2), (x, y), (x, y), **options)


def test_a_harmed_last_checkpoint_is_not_passed_over_in_silence(tmp_path):
    done = run(spec(steps=12), tmp_path)
    assert open_run(done.folder).step == 12
    last = done.folder / "state-a.safetensors"
    last.write_bytes(last.read_bytes()[:1000])
    with pytest.raises(BadInput, match="ended at step 12, and what is left is of step 5"):
        open_run(done.folder)
    assert open_run(done.folder / "state-b.safetensors").step == 5


def test_harmed_facts_are_written_anew(tmp_path):
    done = run(spec(steps=4), tmp_path)
    before = files(done.folder)
    for harm in (b"", b"{", before["facts.json"][:40]):
        (done.folder / "result.json").unlink()
        (done.folder / "facts.json").write_bytes(harm)
        assert files(run(spec(steps=4), tmp_path).folder) == before


def test_a_harmed_journal_says_where_and_what_to_do(tmp_path):
    done = run(spec(steps=12, track={"every": 2}), tmp_path)
    (done.folder / "result.json").unlink()
    path = done.folder / "journal.jsonl"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(StorageFault, match=r"corrupted after its record 3.*move its folder away"):
        run(spec(steps=12, track={"every": 2}), tmp_path)


def test_results_are_json(tmp_path):
    done = run(spec(steps=2), tmp_path)
    json.loads((done.folder / "result.json").read_text(), parse_constant=lambda word: pytest.fail(word))
