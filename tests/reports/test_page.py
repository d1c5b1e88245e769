"""The page: whatever the folder holds, it is built; text stays text; nothing comes from elsewhere."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

import surefoot
from surefoot.errors import BadInput
from surefoot.reports.page import PayloadCache, build, embedded, payload, policy
from surefoot.reports.page.payload import data_uri, png
from surefoot.runs.records import encode
from tests.reports.cases import HOSTILE, hostile_folder, write_run


class Reader(HTMLParser):
    """Elements, and the texts of scripts, as a browser's parser sees them."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.scripts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append([dict(attrs), ""])

    def handle_data(self, data):
        if self.tags[-1:] == ["script"] and self.cdata_elem:
            self.scripts[-1][1] += data


def read(text):
    found = Reader()
    found.feed(text)
    found.close()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hostile_folder(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def data(folder):
    return payload(folder)


def test_a_damaged_run_hides_no_other(data):
    found = {run["id"]: run for run in data["runs"]}
    assert {name: run["outcome"] for name, run in found.items()} == {
        **{f"{seed:016x}": "finished" for seed in range(3)},
        "sam": "diverged",
        "open": "unfinished",
        "plain": "finished",
        "torn": "unfinished",
        "harmed": "damaged",
        "nothing": "damaged",
        "evil": "finished",
        "mine": "tracked",
    }
    assert "line 9" in found["harmed"]["note"]
    assert found["harmed"]["readings"] == 8
    assert "spec.json" in found["nothing"]["note"]
    assert found["torn"]["readings"] == 19
    assert found["open"]["pace"] == pytest.approx(0.5)
    assert all(len(found[name]["frames"]) for name in ("sam", "open", "harmed"))


def test_the_data_is_strict_json_and_names_no_path(data, folder):
    text = json.dumps(data, allow_nan=False)
    assert json.loads(text) == data
    assert str(folder.parent) not in text


def test_numbers_are_those_of_the_journal(data):
    run = next(run for run in data["runs"] if run["id"] == "sam")
    assert run["curves"]["step"] == [round(1000 * place / 19) for place in range(20)]
    assert run["curves"]["threshold"] == 40.0
    assert run["final"]["test.ece"] == pytest.approx(run["curves"]["test.ece"][-1], rel=1e-3)


def test_hostile_text_is_never_markup(data, folder):
    text = build(folder, data=data)
    found = read(text)
    assert found.tags.count("script") == 3
    assert "img" not in found.tags
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    [script] = [body for attributes, body in found.scripts if attributes.get("id") == "data"]
    assert json.loads(script) == data
    assert not set("<>&\u2028\u2029") & set(script)
    assert any(run["method"] == HOSTILE for run in json.loads(script)["runs"])


def test_no_address_is_asked_for(folder, data):
    text = build(folder, data=data)
    found = read(text)
    assert not {"link", "iframe", "object", "embed", "base"} & set(found.tags)
    assert not [value for name, value in found.attributes if name in ("src", "href", "action", "data")]
    own = found.scripts[-1][1]
    assert not re.search(r"https?:|//[a-z]|innerHTML|insertAdjacent|document\.write|\beval\(|new Function", own)


@pytest.mark.parametrize("live", [False, True])
def test_the_policy_allows_our_scripts_alone(folder, data, live):
    text = build(folder, live=live, data=data)
    found = read(text)
    [stated] = [value for name, value in found.attributes if name == "content" and "default-src" in value]
    assert stated == policy(live)
    bodies = [body for attributes, body in found.scripts if "type" not in attributes]
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" for body in bodies}
    rules = dict(part.strip().split(" ", 1) for part in stated.split(";"))
    assert set(rules["script-src"].split()) == hashes
    assert rules["connect-src"] == ("'self'" if live else "'none'")
    assert rules["default-src"] == "'none'"
    assert f'data-live="{"yes" if live else "no"}"' in text


def test_embedded_text_reads_back():
    value = {"a<b>&": ["</script>", "<!--", "]]>", "\u2028\u2029", "\\u003c", None, 1.5]}
    text = embedded(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_the_same_folder_gives_the_same_bytes(folder):
    assert build(folder) == build(folder)


def test_a_shelf_reads_what_changed(tmp_path):
    write_run(tmp_path / "a")
    b = write_run(tmp_path / "b", outcome=None, readings=10)
    shelf = PayloadCache(tmp_path)
    assert shelf.payload() == payload(tmp_path)
    shutil.rmtree(b)
    write_run(b, outcome=None, readings=12)
    write_run(tmp_path / "c")
    assert shelf.payload() == payload(tmp_path)
    assert [run["readings"] for run in shelf.payload()["runs"]] == [20, 12, 20]


def test_studies_name_their_runs(tmp_path):
    from surefoot.studies.folder import StudyFolder
    from surefoot.studies.plan import DatasetIndex, make_plan
    from surefoot.studies.spec import study_of
    from tests.studies.cases import small

    plan = make_plan(study_of(small()), None, DatasetIndex(None))
    folder = StudyFolder(tmp_path / "small")
    folder.begin(plan, b"name = 'small'\n")
    write_run(folder.run(plan.runs[0].id))
    folder.note_failure(plan.runs[1].id, "Traceback\n  deep\nValueError: no\n")
    data = payload(tmp_path)
    assert [run["outcome"] for run in data["runs"]] == ["finished", "failed"] + ["waiting"] * 4
    assert [run["method"] for run in data["runs"]] == ["SGD"] * 3 + ["AdamW"] * 3
    assert data["runs"][1]["note"] == "ValueError: no"
    assert data["studies"] == {"small": "name = 'small'\n"}
    assert data["compared"][0]["label"] == "SGD"


def test_a_harmed_study_still_shows_its_runs(tmp_path):
    write_run(tmp_path / "runs" / "0123456789abcdef")
    (tmp_path / "study.json").write_text('{"schema": 1, "runs": [{}], "name": "x"}')
    assert [run["outcome"] for run in payload(tmp_path)["runs"]] == ["finished"]


def test_links_are_not_followed(tmp_path):
    write_run(tmp_path / "in" / "a")
    write_run(tmp_path / "out" / "secret")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    assert [run["id"] for run in payload(tmp_path / "in")["runs"]] == ["a"]


def test_many_runs_are_bounded(tmp_path):
    from surefoot.reports.page.payload import budget

    write_run(tmp_path / "a", readings=450)
    [run] = payload(tmp_path)["runs"]
    assert len(run["curves"]["step"]) == budget(1)[0]
    assert len(run["frames"]) == budget(1)[1]
    assert run["readings"] == 450
    for runs in (1, 10, 100, 1000):
        points, frames = budget(runs)
        assert points * runs <= 50_000
        assert 1 <= frames * runs <= 1_500 or frames == 1


def test_nothing_to_show_is_said(tmp_path):
    with pytest.raises(BadInput, match="no run in"):
        payload(tmp_path)
    with pytest.raises(BadInput, match="no folder"):
        payload(tmp_path / "none")


@pytest.mark.parametrize("shape", [(8, 8), (5, 7, 3)])
def test_pictures_are_read_by_another_library(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    assert np.array_equal(np.asarray(Image.open(BytesIO(png(pixels)))), pixels)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ([8, 8, 1], "AAAA"),
        ([8, 8, 2], "A" * 172),
        (None, "AA"),
        ([8, 8], "AA"),
        (["x", 1, 1], "AA"),
        ([float("inf"), 1, 1], "AA"),
        ([9999, 9999, 1], ""),
    ],
)
def test_pictures_that_do_not_fit_are_none(shape, text):
    assert data_uri(shape, text) is None


def test_the_root_writes_it_without_torch(tmp_path):
    write_run(tmp_path / "runs" / "a")
    code = (
        "import sys, surefoot as sf\n"
        f"sf.report({str(tmp_path / 'runs')!r}, {str(tmp_path / 'page.html')!r})\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert callable(surefoot.report)


def deep(levels):
    return '{"seed":1,"x":' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("examples.json", '{"shape":[8,8,1],"train":{"7":"\\ud800"}}'),
        ("examples.json", '{"shape":["Infinity",8,1],"train":{"7":"AAAA"}}'),
        ("examples.json", '{"shape":[[[8]],8,1],"train":{"7":"AAAA"}}'),
        *(("spec.json", deep(levels)) for levels in (200, 450, 475, 480, 485, 490, 900, 100_000)),
        *(("facts.json", deep(levels)) for levels in (200, 480)),
        ("spec.json", '{"seed":true,"rule":{"name":{"a":[]},"lr":1e999},"stop":{"steps":1' + "0" * 400 + "}}"),
        ("spec.json", '{"rule":{"name":"' + "x" * 500_000 + '"},"y":"' + "y" * 500_000 + '"}'),
        ("result.json", '{"outcome":"' + "x" * 500_000 + '","step":1e300,"final":{"test.ece":"Infinity"}}'),
        ("result.json", '{"outcome":"finished","step":1,"final":{"test.ece":1e308,"test.accuracy":1e308}}'),
        ("arrays.jsonl", "[" * 100_000),
        ("timings.jsonl", "[" * 100_000),
    ],
)
def test_a_hostile_file_costs_its_run_alone(tmp_path, name, text):
    write_run(tmp_path / "good", readings=3)
    (write_run(tmp_path / "hostile", readings=3) / name).write_text(text)
    text = embedded(payload(tmp_path))
    runs = {run["id"]: run for run in json.loads(text)["runs"]}
    assert runs["good"]["outcome"] == "finished"
    assert len(runs["good"]["frames"]) == 3
    assert "hostile" in runs
    assert len(text) < 100_000


def test_a_name_of_broken_letters_is_shown(tmp_path):
    write_run(tmp_path / "good", readings=3)
    os.rename(write_run(tmp_path / "x", readings=3), os.path.join(os.fsencode(tmp_path), b"x\xff\x1b[31m"))
    assert len(json.loads(embedded(payload(tmp_path)))["runs"]) == 2
    build(tmp_path).encode()


def test_huge_numbers_make_no_noise(tmp_path):
    place = write_run(tmp_path / "a", readings=3)
    lines = [{"step": step, "train.ece": (-1) ** step * 1.7e308, "sharpness": 1.7e308} for step in range(900)]
    (place / "journal.jsonl").write_bytes(b"".join(encode(line) for line in lines))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [run] = payload(tmp_path)["runs"]
    assert run["readings"] == 900
