"""The watch notices what changed, at the cost it promises, and goes nowhere else."""

import os
import time

import pytest

from surefoot.reports.serve import watch as module
from surefoot.reports.serve.watch import Watch, is_run
from tests.reports.live_runs import begin, end, grow

LATER = 10**12  # nanoseconds by which a folder's times have long settled


@pytest.fixture
def watch(tmp_path):
    return Watch(tmp_path, lambda: time.time_ns() + LATER)


def test_nothing_new_is_nothing_new(tmp_path, watch):
    grow(begin(tmp_path / "a"), 0, 10)
    assert watch.look() == watch.look()


@pytest.mark.parametrize(
    "change",
    [
        lambda runs: begin(runs / "b"),
        lambda runs: grow(runs / "a", 20),
        lambda runs: (runs / "a" / "arrays.jsonl").write_text("x"),
        lambda runs: end(runs / "a", 20),
        lambda runs: (runs / "a" / "spec.json").unlink(),
        lambda runs: (runs / "a" / "journal.jsonl").write_bytes(b""),
        lambda runs: (runs / "a").rename(runs / "c"),
    ],
    ids=["begun", "grown", "arrays", "ended", "harmed", "cut", "moved"],
)
@pytest.mark.parametrize("depth", ["", "study/runs", "all/study/runs"])
def test_every_change_is_noticed(tmp_path, depth, change):
    runs = tmp_path / depth
    grow(begin(runs / "a"), 0, 10)
    # The real clock: what is listed at the moment of its change is not trusted.
    watch = Watch(tmp_path)
    before = watch.look()
    change(runs)
    assert watch.look() != before


def test_weights_and_clocks_are_no_news(tmp_path, watch):
    place = begin(tmp_path / "a")
    grow(place, 0)
    before = watch.look()
    for name in ("state-a.safetensors", "timings.jsonl", "lock", ".spec.json.half"):
        (place / name).write_text("other")
    assert watch.look() == before


def test_a_change_within_the_tick_of_the_clock_is_not_lost(tmp_path):
    place = begin(tmp_path / "a")
    now = time.time_ns()
    os.utime(place, ns=(now, now))
    watch = Watch(tmp_path, lambda: now + 1)
    before = watch.look()
    (place / "result.json").write_text("{}")
    os.utime(place, ns=(now, now))  # as if both had happened within one tick
    assert watch.look() != before


def test_a_run_that_ended_costs_one_call(tmp_path, watch, monkeypatch):
    for name in range(50):
        place = begin(tmp_path / f"run{name}")
        grow(place, 0, 10)
        end(place, 10)
    going = begin(tmp_path / "going")
    grow(going, 0)
    watch.look()
    calls = []
    stat = os.stat
    monkeypatch.setattr(module.os, "stat", lambda *a, **k: calls.append(a) or stat(*a, **k))
    monkeypatch.setattr(module.os, "scandir", lambda path: pytest.fail(f"{path} is listed again"))
    watch.look()
    assert len(calls) == 1 + 50 + 3  # the folder; one each; the run under way, its journal, its arrays


def test_links_are_not_followed(tmp_path, watch):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    grow(begin(outside / "secret"), 0)
    begin(tmp_path / "mine")
    (tmp_path / "linked").symlink_to(outside / "secret")
    (tmp_path / "linked-all").symlink_to(outside)
    (tmp_path / "round").symlink_to(tmp_path)
    assert list(watch.look()) == ["mine"]


def test_a_folder_may_vanish_and_come_back(tmp_path):
    root = tmp_path / "runs"
    grow(begin(root / "a"), 0)
    watch = Watch(root)
    first = watch.look()
    root.rename(tmp_path / "away")
    assert watch.look() == {}
    (tmp_path / "away").rename(root)
    assert watch.look() == first


def test_a_tracker_has_no_spec(tmp_path, watch):
    place = tmp_path / "mine"
    place.mkdir()
    grow(place, 0)
    found = watch.look()
    assert is_run(found["mine"])


def test_what_may_not_be_read_is_passed_over(tmp_path, watch, monkeypatch):
    begin(tmp_path / "a")
    begin(tmp_path / "b")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("/a"):
            raise PermissionError(13, "no")
        return scandir(path)

    monkeypatch.setattr(module.os, "scandir", refuse)
    assert list(watch.look()) == ["b"]
