"""Runs: finished, resumed to the bit, refused, diverged; for every step rule."""

import json
import math

import numpy as np
import pytest
import torch

from surefoot.errors import BadInput
from surefoot.runs.checkpoint import load_best, load_newest
from surefoot.runs.records import read_journal
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
    """What must be the same to the byte."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in ("lock", "timings.jsonl")}


class Killed(BaseException):
    """Stands for a death that runs no clean-up of ours."""


@pytest.mark.parametrize("places", [(7,), pytest.param((1, 5, 12), marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", RULES)
def test_killed_at_any_step_it_ends_with_the_same_bytes(rule, places, tmp_path):
    whole = run(spec(rule), tmp_path / "whole")
    assert whole.outcome == "finished"
    expected = files(whole.folder)
    for place in places:

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
        tensors, _ = load_newest(found.folder)
        weights.append({name: t for name, t in tensors.items() if not name.startswith("tracker")})
    assert set(weights[0]) == set(weights[1])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_readings_hold_what_they_promise(tmp_path):
    found = run(
        spec(
            "csam",
            track={"every": 6}
            | dict.fromkeys(("hessian", "hessian_min", "batch_sharpness", "histograms", "test_curvature"), True),
        ),
        tmp_path,
    )
    lines = [json.loads(line) for line in (found.folder / "journal.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 6, 12]
    for name in ("train.ece", "test.kce", "test.tce", "temperature", "train.entropy", "train.log_q", "test.margin_q05",
                 "sharpness", "test.sharpness", "hessian", "gradient_norm", "hessian_min", "val.nll",
                 "batch_sharpness", "threshold", "rule.epsilon", "rule.lambda",
                 "rule.lambda0", "loss"):  # fmt: skip
        assert name in lines[-1], name
    arrays, _ = read_journal(found.folder / "arrays.jsonl")
    assert [each["step"] for each in arrays] == [0, 6, 12]
    assert sum(arrays[-1]["train.reliability"]["count"]) == 60
    assert sum(arrays[-1]["test.margin_histogram"]["counts"]) == 50
    assert lines[-1]["hessian_min"] < lines[-1]["hessian"]
    result = json.loads((found.folder / "result.json").read_text())
    assert set(result["correlations"]) == {"train.ece", "train.kce", "test.ece", "test.kce"}
    timings, _ = read_journal(found.folder / "timings.jsonl")
    assert [each["step"] for each in timings] == [0, 6, 12]
    assert lines[-1]["threshold"] == pytest.approx(20.0)
    assert lines[-1]["gradients"] == 2 * 12  # two passes a step
    assert lines[-1]["price"] > 0


def test_divergence_is_an_outcome(tmp_path):
    found = run(spec({"name": "sgd", "lr": 1e38}, steps=60), tmp_path)
    assert found.outcome == "diverged"
    assert found.step < 60
    assert "train.ece" in found.final
    assert run(spec({"name": "sgd", "lr": 1e38}, steps=60), tmp_path).fresh is False


BEST = {
    "data": {"name": "digits", "train": 60, "val": 40, "test": 50, "noisy": 0.4},
    "rule": {"name": "sgd", "lr": 0.5},
    "track": {"every": 2},
    "best": {"metric": "val.nll", "patience": 3},
}


def test_the_best_weights_are_kept_and_patience_ends_the_run(tmp_path):
    found = run(spec(steps=200, **BEST), tmp_path)
    assert found.outcome == "finished"
    assert found.step < 200
    readings, _ = read_journal(found.folder / "journal.jsonl")
    losses = {reading["step"]: reading["val.nll"] for reading in readings}
    best = min(losses, key=losses.__getitem__)
    assert found.step == best + 3 * 2  # three readings, two steps apart
    result = json.loads((found.folder / "result.json").read_text())
    assert result["best"] == {"metric": "val.nll", "step": best, "value": losses[best]}
    tensors, meta = load_best(found.folder)
    assert meta == {"step": best, "val.nll": losses[best]}
    longer = run(spec(steps=best, **{**BEST, "best": {"metric": "val.nll"}}), tmp_path)
    last, _ = load_newest(longer.folder)
    assert all(torch.equal(tensor, last[f"model/{name}"]) for name, tensor in tensors.items())
    accurate = run(spec(steps=20, **{**BEST, "best": {"metric": "val.accuracy"}}), tmp_path)
    readings, _ = read_journal(accurate.folder / "journal.jsonl")
    top = max(reading["val.accuracy"] for reading in readings)
    chosen = next(reading for reading in readings if reading["val.accuracy"] == top)  # a tie is no improvement
    assert load_best(accurate.folder)[1] == {"step": chosen["step"], "val.accuracy": top}


SELDOM = {"every": 2, "curvature": 150, "test_curvature": 170, "bounds": 190}


@pytest.mark.parametrize("track", [BEST["track"], SELDOM], ids=["often", "seldom"])
def test_early_stopping_killed_at_any_step_ends_with_the_same_bytes(tmp_path, track):
    best = {**BEST, "track": track}
    whole = run(spec(steps=200, **best), tmp_path / "whole")
    last = read_journal(whole.folder / "journal.jsonl")[0][-1]
    assert last["step"] == whole.step < 150
    if track is SELDOM:  # the last reading has all the same what was not due
        assert {"sharpness", "test.sharpness", "train.bound.ece.printed", "test.ece"} <= set(last)
        assert whole.final["test.sharpness"] == last["test.sharpness"]
    expected = files(whole.folder)
    for place in (1, whole.step - 7, whole.step - 1, whole.step):

        def die(step, steps, loss, reading, place=place):
            if step == place:
                raise Killed

        out = tmp_path / str(place)
        with pytest.raises(Killed):
            run(spec(steps=200, **best), out, watch=die)
        found = files(run(spec(steps=200, **best), out).folder)
        for name in ("journal.jsonl", "result.json", "best.safetensors"):
            assert found[name] == expected[name], (place, name)


def test_a_death_between_the_last_commit_and_the_result(tmp_path):
    whole = run(spec(steps=200, **BEST), tmp_path)
    expected = files(whole.folder)
    (whole.folder / "result.json").unlink()
    again = run(spec(steps=200, **BEST), tmp_path)
    assert (again.outcome, again.step) == (whole.outcome, whole.step)
    assert files(again.folder) == expected


def test_best_needs_what_it_reads():
    with pytest.raises(BadInput, match=r"spec: best.metric val.nll needs validation examples; set data.val"):
        spec(best={}, data={"name": "digits"})
    with pytest.raises(BadInput, match=r"needs readings of calibration"):
        spec(best={}, track={"calibration": False})
    with pytest.raises(BadInput, match=r"best.metric: .*val.accuracy"):
        spec(best={"metric": "test.nll"})


@pytest.mark.parametrize("place", ["weight", "gradient", "last gradient", "buffer"])
def test_what_is_not_finite_ends_the_run_at_that_step(place, tmp_path, monkeypatch):
    """NaN put in after the update of step 7 (index 6), or of the last one: the readings before it are all there."""
    healthy, _ = read_journal(run(spec(steps=8, track={"every": 1}), tmp_path / "healthy").folder / "journal.jsonl")
    steps, at = 8, 8 if place == "last gradient" else 5
    original = torch.optim.SGD.step

    def step(self, closure=None):
        found = original(self, closure)
        self.count = getattr(self, "count", 0) + 1
        if self.count == at:
            weight = self.param_groups[0]["params"][0]
            with torch.no_grad():
                if place == "weight":
                    weight[0, 0] = math.nan
                elif place == "buffer":
                    self.state[weight]["momentum_buffer"].fill_(math.inf)
                else:
                    weight.sub_(torch.full_like(weight, math.nan))
        return found

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    found = run(spec(steps=steps, track={"every": 1}), tmp_path / "harmed")
    assert found.outcome == "diverged"
    assert found.step in (at, at + 1)
    readings, _ = read_journal(found.folder / "journal.jsonl")
    finite = [reading for reading in readings if "diverged" not in reading]
    assert finite == healthy[: len(finite)]
    assert len(finite) >= at
    assert found.final == finite[-1]


def test_data_that_is_not_finite_is_refused_before_the_first_step(tmp_path):
    x = np.zeros((30, 4), np.float32)
    x[3, 2] = np.nan
    y = np.arange(30) % 3
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=np.zeros((30, 4), np.float32), y_test=y)
    with pytest.raises(BadInput, match="finite"):
        run(spec_of({"data": "arrays:mine", "rule": RULES["sgd"], "stop": {"steps": 2}}), tmp_path / "r", tmp_path)


def test_two_processes_do_not_share_a_run(tmp_path):
    def inside(*_):
        with pytest.raises(BadInput, match="another process"):
            run(spec(), tmp_path)

    run(spec(), tmp_path, watch=inside)


def test_specs_are_refused_with_the_nearest_name(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text('optimizer = "gd"\n[stop]\nsteps = 3\n[trak]\nevery = 1\n')
    with pytest.raises(BadInput, match="did you mean 'track'"):
        read_spec(path)
    path.write_text('optimizer = "gd"\n[stop]\nsteps = 3\n[data]\nnosy = 0.1\n')
    with pytest.raises(BadInput, match="did you mean 'noisy'"):
        read_spec(path)
    path.write_text('optimizer = "gd"\n[stop]\nsteps = 3\nepochs = 2\n')
    with pytest.raises(BadInput, match="either steps or epochs"):
        read_spec(path)
    path.write_text('optimizer = "gd"\n[stop]\nsteps = 0\n')
    with pytest.raises(BadInput, match=r"stop\.steps"):
        read_spec(path)
    with pytest.raises(BadInput, match="no spec at"):
        read_spec(tmp_path / "none.toml")
    path.write_text("[stop\n")
    with pytest.raises(BadInput, match="no TOML"):
        read_spec(path)
    path.write_text('optimizer = "gd"\n[stop]\nsteps = 3\n')
    changed = read_spec(path, ["optimizer.lr=0.25", "stop.batch=full", "data.train=20"])
    assert (changed.optimizer.options["lr"], changed.stop.batch, changed.data.train) == (0.25, "full", 20)
    with pytest.raises(BadInput, match="key=value"):
        read_spec(path, ["optimizer.lr"])
    fractions = read_spec(
        path,
        ["optimizer=sam", "optimizer.base.name=sgd", "optimizer.base.lr=2/30", "loss.name=calmo", "loss.eps=8/255"],
    )
    assert (fractions.optimizer.options["base"]["lr"], fractions.loss.options["eps"]) == (2 / 30, 8 / 255)
    assert read_spec(path, ["track.budget=1/10"]).track.budget == 0.1
    with pytest.raises(BadInput, match="denominator"):
        read_spec(path, ["optimizer.lr=2/0"])
    for rule, match in (({"name": "sgdd"}, "did you mean 'sgd'"), ({"name": "sam", "roh": 1}, "did you mean 'rho'"),
                        ({"name": "gd"}, "needs lr")):  # fmt: skip
        with pytest.raises(BadInput, match=match):
            run(spec_of({"rule": rule, "stop": {"steps": 1}}), tmp_path)


def test_other_versions_are_refused_unless_told(tmp_path):
    first = run(spec(steps=4), tmp_path)
    (first.folder / "result.json").unlink()
    facts = json.loads((first.folder / "facts.json").read_text())
    (first.folder / "facts.json").write_text(json.dumps(facts | {"torch": "1.0"}))
    with pytest.raises(BadInput, match=r"began with torch 1.0.*allow_version_mismatch=True"):
        run(spec(steps=4), tmp_path)
    assert run(spec(steps=4), tmp_path, allow_version_mismatch=True).outcome == "finished"
