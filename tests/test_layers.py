"""Imports point down the list of layers in docs/MAP.md, or along one line of it without a cycle."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "surefoot"
# Public names and old ones resolve through the root; it stands above all layers, and nothing may import it.
ABOVE = {"__init__", "__main__"}


def layers(text):
    """Package or module name → number of its line, of the block ``layers`` of a page."""
    (block,) = re.findall(r"```layers\n(.*?)```", text, re.DOTALL)
    lines = (line.split() for line in block.splitlines())
    return {name: int(number) for number, *names in lines for name in names}


def imports(path):
    """The names below ``surefoot`` that a file imports, anywhere in it: (line, name)."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "surefoot":
            names = [node.module.split(".")[1]] if "." in node.module else [each.name for each in node.names]
        elif isinstance(node, ast.Import):
            names = [each.name.split(".")[1] for each in node.names if each.name.startswith("surefoot.")]
        else:
            continue
        yield from ((node.lineno, name) for name in names)


def violations(layer, graph):
    """Imports that point up, and cycles along a line; ``graph``: importer → imported → a place in the code."""
    found = [
        f"{place} imports {imported} (layer {layer[imported]}) from {importer} (layer {layer[importer]})"
        for importer, targets in graph.items()
        for imported, place in targets.items()
        if layer[imported] > layer[importer]
    ]
    for number in sorted(set(layer.values())):
        line = {a: [b for b in targets if layer[b] == number] for a, targets in graph.items() if layer[a] == number}
        try:
            TopologicalSorter(line).prepare()
        except CycleError as error:
            found.append(f"layer {number} has the cycle {' -> '.join(error.args[1])}")
    return found


def graph_of(source):
    """What each package and module of the first level imports of the others."""
    graph = {}
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).parts[0].removesuffix(".py")
        for line, imported in imports(path):
            if imported not in (name, "__version__") and name not in ABOVE:
                graph.setdefault(name, {}).setdefault(imported, f"{path.relative_to(source)}:{line}")
    return graph


def test_imports_point_down():
    layer = layers((ROOT / "docs" / "MAP.md").read_text())
    there = {
        path.name.removesuffix(".py")
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert set(layer) == there - ABOVE
    assert violations(layer, graph_of(SOURCE)) == []


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        ({"low": {"high": "low.py:3"}}, "low.py:3 imports high"),
        ({"one": {"two": "one.py:1"}, "two": {"one": "two.py:1"}}, "layer 1 has the cycle"),
    ],
)
def test_an_upward_import_and_a_cycle_are_seen(graph, text):
    (found,) = violations({"low": 0, "one": 1, "two": 1, "high": 2}, graph)
    assert found.startswith(text)
