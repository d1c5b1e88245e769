from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.metrics.bins import equal_width
from surefoot.predictions import Events

from ..conftest import random_predictions


def test_any_split_and_merge_gives_the_same_bits():
    p = random_predictions(5000, 4)
    whole = metrics.CalibrationState(10).update(p)
    random = np.random.default_rng(0)
    order = random.permutation(5000)
    state = metrics.CalibrationState(10)
    for rows in np.array_split(order, 37):
        state = metrics.CalibrationState(10).update(p.take(rows)).merge(state)
    assert (state.sums == whole.sums).all()
    assert state.compute() == whole.compute()


def test_equals_the_metrics_of_all_rows_at_once():
    p = random_predictions(3000, 5)
    found = metrics.CalibrationState().update(p).compute()
    for name in ("ece", "mce", "rmsce", "accuracy"):
        assert found[name] == getattr(metrics, name)(p)
        assert found[name].n == 3000
    np.testing.assert_allclose(found["confidence"], p.confidence.mean(), rtol=1e-13)


def test_the_state_is_an_array_that_ranks_can_add():
    p = random_predictions(1000, 3)
    ranks = [metrics.CalibrationState().update(p.take(slice(r, None, 4))).sums for r in range(4)]
    total = metrics.CalibrationState(15, np.sum(ranks, axis=0))
    assert total.compute()["ece"] == metrics.ece(p)
    assert total.sums.nbytes == 4 * 15 * 8


def test_bad_use(p):
    with pytest.raises(BadInput, match="no rows"):
        metrics.CalibrationState().compute()
    with pytest.raises(BadInput, match="same bins"):
        metrics.CalibrationState(10).merge(metrics.CalibrationState(15))
    with pytest.raises(BadInput, match="sums must be"):
        metrics.CalibrationState(10, np.zeros((4, 9), int))
    with pytest.raises(BadInput, match="sums must be"):
        metrics.CalibrationState(10, np.zeros((4, 10)))
    for sums in ([[1, 0], [5, 0], [0, 0], [0, 0]], [[-1, 0], [0, 0], [0, 0], [0, 0]]):
        with pytest.raises(BadInput, match="not of a state"):
            metrics.CalibrationState(2, sums)
    with pytest.raises(BadInput, match="CalibrationState only"):
        metrics.CalibrationState().merge(None)
    assert metrics.CalibrationState(15, metrics.CalibrationState().update(p).sums.astype(np.uint64)).n == 500


# --- every kind of predictions, weighted or not -------------------------------------------------------------------

N = 300


def draws(seed=0):
    random = np.random.default_rng(seed)
    logits = 2 * random.standard_normal((N, 4))
    labels = (logits / 1.5 + random.gumbel(size=(N, 4))).argmax(1)
    # A tenth on the edges of bins, and 0 and 1 themselves.
    prob = np.where(random.random(N) < 0.1, random.integers(0, 11, N) / 10, random.beta(1, 2, N))
    return random, logits, labels, prob, (random.random(N) < prob).astype(int)


def make(kind, weights=None):
    random, logits, labels, prob, happened = draws()
    if kind == "logits":
        return Predictions(logits, labels, weights)
    if kind == "soft":
        return Predictions(logits, random.dirichlet(np.ones(4), N), weights)
    if kind == "probability":
        return Predictions.from_probs(prob, happened, weights)
    if kind == "logit":
        return Predictions(logits[:, 0] - logits[:, 1], happened, weights)
    if kind == "confidence":
        return Predictions.from_confidence(prob, happened, weights)
    assert kind == "multilabel"
    missing = random.random((N, 2)) < 0.1
    pairs = np.stack([prob, 1 - prob], 1), np.where(missing, -1, np.stack([happened, happened], 1))
    return Predictions.multilabel(*pairs, weights, names=["a", "b"])


KINDS = {
    "logits": (None, "positive class 2", "pooled"),
    "soft": (None, "pooled"),
    "probability": (None, "top", "pooled"),
    "logit": (None,),
    "confidence": (None,),
    "multilabel": (None, "b"),
}
CASES = [(kind, 2 if event == "positive class 2" else event) for kind, events in KINDS.items() for event in events]
WEIGHTS = {
    "none": None,
    "ones": np.ones(N),
    "counts": np.random.default_rng(1).integers(0, 4, N),
    "large": np.random.default_rng(1).integers(1, 1 << 39, N),
    "real": np.random.default_rng(1).exponential(size=N),
    "mixed": np.where(np.arange(N) % 3, 2.0, np.random.default_rng(2).random(N)),
}
BINNED = ("ece", "mce", "rmsce", "gap", "over_confidence", "under_confidence")


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("kind", "event"), CASES)
def test_equals_the_metrics_of_all_rows_for_every_kind(kind, event, weights):
    w = WEIGHTS[weights]
    p = make(kind, w)
    largest = None if weights in ("none", "ones", "counts", "large") else w.max()
    state = metrics.CalibrationState(12, largest_weight=largest).update(p, event)
    found = state.compute()
    e = p.events(event)
    for name in BINNED:
        args = {} if name == "gap" else {"bins": 12}
        expected = getattr(metrics, name)(p, event=event, **args)
        assert found[name] == expected, name
        facts = {**expected.facts}
        if "total_weight" in facts:
            np.testing.assert_allclose(found[name].facts.pop("total_weight"), facts.pop("total_weight"), rtol=1e-10)
        assert found[name].facts == facts
    assert state.n == len(e)
    table, whole = state.table, equal_width(e, 12)
    for column in ("lower", "upper", "count", "confidence", "accuracy", "residual", "weight"):
        np.testing.assert_array_equal(getattr(table, column), getattr(whole, column))
    if whole.squares is not None and w is not None:
        np.testing.assert_allclose(table.squares, whole.squares, rtol=1e-10)
    if (kind, event) != ("multilabel", "b"):
        for name in ("nll", "brier", "accuracy"):
            np.testing.assert_allclose(found[name], getattr(metrics, name)(p), rtol=1e-10)
        assert found["nll"].impossible == metrics.nll(p).impossible
        assert found["brier"].range == metrics.brier(p).range
    names = ("accuracy", "confidence") if e.name in ("top", "given") else ("positive_rate", "mean_prob")
    np.testing.assert_allclose(found[names[0]], np.average(e.happened, weights=e.weight), rtol=1e-10)
    np.testing.assert_allclose(found[names[1]], np.average(e.prob, weights=e.weight), rtol=1e-10)


@given(st.data())
def test_any_partition_order_and_tree_of_merges_gives_the_same_bits(data):
    kind, event = data.draw(st.sampled_from(CASES))
    weights = data.draw(st.sampled_from(list(WEIGHTS)))
    p = make(kind, WEIGHTS[weights])
    largest = None if WEIGHTS[weights] is None else float(np.max(WEIGHTS[weights]))
    if weights not in ("real", "mixed") and data.draw(st.booleans()):
        largest = None

    def fresh():
        return metrics.CalibrationState(7, largest_weight=largest, event=event)

    order = data.draw(st.randoms(use_true_random=False)).sample(range(len(p)), len(p))
    cuts = sorted(data.draw(st.lists(st.integers(1, len(p) - 1), unique=True, max_size=12)))
    states = [fresh()]
    for rows in np.split(np.array(order), cuts):
        if data.draw(st.booleans()):
            states[-1].update(p.take(rows))
        else:
            states.append(fresh().update(p.take(rows)))
    while len(states) > 1:
        a = states.pop(data.draw(st.integers(0, len(states) - 1)))
        b = states.pop(data.draw(st.integers(0, len(states) - 1)))
        states.append(a.merge(b))
    whole = fresh().update(p)
    for name, array in whole.arrays.items():
        assert array.dtype == np.int64
        assert (states[0].arrays[name] == array).all(), name
    assert states[0].compute() == whole.compute()
    assert states[0].to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_integer_weights_equal_repeated_rows(kind):
    w = WEIGHTS["counts"]
    rows = np.repeat(np.arange(N), w)
    if kind == "multilabel":
        present = make(kind, np.arange(1, N + 1)).weights.astype(int) - 1  # the example of each entry
        p = make(kind).take(np.repeat(np.arange(len(present)), w[present]))
    else:
        p = make(kind).take(rows)
    weighted, repeated = (metrics.CalibrationState().update(each).compute() for each in (make(kind, w), p))
    assert weighted == repeated


def test_integer_weights_stay_exact_where_a_largest_weight_is_stated():
    p = make("probability", WEIGHTS["counts"])
    stated = metrics.CalibrationState(largest_weight=3).update(p)
    assert stated.compute() == metrics.CalibrationState().update(p).compute()
    assert stated.compute()["ece"].weights == "repetitions"
    assert stated.update(make("probability", WEIGHTS["real"] / 10)).compute()["ece"].weights == "importance"


def test_real_weights_are_within_the_stated_bound():
    w = WEIGHTS["real"]
    p = make("probability", w)
    e = p.events()
    found = metrics.CalibrationState(largest_weight=50.0).update(p).compute()
    exact = [Fraction(weight) for weight in w.tolist()]
    gap = sum(a * Fraction(float(z)) for a, z in zip(exact, -e.residual, strict=True)) / sum(exact)
    bound = 2 * N * 50.0 * 2.0**-41 / float(sum(exact)) + 1e-15
    assert 0 < abs(found["gap"] - gap) < bound


def test_the_rows_of_one_probability_are_read_as_their_events_are():
    p = make("probability")
    assert (metrics.CalibrationState().update(p).sums == metrics.CalibrationState().update(p.events()).sums).all()
    half = Predictions.from_probs(p.events().prob.astype(np.float32), p.labels).take(slice(20, 200))
    by_event = metrics.CalibrationState().update(half.events())
    assert metrics.CalibrationState().update(half).to_bytes() == by_event.to_bytes()
    negative = Predictions.from_probs(p.events().prob, p.labels, names=["no", "yes"], positive="no")
    by_event = metrics.CalibrationState().update(negative.events())
    assert (metrics.CalibrationState().update(negative).sums == by_event.sums).all()
    flipped = Predictions.from_probs(p.events().prob, ["no" if y else "yes" for y in p.labels], positive="no")
    assert metrics.CalibrationState().update(flipped).compute() == metrics.CalibrationState().update(p).compute()


def test_many_rows_pass_several_blocks():
    random = np.random.default_rng(0)
    prob = random.random(70_000)
    e = Events(prob, random.random(70_000) < prob**2, name="positive")
    soft = Events(prob, np.where(prob > 2, 0.5, e.happened.astype(float)), weight=np.full(70_000, 2))
    found = metrics.CalibrationState().update(e).compute()
    assert found["nll"] == metrics.CalibrationState(event="given").update(soft).compute()["nll"]
    exact = -np.log(np.where(e.happened, prob, 1 - prob)).astype(np.longdouble).mean()
    np.testing.assert_allclose(found["nll"], float(exact), rtol=1e-15)
    np.testing.assert_allclose(found["brier"], (e.residual**2).mean(), rtol=1e-14)
    np.testing.assert_allclose(found["accuracy"], ((prob > 0.5) == e.happened).mean(), rtol=1e-15)


def test_impossible_outcomes_are_counted_apart():
    state = metrics.CalibrationState().update(Events([0.0, 0.5, 1.0], [1, 1, 1]))
    found = state.compute()["nll"]
    assert (found, found.impossible) == (np.inf, 1)
    weighted = metrics.CalibrationState(largest_weight=0.5).update(Events([0.0, 1.0], [1, 1], weight=[0.5, 0.25]))
    assert (weighted.compute()["nll"], weighted.compute()["nll"].impossible) == (np.inf, 1)
    sure = metrics.CalibrationState().update(Events([0.0, 1.0], [0.0, 1.0], weight=[2, 3])).compute()["nll"]
    assert (sure, sure.impossible) == (0.0, 0)


def test_ranks_add_the_arrays_in_place():
    p = make("logits", WEIGHTS["mixed"])
    whole, *ranks = (metrics.CalibrationState(largest_weight=2) for _ in range(4))
    whole.update(p)
    for rank, state in enumerate(ranks):
        state.update(p.take(slice(rank, None, 3)))
    for name, array in ranks[0].arrays.items():
        array += ranks[1].arrays[name] + ranks[2].arrays[name]
    assert ranks[0].compute() == whole.compute()
    assert ranks[0].to_bytes() == whole.to_bytes()


def test_a_class_is_chosen_once():
    p = make("logits")
    half = p.take(slice(0, 100)), p.take(slice(100, None))
    whole = metrics.CalibrationState(event=2).update(p)
    assert metrics.CalibrationState().update(half[0], 2).update(half[1]).to_bytes() == whole.to_bytes()
    named = Predictions(p.logits, p.labels, names=["a", "b", "2", "c"])
    assert metrics.CalibrationState(event="2").update(named).compute()["ece"] == metrics.ece(p, event=2)


def test_a_state_of_sums_knows_no_scores():
    p = make("logits")
    sums = metrics.CalibrationState().update(p).sums
    found = metrics.CalibrationState(15, sums).compute()
    assert found["ece"] == metrics.ece(p)
    assert "nll" not in found
    assert "nll" not in metrics.CalibrationState(15, sums).update(p).compute()
    assert "accuracy" not in metrics.CalibrationState(15, sums, event="positive").compute()


def test_bad_rows_are_refused_and_change_nothing():
    real = make("logits", WEIGHTS["real"])
    state = metrics.CalibrationState().update(make("logits"))
    before = state.to_bytes()
    for bad, match in (
        (real, "integers below .* unless largest_weight is stated; event 0 has"),
        (make("probability"), "all classes, and cannot take binary events"),
        (make("probability").events(), "state holds events 'top'; it cannot take events 'positive'"),
        (Events([0.5], [1], name="top"), "cannot take binary events"),
        (Events([0.5], [1]), "cannot take events 'given'"),
        (None, "p must be Predictions"),
    ):
        with pytest.raises(BadInput, match=match):
            state.update(bad)
    with pytest.raises(BadInput, match="with a table of events"):
        state.update(Events([0.5], [1]), "top")
    with pytest.raises(BadInput, match=r"at most largest_weight=1; event \d+ has"):
        metrics.CalibrationState(largest_weight=1).update(real)
    with pytest.raises(BadInput, match="has none, which counts as 1"):
        metrics.CalibrationState(largest_weight=0.5).update(make("logits"))
    with pytest.raises(BadInput, match="largest_weight must be"):
        metrics.CalibrationState(largest_weight=0)
    with pytest.raises(BadInput, match="leave out largest_weight"):
        metrics.CalibrationState(15, state.sums, largest_weight=2)
    for other, match in (
        (metrics.CalibrationState(largest_weight=2), "same largest_weight"),
        (metrics.CalibrationState().update(make("probability")), "same events; got positive and top"),
        (metrics.CalibrationState().update(Events([0.5], [1], name="top")), "their Brier scores differ"),
    ):
        with pytest.raises(BadInput, match=match):
            state.merge(other)
    assert state.to_bytes() == before
    nothing = Events([0.5], [1], weight=[1]).take([False])
    assert metrics.CalibrationState().update(nothing).n == 0


# --- states as text -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", WEIGHTS)
def test_states_are_read_as_they_were_written(weights):
    w = WEIGHTS[weights]
    largest = 1e12 if weights in ("real", "mixed", "large") else None
    state = metrics.CalibrationState(largest_weight=largest).update(make("logits", w))
    read = metrics.CalibrationState.from_bytes(state.to_bytes())
    assert read.compute() == state.compute()
    assert all((read.arrays[name] == array).all() for name, array in state.arrays.items())
    assert read.update(make("logits", w)).to_bytes() == state.merge(state).to_bytes()
    assert metrics.CalibrationState.from_bytes(metrics.CalibrationState().to_bytes()).n == 0


def tampered(path, value):
    data = metrics.CalibrationState(3, largest_weight=2).update(make("logits", WEIGHTS["counts"] / 2)).to_dict()
    *way, last = path
    part = data
    for key in way:
        part = part[key]
    part[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        (["format"], "other", "of format surefoot.CalibrationState"),
        (["version"], 2, "version 1"),
        (["version"], True, "version 1"),
        (["bins"], "3", "bins must be"),
        (["bins"], 4, "shape"),
        (["largest_weight"], None, "shape"),
        (["largest_weight"], float("nan"), "largest_weight must be"),
        (["largest_weight"], "2", "largest_weight must be"),
        (["event"], 2, "event of a state"),
        (["more"], 2, "must have the fields"),
        (["sums"], None, "sums of a state must be"),
        (["sums", 0, 0], 0.5, "sums of a state must be integers of shape"),
        (["sums", 0, 0], True, "integers of shape"),
        (["sums", 0, 0], 1 << 63, r"integers from 0 to 2\*\*63"),
        (["sums", 0], [1], "sums of a state must be"),
        (["sums", 0, 0], -1, "integers from 0"),
        (["sums", 1, 1], 1 << 40, "more hits than rows"),
        (["sums", 2, 1], 1 << 40, "probabilities exceed 1"),
        (["sums", 3, 1], 1 << 40, "not carried"),
        (["cells", 1, 1, 4, 0], 1, "exceed their weights"),
        (["cells", 1, 4, 4, 0], 1, "exceed their weights"),
        (["cells", 0, 1, 0, 0], 1 << 33, "not carried"),
        (["cells"], None, "integer weights are more"),
        (["totals", 1, 3, 9], 1, "scores exceed their weights"),
        (["totals", 1, 2, 9], 1, "scores exceed their weights"),
        (["totals", 0, 0, 34], -1, "integers from 0"),
        (["counts", 1, 1], 1, "contradict"),
        (["counts", 1, 2], 1 << 20, "contradict"),
    ],
)
def test_damaged_states_are_refused(path, value, match):
    with pytest.raises(BadInput, match=match):
        metrics.CalibrationState.from_dict(tampered(path, value))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", "[" * 100_000, None, 3, b'{"format": 1}'])
def test_what_is_no_state_is_refused(data):
    with pytest.raises(BadInput, match="state"):
        metrics.CalibrationState.from_bytes(data)
