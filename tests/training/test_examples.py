"""Pictures of the tail: those of the rows that the readings name, the same whenever they are made."""

import base64
import json

import numpy as np
import pytest

import surefoot as sf
from surefoot.data.prepare import prepare
from surefoot.data.sets import load_set
from surefoot.runs.records import ARRAYS, read_journal

SPEC = {
    "data": {"name": "digits", "train": 60, "test": 50},
    "model": {"name": "mlp", "widths": [8]},
    "rule": {"name": "sgd", "lr": 0.1},
    "stop": {"steps": 20, "batch": 20},
    "track": {"every": 5, "curvature": False},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return sf.train(SPEC, tmp_path_factory.mktemp("runs")).folder


def test_they_are_the_images_of_the_tail(folder):
    found = json.loads((folder / "examples.json").read_text())
    data = prepare(load_set("digits", None), train=60, test=50)
    assert found["shape"] == [8, 8, 1]
    for part, examples in (("train", data.train), ("test", data.test)):
        named = {str(row) for each in read_journal(folder / ARRAYS)[0] for row in each[f"{part}.tail"]["rows"]}
        assert set(found[part]) == named
        raw = data.raw(examples.take()[0])
        top = max(raw[int(row)].max() for row in named)
        for row, text in found[part].items():
            pixels = np.frombuffer(base64.b64decode(text), np.uint8).reshape(8, 8)
            np.testing.assert_allclose(pixels / 255, raw[int(row), 0] / top, atol=0.5 / 255 + 1e-9)


def test_the_tail_tells_what_was_said(folder):
    records = read_journal(folder / ARRAYS)[0]
    labels = prepare(load_set("digits", None), train=60, test=50).test.labels
    for each in records:
        heavy = each["test.tail"]
        assert heavy["labels"] == labels[heavy["rows"]].tolist()
        for margin, label, said in zip(heavy["margins"], heavy["labels"], heavy["predicted"], strict=True):
            assert (margin < 0) == (label != said)
        assert all(0 < sure <= 1 for sure in heavy["confidence"])


def test_data_that_are_no_images_have_none(tmp_path):
    random = np.random.default_rng(0)
    np.savez(
        tmp_path / "own.npz",
        x_train=random.normal(size=(40, 6)), y_train=np.arange(40) % 3,
        x_test=random.normal(size=(30, 6)), y_test=np.arange(30) % 3,
    )  # fmt: skip
    result = sf.train(SPEC | {"data": {"name": "arrays:own"}}, tmp_path / "runs", tmp_path)
    assert not (result.folder / "examples.json").exists()
    assert (result.folder / "result.json").exists()
