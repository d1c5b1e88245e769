"""How far a run is and when it ends: closed forms, and files from strangers."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.runs.reader import RunReader
from surefoot.runs.records import encode
from tests.reports.live_runs import begin, end, grow


def test_the_end_by_the_pace_of_the_readings(tmp_path):
    place = begin(tmp_path / "a", steps=1000)
    grow(place, 0, 100, 200, start=5000.0, pace=2.0)
    # 200 steps took until 5,400; 800 more at 2 s each.
    wanted = {"outcome": "unfinished", "step": 200, "steps": 1000, "seen": 5400.0, "ends": 7000.0}
    assert RunReader(place).progress() == wanted


def test_a_night_between_two_readings_does_not_count(tmp_path):
    place = begin(tmp_path / "a", steps=1000)
    grow(place, 0, 100, 200, start=0.0)
    grow(place, 300, 400, start=40_000.0)
    assert RunReader(place).progress()["ends"] == 40_800.0 + 2 * 600


def test_repeated_steps_do_not_count(tmp_path):
    place = begin(tmp_path / "a", steps=1000)
    grow(place, 0, 100, 200, 300, start=0.0)
    grow(place, 200, 300, start=5000.0)
    assert RunReader(place).progress()["ends"] == 5600.0 + 2 * 700


def test_one_reading_tells_no_pace(tmp_path):
    place = begin(tmp_path / "a")
    grow(place, 0)
    assert RunReader(place).progress()["ends"] is None


def test_a_run_that_ended_has_no_end_to_come(tmp_path):
    place = begin(tmp_path / "a", steps=1000)
    grow(place, 0, 100, 200)
    end(place, 200, "diverged")
    assert RunReader(place).progress() == {
        "outcome": "diverged",
        "step": 200,
        "steps": 1000,
        "seen": None,
        "ends": None,
    }


@pytest.mark.parametrize(
    ("batch", "steps"),
    [(10, 60), (300, 3), ("full", 3)],  # 205 examples: 20 whole batches of 10
)
def test_epochs_are_counted_as_training_counts_them(tmp_path, batch, steps):
    from surefoot.training.loop import Batches

    place = begin(tmp_path / "a", stop={"epochs": 3, "steps": None, "batch": batch})
    assert RunReader(place).progress()["steps"] == steps
    assert 3 * Batches(205, 205 if batch == "full" else batch, 0).per_epoch == steps


def test_a_tracker_knows_no_end(tmp_path):
    grow(tmp_path, 0, 100)
    assert RunReader(tmp_path).progress()["outcome"] == "tracked"
    assert RunReader(tmp_path).progress()["steps"] is None


def test_only_the_end_of_a_long_journal_is_read(tmp_path, monkeypatch):
    place = begin(tmp_path / "a", steps=10_000)
    grow(place, *range(2000))
    assert RunReader(place).progress()["step"] == 1999
    # A harmed front is none of progress's business.
    raw = (place / "journal.jsonl").read_bytes()
    (place / "journal.jsonl").write_bytes(b"\0" * 5000 + raw[5000:])
    assert RunReader(place).progress()["step"] == 1999


def test_a_torn_last_line_is_not_counted(tmp_path):
    place = begin(tmp_path / "a")
    grow(place, 0, 100)
    with (place / "journal.jsonl").open("ab") as journal:
        journal.write(encode({"step": 200})[:-1])
    assert RunReader(place).progress()["step"] == 100


def test_links_and_pipes_are_not_opened(tmp_path):
    outside = tmp_path / "outside"
    grow(begin(outside), 0, 700)
    end(outside, 700)
    place = begin(tmp_path / "a")
    for name in ("journal.jsonl", "result.json"):
        (place / name).symlink_to(outside / name)
    os.mkfifo(place / "timings.jsonl")
    assert RunReader(place).progress() == {
        "outcome": "unfinished",
        "step": 0,
        "steps": 1000,
        "seen": None,
        "ends": None,
    }


HOSTILE = [b"", b"[]", b"{", b"null", b"[" * 100_000, b'{"stop": 3}', b'{"stop": {"steps": 1e400}}', b"\xff\xfe",
           b'{"stop": {"steps": -1}}', b'{"stop": {"steps": true}}', b'{"outcome": ["<b>"], "step": "x"}',
           b'{"step": 1' + b"0" * 5000 + b"}", encode({"step": 10**400}), encode({"step": "NaN", "time": "Infinity"}),
           encode({"step": 5, "time": 1e308}), encode({"step": None})]  # fmt: skip


@pytest.mark.parametrize("raw", HOSTILE)
def test_hostile_files_tell_nothing_and_break_nothing(tmp_path, raw):
    for name in ("spec.json", "facts.json", "result.json", "journal.jsonl", "timings.jsonl"):
        (tmp_path / name).write_bytes(raw)
    json.dumps(RunReader(tmp_path).progress(), allow_nan=False)


@given(spec=st.binary(max_size=200), lines=st.lists(st.binary(max_size=50), max_size=5))
def test_any_bytes_give_an_answer(tmp_path_factory, spec, lines):
    place = tmp_path_factory.mktemp("run")
    (place / "spec.json").write_bytes(spec)
    (place / "journal.jsonl").write_bytes(b"\n".join(lines))
    assert RunReader(place).progress()["step"] == 0


numbers = st.one_of(st.integers(), st.floats(), st.text(max_size=3), st.none(), st.booleans())


@given(records=st.lists(st.fixed_dictionaries({"step": numbers, "time": numbers}), max_size=6), steps=numbers)
def test_any_whole_records_give_json(tmp_path_factory, records, steps):
    place = tmp_path_factory.mktemp("run")
    (place / "spec.json").write_bytes(encode({"stop": {"steps": steps, "epochs": steps, "batch": steps}}))
    for name in ("journal.jsonl", "timings.jsonl"):
        (place / name).write_bytes(b"".join(encode(record) for record in records))
    json.dumps(RunReader(place).progress(), allow_nan=False)
