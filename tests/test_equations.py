"""docs/EQUATIONS.md says what is true: every function exists, every test exists and can be collected."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLES = (ROOT / "docs" / "EQUATIONS.md").read_text().partition("\n## References\n")[0]
ROWS = [
    (paper.partition("\n")[0], *(cell.strip() for cell in line.strip().strip("|").split("|")))
    for paper in TABLES.split("\n## ")[1:]
    for line in paper.splitlines()
    if line.startswith("| ") and not line.startswith("| where |")
]


def resolve(dotted: str) -> object:
    """The object behind a dotted name: the longest prefix that is a module, then attributes."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise AssertionError(dotted)


def test_the_tables_are_there():
    assert {row[0] for row in ROWS} == {"Morosini et al. (2026)", "Tan et al. (2026)"}
    assert len(ROWS) >= 40
    assert all(len(row) == 6 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_row(row):
    functions = re.findall(r"`([^`]+)`", row[3])
    tests = re.findall(r"`([^`]+)`", row[4])
    assert functions
    assert tests
    for function in functions:
        assert resolve(function)
    for test in tests:
        file, name = test.split("::")
        names = {
            node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)
        }
        assert name in names, test
        assert name.startswith("test_")
