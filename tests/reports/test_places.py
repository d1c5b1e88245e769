"""Where runs are found, whatever stands between them."""

import os

import pytest

from surefoot.reports.page import payload
from surefoot.reports.runs import places
from surefoot.runs.records import canonical
from tests.reports.cases import write_run


def study(folder, name, *ids):
    """A study that plans these runs."""
    folder.mkdir(parents=True)
    runs = [
        {
            "id": each,
            "label": f"SGD seed={place}",
            "shown": {"rule": "SGD"},
            "order": ["rule"],
            "seed": place,
            "steps": 9,
        }
        for place, each in enumerate(ids)
    ]
    (folder / "study.json").write_text(canonical({"schema": 1, "name": name, "entry_axes": ["rule"], "runs": runs}))
    return folder


@pytest.mark.parametrize("text", ["[" * 100_000, "", "{}", '{"schema":1,"runs":[1]}', "\x00"])
def test_a_harmed_study_hides_no_run(tmp_path, text):
    write_run(tmp_path / "a", readings=3)
    write_run(tmp_path / "s" / "runs" / "b", readings=3)
    (tmp_path / "s" / "study.json").write_text(text)
    assert [each.folder.name for each in places(tmp_path)] == ["a", "b"]


def test_a_folder_that_cannot_be_read_hides_no_run(tmp_path, monkeypatch):
    write_run(tmp_path / "a", readings=3)
    (tmp_path / "b").mkdir()
    listed = os.scandir

    def scandir(path):
        if os.fspath(path).endswith("b"):
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [each.folder.name for each in places(tmp_path)] == ["a"]


def test_runs_of_the_same_name_are_told_apart(tmp_path):
    for place in ("one/seed0", "two/seed0", "two/seed1"):
        (write_run(tmp_path / place, readings=3, outcome=None) / "spec.json").unlink()
    runs = payload(tmp_path)["runs"]
    assert [run["path"] for run in runs] == ["one/seed0", "two/seed0", "two/seed1"]
    assert [run["label"] for run in runs] == ["one/seed0", "two/seed0", "seed1"]
    assert len({run["method"] for run in runs}) == 3


def test_studies_of_the_same_name_are_told_apart(tmp_path):
    for place in ("one", "two"):
        write_run(study(tmp_path / place, "demo", "0" * 16, "1" * 16) / "runs" / ("0" * 16), readings=3)
    data = payload(tmp_path)
    assert [run["study"] for run in data["runs"]] == ["demo in one"] * 2 + ["demo in two"] * 2
    # A copy of a run is not another seed.
    assert [(entry["label"], entry["runs"]) for entry in data["compared"]] == [
        ("demo in one: SGD", 1),
        ("demo in two: SGD", 1),
    ]
    assert set(data["studies"]) == {"demo in one", "demo in two"}


def test_one_study_keeps_its_name(tmp_path):
    write_run(study(tmp_path / "one", "demo", "0" * 16) / "runs" / ("0" * 16), readings=3)
    data = payload(tmp_path / "one")
    assert (data["runs"][0]["study"], data["runs"][0]["path"]) == ("demo", f"runs/{'0' * 16}")
    assert data["compared"][0]["label"] == "SGD"
