"""Registry entries: each is true, and one more from outside of the package is met everywhere."""

import inspect
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import surefoot as sf
from surefoot.cli import app
from surefoot.errors import BadInput
from surefoot.metrics.registry import METRICS, higher_is_better, tracked_metrics
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions
from surefoot.registry import Entry, MetricEntry, table
from surefoot.studies.facts import DatasetIndex
from surefoot.studies.folder import StudyFolder
from surefoot.studies.plan import make_plan
from surefoot.studies.select import choose
from surefoot.studies.spec import study_of
from surefoot.training.checkpoint import load_best
from surefoot.training.journal import read_journal
from surefoot.training.run import run
from tests.studies.cases import small
from tests.training.test_runs import spec

TABLES = {"metric": METRICS}
ENTRIES = [pytest.param(entry, id=f"{kind} {name}") for kind, rows in TABLES.items() for name, entry in rows.items()]


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_is_true_of_its_builder(entry):
    """The reference resolves, and the names in the entry are parameters of what it resolves to."""
    assert callable(entry.resolve())
    known = inspect.signature(entry.resolve()).parameters
    assert {*entry.fixed, *entry.given} <= set(known)
    assert not {*entry.fixed} & {*entry.given}


@pytest.mark.parametrize("rows", TABLES.values(), ids=TABLES)
def test_tables_are_by_name(rows):
    assert all(name == entry.name for name, entry in rows.items())


def test_a_name_stands_once():
    with pytest.raises(ValueError, match="'a' stands in the table twice"):
        table([Entry("a", "math:sin"), Entry("a", "math:cos")])


@pytest.mark.parametrize("entry", METRICS.values(), ids=METRICS)
def test_metrics_take_bins_as_they_say(entry):
    assert entry.bins == ("bins" in inspect.signature(entry.resolve()).parameters)
    assert getattr(sf.metrics, entry.name) is entry.resolve()


# --- one more metric ----------------------------------------------------------------------------------------------


def hundredth(p):
    """A hundredth of the accuracy: better where it is higher, though its name does not say so."""
    return Value(float(sf.metrics.accuracy(p)) / 100, n=len(p))


@pytest.fixture
def metric(monkeypatch):
    entry = MetricEntry(
        "hundredth", "tests.test_registry:hundredth", label="Hundredth", better="higher", tracked="all", shifted=True
    )
    monkeypatch.setitem(METRICS, entry.name, entry)
    return entry


def test_a_metric_is_computed_compared_and_improved(metric, tmp_path):
    p = Predictions([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]] * 20, [0, 0, 1] * 20)
    assert sf.metrics.summary(p)["hundredth"] == sf.metrics.accuracy(p) / 100
    change = sf.posthoc.compare(p, p, resamples=10)["hundredth"]
    assert (replace(change, change=1.0, low=0.5, high=2.0)).verdict == "better"
    ranked = [each.score for each in sf.posthoc.Auto("hundredth", folds=2).fit(p).scores_ if not each.left_out]
    assert ranked == sorted(ranked, reverse=True)
    p.save(tmp_path / "p.npz")
    found = CliRunner().invoke(app, ["evaluate", str(tmp_path / "p.npz"), "--json"])
    assert json.loads(found.stdout)["metrics"]["hundredth"]["value"] == sf.metrics.accuracy(p) / 100


@pytest.mark.parametrize("name", ["hundredth", "auroc_misclassification"])
def test_the_best_weights_are_those_of_the_highest(name, metric, monkeypatch, tmp_path):
    monkeypatch.setitem(METRICS, name, replace(METRICS[name], tracked="all"))
    done = run(
        spec(steps=20, best={"metric": f"val.{name}"}, track={"every": 2}, rule={"name": "sgd", "lr": 1.0}), tmp_path
    )
    values = [reading[f"val.{name}"] for reading in read_journal(done.folder / "journal.jsonl")[0]]
    assert load_best(done.folder)[1][f"val.{name}"] == max(values) > min(values)


def test_settings_are_chosen_by_the_highest(monkeypatch, tmp_path):
    """An AUROC, where the name of the metric does not end in accuracy."""
    name = "auroc_misclassification"
    monkeypatch.setitem(METRICS, name, replace(METRICS[name], tracked="all"))
    axes = {"method": [{"name": "SGD", "rule": {"name": "sgd"}}], "lr": {"key": "rule.lr", "values": [1e-4, 0.3, 1.0]}}
    select = {"method": "SGD", "axes": ["lr"], "metric": f"val.{name}"}
    study = study_of(small(seeds=[0], axes=axes, select=select, tables=[]))
    plan = make_plan(study, None, DatasetIndex(None))
    scores = {}
    for planned in plan.runs:
        done = run(planned.spec, tmp_path / "runs")
        scores[planned.shown["lr"]] = done.final[f"val.{name}"]
    (choice,) = choose(plan, StudyFolder(tmp_path)).values()
    assert choice.score == max(scores.values()) > min(scores.values())
    assert scores[choice.values["lr"]] == choice.score


def test_a_metric_without_a_direction_chooses_nothing(monkeypatch):
    assert not higher_is_better("mean_confidence")
    monkeypatch.setitem(METRICS, "mean_confidence", replace(METRICS["mean_confidence"], tracked="all"))
    assert "mean_confidence" in tracked_metrics("val")
    for metric in ("val.mean_confidence", "val.auroc_ovr", "test.nll"):
        with pytest.raises(BadInput, match=r"choices are made on validation, by one of val\.accuracy, val\.nll"):
            spec(best={"metric": metric})
    with pytest.raises(BadInput, match="metric must be one of accuracy, nll"):
        sf.posthoc.Auto("mean_confidence").check_settings()
    p = Predictions([[2.0, 0.0], [0.0, 1.0]] * 20, [0, 0] * 20)
    assert sf.posthoc.compare(p, p, ["mean_confidence"], resamples=10)["mean_confidence"].verdict == "undefined"
