"""Names of version 0.1 work until 0.3, say what they are now, and stand in docs/MIGRATING.md."""

import hashlib
import importlib
import json
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import surefoot as sf
from surefoot import Predictions, curvature, ensembles, losses, margins, optim, theory
from surefoot.cli import OLD_FLAGS, _renamed, invoke
from surefoot.deprecated import _COMPUTED, OLD_MODULES, OLD_NAMES, old_value, renamed_arguments
from surefoot.ensembles.registry import ENSEMBLES, build_ensemble
from surefoot.errors import BadInput
from surefoot.losses.registry import LOSSES, Facts, build_objective
from surefoot.registry import Entry, LossEntry
from surefoot.runs.records import canonical
from surefoot.theory.softmax import logit_curvature_bound, tail_lower, tail_upper
from surefoot.training.run import run
from surefoot.training.spec import SCHEMA, RunSpec, read_spec

MIGRATING = (Path(__file__).parents[1] / "docs" / "MIGRATING.md").read_text()


@pytest.mark.parametrize(("old", "new"), OLD_MODULES.items())
def test_an_old_module_is_the_new_one(old: str, new: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{new}; the old name leaves in 0.3"):
        module = importlib.import_module(old)
    target = importlib.import_module(new)
    assert all(getattr(module, name) is getattr(target, name) for name in target.__all__)
    assert all(same(getattr(module, name), old_value(new, name)) for name in OLD_NAMES.get(new, {}))
    assert f"`{old}`" in MIGRATING


def same(value: Any, other: Any) -> bool:
    """One object, or equal tables; functions that are made on the spot are told by their code."""
    return value is other or value == other or value.__code__ is other.__code__


NAMES = [(module, old, new) for module, names in OLD_NAMES.items() for old, new in names.items()]


@pytest.mark.parametrize(("module", "old", "new"), NAMES)
def test_an_old_name_is_the_new_one(module: str, old: str, new: str) -> None:
    target = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=rf"{re.escape(module)}\.{old} is now ") as notices:
        assert same(getattr(target, old), old_value(module, old))
    assert {notice.filename for notice in notices} == {__file__}
    words = new.replace(":", ".")
    assert f"| `{module}` | `{old}` | `{words}` |" in MIGRATING or f"`{old}`" in MIGRATING


def test_values_that_were_tables_and_functions() -> None:
    values = {f"{module}.{name}": old_value(module, name) for module, name in _COMPUTED}
    assert {"auroc_ovr", "skce"} <= set(values["surefoot.metrics.registry.COSTLY"])
    assert {"accuracy", "auroc_ovr"} <= values["surefoot.metrics.registry.HIGHER_IS_BETTER"]
    assert values["surefoot.shift.official.OFFICIAL"]["cifar10"] == "CIFAR-10-C"
    assert values["surefoot.studies.plan.GRADIENTS"] == {"calmo": 7, "margin-tail": 6, "mit-l": 2}
    assert values["surefoot.studies.plan.PASSES"]["sam"] == 2
    assert "test.ece" in values["surefoot.reports.figures.panels.FINAL"]
    assert values["surefoot.loss.names_classes"](losses.CrossEntropy()) is True
    assert values["surefoot.validation.as_labels"]([0, 2], (2, 3)).tolist() == [0, 2]
    with pytest.raises(BadInput, match="labels"):
        values["surefoot.validation.as_labels"]([0, 3], (2, 3))
    inputs, labels = values["surefoot.training.tracker.as_split"]("train", (torch.zeros(2, 3), [0, 1]))
    assert (inputs.shape, labels.tolist()) == ((2, 3), [0, 1])
    assert values["surefoot.runs.reader.progress"](Path("no-such-run"))["step"] == 0


GONE = " ".join(
    line.split(" | ")[0]
    for line in MIGRATING.partition("## Names without an equivalent")[2].splitlines()
    if "|" in line
)
PUBLIC = json.loads((Path(__file__).parent / "names_0_1.json").read_text())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_name_of_0_1_works_or_is_listed_as_gone(module: str) -> None:
    """`names_0_1.json` holds every module of 0.1 and its ``__all__``."""
    found = importlib.import_module(module)
    missing = {name for name in PUBLIC[module] if not hasattr(found, name)}
    assert missing == {name for name in PUBLIC[module] if f"`{module}.{name}`" in GONE}


def test_a_name_that_never_was_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lifted'"):
        importlib.import_module("surefoot.losses").lifted  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("surefoot.doors")


def test_an_old_module_hides_no_function_of_its_name() -> None:
    p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    metrics = importlib.import_module("surefoot.metrics")
    known = importlib.import_module("surefoot.metrics.registry").summary(p)
    sys.modules.pop("surefoot.metrics.summary", None)
    with pytest.warns(DeprecationWarning, match=r"surefoot\.metrics\.registry"):
        importlib.import_module("surefoot.metrics.summary")
    assert metrics.summary(p) == known


def test_an_old_property() -> None:
    p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    with pytest.warns(DeprecationWarning, match="error_probability"):
        assert (p.doubt == p.error_probability).all()


@pytest.mark.parametrize(("command", "flag"), OLD_FLAGS)
def test_an_old_flag_is_the_new_one(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    new = OLD_FLAGS[command, flag]
    assert _renamed([command, "file", f"{flag}=value", flag]) == [command, "file", f"{new}=value", new]
    assert f"{flag} is now {new}" in capsys.readouterr().err
    assert _renamed(["status", flag]) == ["status", flag]
    assert f"| `surefoot {command}` | `{flag}` | `{new}` |" in MIGRATING


@pytest.mark.parametrize(("command", "flag"), OLD_FLAGS)
def test_an_old_flag_and_the_new_one_exclude_each_other(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    new = OLD_FLAGS[command, flag]
    assert invoke([command, "a", flag, "b", f"{new}=c"]) == 2
    assert f"{flag} is the old flag of {new}; give {new} alone" in capsys.readouterr().err


def test_a_change_under_both_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('rule = "sgd"\nstop.steps = 1')
    assert read_spec(tmp_path / "run.toml", ["optimizer.lr=0.1"]).optimizer.options == {"lr": 0.1}
    for changes in (["rule.lr=0.2", "optimizer.lr=0.3"], ["optimizer = sam", "rule.rho=0.1"]):
        with pytest.raises(BadInput, match="'rule' is the former name of 'optimizer'; give 'optimizer' alone"):
            read_spec(tmp_path / "run.toml", changes)


def test_old_arguments() -> None:
    @renamed_arguments(chunk="batch_size")
    def rows(batch_size: int) -> int:
        return batch_size

    with pytest.warns(DeprecationWarning, match="the argument chunk is now batch_size"):
        assert rows(chunk=3) == 3
    assert rows(batch_size=3) == 3
    with pytest.raises(TypeError, match="give batch_size alone"):
        rows(chunk=3, batch_size=3)


def arguments() -> list[tuple[str, Callable[..., object], dict[str, object]]]:
    model, x, y = nn.Linear(3, 2), torch.randn(8, 3), torch.arange(8) % 2
    operator = curvature.GaussNewton(model, x)
    p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    return [
        ("chunk", curvature.GaussNewton, {"model": model, "inputs": x}),
        ("chunk", curvature.Hessian, {"model": model, "inputs": x, "labels": y}),
        ("chunk", curvature.Sharpness, {"model": model, "inputs": x}),
        ("chunk", curvature.jacobian_norms, {"model": model, "inputs": x}),
        ("products", curvature.Sharpness, {"model": model, "inputs": x}),
        ("max_matvecs", operator.top, {}),
        ("max_matvecs", operator.bottom, {}),
        ("max_matvecs", curvature.Sharpness(model, x).top, {"k": 1}),
        ("max_matvecs", curvature.curvature_along_sam, {"model": model, "inputs": x, "labels": y, "rho": 0.1}),
        ("step", margins.pgd, {"model": model, "inputs": x, "labels": y, "eps": 0.1}),
        ("random", margins.pgd, {"model": model, "inputs": x, "labels": y, "eps": 0.1}),
        ("step", margins.robust, {"model": model, "inputs": x, "labels": y, "eps": 0.1}),
        ("random", margins.robust, {"model": model, "inputs": x, "labels": y, "eps": 0.1}),
        ("most", theory.largest_rho, {"model": model, "inputs": x, "labels": y}),
        ("every", sf.evaluate, {"p": p}),
    ]


VALUES = {"random": True, "every": True}


def test_old_arguments_of_functions() -> None:
    for old, function, others in arguments():
        with pytest.warns(DeprecationWarning, match=f"the argument {old} is now"):
            function(**others, **{old: VALUES.get(old, 8)})
        assert f"`{old}`" in MIGRATING


def test_old_arguments_do_what_the_new_ones_do() -> None:
    model, x, y = nn.Linear(3, 2), torch.randn(8, 3), torch.arange(8) % 2
    known = margins.pgd(model, x, y, 0.5, steps=1, step_size=0.1, random_start=True)
    for function in (margins.pgd, margins.robust):
        with pytest.warns(DeprecationWarning, match="the argument"):
            assert torch.equal(function(model, x, y, 0.5, steps=1, step=0.1, random=True), known)
    p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    with pytest.warns(DeprecationWarning, match="the argument every is now costly"):
        assert set(sf.evaluate(p, every=True).metrics) == set(sf.evaluate(p, costly=True).metrics)
    assert "skce" not in sf.evaluate(p).metrics


@pytest.mark.parametrize("statistic", [sf.shift.auroc_ood, sf.shift.fpr95_ood])
def test_in_and_out_of_distribution_by_their_old_names(statistic: Callable[..., float]) -> None:
    p, q = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0]), Predictions([[0.5, 0.0]], [0])
    with pytest.warns(DeprecationWarning, match="the argument") as notices:
        value = statistic(inside=p, outside=q)
    assert value == statistic(p, q) != statistic(q, p)
    assert sorted(str(notice.message).split(";")[0] for notice in notices) == [
        "the argument inside is now in_distribution", "the argument outside is now out_of_distribution",
    ]  # fmt: skip
    assert "`inside`, `outside`" in MIGRATING


def test_a_coverage_by_its_old_property() -> None:
    covered = theory.coverage(([[0.0], [1.0]], [0, 1]), ([[0.1], [0.9]], [0, 1]), eps=0.2)
    with pytest.warns(DeprecationWarning, match="the property whole is now complete"):
        assert covered.whole is covered.complete is True


def test_the_form_of_a_published_bound() -> None:
    """Both names make the form, a comparison with the former name says so, and files keep the former name."""
    for form in ("printed", "published"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bound = theory.Certificate("Lemma", "a ≤ b", 1.0, 2.0, form)
            assert bound.form == "published"
            assert bound.form != "tighter"
            assert {bound.form: 1}["published"] == 1
            assert bound == pickle.loads(pickle.dumps(bound)) == theory.Certificate("Lemma", "a ≤ b", 1.0, 2.0)
            (row,) = theory.Certificates([bound]).to_dict()["certificates"]
            assert json.loads(json.dumps(row))["form"] == "printed"
        with pytest.warns(DeprecationWarning, match="'printed' of a certificate is now 'published'") as notices:
            assert (bound.form == "printed", bound.form != "printed") == (True, False)
        assert {notice.filename for notice in notices} == {__file__}
    assert theory.Certificate("Lemma", "a ≤ b", 1.0, 2.0, "tighter").form != "printed"
    for function in (tail_upper, tail_lower):
        assert function([0.5], 3, "printed") == function([0.5], 3, "published") != function([0.5], 3)
    assert logit_curvature_bound([[0.6, 0.4]], "printed") == logit_curvature_bound([[0.6, 0.4]], "published")
    assert '`"printed"`' in MIGRATING


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("function", "others", "old", "new", "value"),
    [
        (losses.AdaFocal, {}, "least", "min_gamma", -3.0),
        (losses.AdaFocal, {}, "most", "max_gamma", 3.0),
        (losses.ARAdaLS, {"examples": 8}, "rivals", "runner_ups", 5),
        (losses.MarginTail, {}, "rivals", "runner_ups", 5),
        (losses.CalMO, {}, "step", "step_size", 0.5),
        (ensembles.MeanField, {"model": network()}, "prior", "prior_std", 0.5),
        (ensembles.Rank1BNN, {"model": network()}, "prior", "prior_std", 0.5),
        (ensembles.MIMO, {"model": network()}, "same", "input_repetition_probability", 0.5),
    ],
)
def test_an_old_argument_and_its_attribute(
    function: Callable[..., Any], others: dict[str, object], old: str, new: str, value: object
) -> None:
    with pytest.warns(DeprecationWarning, match=f"the argument {old} is now {new}"):
        made = function(**others, **{old: value})
    assert getattr(made, new) == value
    with pytest.warns(DeprecationWarning, match=f"the property {old} is now {new}"):
        assert getattr(made, old) == value
    assert f"`{old}`" in MIGRATING
    assert f"`{new}`" in MIGRATING


@pytest.mark.parametrize("ensemble", [ensembles.BatchEnsemble, ensembles.MeanField])
def test_the_standard_deviation_of_an_ensemble_by_its_old_name(ensemble: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    known = ensemble(network(), std=0.25)
    torch.manual_seed(0)
    with pytest.warns(DeprecationWarning, match="the argument deviation is now std"):
        made = ensemble(network(), deviation=0.25)
    for name, tensor in known.state_dict().items():
        torch.testing.assert_close(made.state_dict()[name], tensor, rtol=0, atol=0)
    with pytest.warns(DeprecationWarning, match="the property deviation is now std"):
        assert made.deviation == 0.25
    assert "`deviation`" in MIGRATING


def test_a_run_spec_by_its_old_key() -> None:
    with pytest.warns(DeprecationWarning, match="the argument rule is now optimizer") as notices:
        spec = RunSpec(rule={"name": "sgd", "lr": 0.1}, stop={"steps": 1})
    assert {notice.filename for notice in notices} == {__file__}
    assert spec == RunSpec(optimizer={"name": "sgd", "lr": 0.1}, stop={"steps": 1})
    with pytest.warns(DeprecationWarning, match="the property rule is now optimizer"):
        assert spec.rule == spec.optimizer
    with (
        pytest.raises(BadInput, match="'rule' is the former name of 'optimizer'"),
        pytest.warns(DeprecationWarning, match="rule"),
    ):
        RunSpec(rule="sgd", optimizer="sgd", stop={"steps": 1})


def test_a_run_by_its_old_argument(tmp_path: Path) -> None:
    spec = RunSpec(optimizer={"name": "sgd", "lr": 0.1}, stop={"steps": 1}, data={"train": 20, "test": 20})
    with pytest.warns(DeprecationWarning, match="the argument other_versions is now allow_version_mismatch"):
        assert run(spec, tmp_path, other_versions=True).outcome == "finished"


def test_a_loss_of_ones_own_may_say_that_it_needs_validation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Own(losses.Focal):
        needs_validation = True

    monkeypatch.setattr(sys.modules[__name__], "Own", Own, raising=False)
    monkeypatch.setitem(LOSSES, "own", LossEntry("own", f"{__name__}:Own"))
    table = {"optimizer": "sgd", "stop": {"steps": 1}, "loss": "own", "data": {"train": 20, "test": 20}}
    with pytest.raises(BadInput, match=r"loss own looks at validation examples .* set data\.val"):
        sf.train(table, tmp_path)
    assert sf.train(table | {"data": {"train": 20, "test": 20, "val": 20}}, tmp_path).outcome == "finished"


FORMER = [
    pytest.param(kind, entry, former, id=f"{kind} {name} {former}")
    for kind, entries in (("loss", LOSSES), ("ensemble", ENSEMBLES))
    for name, entry in entries.items()
    for former in entry.former_options
]


@pytest.mark.parametrize(("kind", "entry", "former"), FORMER)
def test_a_former_option_of_a_spec_is_read_for_good(kind: str, entry: Entry, former: str) -> None:
    """The spec stays as written, the method gets the current name without a notice, and both have one run id."""
    current = entry.former_options[former]
    value = entry.parameters()[current].default * 2 or 0.5
    specs = {
        name: RunSpec(optimizer="sgd", stop={"steps": 1}, **{kind: {"name": entry.name, name: value}}, data={"val": 1})
        for name in (former, current)
    }
    assert getattr(specs[former], kind).options == {former: value}
    assert specs[former].run_id("") == specs[current].run_id("")

    def build(**options: object) -> object:
        if kind == "loss":
            return build_objective(entry.name, options, Facts(8, 2, torch.tensor))
        return build_ensemble(entry.name, network(), **options)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(build(**{former: value})) == repr(build(**{current: value}))
    with pytest.raises(BadInput, match=f"{former!r} is the former name of {current!r}"):
        build(**{former: value, current: value})
    assert f"`{former}`" in MIGRATING
    assert f"`{current}`" in MIGRATING


def test_the_id_of_a_run_with_former_options_is_that_of_version_0_1() -> None:
    options = {"least": -3.0, "most": 3.0}
    spec = RunSpec(optimizer="sgd", stop={"steps": 1}, data={"val": 1}, loss={"name": "ada-focal", **options})
    former = {key: value for key, value in spec.resolved().items() if key != "optimizer"}
    former["rule"] = {"name": "sgd"}
    text = canonical({"schema": SCHEMA, "spec": former, "data": "d"})
    assert spec.run_id("d") == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_an_operator_of_ones_own_may_take_the_old_argument() -> None:
    class Old:
        def __init__(self, operator: curvature.GaussNewton) -> None:
            self.operator, self.parameters = operator, operator.parameters

        def refresh(self) -> None:
            self.operator.refresh()

        def top(self, k: int, tol: float, start: object, *, max_matvecs: int) -> curvature.Eigenpairs:
            return self.operator.top(k, tol, start, max_products=max_matvecs)

    model, x = nn.Linear(3, 2), torch.randn(8, 3)
    opt = optim.BulkSGD(model.parameters(), 0.1, Old(curvature.GaussNewton(model, x)), k=1)
    model(x).square().sum().backward()
    opt.step()
    assert opt.last["matvecs"] > 0
