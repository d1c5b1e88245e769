"""Predictions of every kind from every source, written and read back."""

import gzip
import io
import json
import sys

import numpy as np
import pandas
import pyarrow
import pytest
from pyarrow import feather

from surefoot import Predictions
from surefoot.errors import BadInput

RANDOM = np.random.default_rng(0)
PROBS = RANDOM.dirichlet(np.ones(3), 30)
LABELS = RANDOM.integers(0, 3, 30)
NAMES = ["cat", "dog", "eel"]
P1 = PROBS[:, 0]
YES = np.where(LABELS == 0, "yes", "no")

KINDS = {
    "classes": lambda: Predictions.from_probs(PROBS, LABELS),
    "named classes": lambda: Predictions(np.log(PROBS), LABELS, names=NAMES),
    "weights and clusters": lambda: Predictions(
        np.log(PROBS), LABELS, weights=RANDOM.uniform(size=30), clusters=LABELS, groups={"site": YES, "age": LABELS}
    ),
    "one probability": lambda: Predictions.from_probs(P1, LABELS == 0),
    "one probability, named": lambda: Predictions.from_probs(P1, YES, positive="yes"),
    "one logit": lambda: Predictions(np.log(P1 / (1 - P1)), LABELS == 0),
    "a confidence": lambda: Predictions.from_confidence(P1, LABELS == 0),
    "several labels": lambda: Predictions.multilabel(PROBS, LABELS[:, None] == np.arange(3), names=["x", "b", "a"]),
    "missing labels": lambda: Predictions.multilabel(
        PROBS, np.where(PROBS < [0, 0.2, 0.2], -1, LABELS[:, None] == np.arange(3))
    ),
}


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet", ".feather"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_reads_back_the_same(tmp_path, suffix, kind):
    p = KINDS[kind]()
    p.save(tmp_path / f"p{suffix}")
    q = Predictions.load(tmp_path / f"p{suffix}")
    assert (q.form, q.classes, q.names, q.missing) == (p.form, p.classes, p.names, p.missing)
    np.testing.assert_array_equal(q.labels, p.labels)
    np.testing.assert_allclose(q.events().prob, p.events().prob, rtol=1e-15)
    np.testing.assert_array_equal(q.events().happened, p.events().happened)
    for column in ("weights", "clusters"):
        np.testing.assert_array_equal(getattr(q, column), getattr(p, column))
    for name in p.groups:
        np.testing.assert_array_equal(q.groups[name], p.groups[name])


def rows():
    return {"label": [NAMES[label] for label in LABELS], **{f"prob_{n}": PROBS[:, i] for i, n in enumerate(NAMES)}}


EXPECTED = Predictions.from_probs(PROBS, LABELS, names=NAMES)


def same(p):
    assert p.names == ("cat", "dog", "eel")
    np.testing.assert_array_equal(p.labels, LABELS)
    np.testing.assert_allclose(p.probs, EXPECTED.probs, rtol=1e-15)


def test_frames():
    same(Predictions.load(pandas.DataFrame(rows())))
    same(Predictions.load(pandas.DataFrame(rows(), index=np.arange(30) + 5)))
    same(Predictions.load(pyarrow.table({k: list(v) for k, v in rows().items()})))
    same(Predictions.load(rows()))
    lists = {"y": LABELS, "p": list(PROBS)}
    assert Predictions.load(pandas.DataFrame(lists), label="y", prob="p").classes == 3


def test_text_formats(tmp_path):
    frame = pandas.DataFrame(rows())
    frame.to_json(tmp_path / "p.jsonl", orient="records", lines=True, double_precision=15)
    frame.to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress((tmp_path / "p.csv").read_bytes()))
    codec = pyarrow.Codec("zstd")
    (tmp_path / "p.csv.zst").write_bytes(codec.compress((tmp_path / "p.csv").read_bytes(), asbytes=True))
    feather.write_feather(pyarrow.Table.from_pandas(frame), tmp_path / "p.feather")
    for name in ("p.csv", "p.csv.gz", "p.csv.zst", "p.feather"):
        same(Predictions.load(tmp_path / name))
    assert Predictions.load(tmp_path / "p.jsonl").labels.tolist() == LABELS.tolist()


def test_parts(tmp_path):
    for part in range(3):
        table = pandas.DataFrame(rows()).iloc[part * 10 : part * 10 + 10]
        table.to_parquet(tmp_path / f"part-{part}.parquet", index=False)
    same(Predictions.load(tmp_path))
    same(Predictions.load(str(tmp_path / "part-*.parquet")))
    pandas.DataFrame({"label": [0], "prob": [0.5]}).to_parquet(tmp_path / "part-9.parquet")
    with pytest.raises(BadInput, match="same columns in the same order"):
        Predictions.load(tmp_path)
    with pytest.raises(BadInput, match="no file matches"):
        Predictions.load(str(tmp_path / "*.csv"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="folder without files of predictions"):
        Predictions.load(tmp_path / "empty")


def test_standard_input(monkeypatch):
    text = pandas.DataFrame(rows()).to_csv(index=False).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    same(Predictions.load("-"))


def test_columns_by_name(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("truth,score,w,patient,country\nyes,.9,2,a,fr\nno,.2,1,a,de\nyes,.6,1,b,fr\n")
    p = Predictions.load(
        path, label="truth", prob="score", positive="yes", weight="w", cluster="patient", by=["country"]
    )
    assert p.events().prob.tolist() == [0.9, 0.2, 0.6]
    assert p.events().happened.tolist() == [True, False, True]
    assert p.weights.tolist() == [2, 1, 1]
    assert p.clusters.tolist() == [0, 0, 1]
    assert p.groups["country"].tolist() == ["fr", "de", "fr"]
    with pytest.raises(BadInput, match="has no column 'land' for by="):
        Predictions.load(path, label="truth", prob="score", by=["land"])
    with pytest.raises(BadInput, match="which one is the positive event: positive='no' or positive='yes'"):
        Predictions.load(path, label="truth", prob="score")
    with pytest.raises(BadInput, match="has no column 'label'; say which one holds the labels with label="):
        Predictions.load(path, prob="score")
    with pytest.raises(BadInput, match="has no column that is 'p_' or begins with it for prob="):
        Predictions.load(path, label="truth", prob="p_")


def test_a_prediction_beside_a_confidence_is_asked_about(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("label,pred,confidence\n0,0,.9\n1,0,.8\n")
    with pytest.raises(BadInput, match=r"'pred', 'confidence' do not say .* confidence=... and correct=..."):
        Predictions.load(path)
    path.write_text("label,correct,confidence\n0,1,.9\n1,0,.8\n")
    assert Predictions.load(path).form == "confidence"


def test_labels_that_are_missing(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("label,prob_a,prob_b\na,.9,.1\n\nfox,.8,.2\n")
    with pytest.raises(BadInput, match="line 4 has 'fox'"):
        Predictions.load(path)
    table = pyarrow.table({"label": pyarrow.array([0, None]), "prob": [0.5, 0.25]})
    with pytest.raises(BadInput, match="column 'label' has missing values"):
        Predictions.load(table)


def test_several_labels_by_their_columns(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("label_a,label_b,prob_a,prob_b\n1,0,.9,.3\n,1,.2,.6\n")
    p = Predictions.load(path)
    assert p.form == "multilabel"
    assert p.missing == 1
    assert p.groups["label"].tolist() == ["a", "b", "b"]
    path.write_text("label_b,label_a,prob_a,prob_b\n1,0,.9,.3\n")
    with pytest.raises(BadInput, match="same labels in the same order"):
        Predictions.load(path)


def test_memory_is_not_called_damage(tmp_path, monkeypatch):
    path = tmp_path / "p.parquet"
    EXPECTED.save(path)

    def full(*_args, **_options):
        raise MemoryError

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read", full)
    with pytest.raises(BadInput, match="not enough memory to read"):
        Predictions.load(path)


def test_a_bomb_of_text_is_not_unpacked(tmp_path):
    path = tmp_path / "p.csv.zst"
    path.write_bytes(pyarrow.Codec("zstd").compress(b"0" * (1 << 27), asbytes=True))
    with pytest.raises(BadInput, match="more than its size explains"):
        Predictions.load(path)


def test_json_lines_of_names(tmp_path):
    lines = [{"label": int(label), "prob": float(p)} for label, p in zip(LABELS == 0, P1, strict=True)]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    np.testing.assert_array_equal(Predictions.load(tmp_path / "p.jsonl").events().prob, P1)


def test_the_event_is_the_class_that_the_column_names(tmp_path):
    p = Predictions.from_probs([0.2, 0.7, 0.1], [1, 0, 1], positive=0)
    for suffix in (".csv", ".parquet", ".npz"):
        p.save(tmp_path / f"p{suffix}")
        q = Predictions.load(tmp_path / f"p{suffix}")
        assert q.events().happened.tolist() == p.events().happened.tolist() == [False, True, False]


def test_integers_beside_classes_with_integer_names_are_names(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("label,prob_1,prob_2,prob_other\n1,.7,.2,.1\n2,.2,.7,.1\n1,.8,.1,.1\n")
    assert Predictions.load(path).labels.tolist() == [0, 1, 0]
    assert Predictions.from_probs([[0.7, 0.3]], [1], names=[1, 2]).labels.tolist() == [0]
    assert Predictions.from_probs([[0.7, 0.3]], [True], names=[True, False]).labels.tolist() == [0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('label,prob_a,prob_b,note\na,.7,.3,"x\nb,.2,.8,z\n', "a quote that is not closed"),
        ("label,logit,logit_scaled\n0,1,2\n1,2,3\n", "column 'logit' names no class"),
        ("label,prob,cluster\n1,.5,a\n0,.5,\n", "line 3: column 'cluster' has missing values"),
        ("label,prob\n,.5\nyes,.5\n", "column 'label' has missing values"),
        ("label_a,label_b,prob_a,prob_b\nyes,0,.5,.5\n", "must hold 1, 0 or nothing"),
    ],
)
def test_tables_that_would_be_misread_are_refused(tmp_path, text, says):
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=says):
        Predictions.load(path)
    if "quote" in says:
        with pytest.raises(BadInput, match=says):
            list(Predictions.batches(path))


def test_a_letter_is_no_prefix_of_a_word(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("label,l0,l1,length\n0,1.5,0,3\n1,-1,2,4\n")
    p = Predictions.load(path, logit="l")
    assert p.classes == 2
    assert "length" in p.groups


def test_arrays_by_the_names_of_columns(tmp_path):
    np.savez(tmp_path / "p.npz", probs=PROBS, labels=LABELS, sample_weight=np.arange(1, 31), cluster=LABELS)
    p = Predictions.load(tmp_path / "p.npz")
    assert p.weights.tolist() == list(range(1, 31))
    assert p.clusters is not None


def test_soft_labels_go_to_archives_only(tmp_path):
    p = Predictions.from_probs(PROBS, PROBS)
    p.save(tmp_path / "p.npz")
    np.testing.assert_array_equal(Predictions.load(tmp_path / "p.npz").soft_labels, p.soft_labels)
    with pytest.raises(BadInput, match="npz files only"):
        p.save(tmp_path / "p.csv")
