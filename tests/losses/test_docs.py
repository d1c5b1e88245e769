"""docs/LOSSES.md says what is true: every loss has a row, every default and every test in it exists."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import surefoot as sf
from surefoot.losses.registry import LOSSES

ROOT = Path(__file__).parent.parent.parent
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    for line in (ROOT / "docs" / "LOSSES.md").read_text().splitlines()
    if re.match(r"\| `[a-z]", line)
]


def test_every_loss_has_a_row():
    named = [name for row in ROWS for name in re.findall(r"`([^`]+)`", row[0])]
    assert sorted(named) == sorted(LOSSES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_row(row):
    assert len(row) == 5
    call = ast.parse(row[1].strip("`"), mode="eval").body
    build = getattr(sf.losses, call.func.id)
    parameters = dict(inspect.signature(build).parameters)
    parameters.pop("reduction", None)
    required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    assert [arg.id for arg in call.args] == required
    for keyword in call.keywords:
        written = eval(compile(ast.Expression(keyword.value), "row", "eval"))
        assert written == parameters.pop(keyword.arg).default, keyword.arg
    assert set(parameters) == set(required), "a setting is not in the table"
    for test in re.findall(r"`([^`]+)`", row[4]):
        file, name = test.split("::")
        tree = ast.parse((ROOT / "tests" / "losses" / file).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, test
