"""How golden files are compared with what the code gives now; the rule stands in `test_golden`."""

import csv
import io
import json
import math
import re

import numpy as np

RTOL, ATOL = 1e-4, 1e-6  # on another machine than that of the golden files
_NUMBER = re.compile(r"(-?\d*\.?\d+(?:e[+-]\d+)?)")


class Comparison:
    """Compares by the table of renamed keys; ``exact`` where the same machine made both."""

    def __init__(self, renamed, exact):
        self._renamed, self._exact = renamed, exact

    def differences(self, golden, now, place=""):
        """Yields a sentence for every golden key that is missing, and every golden value that is another now."""
        if isinstance(golden, dict) and isinstance(now, dict):
            for key, value in golden.items():
                name = self._name(key, now)
                if name in now:
                    yield from self.differences(value, now[name], f"{place}.{name}")
                else:
                    yield f"{place}.{name} is missing"
        elif isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
            for index, (first, second) in enumerate(zip(golden, now, strict=True)):
                yield from self.differences(first, second, f"{place}[{index}]")
        elif not self._same(golden, now):
            yield f"{place} was {golden!r} and is {now!r}"

    def check(self, golden, now):
        """Fail with all differences."""
        found = list(self.differences(golden, now))
        assert not found, "\n".join(found[:20])

    def check_text(self, golden, now, read):
        """The same for texts that ``read`` makes plain values of; the same bytes if no key was added or renamed."""
        before, after = read(golden), read(now)
        self.check(before, after)
        if self._exact and keys(before) == keys(after):
            assert now == golden

    def check_tensors(self, golden, now):
        """Tensors by name; new ones are allowed."""
        for name, before in golden.items():
            after = now[self._name(name, now)]
            assert (after.dtype, after.shape) == (before.dtype, before.shape), name
            if self._exact:
                assert after.tobytes() == before.tobytes(), name
            else:
                np.testing.assert_allclose(after, before, rtol=RTOL, atol=1e-5, err_msg=name)

    def _name(self, key, now):
        """The new name of a key, or the old one where only that is there: old files are read as they are."""
        return key if key in now else self._renamed.get(key, key)

    def _same(self, golden, now):
        if isinstance(golden, str) and isinstance(now, str):
            return now in (golden, self._renamed.get(golden)) or (not self._exact and _same_words(golden, now))
        if self._exact or isinstance(golden, bool) or not _numbers(golden, now):
            return type(golden) is type(now) and golden == now
        return math.isclose(golden, now, rel_tol=RTOL, abs_tol=ATOL)


def keys(value):
    """The structure of plain values: all but the numbers and words."""
    if isinstance(value, dict):
        return {key: keys(item) for key, item in value.items()}
    return [keys(item) for item in value] if isinstance(value, list) else None


def records(text):
    """The lines of a journal without their checksums, which change with added keys."""
    found = [json.loads(line) for line in text.splitlines()]
    return [{key: value for key, value in each.items() if key != "crc"} for each in found]


def table(text):
    """The rows of a CSV file, by the names of the columns."""
    return list(csv.DictReader(io.StringIO(text)))


def lines(text):
    """The lines of a Markdown table as lists of cells."""
    return [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]


def _numbers(*values):
    return all(isinstance(each, int | float) for each in values)


def _same_words(golden, now):
    """Equal but for numbers, which may differ by one unit of the last decimal that is shown."""
    first, second = _NUMBER.split(golden), _NUMBER.split(now)
    if len(first) != len(second) or first[::2] != second[::2]:
        return False
    return all(
        math.isclose(float(a), float(b), rel_tol=RTOL, abs_tol=1.01 * _unit(a))
        for a, b in zip(first[1::2], second[1::2], strict=True)
    )


def _unit(number):
    digits, _, power = number.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
