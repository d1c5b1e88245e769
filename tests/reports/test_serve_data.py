"""The report's data as the server makes them: only what changed is read again, and only what lies inside."""

import importlib
import json

import pytest

from surefoot.reports.serve.data import RunData, served_policy, shell
from surefoot.reports.serve.watch import Watch
from tests.reports.live_runs import begin, end, grow


@pytest.fixture
def read(monkeypatch):
    """Names of the runs that were read."""
    found = []
    module = importlib.import_module("surefoot.reports.page.payload")  # its name is also that of a function
    plain = module.read_run
    monkeypatch.setattr(module, "read_run", lambda place, *a: found.append(place.folder.name) or plain(place, *a))
    return found


def test_only_changed_runs_are_read_again(tmp_path, read):
    for name in "abc":
        grow(begin(tmp_path / name), 0, 10)
    make, watch = RunData(tmp_path), Watch(tmp_path)
    first = make(watch.look())
    assert sorted(read) == ["a", "b", "c"]
    read.clear()
    assert make(watch.look()) == first
    assert read == []
    grow(tmp_path / "b", 20)
    second = json.loads(make(watch.look()))
    assert read == ["b"]
    assert {run["id"]: run["step"] for run in second["runs"]} == {"a": 10, "b": 20, "c": 10}
    read.clear()
    end(tmp_path / "c", 10)
    third = json.loads(make(watch.look()))
    assert [run["outcome"] for run in third["runs"]] == ["unfinished", "unfinished", "finished"]
    assert read == ["c"]


def test_runs_behind_links_are_left_out(tmp_path, read):
    grow(begin(tmp_path / "outside" / "secret"), 0)
    runs = tmp_path / "runs"
    grow(begin(runs / "mine"), 0)
    (runs / "linked").symlink_to(tmp_path / "outside" / "secret")
    found = json.loads(RunData(runs)(Watch(runs).look()))
    assert [run["id"] for run in found["runs"]] == ["mine"]
    assert read == ["mine"]


def test_a_run_may_be_the_folder_itself(tmp_path):
    place = begin(tmp_path / "a")
    grow(place, 0)
    assert [run["id"] for run in json.loads(RunData(place)(Watch(place).look()))["runs"]] == ["a"]


def test_the_data_can_stand_inside_the_page(tmp_path):
    name = "</script><script>alert(1)</script>\u2028".replace("/", "∕")
    grow(begin(tmp_path / name, rule="</script><!--"), 0)
    raw = RunData(tmp_path)(Watch(tmp_path).look())
    assert b"<" not in raw
    assert "\u2028".encode() not in raw
    assert json.loads(raw)["runs"][0]["method"] == "</script><!--"


def test_the_shell_is_the_page_around_its_data(tmp_path):
    before, after = shell(begin(tmp_path / "a <b>"))
    assert before.endswith(b'<script type="application/json" id="data">')
    assert after.startswith(b"</script>")
    assert b"a &lt;b&gt;" in before


def test_the_policy_lets_the_page_speak_to_its_server_only():
    rules = dict(rule.strip().split(" ", 1) for rule in served_policy().split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert all(source.startswith("'sha256-") for source in rules["script-src"].split())
