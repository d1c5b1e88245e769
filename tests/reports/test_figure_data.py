"""The data of figures: thinned curves, the Pareto front, colours, portraits, histograms."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.reports.figures.compare import compare, not_beaten, settings
from surefoot.reports.figures.curves import confidence_curve, curve, mean_curve
from surefoot.reports.figures.downsample import downsample, evenly
from surefoot.reports.figures.legend import PALETTE, looks, setting_looks
from surefoot.reports.figures.morosini2026 import horizons, method
from surefoot.reports.figures.panels import PANELS, correlations, drawn, horizon, portrait, wanted
from surefoot.reports.figures.tan2026 import sweeps
from surefoot.reports.runs import Place, places, read_frames, read_run
from tests.reports.cases import write_run

values = st.one_of(st.floats(-1e6, 1e6), st.just(math.nan))


@given(st.lists(st.tuples(values, values), min_size=2, max_size=80), st.integers(8, 30))
def test_thinning_keeps_ends_and_extremes(rows, count):
    one, other = np.array(rows, dtype=np.float64).T
    columns = {"step": np.arange(len(one), dtype=np.float64), "one": one, "other": other}
    kept = downsample(columns, count)
    assert (np.diff(kept) > 0).all()
    assert {0, len(one) - 1} <= set(kept.tolist())
    assert len(kept) == min(count, len(one))
    for column in (one, other):
        if np.isfinite(column).any():
            assert np.nanmin(column[kept]) == np.nanmin(column)
            assert np.nanmax(column[kept]) == np.nanmax(column)


def test_thinning_a_curve_of_straight_pieces_loses_nothing():
    x = np.arange(1001.0)
    y = np.interp(x, [0, 100, 300, 1000], [0, 5, 1, 2])
    kept = downsample({"step": x, "y": y}, 12)
    np.testing.assert_allclose(np.interp(x, x[kept], y[kept]), y, atol=1e-12)


def test_thinning_follows_a_spike_that_is_no_extreme():
    x = np.arange(500.0)
    y = 10 * np.sin(x / 80)
    y[250] = y[250] * 0.2
    assert 250 in downsample({"step": x, "y": y}, 20)


@given(st.integers(0, 300), st.integers(0, 80))
def test_even_places(total, count):
    found = evenly(total, count)
    assert len(found) <= count
    assert found == sorted(set(found))
    if total and count:
        assert found[-1] == total - 1
        assert len(found) == min(total, count)


points = st.lists(st.tuples(st.sampled_from([0.1, 0.5, 0.9, math.nan]), st.sampled_from([0.1, 0.2, 0.3])), max_size=8)


@given(points)
def test_the_front_is_what_none_beats(found):
    def beats(a, b):
        return a[0] >= b[0] and a[1] <= b[1] and a != b

    expected = [not math.isnan(p[0]) and not any(beats(q, p) for q in found) for p in found]
    assert not_beaten(found) == expected


def test_methods_have_colours_and_rates_shades():
    lines = [("SGD", 0.1), ("SGD", 0.2), ("SGD", 0.4), ("SAM", 0.1), ("SGD", math.nan)]
    found = looks(lines)
    assert len({colour for colour, _ in found[:4]}) == 4
    light = [sum(int(colour[place : place + 2], 16) for place in (1, 3, 5)) for colour, _ in found[:3]]
    assert light[0] > light[1] > light[2]
    assert found[1][0] == PALETTE[0].lower() == found[4][0]
    many = looks([(f"method {place}", 0.1) for place in range(2 * len(PALETTE))])
    assert len(set(many)) == len(many)


def test_a_settings_colour_says_its_first_word_and_its_dash_the_others():
    models = [(method, model) for method in ("SGD", "SAM") for model in ("plain", "dropout", "ensemble")]
    found = dict(zip(models, setting_looks(models), strict=True))
    assert len(set(found.values())) == 6
    assert {found[each][0] for each in models if each[0] == "SAM"} == {PALETTE[1]}
    assert len({found[each][1] for each in models if each[1] == "dropout"}) == 1
    assert {dash for _, dash in setting_looks([("SGD",), ("SAM", "0.05"), ("CSAM", "0.1")])} == {"solid"}


@pytest.mark.parametrize("words", [[("SGD", str(place)) for place in range(9)], [("SGD", "a"), ("SGD", "a")]])
def test_settings_whose_words_tell_too_little_have_looks_of_their_own(words):
    assert len(set(setting_looks(words))) == len(words)


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return np.array(linear)


@pytest.mark.parametrize("lacking", ["protan", "deutan"])
def test_colours_are_told_apart_without_one_kind_of_cone(lacking):
    """Viénot, Brettel and Mollon (1999): linear RGB as a dichromat sees it, compared as differences of CIE L*a*b*."""
    seen = {
        "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
        "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    }[lacking]
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    white = to_xyz.sum(axis=1)

    def lab(colour):
        f = np.cbrt(np.maximum(to_xyz @ (np.array(seen) @ luminance(colour)) / white, 1e-4))
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    gaps = [np.linalg.norm(lab(a) - lab(b)) for a, b in itertools.combinations(PALETTE, 2)]
    assert min(gaps) > 11  # a difference of 2 is just seen


def test_portrait_and_correlations(tmp_path):
    run = read_run(Place(write_run(tmp_path / "a")))
    path = portrait(run)
    assert path["step"][0] == 0
    assert path["step"][-1] == 1000
    assert len(path["ece"]) == len(path["sharpness"]) == 20
    related = correlations(run)
    assert related["train.ece"] == 0.9  # what the run itself wrote down
    numbers = run.columns.numbers
    expected = np.corrcoef(numbers["test.kce"], numbers["sharpness"])[0, 1]
    assert related["test.kce"] == pytest.approx(expected)


def test_the_correlation_up_to_each_step(tmp_path):
    run = read_run(Place(write_run(tmp_path / "a")))
    numbers = run.columns.numbers
    steps, values = horizon(run, "test")
    assert steps == list(numbers["step"][7:])
    for end, value in zip(range(8, 21), values, strict=True):
        assert value == pytest.approx(np.corrcoef(numbers["test.ece"][:end], numbers["sharpness"][:end])[0, 1])
    assert horizon(read_run(Place(write_run(tmp_path / "short", readings=7)))) == ([], [])


def test_comparison_takes_means_over_seeds_and_counts_what_is_left_out(tmp_path):
    for seed in (0, 1, 2):
        write_run(tmp_path / f"s{seed}", seed=seed)
    write_run(tmp_path / "bad", seed=3, outcome="diverged")
    write_run(tmp_path / "sam", "sam")
    runs = [read_run(place) for place in places(tmp_path)]
    found = {entry["method"]: entry for entry in compare(runs)}
    ends = [run.final["test.ece"] for run in runs if run.method == "sgd" and run.outcome == "finished"]
    measured = found["sgd"]["measures"]["test.ece"]
    assert measured["mean"] == pytest.approx(np.mean(ends))
    assert measured["low"] <= measured["mean"] <= measured["high"]
    assert (found["sgd"]["runs"], found["sgd"]["left_out"]) == (3, 1)
    assert found["sam"]["runs"] == 1


def test_runs_that_differ_in_more_than_the_seed_are_no_seeds(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"narrow{seed}", seed=seed)
        wide = write_run(tmp_path / f"wide{seed}", seed=seed) / "spec.json"
        wide.write_text(wide.read_text().replace("[64]", "[128]"))
    runs = [read_run(place) for place in places(tmp_path)]
    assert settings(runs) == [0, 0, 1, 1]
    found = compare(runs)
    assert [entry["runs"] for entry in found] == [2, 2]
    assert [entry["label"] for entry in found] == [
        "sgd, η = 0.1, model.widths = [64]", "sgd, η = 0.1, model.widths = [128]"
    ]  # fmt: skip


def test_sureness_is_that_of_the_table(tmp_path):
    folder = write_run(tmp_path / "a")
    frames = read_frames(folder, lambda total: evenly(total, 3)).frames
    assert [each["step"] for each in frames] == [0, 526, 1000] or len(frames) == 3
    found = confidence_curve(frames)
    table = frames[-1]["test.reliability"]
    n = sum(table["count"])
    gaps = [c * abs(a - b) for c, a, b in zip(table["count"], table["accuracy"], table["confidence"], strict=True) if c]
    assert found.step == 1000
    assert found.ece == pytest.approx(sum(gaps) / n)
    assert found.shares.sum() == pytest.approx(1)
    assert confidence_curve([{"step": 1, "test.reliability": {"count": "x"}, "test.confidence_histogram": [1]}]) is None


def test_panels_are_read_and_drawn(tmp_path):
    run = read_run(Place(write_run(tmp_path / "a")), wanted)
    for panel in PANELS:
        assert drawn(panel.train or panel.test)
        assert len(curve(run, panel.train or panel.test)[0]) == 20
    assert len(curve(run, "nothing")[0]) == 0


def test_a_mean_curve_is_of_the_steps_that_all_runs_were_read_at(tmp_path):
    runs = [read_run(Place(write_run(tmp_path / str(seed), seed=seed))) for seed in (0, 1, 2)]
    short = replace(runs[0].columns, numbers={name: each[:5] for name, each in runs[0].columns.numbers.items()})
    bare = replace(runs[0], columns=replace(short, numbers={"step": np.arange(5.0)}))
    steps, found = mean_curve([replace(runs[0], columns=short), *runs[1:], bare], "test.ece")
    values = np.stack([curve(run, "test.ece")[1][:5] for run in runs])
    assert steps.tolist() == curve(runs[1], "test.ece")[0][:5].tolist()
    assert found == pytest.approx(np.stack([values.mean(axis=0), values.min(axis=0), values.max(axis=0)]))
    assert [len(each) for each in mean_curve([bare], "test.ece")] == [0, 3]


def test_the_test_set_has_a_sharpness_of_its_own_where_it_was_read(tmp_path):
    run = read_run(Place(write_run(tmp_path / "a")), wanted)
    bare = replace(run, columns=replace(run.columns, numbers={
        name: column for name, column in run.columns.numbers.items() if name != "test.sharpness"
    }))  # fmt: skip
    shown = []
    for each in (run, bare):
        drawn_ = [(each, ("#000000", "solid"))]
        panels = method(drawn_).axes  # in rows of two: training, test
        assert [axes.axison for axes in panels[:-1]] == [True] * (len(panels) - 1)
        shown.append((panels[-1].axison, len(horizons(drawn_, [each.method]).axes)))
    assert shown == [(True, 3), (False, 2)]
    steps, values = horizon(run, "test", "test.sharpness")
    _, ece = curve(run, "test.ece")
    assert values[-1] == pytest.approx(np.corrcoef(ece, curve(run, "test.sharpness")[1])[0, 1])
    assert len(steps) == 20 - 7


def test_a_horizon_has_no_panel_of_what_a_method_did_not_read(tmp_path):
    run = read_run(Place(write_run(tmp_path / "a")), wanted)
    columns = {name: column for name, column in run.columns.numbers.items() if name != "test.sharpness"}
    bare = replace(run, columns=replace(run.columns, numbers=columns), method="bare")
    look = ("#000000", "solid")
    grid = np.array(horizons([(run, look), (bare, look)], [run.method, "bare"]).axes).reshape(3, 2)
    assert [axes.axison for axes in grid[:, 0]] == [True, True, True]
    assert [axes.axison for axes in grid[:, 1]] == [True, True, False]
    assert [axes.get_xlabel() for axes in grid[:, 1]] == ["", "training stops at step", ""]


def swept(axes, seed, ece, outcome="finished", study="s", counted=True):
    run = read_run(Place(Path("nowhere"), study=study, axes=axes, seed=seed, counted=counted))
    return replace(run, outcome=outcome, final={"test.ece": ece, "test.accuracy": 0.5})


def test_sweeps_average_over_seeds_and_sort_numbers():
    runs = [swept({"method": "SAM", "rho": rho, "gamma": "1"}, seed, place + seed)
            for place, rho in enumerate(["0.2", "1/10", "0.05"]) for seed in (0, 1)]  # fmt: skip
    runs += [
        swept({"method": "SAM", "rho": "9", "gamma": "1"}, 0, 7.0, outcome="diverged"),
        swept({"method": "SAM", "rho": "8", "gamma": "1"}, 0, 7.0, counted=False),
        swept({"method": "SGD"}, 0, 3.0),
        swept({"method": "SAM", "rho": "0.05", "gamma": "2"}, 0, 7.0),
        swept({"method": "SAM", "rho": "0.1"}, 0, 3.0, study=None),
    ]
    (found,) = sweeps(runs)
    (line,) = found.lines
    assert (found.study, found.axis, line.label) == ("s", "rho", "SAM, γ = 1")
    assert line.values == [0.05, 0.1, 0.2]
    assert line.means["test.ece"] == [2.5, 1.5, 0.5]
    assert line.seeds == [2, 2, 2]
    assert [found.texts[value] for value in line.values] == ["0.05", "1/10", "0.2"]
    assert all(math.isnan(each) for each in line.means["test.entropy"])


def test_no_sweep_of_names_or_of_two_numbers():
    assert sweeps([swept({"method": name}, 0, 0.1) for name in ("a", "b", "2/0", "nan")]) == []
    assert sweeps([swept({"lr": value}, 0, 0.1) for value in ("0.1", "0.2")]) == []
