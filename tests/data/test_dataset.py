"""One protocol over all that holds examples: arrays, tensors, memory maps, torch data sets, loaders."""

import hashlib
import random
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import surefoot as sf
from surefoot import dataset
from surefoot.dataset import ArrayDataset, Dataset, LoaderDataset, as_dataset
from surefoot.errors import BadInput

N, SHAPE = 23, (3, 2)
X = np.random.default_rng(0).integers(0, 256, (N, *SHAPE), dtype=np.uint8)
Y = np.arange(N) % 4


class Rows(torch.utils.data.Dataset):
    """A map-style data set, whose classes have names."""

    def __init__(self):
        self.classes = ["ant", "bee", "cow", "dog"]

    def __len__(self):
        return N

    def __getitem__(self, index):
        return torch.from_numpy(X[index]), int(Y[index])


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Rows()[index] for index in range(N))


class Pairs:
    """An iterable of pairs that is no DataLoader, in batches of odd sizes."""

    def __iter__(self):
        for begin, end in ((0, 1), (1, 9), (9, N)):
            yield torch.from_numpy(X[begin:end]), torch.from_numpy(Y[begin:end])


@pytest.fixture(scope="module")
def memory_map(tmp_path_factory):
    path = tmp_path_factory.mktemp("maps") / "x.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


KINDS = {
    "arrays": lambda: (X, Y),
    "tensors": lambda: (torch.from_numpy(X), torch.from_numpy(Y)),
    "lists": lambda: [torch.from_numpy(X), Y.tolist()],
    "torch data set": Rows,
    "stream": Stream,
    "tensor data set": lambda: TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
    "loader": lambda: DataLoader(Rows(), 5),
    "workers": lambda: DataLoader(Rows(), 5, num_workers=1),
    "iterable": Pairs,
    "iterator": lambda: iter(Pairs()),
}


@pytest.fixture(params=[*KINDS, "memory map", "large loader", "large iterable", "large torch data set", "transformed"])
def data(request, memory_map, monkeypatch):
    kind = request.param
    if kind.startswith("large"):
        monkeypatch.setattr(dataset, "_SMALL", 10)
    if kind == "memory map":
        return as_dataset("x", (memory_map, Y))
    if kind == "transformed":
        order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
        mixed = torch.empty(N, *SHAPE, dtype=torch.int16)
        mixed[order] = torch.from_numpy(X).to(torch.int16) - 1
        return ArrayDataset(mixed, torch.from_numpy(Y), lambda x: (x + 1).to(torch.uint8), order)
    return as_dataset("x", KINDS[kind.removeprefix("large ")]())


def joined(batches):
    return [torch.cat(parts) for parts in zip(*batches, strict=True)]


def test_the_protocol(data):
    assert isinstance(data, Dataset)
    assert (len(data), data.shape, data.classes, len(data.names)) == (N, SHAPE, 4, 4)
    inputs, labels = data.take()
    assert inputs.dtype == torch.uint8  # bytes stay bytes until a transform makes something of them
    np.testing.assert_array_equal(inputs, X)
    np.testing.assert_array_equal(labels, Y)
    assert labels.dtype == torch.int64
    np.testing.assert_array_equal(data.labels, Y)
    for size in (1, 4, N, 100):
        for _ in range(2):
            batches = list(data.batches(size, device="cpu"))
            assert [len(rows) for _, _, rows in batches] == [min(size, N - at) for at in range(0, N, size)]
            for found, expected in zip(joined(batches), (inputs, labels, torch.arange(N)), strict=True):
                assert torch.equal(found, expected)


@pytest.mark.parametrize("size", [0, 2.5])
def test_a_batch_has_a_row_at_least(data, size):
    with pytest.raises(BadInput, match=r"size must be .* at least 1"):
        next(data.batches(size))


def test_rows_in_any_order(data):
    for rows in ([3], [22, 0, 7, 7, 1], list(range(N))[::-1]):
        inputs, labels = data.take(torch.tensor(rows))
        np.testing.assert_array_equal(inputs, X[rows])
        np.testing.assert_array_equal(labels, Y[rows])
    for rows in (slice(4, 11), slice(20, 40), slice(None, None, 3)):
        inputs, labels = data.take(rows)
        np.testing.assert_array_equal(inputs, X[rows])
        np.testing.assert_array_equal(labels, Y[rows])


def test_parts_are_data_sets(data):
    part = data.part(slice(5, 17)).part(slice(2, 8))
    np.testing.assert_array_equal(part.take()[0], X[7:13])
    np.testing.assert_array_equal(joined(part.batches(4))[1], Y[7:13])
    assert (len(part), part.shape, part.names) == (6, SHAPE, data.part(slice(5, 17)).names)


def test_the_digest_is_that_of_the_content(data):
    assert data.digest() == data.digest() == as_dataset("x", (X, Y)).digest()
    others = [(X, (Y + 1) % 4), (X[::-1].copy(), Y), (X[:-1], Y[:-1]), (X.astype(np.int16), Y), (X.reshape(N, 6), Y)]
    assert len({data.digest(), *(as_dataset("x", other).digest() for other in others)}) == 6


def test_digests_stay():
    x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 1, 0])
    content = x.tobytes() + y.tobytes() + b"3 (2,) torch.float32 torch.int64"
    assert as_dataset("x", (x, y)).digest() == hashlib.sha256(content).hexdigest()


def test_predictions_are_those_of_the_arrays(data):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), ToFloat(), nn.Linear(6, 4), nn.Dropout())
    p = sf.Predictions.of(model, data, batch_size=4)
    np.testing.assert_array_equal(p.logits, sf.Predictions.of(model, torch.from_numpy(X), Y, batch_size=4).logits)
    np.testing.assert_array_equal(p.labels, Y)


class ToFloat(nn.Module):
    def forward(self, x):
        return x.float()


def test_a_data_set_is_itself(data):
    assert as_dataset("y", data) is data


def test_names_of_classes(monkeypatch):
    assert as_dataset("x", (X, Y)).names == ("0", "1", "2", "3")
    for small in (dataset._SMALL, 10):
        monkeypatch.setattr(dataset, "_SMALL", small)
        for named in (Rows(), DataLoader(Rows(), 5)):
            assert as_dataset("x", named).names == ("ant", "bee", "cow", "dog")
            assert as_dataset("x", named).part(slice(2)).classes == 4


def test_a_pair_of_tensors_is_not_copied():
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    assert as_dataset("x", (x, y)).take()[0].data_ptr() == x.data_ptr()


class Counting(np.memmap):
    """A memory map that keeps count of what is read of it."""

    largest = 0

    def __getitem__(self, rows):
        found = super().__getitem__(rows)
        Counting.largest = max(Counting.largest, len(found))
        return found


def test_a_memory_map_is_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "_SMALL", 1000)
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (500, 6))
    x[:] = np.arange(3000).reshape(500, 6)
    x.flush()
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r").view(Counting)
    data = as_dataset("x", (mapped, np.arange(500) % 3))
    Counting.largest = 0
    p = sf.Predictions.of(nn.Linear(6, 3), data, batch_size=32)
    data.take(torch.tensor([3, 400]))
    data.part(slice(100, 300)).digest()
    assert Counting.largest == 200  # the digest's block, of the part
    batch, _ = data.part(slice(8)).take()
    batch.mul_(0)  # of memory, not of a file that must not be written to
    assert len(p) == 500
    assert float(data.take(torch.tensor([1]))[0].sum()) == sum(range(6, 12))


class Noisy(Rows):
    """Examples that draw from every global generator."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.rand(()) + random.random() + np.random.rand(), y  # noqa: NPY002


def states(own):
    known = torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    return known, own.get_state().tolist()


@pytest.mark.parametrize("small", [10, 1 << 20], ids=["read at every pass", "kept"])
def test_a_shuffling_loader_gives_one_order_and_moves_no_random_state(small, monkeypatch):
    monkeypatch.setattr(dataset, "_SMALL", small)
    own = torch.Generator().manual_seed(3)
    loader = DataLoader(Noisy(), 5, shuffle=True, generator=own)
    before = states(own)
    data = as_dataset("x", loader)
    assert isinstance(data, LoaderDataset) == (small == 10)
    assert states(own) == before
    first = joined(data.batches(7))
    torch.rand(3), random.random(), np.random.rand(), list(loader)  # noqa: NPY002 - the training goes on
    between = states(own)
    again, drawn = [], []
    for batch in data.batches(7):
        again.append(batch)
        drawn.append(torch.rand(()))  # a reader may draw, too
    torch.random.set_rng_state(torch.tensor(between[0][0], dtype=torch.uint8))
    assert torch.equal(torch.stack(drawn), torch.rand(len(drawn)))
    assert states(own)[1] == between[1]
    for one, other in zip(first, joined(again), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(data.take()[0], first[0])
    assert torch.equal(data.take(torch.tensor([9, 2]))[0], first[0][[9, 2]])


def test_the_inputs_of_a_large_loader_exist_once(monkeypatch):
    monkeypatch.setattr(dataset, "_SMALL", 10)
    data = as_dataset("x", DataLoader(Noisy(), 5))
    one, two = data.take()[0], data.take()[0]
    assert one is two
    del one, two
    assert data._inputs.get() is None


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=8), size=st.integers(1, 20), data=st.data())
def test_batches_do_not_depend_on_those_of_the_loader(sizes, size, data):
    x = torch.arange(2 * sum(sizes)).reshape(-1, 2)
    pairs = list(zip(x.split(sizes), (x[:, 0] % 3).split(sizes), strict=True))

    class Split:
        def __iter__(self):
            return iter(pairs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "_SMALL", 0)
        found = as_dataset("x", Split())
        assert isinstance(found, LoaderDataset)
        assert torch.equal(joined(found.batches(size))[0], x)
        rows = torch.tensor(data.draw(st.lists(st.integers(0, len(x) - 1), min_size=1)))
        assert torch.equal(found.take(rows)[0], x[rows])


class Growing:
    """Gives other examples each time."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        x = torch.zeros(40 + self.change * (self.passes - 1), 3)
        return iter([(x, torch.arange(len(x)) + self.shift * (self.passes - 1))])

    def __init__(self, change, shift=0):
        self.change, self.shift = change, shift


@pytest.mark.parametrize("loader", [Growing(1), Growing(-1), Growing(0, 1)], ids=["more", "fewer", "other labels"])
def test_a_loader_must_repeat_itself(loader, monkeypatch):
    monkeypatch.setattr(dataset, "_SMALL", 10)
    data = as_dataset("train", loader)
    with pytest.raises(BadInput, match="train: the loader must give the same examples at every pass"):
        list(data.batches(7))


def test_read_only_arrays_are_taken_without_a_warning():
    x = X.copy()
    x.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(as_dataset("x", (x, Y)).take()[0], torch.from_numpy(X))


class Torn:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (5, r"x must be a pair \(inputs, labels\) or a loader of such pairs.*got int"),
        ("pairs", "x must be a pair .*got str"),
        ([1, 2, 3], "x must be a pair .*got list"),
        (np.zeros((5, 2)), "x must be a pair .*got ndarray"),
        (torch.zeros(5, 2), "x must be a pair .*got Tensor"),
        ((["a", "b"], [0, 1]), "x: inputs must be a tensor or an array of numbers; got list"),
        ((X, ["a"] * N), "x: labels must be a tensor or an array"),
        ((X, Y[:-1]), r"x must be inputs \(n, ...\) and labels \(n,\); got \(23, 3, 2\) and \(22,\)"),
        ((X[:0], Y[:0]), "x must be inputs"),
        ((np.float32(1), 1), "x must be inputs"),
        (Torn([]), "pairs of tensors .*gave none"),
        (Torn([torch.zeros(3)]), "the loader must give pairs of tensors"),
        (Torn([5]), "the loader must give pairs of tensors"),
        (Torn([{"x": torch.zeros(2), "y": torch.zeros(2)}]), "pairs of tensors .*got str and str"),
        (Torn([(torch.zeros(3, 2), torch.zeros(2))]), r"as many of both; got \(3, 2\) and \(2,\)"),
        (Torn([(torch.zeros(1, 2), torch.zeros(1)), (torch.zeros(1, 3), torch.zeros(1))]), "must have one shape"),
    ],
)
def test_what_is_no_data_set_is_told_by_name(given, match):
    with pytest.raises(BadInput, match=match):
        as_dataset("x", given)


def test_a_list_of_batches_is_read_like_a_generator_of_batches():
    batches = [(torch.full((n, 2), float(n)), torch.arange(n)) for n in (2, 3)]
    for listed in (batches, tuple(batches), [list(batch) for batch in batches], batches[:1]):
        data, known = as_dataset("train", listed), as_dataset("train", iter(listed))
        assert [part.tolist() for part in data.take()] == [part.tolist() for part in known.take()]
    x, y = torch.zeros(2, 2), torch.tensor([0, 1])
    assert len(as_dataset("train", [x, y])) == len(as_dataset("train", (x, y))) == 2  # a pair stays a pair


def test_an_iterator_that_was_already_read_is_a_clear_error():
    batches = iter([(torch.zeros(3, 4), torch.arange(3))])
    with pytest.raises(
        BadInput, match=r"^test: the iterator is at its end, so it was already read, .* a list of batch"
    ):
        sf.Tracker(torch.nn.Linear(4, 3), train=batches, test=batches)
    with pytest.raises(BadInput, match="it gave none"):
        as_dataset("train", torch.utils.data.DataLoader([]))
