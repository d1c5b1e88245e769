"""The tracker in a loop of the user's own: it reads at the right steps, changes nothing, and goes on to the bit."""

import copy
import math
import random

import numpy as np
import pytest
import torch
from torch import nn

import surefoot as sf
from surefoot.errors import BadInput
from surefoot.runs.records import read_journal
from surefoot.training.groups import GROUPS_BY_NAME
from surefoot.training.schedule import GROUPS, Budget, Every, Logarithmic
from surefoot.training.spec import TrackSpec


def setup(norm=True, dropout=0.3):
    torch.manual_seed(0)
    x = torch.randn(80, 6)
    y = (x[:, :3] + 0.3 * torch.randn(80, 3)).argmax(1)
    layers = [
        nn.Linear(6, 10),
        nn.Tanh(),
        *([nn.BatchNorm1d(10)] if norm else []),
        nn.Dropout(dropout),
        nn.Linear(10, 3),
    ]
    model = nn.Sequential(*layers)
    return model, (x[:60], y[:60]), (x[60:], y[60:])


def loop(model, data, steps, tracker=None, momentum=0.9, begin=0):
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    x, y = data
    for step in range(begin, begin + steps):
        rows = torch.randperm(60)[:20]
        opt.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        opt.step()
        if tracker is not None:
            tracker.step(step)


def test_the_run_is_the_same_with_and_without_it():
    groups = dict.fromkeys(("calibration", "margins", "curvature", "hessian", "batch_sharpness", "histograms"), 1)
    groups["test_curvature"] = 1
    model, train, test = setup()
    twin = copy.deepcopy(model)
    torch.manual_seed(7)
    loop(twin, train, 6)
    expected = torch.rand(3)
    torch.manual_seed(7)
    with sf.Tracker(model, train, test, every=groups, batch_size=20) as tracker:
        loop(model, train, 6, tracker)
    assert torch.equal(torch.rand(3), expected)
    assert len(tracker.readings) == 7
    assert model.training
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_values_are_those_of_the_library():
    model, train, test = setup(dropout=0.0)
    with sf.Tracker(
        model, train, test, val=train, every={"calibration": 1, "margins": 1, "curvature": 1, "hessian": 1}
    ) as t:
        pass
    (reading,) = t.readings
    p = sf.Predictions.of(model, *test)
    assert reading["test.ece"] == pytest.approx(float(sf.metrics.ece(p)))
    assert reading["test.log_q"] == pytest.approx(sf.margins.log_moment(p.true_margin))
    fitted = sf.posthoc.Temperature().fit(sf.Predictions.of(model, *train))
    assert reading["temperature"] == pytest.approx(fitted.temperature_)
    assert reading["test.tce"] == pytest.approx(float(sf.metrics.ece(fitted.apply(p))))
    exact = sf.curvature.GaussNewton(model, train[0]).top(1, 1e-5, max_products=200)
    assert reading["sharpness"] == pytest.approx(float(exact.values[0]), rel=1e-2)
    hessian = sf.curvature.Hessian(model, *train)
    assert reading["hessian"] == pytest.approx(float(hessian.top(1, 1e-5, max_products=200).values[0]), rel=1e-2)
    assert reading["gradient_norm"] == pytest.approx(float(hessian.gradient().norm()), rel=1e-5)


def test_cadences():
    assert [step for step in range(11) if Every(5).due(step)] == [0, 5, 10]
    spaced = [step for step in range(1001) if Logarithmic(4, 1000).due(step)]
    assert spaced == [0, 1, 10, 100, 1000]
    for wrong in (lambda: Every(0), lambda: Logarithmic(1, 10), lambda: Budget(0.0), lambda: Budget(1.5)):
        with pytest.raises(BadInput):
            wrong()


def test_a_budget_is_kept():
    budget = Budget(0.1)
    spent = 0.0
    for step in range(2000):
        if budget.due(step):
            price = 3.0 + step % 5
            spent += price if step else price + 20
            budget.paid(step, price, 0.0 if step else 20.0)
            assert step == 0 or spent + 3.0 <= 0.1 * step + 4  # with one more at the end; prices differ by 4
    assert spent > 180


def test_budget_in_a_loop():
    model, train, test = setup()
    with sf.Tracker(model, train, test, budget=0.2, batch_size=20) as tracker:
        loop(model, train, 600, tracker)
    assert 3 <= len(tracker.readings) < 60
    assert tracker.price <= 0.2 * 600
    assert tracker.readings[0]["step"] == 0


def test_what_a_budget_counts():
    """Everything read is in the price: the sum of the readings', the reader's set-up included."""
    model, train, test = setup()
    tracker = sf.Tracker(model, train, test, budget=0.1, batch_size=20)
    tracker.read(0)
    first = tracker.price
    tracker.read(1, everything=True)
    assert 0 < tracker.price - first < first


def test_loaders_are_read_once():
    model, train, test = setup()
    torch.manual_seed(3)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*train), batch_size=7, shuffle=True)
    before = torch.get_rng_state()
    tracker = sf.Tracker(model, loader, test, every=1)
    assert torch.equal(torch.get_rng_state(), before)
    plain = sf.Tracker(model, train, test, every=1)
    assert tracker.read(0)["train.ece"] == pytest.approx(plain.read(0)["train.ece"], abs=1e-6)
    for wrong, match in (([1, 2, 3], "pair"), (iter([torch.zeros(3)]), "pairs of tensors"), (5, "pair")):
        with pytest.raises(BadInput, match=match):
            sf.Tracker(model, wrong, test)


def test_a_tracker_made_anew_goes_on_to_the_bit():
    model, train, test = setup()
    torch.manual_seed(1)
    groups = {"curvature": 2, "hessian": 3}
    with sf.Tracker(model, train, test, every=groups) as first:
        loop(model, train, 6, first)
        state = first.state_dict()
        again = sf.Tracker(model, train, test, every=groups)
        again.load_state_dict(state)
        torch.manual_seed(2)
        twin = copy.deepcopy(model)
        loop(model, train, 6, first, begin=6)
    torch.manual_seed(2)
    other = sf.Tracker(twin, train, test, every=groups)
    other.load_state_dict(state)
    with other:
        loop(twin, train, 6, other, begin=6)
    assert first.readings[-len(other.readings) :] == other.readings


def test_the_journal_is_written_and_never_overwritten(tmp_path):
    model, train, test = setup()
    with sf.Tracker(model, train, test, every=2, out=tmp_path / "mine") as tracker:
        loop(model, train, 4, tracker)
    assert [r["step"] for r in read_journal(tmp_path / "mine" / "journal.jsonl")[0]] == [0, 2, 4]
    with (
        pytest.raises(BadInput, match="already holds a journal"),
        sf.Tracker(model, train, test, out=tmp_path / "mine"),
    ):
        pass


def test_a_diverged_model_is_written_down():
    model, train, test = setup()
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
    with sf.Tracker(model, train, test) as tracker:
        pass
    assert tracker.readings[0]["diverged"] is True


def test_wrong_labels_are_an_error_and_no_divergence():
    model, train, test = setup()
    with pytest.raises(BadInput, match="labels must lie"), sf.Tracker(model, train, (test[0], test[1] + 5)):
        pass


def test_what_the_optimizer_says_is_recorded():
    model, train, test = setup()
    opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.5))

    def closure():
        loss = nn.functional.cross_entropy(model(train[0]), train[1])
        loss.backward()
        return loss

    with sf.Tracker(model, train, test, optimizer=opt, every=1) as tracker:
        opt.step(closure)
        tracker.step(0)
    assert tracker.readings[1]["threshold"] == 4.0
    assert tracker.readings[1]["rule.epsilon"] == pytest.approx(0.05)


def test_misuse():
    model, train, test = setup()
    with pytest.raises(BadInput, match="pair"):
        sf.Tracker(model, train[0], test)
    with pytest.raises(BadInput, match="labels"):
        sf.Tracker(model, (train[0], train[1][:5]), test)
    with pytest.raises(BadInput, match="groups are"):
        sf.Tracker(model, train, test, every={"curvatur": 5})


def test_theorems_hold_at_every_reading():
    model, train, test = setup()
    groups = dict.fromkeys(("calibration", "curvature", "bounds"), 10)
    with sf.Tracker(model, train, test, every=groups) as tracker:
        loop(model, train, 60, tracker)
    assert len(tracker.readings) == 7
    for reading in tracker.readings:
        assert reading["train.theorems.violated"] == reading["test.theorems.violated"] == 0
        assert reading["train.theorems.holds"] >= 15
        assert reading["train.ece"] <= reading["train.bound.ece.tight"] + 1e-9
        assert reading["train.bound.ece.tight"] <= reading["train.bound.ece.printed"]
        assert (
            reading["sharpness"] <= reading["train.bound.sharpness.tight"] <= reading["train.bound.sharpness.printed"]
        )
        assert reading["train.slack.sharpness.tight"] >= 0
        assert reading["train.c_j_mean"] <= reading["train.c_j"]
        assert reading["train.regime"] in ("overlap", "interpolating")
        assert "test.c_j" not in reading


def test_sharpness_of_the_test_set():
    model, train, test = setup()
    groups = {"curvature": 1, "test_curvature": 2}
    with sf.Tracker(model, train, test, every=groups) as tracker:
        loop(model, train, 3, tracker)
    assert ["test.sharpness" in each for each in tracker.readings] == [True, False, True, False]
    reading = tracker.read(5, everything=True)
    for name, (x, _) in {"sharpness": train, "test.sharpness": test}.items():
        exact = sf.curvature.GaussNewton(model, x).top(1, 1e-5, max_products=200)
        assert reading[name] == pytest.approx(float(exact.values[0]), rel=1e-2)
    assert reading["test.sharpness_residual"] < 0.1
    few = sf.Tracker(model, train, test, every=groups, sample=15).read(0)
    assert few["sharpness_sample"] == few["test.sharpness_sample"] == 15
    most = sf.Tracker(model, train, test, every=groups, sample=30).read(0)  # more than the test set has
    assert most["sharpness_sample"] == 30
    assert "test.sharpness_sample" not in most


def test_sharpness_of_the_test_set_goes_on_to_the_bit():
    model, train, test = setup()
    first = sf.Tracker(model, train, test, every={"test_curvature": 1})
    first.read(0)
    state = copy.deepcopy(first.state_dict())
    loop(model, train, 3)
    again = sf.Tracker(model, train, test, every={"test_curvature": 1})
    again.load_state_dict(state)
    assert again.read(3)["test.sharpness"] == first.read(3)["test.sharpness"]


def test_the_way_of_an_ascent():
    model, train, test = setup()
    optimizer = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.2)
    tracker = sf.Tracker(model, train, test, optimizer=optimizer, every={"ascent": 1, "hessian_min": 1})
    before = [parameter.detach().clone() for parameter in model.parameters()]
    reading = tracker.read(0)
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    way = sf.theory.sam_step(model, *train, 0.2, points=5)
    kappas = [reading[f"ascent.kappa_{place}"] for place in range(5)]
    assert kappas == pytest.approx([point.smallest for point in way.path], rel=0.02)
    assert reading["ascent.kappa_0"] == pytest.approx(reading["hessian_min"], rel=0.02)
    assert reading["ascent.allowed"] == pytest.approx(way.allowed)
    assert reading["ascent.lambda"] == pytest.approx(way.coefficients["lambda"])
    few = sf.Tracker(model, train, test, optimizer=optimizer, every={"ascent": 1}, sample=20)
    assert few.read(0)["ascent.allowed"] != pytest.approx(way.allowed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    assert "ascent.allowed" not in few.read(1)


@pytest.mark.parametrize(
    "rule",
    [
        lambda p: None,
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.Adadelta(p),  # its rho is a decay
        lambda p: sf.optim.ASAM(torch.optim.SGD(p, lr=0.1)),  # its rho is no length
        lambda p: sf.optim.SAM(torch.optim.SGD(p, lr=0.1), rho=0.0),
        lambda p: sf.optim.SAM(torch.optim.SGD([{"params": p[:1], "rho": 0.1}, {"params": p[1:]}], lr=0.1), rho=0.2),
    ],
)
def test_an_ascent_needs_a_rule_that_climbs(rule):
    model, train, test = setup()
    optimizer = rule(list(model.parameters()))
    with pytest.raises(BadInput, match="'ascent' need an optimizer that climbs"):
        sf.Tracker(model, train, test, optimizer=optimizer, every={"ascent": 5})


def test_an_ascent_is_of_cross_entropy_and_may_shrink_to_nothing():
    model, train, test = setup()
    optimizer = sf.optim.CSAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.1)
    with pytest.raises(BadInput, match="of the cross-entropy"):
        sf.Tracker(model, train, test, optimizer=optimizer, loss="mse", every={"ascent": 5})
    tracker = sf.Tracker(model, train, test, optimizer=optimizer, every={"ascent": 5})
    optimizer.param_groups[0]["rho"] = 0.0
    assert "ascent.allowed" not in tracker.read(0)


def test_robust_moments_need_a_ball():
    model, train, test = setup()
    tracker = sf.Tracker(model, train, test, every={"margins": 1, "robust": 1}, eps=0.05, norm="2")
    reading = tracker.read(0)
    for part in ("train", "test"):
        assert reading[f"{part}.log_q"] <= reading[f"{part}.log_q_attack"] <= reading[f"{part}.log_q_certified"]
    assert sum(reading["train.tail"]["shares"]) <= 1 + 1e-12
    for options in ({"every": {"robust": 1}}, {"every": 1, "eps": 0.1}):
        with pytest.raises(BadInput, match="go together"):
            sf.Tracker(model, train, test, **options)


def test_theorems_about_the_ball_hold_at_every_reading():
    model, train, test = setup(dropout=0.0)
    train = (4 * train[0], train[0][:, :3].argmax(1))  # no noise: every example can be right
    groups = dict.fromkeys(("margins", "curvature", "bounds", "robust"), 100)
    with sf.Tracker(model, train, test, every=groups, eps=1e-3, norm="2") as tracker:
        loop(model, train, 400, tracker)
    without = sf.Tracker(model, train, test, every=dict.fromkeys(("curvature", "bounds"), 1)).read(0)
    last = tracker.readings[-1]
    assert last["train.regime"] == "interpolating"
    # Theorem 4.1 (i) and (ii) with Q and Q⁺, three statements of 4.2 (iv), two of Lemma B.5.
    assert last["train.theorems.holds"] == without["train.theorems.holds"] + 9
    assert "train.bound.robust.ece" not in without
    for reading in tracker.readings:
        assert reading["train.theorems.violated"] == reading["test.theorems.violated"] == 0
        assert reading["train.bound.robust.ece"] == pytest.approx(
            2 * math.exp(reading["train.log_q_certified"]), rel=1e-6
        )
        assert reading["train.bound.robust.ece"] >= reading["train.bound.ece.printed"] * (1 - 1e-9)
        assert reading["train.bound.robust.sharpness"] >= reading["train.bound.sharpness.printed"] * (1 - 1e-9)


def test_other_losses_bound_calibration_only():
    model, train, test = setup()
    tracker = sf.Tracker(model, train, test, loss="mse", every={"bounds": 1})
    reading = tracker.read(0)
    assert reading["train.theorems.violated"] == 0
    assert "train.c_j" not in reading


def test_steps_that_a_call_leaps_over_are_read_at_the_next():
    model, train, test = setup()
    with sf.Tracker(model, train, test, every={"calibration": 5, "margins": Logarithmic(3, 16)}) as tracker:
        for step in range(0, 24, 3):
            tracker.step(step)
    assert [reading["step"] for reading in tracker.readings] == [0, 1, 4, 7, 10, 16, 22]
    assert [reading["step"] for reading in tracker.readings if "train.log_q" in reading] == [0, 1, 4, 16]


def test_steps_counted_anew_in_each_epoch_are_refused():
    model, train, test = setup()
    with sf.Tracker(model, train, test, every={"calibration": 50}) as tracker:
        tracker.step(0)
        tracker.step(1)
        tracker.step(1)  # a second micro-batch, say
        with pytest.raises(BadInput, match=r"index must not go back; got 0 after 1: count updates through all epochs"):
            tracker.step(0)


@pytest.mark.parametrize("index", ["a", None, 1.5, -5, torch.tensor(3)])
def test_a_step_is_a_whole_number(index):
    model, train, test = setup()
    with pytest.raises(BadInput, match="index must be an integer of at least 0; got"):
        sf.Tracker(model, train, test).step(index)


def test_the_first_step_of_a_run_that_was_not_tracked_is_read_whole():
    model, train, test = setup()
    with sf.Tracker(model, train, test, every={"calibration": 2, "curvature": 10}, start=3) as tracker:
        tracker.step(3)
    assert [(reading["step"], "sharpness" in reading) for reading in tracker.readings] == [(3, True), (4, False)]


def test_out_needs_the_block(tmp_path):
    model, train, test = setup()
    tracker = sf.Tracker(model, train, test, every=1, out=tmp_path / "mine")
    with pytest.raises(BadInput, match=r"nothing is written to out=.*`with Tracker"):
        tracker.step(0)
    with tracker:
        tracker.step(0)
    with pytest.raises(BadInput, match="nothing is written"):
        tracker.step(1)


def test_gathering_a_loader_moves_no_random_state():
    """Not its own generator either, nor those that a data set may draw from: the training may use them too."""

    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return torch.full((6,), random.random() + np.random.rand()), index % 3  # noqa: NPY002

    own = torch.Generator().manual_seed(3)
    loader = torch.utils.data.DataLoader(Noisy(), 4, shuffle=True, generator=own)

    def states():
        return own.get_state().tolist(), torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())  # noqa: NPY002

    before = states()
    model, train, _ = setup()
    sf.Tracker(model, train, loader)
    assert states() == before


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"every": 2.5}, "every must be an integer of at least 1; got 2.5"),
        ({"every": {"calibration": "3"}}, "every must be an integer of at least 1; got '3'"),
        ({"every": {}}, "every must name a group at least"),
        ({"budget": "a"}, r"budget must lie in \(0, 1\]; got 'a'"),
        ({"budget": True}, r"budget must lie in \(0, 1\]; got True"),
        ({"out": 7}, "out must be a file's path; got 7"),
        ({"out": "a\0b"}, "out must not hold a NUL"),
        ({"seed": "a"}, "seed must be an integer"),
        ({"optimizer": "sgd"}, "optimizer must be a torch optimizer, or None; got str"),
        ({"train": (["a", "b"], [0, 1])}, "train: inputs must be a tensor or an array of numbers; got list"),
        ({"test": ([[1.0], [1.0, 2.0]], [0, 1])}, "test: inputs must be"),
    ],
)
def test_wrong_arguments_are_told_by_name(options, match):
    model, train, test = setup()
    with pytest.raises(BadInput, match=match):
        sf.Tracker(model, **({"train": train, "test": test} | options))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    model, train, test = setup()
    with (
        pytest.raises(BadInput, match="out must be a folder that can be made"),
        sf.Tracker(model, train, test, out=tmp_path / "file" / "deeper"),
    ):
        pass


def test_numbers_of_numpy_are_numbers():
    model, train, test = setup()
    with sf.Tracker(model, train, test, every=np.int64(2)) as tracker:
        tracker.step(np.int64(1))
    assert [type(reading["step"]) for reading in tracker.readings] == [int, int]


@pytest.mark.parametrize("state", [None, {}, {"budget": None}, {"tensors": None, "plain": None}, {"tensors": {}}])
def test_what_is_no_state_is_refused(state):
    model, train, test = setup()
    with pytest.raises(BadInput, match=r"load_state_dict\(state\)"):
        sf.Tracker(model, train, test).load_state_dict(state)


def test_a_state_is_one_dictionary_and_two_are_still_taken():
    model, train, test = setup()
    with sf.Tracker(model, train, test, every={"curvature": 1}) as tracker:
        tracker.step(0)
    state = tracker.state_dict()
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    plain = {name: value for name, value in state.items() if name not in tensors}
    assert tensors
    assert plain["read_at"] == 1
    again = sf.Tracker(model, train, test, every={"curvature": 1})
    with pytest.warns(DeprecationWarning, match="one dictionary"):
        again.load_state_dict(tensors, plain)
    kept = sf.Tracker(model, train, test, every={"curvature": 1})
    kept.load_state_dict({"tensors": tensors, "plain": plain})  # as in a checkpoint that an integration once wrote
    for other in (again.state_dict(), kept.state_dict()):
        assert {name: value for name, value in other.items() if name in plain} == plain
        assert all(torch.equal(other[name], value) for name, value in tensors.items())


def test_every_group_has_a_name_in_the_spec():
    assert tuple(GROUPS_BY_NAME) == GROUPS
    assert set(GROUPS) <= set(TrackSpec.model_fields)


def test_a_rule_that_finds_its_own_rate_has_no_threshold():
    model, train, test = setup()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    opt.param_groups[0]["lr"] = None  # as that of transformers' Adafactor
    with sf.Tracker(model, train, test, optimizer=opt, every={"calibration": 1}) as tracker:
        pass
    assert not {"lr", "threshold"} & set(tracker.readings[0])
