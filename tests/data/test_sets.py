"""Data sets from small files of the official formats, and hostile pickles."""

import gzip
import io
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from sklearn.datasets import load_digits

from surefoot.data.registry import DATASETS
from surefoot.data.sets import load_set
from surefoot.errors import BadInput

random = np.random.default_rng(0)


def batch(n, classes, key="labels"):
    return {
        b"data": random.integers(0, 256, (n, 3072), dtype=np.uint8),
        key.encode(): [int(label) for label in random.integers(0, classes, n)],
    }


def write_cifar10(folder):
    folder.mkdir(parents=True)
    batches = [batch(4, 10) for _ in range(6)]
    for name, each in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], batches, strict=True):
        (folder / name).write_bytes(pickle.dumps(each, protocol=2))
    return batches


def test_digits_are_those_of_scikit_learn():
    images, labels = load_digits(return_X_y=True)
    found = load_set("digits", None)
    order = np.random.default_rng(0).permutation(1797)
    np.testing.assert_array_equal(np.concatenate([found.x_train, found.x_test]).reshape(1797, 64), images[order])
    np.testing.assert_array_equal(np.concatenate([found.y_train, found.y_test]), labels[order])


def test_cifar10_from_folder_and_archive(tmp_path):
    batches = write_cifar10(tmp_path / "cifar-10-batches-py")
    found = load_set("cifar10", tmp_path)
    assert found.x_train.shape == (20, 32, 32, 3)
    assert found.y_train[:4].tolist() == batches[0][b"labels"]
    # Rows hold the red plane, then green, then blue, each by rows of pixels.
    assert found.x_train[0, 0, 1, 2] == batches[0][b"data"][0, 2 * 1024 + 1]
    other = tmp_path / "other"
    other.mkdir()
    with tarfile.open(other / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    assert load_set("cifar10", other).digest() == found.digest()


def test_cifar100(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps(batch(150, 100, "fine_labels"), protocol=2))
    assert load_set("cifar100", tmp_path).x_test.shape == (150, 32, 32, 3)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx(tmp_path, name):
    (tmp_path / name).mkdir()
    for part, n in (("train", 12), ("t10k", 5)):
        images = random.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        labels = np.arange(n, dtype=np.uint8) % 10
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            (tmp_path / name / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))
    found = load_set(name, tmp_path)
    assert found.x_train.shape == (12, 28, 28, 1)
    torn = tmp_path / name / "train-images-idx3-ubyte.gz"
    torn.write_bytes(gzip.compress(gzip.decompress(torn.read_bytes())[:-1]))
    with pytest.raises(BadInput, match="says it holds"):
        load_set(name, tmp_path)


def test_svhn(tmp_path):
    (tmp_path / "svhn").mkdir()
    for part in ("train", "test"):
        images = random.integers(0, 256, (32, 32, 3, 7), dtype=np.uint8)
        savemat(tmp_path / "svhn" / f"{part}_32x32.mat", {"X": images, "y": np.array([[10, 1, 2, 3, 4, 5, 6]]).T})
    found = load_set("svhn", tmp_path)
    assert found.x_train.shape == (7, 32, 32, 3)
    assert found.y_train.tolist() == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("name", "size"), [("tiny-imagenet", 64), ("imagenet", 224)])
def test_folders(tmp_path, name, size):
    for part in ("train", "val"):
        for label in ("n01", "n02"):
            (tmp_path / name / part / label).mkdir(parents=True)
            picture = Image.fromarray(random.integers(0, 256, (70, 90, 3), dtype=np.uint8))
            picture.save(tmp_path / name / part / label / "a.png")
    found = load_set(name, tmp_path)
    assert found.x_train.shape == (2, size, size, 3)
    assert found.y_test.tolist() == [0, 1]


def test_corrupted(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-py")
    (tmp_path / "CIFAR-10-C").mkdir()
    for name in ("fog", "snow"):
        np.save(tmp_path / "CIFAR-10-C" / f"{name}.npy", random.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8))
    np.save(tmp_path / "CIFAR-10-C" / "labels.npy", np.arange(10, dtype=np.uint8))
    found = load_set("cifar10-c", tmp_path)
    assert found.x_test.shape == (20, 32, 32, 3)
    assert found.y_test.tolist() == [*range(10), *range(10)]


def test_arrays_of_the_user(tmp_path):
    x, y = random.standard_normal((30, 5)), np.arange(30) % 3
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert load_set("arrays:mine", tmp_path).classes == 3
    for name, match in (("arrays:other", "no other.npz"), ("arrays:../mine", "not a path"), ("arrays:", "not a path")):
        with pytest.raises(BadInput, match=match):
            load_set(name, tmp_path)
    x[3, 1] = np.nan
    np.savez(tmp_path / "broken.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(BadInput, match="row 3"):
        load_set("arrays:broken", tmp_path)
    np.savez(tmp_path / "half.npz", x_train=x)
    with pytest.raises(BadInput, match="y_train is missing"):
        load_set("arrays:half", tmp_path)


def test_missing_data_says_what_to_do(tmp_path):
    for name in DATASETS:
        if name != "digits":
            with pytest.raises(BadInput, match=r"not in the data folder; (fetch|put)"):
                load_set(name, tmp_path)
    with pytest.raises(BadInput, match="SUREFOOT_DATA"):
        load_set("cifar10", None)
    with pytest.raises(BadInput, match="did you mean 'cifar10'"):
        load_set("cifar1", tmp_path)


class Attack:
    def __reduce__(self):
        return (print, ("ran",))


@pytest.mark.parametrize("harm", [Attack(), {b"data": Attack()}, [1, 2]])
def test_pickles_run_no_code(tmp_path, harm, capsys):
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    (folder / "data_batch_1").write_bytes(pickle.dumps(harm))
    with pytest.raises(BadInput, match="data_batch_1"):
        load_set("cifar10", tmp_path)
    assert "ran" not in capsys.readouterr().out


def test_torn_and_hostile_pickles(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    raw = (folder / "data_batch_2").read_bytes()
    for wrong in (raw[:-5], b"", b"garbage", pickle.dumps({b"data": np.array([Attack()], dtype=object)})):
        (folder / "data_batch_2").write_bytes(wrong)
        with pytest.raises(BadInput, match="data_batch_2"):
            load_set("cifar10", tmp_path)


def test_archives_follow_no_path(tmp_path):
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
        entry = tarfile.TarInfo("../../escaped/data_batch_1")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"abc"))
    with pytest.raises(BadInput):
        load_set("cifar10", tmp_path)
    assert not (tmp_path.parent / "escaped").exists()
