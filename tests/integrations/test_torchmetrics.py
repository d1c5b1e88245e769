"""Metrics with states of whole numbers: the values of `surefoot.metrics`, whatever the split into batches and ranks."""

import math
import os
import socket

import pytest
import torch
import torch.distributed as dist
from torchmetrics import MetricCollection

import surefoot as sf
from surefoot.errors import BadInput
from surefoot.integrations import torchmetrics as ours
from tests.conftest import random_predictions

BINNED = {"ece": ours.ECE, "mce": ours.MCE, "rmsce": ours.RMSCE, "accuracy": ours.Accuracy}
MEANS = {"nll": ours.NLL, "brier": ours.Brier}
ALL = {**BINNED, **MEANS, "confidence": ours.Confidence}


def scores(n=700, k=5, seed=0):
    p = random_predictions(n, k, seed)
    return torch.tensor(p.logits), torch.tensor(p.labels)


def states(metric):
    return [getattr(metric, name) for name in metric._defaults]


@pytest.mark.parametrize("name", BINNED)
def test_values_are_those_of_the_library_to_the_bit(name):
    z, y = scores()
    metric = BINNED[name](**({} if name == "accuracy" else {"bins": 10}))
    for rows in torch.arange(700).split(64):
        metric.update(z[rows], y[rows])
    options = {} if name == "accuracy" else {"bins": 10}
    assert float(metric.compute()) == float(getattr(sf.metrics, name)(sf.Predictions(z, y), **options))
    assert metric.compute().dtype == torch.float64


@pytest.mark.parametrize("name", MEANS)
def test_means_are_summed_exactly(name):
    z, y = scores()
    metric = MEANS[name]()
    metric.update(z, y)
    p = sf.Predictions(z, y)
    column = -p.log_true if name == "nll" else p.squared_error
    assert float(metric.compute()) == pytest.approx(math.fsum(column) / 700, rel=2e-16)
    assert float(metric.compute()) == pytest.approx(float(getattr(sf.metrics, name)(p)), rel=1e-14)


@pytest.mark.parametrize("name", ALL)
def test_any_split_merged_gives_the_bits_of_the_whole(name):
    z, y = scores()
    whole = ALL[name]()
    whole.update(z, y)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(1))
    parts = []
    for rows in order.split([1, 99, 350, 250]):
        part = ALL[name]()
        for few in rows.split(33):
            part(z[few], y[few])  # by forward, which reduces states itself
        parts.append(part)
    first, *others = parts
    for part in others:
        first.merge_state(part)
    assert float(first.compute()) == float(whole.compute())


@pytest.mark.parametrize("name", ALL)
def test_states_do_not_grow(name):
    z, y = scores()
    metric = ALL[name]()
    before = [(state.shape, state.dtype) for state in states(metric)]
    for _ in range(3):
        metric.update(z, y)
    assert [(state.shape, state.dtype) for state in states(metric)] == before
    assert all(dtype == torch.int64 for _, dtype in before)
    metric.reset()
    assert all(int(state.sum()) == 0 for state in states(metric))


def test_a_collection_updates_one_state_for_metrics_of_the_same_bins():
    z, y = scores()
    collection = MetricCollection({name: metric() for name, metric in ALL.items()})
    for rows in torch.arange(700).split(100):
        collection.update(z[rows], y[rows])
    together = [set(group) for group in collection.compute_groups.values()]
    assert sorted(map(len, together)) == [1, 1, 5]
    for name, value in collection.compute().items():
        alone = ALL[name]()
        alone.update(z, y)
        assert float(value) == float(alone.compute())


def test_a_first_batch_of_perfect_rows_does_not_merge_different_metrics():
    z, y = scores()
    sure = torch.tensor([[900.0, 0.0, 0.0, 0.0, 0.0]]), torch.tensor([0])  # NLL and Brier score are both 0
    collection = MetricCollection({"nll": ours.NLL(), "brier": ours.Brier()})
    collection.update(*sure)
    collection.update(z, y)
    found = collection.compute()
    assert float(found["nll"]) != float(found["brier"])


def test_probabilities_and_logits_are_told_apart():
    z, y = scores()
    metric = ours.ECE(kind="probs")
    metric.update(torch.softmax(z, 1), y)
    assert float(metric.compute()) == pytest.approx(float(sf.metrics.ece(sf.Predictions(z, y))), abs=1e-12)
    with pytest.raises(BadInput, match="from_probs"):
        ours.ECE().update(torch.softmax(z, 1), y)
    with pytest.raises(BadInput, match="kind must be"):
        ours.ECE(kind="scores")


def test_odd_rows():
    metric = ours.NLL()
    with pytest.raises(BadInput, match="no rows"), pytest.warns(UserWarning, match="before the ``update``"):
        metric.compute()
    metric.update(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    metric.update(torch.tensor([[0.0, -float("inf")]]), torch.tensor([1]))
    assert float(metric.compute()) == float("inf")
    with pytest.raises(BadInput, match="labels"):
        metric.update(torch.zeros(2, 3), torch.zeros(0, dtype=torch.int64))


def _worker(rank, port, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    z, y = scores()
    collection = MetricCollection({name: metric() for name, metric in ALL.items()})
    for rows in (torch.arange(500) if rank == 0 else torch.arange(500, 700)).split(90):
        collection.update(z[rows], y[rows])
    torch.save({name: float(value) for name, value in collection.compute().items()}, f"{out}/{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_give_the_bits_of_one_process(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # By fork: importing torchmetrics, which imports transformers where it is there, takes many seconds.
    torch.multiprocessing.start_processes(_worker, (port, str(tmp_path)), nprocs=2, start_method="fork")
    z, y = scores()
    for rank in (0, 1):
        for name, value in torch.load(tmp_path / f"{rank}.pt").items():
            alone = ALL[name]()
            alone.update(z, y)
            assert value == float(alone.compute())


@pytest.mark.parametrize("name", ALL)
def test_a_change_of_dtype_leaves_the_states_whole(name):
    z, y = scores()
    metric, expected = ALL[name]().set_dtype(torch.float16).half(), ALL[name]()
    metric.update(z, y)
    expected.update(z, y)
    assert all(state.dtype == torch.int64 for state in states(metric))
    assert float(metric.compute()) == float(expected.compute())


@pytest.mark.parametrize("wrong", [torch.tensor(1.0), None, 3.0])
def test_what_has_no_rows_is_refused(wrong):
    with pytest.raises(BadInput, match="logits must"):
        ours.ECE().update(wrong, torch.tensor([0]))
