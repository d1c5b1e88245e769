"""Runs: finished, resumed to the bit, refused, diverged; for every step rule."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from surefoot.errors import BadInput
from surefoot.training.run import run
from surefoot.training.spec import read_spec, spec_of

RULES = {
    "gd": {"name": "gd", "lr": 0.1},
    "sgd": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True},
    "adamw": {"name": "adamw", "lr": 0.01},
    "muon": {"name": "muon", "lr": 0.02},
    "sam": {"name": "sam", "rho": 0.1, "base": {"name": "sgd", "lr": 0.1}},
    "asam": {"name": "asam", "base": {"name": "adamw", "lr": 0.01}},
    "vasso": {"name": "vasso", "base": {"name": "muon"}},
    "csam": {"name": "csam", "gamma": 2.0, "base": {"name": "sgd", "lr": 0.1, "momentum": 0.9}},
    "bsam": {"name": "bsam", "examples": 100, "lr": 0.1},
    "bulk": {"name": "bulk", "lr": 0.1, "k": 2, "refresh": 3},
    "dom": {"name": "dom", "lr": 0.1, "k": 2},
}


def spec(rule="sgd", steps=12, **changes):
    """A short run; ``rule`` is a name of RULES or a table."""
    table = {
        "data": {"name": "digits", "train": 60, "val": 40, "test": 50, "noisy": 0.1},
        "model": {"name": "mlp", "widths": [12], "dropout": 0.2},
        "rule": RULES[rule] if isinstance(rule, str) else rule,
        "stop": {"steps": steps, "batch": 20},
        "track": {"every": 4},
        "checkpoint": 5,
    }
    return spec_of(table | changes)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


class Killed(BaseException):
    """Stands for a death that runs no clean-up of ours."""


@pytest.mark.parametrize("rule", RULES)
def test_killed_at_any_step_it_ends_with_the_same_bytes(rule, tmp_path):
    whole = run(spec(rule), tmp_path / "whole")
    assert whole.outcome == "finished"
    expected = files(whole.folder)
    for place in (1, 5, 7, 12):

        def die(step, steps, loss, reading, place=place):
            if step == place:
                raise Killed

        out = tmp_path / f"killed{place}"
        with pytest.raises(Killed):
            run(spec(rule), out, watch=die)
        resumed = run(spec(rule), out)
        assert resumed.folder.name == whole.folder.name
        found = files(resumed.folder)
        assert found["journal.jsonl"] == expected["journal.jsonl"]
        assert found["result.json"] == expected["result.json"]
        assert set(found) == set(expected)
        newest = "state-a.safetensors" if 12 // 5 % 2 == 0 else "state-b.safetensors"
        assert found[newest] == expected[newest]


def test_a_finished_run_is_not_run_again(tmp_path):
    first = run(spec(), tmp_path)
    again = run(spec(), tmp_path, watch=lambda *_: pytest.fail("ran again"))
    assert (again.outcome, again.step, again.fresh) == ("finished", first.step, False)
    assert again.final == pytest.approx(first.final, nan_ok=True)


def test_the_callers_threads_come_back(tmp_path):
    torch.set_num_threads(2)
    try:
        run(spec(steps=1, threads=1), tmp_path, watch=lambda *_: torch.get_num_threads() == 1 or pytest.fail("threads"))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_the_name_depends_on_what_matters(tmp_path):
    names = {run(each, tmp_path).folder.name for each in (spec(steps=1), spec(steps=2), spec(steps=1, seed=1))}
    assert len(names) == 3


def test_tracking_does_not_change_the_run(tmp_path):
    """The weights at the end, with readings at every step and with none."""
    weights = []
    for every in (1, 1000):
        found = run(spec("sgd", track={"every": every, "hessian": True, "batch_sharpness": True}), tmp_path)
        from surefoot.training.checkpoint import load_newest

        tensors, _ = load_newest(found.folder)
        weights.append({name: t for name, t in tensors.items() if not name.startswith("tracker")})
    assert set(weights[0]) == set(weights[1])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_readings_hold_what_they_promise(tmp_path):
    found = run(
        spec("csam", track={"every": 6, "hessian": True, "batch_sharpness": True, "histograms": True}), tmp_path
    )
    lines = [json.loads(line) for line in (found.folder / "journal.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 6, 12]
    for name in ("train.ece", "test.kce", "test.tce", "temperature", "train.entropy", "train.log_q", "test.margin_q05",
                 "sharpness", "hessian", "gradient_norm", "batch_sharpness", "threshold", "rule.epsilon", "rule.lambda",
                 "rule.lambda0", "train.reliability", "loss"):  # fmt: skip
        assert name in lines[-1], name
    assert lines[-1]["threshold"] == pytest.approx(20.0)
    assert lines[-1]["gradients"] == 2 * 12  # two passes a step
    assert lines[-1]["price"] > 0


def test_divergence_is_an_outcome(tmp_path):
    found = run(spec({"name": "sgd", "lr": 1e38}, steps=60), tmp_path)
    assert found.outcome == "diverged"
    assert found.step < 60
    assert "train.ece" in found.final
    assert run(spec({"name": "sgd", "lr": 1e38}, steps=60), tmp_path).fresh is False


def test_two_processes_do_not_share_a_run(tmp_path):
    def inside(*_):
        with pytest.raises(BadInput, match="another process"):
            run(spec(), tmp_path)

    run(spec(), tmp_path, watch=inside)


def test_specs_are_refused_with_the_nearest_name(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text('rule = "gd"\n[stop]\nsteps = 3\n[trak]\nevery = 1\n')
    with pytest.raises(BadInput, match="did you mean 'track'"):
        read_spec(path)
    path.write_text('rule = "gd"\n[stop]\nsteps = 3\n[data]\nnosy = 0.1\n')
    with pytest.raises(BadInput, match="did you mean 'noisy'"):
        read_spec(path)
    path.write_text('rule = "gd"\n[stop]\nsteps = 3\nepochs = 2\n')
    with pytest.raises(BadInput, match="either steps or epochs"):
        read_spec(path)
    path.write_text('rule = "gd"\n[stop]\nsteps = 0\n')
    with pytest.raises(BadInput, match=r"stop\.steps"):
        read_spec(path)
    with pytest.raises(BadInput, match="no spec at"):
        read_spec(tmp_path / "none.toml")
    path.write_text("[stop\n")
    with pytest.raises(BadInput, match="no TOML"):
        read_spec(path)
    path.write_text('rule = "gd"\n[stop]\nsteps = 3\n')
    changed = read_spec(path, ["rule.lr=0.25", "stop.batch=full", "data.train=20"])
    assert (changed.rule.options["lr"], changed.stop.batch, changed.data.train) == (0.25, "full", 20)
    with pytest.raises(BadInput, match="key=value"):
        read_spec(path, ["rule.lr"])
    for rule, match in (({"name": "sgdd"}, "did you mean 'sgd'"), ({"name": "sam", "roh": 1}, "did you mean 'rho'"),
                        ({"name": "gd"}, "needs lr")):  # fmt: skip
        with pytest.raises(BadInput, match=match):
            run(spec_of({"rule": rule, "stop": {"steps": 1}}), tmp_path)


SPEC = """
[data]
name = "digits"
train = 60
test = 50
[model]
name = "mlp"
widths = [12]
[rule]
name = "sam"
base = { name = "sgd", lr = 0.1, momentum = 0.9 }
[stop]
steps = 400
batch = 20
[track]
every = 25
"""


@pytest.mark.slow
def test_kill_minus_nine_at_random_moments(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC + "\n")
    command = [sys.executable, "-m", "surefoot", "train", "spec.toml", "--set", "checkpoint=20", "--out"]
    subprocess.run([*command, "whole"], cwd=tmp_path, check=True, capture_output=True)
    (whole,) = (tmp_path / "whole").iterdir()
    delays = [0.2 * i for i in range(5, 25)]
    while True:
        process = subprocess.Popen(
            [*command, "killed"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(delays.pop() if delays else 60)
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0
    (killed,) = (tmp_path / "killed").iterdir()
    for name in ("journal.jsonl", "result.json", "spec.json"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


def test_sigterm_commits_and_the_same_command_resumes(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    command = [
        sys.executable,
        "-m",
        "surefoot",
        "train",
        "spec.toml",
        "--set",
        "stop.steps=3000",
        "--out",
        "runs",
        "--json",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while time.time() < deadline and not any((tmp_path / "runs").glob("*/state-*.safetensors")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(said)["outcome"] == "interrupted"
    done = subprocess.run([*command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["outcome"] == "finished"
