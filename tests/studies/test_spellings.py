"""Studies and scales under their former names: files, flags and folders go on working."""

import json

import pytest

import surefoot as sf
from surefoot.deprecated import current_name, former_name
from surefoot.errors import BadInput
from surefoot.studies.folder import default_folder
from surefoot.studies.grid import places
from surefoot.studies.spec import study_of
from surefoot.training.spec import read_spec, spec_of
from tests.conftest import surefoot
from tests.studies.cases import journals, small
from tests.studies.test_runner import write

NAMES = {
    "paper-a-table1": "morosini2026-table1",
    "paper-b-table1-small": "tan2026-table1-small",
    "cores2": "cpu-small",
    "cores2-100": "cpu-small-100",
}
OTHERS = ["mine", "paper", "paper-alpha", "my-cores2", "cores20", "digits"]


def tiny(name, scale):
    """A study of one short run."""
    base = small()["base"] | {"optimizer": {"name": "sgd", "lr": 0.2}, "stop": {"steps": 4, "batch": 20}}
    tables = [{"name": "ends", "metrics": ["test.ece"], "rows": ["seed"], "scales": [scale]}]
    return small(name=name, seeds=[0], base=base, axes={}, scale=scale, scales={scale: {}}, tables=tables)


@pytest.mark.parametrize(("former", "current"), NAMES.items())
def test_names_both_ways(former, current):
    assert (current_name(former), former_name(current)) == (current, former)
    assert (current_name(current), former_name(former)) == (current, former)


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_have_no_alias(name):
    assert current_name(name) == former_name(name) == name


@pytest.mark.parametrize("written", ["cores2", "cpu-small"])
@pytest.mark.parametrize("asked", ["cores2", "cpu-small"])
def test_a_scale_is_found_by_either_name(written, asked):
    study = study_of(tiny("mine", written))
    assert study.at_scale(asked)[0] == written
    with pytest.raises(BadInput, match="scale must be one of"):
        study.at_scale(f"{asked}-100")


def test_a_folder_with_former_names_is_resumed_reused_and_shown(tmp_path, monkeypatch):
    """It was made at the scale cores2 of paper-a-small; the file now says cpu-small and morosini2026-small."""
    monkeypatch.chdir(tmp_path)
    made = sf.study(tiny("paper-a-small", "cores2"), "paper-a-small-cores2")
    before = journals(made.folder)
    path = write(tmp_path, tiny("morosini2026-small", "cpu-small"))
    for scale in ("cpu-small", "cores2"):
        told = surefoot("study", path, "--scale", scale, "--json")
        found = json.loads(told.stdout)
        assert (told.exit_code, found["folder"]) == (0, "paper-a-small-cores2")
        assert [run["id"] for run in found["runs"]] == [task.id for task in made.tasks]
    assert journals(made.folder) == before
    assert "test ECE" in surefoot("table", path).stdout

    made = sf.study(tiny("paper-a-small", "cores2"), made.folder)  # as an older file states it
    taken = sf.study(path, "elsewhere", others=[made.folder])
    assert [task.fresh for task in taken.tasks] == [False]
    assert journals(taken.folder) == before


def test_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(default_folder("tan2026-table3", None)) == "tan2026-table3"
    (tmp_path / "paper-b-table3-cores2").mkdir()
    assert str(default_folder("tan2026-table3", "cpu-small")) == "paper-b-table3-cores2"
    (tmp_path / "tan2026-table3-cpu-small").mkdir()
    assert str(default_folder("tan2026-table3", "cpu-small")) == "tan2026-table3-cpu-small"


FORMER = {"rule": {"name": "sam", "rho": 0.1, "base": {"name": "sgd", "lr": 0.2}}, "stop": {"steps": 4, "batch": 20}}
CURRENT = {"optimizer": FORMER["rule"], "stop": FORMER["stop"]}


def test_both_spellings_of_a_spec_are_one_run():
    former, current = spec_of(FORMER), spec_of(CURRENT)
    assert former == current
    assert former.run_id("x") == current.run_id("x")
    assert "rule" not in current.resolved()
    with pytest.raises(BadInput, match="'rule' is the former name of 'optimizer'; give 'optimizer' alone"):
        spec_of(FORMER | CURRENT)


@pytest.mark.parametrize("key", ["rule.base.lr", "optimizer.base.lr"])
@pytest.mark.parametrize("table", [FORMER, CURRENT], ids=["former", "current"])
def test_a_change_may_have_either_spelling(key, table, tmp_path):
    (name,) = {"rule", "optimizer"} & table.keys()
    path = tmp_path / "spec.toml"
    path.write_text(
        f'[{name}]\nname = "sam"\nrho = 0.1\n[{name}.base]\nname = "sgd"\nlr = 0.2\n[stop]\nsteps = 4\nbatch = 20\n'
    )
    assert read_spec(path, [f"{key}=0.3"]).optimizer.options["base"]["lr"] == 0.3


def test_a_study_may_have_either_spelling():
    def study(rule):
        return study_of(
            {
                "name": "s",
                "base": {"stop": {"steps": 4}, rule: "sgd"},
                "scales": {"one": {rule: {"momentum": 0.5}}},
                "axes": {
                    "method": [
                        {"name": "A", rule: {"weight_decay": 0.1}, "at": {"one": {rule: {"nesterov": True}}}},
                        {"name": "B", rule: {"name": "sam"}, "over": {"lr": {"key": f"{rule}.base.lr"}}},
                    ],
                    "lr": {"key": f"{rule}.lr", "values": [0.1, 0.2]},
                },
            }
        )

    tables = [
        [place.table for place in places(study(rule), study(rule).scales["one"], "one")]
        for rule in ("rule", "optimizer")
    ]
    assert tables[0] == tables[1]
    assert all("rule" not in table for table in tables[0])
    assert tables[0][0]["optimizer"] == {
        "name": "sgd", "momentum": 0.5, "weight_decay": 0.1, "nesterov": True, "lr": 0.1
    }  # fmt: skip
    assert tables[0][3]["optimizer"] == {"name": "sam", "base": {"lr": 0.2}}
