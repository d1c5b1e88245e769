"""The refresher reads when somebody looks, what changed, and no more than its share; without its thread."""

import itertools
import json

import pytest

from surefoot.reports.serve import refresher as module
from surefoot.reports.serve.refresher import Refresher
from surefoot.runs.reader import RunReader
from tests.reports.live_runs import begin, end, grow


class Clock:
    """Time that passes when told; work takes the seconds it is said to."""

    now = 1000.0
    used = 0.0


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(module.time, "monotonic", lambda: found.now)
    monkeypatch.setattr(module.time, "thread_time", lambda: found.used)
    return found


@pytest.fixture
def folder(tmp_path):
    grow(begin(tmp_path / "a"), 0, 10)
    return tmp_path


def test_nothing_is_made_until_somebody_asks(folder, clock):
    made = []
    refresher = Refresher(folder, lambda stamps: made.append(stamps) or b'{"x":1}')
    for _ in range(3):
        refresher.turn()
        clock.now += 1
    assert made == []
    assert refresher.state is None
    assert refresher.ask()
    refresher.turn()
    assert len(made) == 1
    assert not refresher.ask()


def test_interest_fades(folder, clock):
    made = []
    refresher = Refresher(folder, lambda stamps: made.append(stamps) or b'{"x":1}')
    refresher.ask()
    refresher.turn()
    clock.now += 3600
    for step in range(20, 60, 10):
        grow(folder / "a", step)
        refresher.turn()
        clock.now += 10
    assert len(made) == 1
    refresher.ask()
    refresher.turn()
    assert len(made) == 2


def test_dear_data_are_made_seldom(folder, clock):
    made = []

    def make(stamps):
        made.append(clock.now)
        clock.used += 3.0
        return b'{"x":1}'

    refresher = Refresher(folder, make)
    for second in range(100):
        grow(folder / "a", 20 + second)
        refresher.ask()
        refresher.turn()
        clock.now += 1
    # Three seconds of work each: a tenth of a core is one in thirty seconds. The first is no measure of the next.
    assert [later - earlier for earlier, later in itertools.pairwise(made)] == [3.0, 30.0, 30.0, 30.0]


def test_dear_looks_are_seldom(folder, clock, monkeypatch):
    refresher = Refresher(folder, lambda stamps: b'{"x":1}')
    look = refresher._watch.look

    def slow():
        clock.used += 0.5
        return look()

    monkeypatch.setattr(refresher._watch, "look", slow)
    assert refresher.turn() == 1.0  # the first is no measure of the next
    assert refresher.turn() == pytest.approx(25.0)  # a fiftieth of a core
    monkeypatch.setattr(refresher._watch, "look", look)
    assert refresher.turn() == 1.0


def test_only_changed_runs_are_looked_into(folder, clock, monkeypatch):
    read = []
    plain = RunReader.progress
    monkeypatch.setattr(RunReader, "progress", lambda self: read.append(self.folder.name) or plain(self))
    grow(begin(folder / "b"), 0)
    refresher = Refresher(folder, lambda stamps: b'{"x":1}')
    refresher.turn()
    assert sorted(read) == ["a", "b"]
    read.clear()
    refresher.turn()
    assert read == []
    grow(folder / "b", 10)
    refresher.turn()
    assert read == ["b"]


def test_of_many_runs_under_way_the_latest_are_listed(tmp_path, clock):
    for place in range(60):
        grow(begin(tmp_path / f"run{place:02}"), 0, 10, start=1e9 + place)
    done = begin(tmp_path / "done")
    grow(done, 0)
    end(done, 0)
    tracked = tmp_path / "tracked"
    tracked.mkdir()
    grow(tracked, 0)
    refresher = Refresher(tmp_path, lambda stamps: b'{"x":1}')
    refresher.ask()
    refresher.turn()
    told = json.loads(refresher.state.progress)
    assert (told["unfinished"], told["ended"]) == (60, 1)
    assert [run["run"] for run in told["runs"]] == [f"run{place:02}" for place in range(10, 60)]


def test_data_never_stand_without_progress(folder, clock, monkeypatch):
    """A listener may look at any moment."""
    made = []
    plain = module.State
    monkeypatch.setattr(module, "State", lambda *parts: made.append(parts) or plain(*parts))
    refresher = Refresher(folder, lambda stamps: b'{"x":1}')
    for step in (20, 30):
        refresher.ask()
        refresher.turn()
        grow(folder / "a", step)
        clock.now += 10
    assert [json.loads(progress)["runs"][0]["step"] for _, _, progress in made] == [10, 20, 20]


def test_trouble_is_told_once(folder, clock):
    told = []

    def make(stamps):
        raise ValueError("odd file")

    refresher = Refresher(folder, make, told.append)
    for _ in range(5):
        refresher.ask()
        refresher.turn()
        clock.now += 5
    assert told == ["cannot read the runs: ValueError: odd file"]


def test_a_look_that_fails_ends_nothing(folder, clock, monkeypatch):
    told = []
    refresher = Refresher(folder, lambda stamps: b'{"x":1}', told.append)
    refresher.ask()
    refresher.turn()
    monkeypatch.setattr(refresher._watch, "look", lambda: 1 / 0)
    refresher.turn()
    assert refresher.state is not None
    assert len(told) == 1
