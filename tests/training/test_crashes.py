"""A death at every storage call and at random moments: the resumed run ends with the same bytes."""

import errno
import os
import random
import signal
import time

import pytest

from surefoot.errors import StorageFault
from surefoot.training.run import run
from tests.ranks.spawn import PROCESSES
from tests.training.test_runs import RULES, files, spec

CALLS = ("write", "fsync", "replace", "ftruncate")
EVERYTHING = os.environ.get("SUREFOOT_CRASH") == "all"
CHOSEN = list(RULES) if EVERYTHING else ["csam"]
EACH = pytest.param(1, id="each", marks=pytest.mark.slow)


class Death(BaseException):
    """Runs none of our clean-up but what the kernel would do."""


class Faults:
    """Wraps the storage calls; at call number ``at`` it dies or fails, ``when`` before, half-way or after."""

    def __init__(self, monkeypatch, at=-1, when="before", error=None):
        self.count, self._at, self._when, self._error = 0, at, when, error or Death()
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name, call):
        def wrapper(*arguments, **options):
            self.count += 1
            if self.count - 1 != self._at:
                return call(*arguments, **options)
            if self._when == "half" and name == "write":
                call(arguments[0], arguments[1][: len(arguments[1]) // 2])
            elif self._when == "after":
                call(*arguments, **options)
            raise self._error

        return wrapper


def short(rule):
    return spec(rule, steps=5, checkpoint=2, track={"every": 2})


def same(one, other):
    names = ("journal.jsonl", "result.json", "spec.json", "state-a.safetensors")  # the last commit is of turn 5 // 2
    return all(one[name] == other[name] for name in names)


@pytest.mark.parametrize("stride", [pytest.param(13, id="some"), EACH])
@pytest.mark.parametrize("rule", CHOSEN)
def test_death_at_every_storage_call(rule, stride, tmp_path, monkeypatch):
    whole = run(short(rule), tmp_path / "whole")
    expected = files(whole.folder)
    with monkeypatch.context() as patch:
        faults = Faults(patch)
        run(short(rule), tmp_path / "counted")
    assert faults.count > 15
    deaths = [(at, when) for at in range(faults.count) for when in ("before", "half", "after")]
    for at, when in deaths[::stride]:
        out = tmp_path / f"{at}{when}"
        with monkeypatch.context() as patch:
            Faults(patch, at, when)
            with pytest.raises(Death):
                run(short(rule), out)
        resumed = run(short(rule), out)
        assert resumed.outcome == "finished"
        found = files(resumed.folder)
        assert same(found, expected), (at, when)
        assert set(found) == set(expected)


@pytest.mark.parametrize("stride", [pytest.param(4, id="some"), EACH])
def test_a_full_disk_at_every_storage_call(stride, tmp_path, monkeypatch):
    expected = files(run(short("sgd"), tmp_path / "whole").folder)
    with monkeypatch.context() as patch:
        count = Faults(patch)
        run(short("sgd"), tmp_path / "counted")
    for at in range(0, count.count, stride):
        out = tmp_path / str(at)
        with monkeypatch.context() as patch:
            Faults(patch, at, "half", OSError(errno.ENOSPC, "No space left on device"))
            with pytest.raises(StorageFault, match="No space left"):
                run(short("sgd"), out)
        assert same(files(run(short("sgd"), out).folder), expected), at


def _child(rule, out):
    run(long(rule), out)


def long(rule):
    return spec(rule, steps=60, checkpoint=7, track={"every": 5}, best={"metric": "val.nll"})


@pytest.mark.parametrize("wanted", [1, pytest.param(19 if EVERYTHING else 5, id="many", marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", CHOSEN)
def test_kill_minus_nine_at_random_moments(rule, wanted, tmp_path):
    """A share of 200 kills over all rules; a run that ends before its turn comes is followed by another."""
    expected = files(run(long(rule), tmp_path / "whole").folder)
    length = 0.0
    for _ in range(2):  # the first also waits for the server
        began = time.monotonic()
        child = PROCESSES.Process(target=_child, args=(rule, tmp_path / f"timed{began}"))
        child.start()
        child.join()
        length = time.monotonic() - began
    moments = random.Random(rule)
    kills, place = 0, 0
    while kills < wanted:
        place += 1
        for turn in range(6):
            child = PROCESSES.Process(target=_child, args=(rule, tmp_path / str(place)))
            child.start()
            child.join(moments.uniform(0, length) if turn < 5 else 60)
            if child.exitcode is not None:
                break
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            kills += 1
        assert child.exitcode == 0
        (folder,) = (tmp_path / str(place)).iterdir()
        found = files(folder)
        assert set(found) == set(expected)
        newest = "state-a.safetensors" if 60 // 7 % 2 == 0 else "state-b.safetensors"
        for name in ("journal.jsonl", "result.json", "spec.json", "best.safetensors", newest):
            assert found[name] == expected[name], (place, name)
