"""Studies on a Ray cluster: the same bytes as anywhere else, and nothing outside the study's folder."""

import os
import signal
import subprocess
import sys
import time

import pytest

import surefoot as sf
from surefoot.errors import BadInput, MissingDependency
from surefoot.runs.records import locked
from surefoot.studies import workers as worker_processes
from surefoot.studies.folder import StudyFolder
from surefoot.studies.node_worker import NodeWorker, files_of, put_files
from surefoot.studies.plan import DatasetIndex, make_plan
from surefoot.studies.runner import Runner, Silent
from surefoot.studies.spec import study_of
from surefoot.training.run import run
from tests.studies.cases import STUDY, journals, small


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """The same runs without a study."""
    out = tmp_path_factory.mktemp("by_hand")
    for planned in make_plan(study_of(STUDY), None, DatasetIndex(None)).runs:
        run(planned.spec, out / "runs")
    return journals(out)


class Killer(Silent):
    """Kills the worker of a run, once, when it has come some way; with ``after=-1`` as soon as it has the run."""

    def __init__(self, after=20):
        self.killed, self._after = [], after

    def tick(self, tasks, waiting):
        for task in tasks:
            if task.state == "running" and task.step > self._after and not self.killed:
                os.kill(task.pid, signal.SIGKILL)
                self.killed.append(task.run.label)


class Impatient(Silent):
    """Asks the study to stop when two runs have ended."""

    def tick(self, tasks, waiting):
        if sum(task.ended for task in tasks) >= 2:
            signal.raise_signal(signal.SIGTERM)


def test_on_a_cluster(tmp_path, by_hand):
    """One run, whose worker is killed at once: on a quiet machine the run may end before a word of it is heard."""
    pytest.importorskip("ray")
    killer = Killer(after=-1)
    result = sf.study(STUDY, tmp_path, only="SGD seed=0", ray="local", show=killer)
    assert result.count("finished") == 1
    assert killer.killed == ["SGD seed=0"]
    assert not (tmp_path / "ray").exists()
    ((name, found),) = journals(tmp_path).items()
    assert found == by_hand[name]


@pytest.mark.slow
def test_begun_here_moved_to_a_cluster_and_back(tmp_path, by_hand):
    """Begun with a local worker, continued on Ray, where a worker is killed and the study is stopped, ended here."""
    pytest.importorskip("ray")
    first = sf.study(STUDY, tmp_path, only="seed=0", workers=2)
    assert first.count("finished") == 2
    killer = Killer()
    second = sf.study(STUDY, tmp_path, only="seed=1", workers=2, ray="local", show=killer)
    assert second.count("finished") == 2
    assert killer.killed == [task.run.label for task in second.tasks if task.deaths]
    assert not (tmp_path / "ray").exists()
    third = sf.study(STUDY, tmp_path, workers=2)
    assert [task.fresh for task in third.tasks].count(True) == 2
    assert journals(tmp_path) == by_hand


@pytest.mark.slow
def test_nodes_that_do_not_see_the_folder(tmp_path, by_hand):
    """Files travel: a run goes on on another host from the checkpoint that was brought back."""
    ray = pytest.importorskip("ray")
    from surefoot.studies.cluster import ray_workers

    library, folder, killer = DatasetIndex(None), StudyFolder(tmp_path), Killer()
    with ray_workers("local", tmp_path, 2, 1) as hands:
        hands._mark = str(tmp_path / "no such mark")
        runner = Runner(make_plan(study_of(STUDY), None, library), folder, library, 2, show=killer, pool=hands)
        assert runner.run()
    assert not ray.is_initialized()
    assert len(killer.killed) == 1
    assert journals(tmp_path) == by_hand


@pytest.mark.slow
def test_it_stops_when_asked_and_goes_on(tmp_path, by_hand):
    pytest.importorskip("ray")
    result = sf.study(STUDY, tmp_path, workers=1, ray="local", show=Impatient())
    assert result.outcome == "interrupted"
    assert 2 <= result.count("finished") < 6
    assert sf.study(STUDY, tmp_path, workers=2).count("finished") == 6
    assert journals(tmp_path) == by_hand


CHECK = """
import os, subprocess, sys
import surefoot as sf
from surefoot.studies.runner import Silent

class Stranger(Silent):
    code = None
    def tick(self, tasks, waiting):
        if self.code is None and any(task.state == "running" for task in tasks):
            import ray
            address = ray.get_runtime_context().gcs_address
            environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
            call = f"import ray; ray.init({address!r}, log_to_driver=False)"
            self.code = subprocess.run([sys.executable, "-c", call], env=environment | {"RAY_AUTH_MODE": "disabled"},
                                       capture_output=True).returncode
stranger, before = Stranger(), set(os.environ)
study = eval(sys.argv[2])
assert sf.study(study, sys.argv[1], workers=1, only="SGD seed=0", ray="local", show=stranger).count("finished") == 1
assert stranger.code == 1
assert {name for name in os.environ if name.startswith("RAY_")} <= before
"""


@pytest.mark.slow
def test_nothing_is_written_elsewhere_and_strangers_are_not_let_in(tmp_path):
    pytest.importorskip("ray")
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(temporary)}
    out = tmp_path / "out"
    told = subprocess.run(
        [sys.executable, "-c", CHECK, str(out), repr(STUDY)],
        env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert (told.returncode, told.stderr) == (0, "")
    assert list(home.rglob("*")) == []
    assert [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor")] == []
    assert sorted(path.name for path in out.iterdir()) == ["failed", "runs", "study.json"]


def test_bad_addresses(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    with pytest.raises(BadInput, match=r"ray=...: no Ray cluster answers at '127\.0\.0\.1:1'"):
        sf.study(small(tables=[]), tmp_path, ray="127.0.0.1:1")
    assert not (tmp_path / "ray").exists()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"pip install 'surefoot\[ray\]'"):
        sf.study(small(tables=[]), tmp_path, ray="local")


# A host without Ray.

STAND_IN = """
import json, os, pathlib, sys
def tell(**message):
    print(json.dumps(message), flush=True)
tell(type="ready", pid=os.getpid())
for line in sys.stdin:
    order = json.loads(line)
    place = pathlib.Path(order["out"]) / order["id"]
    place.mkdir(exist_ok=True)
    said = sorted(path.name for path in place.iterdir())
    (place / "journal.jsonl").write_text("line\\n")
    (place / "state-a.safetensors").write_text("state")
    tell(type="ended", found=said)
"""


def heard(host):
    said, files = [], {}
    end = time.monotonic() + 10
    while not any(each["type"] == "ended" for each in said):
        assert time.monotonic() < end
        more, brought = host.listen(0.2)
        said += more
        files |= brought
    return said, files


def test_a_host_that_shares_the_folder_brings_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_processes, "COMMAND", [sys.executable, "-c", STAND_IN])
    mark = tmp_path / "mark"
    mark.touch()
    host = NodeWorker(str(mark))
    assert not host.away()
    host.order({"do": "run", "id": "a", "out": str(tmp_path)}, {})
    assert heard(host)[1] == {}
    assert (tmp_path / "a" / "journal.jsonl").exists()
    host.ask_to_leave()
    host.reap()


def test_a_host_that_is_away_takes_files_and_brings_them_back(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_processes, "COMMAND", [sys.executable, "-c", STAND_IN])
    host = NodeWorker(str(tmp_path / "nowhere"))
    assert host.away()
    host.order({"do": "run", "id": "a", "out": str(tmp_path)}, {"spec.json": b"{}", "state-b.safetensors": b"old"})
    said, files = heard(host)
    assert said[-1]["found"] == ["spec.json", "state-b.safetensors"]
    assert files["journal.jsonl"] == b"line\n"
    assert files["state-a.safetensors"] == b"state"
    assert host.listen(0.1) == ([], {})  # nothing new
    host.order({"do": "run", "id": "b", "out": str(tmp_path)}, {})
    assert heard(host)[0][-1]["found"] == []
    host.ask_to_leave()
    while host.listen(0.5)[0] is not None:
        pass
    home = host._home
    host.reap()
    assert not home.exists()
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_run_leave_out_its_lock(tmp_path):
    put_files(tmp_path / "run", {"result.json": b"r", "state-a.safetensors": b"s", "journal.jsonl": b"j"})
    with locked(tmp_path / "run"):
        (tmp_path / "run" / ".journal.half").touch()
        found = files_of(tmp_path / "run")
    assert list(found) == ["state-a.safetensors", "journal.jsonl", "result.json"]
    put_files(tmp_path / "other", {"../escape": b""})
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["escape"]
