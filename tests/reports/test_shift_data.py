"""The data of the section on shift: what a run's result says by name, as means over the seeds."""

import math

import numpy as np
import pytest

from surefoot.reports.figures.shift import under_shift
from surefoot.reports.runs import places, read_run
from tests.reports.cases import shift_numbers, write_run


def read(folder):
    return under_shift([read_run(place) for place in places(folder)])


def row(kind, severity, method, ece):
    auroc = None if kind == "clean" or method != "none" else 0.5 + ece
    return {"kind": kind, "severity": severity, "method": method, "ece": ece, "accuracy": 1 - ece, "nll": 3 * ece,
            "auroc": auroc}  # fmt: skip


def test_what_a_run_writes_is_what_the_page_reads(tmp_path):
    from surefoot.shift.measure import quantities

    rows = []
    for method, share in (("none", 1.0), ("temperature", 0.5)):
        rows.append(row("clean", 0, method, 0.04 * share))
        rows += [row("fog", severity, method, 0.1 * severity * share) for severity in (1, 5)]
        rows += [row("snow", severity, method, 0.06 * severity * share) for severity in (1, 5)]
    foreign = [{"set": "svhn", "score": score, "auroc": area, "fpr95": 0.5}
               for score, area in (("max_probability", 0.8), ("energy", 0.9))]  # fmt: skip
    names = quantities(rows, foreign)
    assert names["shift.severity0.ece"] == pytest.approx(0.04)
    assert names["shift.severity5.ece"] == pytest.approx((0.5 + 0.3) / 2)
    assert names["shift.temperature.severity5.nll"] == pytest.approx(3 * 0.2)
    assert names["shift.severity1.auroc"] == pytest.approx(0.58)
    assert "shift.severity0.auroc" not in names  # clean against itself
    write_run(tmp_path / "a", readings=3, shift=names)
    found = read(tmp_path)
    assert (found["kinds"], found["sets"]) == (["fog", "snow"], ["svhn"])
    [entry] = found["settings"]
    assert [row["severity"] for row in entry["plain"]["severities"]] == [0, 1, 5]
    assert [row["ece"]["mean"] for row in entry["plain"]["severities"]] == pytest.approx([0.04, 0.08, 0.4])
    assert [row["ece"]["mean"] for row in entry["temperature"]["severities"]] == pytest.approx([0.02, 0.04, 0.2])
    assert entry["plain"]["mean"]["accuracy"]["mean"] == pytest.approx(1 - 0.24)
    assert entry["temperature"]["mean"]["ece"]["mean"] == pytest.approx(0.12)
    assert entry["kinds"]["snow"] == pytest.approx({"ece": 0.18, "accuracy": 0.82, "nll": 0.54})
    assert entry["auroc"]["mean"] == pytest.approx(0.74)
    assert entry["foreign"]["svhn"]["mean"] == 0.8  # by the largest probability


def test_means_and_intervals_are_over_the_seeds(tmp_path):
    for seed in (0, 1, 2):
        write_run(tmp_path / f"s{seed}", seed=seed, readings=3, shift=shift_numbers(seed))
    write_run(tmp_path / "bad", seed=3, readings=3, outcome="diverged", shift=shift_numbers(50))
    write_run(tmp_path / "unread", seed=4, readings=3)
    write_run(tmp_path / "sam", "sam", readings=3, shift=shift_numbers(0, ("fog", "motion_blur"), worse=0.1))
    found = read(tmp_path)
    sgd = next(entry for entry in found["settings"] if entry["method"] == "sgd")
    assert (sgd["runs"], sgd["left_out"]) == (3, 2)
    third = sgd["plain"]["severities"][2]
    assert third["severity"] == 3
    assert third["ece"]["mean"] == pytest.approx(np.mean([0.23, 0.24, 0.25]))
    assert third["ece"]["std"] == pytest.approx(0.01)
    assert 0.229 < third["ece"]["low"] < 0.235 < 0.245 < third["ece"]["high"] < 0.251
    assert found["kinds"] == ["motion_blur", "fog"]  # the worst first
    assert {entry["label"] for entry in found["settings"]} == {"sgd, η = 0.1", "sam, η = 0.1"}


def test_runs_that_were_not_read_under_shift(tmp_path):
    write_run(tmp_path / "a", readings=3)
    assert read(tmp_path) == {"kinds": [], "sets": [], "settings": []}


def test_foreign_sets_alone(tmp_path):
    write_run(tmp_path / "a", readings=3, shift={"ood.svhn.auroc": 0.8, "shift.severity0.ece": 0.1})
    found = read(tmp_path)
    assert (found["kinds"], found["sets"]) == ([], ["svhn"])
    assert found["settings"][0]["auroc"] is None


def test_results_without_means_by_severity(tmp_path):
    older = {name: value for name, value in shift_numbers(0).items() if ".severity" not in name}
    write_run(tmp_path / "a", readings=3, shift=older)
    found = read(tmp_path)
    assert found["settings"][0]["plain"]["severities"] == []
    assert found["kinds"] == ["motion_blur", "fog"]


def test_a_strangers_names_and_numbers(tmp_path):
    many = {f"shift.kind{place}.ece": 0.1 for place in range(3000)}
    many |= {f"ood.set{place}.auroc": 0.5 for place in range(3000)}
    odd = {"shift.ece": 0.1, "shift.a.b.ece": 0.1, "shift..ece": 0.1, f"shift.{'x' * 61}.ece": 0.1,
           "shift.text.ece": "x", "shift.true.ece": True, "shift.endless.ece": math.inf,
           "shift.severity9.ece": 0.1}  # fmt: skip
    write_run(tmp_path / "many" / "a", readings=3, shift=many)
    write_run(tmp_path / "odd" / "a", readings=3, shift=odd)
    for seed in (0, 1):
        huge = {"shift.ece": 1.7e308, "shift.huge.ece": 1.7e308}
        write_run(tmp_path / "huge" / f"{seed}", seed=seed, readings=3, shift=huge)
    found = read(tmp_path / "many")
    assert len(found["kinds"]) == 40
    assert len(found["sets"]) == 12
    assert read(tmp_path / "odd")["kinds"] == []
    with np.errstate(over="ignore", invalid="ignore"):
        assert read(tmp_path / "huge")["kinds"] == []
