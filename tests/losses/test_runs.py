"""Losses in runs: every one with every kind of rule, killed and resumed to the same bytes, refused with clear words."""

import json

import pytest
import torch

from surefoot.cli.train import show
from surefoot.errors import BadInput
from surefoot.losses.registry import LOSSES
from surefoot.runs.checkpoint import load_newest
from surefoot.training.loaded import open_run
from surefoot.training.run import run
from surefoot.training.spec import read_spec
from tests.training.test_runs import Killed, files, spec

QUICK = {"curvature": False, "margins": False}
RATES = {"mse": 0.3, "mse-half": 0.05, "mse-sum": 0.02}
CSAM = {"name": "csam", "gamma": 1.0, "base": {"name": "sgd", "lr": 0.1, "momentum": 0.9}}


def named(name, **options):
    small = {"eps": 0.002} if name in ("calmo", "margin-tail") else {}  # bytes of digits end at 16
    return {"name": name, **small, **options}


# Those that remember something or draw something, and one that does neither.
REMEMBER = ["ce", "ada-focal", "crl", "mixup", "mit-l", "balcal", "ar-adals", "calmo", "margin-tail"]


@pytest.mark.parametrize("loss", REMEMBER)
def test_killed_at_any_step_it_ends_with_the_same_bytes(loss, tmp_path):
    """CSAM: two passes, weights for the examples, dropout; three steps an epoch."""
    one = spec(CSAM, loss=named(loss))
    whole = run(one, tmp_path / "whole")
    assert whole.outcome == "finished"
    expected = files(whole.folder)
    for place in (5, 8):

        def die(step, steps, value, reading, place=place):
            if step == place:
                raise Killed

        out = tmp_path / f"killed{place}"
        with pytest.raises(Killed):
            run(one, out, watch=die)
        assert files(run(one, out).folder) == expected


RULES = [
    {"name": "adamw", "lr": 0.01},
    {"name": "muon", "lr": 0.02},
    {"name": "sam", "base": {"name": "sgd", "lr": 0.1}},
    CSAM,
    {"name": "vasso", "base": {"name": "sgd", "lr": 0.1}},
    {"name": "bsam", "examples": 60, "lr": 0.1},
    {"name": "bulk", "lr": 0.1, "k": 2, "refresh": 3},
]


@pytest.mark.parametrize(
    ("loss", "rule"),
    [  # each loss with one of them, all pairs with the slow tests
        pytest.param(loss, rule, id=f"{loss}-{rule['name']}", marks=[] if i % len(RULES) == j else pytest.mark.slow)
        for i, loss in enumerate(LOSSES)
        for j, rule in enumerate(RULES)
    ],
)
def test_every_loss_with_every_kind_of_rule(loss, rule, tmp_path):
    done = run(spec(rule, steps=2, loss=named(loss), track={"every": 2, **QUICK}), tmp_path)
    assert done.outcome == "finished"


@pytest.mark.parametrize("loss", LOSSES)
def test_it_learns(loss, tmp_path):
    """Some steps on digits: far above chance."""
    one = spec(
        {"name": "sgd", "lr": RATES.get(loss, 0.1), "momentum": 0.9},
        loss=named(loss),
        data={"name": "digits", "train": 300, "val": 100, "test": 300},
        model={"name": "mlp", "widths": [32]},
        stop={"steps": 60, "batch": 50},
        track={"every": 60, **QUICK},
        checkpoint=60,
    )
    assert run(one, tmp_path).final["test.accuracy"] > 0.6


def test_what_a_loss_remembers_is_in_the_checkpoint(tmp_path):
    done = run(spec(CSAM, loss="ada-focal"), tmp_path)
    tensors, _ = load_newest(done.folder)
    assert tensors["loss/loss.gammas"].shape == (15,)
    assert not torch.equal(tensors["loss/loss.gammas"], torch.ones(15, dtype=torch.float64))
    plain = run(spec(CSAM), tmp_path)
    assert not any(name.startswith("loss/") for name in load_newest(plain.folder)[0])


@pytest.mark.parametrize("loss", ["crl", "balcal"])
def test_such_a_run_opens_again(loss, tmp_path):
    done = run(spec("sgd", loss=loss), tmp_path)
    opened = open_run(done.folder)
    assert opened.model(opened.data.test.take()[0]).shape == (50, 10)


def test_the_curvature_read_is_that_of_a_loss_that_has_one(tmp_path):
    """Squared error has its own; for focal it is the cross-entropy's, at other weights."""
    sharp = {}
    for loss in ("ce", "focal", "mse", "mse-half"):
        done = run(spec("sgd", steps=1, loss=loss, track={"every": 1}), tmp_path)
        first = json.loads((done.folder / "journal.jsonl").read_text().splitlines()[0])
        sharp[loss] = first["sharpness"]
    assert sharp["ce"] == sharp["focal"]
    assert sharp["mse-half"] == pytest.approx(5 * sharp["mse"], rel=1e-3)


def test_the_price_counts_what_the_loss_costs(tmp_path, capsys):
    done = run(spec(CSAM, steps=2, loss=named("calmo"), track={"every": 2}), tmp_path)
    assert done.final["gradients"] == 2 * 2 * 7
    show(done)
    assert "28 gradients of the cross-entropy, 14 a step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("loss", "data", "match"),
    [
        ("clamo", {}, "loss must be one of ce, mse, .*; did you mean 'calmo'"),
        ({"name": "focal", "gama": 1.0}, {}, "loss focal has no option 'gama'.*did you mean 'gamma'"),
        ({"name": "focal", "reduction": "sum"}, {}, "loss focal has no option 'reduction'"),
        ({"name": "ce", "gamma": 1.0}, {}, "loss ce has no option 'gamma'; it has none"),
        ({"name": "focal", "gamma": -1.0}, {}, "loss focal: gamma must be a finite number of at least 0"),
        ({"name": "crl", "examples": 3}, {}, "loss crl has no option 'examples'"),
        ({"name": "calmo", "eps": "eight"}, {}, "loss calmo: eps must be a number of at least 0"),
        ("ada-focal", {"val": 0}, r"loss ada-focal looks at validation examples.*set data\.val"),
        ("ar-adals", {"val": 0}, r"loss ar-adals looks at validation examples.*set data\.val"),
    ],
)
def test_wrong_losses_are_named(loss, data, match, tmp_path):
    with pytest.raises(BadInput, match=match):
        run(spec("sgd", loss=loss, data={"name": "digits", "train": 60, "val": 40, **data}), tmp_path)


def test_a_table_can_show_the_best_reading(tmp_path):
    from surefoot.studies.measures import heading, measure

    done = run(spec("sgd", track={"every": 2}, best={"metric": "val.nll"}), tmp_path)
    result = json.loads((done.folder / "result.json").read_text())
    lines = [json.loads(line) for line in (done.folder / "journal.jsonl").read_text().splitlines()]
    best = min(lines, key=lambda line: line["val.nll"])
    assert measure(result, done.folder, ["best test.ece"]) == {"best test.ece": best["test.ece"]}
    assert heading("best test.ece") == "test ECE at the best"


def test_set_on_the_command_line(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text('rule = "gd"\nloss = "ce"\n[stop]\nsteps = 3\n')
    assert read_spec(path, ["loss=calmo"]).loss.name == "calmo"
    both = read_spec(path, ["loss=focal", "loss.gamma=2.0"]).loss
    assert (both.name, both.options) == ("focal", {"gamma": 2.0})


def test_eps_is_in_units_of_the_raw_data(tmp_path):
    """A pixel's radius is divided by its deviation, as its value was."""
    from surefoot.data.prepare import prepare
    from surefoot.data.sets import load_set
    from surefoot.training.assemble import assemble

    one = spec("sgd", loss={"name": "calmo", "eps": 0.01})
    data = prepare(load_set("digits", None), train=60, val=40, test=50)
    eps = assemble(one, data).objective.eps
    torch.testing.assert_close(eps, data.radius(0.01))
    assert eps.shape == (1, 8, 8)
