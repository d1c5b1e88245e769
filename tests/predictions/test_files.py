"""Files round-trip, and hostile or damaged ones get one clear sentence."""

import io
import os
import stat
import zipfile

import numpy as np
import pytest
import torch

from surefoot import Predictions
from surefoot.errors import BadInput, StorageFault
from tests.conftest import random_predictions

SUFFIXES = [".npz", ".csv", ".parquet"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_round_trip_keeps_every_bit(tmp_path, suffix, kind):
    p = random_predictions(40, 3)
    if kind == "probs":
        p = Predictions.from_probs(p.probs, p.labels)
    p.save(tmp_path / f"p{suffix}")
    q = Predictions.load(tmp_path / f"p{suffix}")
    assert (q.labels == p.labels).all()
    assert (q.confidence == p.confidence).all()
    assert (q.log_probs == p.log_probs).all()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_minus_infinity_round_trips(tmp_path, suffix):
    p = Predictions([[0.0, -np.inf], [1.0, 2.0]], [0, 1])
    p.save(tmp_path / f"p{suffix}")
    assert (Predictions.load(tmp_path / f"p{suffix}").probs == p.probs).all()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_was_normalised_can_be_read_back(tmp_path, suffix):
    probs = torch.softmax(torch.tensor(random_predictions(40, 10).logits), 1).bfloat16()
    p = Predictions.from_probs(probs, np.zeros(40, int))
    p.save(tmp_path / f"p{suffix}")
    np.testing.assert_allclose(Predictions.load(tmp_path / f"p{suffix}").confidence, p.confidence, rtol=1e-14)


def test_splits_of_an_archive(tmp_path):
    path = tmp_path / "two.npz"
    a, b = random_predictions(10, 3, seed=1), random_predictions(12, 3, seed=2)
    np.savez(path, val_logits=a.logits, val_labels=a.labels, test_logits=b.logits, test_labels=b.labels)
    assert len(Predictions.load(path, split="test")) == 12
    with pytest.raises(BadInput, match="split='val'"):
        Predictions.load(path)
    with pytest.raises(BadInput, match="split='val'"):
        Predictions.load(path, split="train")


def test_compressed_fortran_and_half_arrays(tmp_path):
    logits = np.asfortranarray(np.random.default_rng(0).normal(size=(30, 4)).astype(np.float16))
    np.savez_compressed(tmp_path / "p.npz", logits=logits, labels=np.arange(30, dtype=np.uint8) % 4)
    assert (np.asarray(Predictions.load(tmp_path / "p.npz").logits) == logits).all()


def test_a_table_without_a_kind_is_asked_about(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("label,cat,dog\n0,0.75,0.25\n1,0.5,0.5\n")
    with pytest.raises(BadInput, match="probs"):
        Predictions.load(path)
    assert Predictions.load(path, kind="probs").confidence.tolist() == [0.75, 0.5]
    path.write_text('\ufefflabel, "cat", "dog"\r\n0,1.5,-2\r\n')
    assert Predictions.load(path, kind="logits").true_margin.tolist() == [3.5]
    with pytest.raises(BadInput, match="the names of the columns 'cat', 'dog' do not say"):
        Predictions.load(path)
    path.write_text("label,prob_cat,prob_dog\n0,0.75,0.25\n")
    assert Predictions.load(path).confidence.tolist() == [0.75]
    with pytest.raises(BadInput, match="says that it holds probs"):
        Predictions.load(path, kind="logits")
    with pytest.raises(BadInput, match="kind must be"):
        Predictions.load(path, kind="odds")


BAD_TABLES = {
    "empty": ("", "not a table|no column"),
    "header only": ("label,a,b\n", "at least one row"),
    "no label": ("a,b,c\n1,2,3\n", "'label'"),
    "semicolons": ("label;a;b\n0;1;2\n", "'label'"),
    "one class": ("label,a\n2,1\n", "one score a row goes with two labels"),
    "words": ("label,a,b\n0,1,x\n", "not a table of numbers"),
    "missing": ("label,a,b\n0,1,\n", "not a table of numbers"),
    "ragged": ("label,a,b\n0,1,2\n1,2\n", "line 3"),
    "short rows": ("label,a,b\n0,1\n1,2\n", "line 2: Expected 3 columns"),
    "fraction": ("label,a,b\n0,1,2\n0.5,1,2\n", "line 3.*integer"),
    "NaN label": ("label,a,b\nnan,1,2\n", "line 2.*integer"),
    "label out of range": ("label,a,b\n2,1,2\n", r"0\.\.1"),
    "NaN": ("label,a,b\n0,nan,2\n", "line 2 has NaN"),
    "columns out of order": ("label,logit_1,logit_0\n1,5,0\n", "in order"),
    "columns sorted as text": ("label,p0,p1,p10,p2\n0,1,2,3,4\n", "in order"),
    "columns counted from one": ("label,logit_1,logit_2\n1,5,0\n", "in order"),
    "numbers inside names": ("label,class 1 x,class 0 x\n1,5,0\n", "in order"),
    "a confidence": ("label,pred,confidence_of_it\n0,0,0.9\n", "do not say what the columns are"),
    "an index": ("label,a,b,Unnamed: 0\n0,1,2,3\n", "no name of its own"),
    "a trailing comma": ("label,a,b,\n0,1,2,3\n", "no name of its own"),
    "mixed kinds": ("label,prob_a,logit_b\n0,1,2\n", "all logits or all probabilities"),
    "repeated names": ("label,a,a\n0,1,2\n", "name of its own"),
    "rounded probabilities": ("label,a,b,c\n" + "0,0.3333,0.3333,0.3334\n0,0.12,0.48,0.4\n" * 3, "from_probs"),
}


def test_a_header_with_quoted_commas_and_a_wide_one(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text('label,"a,x",b\n0,1,2\n')
    p = Predictions.load(path, kind="logits")
    assert p.names == ("a,x", "b")
    wide = Predictions(np.random.default_rng(0).normal(size=(2, 120_000)), [0, 1])
    wide.save(path)
    assert Predictions.load(path).classes == 120_000


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables(tmp_path, case):
    text, says = BAD_TABLES[case]
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=says):
        Predictions.load(path, kind=None if "_" in text else "logits")


def npy(array, **changes):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=True)
    data = buffer.getvalue()
    for old, new in changes.values():
        assert old in data
        data = data.replace(old, new.ljust(len(old)))
    return data


def archive(path, members, compress=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compress) as file:
        for name, data in members.items():
            file.writestr(name, data)


LABELS = npy(np.zeros(4, np.int64))
SCORES = npy(np.random.default_rng(0).normal(size=(4, 3)))
BAD_ARCHIVES = {
    "pickled objects": ({"logits.npy": npy(np.array([[1, "x"]], object)), "labels.npy": LABELS}, "plain numbers"),
    "text": ({"logits.npy": npy(np.array([["a"]])), "labels.npy": LABELS}, "plain numbers"),
    "complex": ({"logits.npy": npy(np.ones((4, 3), complex)), "labels.npy": LABELS}, "plain numbers"),
    "both kinds": ({"logits.npy": SCORES, "probs.npy": SCORES, "labels.npy": LABELS}, "exactly one"),
    "no labels": ({"logits.npy": SCORES}, "must hold the arrays"),
    "nothing": ({}, "must hold the arrays"),
    "foreign names": ({"../../etc/passwd": b"x"}, "must hold the arrays"),
    "not an array": ({"logits.npy": b"hello", "labels.npy": LABELS}, "not a NumPy array"),
    "a truncated array": ({"logits.npy": SCORES[:-8], "labels.npy": LABELS}, "damaged"),
    "a trailing byte": ({"logits.npy": SCORES + b"x", "labels.npy": LABELS}, "does not fit"),
    "a huge claim": (
        {"logits.npy": npy(np.ones((4, 3)), a=(b"(4, 3), }      ", b"(9000000000, 3), }"[:15])), "labels.npy": LABELS},
        "not a NumPy array|damaged",
    ),
    "a negative shape": (
        {"logits.npy": npy(np.ones((4, 3)), a=(b"(4, 3)", b"(-4,3)")), "labels.npy": LABELS},
        "damaged",
    ),
    "code in the header": (
        {
            "logits.npy": npy(np.ones((4, 3)), a=(b"'fortran_order': False", b"'fortran_order':exit()")),
            "labels.npy": LABELS,
        },
        "not a NumPy array",
    ),
}


@pytest.mark.parametrize("case", BAD_ARCHIVES)
def test_bad_archives(tmp_path, case):
    members, says = BAD_ARCHIVES[case]
    archive(tmp_path / "p.npz", members)
    with pytest.raises(BadInput, match=says):
        Predictions.load(tmp_path / "p.npz")


@pytest.mark.parametrize("compress", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_under_any_compression(tmp_path, compress):
    path = tmp_path / "p.npz"
    archive(path, {"logits.npy": SCORES, "labels.npy": LABELS}, compress)
    assert len(Predictions.load(path)) == 4
    data = path.read_bytes()
    for at in range(30, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :])
        try:
            loaded = Predictions.load(path)
        except BadInput:
            continue
        assert loaded.labels.tolist() == [0, 0, 0, 0]


def test_a_long_header_is_not_read(tmp_path):
    path = tmp_path / "p.npz"
    bomb = b"\x93NUMPY\x02\x00" + (10**6).to_bytes(4, "little") + b" " * 10**6
    archive(path, {"logits.npy": bomb, "labels.npy": LABELS}, zipfile.ZIP_DEFLATED)
    with pytest.raises(BadInput, match="header is too long"):
        Predictions.load(path)


def test_two_arrays_of_one_name(tmp_path):
    path = tmp_path / "p.npz"
    archive(path, {"logits.npy": SCORES, "logits": SCORES, "labels.npy": LABELS})
    with pytest.raises(BadInput, match="same name"):
        Predictions.load(path)


@pytest.mark.parametrize("path", [None, 3, "x" * 300 + ".npz", "a\0b.npz"])
def test_paths_that_cannot_be(path):
    with pytest.raises(BadInput):
        Predictions.load(path)


def test_a_bomb_is_not_unpacked(tmp_path):
    """A small file that unpacks to a gigabyte of honest zeros is read only as far as deflate can explain."""
    path = tmp_path / "p.npz"
    header = npy(np.zeros((4, 3)), a=(b"(4, 3), }               ", b"(999999999999, 999), }"))
    archive(path, {"logits.npy": header, "labels.npy": LABELS}, zipfile.ZIP_DEFLATED)
    with pytest.raises(BadInput, match="claims shape"):
        Predictions.load(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_truncation_and_flip_is_an_error_or_the_same(tmp_path, suffix):
    p = random_predictions(6, 3)
    good = tmp_path / f"good{suffix}"
    p.save(good)
    data = good.read_bytes()
    bad = tmp_path / f"bad{suffix}"
    random = np.random.default_rng(0)
    steps = range(0, len(data), max(1, len(data) // 150))
    damaged = [data[:cut] for cut in steps]
    for at in random.integers(0, len(data), 150):
        flipped = bytearray(data)
        flipped[at] ^= 1 << random.integers(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        bad.write_bytes(content)
        said, loaded = "", None
        try:
            loaded = Predictions.load(bad)
        except BadInput as error:
            said = str(error)
        assert "\n" not in said
        # A table of text has no checksum; the others must notice.
        if loaded is not None and suffix != ".csv":
            assert (loaded.labels == p.labels).all()
            assert (loaded.log_probs == p.log_probs).all()


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".CSV"])
def test_foreign_files(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    path.write_bytes(os.urandom(3000))
    with pytest.raises(BadInput, match=r"p\.(npz|csv|parquet|CSV)"):
        Predictions.load(path)


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(BadInput, match="no file"):
        Predictions.load(tmp_path / "absent.npz")
    with pytest.raises(BadInput, match="folder"):
        Predictions.load(tmp_path)
    (tmp_path / "p.txt").write_text("x")
    with pytest.raises(BadInput, match=r"\.npz, \.csv, \.parquet"):
        Predictions.load(tmp_path / "p.txt")
    with pytest.raises(BadInput, match=r"written to"):
        random_predictions(3, 3).save(tmp_path / "p.pkl")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "p.npz"
    random_predictions(5, 3).save(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StorageFault, match="No space left"):
        random_predictions(50, 3).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["p.npz"]


def test_written_files_obey_the_umask(tmp_path):
    old = os.umask(0o022)
    try:
        random_predictions(5, 3).save(tmp_path / "p.npz")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "p.npz").stat().st_mode) == 0o644


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(StorageFault, match="cannot write"):
        random_predictions(5, 3).save(tmp_path / "no" / "p.npz")


def test_a_parquet_file_of_a_filtered_pandas_table(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {"label": [0, 1], "prob_0": [0.75, 0.25], "prob_1": [0.25, 0.75], "__index_level_0__": [3, 7]}
    parquet.write_table(pyarrow.table(table), tmp_path / "p.parquet")
    p = Predictions.load(tmp_path / "p.parquet")
    assert p.classes == 2
    assert p.confidence.tolist() == [0.75, 0.75]
    named = pyarrow.table({"label": [0, 1], "a": [1.0, 2.0], "b": [2.0, 1.0], "id": [5, 9]})
    named = named.replace_schema_metadata({"pandas": '{"index_columns": ["id"]}'})
    parquet.write_table(named, tmp_path / "p.parquet")
    assert Predictions.load(tmp_path / "p.parquet", kind="logits").classes == 2
    twice = pyarrow.Table.from_arrays([pyarrow.array([0])] * 3, names=["label", "a", "a"])
    parquet.write_table(twice, tmp_path / "p.parquet")
    with pytest.raises(BadInput, match="name of its own"):
        Predictions.load(tmp_path / "p.parquet")


def test_a_parquet_file_with_nulls_or_words(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"label": [0, 1], "a": [1.0, None], "b": [0.0, 1.0]}), tmp_path / "p.parquet")
    with pytest.raises(BadInput, match="missing values"):
        Predictions.load(tmp_path / "p.parquet", kind="logits")
    parquet.write_table(pyarrow.table({"label": [0, 1], "a": ["x", "y"], "b": [0.0, 1.0]}), tmp_path / "p.parquet")
    with pytest.raises(BadInput, match="must hold numbers"):
        Predictions.load(tmp_path / "p.parquet", kind="logits")
