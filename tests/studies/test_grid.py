"""From a study's file to its runs: products, zips, overrides, scales, and everything that is refused."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from surefoot.errors import BadInput
from surefoot.studies.grid import merged, put
from surefoot.studies.plan import DatasetIndex, cost_of, make_plan, steps_of
from surefoot.studies.spec import read_study, study_of
from surefoot.training.spec import spec_of
from tests.studies.cases import small

LR = {"key": "optimizer.lr", "values": [0.1, 0.3]}
SAM = {"name": "SAM", "optimizer": {"name": "sam", "base": "sgd"}, "over": {"lr": {"key": "optimizer.base.lr"}}}
STUDIES = Path(__file__).parents[2] / "studies"
SHAPES = {"digits": (1, 8, 8), "tiny-imagenet": (3, 64, 64), "imagenet": (3, 224, 224)}
SHIPPED = [path for path in sorted(STUDIES.rglob("*.toml")) if "base" in tomllib.loads(path.read_text())]


def plan(scale=None, **changes):
    return make_plan(study_of(small(**{"tables": []} | changes)), scale, DatasetIndex(None))


def labels(**changes):
    return [run.label for run in plan(**changes).runs]


def test_the_grid_is_the_product_in_order():
    axes = {"method": [{"name": "SGD", "optimizer": "sgd"}, SAM], "lr": LR}
    runs = plan(axes=axes, seeds=[0, 7]).runs
    assert [run.label for run in runs] == [
        "SGD lr=0.1 seed=0",
        "SGD lr=0.1 seed=7",
        "SGD lr=0.3 seed=0",
        "SGD lr=0.3 seed=7",
        "SAM lr=0.1 seed=0",
        "SAM lr=0.1 seed=7",
        "SAM lr=0.3 seed=0",
        "SAM lr=0.3 seed=7",
    ]
    assert runs[3].spec.optimizer.options == {"lr": 0.3}
    assert runs[3].spec.seed == 7
    assert runs[6].spec.optimizer.options == {"base": {"name": "sgd", "lr": 0.3}}
    assert runs[6].values == {"method": "SAM", "lr": 0.3}
    assert len({run.id for run in runs}) == 8


def test_names_of_runs_do_not_change():
    """An id names a folder on somebody's disk: this one must be found again by later versions."""
    (run,) = plan(seeds=[3], axes={"method": [{"name": "GD", "optimizer": {"name": "gd", "lr": 0.5}}]}).runs
    digest = DatasetIndex(None).of("digits").digest
    assert run.id == run.spec.run_id(digest)
    again = spec_of(run.spec.resolved())
    assert again.run_id(digest) == run.id
    assert labels(seeds=[3]) == ["SGD seed=3", "AdamW seed=3"]


def test_an_entry_may_have_its_own_values_its_own_key_or_no_such_axis():
    axes = {
        "method": [
            {"name": "SGD", "optimizer": "sgd"},
            {"name": "AdamW", "optimizer": "adamw", "over": {"lr": [0.001]}},
            {"name": "Muon", "optimizer": "muon", "over": {"lr": False}},
        ],
        "lr": LR,
    }
    assert labels(axes=axes, seeds=[0]) == [
        "SGD lr=0.1 seed=0",
        "SGD lr=0.3 seed=0",
        "AdamW lr=0.001 seed=0",
        "Muon seed=0",
    ]


def test_fractions_are_numbers_and_stay_readable():
    axes = {"method": [{"name": "GD", "optimizer": "gd"}], "lr": {"key": "optimizer.lr", "values": ["2/70", "2/30"]}}
    runs = plan(axes=axes, seeds=[0]).runs
    assert [run.label for run in runs] == ["GD lr=2/70 seed=0", "GD lr=2/30 seed=0"]
    assert [run.spec.optimizer.options["lr"] for run in runs] == [2 / 70, 2 / 30]


def test_values_that_agree_in_four_digits_are_told_apart():
    axes = {"lr": {"key": "optimizer.lr", "values": [0.100001, 0.100002]}}
    base = small()["base"] | {"optimizer": "sgd"}
    assert labels(axes=axes, base=base, seeds=[0], tables=[]) == ["lr=0.100001 seed=0", "lr=0.100002 seed=0"]


def test_zipped_axes_go_together():
    axes = {
        "method": [{"name": "SGD", "optimizer": "sgd"}],
        "lr": LR,
        "wd": {"key": "rule.weight_decay", "values": [0, 0.1]},
        "batch": {"key": "stop.batch", "values": [10, "full"]},
    }
    found = labels(axes=axes, zip={"tuned": ["lr", "wd"]}, seeds=[0])
    assert found == [
        "SGD lr=0.1 wd=0 batch=10 seed=0",
        "SGD lr=0.1 wd=0 batch=full seed=0",
        "SGD lr=0.3 wd=0.1 batch=10 seed=0",
        "SGD lr=0.3 wd=0.1 batch=full seed=0",
    ]
    with pytest.raises(BadInput, match=r"equally long; got lr with 2, wd with 1"):
        plan(axes=axes | {"wd": {"key": "rule.weight_decay", "values": [0]}}, zip={"tuned": ["lr", "wd"]})
    entries = {"method": [{"name": "A", "optimizer": "sgd"}, {"name": "B", "optimizer": "sgd"}], "lr": LR}
    assert labels(axes=entries, zip={"pairs": ["method", "lr"]}, seeds=[0]) == ["A lr=0.1 seed=0", "B lr=0.3 seed=0"]


def test_an_entry_may_differ_at_one_scale():
    axes = {
        "method": [{"name": "GD", "optimizer": "gd", "stop": {"steps": 9}, "at": {"short": {"stop": {"steps": 3}}}}]
    }
    study = study_of(small(scales={"long": {}, "short": {"stop": {"steps": 5}}}, axes=axes, tables=[]))
    steps = {scale: make_plan(study, scale, DatasetIndex(None)).runs[0].spec.stop.steps for scale in ("long", "short")}
    assert steps == {"long": 9, "short": 3}
    axes["method"][0]["at"] = {"shrt": {}}
    with pytest.raises(BadInput, match=r"entry 'GD', at.*'shrt'.*short"):
        study_of(small(scales={"short": {}}, axes=axes, tables=[]))


def test_scales_are_laid_over_the_base():
    scales = {
        "long": {"stop": {"epochs": 5}, "seeds": [1]},
        "other": {"data": {"name": "digits", "train": 90}, "over": {"lr": [0.5]}},
    }
    axes = {"method": [{"name": "SGD", "optimizer": "sgd"}], "lr": LR}
    study = study_of(small(scales=scales, scale="long", axes=axes))
    long = make_plan(study, None, DatasetIndex(None)).runs
    assert [run.label for run in long] == ["SGD lr=0.1 seed=1", "SGD lr=0.3 seed=1"]
    assert (long[0].spec.stop.epochs, long[0].spec.stop.steps, long[0].spec.stop.batch) == (5, None, 20)
    assert long[0].steps == 15
    other = make_plan(study, "other", DatasetIndex(None)).runs
    assert [run.label for run in other][::3] == ["SGD lr=0.5 seed=0"]
    assert (other[0].spec.data.train, other[0].spec.data.noisy) == (90, 0.1)  # the same name: the rest is kept
    with pytest.raises(BadInput, match=r"scale must be one of long, other; got 'lng'; did you mean 'long'"):
        make_plan(study, "lng", DatasetIndex(None))
    with pytest.raises(BadInput, match="has no scales"):
        make_plan(study_of(small()), "long", DatasetIndex(None))


def test_a_table_with_another_name_replaces_the_one_below():
    below = {"optimizer": {"name": "sgd", "momentum": 0.9}, "loss": "ce"}
    assert merged(below, {"optimizer": {"name": "gd"}})["optimizer"] == {"name": "gd"}
    assert merged(below, {"optimizer": {"lr": 1}})["optimizer"] == {"name": "sgd", "momentum": 0.9, "lr": 1}
    assert merged(below, {"loss": {"name": "ce", "x": 1}})["loss"] == {"name": "ce", "x": 1}
    assert below == {"optimizer": {"name": "sgd", "momentum": 0.9}, "loss": "ce"}
    assert put({}, "optimizer.base.lr", 1) == {"optimizer": {"base": {"lr": 1}}}
    with pytest.raises(BadInput, match="'seed' is a value, not a table"):
        put({"seed": 3}, "seed.x", 1)
    with pytest.raises(BadInput, match="a key is a path"):
        put({}, "rule..lr", 1)


METHOD = small()["axes"]["method"]
REFUSED = {
    "unknown key": ({"sedes": [1]}, "there is no key 'sedes'; did you mean 'seeds'"),
    "unknown key of a run": ({"base": small()["base"] | {"trak": {}}}, "SGD seed=0: .* 'trak'; did you mean 'track'"),
    "unknown key of an axis": ({"axes": {"lr": LR | {"vals": []}}}, "no key 'axes.lr.vals'; did you mean 'values'"),
    "unknown key of a table": ({"tables": [{"name": "t", "metric": []}]}, "did you mean 'metrics'"),
    "unknown kind": ({"tables": [{"name": "t", "kind": "sumary"}]}, "tables.0.kind"),
    "unknown measure": ({"tables": [{"name": "t", "metrics": ["meen train.ece"]}]}, "did you mean 'mean'"),
    "no name": ({"name": ""}, "name"),
    "a path for a name": ({"name": "../x"}, "name"),
    "empty axis": ({"axes": {"method": []}}, "axes.method: is empty"),
    "empty values": ({"axes": {"lr": {"key": "optimizer.lr", "values": []}}}, "axes.lr.values: values must be a list"),
    "values without a key": ({"axes": {"lr": [0.1, 0.2]}}, "needs its key"),
    "a value twice": ({"axes": {"lr": {"key": "optimizer.lr", "values": [1, 1]}}}, "given twice"),
    "a table as value": ({"axes": {"lr": {"key": "optimizer.lr", "values": [{}]}}}, "for tables take entries"),
    "a name twice": ({"axes": {"method": [METHOD[0], METHOD[0]]}}, "two entries have the same name"),
    "an entry without a name": ({"axes": {"method": [{"optimizer": "sgd"}]}}, "method.0.name. is missing"),
    "the same run twice": ({"axes": {"method": [METHOD[0], METHOD[0] | {"name": "SGD again"}]}}, "are the same run"),
    "the same label twice": (
        {"axes": {"a": [METHOD[0] | {"name": "A B"}, METHOD[1] | {"name": "A"}],
                  "b": [{"name": "C", "dtype": "float64"}, {"name": "B C", "dtype": "float32"}]}, "tables": []},
        "two runs have the label 'A B C seed=0'",
    ),
    "an unknown axis in over": ({"axes": {"method": [METHOD[0] | {"over": {"lrr": [1]}}], "lr": LR}}, "mean 'lr'"),
    "two overrides": (
        {"axes": {"method": [METHOD[0] | {"over": {"lr": [1]}}], "b": [{"name": "B", "over": {"lr": [2]}}], "lr": LR}},
        "both override 'lr'",
    ),
    "an unknown axis in zip": ({"zip": {"g": ["methd"]}}, "did you mean 'method'"),
    "an axis zipped twice": ({"zip": {"g": ["method"], "h": ["method"]}}, "two groups of zip"),
    "an unknown axis in a table": ({"tables": [{"name": "t", "rows": "methd"}]}, "did you mean 'method'"),
    "an axis with two roles": ({"tables": [{"name": "t", "rows": "method", "over": "method"}]}, "more than one of"),
    "a seed in the base": ({"base": small()["base"] | {"seed": 1}}, "takes seeds"),
    "a seed as axis": ({"axes": {"s": {"key": "seed", "values": [1]}}, "tables": []}, "seeds are not an axis"),
    "a seed twice": ({"seeds": [1, 1]}, "seeds must be different"),
    "no seed": ({"seeds": []}, "seeds"),
    "too many runs": ({"limit": 5}, "more than 5 runs; make an axis shorter, or raise limit"),
    "an unknown optimizer": (
        {"axes": {"method": [{"name": "A", "optimizer": "sgdd"}]}}, "A seed=0: optimizer must be.*mean 'sgd'"
    ),
    "too much data": ({"base": small()["base"] | {"data": {"train": 1400, "val": 100}}}, "must be at most 1,438"),
    "a choice on the test set": ({"select": {"method": "SGD", "axes": ["lr"], "metric": "test.nll"}}, "on validation"),
    "a choice by nobody": ({"select": {"method": "SDG", "axes": ["lr"]}}, "did you mean 'SGD'"),
    "a choice of nothing": ({"select": {"method": "SGD", "axes": ["method"]}}, "there is no 'method'"),
    "a choice without validation": (
        {"select": {"method": "SGD", "axes": ["lr"]}, "axes": {"method": METHOD, "lr": LR},
         "base": small()["base"] | {"data": {"train": 60}}},
        "set data.val",
    ),
    "a choice that an entry overrides": (
        {"select": {"method": "SGD", "axes": ["lr"]},
         "axes": {"method": [METHOD[0], METHOD[1] | {"over": {"lr": [1]}}], "lr": LR}},
        "no entry may give values of its own",
    ),
    "a choice by no score": ({"select": {"method": "SGD", "axes": ["lr"], "metric": "val.eec"}}, "mean 'val.ece'"),
    "a choice of what it does without": (
        {"select": {"method": "SGD", "axes": ["lr"]},
         "axes": {"method": [METHOD[0] | {"over": {"lr": False}}, METHOD[1]], "lr": LR}},
        "'SGD' does without 'lr'",
    ),
    "a choice for where it is not": (
        {"select": {"method": "SGD", "axes": ["lr"]}, "zip": {"g": ["method", "model"]}, "tables": [],
         "axes": {"method": METHOD, "lr": LR, "model": [{"name": "wide", "model": {"widths": [9]}}, {"name": "slim"}]}},
        r"AdamW lr=\? slim seed=0: 'SGD' has no run there",
    ),
    "a batch beyond the data": ({"base": small()["base"] | {"stop": {"steps": 5, "batch": 61}}}, "at most 60"),
    "a scale that is a path": ({"scales": {"../../x": {}}, "scale": "../../x"}, "part of the folder's name"),
    "a table at no scale": ({"tables": [{"name": "t", "scales": "papr"}], "scales": {"paper": {}}}, "mean 'paper'"),
    "figures of another measure": (
        {"tables": [{"name": "t", "metrics": ["test.ece"], "paper": {"test.eec": {"SGD": "1"}}}]}, "mean 'test.ece'",
    ),
    "a baseline that is no row": ({"tables": [{"name": "t", "kind": "compare", "baseline": "SDG"}]}, "mean 'SGD'"),
    "division by nothing": (
        {"axes": {"method": METHOD, "lr": {"key": "optimizer.lr", "values": ["1/0"]}}}, "denominator"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_starts(case):
    changes, said = REFUSED[case]
    with pytest.raises(BadInput, match=said):
        plan(**changes)


def test_choices_are_made_for_each_of_the_further_axes():
    """Also where the first model does without the axis that the second has."""
    models = [{"name": "fixed", "over": {"batch": False}}, {"name": "wide", "model": {"widths": [9]}}]
    changes = {
        "select": {"method": "SGD", "axes": ["lr"]},
        "axes": {"method": METHOD, "model": models, "lr": LR, "batch": {"key": "stop.batch", "values": [10, 20]}},
        "seeds": [0],
        "tables": [],
    }
    study = study_of(small(**changes))
    first = make_plan(study, None, DatasetIndex(None))
    places = (("fixed", None), ("wide", "10"), ("wide", "20"))
    groups = [(("model", model), *((("batch", batch),) if batch else ())) for model, batch in places]
    choices = {group: {"lr": "0.1" if i % 2 else "0.3"} for i, group in enumerate(groups)}
    second = make_plan(study, None, DatasetIndex(None), choices)
    assert [run.label for run in second.runs if run.stage == 2] == [
        "AdamW fixed lr=0.3 seed=0",
        "AdamW wide lr=0.1 batch=10 seed=0",
        "AdamW wide lr=0.3 batch=20 seed=0",
    ]
    assert sum(run.stage == 2 for run in first.runs) == 3


def test_an_ensemble_may_be_a_bare_word():
    assert put({"ensemble": "dropout"}, "ensemble.samples", 3) == {"ensemble": {"name": "dropout", "samples": 3}}


@pytest.mark.parametrize("scales", [{}, {"small": {}}])
def test_the_files_own_scale_must_be_one(scales):
    with pytest.raises(BadInput, match="scale: there is no 'smal'"):
        study_of(small(scale="smal", scales=scales))


def test_tables_of_some_scales():
    tables = [{"name": "all"}, {"name": "large", "scales": "paper"}, {"name": "small", "scales": ["a", "b"]}]
    study = study_of(small(scales={"paper": {}, "a": {}, "b": {}}, tables=tables))
    assert [table.name for table in study.tables_at("paper")] == ["all", "large"]
    assert [table.name for table in study.tables_at("b")] == ["all", "small"]


def test_runs_are_counted_before_they_are_made():
    """10³⁰ of them."""
    axes = {f"a{i}": {"key": "checkpoint", "values": list(range(1, 1001))} for i in range(10)}
    with pytest.raises(BadInput, match="more than 1,000,000,000 runs"):
        plan(base=small()["base"] | {"optimizer": "gd"}, axes=axes, limit=10**9)


def test_files_that_are_none(tmp_path):
    with pytest.raises(BadInput, match="no study at"):
        read_study(tmp_path / "none.toml")
    for text in ("[axes", "limit = " + "9" * 5000, "a = " + "[" * 3000 + "]" * 3000):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(BadInput, match="no TOML"):
            read_study(tmp_path / "bad.toml")


def test_costs_count_passes():
    spec = spec_of({"optimizer": "sam", "stop": {"steps": 30, "batch": 20}})
    assert (steps_of(spec, 60), cost_of(spec, 60)) == (30, 20.0)
    bulk = spec_of({"optimizer": {"name": "bulk", "k": 3, "refresh": 10}, "stop": {"epochs": 2, "batch": "full"}})
    assert (steps_of(bulk, 60), cost_of(bulk, 60)) == (2, 2 + 2 * 8)


@pytest.mark.parametrize("path", SHIPPED, ids=[path.stem for path in SHIPPED])
def test_shipped_studies_expand_at_every_scale(path):
    """All their runs are valid, and all their rows that a paper's figures stand beside exist."""
    study = read_study(path)
    assert {"paper", "cpu-small", "digits"} <= set(study.scales) or not study.scales
    for scale in study.scales or [None]:
        found = make_plan(study, scale, DatasetIndex(None, lenient=True))
        assert found.runs
        assert all(run.steps for run in found.runs)
        words = {word for run in found.runs for word in run.label.split()}
        for table in study.tables_at(scale):
            for printed in table.paper.values():
                assert {name.split()[0] for name in printed} <= words


@pytest.mark.filterwarnings("ignore:gamma")  # Figure S6 of Tan et al. (2026) goes beyond Theorem 3
def test_shipped_studies_name_parts_that_exist():
    """Models, losses, rules and ensembles with their options, as a worker checks them before the first run."""
    from surefoot.training.assemble import check_parts

    known = set()
    for path in SHIPPED:
        study = read_study(path)
        for scale in study.scales or [None]:
            for run in make_plan(study, scale, DatasetIndex(None, lenient=True)).runs:
                spec = run.spec
                large = [str(spec.model)] if spec.data.name != "digits" else []  # slow to build: once each
                parts = tuple(large or map(str, (spec.model, spec.loss, spec.optimizer, spec.ensemble)))
                if parts not in known:
                    check_parts(spec, SHAPES.get(spec.data.name, (3, 32, 32)), 10)
                known.add(parts)


def test_planning_and_tables_do_without_torch():
    code = (
        "import sys, surefoot.cli.study, surefoot.cli.table, surefoot.studies.api, surefoot.studies.render\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
