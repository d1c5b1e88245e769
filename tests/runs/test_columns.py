"""The quick reader of journals reads what the careful one does, harmed or not."""

import math
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import BadInput
from surefoot.runs.columns import read_columns
from surefoot.runs.records import encode, read_journal

numbers = st.floats(allow_nan=True) | st.integers(-(2**53), 2**53)
records = st.lists(
    st.dictionaries(st.sampled_from(["a", "batch", "crc2", "train.ece", "z"]), numbers | st.booleans(), max_size=4),
    max_size=6,
)


def same(path):
    """The columns, checked against the records."""
    expected, _ = read_journal(path)
    found = read_columns(path)
    assert len(found) == len(expected)
    for place, record in enumerate(expected):
        for name, value in record.items():
            if not isinstance(value, str):
                assert np.array_equal(found.numbers[name][place], float(value), equal_nan=True)
        for name, column in found.numbers.items():
            assert name in record or math.isnan(column[place])
    return found


@given(records)
@settings(max_examples=60)
def test_as_the_careful_reader(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    path.write_bytes(b"".join(encode({"step": place, **row}) for place, row in enumerate(rows)))
    assert same(path).corrupted is None


@pytest.mark.parametrize("cut", range(1, 60, 4))
def test_a_torn_tail(tmp_path, cut):
    path = tmp_path / "journal.jsonl"
    whole = b"".join(encode({"step": place, "train.ece": place / 7}) for place in range(4))
    path.write_bytes(whole[:-cut])
    found = same(path)
    complete = whole[:-cut].count(b"\n")
    assert found.corrupted == (None if whole[:-cut].endswith(b"\n") else complete + 1)


def test_every_flipped_bit_is_seen(tmp_path):
    path = tmp_path / "journal.jsonl"
    lines = [encode({"batch_sharpness": 2.5, "step": place, "train.ece": 0.25}) for place in range(3)]
    for place in range(len(lines[1])):
        harmed = bytearray(lines[1])
        harmed[place] ^= 4
        path.write_bytes(lines[0] + bytes(harmed) + lines[2])
        assert same(path).corrupted == 2


def test_words_and_nothing(tmp_path):
    path = tmp_path / "journal.jsonl"
    assert len(read_columns(path)) == 0
    path.write_bytes(encode({"step": 1, "train.regime": "overlap"}) + encode({"step": 2, "train.regime": "other"}))
    found = read_columns(path)
    assert found.words == {"train.regime": "other"}
    assert found.numbers["step"].tolist() == [1, 2]


def test_a_record_without_a_step_ends_it(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(encode({"step": 1}) + encode({"ece": 2.0}) + encode({"step": 3}))
    found = read_columns(path)
    assert found.numbers["step"].tolist() == [1]
    assert found.corrupted == 2


def line(body):
    """A line that carries the right checksum of whatever it says."""
    return b'{"crc":"%08x",%b\n' % (zlib.crc32(body), body[1:])


@pytest.mark.parametrize("step", [b"NaN", b"1e999", b"1.5", b"true", b"-1", b"9" * 400, b'"NaN"', b"[1]", b"null"])
def test_a_step_that_is_no_step_is_harm(tmp_path, step):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(
        encode({"step": 0, "d": 0.1}) + line(b'{"d":0.1,"step":%b}' % step) + encode({"step": 2, "d": 0.1})
    )
    found = read_columns(path)
    assert (len(found), found.corrupted) == (1, 2)


@pytest.mark.parametrize("value", [[0.1, 0.2], [[1.0]], {"a": 1}, "word"])
def test_what_is_no_number_is_no_column(tmp_path, value):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(encode({"step": step, "a": value, "b": 1.0}) for step in range(3)))
    found = read_columns(path)
    assert set(found.numbers) == {"step", "b"}
    assert found.words == ({"a": "word"} if value == "word" else {})


def test_a_file_of_holes_is_not_read(tmp_path):
    path = tmp_path / "journal.jsonl"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(BadInput, match="bytes, too many"):
        read_columns(path)
