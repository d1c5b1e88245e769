"""Curvature of a sample of the examples: the same ones each time, said in the record, paid for as so many."""

import pytest
import torch
from torch import nn

import surefoot as sf
from surefoot.curvature import GaussNewton, Sharpness
from surefoot.errors import BadInput
from surefoot.training.spec import spec_of
from tests.curvature.cases import case

RUN = {"optimizer": {"name": "sgd", "lr": 0.1}, "stop": {"steps": 1}}


@pytest.mark.parametrize("name", ["mlp", "convolution"])
def test_it_is_the_curvature_of_some_of_the_rows(name):
    """Found among all samples of that size, and the same at the next reading and in another reader."""
    model, x, y = case(name, n=6)
    reader = Sharpness(model, x, y, sample=5, max_products=40)
    value = reader.read(tol=1e-6).value
    left_out = [torch.arange(6) != row for row in range(6)]
    possible = [float(GaussNewton(model, x[rows]).top(1, 1e-9).values[0]) for rows in left_out]
    assert min(abs(value / each - 1) for each in possible) < 1e-6
    assert max(abs(value / each - 1) for each in possible) > 1e-3  # they can be told apart
    assert reader.read(tol=1e-6).value == pytest.approx(value, rel=1e-6)
    assert Sharpness(model, x, y, sample=5, max_products=40).read(tol=1e-6).value == value


def test_seeds_draw_different_samples():
    model, x, y = case("mlp", n=40)
    assert len({Sharpness(model, x, y, sample=5, seed=seed).read().value for seed in range(4)}) == 4


def test_more_than_there_are_means_all():
    model, x, y = case("mlp")
    assert Sharpness(model, x, y, sample=99).read().value == Sharpness(model, x, y).read().value


def test_on_average_a_sample_is_not_below_the_whole():
    """λ_max is convex and the sampled matrix unbiased: the mean over many samples is above."""
    model, x, y = case("mlp", n=40)
    whole = float(GaussNewton(model, x).top(1, 1e-6).values[0])
    found = [Sharpness(model, x, y, sample=6, seed=seed, max_products=40).read(tol=1e-4).value for seed in range(30)]
    assert sum(found) / len(found) > whole


def test_the_tracker_says_so_and_pays_less():
    torch.manual_seed(0)
    model, x, y = nn.Linear(6, 3), torch.randn(60, 6), torch.arange(60) % 3
    prices = {}
    for sample in (None, 12, 60):
        with sf.Tracker(model, (x, y), (x, y), every={"curvature": 1}, sample=sample) as tracker:
            pass
        (reading,) = tracker.readings
        assert reading.get("sharpness_sample") == (12 if sample == 12 else None)
        prices[sample] = tracker.price
    assert prices[12] < prices[None] / 2
    assert prices[60] == prices[None]


def test_bounds_need_all_examples():
    x, y = torch.randn(20, 4), torch.arange(20) % 3
    with pytest.raises(BadInput, match="leave out sample, or bounds"):
        sf.Tracker(nn.Linear(4, 3), (x, y), (x, y), every={"bounds": 1}, sample=5)
    with pytest.raises(BadInput, match=r"leave out curvature\.sample, or bounds"):
        spec_of({**RUN, "track": {"curvature": {"sample": 5}, "bounds": True}})


def test_specs_without_it_keep_their_names():
    plain = spec_of({**RUN, "track": {"curvature": 10}})
    assert plain.resolved()["track"]["curvature"] == {"every": 10, "log": None}
    assert plain.run_id("") == "c8534590c4483c2a"  # as before there were samples
    sampled = spec_of({**RUN, "track": {"curvature": {"every": 10, "sample": 5}}})
    assert sampled.resolved()["track"]["curvature"] == {"every": 10, "log": None, "sample": 5}
    assert spec_of(sampled.resolved()) == sampled


def test_a_budget_takes_a_sample():
    found = spec_of({**RUN, "track": {"budget": 0.1, "curvature": {"sample": 5}}})
    assert found.track.sample == 5
    with pytest.raises(BadInput, match="a budget spaces the readings itself"):
        spec_of({**RUN, "track": {"budget": 0.1, "curvature": {"every": 3, "sample": 5}}})
