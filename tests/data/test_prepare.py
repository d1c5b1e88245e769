"""From stored examples to inputs: subsets, standardisation with the bits of a float64 copy, augmentation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.data.augment import crop_and_flip, uniforms
from surefoot.data.prepare import mean_and_std, prepare
from surefoot.data.sets import StoredData, load_set
from surefoot.errors import BadInput
from surefoot.seeds import derive, generator

random = np.random.default_rng(0)


def made(n=60, shape=(4, 4, 3), classes=5):
    x = random.integers(0, 256, (n, *shape), dtype=np.uint8)
    return StoredData("made", x, np.arange(n) % classes, x[:20], np.arange(20) % classes, classes)


def whole(data, rows, how):
    """The inputs as one float64 copy of all images gives them, and their mean and standard deviation."""
    x = data.x_train[rows].astype(np.float64)
    x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
    axes = 0 if how == "feature" else (0, 2, 3)
    mean, std = x.mean(axes, keepdims=True)[0], x.std(axes, keepdims=True)[0]
    std = np.where(std > 1e-12, std, 1.0)
    return torch.from_numpy(((x - mean) / std).astype(np.float32)), mean, std


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 1000),
    shape=st.one_of(st.tuples(st.integers(1, 5)), st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))),
    kind=st.sampled_from(["u1", "f4", "f8"]),
    block=st.sampled_from([128, 1000, 1 << 20]),
    seed=st.integers(0, 99),
)
def test_moments_are_numpys_in_every_block_size(rows, shape, kind, block, seed):
    draws = np.random.default_rng(seed)
    raw = (draws.random((rows + 5, *shape)) * 255).astype(kind)
    chosen = draws.permutation(rows + 5)[:rows]
    data = StoredData("made", raw, np.arange(rows + 5) % 2, raw, np.arange(rows + 5) % 2, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("surefoot.data.prepare._BLOCK", block)
        for how in ("feature", "channel")[: 2 if len(shape) == 3 else 1]:
            mean, std = mean_and_std(raw, chosen, how == "channel")
            _, true_mean, true_std = whole(data, chosen, how)
            as_input = (2, 0, 1) if mean.ndim == 3 else range(mean.ndim)
            np.testing.assert_array_equal(mean.transpose(as_input).ravel(), true_mean.ravel())
            np.testing.assert_array_equal(np.where(std > 1e-12, std, 1).transpose(as_input).ravel(), true_std.ravel())


@pytest.mark.parametrize("shape", [(7,), (6, 5, 1), (6, 5, 3)])
@pytest.mark.parametrize("kind", ["u1", "i2", "f4", "f8", ">f4", "g"])
def test_inputs_have_the_bits_and_the_strides_of_a_whole_copy(shape, kind):
    raw = (random.random((90, *shape)) * 255).astype(kind)
    data = StoredData("made", raw, np.arange(90) % 3, raw[:20], np.arange(20) % 3, 3)
    rows = np.random.default_rng(derive(4, "subset")).permutation(90)[:70]
    for how in ("feature", "channel")[: 2 if len(shape) == 3 else 1]:
        expected, _, _ = whole(data, rows, how)
        for dtype in (torch.float32, torch.float64):
            train = prepare(data, 70, seed=4, standardise=how, dtype=dtype).train
            for inputs, rows_of_all in ((train.take()[0], slice(None)), (next(train.batches(8))[0], slice(8))):
                assert inputs.dtype == dtype
                assert torch.equal(inputs, expected[rows_of_all].to(dtype))
                assert inputs.stride() == expected.stride()


def test_images_stay_bytes(monkeypatch):
    """What is stored is the user's own array; inputs larger than what is kept exist for as long as they are held."""
    monkeypatch.setattr("surefoot.dataset._SMALL", 1000)
    data = made(2000)
    train = prepare(data, 1500).train
    assert np.shares_memory(train._stored, data.x_train)
    one, other = train.take()[0], train.take()[0]
    assert one is other
    batch = train.take(torch.tensor([3, 1]))[0]
    assert torch.equal(batch, one[[3, 1]])
    assert batch.untyped_storage().nbytes() == 2 * 48 * 4
    del one, other
    assert train._inputs.get() is None


def test_subsets_are_disjoint_and_repeatable():
    data = made()
    one, two = prepare(data, 30, 20, 10, seed=3), prepare(data, 30, 20, 10, seed=3)
    assert torch.equal(one.train.take()[0], two.train.take()[0])
    assert not torch.equal(one.train.take()[0], prepare(data, 30, 20, 10, seed=4).train.take()[0])
    assert one.shape == (3, 4, 4)
    rows = {tuple(row.flatten().tolist()) for row in one.train.take()[0]}
    assert not rows & {tuple(row.flatten().tolist()) for row in one.val.take()[0]}
    first = prepare(data, 30, 20, order="first", standardise="none")
    assert torch.equal(first.train.labels, torch.arange(30) % 5)
    assert torch.allclose(first.train.take()[0][0], torch.tensor(data.x_train[0]).permute(2, 0, 1) / 255)


@pytest.mark.parametrize(("how", "axes"), [("feature", 0), ("channel", (0, 2, 3))])
def test_standardised(how, axes):
    x = prepare(made(), 40, standardise=how).train.take()[0].double()
    assert torch.allclose(x.mean(axes), torch.zeros(1).double(), atol=1e-6)
    assert torch.allclose(x.std(axes, correction=0), torch.ones(1).double(), atol=1e-5)


def test_features_that_never_vary_become_zero():
    x = load_set("digits", None)
    assert torch.isfinite(prepare(x, 50).train.take()[0]).all()


def test_noisy_labels():
    data = made(2000)
    clean, noisy = prepare(data), prepare(data, noisy=0.2)
    changed = (clean.train.labels != noisy.train.labels).float().mean()
    assert float(changed) == pytest.approx(0.2, abs=0.03)
    assert noisy.facts["noisy_labels"] == int((clean.train.labels != noisy.train.labels).sum())
    assert torch.equal(clean.test.labels, noisy.test.labels)


def test_misuse():
    data = made()
    for options, match in (
        ({"train": 61}, "train"),
        ({"train": 50, "val": 20}, "train"),
        ({"test": 21}, "test"),
        ({"order": "last"}, "order"),
        ({"standardise": "row"}, "standardise"),
        ({"noisy": 1.5}, "noisy"),
    ):
        with pytest.raises(BadInput, match=match):
            prepare(data, **options)
    with pytest.raises(BadInput, match="needs images"):
        prepare(made(shape=(7,)), standardise="channel")


def test_augmentation_by_position():
    images = torch.arange(2 * 3 * 6 * 6, dtype=torch.float32).reshape(2, 3, 6, 6) + 1
    one = crop_and_flip(images, seed=1, step=5, by=2)
    assert torch.equal(one, crop_and_flip(images, seed=1, step=5, by=2))
    assert not torch.equal(one, crop_and_flip(images, seed=1, step=6, by=2))
    assert one.shape == images.shape
    # Against a loop over images.
    source = generator(1, "augment", 5)
    down, right = (torch.randint(0, 5, (2,), generator=source) for _ in range(2))
    mirrored = torch.randint(0, 2, (2,), generator=source)
    wide = torch.nn.functional.pad(images, (2, 2, 2, 2))
    for index in range(2):
        cut = wide[index, :, down[index] : down[index] + 6, right[index] : right[index] + 6]
        assert torch.equal(one[index], cut.flip(2) if mirrored[index] else cut)


def splitmix(seed, step, row, column):
    """The same hash in Python's integers."""
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def mixed(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    start = mixed((derive(seed, "uniforms", step) + row * golden) & mask)
    return (mixed((start + (column + 1) * golden) & mask) >> 40) / 2**24


@settings(deadline=None)
@given(rows=st.lists(st.integers(0, 2**40), min_size=1, max_size=9), seed=st.integers(0, 9), step=st.integers(0, 9**9))
def test_uniforms_are_functions_of_seed_step_and_row(rows, seed, step):
    before = torch.get_rng_state()
    drawn = uniforms(seed, step, torch.tensor(rows), 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert drawn.tolist() == [[splitmix(seed, step, row, column) for column in range(3)] for row in rows]


def test_uniforms_are_uniform_and_independent():
    x = torch.stack([uniforms(0, step, torch.arange(5000), 4) for step in range(5)]).double()
    counts = torch.histc(x, 20, 0, 1)
    assert float(((counts - 5000) ** 2 / 5000).sum()) < 50  # chi-square of 19 degrees of freedom: p = 1e-4
    assert x.max() < 1
    columns = (x - 0.5).permute(1, 0, 2).reshape(5000, 20)
    together = columns.T @ columns / 5000 * 12  # of all steps and columns; each entry deviates by 0.014
    assert float((together - torch.eye(20)).abs().max()) < 0.07
    assert abs(float((columns[1:] * columns[:-1]).mean()) * 12) < 0.02  # of neighbouring rows


def test_seeds_are_those_of_every_machine():
    assert derive(0, "order", 0) == 3_471_081_512_423_777_433
    assert len({derive(seed, stream, step) for seed in range(5) for stream in "ab" for step in range(50)}) == 500
