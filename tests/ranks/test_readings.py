"""At the same weights two ranks read what one process reads: to 1e-6 in float32, to 1e-12 in float64."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import surefoot as sf
from surefoot.curvature import GaussNewton, Hessian, Sharpness, batch_sharpness
from surefoot.errors import BadInput, RankLost
from surefoot.integrations.options import own_rows
from surefoot.ranks import ALONE, Ranks, all_ranks

N, TEST, CUT = 61, 30, 25  # parts of different sizes
GROUPS = dict.fromkeys(
    (
        "calibration",
        "margins",
        "curvature",
        "hessian",
        "hessian_min",
        "batch_sharpness",
        "histograms",
        "bounds",
        "robust",
        "test_curvature",
    ),
    1,
)
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])


def data(dtype):
    """Inputs whose leading directions stand out, as those of images do."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(N + TEST, 12, generator=random, dtype=torch.float64) * 0.7 ** torch.arange(12)
    y = (x[:, :3] + 0.5 * torch.randn(N + TEST, 3, generator=random, dtype=torch.float64)).argmax(1)
    return (x[:N].to(dtype), y[:N]), (x[N:].to(dtype), y[N:])


def network(dtype, norm=False):
    torch.manual_seed(0)
    layers = [nn.Linear(12, 8), nn.Tanh(), *([nn.BatchNorm1d(8)] if norm else []), nn.Linear(8, 3)]
    return nn.Sequential(*layers).to(dtype)


def convolutions(dtype):
    torch.manual_seed(0)
    layers = nn.Unflatten(1, (1, 3, 4)), nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)
    return nn.Sequential(*layers).to(dtype)


def part(split, rank):
    rows = slice(None) if rank is None else slice(0, CUT) if rank == 0 else slice(CUT, None)
    return split[0][rows], split[1][rows]


def numbers(dtype, rank=None):
    """All that is read of fixed models; ``rank`` None for one process with all the rows."""
    over = rank is not None
    train, test = (part(split, rank) for split in data(dtype))
    found = {}
    for name, model in (("dense", network(dtype)), ("convolutions", convolutions(dtype))):
        gauss, hessian = GaussNewton(model, *train, ranks=over), Hessian(model, *train, ranks=over)
        v = torch.linspace(-1, 1, gauss.dim, dtype=dtype)
        found[f"{name}.gauss-newton"] = gauss.matvec(v)
        found[f"{name}.sum"] = GaussNewton(model, *train, reduction="sum", ranks=over).matvec(v)
        found[f"{name}.hessian"], found[f"{name}.gradient"] = hessian.matvec(v), hessian.gradient()
        found[f"{name}.n"] = torch.tensor(gauss.facts["n"])
        found[f"{name}.top"] = gauss.top(2).values
        # By default all twelve directions are kept: the signs of the last ones are for rounding to decide.
        found[f"{name}.default"] = torch.tensor(Sharpness(model, *train, ranks=over).read().value, dtype=torch.float64)
        for sample in (None, 20):
            reader = Sharpness(model, *train, directions=5, sample=sample, ranks=over)
            reading = reader.read(verify=True)
            found[f"{name}.sharpness.{sample}"] = torch.tensor(reading.value, dtype=torch.float64)
            found[f"{name}.residual.{sample}"] = torch.tensor(reading.residual, dtype=torch.float64)
            assert reader.compressed == (name == "dense")
        batches = batch_sharpness(model, *train, 16, max_batches=5, ranks=over)
        found[f"{name}.batches"] = torch.tensor([batches.value, batches.standard_error], dtype=torch.float64)
    model = network(dtype)
    settings = {"batch_size": 16, "eps": 0.1, "every": GROUPS, "ranks": over}
    with sf.Tracker(model, train, test, val=test, **settings) as tracker:
        with torch.no_grad():
            model[0].weight.mul_(1.2)  # the second reading is warm
        tracker.step(0)
    found |= flat(tracker.readings)
    return found


def flat(readings):
    """Tensors by name, of nested readings."""
    found = {}
    for place, reading in enumerate(readings):
        for name, value in reading.items():
            inner = value if isinstance(value, dict) else {"": value}
            for key, each in inner.items():
                if not isinstance(each, str):
                    found[f"{place}.{name}.{key}"] = torch.as_tensor(each, dtype=torch.float64)
                else:
                    found[f"{place}.{name}.{key}.{each}"] = torch.tensor(0)
    return found


def own_loop(rank, folder):
    """A user's loop under DistributedDataParallel with batch norm, whose statistics are each rank's own."""
    train, test = (part(split, rank) for split in data(torch.float64))
    model = network(torch.float64, norm=True)
    parallel = DistributedDataParallel(model)
    opt = torch.optim.SGD(parallel.parameters(), lr=0.1)
    with sf.Tracker(parallel, train, test, optimizer=opt, every=1, out=folder / f"out{rank}", ranks=True) as tracker:
        for step in range(3):
            opt.zero_grad()
            nn.functional.cross_entropy(parallel(train[0]), train[1]).backward()
            opt.step()
            before = [buffer.clone() for buffer in model.buffers()]
            tracker.step(step)
            assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))
    return flat(tracker.readings), model.state_dict()


def faults(rank):
    """The errors of things done wrongly, on one rank or on both."""
    (x, y), test = (part(split, rank) for split in data(torch.float64))
    wrong = y.clone() if rank == 0 else torch.full_like(y, 7)
    other = network(torch.float64)
    with torch.no_grad():
        other[0].bias.add_(rank)
    tied = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)).double()
    given = {
        "wrong labels on rank 1": lambda: GaussNewton(network(torch.float64), x, wrong, ranks=True),
        "no rows on rank 1": lambda: sf.Tracker(
            network(torch.float64), (x[rank * 99 :], y[rank * 99 :]), test, ranks=True
        ),
        "other weights on rank 1": lambda: Hessian(other, x, y, ranks=True),
        "tied rows": lambda: GaussNewton(tied, x, y, ranks=True),
        "other weights, no curvature": lambda: sf.Tracker(
            other, (x, y), test, every={"calibration": 1}, ranks=True
        ).read(0),
        "rows in another order": lambda: own_rows("train", ((x if rank else -x)[:9], y[:9])),
        "fewer rows than ranks": lambda: own_rows("train", (torch.ones(1, 12), [0])),
        "sample smaller than ranks": lambda: Sharpness(network(torch.float64), x, y, sample=1, ranks=True),
    }
    found = {}
    for name, call in given.items():
        try:
            call()
        except (BadInput, RankLost) as error:
            found[name] = type(error).__name__, str(error)
    return found


class Odd(nn.Module):
    """With buffers that gloo has no arithmetic for, and one that cannot be written."""

    def __init__(self):
        super().__init__()
        self.net = network(torch.float64)
        self.register_buffer("turns", torch.polar(torch.ones(4), torch.arange(4.0)))
        self.register_buffer("small", torch.ones(3, dtype=torch.int16))
        self.register_buffer("tiny", torch.ones(3).to(torch.float8_e4m3fn))
        self.register_buffer("mask", torch.ones(2, 2) > 0)
        self.register_buffer("wide", torch.ones(1).expand(5))

    def forward(self, x):
        return self.net(x)


def odd(rank=None):
    """Labels of kinds that differ over ranks, too."""
    (x, y), test = (part(split, rank) for split in data(torch.float64))
    kind = torch.int64 if rank is None else (torch.int16, torch.uint8)[rank]
    with sf.Tracker(Odd(), (x, y.to(kind)), test, every=1, ranks=rank is not None) as tracker:
        pass
    return flat(tracker.readings)


def work(rank, folder):
    return {
        "odd": odd(rank),
        **{str(dtype): numbers(dtype, rank) for dtype in TOLERANCE},
        "own loop": own_loop(rank, folder),
        "faults": faults(rank),
    }


@DTYPES
def test_two_ranks_read_what_one_process_reads(ranks, dtype):
    alone = numbers(dtype)
    found = ranks[0][str(dtype)]
    assert set(found) == set(alone)
    errors = {name: distance(found[name], expected, scale_of(name, alone)) for name, expected in alone.items()}
    assert {name: error for name, error in errors.items() if not error <= TOLERANCE[dtype]} == {}


def scale_of(name, alone):
    """A residual is rounding where the search has converged: it counts beside the value whose error it bounds."""
    if ".slack.sharpness" in name:
        return alone[f"{name.split('.')[0]}.sharpness."]
    return alone[name.replace(".residual.", ".sharpness.").replace("_residual", "")]


def distance(found, expected, scale=None):
    """The largest difference, relative to the largest number of ``scale``; empty bins are NaN in both."""
    found, expected = found.double(), expected.double()
    assert torch.equal(found.isnan(), expected.isnan())
    found, expected = found.nan_to_num(), expected.nan_to_num()
    most = (expected if scale is None else scale.double().nan_to_num()).abs().max()
    return float((found - expected).abs().max()) / max(float(most), 1e-300)


@DTYPES
def test_readings_are_the_same_bits_on_every_rank(ranks, dtype):
    first, second = (found[str(dtype)] for found in ranks)
    assert all(torch.equal(first[name].nan_to_num(), second[name].nan_to_num()) for name in first)


def test_a_loop_of_ones_own_with_batch_norm(ranks, folder):
    """Readings are of rank 0's statistics, which DistributedDataParallel gives to all in the next pass anyway."""
    (first, state), (second, other) = (found["own loop"] for found in ranks)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(state["2.running_mean"], other["2.running_mean"])
    model = network(torch.float64, norm=True)
    model.load_state_dict(state)
    train, test = data(torch.float64)
    with sf.Tracker(model, train, test, every=1) as tracker:
        pass
    (reading,) = tracker.readings
    for name in ("train.ece", "test.nll", "sharpness"):
        assert float(first[f"3.{name}."]) == pytest.approx(reading[name], rel=1e-2 if name == "sharpness" else 1e-12)
    assert len((folder / "out0" / "journal.jsonl").read_text().splitlines()) == 4
    assert not (folder / "out1").exists()


def test_what_fails_on_one_rank_fails_on_all(ranks):
    first, second = (found["faults"] for found in ranks)
    assert second["wrong labels on rank 1"][0] == "BadInput"
    assert first["wrong labels on rank 1"] == ("RankLost", "another rank failed and said why; all ranks stop with it")
    assert second["no rows on rank 1"][0] == "BadInput"
    assert first["no rows on rank 1"][0] == "RankLost"
    for name, said in (
        ("other weights on rank 1", "not the same on all ranks"),
        ("other weights, no curvature", "not the same on all ranks"),
        ("rows in another order", "train must be the same rows in the same order on every rank"),
        ("fewer rows than ranks", "a row for each of the 2 ranks; got 1"),
        ("tied rows", "lie on 2 ranks"),
        ("sample smaller than ranks", "sample must be an integer of at least 2; got 1"),
    ):
        assert all(said in found[name][1] for found in (first, second))


def test_odd_buffers_and_labels_travel(ranks):
    expected = odd()
    for found in ranks:
        assert set(found["odd"]) == set(expected)
        for name in ("0.train.nll.", "0.test.ece.", "0.sharpness."):
            assert distance(found["odd"][name], expected[name]) < 1e-12


def test_alone_nothing_is_asked_of_anybody():
    assert all_ranks() is ALONE
    (x, y), _ = data(torch.float64)
    model = network(torch.float64)
    v = torch.ones(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    assert torch.equal(GaussNewton(model, x, y, ranks=True).matvec(v), GaussNewton(model, x, y).matvec(v))


def test_shares_cover_the_rows():
    for rows in (3, 7, 12):
        found = [row for rank in range(3) for row in range(rows)[Ranks(rank, 3).share(rows)]]
        assert found == list(range(rows))


class FullyShardedDataParallel(nn.Module):
    """Known by its name, as the real one is: which cannot be made without a group of ranks and a device."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


@pytest.mark.parametrize(
    "read",
    [
        GaussNewton,
        Hessian,
        Sharpness,
        lambda model, x, y: sf.curvature.jacobian_norms(model, x),
        lambda model, x, y: batch_sharpness(model, x, y, 10),
        lambda model, x, y: sf.Tracker(model, (x, y), (x, y)),
    ],
)
def test_sharded_parameters_are_refused(read):
    (x, y), _ = data(torch.float32)
    model = FullyShardedDataParallel(network(torch.float32))
    with pytest.raises(BadInput, match=r"sharded \(FSDP\), which is not supported; load a full state_dict"):
        read(model, x, y)
