"""Histograms and tails from strangers: what is not as it should be is left out, and the rest stays."""

import copy
import math

import pytest

from surefoot.reports.runs import sound_frame
from tests.reports.cases import frame

GOOD = frame(500, 1000, 0)
HISTOGRAMS = ("margin_histogram", "confidence_histogram", "reliability")


def harmed(name, *keys, value):
    found = copy.deepcopy(GOOD)
    *way, last = (f"test.{name}", *keys)
    place = found
    for key in way:
        place = place[key]
    place[last] = value
    return found


def test_a_good_frame_is_kept_as_it_is():
    assert str(sound_frame(GOOD)) == str(GOOD)  # as text: an empty bin is NaN


def test_what_else_is_there_is_left_out():
    assert str(sound_frame({**GOOD, "junk": list(range(1000)), "test.more": {}})) == str(GOOD)


@pytest.mark.parametrize(
    ("name", "keys", "value"),
    [
        *((name, (), value) for name in HISTOGRAMS for value in (None, "x", [], {}, [{}], list(range(1000)))),
        ("margin_histogram", ("low",), math.inf),
        ("margin_histogram", ("low",), 1e9),
        ("margin_histogram", ("high",), "x"),
        ("margin_histogram", ("counts",), [-1]),
        ("confidence_histogram", (0,), 10**400),
        ("confidence_histogram", (0,), True),
        ("reliability", ("count",), [1]),
        ("reliability", ("accuracy",), None),
        ("reliability", ("accuracy", 14), math.nan),
        ("reliability", ("confidence", 14), 2.0),
    ],
)
def test_harmed_histograms_go_together(name, keys, value):
    found = sound_frame(harmed(name, *keys, value=value))
    assert [each for each in found if each.startswith("test.")] == ["test.tail"]
    assert all(f"train.{each}" in found for each in HISTOGRAMS)


@pytest.mark.parametrize(
    ("keys", "value"),
    [((), 1), ((), {}), (("rows",), [1]), (("rows", 0), {"a": 1}), (("shares", 0), math.nan), (("labels",), "abc")],
)
def test_a_harmed_tail_goes_alone(keys, value):
    found = sound_frame(harmed("tail", *keys, value=value))
    assert "test.tail" not in found
    assert all(f"test.{each}" in found for each in HISTOGRAMS)
