"""The library's errors name arguments; the command line turns them into its flags, in one table."""

import ast
from pathlib import Path

import pytest

from surefoot.cli import _as_flags, invoke

from ..conftest import random_predictions

SOURCE = Path(__file__).parents[2] / "src" / "surefoot"

# Strings outside of cli/ that hold a flag all the same: (file, a part of the string, why).
REVIEWED = [
    ("training/run.py", "torchrun --nproc-per-node", "torchrun's own flag, and the only way to start ranks"),
    ("studies/show.py", "--retry-failed", "lines that the command prints while a study runs"),
    ("reports/page/", "--", "names of CSS variables"),
    ("reports/figures/", "--", "names of CSS variables"),
]


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield id(first.value)


def test_no_text_of_the_library_holds_a_flag():
    import re

    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        tree = ast.parse(path.read_text())
        skipped = set(docstrings(tree))
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)) or id(node) in skipped:
                continue
            reviewed = any(name.startswith(file) and part in node.value for file, part, _ in REVIEWED)
            if re.search(r"(?<![\w-])--[a-z]", node.value) and not name.startswith("cli/") and not reviewed:
                found.append(f"{name}:{node.lineno}: {node.value[:80]!r}")
    assert found == []


@pytest.mark.parametrize(
    ("error", "command", "shown"),
    [
        ("cifar10 needs a folder; give data=... or set SUREFOOT_DATA", "train", "give --data DIR or set SUREFOOT_DATA"),
        ("choose another folder by out=...", "study", "choose another folder by --out DIR"),
        ("go back, or say allow_version_mismatch=True", "train", "or say --allow-version-mismatch"),
        ("choose one by scale=...", "study", "choose one by --scale"),
        ("only='x' is in no label", "study", "--only 'x' is in no label"),
        ("port=80 is taken", "serve", "--port 80 is taken"),
        ("ray=...: no cluster", "study", "--ray: no cluster"),
        ("which must be one of a; got 'b'", "table", "--which must be one of a; got 'b'"),
        ("changes must be key=value; got 'x'", "train", "--set must be key=value; got 'x'"),
        ("choose split='val' or split='test'", "evaluate", "choose --split 'val' or --split 'test'"),
        ("choose split='val' or split='test'", "calibrate", "choose them by --val-split and --test-split"),
        ("make one with surefoot.study(spec, out=...)", "table", "make one with surefoot study STUDY.toml --out DIR"),
        ("a sentence of which nothing is an argument", "train", "a sentence of which nothing is an argument"),
    ],
)
def test_arguments_become_flags(error, command, shown):
    assert _as_flags(error, command).endswith(shown)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evaluate", "soft.csv"], "say --logits or --probs"),
        (["report", "empty", "-o", "p.html"], "runs are made by surefoot train SPEC.toml --out DIR"),
        (["table", "empty"], "make one with surefoot study STUDY.toml --out DIR"),
        (["train", "spec.toml", "--set", "x"], "--set must be key=value"),
        (["train", "spec.toml", "--set", "data=cifar10"], "cifar10 needs a folder of data; give --data DIR or set"),
        (["evaluate", "two.npz"], "choose --split 'test' or --split 'val'"),
        (["calibrate", "two.npz", "two.npz"], "choose them by --val-split and --test-split"),
    ],
)
def test_the_command_line_names_its_flags(arguments, says, tmp_path, monkeypatch, capsys):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUREFOOT_DATA", raising=False)
    (tmp_path / "empty").mkdir()
    (tmp_path / "soft.csv").write_text("label,cat,dog\n0,0.75,0.25\n")
    (tmp_path / "spec.toml").write_text('[optimizer]\nname = "gd"\nlr = 0.1\n[stop]\nsteps = 1\n')
    p = random_predictions(20, 3)
    np.savez("two.npz", val_logits=p.logits, val_labels=p.labels, test_logits=p.logits, test_labels=p.labels)
    assert invoke(arguments) == 2
    assert says in capsys.readouterr().err


def test_the_data_folder_of_the_environment(tmp_path, monkeypatch):
    import numpy as np

    import surefoot as sf
    from surefoot.errors import BadInput

    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 4)).astype(np.float32), np.arange(40) % 2
    np.savez(tmp_path / "tiny.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    spec = {
        "data": "arrays:tiny",
        "model": {"name": "mlp", "widths": [3]},
        "optimizer": {"name": "gd", "lr": 0.1},
        "stop": {"steps": 1},
        "track": {"every": 1, "curvature": False},
    }
    monkeypatch.delenv("SUREFOOT_DATA", raising=False)
    with pytest.raises(BadInput, match=r"give data=\.\.\. or set SUREFOOT_DATA"):
        sf.train(spec, tmp_path / "runs")
    monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path))
    assert sf.train(spec, tmp_path / "runs").outcome == "finished"
    study = {"name": "one", "base": spec, "seeds": [0]}
    assert sf.study(study, tmp_path / "study").outcome == "finished"
