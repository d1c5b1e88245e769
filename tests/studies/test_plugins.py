"""Methods from outside of surefoot, in the worker processes of a study."""

import os
import sys

import pytest

import surefoot as sf
from surefoot.errors import BadInput
from surefoot.optim.registry import OPTIMIZERS
from surefoot.plugins import VARIABLE, load_plugins, with_plugins
from surefoot.studies.node_worker import NodeWorker
from surefoot.studies.plan import DatasetIndex, make_plan
from surefoot.studies.spec import study_of
from tests.conftest import surefoot
from tests.studies.cases import small

PLUGIN = """
from torch.optim import SGD

from surefoot.optim.registry import OPTIMIZERS
from surefoot.registry import OptimizerEntry


class Slow(SGD):
    def __init__(self, params, lr=0.01):
        super().__init__(params, lr=lr)


OPTIMIZERS["slow"] = OptimizerEntry("slow", "slowmethods:Slow", given=("params",))
"""
STUDY = small(
    seeds=[0],
    axes={"method": [{"name": "slow", "optimizer": {"name": "slow", "lr": 0.1}}]},
    base={"data": {"train": 20, "test": 20}, "stop": {"steps": 2}, "track": {"every": 1}},
    tables=[],
)


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.setitem(OPTIMIZERS, "slow", None)
    del OPTIMIZERS["slow"]  # which is undone after the test, as is the entry that the plugin makes
    monkeypatch.delitem(sys.modules, "slowmethods", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    path = tmp_path / "slowmethods.py"
    path.write_text(PLUGIN)
    yield path
    sys.modules.pop("slowmethods", None)
    OPTIMIZERS.pop("slow", None)


def test_a_study_with_a_method_from_outside(plugin, tmp_path, monkeypatch):
    """The worker is a process of its own; a module of the current folder is handed to it by its path."""
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match="optimizer must be one of"):
        sf.study(STUDY, tmp_path / "without")
    found = sf.study(STUDY, tmp_path / "with", plugins=["slowmethods"])
    assert [(task.state, task.error) for task in found.tasks] == [("finished", "")]
    assert VARIABLE not in os.environ
    plan = make_plan(study_of(STUDY), None, DatasetIndex(None))
    assert plan.runs[0].id == found.tasks[0].id


def test_the_command_line_takes_plugins(plugin, tmp_path, monkeypatch):
    lines = ['name = "s"', "[base]", 'optimizer = "slow"', "data = { train = 20, test = 20 }", "stop = { steps = 1 }"]
    spec = tmp_path / "study.toml"
    spec.write_text("\n".join(lines))
    done = surefoot("study", spec, "--out", tmp_path / "out", "--plugin", plugin)
    assert done.exit_code == 0, done.stderr
    run = tmp_path / "run.toml"
    run.write_text("\n".join(lines[2:]))
    del OPTIMIZERS["slow"], sys.modules["slowmethods"]
    assert surefoot("train", run, "--out", tmp_path).exit_code == 2
    monkeypatch.setenv(VARIABLE, str(plugin))
    assert surefoot("train", run, "--out", tmp_path).exit_code == 0


def test_a_worker_on_a_node_gets_the_plugins_of_its_host(plugin, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    host = NodeWorker(str(tmp_path), "no_such_module")
    try:
        while (messages := host.listen(5)[0]) is not None:
            assert messages == []
        assert "plugin 'no_such_module' cannot be imported" in host.reap()[1]
    finally:
        os.environ.pop(VARIABLE, None)


def test_plugins_that_cannot_be_imported(plugin, tmp_path, monkeypatch):
    with pytest.raises(
        BadInput, match=r"plugin 'nowhere' cannot be imported: ModuleNotFoundError: .* the path of a .py"
    ):
        sf.study(STUDY, tmp_path, plugins=["nowhere"])
    with pytest.raises(BadInput, match=r"plugin '.*gone.py' cannot be imported: FileNotFoundError"):
        load_plugins([str(tmp_path / "gone.py")])
    other = tmp_path / "json.py"
    other.write_text("")
    with pytest.raises(BadInput, match="there is another module of the name json; rename the file"):
        load_plugins([str(other)])
    with pytest.raises(BadInput, match=r"plugins must be a list of modules; got the text 'a'; write \['a'\]"):
        load_plugins("a")
    monkeypatch.setenv(VARIABLE, f"json, {plugin},")
    with with_plugins([str(plugin)]):
        assert os.environ[VARIABLE] == f"json,{plugin}"
    assert os.environ[VARIABLE] == f"json, {plugin},"
