"""Journal and checkpoints under harm: torn tails, flipped bits, crashes and full disks."""

import errno
import math
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import StorageFault
from surefoot.runs.checkpoint import load_newest, save_checkpoint
from surefoot.runs.records import Journal, decode, encode, read_journal

numbers = (
    st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**53), 2**53) | st.text(max_size=8) | st.booleans()
)


@given(st.dictionaries(st.text(min_size=1, max_size=6).filter(lambda key: key != "crc"), numbers, max_size=5))
def test_records_come_back_to_the_bit(record):
    words = {"NaN", "Infinity", "-Infinity"}
    record = {key: value for key, value in record.items() if value not in words}
    found = decode(encode(record))
    assert found is not None
    assert set(found) == set(record)
    for key, value in record.items():
        assert found[key] == value or (math.isnan(value) and math.isnan(found[key]))


def written(path, count=5):
    journal = Journal(path, 0)
    for step in range(count):
        journal.append({"step": step, "loss": 1 / (step + 1)})
    journal.close()
    return path.read_bytes()


def test_a_torn_tail_at_every_byte(tmp_path):
    path = tmp_path / "journal.jsonl"
    raw = written(path)
    lines = raw.splitlines(keepends=True)
    ends = [sum(map(len, lines[:count])) for count in range(len(lines) + 1)]
    for cut in range(len(raw) + 1):
        path.write_bytes(raw[:cut])
        records, offset = read_journal(path)
        whole = sum(end <= cut for end in ends) - 1
        assert [record["step"] for record in records] == list(range(whole))
        assert offset == ends[whole]
        journal = Journal(path, offset)
        journal.append({"step": 99})
        journal.close()
        assert [record["step"] for record in read_journal(path)[0]] == [*range(whole), 99]


@pytest.mark.parametrize(
    "record", [{"loss": 0.5, "step": 1}, {"best": 2.0, "step": 1}, {"a": 1, "b": {"crc": "0"}}, {}]
)
def test_every_flipped_bit_of_a_line_is_seen(record):
    """Wherever the checksum stands among the keys."""
    raw = encode(record)
    assert decode(raw) == record
    for place in range(8 * len(raw)):
        harmed = bytearray(raw)
        harmed[place // 8] ^= 1 << place % 8
        assert decode(bytes(harmed)) is None, place


def test_short_writes_go_on(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, 0)
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:3]))
    journal.append({"step": 1, "loss": 0.5})
    monkeypatch.undo()
    journal.close()
    assert read_journal(path)[0] == [{"step": 1, "loss": 0.5}]


def test_a_full_disk_is_a_storage_fault(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "journal.jsonl", 0)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageFault, match="No space left"):
        journal.append({"step": 1})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFault, match="No space left"):
        journal.sync()


def state(step):
    return {"a": torch.full((3, 2), float(step)), "empty": torch.zeros(0), "flag": torch.tensor(step)}


def test_checkpoints_take_turns_and_the_newest_whole_one_counts(tmp_path):
    assert load_newest(tmp_path) is None
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, state(step), {"step": step, "offset": 10 * step}, step)
    tensors, meta = load_newest(tmp_path)
    assert meta == {"step": 3, "offset": 30}
    assert torch.equal(tensors["a"], state(3)["a"])
    newest = tmp_path / "state-b.safetensors"
    raw = newest.read_bytes()
    for place in (0, 9, 40, len(raw) // 2, len(raw) - 1):
        harmed = bytearray(raw)
        harmed[place] ^= 1
        newest.write_bytes(bytes(harmed))
        assert load_newest(tmp_path)[1]["step"] == 2, place
    newest.write_bytes(raw[:-1])
    assert load_newest(tmp_path)[1]["step"] == 2


def test_the_same_state_gives_the_same_bytes(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    for folder in ("x", "y"):
        save_checkpoint(tmp_path / folder, state(1), {"step": 1, "offset": 2, "more": [1.5, None]}, 0)
    assert (tmp_path / "x/state-a.safetensors").read_bytes() == (tmp_path / "y/state-a.safetensors").read_bytes()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_checkpoint_leaves_the_one_before(tmp_path, monkeypatch, call):
    save_checkpoint(tmp_path, state(1), {"step": 1}, 0)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(StorageFault):
        save_checkpoint(tmp_path, state(2), {"step": 2}, 0)
    monkeypatch.undo()
    assert load_newest(tmp_path)[1]["step"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state-a.safetensors"]
