"""Run folders that would have surefoot read, write or delete files outside of them, or wait for ever."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import surefoot as sf
from surefoot.cli import app
from surefoot.errors import BadInput
from surefoot.files import open_regular, read_file, replace_file
from surefoot.reports.page import payload
from surefoot.runs.reader import RunReader, overview
from surefoot.runs.records import RUN_FILES
from surefoot.studies.folder import StudyFolder
from surefoot.training.loaded import open_run
from surefoot.training.run import run
from surefoot.training.spec import spec_of
from tests.training.test_runs import Killed, spec

HOSTILE = ("link", "dangling", "pipe", "folder")
STUDY = {
    "name": "tiny",
    "base": {"data": {"name": "digits", "train": 40, "test": 30}, "model": {"name": "mlp", "widths": [4]},
             "rule": {"name": "sgd", "lr": 0.1}, "stop": {"steps": 2, "batch": 20}, "track": {"every": 2}},
    "axes": {"lr": {"key": "rule.lr", "values": [0.1]}},
}  # fmt: skip


def short():
    return spec(steps=4, track={"every": 2, "histograms": True}, checkpoint=1, best={"metric": "val.nll"})


def kill(step, steps, loss, reading):
    if step == 2:
        raise Killed


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run that died after two steps, with every file that a run can have."""
    out = tmp_path_factory.mktemp("begun")
    with pytest.raises(Killed):
        run(short(), out, watch=kill)
    (folder,) = out.iterdir()
    for name in ("examples.json", "best.safetensors"):
        (folder / name).touch()
    return folder


@pytest.fixture
def secret(tmp_path):
    """A folder of the user's that no run may touch or show."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in (".bashrc", ".state.keep", "notes.txt"):
        (folder / name).write_text("SECRET\n")
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def put(kind, path, target):
    """Put something in the place of ``path`` that is no regular file."""
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(target)
    elif kind == "dangling":
        path.symlink_to(target.with_name("missing"))
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


def test_train_refuses_a_run_folder_that_is_a_link(tmp_path, secret):
    before = contents(secret)
    name = run(spec(steps=1), tmp_path / "whole").folder.name
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / name).symlink_to(secret)
    with pytest.raises(BadInput, match="is a symbolic link"):
        run(spec(steps=1), tmp_path / "runs")
    assert contents(secret) == before


def test_a_folder_of_runs_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    done = run(spec(steps=1), tmp_path / "runs")
    assert done.outcome == "finished"
    assert (tmp_path / "disk" / done.folder.name / "result.json").is_file()
    assert [each["outcome"] for each in overview(tmp_path / "runs")] == ["finished"]
    assert len(payload(tmp_path / "runs")["runs"]) == 1
    assert payload(tmp_path / "runs" / done.folder.name)["runs"][0]["outcome"] == "finished"


def test_only_our_own_leftovers_are_removed(begun, tmp_path):
    shutil.copytree(begun, folder := tmp_path / begun.name)
    (folder / ".mine").write_text("kept")
    (folder / ".state.mine-not").write_text("kept")
    (folder / ".state.abcd_123").write_text("left by a death")
    (folder / ".journal.jsonl.0123abcd").write_text("left by a death")
    run(short(), tmp_path)
    assert {path.name for path in folder.glob(".*")} == {".mine", ".state.mine-not"}


@pytest.mark.parametrize("name", ["journal.jsonl", "arrays.jsonl", "timings.jsonl", "lock"])
def test_train_and_resume_refuse_to_write_through_a_hard_link(name, begun, tmp_path):
    mine = tmp_path / "mine.txt"
    for case in ("resumed", "new"):
        mine.unlink(missing_ok=True)
        mine.write_bytes((begun / name).read_bytes())
        folder = tmp_path / case / begun.name
        if case == "resumed":
            shutil.copytree(begun, folder)
            (folder / name).unlink()
        else:
            folder.mkdir(parents=True)
            mine.write_text("" if name in ("journal.jsonl", "arrays.jsonl") else "SECRET\n")
        os.link(mine, folder / name)
        before = mine.read_bytes()
        with pytest.raises(BadInput, match=r"is a hard link, .* replace it by a copy"):
            run(short(), tmp_path / case)
        assert mine.read_bytes() == before
        assert read_file(folder / name, 1 << 20) == before  # reading harms nothing


@pytest.mark.parametrize("name", ["journal.jsonl", "arrays.jsonl"])
def test_train_keeps_a_journal_that_no_spec_explains(name, begun, tmp_path):
    folder = tmp_path / begun.name
    folder.mkdir()
    (folder / name).write_text("mine\n")
    with pytest.raises(BadInput, match=r"holds a journal but no spec\.json"):
        run(short(), tmp_path)
    assert (folder / name).read_text() == "mine\n"


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", RUN_FILES)
def test_train_and_resume_refuse_what_is_no_regular_file(name, kind, begun, secret, tmp_path):
    before = contents(secret)
    for case in ("resumed", "new"):
        folder = tmp_path / case / begun.name
        if case == "resumed":
            shutil.copytree(begun, folder)
        else:
            folder.mkdir(parents=True)
        put(kind, folder / name, secret / "notes.txt")
        kept = {path.name for path in folder.iterdir()} | {"lock"}
        with pytest.raises(BadInput, match=rf"{name}' is a (symbolic link|pipe|folder)"):
            run(short(), tmp_path / case)
        assert contents(secret) == before
        assert {path.name for path in folder.iterdir()} <= kept
        if name == "spec.json" or kind != "link":
            continue
        with pytest.raises(BadInput):
            open_run(folder)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", RUN_FILES)
def test_readers_show_nothing_of_what_is_no_regular_file(name, kind, begun, secret, tmp_path):
    shutil.copytree(begun, folder := tmp_path / "runs" / begun.name)
    (secret / "notes.txt").write_text('{"outcome": "SECRET", "rule": {"name": "SECRET"}, "step": 3}')
    put(kind, folder / name, secret / "notes.txt")
    for shown in (overview(folder.parent), overview(folder), RunReader(folder).progress(), payload(folder.parent)):
        assert "SECRET" not in json.dumps(shown, default=str)


@pytest.mark.parametrize("command", ["status", "report", "serve"])
def test_readers_pass_over_a_run_folder_that_is_a_link(command, begun, tmp_path):
    shutil.copytree(begun, tmp_path / "outside" / begun.name)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / begun.name).symlink_to(tmp_path / "outside" / begun.name)
    options = ["-o", str(tmp_path / "page.html")] if command == "report" else []
    done = CliRunner().invoke(app, [command, str(tmp_path / "runs"), *options])
    assert isinstance(done.exception, BadInput)
    assert "there is no run" in str(done.exception)


def tracked(out):
    model, x, y = torch.nn.Linear(4, 3), torch.randn(30, 4), torch.arange(30) % 3
    with sf.Tracker(model, (x, y), (x, y), every={"margins": 1, "histograms": 1}, out=out) as tracker:
        tracker.step(0)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", ["journal.jsonl", "arrays.jsonl"])
def test_a_tracker_refuses_what_is_no_regular_file(name, kind, secret, tmp_path):
    before = contents(secret)
    (tmp_path / "out").mkdir()
    put(kind, tmp_path / "out" / name, secret / "notes.txt")
    with pytest.raises(BadInput, match=rf"{name}' is a"):
        tracked(tmp_path / "out")
    assert contents(secret) == before


def test_a_tracker_refuses_a_folder_that_is_a_link(secret, tmp_path):
    before = contents(secret)
    (tmp_path / "out").symlink_to(secret)
    with pytest.raises(BadInput, match="is a symbolic link"):
        tracked(tmp_path / "out")
    assert contents(secret) == before


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    out = tmp_path_factory.mktemp("studied") / "study"
    assert sf.study(STUDY, out).outcome == "finished"
    return out


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("place", ["study.json", "runs/{}/result.json", "runs/{}/journal.jsonl", "runs/{}"])
def test_a_study_and_its_reuse_refuse_what_is_no_regular_file(place, kind, studied, secret, tmp_path):
    shutil.copytree(studied, tmp_path / "study")
    (name,) = (path.name for path in (studied / "runs").iterdir())
    before, path = contents(secret), tmp_path / "study" / place.format(name)
    if place == "runs/{}":
        if kind != "link":
            return
        shutil.rmtree(path)
        path.symlink_to(secret)
    else:
        put(kind, path, secret / "notes.txt")
    with pytest.raises(BadInput):
        sf.study(STUDY, tmp_path / "again", others=[tmp_path / "study"])
    assert contents(secret) == before
    if place != "runs/{}/journal.jsonl":  # a run that has ended is not opened again
        with pytest.raises(BadInput):
            sf.study(STUDY, tmp_path / "study")
    assert contents(secret) == before


@pytest.mark.parametrize("name", ["runs", "failed"])
def test_a_study_refuses_a_linked_folder_inside_of_it(name, secret, tmp_path):
    before = contents(secret)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / name).symlink_to(secret)
    with pytest.raises(BadInput, match="is a symbolic link"):
        sf.study(STUDY, tmp_path / "study")
    with pytest.raises(BadInput, match="is a symbolic link"):
        StudyFolder(tmp_path / "study").read()
    assert contents(secret) == before


def test_a_study_folder_may_be_a_link(studied, tmp_path):
    (tmp_path / "link").symlink_to(studied)
    assert sf.study(STUDY, tmp_path / "link").outcome == "finished"


def test_what_is_opened_safely(tmp_path, secret):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    with pytest.raises(BadInput, match="has 5 bytes, too many"):
        read_file(path, 4)
    handle = open_regular(path)
    assert not os.get_inheritable(handle)
    os.close(handle)
    path.chmod(0o640)
    with replace_file(path) as stream:
        stream.write(b"new")
    assert path.stat().st_mode & 0o777 == 0o640
    (tmp_path / "to").symlink_to(secret)
    with pytest.raises(BadInput, match="is a symbolic link"), replace_file(tmp_path / "to" / "x", follow_folder=False):
        pass
    with replace_file(tmp_path / "to" / "x") as stream:
        stream.write(b"a user's own folder may be a link")
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


# A hook cannot be taken away again: it watches what is named here, and nothing otherwise.
watched: dict[str, list[str]] = {}
_EVENTS = ("open", "os.remove", "os.rename", "os.truncate", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink")
_SOURCES = str(Path(sf.__file__).parent)


def _hook(event, arguments):
    if not watched or event not in _EVENTS:
        return
    for folder, bypassed in watched.items():
        paths = [os.fspath(each) for each in arguments if isinstance(each, str | os.PathLike)]
        if any(path.startswith(folder) or os.path.basename(path) in RUN_FILES for path in paths):
            frame = sys._getframe(1)
            while frame is not None and not frame.f_code.co_filename.startswith(_SOURCES):
                frame = frame.f_back
            if frame is not None and frame.f_code.co_filename != f"{_SOURCES}/files.py":
                bypassed.append(f"{event} {paths} by {frame.f_code.co_filename}:{frame.f_lineno}")


def test_all_access_goes_through_one_module(begun, tmp_path, monkeypatch):
    sys.addaudithook(_hook)
    out = tmp_path / "runs"
    import safetensors

    def opened(*_, **__):
        pytest.fail("safetensors opened a file by itself")

    monkeypatch.setattr(safetensors, "safe_open", opened)  # it does so in Rust, where no hook hears of it
    bypassed = watched.setdefault(str(out), [])
    try:
        with pytest.raises(Killed):
            run(short(), out, watch=kill)
        folder = run(short(), out).folder
        assert run(short(), out).fresh is False
        open_run(folder)
        open_run(folder, best=True)
        overview(out)
        RunReader(folder).progress()
        payload(out)
        tracked(out / "tracked")
        together = {
            "data": {"name": "digits", "train": 40, "order": "first"},
            "ensemble": {"name": "deep", "members": 2},
        }
        run(spec_of(together | {"rule": {"name": "sgd", "lr": 0.1}, "stop": {"steps": 1}}), out)
    finally:
        watched.clear()
    assert not bypassed, "\n".join(bypassed)
