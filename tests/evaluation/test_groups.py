"""Calibration by group: values against the rows of each group, and the error rates of the tests."""

import json

import numpy as np
import pytest
from scipy.special import expit, logit

import surefoot as sf
from surefoot import Predictions
from surefoot.errors import BadInput
from surefoot.evaluation import by_group
from surefoot.metrics.gap import gap_interval

from ..conftest import random_predictions, surefoot


def grouped(n=600, k=3, seed=0, **columns):
    """Overconfident predictions with the groups a, b and c of 1/2, 1/3 and 1/6 of the rows."""
    p = random_predictions(n, k, seed, sharp=1.5)
    name = np.repeat(["a", "b", "c"], [n // 2, n // 3, n // 6])
    return Predictions(np.array(p.logits), p.labels, groups={"name": name, "half": np.arange(n) % 2}, **columns)


def test_each_group_is_what_its_rows_show():
    p = grouped()
    found = by_group(p, ["name", "half"], bins=10, level=0.9, seed=4)
    assert [(g.column, g.value, g.n) for g in found.groups] == [
        ("name", "a", 300), ("name", "b", 200), ("name", "c", 100), ("half", "0", 300), ("half", "1", 300),
    ]  # fmt: skip
    for group in found.groups:
        q = p.take(p.groups[group.column].astype(str) == group.value)
        assert group.gap == pytest.approx(sf.metrics.gap(q), abs=1e-12)
        assert (group.gap_low, group.gap_high) == pytest.approx(gap_interval(q.events(), 0.9))
        assert group.ece == pytest.approx(sf.metrics.ece(q, 10), abs=1e-12)
        expected = sf.metrics.intervals({"ece": sf.metrics.metrics_table(10)["ece"]}, q, 0.9, seed=4)["ece"]
        assert (group.ece_low, group.ece_high) == pytest.approx(expected, abs=1e-9)
        accuracy = sf.metrics.interval(sf.metrics.accuracy, q, 0.9)
        assert group.accuracy == sf.metrics.accuracy(q)
        assert (group.accuracy_low, group.accuracy_high) == pytest.approx(accuracy)
        assert group.confidence == pytest.approx(sf.metrics.mean_confidence(q))


def test_integer_weights_are_counted_and_never_independent():
    p, times = grouped(120), np.random.default_rng(0).integers(1, 4, 120)
    weighted = grouped(120, weights=times)
    repeated = p.take(np.repeat(np.arange(120), times))
    one, other = by_group(weighted, "name"), by_group(repeated, "name")
    for a, b in zip(one.groups, other.groups, strict=True):
        assert (a.weight, a.gap, a.ece, a.accuracy) == pytest.approx((b.n, b.gap, b.ece, b.accuracy))
        assert a.n < b.n
        assert a.gap_high - a.gap_low > b.gap_high - b.gap_low


def test_clusters_widen_intervals():
    n = 480
    p, q = grouped(n), grouped(n, clusters=np.arange(n) // 4)
    for a, b in zip(by_group(p, "name").groups, by_group(q, "name").groups, strict=True):
        assert (a.gap, a.ece) == (b.gap, b.ece)
    # Copies of a row are one row: each interval must be as wide as that of the rows without copies.
    copies = Predictions(
        np.repeat(np.array(p.logits), 4, axis=0), np.repeat(p.labels, 4), clusters=np.repeat(np.arange(n), 4),
        groups={"name": np.repeat(p.groups["name"], 4)},
    )  # fmt: skip
    for a, b in zip(by_group(p, "name").groups, by_group(copies, "name").groups, strict=True):
        assert (b.ece_low, b.ece_high) == pytest.approx((a.ece_low, a.ece_high))
        assert b.gap_high - b.gap_low == pytest.approx(a.gap_high - a.gap_low, rel=0.1)
        assert b.p_value == pytest.approx(a.p_value, abs=0.05)


def simulated(kind, truth, sizes, random):
    c = {
        "top": lambda n: 0.5 + 0.5 * random.beta(4, 1, n),
        "sharp": lambda n: 1 - 0.05 * random.random(n),
        "positive": lambda n: expit(random.normal(0, 2, n)),
    }[kind](sum(sizes))
    share = {"calibrated": c, "same error": expit(logit(np.clip(c, 1e-9, 1 - 1e-9)) / 2)}[truth]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return c, random.random(len(c)) < share, owner


def rates(sets, kind, truth, sizes, clusters=None, seed=0):
    """Shares of data sets in which groups differ, and in which any group has a gap."""
    random, differ, worst = np.random.default_rng(seed), 0, 0
    for _ in range(sets):
        c, happened, owner = simulated(kind, truth, sizes, random)
        p = Predictions.from_confidence(c, happened, groups={"g": owner}, clusters=clusters)
        found = by_group(p, "g", bins=1)
        differ += found.tests[0].p_value < 0.05
        worst += min(g.smallest for g in found.groups) < 0.05
    return differ / sets, worst / sets


@pytest.mark.parametrize(
    ("kind", "truth", "size", "sets"),
    [
        ("top", "calibrated", 30, 100),
        ("sharp", "same error", 30, 100),
        *(
            pytest.param(kind, truth, size, 300, marks=pytest.mark.slow)
            for kind in ("top", "sharp", "positive")
            for truth in ("calibrated", "same error")
            for size in (30, 100)
        ),
    ],
)
def test_equal_groups_are_seldom_called_different(kind, truth, size, sets):
    differ, worst = rates(sets, kind, truth, [size] * 20)
    slack = 3 * np.sqrt(0.05 * 0.95 / sets)
    assert differ <= 0.05 + slack
    if truth == "calibrated":
        assert worst <= 0.05 + slack


@pytest.mark.parametrize(
    ("per_group", "sets"),
    [(3, 30), pytest.param(3, 150, marks=pytest.mark.slow), pytest.param(15, 150, marks=pytest.mark.slow)],
)
def test_clusters_keep_the_error_rate(per_group, sets):
    """Rows of a cluster share an offset on the log-odds; every cluster has rows in one group."""
    random, differ, worst = np.random.default_rng(1), 0, 0
    for _ in range(sets):
        owner = np.repeat(np.arange(8), per_group * 20)
        cluster = np.arange(len(owner)) // 20
        c = expit(random.normal(0, 1, len(owner)))
        # The mean over the offsets is the stated probability, up to the curvature of the logistic function.
        share = np.clip(c + random.normal(0, 0.15, cluster.max() + 1)[cluster] * 4 * c * (1 - c) / 2, 0, 1)
        happened = random.random(len(c)) < share
        found = by_group(Predictions.from_confidence(c, happened, groups={"g": owner}, clusters=cluster), "g", bins=1)
        differ += found.tests[0].p_value < 0.05
        worst += min(g.smallest for g in found.groups) < 0.05
    slack = 3 * np.sqrt(0.05 * 0.95 / sets)
    assert differ / sets <= 0.05 + slack
    assert worst / sets <= 0.05 + slack


@pytest.mark.parametrize("sets", [25, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "clusters"), [("top", 20), ("sharp", 60)])
def test_few_clusters_of_confident_rows_are_seldom_accused(kind, clusters, sets):
    """Five copies of each row: a group in which nothing went wrong has small sums over clusters."""
    random, differ, worst = np.random.default_rng(2), 0, 0
    for _ in range(sets):
        c, happened, owner = simulated(kind, "calibrated", [clusters] * 8, random)
        rows = np.repeat(np.arange(len(c)), 5)
        p = Predictions.from_confidence(c[rows], happened[rows], groups={"g": owner[rows]}, clusters=rows)
        found = by_group(p, "g", bins=1)
        differ += found.tests[0].p_value < 0.05
        worst += min(g.smallest for g in found.groups) < 0.05
    slack = 3 * np.sqrt(0.05 * 0.95 / sets)
    assert differ / sets <= 0.05 + slack
    assert worst / sets <= 0.05 + slack


def test_a_group_that_differs_is_found():
    random = np.random.default_rng(0)
    c = np.full(2000, 0.8)
    owner = np.arange(2000) % 10
    happened = random.random(2000) < np.where(owner == 3, 0.6, 0.8)
    found = by_group(Predictions.from_confidence(c, happened, groups={"shop": owner}), "shop")
    assert found.tests[0].p_value < 0.01
    assert min(found.groups, key=lambda group: group.smallest).value == "3"
    assert sum(group.smallest < 0.05 for group in found.groups) == 1
    assert "shop = 3 has a gap of" in " ".join(found.sentences)


def test_two_classes_are_also_judged_by_the_positive():
    """Errors of opposite sign cancel in the top label, group by group."""
    p1 = np.tile(np.repeat([0.3, 0.7], 10), 50)
    labels = np.tile([1] * 4 + [0] * 6 + [1] * 8 + [0] * 2, 50)
    p = Predictions.from_probs(np.stack([1 - p1, p1], 1), labels, groups={"g": np.arange(1000) // 500})
    for group in by_group(p, "g").groups:
        assert abs(group.gap) < 0.05
        assert group.positive_gap == pytest.approx(-0.1)
        assert group.positive_adjusted < 0.01
        assert group.p_adjusted > 0.05


def test_small_groups_are_listed_and_not_tested():
    p = Predictions.from_confidence([0.9] * 100, [0] * 50 + [1] * 50, groups={"g": ["x"] * 71 + ["y"] * 29})
    found = by_group(p, "g")
    assert [group.tested for group in found.groups] == [True, False]
    assert found.tests[0].p_value is None
    assert "1 group with fewer than 30 rows is listed and not tested" in " ".join(found.sentences)
    assert by_group(p, "g", min_rows=29).groups[1].tested
    uneven = Predictions.from_confidence([0.9] * 60, [1] * 60, weights=[1e6] * 2 + [1.0] * 58, groups={"g": [0] * 60})
    assert not by_group(uneven, "g").groups[0].tested  # two rows carry the weight
    few = Predictions.from_confidence([0.9] * 60, [1] * 60, clusters=np.arange(60) // 10, groups={"g": [0] * 60})
    assert not by_group(few, "g").groups[0].tested


def test_values_of_any_kind():
    columns = {
        "none": np.array([None, "x", "", "x"], object),
        "number": [2.0, 10.0, np.nan, 2.0],
        "flag": [True, False, True, True],
    }
    p = Predictions.from_confidence([0.5] * 4, [1, 0, 1, 0], groups=columns)
    found = by_group(p, list(columns)).groups
    assert [(group.column, group.value, group.n) for group in found] == [
        ("none", "(missing)", 2), ("none", "x", 2),
        ("number", "2", 2), ("number", "10", 1), ("number", "(missing)", 1),
        ("flag", "False", 1), ("flag", "True", 3),
    ]  # fmt: skip


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_certain_groups(c):
    p = Predictions.from_confidence([c] * 80, [int(c)] * 80, groups={"g": np.arange(80) % 2})
    found = by_group(p, "g")
    assert [(group.gap, group.ece, group.p_value) for group in found.groups] == [(0, 0, 1.0)] * 2
    assert found.tests[0].p_value == 1.0


def test_bad_columns_are_explained():
    p = grouped()
    with pytest.raises(BadInput, match="got 'nmae'; did you mean 'name'"):
        by_group(p, "nmae")
    with pytest.raises(BadInput, match="by must be a name"):
        sf.evaluate(p, by=[])
    with pytest.raises(BadInput, match="none: give groups"):
        by_group(random_predictions(10, 2), "x")
    with pytest.raises(BadInput, match="min_rows"):
        by_group(p, "name", min_rows=1)
    many = Predictions.from_confidence([0.5] * 10_001, [1] * 10_001, groups={"id": np.arange(10_001)})
    with pytest.raises(BadInput, match="10,001 different values"):
        by_group(many, "id")


@pytest.mark.usefixtures("few_resamples")
class TestEvaluate:
    def test_the_parts_of_an_evaluation(self):
        p = grouped()
        result = sf.evaluate(p, by="name")
        assert result.groups == by_group(p, "name").groups
        assert [entry["value"] for entry in result.to_dict()["groups"]] == ["a", "b", "c"]
        assert result.to_dict()["group_tests"][0]["column"] == "name"
        plain = sf.evaluate(p)
        assert "groups" not in plain.to_dict()
        assert plain.groups == plain.group_tests == []
        assert result.sentences[: len(plain.sentences)] == plain.sentences
        assert result._repr_html_().count("<table>") == 2
        assert "name" in str(result)

    def test_the_command(self, tmp_path):
        p = grouped()
        p.save(tmp_path / "p.csv")
        done = surefoot("evaluate", tmp_path / "p.csv", "--json", "--by", "name", "--by", "half", "--min-rows", "150")
        assert (done.exit_code, done.stderr) == (0, "")
        groups = json.loads(done.stdout)["groups"]
        assert [(group["column"], group["value"]) for group in groups] == [
            ("name", "a"), ("name", "b"), ("name", "c"), ("half", "0"), ("half", "1"),
        ]  # fmt: skip
        assert groups[2]["p_value"] is None
        assert surefoot("evaluate", tmp_path / "p.csv", "--by", "land").exit_code == 2
        for width in ("60", "80", "140"):
            done = surefoot("evaluate", tmp_path / "p.csv", "--by", "name", env={"COLUMNS": width})
            lines = done.stdout.splitlines()
            assert max(map(len, lines[-16:])) <= int(width)
            (row,) = (line.split() for line in lines if line.startswith("  a "))
            assert row[:2] == ["a", "300"]
            assert len(row) == {"60": 8, "80": 12, "140": 12}[width]  # no accuracy, one interval

    @pytest.mark.parametrize("suffix", ["svg", "png", "html"])
    def test_a_figure_shows_every_group(self, tmp_path, suffix):
        grouped().save(tmp_path / "p.npz")
        out = tmp_path / f"groups.{suffix}"
        done = surefoot("evaluate", tmp_path / "p.npz", "--by", "name", "--figure", out)
        assert (done.exit_code, done.stderr) == (0, "")
        assert out.stat().st_size > 1000
        if suffix == "html":
            assert all(f">{value}  (n = " in out.read_text() for value in ("a", "b", "c"))
