"""Registry entries: each is true, and one more from outside of the package is met everywhere."""

import ast
import inspect
import json
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import surefoot as sf
from surefoot.cli import app
from surefoot.data.registry import DATASETS
from surefoot.ensembles import BatchEnsemble
from surefoot.ensembles.registry import ENSEMBLES
from surefoot.errors import BadInput
from surefoot.loss import _NAMED
from surefoot.losses.registry import LOSSES
from surefoot.metrics.registry import METRICS, higher_is_better, tracked_metrics
from surefoot.metrics.value import Value
from surefoot.models.registry import MODELS
from surefoot.optim.registry import OPTIMIZERS
from surefoot.posthoc.calibrator import Calibrator
from surefoot.posthoc.registry import CALIBRATORS, build_calibrator
from surefoot.predictions import Predictions
from surefoot.registry import (
    CalibratorEntry,
    DatasetEntry,
    EnsembleEntry,
    Entry,
    LossEntry,
    MetricEntry,
    OptimizerEntry,
    resolve,
    table,
)
from surefoot.reports.page.payload import payload
from surefoot.runs.checkpoint import load_best
from surefoot.runs.records import read_journal
from surefoot.shift import corruptions
from surefoot.studies.folder import StudyFolder
from surefoot.studies.plan import DatasetIndex, cost_of, make_plan
from surefoot.studies.select import choose
from surefoot.studies.spec import study_of
from surefoot.training.assemble import check_parts
from surefoot.training.loaded import open_run
from surefoot.training.run import run
from tests.losses import cases as loss_cases
from tests.optim import cases as optimizer_cases
from tests.studies.cases import small
from tests.training.test_runs import RULES, Killed, files, spec

TABLES = {
    "metric": METRICS, "optimizer": OPTIMIZERS, "loss": LOSSES, "ensemble": ENSEMBLES, "model": MODELS,
    "calibrator": CALIBRATORS, "data set": DATASETS,
}  # fmt: skip
ENTRIES = [pytest.param(entry, id=f"{kind} {name}") for kind, rows in TABLES.items() for name, entry in rows.items()]


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_is_true_of_its_builder(entry):
    """The reference resolves, and the names in the entry are parameters of what it resolves to."""
    assert callable(entry.resolve())
    known = inspect.signature(entry.resolve()).parameters
    assert {*entry.fixed, *entry.given} <= set(known)
    assert not {*entry.fixed} & {*entry.given}
    for reference in (getattr(entry, "module", None), getattr(entry, "fetch", None)):
        assert reference is None or callable(resolve(reference))


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


def test_costs_know_the_defaults_of_the_options_that_matter():
    known = [(entry, entry.directions.items()) for entry in OPTIMIZERS.values()]
    known += [(entry, [entry.repeats]) for entry in ENSEMBLES.values() if entry.repeats and not entry.separate]
    for entry, options in known:
        for name, default in options:
            assert entry.parameters()[name].default == default, entry.name


def test_optimizers_are_built_around_one_thing():
    assert {entry.given[0] for entry in OPTIMIZERS.values()} == {"params", "base"}


@pytest.mark.parametrize(
    ("rows", "tested"),
    [
        (OPTIMIZERS, {rule.name for rule in optimizer_cases.RULES}),
        (OPTIMIZERS, set(RULES)),
        (LOSSES, {*loss_cases.LOSSES, *loss_cases.OBJECTIVES, "mse-sum"}),
    ],
    ids=["optimizers", "runs", "losses"],
)
def test_the_conformance_suites_leave_none_out(rows, tested):
    assert set(rows) <= tested


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
    one = spec({"name": "sgd", "lr": 1.0}, steps=20, best={"metric": f"val.{name}"}, track={"every": 2})
    done = run(one, tmp_path)
    values = [reading[f"val.{name}"] for reading in read_journal(done.folder / "journal.jsonl")[0]]
    assert load_best(done.folder)[1][f"val.{name}"] == max(values) > min(values)


def test_settings_are_chosen_by_the_highest(monkeypatch, tmp_path):
    """An AUROC, where the name of the metric does not end in accuracy."""
    name = "auroc_misclassification"
    monkeypatch.setitem(METRICS, name, replace(METRICS[name], tracked="all"))
    axes = {
        "method": [{"name": "SGD", "optimizer": {"name": "sgd"}}],
        "lr": {"key": "optimizer.lr", "values": [1e-4, 0.3, 1.0]},
    }
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
    assert higher_is_better("mean_confidence") is None
    monkeypatch.setitem(METRICS, "mean_confidence", replace(METRICS["mean_confidence"], tracked="all"))
    assert "mean_confidence" in tracked_metrics("val")
    for metric in ("val.mean_confidence", "val.auroc_ovr", "test.nll"):
        with pytest.raises(BadInput, match=r"choices are made on validation, by one of val\.accuracy, val\.nll"):
            spec(best={"metric": metric})
    with pytest.raises(BadInput, match="metric must be one of accuracy, nll"):
        sf.posthoc.Auto("mean_confidence").check_settings()
    p = Predictions([[2.0, 0.0], [0.0, 1.0]] * 20, [0, 0] * 20)
    assert sf.posthoc.compare(p, p, ["mean_confidence"], resamples=10)["mean_confidence"].verdict == "undefined"


# --- one more optimizer -------------------------------------------------------------------------------------------


class Halved(torch.optim.SGD):
    """SGD with half the learning rate, found by asking twice."""

    def step(self, closure):
        closure()
        loss = closure()
        for group in self.param_groups:
            group["lr"] /= 2
        super().step()
        for group in self.param_groups:
            group["lr"] *= 2
        return loss


HALVED = {"name": "halved", "lr": 0.4, "momentum": 0.9}


@pytest.fixture
def optimizer(monkeypatch):
    given = OPTIMIZERS["sgd"].given
    entry = OptimizerEntry("halved", "tests.test_registry:Halved", given=given, gradients=2, colour="#123456")
    monkeypatch.setitem(OPTIMIZERS, entry.name, entry)
    return entry


def test_an_optimizer_trains_resumes_and_has_a_cost_and_a_colour(optimizer, tmp_path):
    halved = spec(HALVED)
    whole = run(halved, tmp_path / "whole")

    def die(step, *_):
        if step == 7:
            raise Killed

    with pytest.raises(Killed):
        run(halved, tmp_path / "parts", watch=die)
    assert files(run(halved, tmp_path / "parts").folder) == files(whole.folder)
    assert cost_of(halved, 60) == 2 * cost_of(spec("sgd"), 60)
    with pytest.raises(BadInput, match="halved has no option 'fused'; it has lr, momentum"):
        run(spec(HALVED | {"fused": True}), tmp_path)
    with pytest.raises(BadInput, match="did you mean 'halved'"):
        cost_of(spec({"name": "hlved"}), 60)
    assert payload(tmp_path / "whole")["runs"][0]["colour"] == "#123456"


# --- one more loss ------------------------------------------------------------------------------------------------


class Doubled(sf.losses.Objective):
    """Twice a factor times the cross-entropy."""

    gradients = 3

    def __init__(self, examples, factor=1.0):
        super().__init__()
        self.examples, self.factor = examples, factor

    def forward(self, model, batch):
        assert self.examples == 60
        return 2 * self.factor * torch.nn.functional.cross_entropy(model(batch.inputs), batch.labels)


@pytest.fixture
def loss(monkeypatch):
    given = ("examples",)
    entry = LossEntry("doubled", "tests.test_registry:Doubled", given=given, gradients=3, needs_validation=True)
    monkeypatch.setitem(LOSSES, entry.name, entry)
    return entry


def test_a_loss_trains_resumes_and_has_a_cost(loss, tmp_path):
    doubled = spec({"name": "sgd", "lr": 0.1}, loss={"name": "doubled", "factor": 0.5})
    done = run(doubled, tmp_path)
    assert done.final["test.nll"] == run(spec({"name": "sgd", "lr": 0.1}), tmp_path).final["test.nll"]
    assert done.final["gradients"] == 3 * done.step
    assert cost_of(doubled, 60) == 3 * cost_of(spec(), 60)
    with pytest.raises(BadInput, match="loss doubled has no option 'examples'; it has factor"):
        run(spec(loss={"name": "doubled", "examples": 3}), tmp_path)
    with pytest.raises(BadInput, match=r"loss doubled looks at validation examples after each epoch; set data\.val"):
        spec(loss="doubled", data={"name": "digits"})


# --- one more ensemble --------------------------------------------------------------------------------------------


class Twice(BatchEnsemble):
    """A BatchEnsemble of two, by another name."""

    def __init__(self, model, copies=2):
        super().__init__(model, copies)


def test_an_ensemble_trains_and_has_a_cost(monkeypatch, tmp_path):
    entry = EnsembleEntry("twice", "tests.test_registry:Twice", given=("model",), repeats=("copies", 2))
    monkeypatch.setitem(ENSEMBLES, entry.name, entry)
    done, known = run(spec(ensemble="twice"), tmp_path), run(spec(ensemble={"name": "batch", "members": 2}), tmp_path)
    assert done.final["test.nll"] == known.final["test.nll"]
    assert cost_of(spec(ensemble="twice"), 60) == 2 * cost_of(spec(), 60)
    check_parts(spec(ensemble={"name": "twice", "copies": 3}), (1, 8, 8), 10)
    with pytest.raises(BadInput, match="ensemble twice has no option 'members'; it has copies"):
        run(spec(ensemble={"name": "twice", "members": 3}), tmp_path)


# --- one more model -----------------------------------------------------------------------------------------------


class Linear(torch.nn.Sequential):
    def __init__(self, features, classes, bias=True):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(features, classes, bias))


def test_a_model_trains_opens_and_is_checked(monkeypatch, tmp_path):
    entry = Entry("linear", "tests.test_registry:Linear", given=("features", "classes"))
    monkeypatch.setitem(MODELS, entry.name, entry)
    done = run(spec(model={"name": "linear", "bias": False}), tmp_path)
    assert [tuple(p.shape) for p in open_run(done.folder).model.parameters()] == [(10, 64)]
    check_parts(spec(model="linear"), (1, 8, 8), 10)
    with pytest.raises(BadInput, match="linear has no option 'features'; it has bias"):
        run(spec(model={"name": "linear", "features": 3}), tmp_path)


# --- one more calibrator ------------------------------------------------------------------------------------------


class Sharpened(Calibrator):
    """Logits times a factor that makes the mean confidence the accuracy, roughly."""

    method = "sharpened"
    learned = ("factor_",)

    def _fit(self, p):
        self.factor_ = float(sf.metrics.accuracy(p) / sf.metrics.mean_confidence(p))

    def _map(self, p):
        return np.asarray(p.log_probs) * self.factor_, "logits"


class SharpenedModule(torch.nn.Module):
    def __init__(self, calibrator):
        super().__init__()
        self.factor = calibrator.factor_

    def forward(self, logits):
        return torch.log_softmax(torch.log_softmax(logits.double(), 1) * self.factor, 1)


def test_a_calibrator_is_chosen_saved_and_deployed(monkeypatch, tmp_path):
    entry = CalibratorEntry(
        "sharpened", "tests.test_registry:Sharpened", module="tests.test_registry:SharpenedModule", keeps_order=True
    )
    monkeypatch.setitem(CALIBRATORS, entry.name, entry)
    random = np.random.default_rng(0)
    p = Predictions(3 * random.normal(size=(200, 3)), random.integers(0, 3, 200))
    assert "sharpened" in {each.name for each in sf.posthoc.Auto(nested=False).fit(p).scores_}
    fitted = build_calibrator("sharpened").fit(p)
    fitted.save(tmp_path / "map.json")
    again = sf.posthoc.load(tmp_path / "map.json").apply(p)
    assert (again.probs == fitted.apply(p).probs).all()
    module = fitted.to_module()(torch.tensor(p.logits.copy())).exp().numpy()
    np.testing.assert_allclose(module, again.probs, atol=1e-12)
    p.save(tmp_path / "p.npz")
    files = str(tmp_path / "p.npz"), str(tmp_path / "p.npz")
    found = CliRunner().invoke(app, ["calibrate", *files, "--method", "sharpened", "--json"])
    assert json.loads(found.stdout)["method"] == "sharpened"


# --- one more data set --------------------------------------------------------------------------------------------


def stripes(root, width):
    """Images of two kinds: of rows, and of columns."""
    if not (root / "stripes.txt").exists():
        return None
    labels = np.arange(60) % 2
    lines = np.indices((8, width))[labels] % 2 * 15 + np.arange(60)[:, None, None] % 3
    images = lines.astype(np.uint8)[..., None]
    return images, labels, images[:30], labels[:30]


def test_a_data_set_is_listed_and_trained_on(monkeypatch, tmp_path):
    entry = DatasetEntry(
        "stripes", "tests.test_registry:stripes", fixed={"width": 8}, given=("root",), what="60 images of stripes",
        remedy="write stripes.txt there",
    )  # fmt: skip
    monkeypatch.setitem(DATASETS, entry.name, entry)
    one = spec(data={"name": "stripes"}, stop={"steps": 4, "batch": 20})
    with pytest.raises(BadInput, match=r"stripes is not in the data folder; write stripes\.txt there"):
        run(one, tmp_path, tmp_path)
    (tmp_path / "stripes.txt").touch()
    assert run(one, tmp_path, tmp_path).outcome == "finished"
    study = study_of(small(base={**small()["base"], "data": {"name": "stripes"}}))
    assert all(planned.steps for planned in make_plan(study, None, DatasetIndex(tmp_path)).runs)
    listed = CliRunner().invoke(app, ["data", "list"]).stdout
    assert "stripes        60 images of stripes; write stripes.txt there" in listed


# --- one more corruption ------------------------------------------------------------------------------------------


def inverted(images, draws, share):
    return images * (1 - share) + (1 - images) * share


def test_a_corruption_is_read_after_a_run(monkeypatch, tmp_path):
    monkeypatch.setitem(corruptions._TABLE, "inverted", (inverted, [(0.1,), (0.2,), (0.3,), (0.4,), (0.5,)]))
    white = np.full((1, 8, 8, 1), 255, np.uint8)
    assert sf.shift.corrupt(white, "inverted", 4).max() == 153
    done = run(spec(shift={"corruptions": "inverted", "severities": [1, 5]}), tmp_path)
    assert done.final["shift.inverted.accuracy"] <= done.final["test.accuracy"]


# --- the table in CONTRIBUTING ------------------------------------------------------------------------------------


def test_contributing_names_files_and_tables_that_exist():
    root = Path(__file__).parents[1]
    text = (root / "CONTRIBUTING.md").read_text().partition("## Add a method")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and "`" in line]
    assert {row[0] for row in rows} == {*TABLES, "corruption"}
    for kind, _, home, *more in rows:
        name, file = re.findall(r"`([^`]+)`", home)
        module = import_module("surefoot." + file.removesuffix(".py").replace("/", "."))
        assert getattr(module, name) is TABLES.get(kind, corruptions._TABLE)
        for path in re.findall(r"`([^`]+)`", " ".join(more)):
            assert (root / path).exists() or (root / "src" / "surefoot" / path).exists(), path


def test_the_pages_for_users_have_every_optimizer_and_ensemble():
    docs = Path(__file__).parents[1] / "docs"
    for rows, page in ((OPTIMIZERS, "OPTIMIZERS.md"), (ENSEMBLES, "ENSEMBLES.md")):
        text = (docs / page).read_text()
        assert [name for name, entry in rows.items() if entry.resolve().__name__ not in text] == []


# --- no other lists -----------------------------------------------------------------------------------------------

# Lists that stand elsewhere for a reason, which a reviewer has agreed to. Everything else is derived from a table.
EXCEPTIONS = {
    "cli/train.py": "the few lines that are printed at the end of a run",
    "loss.py": "the losses whose curvature is known in closed form; a layer below the registry",
    "metrics/state.py": "what sums per bin can tell",
    "posthoc/auto.py": "the metrics that are means of columns of Predictions, by column",
    "reports/figures/compare.py": "the measures of one figure",
    "reports/figures/panels.py": "the panels of Morosini et al. (2026), in the order of their figures",
    "studies/tables.py": "the columns of a table that names none",
}


def names_in(node):
    """The words of a literal: elements of a list, keys of a table, and words of a text."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        parts = [leaf for element in node.elts for leaf in ast.walk(element)]
    elif isinstance(node, ast.Dict):
        parts = [key for key in node.keys if key is not None]
    elif isinstance(node, ast.Constant):
        return set(re.findall(r"[\w-]+", node.value)) if isinstance(node.value, str) else set()
    else:
        return set()
    words = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return {word.rpartition(".")[2] for word in words}


def hand_lists(source):
    """Which kinds of methods a module enumerates: literals that hold three names or more of one kind."""
    tree = ast.parse(source)
    skipped = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}  # docstrings
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "__all__":
            skipped.add(id(statement.value))
    found = {
        (kind, node.lineno)
        for node in ast.walk(tree)
        if id(node) not in skipped
        for kind, rows in TABLES.items()
        if len(names_in(node) & set(rows)) >= 3
    }
    return sorted(found)


def test_no_list_enumerates_methods_by_hand():
    root = Path(sf.__file__).parent
    found = {}
    for path in sorted(root.rglob("*.py")):
        if path.name != "registry.py" and (lists := hand_lists(path.read_text())):
            found[path.relative_to(root).as_posix()] = lists
    assert set(found) == set(EXCEPTIONS), {name: found[name] for name in found if name not in EXCEPTIONS}


def test_a_list_by_hand_would_be_seen():
    assert hand_lists('RULES = ["sgd", ("sam", 2), "csam"]') == [("optimizer", 1)]
    assert hand_lists('cost = {"calmo": 7, "mit-l": 2, "margin-tail": 6}') == [("loss", 1)]
    assert hand_lists('help = "temperature, vector or matrix"') == [("calibrator", 1)]
    assert hand_lists('shown = ("test.ece", "val.nll", "accuracy")') == [("metric", 1)]
    assert hand_lists('"""sgd, sam and csam."""\n__all__ = ["ece", "mce", "rmsce"]\nkind in ("sgd", "sam")') == []


def test_losses_below_the_registry_are_those_of_the_registry():
    for name, build in _NAMED.items():
        assert repr(build()) == repr(LOSSES[name].build())
