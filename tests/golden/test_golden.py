"""Results that stay as they are: ids, journals, weights, tables, the data of a report page, and old run folders.

The rule: every golden key is there with its golden value. Keys may be added. A key, or a word that stands for one in a
table, may be renamed if ``renamed.json`` says so (old name → new name); every entry there is reviewed. Values never
change.

Where no key was added or renamed, files are compared byte for byte. That holds on the machine that made the golden
files (``machine.json``: versions of torch and numpy, processor); elsewhere numbers may differ by one part in 10,000.

Specs are kept in the spelling of version 0.1.0 (``rule``, …), which must stay readable for good. The run folders in
``old`` were written by version 0.1.0 and are never made again: ``finished`` is a whole run, ``interrupted`` is the same
run killed after step 13 of 24, its last checkpoint at step 10. Everything else is made by ``make.py``, only to be run
when a change of numbers has been reviewed.
"""

import json
import shutil

import numpy as np
import pytest

import surefoot as sf
from tests.golden import cases
from tests.golden.compare import Comparison, lines, records, table

READ = {".jsonl": records, ".json": json.loads, ".csv": table, ".md": lines}
MADE_BY, NOW = json.loads(cases.MACHINE.read_text()), cases.machine()
SAME_MACHINE = MADE_BY == NOW
OTHER_MACHINE = f"golden bytes were made with {MADE_BY}; this is {NOW}"
FINISHED, INTERRUPTED = (next((cases.OLD / name).iterdir()) for name in ("finished", "interrupted"))
GOLDEN = Comparison(json.loads(cases.RENAMED.read_text()), SAME_MACHINE)


def check_text(golden, now):
    """Compare a golden file with the text that is in its place now."""
    GOLDEN.check_text(golden.read_bytes().decode(), now, READ[golden.suffix])


def check_run(golden, now):
    """Compare the readings and the result of two run folders."""
    for name in cases.FILES:
        check_text(golden / name, (now / name).read_bytes().decode())


def test_keys_may_be_added_and_renamed_and_values_may_not_change():
    rule = Comparison({"rule": "optimizer", "muon": "Muon"}, exact=True)
    golden = {"rule": {"lr": [0.1, "muon"]}}
    rule.check(golden, {"optimizer": {"lr": [0.1, "Muon"], "rho": 1}, "new": 2})
    changed = ({"optimizer": {}}, {"optimizer": {"lr": [0.1 + 1e-15, "Muon"]}}, {"step": {"lr": [0.1, "muon"]}})
    assert all(list(rule.differences(golden, now)) for now in changed)
    near = Comparison({}, exact=False)
    near.check([1.0, "0.52 ± 0.03"], [1.00005, "0.53 ± 0.03"])
    assert len(list(near.differences([1.0, "0.52 ± 0.03"], [1.001, "0.52 ± 0.05"]))) == 2


@pytest.mark.skipif(not SAME_MACHINE, reason=OTHER_MACHINE)
def test_bytes_are_compared():
    """Skipped where the tests below compare with a tolerance only."""


@pytest.mark.parametrize("case", cases.specs(), ids=lambda case: case["name"])
def test_a_spec_keeps_its_id(case, tmp_path):
    cases.write_arrays(tmp_path)
    assert cases.run_id(case["spec"], tmp_path) == case["id"]


@pytest.mark.parametrize("case", cases.runs(), ids=lambda case: case["name"])
def test_a_run_gives_the_same_readings_and_weights(case, tmp_path):
    folder = cases.train(case["spec"], tmp_path)
    assert folder.name == case["id"]
    golden = cases.RUNS / case["name"]
    check_run(golden, folder)
    tensors = cases.last_tensors(folder)
    with np.load(golden / cases.WEIGHTS) as weights:
        GOLDEN.check_tensors(weights, tensors)
    if SAME_MACHINE:
        GOLDEN.check(json.loads((golden / cases.TENSORS).read_text()), cases.described(tensors))


def test_a_study_gives_the_same_tables(tmp_path):
    cases.run_study(tmp_path / "study")
    for name, text in cases.tables(tmp_path / "study").items():
        check_text(cases.TABLES / name, text)


def test_a_stored_study_gives_the_same_tables():
    for name, text in cases.tables(cases.STUDY).items():
        check_text(cases.TABLES / name, text)


def test_a_stored_study_gives_the_same_page(tmp_path):
    GOLDEN.check(json.loads(cases.PAGE.read_text()), cases.page(cases.STUDY, tmp_path / "page.html"))


def test_old_runs_are_listed():
    found = [run for place in ("finished", "interrupted") for run in cases.status(cases.OLD / place)]
    assert [run["outcome"] for run in found] == ["finished", "unfinished"]
    GOLDEN.check(json.loads(cases.STATUS.read_text()), found)


def test_old_runs_are_on_a_page(tmp_path):
    runs = cases.page(cases.OLD, tmp_path / "page.html")["runs"]
    assert [(run["outcome"], run["step"], run["steps"]) for run in runs] == [
        ("finished", 24, 24),
        ("unfinished", 12, 24),
    ]


@pytest.mark.parametrize("which", [[], ["--best"]], ids=["last", "best"])
def test_an_old_run_predicts_as_it_did(which, tmp_path):
    out = tmp_path / "predictions.npz"
    cases.surefoot("predict", FINISHED, "--parts", "test,val", *which, "--out", out)
    result = json.loads((FINISHED / "result.json").read_text())
    with np.load(out) as found:
        test, val = (sf.Predictions(found[f"{part}_logits"], found[f"{part}_labels"]) for part in ("test", "val"))
    if which:
        assert float(sf.metrics.nll(val)) == pytest.approx(result["best"]["value"], rel=1e-5)
    else:
        assert float(sf.metrics.nll(test)) == pytest.approx(result["final"]["test.nll"], rel=1e-5)
        assert float(sf.metrics.ece(test)) == pytest.approx(result["final"]["test.ece"], rel=1e-4)


def test_old_runs_can_be_certified():
    for folder, step in ((FINISHED, 24), (INTERRUPTED, 10)):
        assert json.loads(cases.surefoot("certify", folder, "--json"))["step"] == step


def test_a_finished_old_run_is_only_reported(tmp_path):
    folder = tmp_path / FINISHED.name
    shutil.copytree(FINISHED, folder)
    found = sf.train(json.loads((folder / "spec.json").read_text()), tmp_path)
    assert (found.folder, found.outcome, found.step, found.fresh) == (folder, "finished", 24, False)


@pytest.mark.skipif(not SAME_MACHINE, reason=OTHER_MACHINE)
def test_an_interrupted_old_run_ends_as_the_whole_one(tmp_path):
    folder = tmp_path / INTERRUPTED.name
    shutil.copytree(INTERRUPTED, folder)
    found = sf.train(json.loads((folder / "spec.json").read_text()), tmp_path)
    assert (found.folder, found.outcome, found.step) == (folder, "finished", 24)
    check_run(FINISHED, folder)
    check_text(FINISHED / "examples.json", (folder / "examples.json").read_text())
    assert {path.name for path in FINISHED.iterdir()} <= {path.name for path in folder.iterdir()}
    GOLDEN.check_tensors(cases.last_tensors(FINISHED), cases.last_tensors(folder))
