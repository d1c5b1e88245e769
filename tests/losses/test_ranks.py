"""Two gloo ranks with batches of different sizes: terms of the batch are those of the global batch."""

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import surefoot as sf
from surefoot.losses import Batch, as_objective
from tests.losses.cases import batch, network
from tests.ranks.spawn import on_two_ranks

CUT = 7  # of 12 rows
MADE = {
    "mmce": sf.losses.MMCE,
    "mdca": sf.losses.MDCA,
    "soft-ece": sf.losses.SoftECE,
    "crl": lambda: sf.losses.CRL(12),
    "margin-tail log": lambda: sf.losses.MarginTail(eps=0.1, beta=0.0, form="log"),
}


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def step(name, model, b, called):
    """The term of the batch alone: the mean of the examples is DistributedDataParallel's own affair."""
    objective = as_objective(MADE[name]())
    if name == "crl":
        objective.right.copy_(torch.arange(12) % 4)
        objective.epochs.fill_(4)
    loss = objective(called, b) - torch.nn.functional.cross_entropy(model(b.inputs), b.labels)
    loss.backward()
    return loss.detach(), gradients(model), getattr(objective, "right", torch.zeros(0))


# Objectives that call the model more than once before the one backward.
SEVERAL = {
    "calmo": lambda: sf.losses.CalMO(eps=0.3),
    "margin-tail": lambda: sf.losses.MarginTail(eps=0.1),
    "mit-l": sf.losses.MITL,
}


def several(name, rank, wrapped=lambda model: model):
    """The gradient of one half of the batch, with batch norm."""
    model, b, objective = network(norm=True), batch(), SEVERAL[name]()
    part = slice(6 * rank, 6 * rank + 6)
    called = wrapped(model)  # which must live until the backward
    torch.manual_seed(0)
    objective(called, Batch(b.inputs[part], b.labels[part], b.indices[part], 0)).backward()
    return gradients(model)


def work(rank, folder):
    part = slice(0, CUT) if rank == 0 else slice(CUT, 12)
    results = {}
    for name in MADE:
        model, b = network(), batch()
        own = Batch(b.inputs[part], b.labels[part], b.indices[part], 0)
        results[name] = step(name, model, own, DistributedDataParallel(model))
    for name in SEVERAL:
        results[name] = several(name, rank, DistributedDataParallel)
    return results


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return on_two_ranks(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", MADE)
def test_the_term_is_that_of_the_global_batch(name, ranks):
    model = network()
    value, gradient, history = step(name, model, batch(), model)
    for results in ranks:
        for theirs, ours in zip(results[name], (value, gradient, history), strict=True):
            torch.testing.assert_close(theirs, ours)


@pytest.mark.parametrize("name", SEVERAL)
def test_several_passes_are_averaged_over_ranks_once(name, ranks):
    expected = (several(name, 0) + several(name, 1)) / 2
    for results in ranks:
        torch.testing.assert_close(results[name], expected)
