import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import log_softmax, softmax

from surefoot import Predictions
from surefoot.errors import BadInput
from tests.conftest import random_predictions

LOGITS = hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(2, 6)), elements=st.floats(-60, 60))


def of(logits, seed=0):
    labels = np.random.default_rng(seed).integers(0, logits.shape[1], len(logits))
    try:
        return Predictions(logits, labels)
    except BadInput:  # the rare draw whose rows all sum to one
        return Predictions(logits + 1, labels)


@given(LOGITS)
def test_columns_equal_their_definitions(logits):
    p = of(logits)
    z, rows = np.asarray(p.logits), np.arange(len(p))
    expected = log_softmax(z, axis=1)
    np.testing.assert_allclose(p.log_probs, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(p.probs, np.exp(expected), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(p.confidence, p.probs.max(1), rtol=1e-14)
    np.testing.assert_allclose(p.log_true, expected[rows, p.labels], rtol=1e-12, atol=1e-12)
    assert (p.predicted == z.argmax(1)).all()
    assert (p.correct == (z.argmax(1) == p.labels)).all()
    top = np.sort(z, axis=1)
    assert (p.predicted_margin == top[:, -1] - top[:, -2]).all()
    others = np.where(np.eye(p.classes, dtype=bool)[p.labels], -np.inf, z)
    assert (p.true_margin == z[rows, p.labels] - others.max(1)).all()
    onehot = np.eye(p.classes)[p.labels]
    np.testing.assert_allclose(p.squared_error, ((p.probs - onehot) ** 2).sum(1), atol=1e-14)


@given(LOGITS)
def test_doubt_is_what_confidence_leaves(logits):
    p = of(logits)
    np.testing.assert_allclose(p.error_probability, -np.expm1(p.log_confidence), rtol=1e-10, atol=1e-300)


def test_saturated_confidences_keep_their_order():
    p = Predictions([[40.0, 0.0], [50.0, 0.0], [300.0, 0.0]], [0, 0, 0])
    assert (p.confidence == 1).all()
    np.testing.assert_allclose(p.error_probability, np.exp([-40.0, -50.0, -300.0]), rtol=1e-12)
    np.testing.assert_allclose(p.log_confidence, -np.exp([-40.0, -50.0, -300.0]), rtol=1e-12)


@pytest.mark.parametrize("size", [1e4, 1e38, 1e300])
def test_huge_logits_have_exact_margins(size):
    p = Predictions([[size, -size, 0.0], [0.0, size, -size]], [0, 2])
    assert p.confidence.tolist() == [1.0, 1.0]
    assert p.true_margin.tolist() == [size, -2 * size]
    assert np.isfinite(p.squared_error).all()


def test_minus_infinity_is_the_exact_limit():
    p = Predictions([[0.0, -np.inf, 0.0], [1.0, 0.0, -np.inf], [0.0, -np.inf, -np.inf]], [0, 2, 0])
    np.testing.assert_allclose(p.probs[0], [0.5, 0, 0.5])
    assert p.log_true[1] == -np.inf
    assert p.true_margin[1] == -np.inf
    assert p.true_margin[2] == np.inf
    assert p.confidence[2] == 1
    assert p.error_probability[2] == 0
    np.testing.assert_allclose(p.squared_error[1], (p.probs[1, :2] ** 2).sum() + 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_any_dtype_equals_casting_first(dtype):
    logits = np.random.default_rng(0).normal(0, 4, (200, 7)).astype(dtype)
    labels = np.random.default_rng(1).integers(0, 7, 200).astype(np.int16)
    a, b = Predictions(logits, labels), Predictions(logits.astype(np.float64), labels)
    for column in ("confidence", "log_true", "true_margin", "predicted_margin", "squared_error", "error_probability"):
        assert (getattr(a, column) == getattr(b, column)).all()
        assert getattr(a, column).dtype == np.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_equal_casting_first(dtype):
    logits = torch.randn(100, 5, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    labels = torch.arange(100) % 5
    a, b = Predictions(logits, labels), Predictions(logits.detach().double().numpy(), labels.numpy())
    assert (a.confidence == b.confidence).all()
    probs = torch.softmax(logits.detach().double(), 1).to(dtype)
    c = Predictions.from_probs(probs, labels)
    # Normalised first: rows rounded to bfloat16 are too far from summing to one to be taken as float64.
    exact = probs.double() / probs.double().sum(1, keepdim=True)
    np.testing.assert_allclose(c.confidence, exact.max(1).values, rtol=1e-15)


def test_half_precision_does_not_saturate():
    p = Predictions(np.array([[9.0, 0.0]], np.float16), [0])
    assert p.confidence[0] < 1


def test_inputs_are_not_changed_and_not_copied():
    logits, labels = np.random.default_rng(0).normal(size=(50, 3)), np.zeros(50, np.int64)
    before = logits.copy()
    p = Predictions(logits, labels)
    assert p.probs.shape == p.log_probs.shape == (50, 3)
    assert (logits == before).all()
    assert labels.flags.writeable
    assert np.shares_memory(p.logits, logits)


def test_memory_mapped_logits(tmp_path):
    logits = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    np.save(tmp_path / "z.npy", logits)
    mapped = np.load(tmp_path / "z.npy", mmap_mode="r")
    labels = np.arange(300) % 4
    assert (Predictions(mapped, labels).confidence == Predictions(logits, labels).confidence).all()


def test_columns_cannot_be_written(p):
    with pytest.raises(ValueError, match="read-only"):
        p.confidence[0] = 0.5


def test_probabilities_are_kept_to_the_bit():
    probs = np.array([[0.2, 0.2, 0.2, 0.2, 0.2], [0.9, 0.1, 0, 0, 0], [1, 0, 0, 0, 0]])
    p = Predictions.from_probs(probs, [0, 1, 4])
    assert (p.probs == probs).all()
    assert p.confidence.tolist() == [0.2, 0.9, 1.0]
    assert p.log_true[2] == -np.inf


def test_probabilities_rounded_in_a_file_are_divided_by_their_sum():
    p = Predictions.from_probs([[0.3333, 0.3333, 0.3333]], [0])
    np.testing.assert_allclose(p.probs, 1 / 3, rtol=1e-15)


def test_decimals_of_a_file_are_taken():
    for decimals, k in [(3, 10), (2, 10), (4, 1000)]:
        probs = np.random.default_rng(0).dirichlet(np.ones(k), 200).round(decimals)
        probs = probs[np.abs(probs.sum(1) - 1) <= 1e-2 + 1e-9]
        assert (np.abs(probs.sum(1) - 1) > 1e-3).any()
        p = Predictions.from_probs(probs, np.zeros(len(probs), int))
        np.testing.assert_allclose(p.probs.sum(1), 1, rtol=1e-12)


def test_probs_and_logits_agree():
    a = random_predictions(400, 6)
    b = Predictions.from_probs(a.probs, a.labels)
    for column in ("confidence", "log_true", "true_margin", "squared_error"):
        np.testing.assert_allclose(getattr(a, column), getattr(b, column), rtol=1e-9, atol=1e-12)


def test_ties_of_the_largest_logit_go_to_the_lowest_index():
    p = Predictions([[1.0, 1.0, 0.0]], [1])
    assert p.predicted[0] == 0
    assert not p.correct[0]
    assert p.true_margin[0] == 0
    assert p.predicted_margin[0] == 0


def test_take_gives_the_rows_in_order(p):
    rows = np.array([5, 5, 0, 499])
    q = p.take(rows)
    fresh = Predictions(np.asarray(p.logits)[rows], p.labels[rows])
    for column in ("labels", "confidence", "correct", "true_margin"):
        assert (getattr(q, column) == getattr(fresh, column)).all()
    assert (q.probs == fresh.probs).all()
    assert (q.take([1, 3]).confidence == fresh.confidence[[1, 3]]).all()
    assert len(p.take(p.correct)) == p.correct.sum()
    for rows in ([], [500], [0.5], np.ones(3, bool), "abc", (1, 2)):
        with pytest.raises(BadInput, match="rows"):
            p.take(rows)


def test_many_blocks_and_threads_equal_one_softmax():
    random = np.random.default_rng(3)
    logits = random.normal(size=(3000, 200)).astype(np.float32)
    p = Predictions(logits, random.integers(0, 200, 3000))
    expected = softmax(logits.astype(np.float64), axis=1)
    np.testing.assert_allclose(p.confidence, expected.max(1), rtol=1e-13)
    np.testing.assert_allclose(p.probs, expected, rtol=1e-12)


def test_of_leaves_the_model_as_it_was():
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)
    )
    model[1].eval()
    model[3].weight.grad = torch.ones_like(model[3].weight)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, labels = torch.randn(10, 4), torch.arange(10) % 3
    state = torch.get_rng_state()
    p = Predictions.of(model, inputs, labels, batch_size=3)
    assert torch.equal(state, torch.get_rng_state())
    assert [m.training for m in model] == [True, False, True, True]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert (model[3].weight.grad == 1).all()
    model.eval()
    np.testing.assert_allclose(p.logits, model(inputs).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, "4", None])
def test_of_refuses_an_odd_batch(batch_size):
    with pytest.raises(BadInput, match="batch_size"):
        Predictions.of(torch.nn.Linear(2, 2), torch.zeros(3, 2), [0, 0, 0], batch_size=batch_size)


def test_of_refuses_odd_models_and_takes_any_dtype():
    class Two(torch.nn.Module):
        def forward(self, x):
            return x, x

    inputs = np.zeros((3, 2))
    assert Predictions.of(torch.nn.Linear(2, 2), inputs, [0, 0, 0]).classes == 2
    for model, labels, says in [
        (Two(), [0, 0, 0], "logits of shape"),
        (torch.nn.Flatten(0), [0, 0, 0], "logits of shape"),
        (lambda x: x, [0, 0, 0], "torch.nn.Module"),
        (torch.nn.Linear(2, 2), [0, 0], "one per input"),
    ]:
        with pytest.raises(BadInput, match=says):
            Predictions.of(model, inputs, labels)


def test_a_confidence_never_exceeds_one():
    p = Predictions.from_probs(np.concatenate([np.full((3, 1), 1 + 8e-13), np.zeros((3, 4999))], 1), [0, 0, 1])
    assert p.confidence.tolist() == [1.0, 1.0, 1.0]
