"""Studies that are run: by workers and runners that die, by several at once, with runs that fail; and their tables."""

import csv
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from surefoot.errors import BadInput, StorageFault
from surefoot.runs.records import encode, read_journal
from surefoot.studies import worker
from surefoot.studies import workers as worker_processes
from surefoot.studies.folder import StudyFolder, gather
from surefoot.studies.plan import DatasetIndex, make_plan
from surefoot.studies.render import render
from surefoot.studies.runner import Runner, Silent, Task, WorkerFault
from surefoot.studies.spec import read_study, study_of, table_of
from surefoot.studies.tables import Cell, Table, tables_of
from surefoot.training.loaded import open_run
from surefoot.training.run import run
from tests.conftest import surefoot
from tests.studies.cases import STUDY, journals, small


def toml(value):
    """A value as TOML writes it; JSON is that, but for tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(each) for each in value) + "]"
    return json.dumps(value)


def write(folder, study):
    path = folder / "study.toml"
    path.write_text("\n".join(f"{key} = {toml(value)}" for key, value in study.items()))
    return path


def command(*arguments):
    return [sys.executable, "-m", "surefoot", *map(str, arguments)]


class Killer(Silent):
    """Kills the worker of a run, once, when it has come some way."""

    def __init__(self):
        self.killed = []

    def tick(self, tasks, waiting):
        for task in tasks:
            if task.state == "running" and task.step > 0 and not self.killed:
                os.kill(task.pid, signal.SIGKILL)
                self.killed.append(task.run.label)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """The same runs without a study."""
    out = tmp_path_factory.mktemp("by_hand")
    for planned in make_plan(study_of(STUDY), None, DatasetIndex(None)).runs:
        assert run(planned.spec, out / "runs").folder.name == planned.id
    return journals(out)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The study with two workers, one of which is killed."""
    killer = Killer()
    result = sf.study(STUDY, tmp_path_factory.mktemp("done") / "out", workers=2, show=killer)
    assert result.outcome == "finished"
    # One that was killed between its last file and its word about it is found finished.
    assert all(task.fresh or task.run.label in killer.killed for task in result.tasks)
    assert [task.run.label for task in result.tasks if task.deaths] == killer.killed
    return result


def test_a_killed_worker_is_replaced_and_nothing_is_lost(done, by_hand):
    assert done.count("finished") == 6
    assert journals(done.folder) == by_hand


def cells(table):
    return {
        (label.strip(), column): cell
        for label, row in table.rows
        for column, cell in zip(table.columns, row, strict=True)
    }


def finals(result, method):
    """Final readings and whole journals of a method's runs, in the order of the seeds."""
    folders = [result.folder / "runs" / task.id for task in result.tasks if task.run.shown["method"] == method]
    return [read_journal(folder / "journal.jsonl")[0] for folder in folders]


def test_its_tables_are_right(done):
    tables = {table.name: table for table in done.tables()}
    ends, coupling = cells(tables["ends"]), cells(tables["coupling"])
    for method in ("SGD", "AdamW"):
        runs = finals(done, method)
        ece = np.array([run[-1]["test.ece"] for run in runs])
        found = ends[method, "test ECE"]
        assert (found.facts["mean"], found.facts["std"], found.facts["n"]) == pytest.approx(
            (ece.mean(), ece.std(ddof=1), 3)
        )
        assert found.text == f"{ece.mean():.3f} ± {ece.std(ddof=1):.3f}"
        peak = [max(r["train.ece"] for r in run) for run in runs]
        assert ends[method, "peak train ECE"].facts["mean"] == pytest.approx(np.mean(peak))
        mean = [np.mean([r["sharpness"] for r in run]) for run in runs]
        assert ends[method, "mean sharpness"].facts["mean"] == pytest.approx(np.mean(mean))
        pairs = [np.array([(r["train.ece"], r["sharpness"], r["test.nll"]) for r in run]).T for run in runs]
        r = [stats.pearsonr(each[0], each[1]).statistic for each in pairs]
        assert coupling["r(train ECE, sharpness)", method].facts["mean"] == pytest.approx(np.mean(r))
        assert coupling["r(train ECE, sharpness)", method].facts["std"] == pytest.approx(np.std(r, ddof=1))
        r = [stats.pearsonr(each[2], each[1]).statistic for each in pairs]  # not kept in the result
        assert coupling["r(test NLL, sharpness)", method].facts["mean"] == pytest.approx(np.mean(r))
        r = [stats.spearmanr(each[0], each[1]).statistic for each in pairs]
        assert coupling["ρ(train ECE, sharpness)", method].facts["mean"] == pytest.approx(np.mean(r))
        lag = coupling["lead(train ECE, sharpness)", method].facts["mean"]
        assert coupling["lead in steps(train ECE, sharpness)", method].facts["mean"] == pytest.approx(10 * lag)
    assert coupling["paper", "SGD"].text == ".84"
    assert coupling["paper", "AdamW"].text == ""
    ours, theirs = ([run[-1] for run in finals(done, method)] for method in ("AdamW", "SGD"))
    tests = cells(tables["tests"])
    p = {}
    for metric, name in (("test.ece", "test ECE"), ("test.nll", "test NLL")):
        a, b = ([run[metric] for run in each] for each in (ours, theirs))
        p[name] = stats.ttest_rel(a, b).pvalue
        assert tests[f"AdamW − SGD, {name}", "p"].facts["p"] == pytest.approx(p[name])
        assert tests[f"AdamW − SGD, {name}", "difference"].facts["mean"] == pytest.approx(np.mean(a) - np.mean(b))
    low, high = sorted(p, key=p.get)
    assert tests[f"AdamW − SGD, {low}", "p (Holm)"].facts["p"] == pytest.approx(min(1, 2 * p[low]))
    assert tests[f"AdamW − SGD, {high}", "p (Holm)"].facts["p"] == pytest.approx(min(1, max(p[high], 2 * p[low])))
    assert cells(tables["flips"])["AdamW − SGD, test ECE", "p"].facts["p"] in (0.25, 0.5, 0.75, 1.0)
    assert cells(tables["hypotheses"])["SGD", "reads as"].text == "baseline"


def test_its_tables_in_every_format(done):
    out = done.folder
    text = surefoot("table", out).stdout
    for part in ("ends", "± ", "ddof = 1", "over seed", "paper", "Holm"):
        assert part in text
    assert "| SGD |" in surefoot("table", out, "--which", "ends", "--format", "markdown").stdout
    assert r"\begin{tabular}{lrrrrr}" in surefoot("table", out, "--which", "ends", "--format", "latex").stdout
    lines = surefoot("table", out, "--which", "ends", "--format", "csv").stdout.splitlines()
    assert lines[0].startswith("table,row,column,text,mean,std,n,low,high")
    assert len(lines) == 1 + 2 * 5
    found = json.loads(surefoot("table", out, "--which", "coupling", "--format", "json").stdout)["tables"][0]
    assert found["rows"][0]["cells"][0]["n"] == 3
    assert "did you mean 'ends'" in surefoot("table", out, "--which", "end").stderr
    assert "did you mean 'latex'" in surefoot("table", out, "--format", "latx").stderr
    assert "there is no study in" in surefoot("table", out / "runs").stderr


def test_tables_of_the_file_as_it_is_now(done, tmp_path):
    tables = [{"name": "late", "rows": "method", "over": "seed", "metrics": ["first test.nll"], "intervals": True}]
    path = write(tmp_path, small(tables=tables))
    told = surefoot("table", path, "--out", done.folder)
    assert "first test NLL" in told.stdout
    assert "[" in told.stdout
    write(tmp_path, small(tables=[{"name": "t", "metrics": ["test.mistake"]}]))
    wrong = surefoot("table", path, "--out", done.folder)
    assert "no run has readings of 'test.mistake'" in wrong.stderr
    write(tmp_path, small(tables=[{"name": "t", "kind": "compare", "baseline": "SDG"}]))
    assert "did you mean 'SGD'" in surefoot("table", path, "--out", done.folder).stderr
    write(tmp_path, small(tables=[]))
    assert "states no tables" in surefoot("table", path, "--out", done.folder).stderr


def test_a_dry_run_of_nothing_is_told(tmp_path):
    told = surefoot("study", write(tmp_path, STUDY), "--dry-run", "--only", "nobody")
    assert "--only 'nobody' is in no label; there is 'SGD seed=0'" in told.stderr


def test_a_study_again_starts_nothing(done):
    before = journals(done.folder)
    began = time.monotonic()
    again = sf.study(STUDY, done.folder, workers=2)
    assert time.monotonic() - began < 2
    assert [task.fresh for task in again.tasks] == [False] * 6
    assert journals(done.folder) == before
    with pytest.raises(BadInput, match="holds a study with name 'small', not 'other'"):
        sf.study(small(name="other"), done.folder)
    with pytest.raises(BadInput, match="is in no label"):
        sf.study(STUDY, done.folder, only="nothing")
    with pytest.raises(BadInput, match="workers must be"):
        sf.study(STUDY, done.folder, workers=0)


def test_dry_run_trains_nothing(tmp_path):
    path = write(tmp_path, STUDY)
    told = surefoot("study", path, "--dry-run", "--only", "adamw", "--out", tmp_path / "out")
    assert told.exit_code == 0
    assert "AdamW seed=2" in told.stdout
    assert "SGD" not in told.stdout
    assert "3 runs, 100 gradients" in told.stdout  # 100 steps of a third of the rows, three times
    found = json.loads(surefoot("study", path, "--dry-run", "--json").stdout)
    assert [run["steps"] for run in found["runs"]] == [100] * 6
    assert found["cost"] == pytest.approx(200)
    assert os.listdir(tmp_path) == ["study.toml"]
    write(tmp_path, small(base=STUDY["base"] | {"data": {"name": "cifar10", "train": 60}}))
    told = surefoot("study", path, "--dry-run")
    assert "SUREFOOT_DATA" in told.stdout
    assert surefoot("study", path, "--out", tmp_path / "out").exit_code == 2


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_stopped_and_a_killed_runner_are_resumed(by_hand, tmp_path):
    """SIGTERM (exit code 130), then kill -9 of the runner alone; then to the end."""
    out = tmp_path / "out"
    order = command("study", write(tmp_path, STUDY), "--out", out, "--json")
    first = subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wait_for(lambda: any(out.glob("runs/*/state-*")))
    first.send_signal(signal.SIGTERM)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 130
    assert json.loads(said)["outcome"] == "interrupted"
    done = len(list(out.glob("runs/*/result.json")))
    assert done < 6
    second = subprocess.Popen(order, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list(out.glob("runs/*/result.json"))) > done)
    second.kill()
    second.wait()
    result = sf.study(STUDY, out)  # a worker that outlived its runner may still hold a run
    assert result.outcome == "finished"
    assert result.count("finished") == 6
    assert journals(out) == by_hand


def test_two_runners_share_the_work(by_hand, tmp_path):
    out = tmp_path / "out"
    order = command("study", write(tmp_path, STUDY), "--out", out)
    runners = [subprocess.Popen(order, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [runner.communicate(timeout=120)[0] for runner in runners]
    assert [runner.returncode for runner in runners] == [0, 0]
    fresh = sorted(line.split(":")[0] for text in told for line in text.splitlines() if ": finished after" in line)
    assert fresh == sorted(
        f"{method} seed={seed}" for method in ("SGD", "AdamW") for seed in range(3)
    )  # each by one of them, once
    assert journals(out) == by_hand
    for folder in (out / "runs").iterdir():
        steps = [line["step"] for line in read_journal(folder / "timings.jsonl")[0]]
        assert len(steps) == len(set(steps))


@pytest.mark.slow
def test_eight_runners_and_random_kills(by_hand, tmp_path):
    out = tmp_path / "out"
    order = command("study", write(tmp_path, STUDY), "--out", out)
    dice = random.Random(0)

    def start():
        return subprocess.Popen(order, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    runners = [start() for _ in range(8)]
    for _ in range(6):
        time.sleep(dice.uniform(0.5, 4))
        victim = dice.randrange(8)
        runners[victim].kill()
        runners[victim].wait()
        runners[victim] = start()
    assert [runner.wait(timeout=300) for runner in runners] == [0] * 8
    assert journals(out) == by_hand


def test_failed_and_diverged_runs_do_not_stop_a_study(tmp_path):
    methods = [
        {"name": "SGD", "rule": {"name": "sgd", "lr": 0.2}},
        {"name": "Wild", "rule": {"name": "sgd", "lr": 1e38}},
    ]
    base = STUDY["base"] | {"stop": {"steps": 20, "batch": 20}}
    path = write(tmp_path, small(axes={"method": methods}, base=base, seeds=[0, 1], tables=[{"name": "ends"}]))
    out = tmp_path / "out"
    listed = json.loads(surefoot("study", path, "--dry-run", "--json").stdout)["runs"]
    folder = out / "runs" / listed[0]["id"]
    folder.mkdir(parents=True)
    (folder / "facts.json").write_text('{"torch": "0.1"}')  # as if begun with another version
    told = surefoot("study", path, "--out", out)
    assert told.exit_code == 1
    assert "SGD seed=0: failed: this run began with torch 0.1" in told.stdout
    assert "Wild seed=0: diverged at step" in told.stdout
    assert "1 finished, 2 diverged, 1 failed" in told.stdout
    assert "SGD: left out of 2 runs: 1 failed" in told.stdout
    assert "Wild: left out of 2 runs: 2 diverged" in told.stdout
    assert "1 of 2" in told.stdout
    assert "Traceback" in (out / "failed" / f"{folder.name}.txt").read_text()
    again = surefoot("study", path, "--out", out)
    assert again.exit_code == 1
    assert "had failed: this run began with torch 0.1" in again.stdout
    (folder / "facts.json").unlink()
    third = sf.study(path, out, retry_failed=True)
    assert third.count("finished") == 2
    assert [task.run.label for task in third.tasks if task.fresh] == ["SGD seed=0"]
    assert not any((out / "failed").iterdir())
    (table,) = third.tables()
    assert cells(table)["SGD", "runs"].facts["runs"] == 2


def test_runs_finished_by_another_study_are_taken_over(done, tmp_path):
    methods = [*STUDY["axes"]["method"], {"name": "Fast", "rule": {"name": "sgd", "lr": 0.4}}]
    path = write(tmp_path, small(name="second", axes={"method": methods}, seeds=[0, 1]))
    planned = surefoot("study", path, "--dry-run", "--reuse", done.folder).stdout
    assert "4 more are taken over" in planned
    assert "2 runs," in planned
    assert "AdamW" not in planned
    told = surefoot("study", path, "--out", tmp_path / "second", "--reuse", done.folder)
    assert told.exit_code == 0, told.stderr
    assert "Fast seed=0: finished after" in told.stdout
    assert "4 runs had finished before" in told.stdout
    ours, theirs = journals(tmp_path / "second"), journals(done.folder)
    taken = [name for name in ours if name in theirs]
    assert len(taken) == 4
    assert len(ours) == 6
    assert all(ours[name] == theirs[name] for name in taken)
    again = ("study", path, "--dry-run", "--reuse", done.folder, "--out", tmp_path / "second")
    told = surefoot(*again).stdout
    assert "0 runs, 0 gradients" in told
    assert f"6 more have ended in {tmp_path / 'second'}" in told
    assert "taken over" not in told
    found = json.loads(surefoot(*again, "--json").stdout)
    assert (found["runs"], found["cost"], found["taken_over"]) == ([], 0, [])
    assert sorted(found["finished"]) == sorted(ours)


def test_a_deep_ensemble_is_taken_over_with_its_members(tmp_path):
    deep = small(
        base=STUDY["base"]
        | {"ensemble": {"name": "deep", "members": 2}, "data": STUDY["base"]["data"] | {"order": "first"}},
        seeds=[0],
    )
    sf.study(deep, tmp_path / "first")
    taken = sf.study(deep, tmp_path / "second", others=[tmp_path / "first"])
    assert not any(task.fresh for task in taken.tasks)
    for task in taken.tasks:
        assert open_run(tmp_path / "second" / "runs" / task.id).step == 100
    assert journals(tmp_path / "second") == journals(tmp_path / "first")


def test_another_study_must_be_one(tmp_path):
    with pytest.raises(BadInput, match="no study in"):
        sf.study(small(), tmp_path / "out", others=[tmp_path])
    told = surefoot("study", write(tmp_path, STUDY), "--dry-run", "--reuse", tmp_path / "nowhere")
    assert "no study in" in told.stderr
    assert not (tmp_path / "out").exists()


def test_what_is_no_whole_run_is_not_taken_over(tmp_path):
    folder, other = StudyFolder(tmp_path / "here"), tmp_path / "there"
    folder.runs.mkdir(parents=True)
    name = "0123456789abcdef"
    there = other / "runs" / name
    there.mkdir(parents=True)
    assert not folder.adopt(name, [other])
    (there / "result.json").write_text('{"outcome": "finished", "step": 3')
    assert not folder.adopt(name, [other])
    (there / "result.json").write_text('{"outcome": "finished", "step": 3, "final": {}}')
    (there / "journal.jsonl").symlink_to("/etc/hostname")
    with pytest.raises(BadInput, match="is a symbolic link"):
        folder.adopt(name, [other])
    assert not list(folder.runs.iterdir())
    (there / "journal.jsonl").unlink()
    assert not folder.adopt(name, [other])
    (there / "journal.jsonl").write_bytes(encode({"step": 0}) + encode({"step": 3})[:-3])
    assert not folder.adopt(name, [other])
    assert not list(folder.runs.iterdir())
    (there / "journal.jsonl").write_bytes(encode({"step": 0}) + encode({"step": 3}))
    assert folder.adopt(name, [tmp_path / "nowhere", other])
    assert not folder.adopt(name, [other])  # it is here


STAND_IN = """
import json, os, sys
tell = lambda **message: print(json.dumps(message), flush=True)
tell(type="ready")
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "check":
        tell(type="checked", error=CHECK)
        continue
    ID = IDS(order["label"])
    RUN
"""


@pytest.fixture
def stand_in(monkeypatch):
    """Workers that train nothing: what they answer to a check, and what they do when told a run."""

    def use(run, check=None):
        runs = make_plan(study_of(small()), None, DatasetIndex(None)).runs
        ids = {each.label: each.id for each in runs}
        code = STAND_IN.replace("CHECK", repr(check)).replace("RUN", run).replace("IDS", f"{ids}.get")
        monkeypatch.setattr(worker_processes, "COMMAND", [sys.executable, "-c", code])

    return use


def test_what_cannot_be_built_is_told_before_the_first_run(tmp_path, stand_in):
    methods = [{"name": "SGD", "rule": {"name": "sgd", "lr": 0.1}}, {"name": "SAM", "rule": {"name": "sam", "roh": 1}}]
    runs = make_plan(study_of(small(axes={"method": methods}, tables=[])), None, DatasetIndex(None)).runs
    parts = [{"label": r.label, "spec": r.spec.resolved(), "shape": [1, 8, 8], "classes": 10} for r in runs]
    told = worker._check({"runs": parts})
    assert told["error"].startswith("SAM seed=0: sam has no option 'roh'")
    assert told["error"].endswith("did you mean 'rho'?")
    assert worker._check({"runs": parts[:3]})["error"] is None
    stand_in("os.abort()", told["error"])
    with pytest.raises(BadInput, match="SAM seed=0: sam has no option"):
        sf.study(small(axes={"method": methods}, tables=[]), tmp_path)
    assert not any((tmp_path / "runs").iterdir())


def test_a_run_that_kills_its_worker_is_given_up(tmp_path, stand_in):
    """Three deaths without progress; the others go on."""
    stand_in(
        "os.kill(os.getpid(), 9) if order['label'] == 'SGD seed=1' else "
        "tell(type='ended', outcome='finished', step=5, fresh=True, id=ID, ece=0.1)"
    )
    result = sf.study(small(tables=[]), tmp_path, workers=2)
    failed = [task for task in result.tasks if task.state == "failed"]
    assert [task.run.label for task in failed] == ["SGD seed=1"]
    assert failed[0].error == "its worker died 3 times at the same place (signal SIGKILL)"
    assert result.count("finished") == 5
    assert "SGD seed=1" in (tmp_path / "failed" / f"{failed[0].id}.txt").read_text()


def test_a_run_that_gets_further_each_time_is_not_given_up(tmp_path, stand_in):
    stand_in(
        "n = len(os.listdir(order['out'])); open(os.path.join(order['out'], str(n)), 'w').close(); "
        "tell(type='step', step=10 * n + 1, steps=100, loss=1.0, ece=None) if n < 6 else "
        "tell(type='ended', outcome='finished', step=100, fresh=True, id=ID, ece=0.1); n < 6 and os._exit(3)"
    )
    axes = {"method": STUDY["axes"]["method"][:1]}
    (task,) = sf.study(small(tables=[], axes=axes, seeds=[0]), tmp_path).tasks
    assert task.state == "finished"
    assert task.reached == 50


class Gone:
    def reap(self):
        return 1, ""


def test_workers_that_die_between_runs_do_not_add_up(tmp_path):
    library = DatasetIndex(None)
    runner = Runner(make_plan(study_of(STUDY), None, library), StudyFolder(tmp_path), library)
    for _ in range(3):
        runner._lost(Gone())
        runner._lost(Gone())
        runner._progress(Task(runner.plan.runs[0]), {"step": 1, "loss": 1.0, "ece": None})
    runner._lost(Gone())
    runner._lost(Gone())
    with pytest.raises(WorkerFault):
        runner._lost(Gone())


def test_a_study_that_is_over_needs_no_writing(done, monkeypatch):
    def refused(self, missing_ok=False):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("pathlib.Path.unlink", refused)
    assert sf.study(STUDY, done.folder).count("finished") == 6


def test_data_that_changed_since_the_plan(tmp_path, stand_in):
    stand_in("tell(type='ended', outcome='finished', step=5, fresh=True, id='0' * 16, ece=0.1)")
    result = sf.study(small(tables=[]), tmp_path)
    assert result.count("failed") == 6
    assert "the data has changed" in result.tasks[0].error


def test_workers_that_cannot_start(tmp_path, monkeypatch):
    monkeypatch.setattr(
        worker_processes, "COMMAND", [sys.executable, "-c", "raise SystemExit('no module of that name')"]
    )
    with pytest.raises(WorkerFault, match=r"die before they take a run \(exit code 1\): no module of that name"):
        sf.study(small(tables=[]), tmp_path)


def test_a_full_disk_ends_the_study(tmp_path, stand_in):
    stand_in("tell(type='storage', error='cannot write: No space left on device')")
    with pytest.raises(StorageFault, match="No space left"):
        sf.study(small(tables=[]), tmp_path)
    assert not any((tmp_path / "failed").iterdir())  # the runs are not to blame


def test_values_are_chosen_on_validation_and_taken_over(tmp_path):
    """With SGD over lr × wd, the mean of val.nll over the seeds; SAM then runs at that point alone."""
    study = small(
        base=STUDY["base"] | {"stop": {"steps": 20, "batch": 20}},
        seeds=[0, 1],
        axes={
            "method": [
                {"name": "SGD", "rule": "sgd"},
                {
                    "name": "SAM",
                    "rule": {"name": "sam", "base": "sgd"},
                    "over": {"lr": {"key": "rule.base.lr"}, "wd": {"key": "rule.base.weight_decay"}},
                },
            ],
            "lr": {"key": "rule.lr", "values": [0.001, 0.3, 1e38]},
            "wd": {"key": "rule.weight_decay", "values": [0.0, 0.01]},
        },
        select={"method": "SGD", "axes": ["lr", "wd"], "metric": "val.nll"},
        tables=[{"name": "ends", "rows": "method"}, {"name": "tests", "kind": "compare", "rows": "method"}],
    )
    result = sf.study(study, tmp_path)
    assert result.outcome == "finished"
    scores = {}
    for task in result.tasks:
        if task.run.shown["method"] == "SGD" and task.state == "finished":
            final = json.loads((tmp_path / "runs" / task.id / "result.json").read_text())["final"]
            scores.setdefault((task.run.shown["lr"], task.run.shown["wd"]), []).append(final["val.nll"])
    best = min(scores, key=lambda key: np.mean(scores[key]))
    assert len(scores) == 4  # the wildest learning rate diverged and was no candidate
    taken = [task.run for task in result.tasks if task.run.shown["method"] == "SAM"]
    assert [(run.shown["lr"], run.shown["wd"]) for run in taken] == [best, best]
    assert taken[0].spec.optimizer.options["base"] == {
        "name": "sgd",
        "lr": taken[0].values["lr"],
        "weight_decay": taken[0].values["wd"],
    }
    chosen = json.loads((tmp_path / "study.json").read_text())["chosen"]
    assert chosen[0]["values"] == {"lr": best[0], "wd": best[1]}
    ends, tests = tables_of(gather(tmp_path))
    assert [label for label, _ in ends.rows] == ["SGD", "SAM"]
    assert cells(ends)["SGD", "runs"].facts == {"runs": 2, "of": 2, "outcomes": {"finished": 2}}
    assert cells(tests)["SAM − SGD, test ECE", "pairs"].facts["n"] == 2
    assert f"chosen on validation: lr = {best[0]}, wd = {best[1]}" in render([ends], "text")
    again = sf.study(study, tmp_path)
    assert [task.run.label for task in again.tasks] == [task.run.label for task in result.tasks]
    found = json.loads((tmp_path / "study.json").read_text())  # as it was before the choice was made
    found["chosen"], found["runs"] = None, [run for run in found["runs"] if run["shown"]["method"] == "SGD"]
    (tmp_path / "study.json").write_text(json.dumps(found))
    (tmp_path / "runs" / found["runs"][0]["id"] / "result.json").unlink()
    note = "nothing is chosen on validation yet: 7 of 12 candidates have finished, and none of them is shown"
    assert note in tables_of(gather(tmp_path))[0].notes


def test_a_call_about_some_runs_keeps_what_was_chosen(tmp_path, stand_in):
    """The first stage alone, again, after both: the choice and the second stage stay in the study's file."""
    methods = [{"name": "SGD", "rule": "sgd"}, {"name": "GD", "rule": "gd"}]
    study = small(
        axes={"method": methods, "lr": {"key": "rule.lr", "values": [0.1, 0.2]}},
        select={"method": "SGD", "axes": ["lr"]},
        seeds=[0],
        tables=[],
    )
    stand_in(
        "name = order['id']; place = os.path.join(order['out'], name); os.mkdir(place); "
        "open(os.path.join(place, 'result.json'), 'w').write(json.dumps({'outcome': 'finished', 'step': 1, "
        "'final': {'val.nll': order['spec']['optimizer']['lr']}})); "
        "tell(type='ended', outcome='finished', step=1, fresh=True, id=name, ece=0.1)"
    )
    assert sf.study(study, tmp_path).count("finished") == 3
    before = (tmp_path / "study.json").read_bytes()
    assert json.loads(before)["chosen"][0]["values"] == {"lr": "0.1"}
    again = sf.study(study, tmp_path, only="sgd")
    assert [task.run.label for task in again.tasks] == ["SGD lr=0.1 seed=0", "SGD lr=0.2 seed=0"]
    assert (tmp_path / "study.json").read_bytes() == before
    assert [task.run.label for task in sf.study(study, tmp_path, only="GD lr=0.1 ").tasks][-1] == "GD lr=0.1 seed=0"


def test_a_choice_of_one_waits_for_no_run(tmp_path, stand_in):
    """A scale may offer one candidate: nothing is to be chosen, so all runs are decided, on one seed, too."""
    methods = [{"name": "SGD", "rule": "sgd"}, {"name": "GD", "rule": "gd"}]
    study = small(
        axes={"method": methods, "lr": {"key": "rule.lr", "values": [0.1]}},
        select={"method": "SGD", "axes": ["lr"]},
        seeds=[0, 1],
        tables=[{"name": "ends", "rows": "method", "metrics": ["test.ece"]}],
    )
    stand_in(
        "name = order['id']; place = os.path.join(order['out'], name); os.mkdir(place); "
        "open(os.path.join(place, 'result.json'), 'w').write(json.dumps({'outcome': 'finished', 'step': 1, "
        "'final': {'val.nll': 0.5, 'test.ece': 0.1}})); "
        "tell(type='ended', outcome='finished', step=1, fresh=True, id=name, ece=0.1)"
    )
    one = sf.study(study, tmp_path, only="seed=1")
    assert [task.run.label for task in one.tasks] == ["SGD lr=0.1 seed=1", "GD lr=0.1 seed=1"]
    chosen = json.loads((tmp_path / "study.json").read_text())["chosen"]
    assert [(choice["values"], choice["score"]) for choice in chosen] == [({"lr": "0.1"}, None)]
    ends = tables_of(gather(tmp_path))[0]
    assert [label for label, _ in ends.rows] == ["SGD", "GD"]
    assert "the one candidate: lr = 0.1" in ends.notes
    assert sf.study(study, tmp_path).count("finished") == 4
    sf.study(study, tmp_path)
    assert json.loads((tmp_path / "study.json").read_text())["chosen"][0]["score"] == 0.5


def test_a_harmed_file_of_the_study_is_written_anew(tmp_path, stand_in):
    stand_in("tell(type='ended', outcome='finished', step=5, fresh=True, id=ID, ece=0.1)")
    sf.study(small(tables=[]), tmp_path)
    whole = (tmp_path / "study.json").read_bytes()
    for harmed in (whole[: len(whole) // 2], b"", b'{"schema": 0, "runs": []}'):
        (tmp_path / "study.json").write_bytes(harmed)
        assert sf.study(small(tables=[]), tmp_path).outcome == "finished"
        assert (tmp_path / "study.json").read_bytes() == whole


def test_ensembles_are_checked_before_the_first_run():
    spec = STUDY["base"] | {"rule": {"name": "sgd", "lr": 0.1}, "data": {"train": 60, "order": "first"}}
    for ensemble, said in (
        ({"name": "dropout", "sampels": 3}, "did you mean 'samples'"),
        ({"name": "deep", "member": 3}, "did you mean 'members'"),
        ({"name": "dropuot"}, "did you mean 'dropout'"),
    ):
        runs = [{"label": "A", "spec": spec | {"ensemble": ensemble}, "shape": [1, 8, 8], "classes": 10}]
        assert said in worker._check({"runs": runs})["error"]


def test_entries_that_differ_in_their_ensemble_alone_are_both_checked(tmp_path):
    entries = [{"name": "A"}, {"name": "B", "ensemble": {"name": "dropout"}}]
    base = STUDY["base"] | {"rule": {"name": "sgd", "lr": 0.1}}
    library = DatasetIndex(None)
    plan = make_plan(study_of(small(base=base, axes={"model": entries}, tables=[])), None, library)
    found = Runner(plan, StudyFolder(tmp_path), library)._unchecked()
    assert [each["label"] for each in found.values()] == ["A seed=0", "B seed=0"]


def order_for(planned, out):
    return {"label": planned.label, "spec": planned.spec.resolved(), "out": str(out), "data": None}


def test_a_harmed_journal_fails_its_run_and_not_the_study(tmp_path):
    planned = make_plan(study_of(small(tables=[])), None, DatasetIndex(None)).runs[0]
    folder = run(planned.spec, tmp_path).folder
    (folder / "result.json").unlink()
    (folder / "journal.jsonl").write_bytes(b"harmed\n")
    told = worker._run(order_for(planned, tmp_path), lambda message: None)
    assert told["type"] == "failed"
    assert "is corrupted" in told["error"]


def test_a_disk_that_is_full_before_a_run_begins(tmp_path, monkeypatch):
    planned = make_plan(study_of(small(tables=[])), None, DatasetIndex(None)).runs[0]

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("surefoot.training.run._run", full)
    told = worker._run(order_for(planned, tmp_path), lambda message: None)
    assert told["type"] == "storage"
    assert "No space left" in told["error"]


def test_names_are_shown_and_not_obeyed():
    name = "=1+1|<b>`x`[a](b)"
    table = Table("t", "summary", name, [name], [(name, [Cell("1.0")]), ("[x]", [Cell("-.10 ± .28")])], [name])
    shown = r"=1+1\|\<b>\`x\`[a]\(b)"
    assert render([table], "markdown").count(shown) == 4
    lines = list(csv.reader(render([table], "csv").splitlines()))
    assert lines[1][1:4] == [f"'{name}", f"'{name}", "1.0"]
    assert lines[2][1:4] == ["[x]", f"'{name}", "-.10 ± .28"]
    assert "\n{[}x]" in render([table], "latex")  # a bracket after a row's end would be an option of it


def test_a_verdict_of_one_run_says_so(done, tmp_path):
    write(tmp_path, small(tables=[{"name": "h", "kind": "hypotheses", "rows": ["method", "seed"]}]))
    (one,) = tables_of(gather(done.folder), specs=read_study(tmp_path / "study.toml").tables)
    assert any("any difference counts" in note for note in one.notes)
    (many,) = done.tables("hypotheses")
    assert not any("any difference counts" in note for note in many.notes)


def test_a_table_that_cannot_be_made_leaves_the_others(done):
    good, bad = (table_of({"name": name, "metrics": [name]}) for name in ("test.ece", "x.y"))
    made, not_made = tables_of(gather(done.folder), specs=[good, bad])
    assert made.rows
    assert "Not made" in not_made.notes[0]
    assert "x.y" in render([made, not_made], "text")
    with pytest.raises(BadInput, match=r"x\.y"):
        tables_of(gather(done.folder), specs=[bad])


def test_a_harmed_study_is_told(tmp_path):
    for text in ("{", "[]", '{"schema": 1, "runs": [{"id": "../../etc"}]}', '{"schema": 9, "runs": []}'):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(BadInput):
            gather(tmp_path)
    run = {"label": "\x1b[31m|&_", "shown": {}, "order": [], "seed": 0, "id": "../../../../tmp", "steps": 1}
    study = {"schema": 1, "name": "s", "scale": None, "axes": [], "entry_axes": [], "tables": [], "runs": [run]}
    (tmp_path / "study.json").write_text(json.dumps(study))
    with pytest.raises(BadInput, match="is no run's id"):
        gather(tmp_path)
