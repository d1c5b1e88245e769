"""A death at every storage call, before, half-way and after: the resumed run ends with the same bytes."""

import errno
import os

import pytest

from surefoot.errors import StorageFault
from surefoot.training.run import run
from tests.training.test_runs import RULES, files, spec

CALLS = ("write", "fsync", "replace", "ftruncate")
EVERYTHING = os.environ.get("SUREFOOT_CRASH") == "all"
CHOSEN = list(RULES) if EVERYTHING else ["csam"]


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


@pytest.mark.parametrize("rule", CHOSEN)
def test_death_at_every_storage_call(rule, tmp_path, monkeypatch):
    whole = run(short(rule), tmp_path / "whole")
    expected = files(whole.folder)
    with monkeypatch.context() as patch:
        faults = Faults(patch)
        run(short(rule), tmp_path / "counted")
    assert faults.count > 15
    for at in range(faults.count):
        for when in ("before", "half", "after"):
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


def test_a_full_disk_at_every_storage_call(tmp_path, monkeypatch):
    expected = files(run(short("sgd"), tmp_path / "whole").folder)
    with monkeypatch.context() as patch:
        count = Faults(patch)
        run(short("sgd"), tmp_path / "counted")
    for at in range(count.count):
        out = tmp_path / str(at)
        with monkeypatch.context() as patch:
            Faults(patch, at, "half", OSError(errno.ENOSPC, "No space left on device"))
            with pytest.raises(StorageFault, match="No space left"):
                run(short("sgd"), out)
        assert same(files(run(short("sgd"), out).folder), expected), at
