"""``surefoot report`` and ``surefoot figures``."""

import json
from xml.etree import ElementTree

import pytest

import surefoot as sf
from surefoot.reports.figures import paper
from surefoot.reports.figures.paper import save_figures
from tests.conftest import surefoot
from tests.reports.cases import HOSTILE, hostile_folder, shift_numbers, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hostile_folder(tmp_path_factory.mktemp("hostile"))


def test_report_writes_one_page(folder, tmp_path):
    done = surefoot("report", folder, "-o", tmp_path / "page.html")
    assert done.exit_code == 0
    assert "page.html" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_report_prints_its_data(folder):
    done = surefoot("report", folder, "--json")
    assert len(json.loads(done.stdout)["runs"]) == 11
    assert done.stdout.isascii()
    assert done.stdout[:-1].isprintable()  # whatever the names hold, a terminal obeys none of it


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "{}", "-o", "page.txt"], "must end in .html"),
        (["report", "{}", "-o", "no/such/page.html"], "there is no folder"),
        (["report", "{}/none"], "there is no folder"),
        (["figures", "{}", "--style", "poster"], "must be paper"),
    ],
)
def test_bad_input_is_said(folder, words, said):
    done = surefoot(*(word.replace("{}", str(folder)) for word in words))
    assert done.exit_code == 2
    assert said in done.stderr


def test_figures_of_both_papers(tmp_path):
    folder = tmp_path / "runs"
    for place, rule in enumerate(("sgd", HOSTILE)):
        write_run(folder / str(place), rule, readings=8)
    done = surefoot("figures", folder, "-o", tmp_path / "figs", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    names = {path.name for path in (tmp_path / "figs").iterdir()}
    stems = (
        "morosini2026-figure-1",
        "morosini2026-figure-a1-portrait",
        "morosini2026-table-1-horizon",
        "tan2026-figure-1-confidence",
    )
    for stem in stems:
        assert {f"{stem}.{kind}" for kind in ("pdf", "svg", "png")} <= names
    assert "tan2026-figure-2-ascent" in found["skipped"]
    assert "[shift]" in found["skipped"]["shift"]
    assert all(name.replace("-", "").replace(".", "").isalnum() for name in names)


def test_figures_repeat_to_the_byte(tmp_path, monkeypatch):
    plan = paper._plan
    monkeypatch.setattr(paper, "_plan", lambda drawn: list(plan(drawn))[1:2])  # one of them: fonts take their time
    write_run(tmp_path / "run", frames=False, readings=8)
    for name in ("one", "two"):
        save_figures(tmp_path / "run", tmp_path / name)
    one = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert one == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    assert len(one) == 3


def test_figures_of_a_sweep_and_of_ascents(tmp_path, monkeypatch):
    plan = paper._plan
    some = ("tan2026-figure-2-ascent", "tan2026-figure-s5-sweeps")
    monkeypatch.setattr(paper, "_plan", lambda drawn: [each for each in plan(drawn) if each[0] in some])
    base = {
        "data": {"name": "digits", "train": 40, "test": 30},
        "model": {"name": "mlp", "widths": [4]},
        "optimizer": {"name": "sam", "base": {"name": "sgd", "lr": 0.1}},
        "stop": {"steps": 4},
        "track": {"every": 2, "curvature": False, "ascent": True},
    }
    radii = {"rho": {"key": "optimizer.rho", "values": [0.05, "1/10", 0.2]}}
    sf.study({"name": "radii", "base": base, "axes": radii, "seeds": [0]}, out=tmp_path / "radii", workers=1)
    written, _ = save_figures(tmp_path / "radii", tmp_path / "figs")
    assert sorted(path.name for path in written) == list(some)
    swept, climbed = ((tmp_path / "figs" / f"{name}.svg").read_text() for name in reversed(some))
    assert all(f"<!-- {text} -->" in swept for text in ("ρ", "0.05", "1/10", "1 seed"))
    assert "after a temperature" not in swept  # without validation data
    assert all(f"<!-- {text} -->" in climbed for text in ("(a)", "(b)", "(c)", "sam, ρ = 0.05, seed 0"))
    assert "allowed" in climbed


ODD = ["$\\frac{$", "\x00\x07\x1b[31m\u202e", "λ", "μ", "\ud800", "a & b <c>"]


def test_figures_of_odd_names(tmp_path, monkeypatch):
    plan = paper._plan
    some = ("morosini2026-figure-a1-portrait", "tan2026-figure-1-confidence", "tan2026-figure-3-temperature")
    monkeypatch.setattr(paper, "_plan", lambda drawn: [each for each in plan(drawn) if each[0] in some])
    for place, rule in enumerate(ODD):
        text = write_run(tmp_path / "runs" / str(place), "odd", readings=3) / "spec.json"
        text.write_text(text.read_text().replace('"odd"', json.dumps(rule)))
    written, _ = save_figures(tmp_path / "runs", tmp_path / "figs")
    assert [path.name for path in written] == list(some)
    for path in written:
        ElementTree.parse(path.with_suffix(".svg"))


@pytest.mark.parametrize("older", [False, True])
def test_figure_of_shift(tmp_path, monkeypatch, older):
    plan = paper._plan
    monkeypatch.setattr(paper, "_plan", lambda drawn: [each for each in plan(drawn) if each[0] == "shift"])
    for seed in (0, 1):
        numbers = shift_numbers(seed, ["motion_blur", *(name.replace(".", "") for name in ODD[:4])])
        kept = {name: value for name, value in numbers.items() if not older or ".severity" not in name}
        write_run(tmp_path / "runs" / str(seed), "$\\frac{$", seed=seed, readings=3, shift=kept)
    written, skipped = save_figures(tmp_path / "runs", tmp_path / "figs")
    assert (written, skipped) == ([tmp_path / "figs" / "shift"], {})
    text = "".join(ElementTree.parse(tmp_path / "figs" / "shift.svg").getroot().itertext())
    comments = (tmp_path / "figs" / "shift.svg").read_text()
    assert "motion blur" in comments + text  # what is drawn as outlines is said in a comment
    assert ("severity" in comments + text) == (not older)
    assert ("after the temperature" in comments + text) == (not older)
    assert "mean over 2 seeds" in comments + text


def test_a_figure_says_what_it_leaves_out(tmp_path, monkeypatch):
    plan = paper._plan
    monkeypatch.setattr(paper, "_plan", lambda drawn: list(plan(drawn))[:1])
    for place in range(9):
        write_run(tmp_path / "runs" / str(place), f"rule{place}", readings=3, frames=False)
    save_figures(tmp_path / "runs", tmp_path / "figs")
    assert "the first 8 of 9" in (tmp_path / "figs" / "morosini2026-figure-1.svg").read_text()


def test_what_was_read_once_is_drawn_under_shift_and_nowhere_else(tmp_path):
    write_run(tmp_path / "runs" / "ensemble", readings=1, shift=shift_numbers(0))
    written, skipped = save_figures(tmp_path / "runs", tmp_path / "figs")
    assert [path.name for path in written] == ["shift"]
    assert "read once" in skipped["morosini2026-figure-1"]
    assert "read once" in skipped["tan2026-figure-3-temperature"]


def test_methods_have_files_of_their_own():
    assert paper._stems(["SGD", "sgd!", "λ", "μ", "sgd"]) == ["sgd", "sgd-2", "method", "method-2", "sgd-3"]
