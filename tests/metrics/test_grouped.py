"""States by group, and states of streams of batches."""

import datetime
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.metrics import CalibrationState, GroupedState, accumulate
from surefoot.predictions import Events

N = 200


def make(weights=None, kind="probability"):
    random = np.random.default_rng(3)
    prob = random.random(N)
    labels = (random.random(N) < prob).astype(int)
    groups = {
        "country": random.choice(["de", "fr", "it"], N),
        "year": random.integers(2020, 2023, N),
        "row": np.arange(N),
    }
    if kind == "classes":
        return Predictions(random.standard_normal((N, 3)), random.integers(0, 3, N), weights, groups=groups)
    return Predictions.from_probs(prob, labels, weights, groups=groups)


@pytest.mark.parametrize("kind", ["probability", "classes"])
def test_each_group_is_what_its_rows_alone_are(kind):
    p = make(kind=kind)
    state = GroupedState(("country", "year"), 10).update(p)
    assert list(state.states) == sorted(set(zip(p.groups["country"].tolist(), p.groups["year"].tolist(), strict=True)))
    for (country, year), values in state.compute().items():
        rows = p.take((p.groups["country"] == country) & (p.groups["year"] == year))
        assert values == CalibrationState(10).update(rows).compute()
        assert values["ece"] == metrics.ece(rows, 10)
        assert values["ece"].n == len(rows)
    assert state.n == N
    assert state.total.to_bytes() == CalibrationState(10).update(p).to_bytes()


@given(st.data())
def test_any_partition_gives_the_same_bits(data):
    w = data.draw(st.sampled_from([None, np.random.default_rng(0).random(N), np.arange(N) % 3]))
    p = make(w, data.draw(st.sampled_from(["probability", "classes"])))
    by = data.draw(st.sampled_from(["country", ("year", "country")]))
    largest = 1.0 if w is not None and w.dtype == float else None
    order = data.draw(st.randoms(use_true_random=False)).sample(range(len(p)), len(p))
    cuts = sorted(data.draw(st.lists(st.integers(1, len(p) - 1), unique=True, max_size=6)))
    parts = [p.take(rows) for rows in np.split(np.array(order), cuts)]
    middle = data.draw(st.integers(0, len(parts)))
    a, b = (accumulate(some, by=by, largest_weight=largest) for some in (parts[:middle], parts[middle:]))
    whole = accumulate([p], by=by, largest_weight=largest)
    for merged in (a.merge(b), b.merge(a)):
        assert merged.to_bytes() == whole.to_bytes()
        assert merged.compute() == whole.compute()
    assert whole.total.to_bytes() == accumulate([p], largest_weight=largest).to_bytes()


def test_values_of_groups_have_one_plain_form():
    days = np.array(["2026-11-19", "NaT", "2026-11-19", "2026-11-20"], "datetime64[D]")
    columns = {
        "float": [1.0, np.nan, 0.5, np.inf],
        "object": np.array([np.int64(1), None, float("nan"), "x"], object),
        "bool": [True, False, True, False],
        "day": days,
        "date": np.array([datetime.date(2026, 11, 19), None, b"a", 2.0], object),
    }
    p = Predictions.from_probs([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], groups=columns)
    keys = {name: [key[0] for key in GroupedState(name).update(p).states] for name in columns}
    assert keys["float"] == [0.5, 1, "inf", None]
    assert keys["object"] == [1, "x", None]
    assert keys["bool"] == [False, True]
    assert keys["day"] == ["2026-11-19", "2026-11-20", None]
    assert keys["date"] == [2, "2026-11-19", "b'a'", None]
    for name in columns:
        state = GroupedState(name).update(p)
        read = GroupedState.from_bytes(state.to_bytes())
        assert list(read.states) == list(state.states)
        assert read.compute() == state.compute()
    by_int, by_float = (
        GroupedState("a").update(Predictions.from_probs([0.5], [1], groups={"a": np.array([1], dtype)}))
        for dtype in (int, float)
    )
    assert by_int.to_bytes() == by_float.to_bytes()


def test_bad_groups_are_refused_and_change_nothing():
    p = make()
    state = GroupedState("country").update(p)
    before = state.to_bytes()
    weights = np.ones(N)
    weights[7] = 0.5
    bad = {
        r"'device' is not among them \('country', 'year', 'row'\)": lambda: GroupedState("device").update(p),
        r"makes 200 groups or more, and max_groups is 100": lambda: GroupedState("row", max_groups=100).update(p),
        "unless largest_weight is stated": lambda: state.update(make(weights)),
        "p must be Predictions": lambda: state.update(p.events()),
        "distinct names of columns; got \\(\\)": lambda: GroupedState(()),
        "got \\['a', 'a'\\]": lambda: GroupedState(["a", "a"]),
        "got 3": lambda: GroupedState(3),
        "bins must be": lambda: GroupedState("a", 0),
        "max_groups must be": lambda: GroupedState("a", max_groups=0),
        "with a GroupedState only": lambda: state.merge(state.total),
        "the same bins; got 15 and 10": lambda: state.merge(GroupedState("country", 10)),
        r"the same by; got \('country',\) and \('year',\)": lambda: state.merge(GroupedState("year")),
        "the same largest_weight": lambda: state.merge(GroupedState("country", largest_weight=2)),
        "numbers, text or dates": lambda: GroupedState("a").update(
            Predictions.from_probs([0.5, 0.5], [1, 0], groups={"a": np.array([[1], None], object)})
        ),
    }
    for match, call in bad.items():
        with pytest.raises(BadInput, match=match):
            call()
    assert state.to_bytes() == before
    halves = [GroupedState("row", max_groups=N // 2).update(p.take(rows)) for rows in np.split(np.arange(N), 2)]
    with pytest.raises(BadInput, match="makes 200 groups or more"):
        halves[0].merge(halves[1])
    with pytest.raises(BadInput, match="no rows"):
        GroupedState("country").compute()


def test_damaged_grouped_states_are_refused():
    text = GroupedState("country", 3).update(make()).to_bytes()

    def changed(change):
        data = json.loads(text)
        change(data)
        return data

    group = changed(lambda _: None)["groups"][0]
    for change, match in (
        (lambda d: d.pop("by"), "must have the fields"),
        (lambda d: d.update(format="surefoot.CalibrationState"), "of format surefoot.GroupedState"),
        (lambda d: d.update(by="country"), "by of a state must be a list"),
        (lambda d: d.update(event=3), "event a name or null"),
        (lambda d: d.update(groups={}), "groups of a state must be a list"),
        (lambda d: d["groups"].append(3), "fields group and state"),
        (lambda d: d["groups"].append(group), "repeated"),
        (lambda d: d["groups"][0].update(group=["de", 1]), "a value for each"),
        (lambda d: d["groups"][0].update(group=[[]]), "a value for each"),
        (lambda d: d["groups"][0]["state"].update(bins=4), "shape"),
        (lambda d: d.update(bins=4), "same bins"),
        (lambda d: d.update(max_groups=2), "max_groups is 2"),
    ):
        with pytest.raises(BadInput, match=match):
            GroupedState.from_dict(changed(change))


def test_batches_are_read_one_at_a_time():
    p, alive = make(), []

    def batches():
        for rows in np.array_split(np.arange(N), 7):
            alive.append(rows)
            yield p.take(rows)

    stream = batches()
    next(stream)
    assert len(alive) == 1
    assert accumulate(batches()).to_bytes() == CalibrationState().update(p).to_bytes()
    assert accumulate([], by="country").n == accumulate(iter(())).n == 0
    assert accumulate([Events([0.5], [1])], bins=3).compute()["gap"] == -0.5


def test_the_batch_that_is_refused_is_named():
    p = make()
    with pytest.raises(BadInput, match="batch 1: p must be Predictions"):
        accumulate([p, None])
    for wrong in (p, p.events(), None, 3):
        with pytest.raises(BadInput, match="batches must be an iterable of Predictions"):
            accumulate(wrong)
