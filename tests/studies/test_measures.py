"""What tables read from a run: quantities, relations, and where the readings end; against small journals by hand."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from surefoot.errors import BadInput
from surefoot.runs.records import JOURNAL, Journal
from surefoot.statistics import correlated, partial
from surefoot.studies.folder import GatheredRun, GatheredStudy
from surefoot.studies.measures import check_measure, heading, measure
from surefoot.studies.spec import TableSpec
from surefoot.studies.tables import tables_of

ACCURACY = [0.1, 0.4, 0.7, 0.9, 1.0, 1.0]
ECE = [0.0, 0.3, 0.5, 0.4, 0.2, 0.1]
SHARPNESS = [2.0, 9.0, 30.0, 20.0, 12.0, 4.0]


def written(folder, **columns):
    journal = Journal(folder / JOURNAL, 0)
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        journal.append({"step": 10 * row} | dict(zip(columns, values, strict=True)))
    journal.close()
    last = 10 * row
    return {"step": last, "final": {name: values[-1] for name, values in columns.items()} | {"step": last}}


@pytest.fixture
def result(tmp_path):
    return written(tmp_path, **{"train.accuracy": ACCURACY, "train.ece": ECE, "sharpness": SHARPNESS})


def one(result, folder, name):
    return measure(result, folder, [name])[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train.ece", 0.1),
        ("train.ece until train.accuracy>=0.9", 0.4),
        ("train.ece until step>=20", 0.5),
        ("train.ece until step>=11", 0.5),
        ("sharpness until train.ece>=.5", 30.0),
        ("max train.ece until train.accuracy>=4e-1", 0.3),
        ("first sharpness until step>=20", 2.0),
        ("mean train.ece until step<=0", 0.0),
        ("pearson train.ece sharpness until train.accuracy>=0.9", stats.pearsonr(ECE[:4], SHARPNESS[:4]).statistic),
        ("spearman train.ece sharpness", stats.spearmanr(ECE, SHARPNESS).statistic),
    ],
)
def test_up_to_a_stop(result, tmp_path, name, expected):
    assert one(result, tmp_path, name) == pytest.approx(expected)


def test_a_run_that_never_came_to_the_stop_has_no_value(result, tmp_path):
    assert math.isnan(one(result, tmp_path, "pearson train.ece sharpness until step>=51"))
    assert math.isnan(one(result, tmp_path, "train.ece until sharpness>=31"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first train.ece from train.accuracy>=0.7", 0.5),
        ("max sharpness from train.accuracy>=0.8 until step>=40", 20.0),
        ("pearson train.ece sharpness from train.accuracy>=0.7", stats.pearsonr(ECE[2:], SHARPNESS[2:]).statistic),
        ("train.ece from step>=30 until step>=20", math.nan),
        ("mean train.ece from train.accuracy>=2", math.nan),
        ("ratio sharpness train.ece", 40.0),
        ("ratio sharpness train.ece until step>=20", 60.0),
        ("ratio sharpness train.ece until step>=0", math.nan),
        ("ratio train.ece sharpness until step>=0", 0.0),
    ],
)
def test_from_a_reading_on_and_quotients(result, tmp_path, name, expected):
    assert one(result, tmp_path, name) == pytest.approx(expected, nan_ok=True)


def test_the_moment_is_read_from_its_logarithm(tmp_path):
    result = written(tmp_path, **{"train.ece": [0.3, 0.2, 0.1], "train.log_q": [9e9, 2.0, -1.0]})
    assert one(result, tmp_path, "train.q") == pytest.approx(math.exp(-1))
    assert one(result, tmp_path, "ratio train.ece train.q until step>=10") == pytest.approx(0.2 / math.exp(2))
    assert one(result, tmp_path, "min train.q until step>=10") == pytest.approx(math.exp(2))
    assert math.isinf(one(result, tmp_path, "train.q until train.q<=9")) is False
    assert one(result, tmp_path, "ratio train.ece train.q until step>=0") == 0
    assert math.isnan(one(result, tmp_path, "ratio train.q train.ece until step>=0"))
    assert math.isinf(one(result, tmp_path, "max train.q"))


@pytest.mark.parametrize("n", [4, 9, 60])
def test_partial_is_the_textbook_formula(n):
    x, y, z = np.random.default_rng(n).standard_normal((3, n)) + 7
    y, z = y + x, z - x
    r = {(a, b): stats.pearsonr(u, v).statistic for a, u in zip("xyz", (x, y, z), strict=True)
         for b, v in zip("xyz", (x, y, z), strict=True)}  # fmt: skip
    below = math.sqrt((1 - r["x", "z"] ** 2) * (1 - r["y", "z"] ** 2))
    assert partial(x, y, z) == pytest.approx((r["x", "y"] - r["x", "z"] * r["y", "z"]) / below)


def test_partial_of_what_is_explained_wholly_is_none():
    z = np.arange(9.0)
    assert math.isnan(partial(2 * z + 1, z**2, z))
    assert math.isnan(partial(np.ones(9), z**2, z))
    assert math.isnan(partial([1.0, 2, 4], [2.0, 1, 3], [1.0, 2, 3]))


def test_correlated_holds_the_whole_sample_and_an_interval():
    x = np.random.default_rng(1).standard_normal((40, 2))
    x[:, 1] += x[:, 0]
    found = correlated([tuple(row) for row in x])
    assert found.mean == pytest.approx(stats.spearmanr(*x.T).statistic)
    assert (found.n, found.low < found.mean < found.high) == (40, True)
    assert math.isnan(correlated([(1.0, 2.0), (2.0, 3.0)]).mean)
    assert correlated([]).n == 0


@pytest.mark.parametrize(
    "name",
    [
        "max", "pearson train.ece", "partial train.ece sharpness", "train.ece until", "until step>=3",
        "train.ece until step", "train.ece until step>3", "train.ece until step>=three", "best train.ece until step>=3",
        "train.ece sharpness", "ratio train.ece", "train.ece from", "train.ece until step>=1 from step>=2",
        "best train.ece from step>=3", "pearson train.ece sharpness until step>=1 until step>=2",
    ],
)  # fmt: skip
def test_what_is_no_measure_is_refused(name):
    with pytest.raises(ValueError, match=r"measure is|until takes|from takes"):
        check_measure(name)


def test_headings():
    assert heading("train.ece until step>=100") == "train ECE until step ≥ 100"
    assert heading("best test.nll") == "test NLL at the best"
    assert (
        heading("ratio train.ece train.q from step>=3 until step>=9")
        == "train ECE / train Q from step ≥ 3 until step ≥ 9"
    )
    assert heading("train.c_j") == "train C_J"
    assert heading("train.margin_q05") == "train margin q05"


def study(tmp_path, tables):
    runs = []
    for place, end in enumerate([0.1, 0.2, 0.3, 0.4]):
        folder = tmp_path / str(place)
        folder.mkdir()
        result = written(folder, **{"test.ece": [0.0, end / 2, end], "sharpness": [1.0, 5.0 - place, 2.0]})
        runs.append(GatheredRun(str(place), {"seed": str(place)}, str(place), "finished", result, folder))
    return GatheredStudy("s", None, [], [], tables, [], runs)


def test_predictions_order_the_runs(tmp_path):
    spec = {"name": "early", "kind": "predict", "metrics": ["test.ece", "sharpness"], "until": ["step>=10", "step>=99"]}
    (table,) = tables_of(study(tmp_path, [spec]))
    cells = dict(table.rows)
    assert cells["test ECE"][0].facts["spearman"] == pytest.approx(1)
    assert cells["sharpness"][0].facts["spearman"] == pytest.approx(-1)
    assert [cell.text for cell in (cells["test ECE"][1], cells["sharpness"][1])] == ["–", "–"]
    assert table.columns == ["step ≥ 10", "step ≥ 99"]
    assert "runs that came to each stop: 4, 0" in table.notes


def test_a_prediction_may_be_of_a_moment_that_all_runs_have(tmp_path):
    """Runs of different lengths are compared at one step; sharpness at step 10 falls as the number of the run grows."""
    spec = {"name": "early", "kind": "predict", "metrics": ["test.ece"], "until": ["step>=10"]}
    (table,) = tables_of(study(tmp_path, [spec | {"target": "sharpness until step>=10"}]))
    assert table.rows[0][1][0].facts["spearman"] == pytest.approx(-1)
    assert "sharpness until step ≥ 10" in table.notes[0]


def test_a_prediction_across_methods_tells_what_it_is_within_them(tmp_path):
    """Simpson's: test ECE is higher where sharpness is in each method, and lower across them."""
    spec = {"name": "early", "kind": "predict", "rows": ["method"], "metrics": ["sharpness"], "until": ["step>=10"]}
    runs = []
    for place in range(6):
        folder = tmp_path / str(place)
        folder.mkdir()
        second = place >= 3
        end, sharp = 0.1 + 0.1 * (place % 3) + second, 20.0 + place % 3 - 10 * second
        result = written(folder, **{"test.ece": [0.0, 0.0, end], "sharpness": [1.0, sharp, 2.0]})
        where = {"method": "SAM" if second else "SGD", "seed": str(place % 3)}
        runs.append(GatheredRun(str(place), where, str(place), "finished", result, folder))
    gathered = GatheredStudy("s", None, ["method"], ["method"], [spec], [], runs)
    (table,) = tables_of(gathered)
    cell = table.rows[0][1][0]
    assert cell.facts["spearman"] < 0
    assert (cell.facts["within_low"], cell.facts["within_high"]) == (1, 1)
    assert cell.text.endswith("; 1.00 to 1.00")
    assert any("rows' own correlations" in note for note in table.notes)


def test_intervals_over_settings_and_seeds_draw_settings(tmp_path):
    """Two rates of two seeds each, the seeds nearly alike: the interval spans the rates, as two values would."""
    spec = {"name": "ends", "rows": ["method"], "over": ["lr", "seed"], "metrics": ["test.ece"], "intervals": True}
    gathered = study(tmp_path, [spec])
    for place, run in enumerate(gathered.runs):
        run.place.update(method="SGD", lr="0.1" if place < 2 else "0.2", seed=str(place % 2))
    (table,) = tables_of(dataclasses.replace(gathered, axes=["method", "lr"], entry_axes=["method"]))
    found = table.rows[0][1][0].facts
    assert found["n"] == 4
    assert found["low"] < 0.14 < 0.36 < found["high"]
    assert "settings are drawn, then their seeds" in table.notes[0]


def test_a_run_with_a_harmed_journal_is_left_out_and_named(tmp_path):
    spec = {"name": "sum", "kind": "summary", "metrics": ["mean sharpness", "test.ece"]}
    gathered = study(tmp_path, [spec])
    (before,) = tables_of(gathered)
    assert before.rows[0][1][-1].text == "4"
    journal = tmp_path / "2" / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-9])
    (after,) = tables_of(gathered)
    mean, ece, runs = after.rows[0][1]
    assert (runs.text, mean.facts["n"], ece.facts["n"]) == ("3 of 4", 3, 3)
    assert any("left out of 4 runs: 1 with a corrupted journal" in note for note in after.notes)


def test_a_cell_of_fewer_runs_than_finished_says_so(tmp_path):
    spec = {"name": "c", "kind": "correlation", "metrics": ["max test.ece"], "until": ["test.ece>=0.25"]}
    (table,) = tables_of(study(tmp_path, [spec]))
    texts = [cells[0].text for _, cells in table.rows]
    assert texts == ["0.25 ± 0.13", "0.35 ± 0.07 (2 of 4)", "4"]


def test_correlations_by_stop(tmp_path):
    spec = {"name": "t", "kind": "correlation", "metrics": ["test.ece"], "until": ["step>=20"]}
    (table,) = tables_of(study(tmp_path, [spec]))
    assert [label for label, _ in table.rows] == [
        "r(test ECE, sharpness)", "r(test ECE, sharpness) until step ≥ 20", "runs",
    ]  # fmt: skip
    (whole,), (cut,), _ = (cells for _, cells in table.rows)
    assert whole.facts["mean"] == pytest.approx(cut.facts["mean"])


def test_a_bare_quantity_over_a_stretch_is_its_correlation(tmp_path):
    spec = {"name": "t", "kind": "correlation", "metrics": ["test.ece from step>=10", "max test.ece"]}
    (table,) = tables_of(study(tmp_path, [spec]))
    assert [label for label, _ in table.rows][:2] == ["r(test ECE, sharpness) from step ≥ 10", "peak test ECE"]


@pytest.mark.parametrize("name", ["test.eec", "pearson test.eec sharpness", "sharpness until test.eec>=0.1"])
def test_a_misspelt_quantity_is_named(tmp_path, name):
    gathered = study(tmp_path, [{"name": "t", "metrics": [name]}])
    with pytest.raises(BadInput, match=r"no run has readings of 'test.eec'.*test\.ece"):
        tables_of(gathered)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"kind": "summary", "until": ["step>=1"]}, "until is for tables of kind correlation and predict"),
        ({"kind": "predict"}, "needs until"),
        ({"kind": "predict", "until": "step"}, "until takes"),
        ({"kind": "predict", "until": "step>=1", "metrics": ["test.ece until step>=2"]}, "until takes|has its own"),
        ({"kind": "predict", "until": "step>=1", "metrics": ["best test.ece"]}, "measure is"),
        ({"kind": "predict", "until": "step>=1", "target": "ratio test.ece"}, "measure is"),
        ({"kind": "correlation", "until": "step>=1", "metrics": ["best test.ece"]}, "measure is"),
    ],
)
def test_tables_that_cannot_be(table, said):
    with pytest.raises(ValueError, match=said):
        TableSpec.model_validate({"name": "t"} | table)
