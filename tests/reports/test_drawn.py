"""What the papers' figures show, read off matplotlib's own objects."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from surefoot.reports.figures.compare import census, compare
from surefoot.reports.figures.confidence import confidence
from surefoot.reports.figures.legend import looks, rate_text, run_text, seeds_text, setting_text
from surefoot.reports.figures.morosini2026 import dynamics, method, portraits
from surefoot.reports.figures.mpl_style import draw_key, draw_panel, new_figure, sample
from surefoot.reports.figures.panels import PANELS
from surefoot.reports.figures.recalibration import draw_recalibration, settings_named
from surefoot.reports.figures.severities import shift_figure
from surefoot.reports.figures.tan2026 import ascent, temperature
from surefoot.reports.runs import Place, read_run
from surefoot.reports.trajectory import draw_trajectories
from surefoot.runs.records import encode
from tests.reports.cases import frame, reading, shift_numbers, write_run


def studied(folder, method="SGD", rate=0.1, seed=0, study="s", shift=None, **axes):
    """A run of a study, whose axes are ``method`` and what else is given."""
    run = read_run(Place(write_run(folder, lr=rate, seed=seed, shift=shift)))
    return placed(run, method, study=study, **axes)


def placed(run, method, study="s", **axes):
    place = replace(run.place, study=study, method=method, axes={"method": method, **axes})
    return replace(run, method=method, place=place)


def with_looks(runs):
    return list(zip(runs, looks([(run.method, run.rate) for run in runs]), strict=True))


def scaled(run, factor, *names, until=None):
    """The run with some of its columns multiplied, or with the first readings alone."""
    columns = {name: column[:until] * (factor if name in names else 1) for name, column in run.columns.numbers.items()}
    return replace(run, columns=replace(run.columns, numbers=columns))


def key(figure):
    """The texts of a figure's own legend, its title first."""
    (legend,) = figure.legends
    return [legend.get_title().get_text(), *(text.get_text() for text in legend.get_texts())]


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def covers(legend, axes):
    return legend.get_window_extent().overlaps(axes.get_window_extent())


@pytest.mark.parametrize(
    ("axes", "rate", "said"),
    [
        ({"lr": "2/70"}, 2 / 70, "η = 2/70"),
        ({"lr": "2/70"}, 0.1, "η = 0.1"),  # the axis is another rate than the run's
        ({"lr": "fast", "rho": "0.1"}, 0.1, "η = 0.1"),
        ({}, 2 / 70, "η = 0.0286"),
        ({}, math.nan, "η not known"),
    ],
)
def test_a_rate_is_said_as_its_study_writes_it(axes, rate, said):
    run = read_run(Place(Path("nowhere"), study="s", axes=axes))
    assert rate_text(replace(run, rate=rate)) == said


def test_names_of_settings_and_runs():
    assert setting_text({"rho": "0.05", "method": "SAM", "gamma": "1/2", "seed": "3"}) == "SAM, ρ = 0.05, γ = 1/2"
    run = read_run(Place(Path("nowhere"), study="s", axes={"rho": "0.05"}))
    assert run_text(replace(run, method="sam", seed=3)) == "sam, ρ = 0.05, seed 3"
    assert run_text(replace(placed(run, "SAM", rho="0.1"), seed=None)) == "SAM, ρ = 0.1"
    assert seeds_text([3, 1]) == "1 to 3 seeds"


def test_what_shares_a_colour_is_counted(tmp_path):
    runs = [studied(tmp_path / f"{rho}{seed}", seed=seed, rho=rho) for rho in ("0.1", "0.2") for seed in (0, 1)]
    assert census(runs[:2]) == "2 seeds"
    assert census(runs) == "2 settings, 2 seeds"
    assert [entry["label"] for entry in compare(runs)] == ["SGD, ρ = 0.1", "SGD, ρ = 0.2"]


def test_one_methods_scales_do_not_stretch_anothers(tmp_path):
    sgd = scaled(studied(tmp_path / "a", lr="1/10"), 1, until=10)
    muon = placed(scaled(read_run(sgd.place), 1e-6, "sharpness", "train.nll"), "Muon", lr="1/10")
    grid = np.array(dynamics(with_looks([sgd, muon]), ["SGD", "Muon"]).axes).reshape(3, 2)
    loss, ece, sharpness = grid
    assert loss[0].get_ylim()[0] > 1e-3 > loss[1].get_ylim()[1]
    assert sharpness[0].get_ylim()[0] > -1 > -sharpness[1].get_ylim()[1] * 1e6
    assert ece[0].get_ylim() == ece[1].get_ylim()
    assert all(axes.get_xlim()[1] < 600 for axes in grid[:, 0])  # half as many readings
    assert all(axes.get_xlim()[1] > 1000 for axes in grid[:, 1])
    assert legend_of(sharpness[0]) == ["η = 1/10"]


def test_dynamics_say_what_dotted_and_dashed_lines_are(tmp_path):
    figure = dynamics(with_looks([studied(tmp_path / str(seed), rate=1.0, seed=seed) for seed in (0, 1, 2)]), ["SGD"])
    assert key(figure) == ["3 seeds", "training", "test ECE", "2/η, where near"]
    styles = {text: handle.get_linestyle() for text, handle in zip(key(figure)[1:], figure.legends[0].legend_handles,
                                                                   strict=True)}  # fmt: skip
    _, ece, sharpness = figure.axes
    assert [line.get_linestyle() for line in ece.get_lines()] == ["-"] * 3 + [styles["test ECE"]] * 3
    assert [line.get_linestyle() for line in sharpness.get_lines()] == ["-"] * 3 + [styles["2/η, where near"]] * 3
    far = dynamics(with_looks([studied(tmp_path / "far", rate=0.1)]), ["SGD"]).axes[2]
    assert len(far.get_lines()) == 1


@pytest.mark.parametrize(("factor", "scale"), [(500, "linear"), (3000, "log")])
def test_a_wide_range_has_a_logarithmic_axis_with_labels_of_one_style(tmp_path, factor, scale):
    run = studied(tmp_path / "a")
    values = np.geomspace(0.7, 0.7 * factor, 20)
    run = replace(run, columns=replace(run.columns, numbers={"step": np.arange(20.0), "sharpness": values}))
    figure = new_figure(3, 2)
    axes = figure.subplots()
    draw_panel(axes, next(panel for panel in PANELS if panel.name == "sharpness"), with_looks([run]), "train")
    figure.draw_without_rendering()
    assert axes.get_yscale() == scale
    low, high = axes.get_ylim()
    shown = [label.get_text() for at, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
             if low <= at <= high]  # fmt: skip
    assert len(shown) > 1
    assert all(("10^{" in text) == (scale == "log") for text in shown)
    assert not any(label.get_text() for label in axes.get_yticklabels(minor=True))


def test_a_methods_legend_lies_over_no_curve_and_counts_the_seeds(tmp_path):
    runs = [studied(tmp_path / f"{text}{seed}".replace("/", ""), rate=rate, seed=seed, lr=text)
            for text, rate in (("2/70", 2 / 70), ("2/30", 2 / 30)) for seed in (0, 1, 2)]  # fmt: skip
    figure = method(with_looks(runs))
    figure.draw_without_rendering()
    assert key(figure) == ["3 seeds", "η = 2/70", "η = 2/30"]
    assert not any(covers(figure.legends[0], axes) for axes in figure.axes)


def test_a_portrait_has_a_panel_a_method_and_the_first_seed_of_each_rate(tmp_path):
    runs = [studied(tmp_path / f"{name}{rate}{seed}", name, rate, seed, lr=str(rate))
            for name in ("GD", "SGD") for rate in (0.1, 0.2) for seed in (5, 6, 7)]  # fmt: skip
    drawn = with_looks(runs)
    figure = portraits(drawn, ["GD", "SGD"])
    figure.draw_without_rendering()
    assert key(figure) == ["first of 3 seeds", "first step", "last step"]
    assert [axes.get_title() for axes in figure.axes] == ["GD", "SGD"]
    colours = {(run.method, run.rate): colour for run, (colour, _) in drawn}
    for axes in figure.axes:
        assert legend_of(axes) == ["η = 0.1", "η = 0.2"]
        assert not any(covers(axes.get_legend(), other) for other in figure.axes)
        lines = axes.get_lines()
        assert [line.get_marker() for line in lines] == ["None", "o", "X"] * 2
        for rate, (path, first, last) in zip((0.1, 0.2), (lines[:3], lines[3:]), strict=True):
            assert {line.get_color() for line in (path, first, last)} == {colours[axes.get_title(), rate]}
            ends = [*first.get_xydata(), *last.get_xydata()]
            assert ends == pytest.approx(path.get_xydata()[[0, -1]])
            assert min(first.get_zorder(), last.get_zorder()) > path.get_zorder()
        start = next(run for run in runs if (run.method, run.seed) == (axes.get_title(), 5)).columns.numbers
        assert lines[1].get_xydata()[0] == pytest.approx([start["sharpness"][0], start["train.ece"][0]])


def test_confidence_tells_both_gaps_apart_and_names_rates_and_set(tmp_path):
    run = studied(tmp_path / "a", lr="1/10")
    table = {"count": [0, 5, 0, 5], "confidence": [None, 0.4, None, 0.9], "accuracy": [None, 0.6, None, 0.7]}
    histograms = frame(9, 9, 0) | {"test.reliability": table}
    (tmp_path / "a" / "arrays.jsonl").write_bytes(encode(histograms))
    other = studied(tmp_path / "b", "SAM")
    figure = confidence(with_looks([run, other, replace(run, rate=0.3)]))
    top, _, below, _ = figure.axes
    assert [axes.get_title() for axes in figure.axes[:2]] == ["SGD\nη = 1/10", "SAM"]
    boxes = {patch.get_hatch(): (patch.get_y(), patch.get_height()) for patch in below.patches}
    assert boxes["/////"] == pytest.approx((0.7, 0.2))  # too sure: the gap stands on the bar
    assert boxes["....."] == pytest.approx((0.4, 0.2))  # not sure enough: it is part of the bar
    assert key(figure)[0] == "test set, first run of each method"
    assert {"confidence = accuracy", "confidence above accuracy", "accuracy above confidence"} < set(key(figure))
    assert "test" in top.get_ylabel()
    assert "test" in below.get_ylabel()


def test_temperatures_are_means_over_the_seeds_with_their_extremes(tmp_path):
    runs = [studied(tmp_path / f"{name}{seed}", name, seed=seed) for name in ("SGD", "SAM") for seed in (0, 1, 2)]
    bars, before, after = (figure := temperature(with_looks(runs))).axes
    for axes, name in ((before, "test.ece"), (after, "test.tce")):
        assert [line.get_label() for line in axes.get_lines()] == ["SGD", "SAM"]
        values = np.stack([run.columns.numbers[name] for run in runs[:3]])
        assert axes.get_lines()[0].get_ydata() == pytest.approx(values.mean(axis=0))
        band = axes.collections[0].get_datalim(axes.transData)
        assert (band.y0, band.y1) == pytest.approx((values.min(), values.max()))
    assert [patch.get_hatch() for patch in bars.patches] == [None, "/////"] * 2
    colours = [to_hex(patch.get_edgecolor() if patch.get_hatch() else patch.get_facecolor()) for patch in bars.patches]
    own = [line.get_color().lower() for line in before.get_lines()]
    assert colours == [own[0], own[0], own[1], own[1]]
    ends = [run.final["test.ece"] for run in runs[:3]]
    assert bars.patches[0].get_width() == pytest.approx(np.mean(ends))
    title, *texts = key(figure)
    assert title == "mean over 3 seeds; lines on bars and bands: least to greatest"
    assert texts == ["SGD", "SAM", "as trained", "after a temperature"]
    assert key(temperature(with_looks(runs[:1])))[0] == "1 seed"
    many = temperature(with_looks([placed(run, f"rule {place}") for run in runs[:2] for place in range(7)]))
    assert key(many)[0] == "mean over 2 seeds; lines on bars: least to greatest"
    assert not many.axes[1].collections


def test_settings_under_shift_have_looks_of_their_own_and_a_panel_after_a_temperature(tmp_path):
    runs = [studied(tmp_path / f"{name}{model}", name, shift=shift_numbers(0), model=model)
            for name in ("SGD", "SAM", "CSAM") for model in ("plain", "dropout", "ensemble")]  # fmt: skip
    figure = shift_figure(with_looks(runs))
    plain, after, kinds = figure.axes
    assert [plain.get_title(), after.get_title()] == ["as trained", "after the temperature of clean data"]
    shown = [[(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.get_lines()[:9]]
             for axes in (plain, after)]  # fmt: skip
    assert shown[0] == shown[1]
    assert len(set(shown[0])) == len({(colour, mark) for colour, _, mark in shown[0]}) == 9
    assert len({colour for colour, _, _ in shown[0]}) == 3  # one a method
    assert [(line.get_color(), line.get_marker()) for line in kinds.get_lines()] == [
        (colour, mark) for colour, _, mark in shown[0]
    ]
    handles = figure.legends[0].legend_handles
    assert [(each.get_color(), each.get_linestyle(), each.get_marker()) for each in handles] == shown[0]
    assert key(figure)[1:3] == ["SGD plain", "SGD dropout"]


def test_how_far_ascents_go_is_said_for_each_rate(tmp_path):
    def climber(rate, text):
        run = studied(tmp_path / f"{rate}", "SAM", rate, lr=text)
        columns = run.columns.numbers | dict.fromkeys(EXTENTS, run.columns.numbers["lr"])
        return replace(run, columns=replace(run.columns, numbers=columns))

    figure = ascent(with_looks([climber(0.1, "1/10"), climber(0.2, "1/5")]))
    figure.draw_without_rendering()
    assert key(figure) == ["1 seed", "SAM, η = 1/10", "SAM, η = 1/5"]
    assert not any(covers(figure.legends[0], axes) for axes in figure.axes)


EXTENTS = ("rule.epsilon", "rule.lambda", "rule.lambda0")


@pytest.mark.parametrize(("count", "columns"), [(3, 3), (9, 3), (10, 5)])
def test_a_key_has_full_columns_where_it_can(count, columns):
    figure = new_figure(7, 2)
    draw_key(figure, {f"name {place} of a line": sample() for place in range(count)})
    assert figure.legends[0]._ncols == columns


def test_trajectories_name_their_rates_and_axes():
    readings = [reading(step, 100, 0.1, 0) for step in range(0, 101, 10)]
    readings[0]["lr"] = 0.01  # warm-up
    left, right = (figure := draw_trajectories({"GD": readings})).axes
    assert left.get_title().startswith("GD, η = 0.1   r = ")
    assert (left.get_ylabel(), right.get_ylabel()) == ("ECE", "sharpness")
    assert "train ECE with sharpness" in key(figure)[0]


def test_bars_of_calibrators_are_means_over_the_seeds_of_a_setting():
    eces = {("a", "none"): 0.3, ("a", "beta"): 0.1, ("b", "none"): 0.1, ("c", "none"): 0.5, ("c", "beta"): 0.3}
    rows = [{"subject": subject, "method": name, "severity": 0, "ece": ece} for (subject, name), ece in eces.items()]
    rows.append({"subject": "a", "method": "none", "severity": 3, "ece": 9.0})
    figure = draw_recalibration(rows, {"b": "SGD", "a": "SAM", "c": "SAM"})
    (axes,) = figure.axes
    sgd, sam = axes.containers[1], axes.containers[3]  # each after its lines
    assert [label.get_text() for label in axes.get_xticklabels()] == ["untouched", "beta"]
    assert [bar.get_height() for bar in sam.patches] == pytest.approx([0.4, 0.2])
    assert sgd.patches[0].get_height() == 0.1
    assert math.isnan(sgd.patches[1].get_height())
    arms = [high[1] - low[1] for low, high in sam.errorbar.lines[2][0].get_segments()]
    assert arms == pytest.approx([2 * math.sqrt(0.02)] * 2)
    assert key(figure) == ["mean over 1 to 2 seeds; lines: ± one standard deviation", "SGD", "SAM"]


def test_subjects_are_the_seeds_of_their_studies_settings(tmp_path):
    runs = []
    for place, (name, seed) in enumerate([("SGD", 0), ("SAM", 0), ("SGD", 1)]):
        write_run(tmp_path / "study" / "runs" / f"{place:016x}", seed=seed)
        runs.append({"id": f"{place:016x}", "label": f"{name} seed={seed}", "axes": {"method": name}, "steps": 9,
                     "shown": {"method": name}, "order": ["method"], "seed": seed, "stage": 1})  # fmt: skip
    plan = {"schema": 1, "name": "s", "axes": ["method"], "entry_axes": ["method"], "runs": runs}
    (tmp_path / "study" / "study.json").write_text(json.dumps(plan))
    write_run(tmp_path / "alone", "muon")
    folders = {name: tmp_path / "study" / "runs" / f"{place:016x}" for name, place in (("x", 2), ("y", 1), ("z", 0))}
    found = settings_named({"w": tmp_path / "alone", **folders})
    assert list(found.items()) == [("z", "s: SGD"), ("y", "s: SAM"), ("x", "s: SGD"), ("w", "muon, η = 0.1")]
    assert settings_named(folders) == {"z": "SGD", "y": "SAM", "x": "SGD"}
    assert settings_named({"early": folders["z"], "late": folders["z"]}) == {"early": "early", "late": "late"}
