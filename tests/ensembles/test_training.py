"""Ensembles in the loop: every kind under every sort of rule, resumed to the bit, deep ones out of ordinary runs."""

import json

import numpy as np
import pytest

from surefoot import Predictions
from surefoot.ensembles import mean_predictions
from surefoot.ensembles.registry import ENSEMBLES
from surefoot.errors import BadInput
from surefoot.studies.plan import cost_of
from surefoot.training.assemble import check_parts
from surefoot.training.loaded import open_run
from surefoot.training.run import run
from surefoot.training.spec import spec_of

IN_ONE_RUN = [name for name, entry in ENSEMBLES.items() if not entry.separate]
RULES = {
    "sgd": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
    "csam": {"name": "csam", "gamma": 1.0, "base": {"name": "sgd", "lr": 0.05, "momentum": 0.9}},
}


def spec(**more):
    table = {
        "data": {"name": "digits", "train": 120, "val": 60, "test": 80, "order": "first"},
        "model": {"name": "mlp", "widths": [24]},
        "rule": RULES["sgd"],
        "stop": {"steps": 30, "batch": 40},
        "track": {"every": 10, "curvature": False},
        "checkpoint": 10,
    }
    return spec_of({**table, **more})


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", IN_ONE_RUN)
def test_every_kind_learns_and_can_be_opened(name, rule, tmp_path):
    done = run(spec(ensemble=name, rule=RULES[rule]), tmp_path)
    assert done.outcome == "finished"
    journal = [json.loads(line) for line in (done.folder / "journal.jsonl").read_text().splitlines()]
    # The weights of VI are held back by a prior against so few examples.
    assert journal[-1]["train.nll"] < (1.0 if name in ("vi", "flipout") else 0.6) * journal[0]["train.nll"]
    opened = open_run(done.folder)
    p = Predictions.of(opened.model, opened.data.test)
    assert float(np.mean(p.correct)) == pytest.approx(done.final["test.accuracy"])


@pytest.mark.parametrize("name", IN_ONE_RUN)
def test_resumed_to_the_bit(name, tmp_path):
    whole = run(spec(ensemble=name, rule=RULES["csam"]), tmp_path / "whole")

    def dies(step, *_):
        if step == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spec(ensemble=name, rule=RULES["csam"]), tmp_path / "parts", watch=dies)
    parts = run(spec(ensemble=name, rule=RULES["csam"]), tmp_path / "parts")
    for file in ("journal.jsonl", "result.json", "state-b.safetensors"):
        assert (whole.folder / file).read_bytes() == (parts.folder / file).read_bytes()


def test_a_deep_ensemble_is_made_of_runs(tmp_path):
    shift = {"corruptions": "fog", "severities": [1, 5], "ood": ["digits"], "rows": 40}
    seeds = [run(spec(seed=seed, shift=shift), tmp_path) for seed in (2, 3)]
    stamps = [(member.folder / "result.json").stat().st_mtime_ns for member in seeds]
    steps = []
    done = run(spec(seed=1, shift=shift, ensemble={"name": "deep", "members": 2}), tmp_path,
               watch=lambda step, steps_, *_: steps.append((step, steps_)))  # fmt: skip
    assert (done.outcome, done.step) == ("finished", 30)
    # Seeds 2 and 3 had been run: they are its members, and are not run again.
    assert steps == []
    assert [(member.folder / "result.json").stat().st_mtime_ns for member in seeds] == stamps
    opened = [open_run(member.folder) for member in seeds]
    test = opened[0].data.test
    p = mean_predictions([Predictions.of(member.model, test) for member in opened])
    assert done.final["test.accuracy"] == pytest.approx(np.mean(p.correct))
    assert done.final["test.nll"] == pytest.approx(-p.log_true.mean(), rel=1e-5)
    assert done.final["test.nll"] <= np.mean([member.final["test.nll"] for member in seeds])
    for key in ("shift.ece", "shift.fog.ece", "shift.temperature.ece", "ood.digits.auroc", "test.tce"):
        assert 0 <= done.final[key] <= 1
    assert "ood.digits.energy.auroc" in seeds[0].final
    assert "ood.digits.energy.auroc" not in done.final
    kept = json.loads((done.folder / "result.json").read_text())
    assert kept["final"]["shift.ece"] == done.final["shift.ece"]
    again = run(spec(seed=1, shift=shift, ensemble={"name": "deep", "members": 2}), tmp_path)
    assert not again.fresh
    assert again.final == done.final


def test_a_diverged_member_is_a_diverged_ensemble(tmp_path):
    rule = {"name": "sgd", "lr": 1e30}
    done = run(
        spec(rule=rule, model={"name": "mlp", "activation": "relu"}, ensemble={"name": "deep", "members": 2}), tmp_path
    )
    assert done.outcome == "diverged"
    assert json.loads((done.folder / "result.json").read_text())["outcome"] == "diverged"


def test_names_of_older_runs_stay():
    assert {"ensemble", "shift"}.isdisjoint(spec().resolved())
    assert spec(ensemble="batch").run_id("") != spec().run_id("")


def test_costs():
    plain = cost_of(spec(), 120)
    for ensemble, times in (("dropout", 1), ("batch", 4), ({"name": "deep", "members": 3}, 3), ("mimo", 4)):
        assert cost_of(spec(ensemble=ensemble), 120) == times * plain


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ensemble": "bacth"}, "did you mean 'batch'"),
        ({"ensemble": {"name": "batch", "size": 3}}, "no option 'size'"),
        ({"ensemble": {"name": "deep", "size": 3}}, "no option 'size'"),
        ({"ensemble": {"name": "deep", "members": 0}}, r"ensemble\.members"),
        ({"ensemble": {"name": "vi", "anneal": -1}}, r"ensemble\.anneal"),
        ({"ensemble": "deep", "data": {"name": "digits"}}, "data.order = 'first'"),
        ({"ensemble": "mimo", "loss": "balcal"}, "second head"),
        ({"shift": {"corruptions": "forst"}}, "did you mean 'frost'"),
        ({"shift": {"severities": [6]}}, "from 1 to 5; got 6"),
        ({"shift": {"ood": ["svhn"]}}, r"data=\.\.\."),
        ({"shift": {"corruption": "fog"}}, "did you mean 'corruptions'"),
        ({"ensemble": "mimo", "loss": "mixup"}, "Mixup takes one label for each input"),
    ],
)
def test_bad_specs(more, said, tmp_path):
    with pytest.raises(BadInput, match=said):
        run(spec(**more), tmp_path)


def test_what_cannot_be_read_is_said_before_training(tmp_path):
    steps = []
    for shift, said in (
        ({"corruptions": "extra"}, "saturate needs images in colour"),
        ({"corruptions": "none", "ood": ["digits", "arrays:digits"]}, "would both be digits"),
    ):
        with pytest.raises(BadInput, match=said):
            run(spec(shift=shift), tmp_path, watch=lambda step, *_: steps.append(step))
    assert steps == []


@pytest.mark.parametrize("name", IN_ONE_RUN)
def test_a_study_checks_them_without_memory(name):
    check_parts(spec(ensemble=name), (1, 8, 8), 10)
    with pytest.raises(BadInput, match="no option"):
        check_parts(spec(ensemble={"name": name, "colour": 3}), (1, 8, 8), 10)
