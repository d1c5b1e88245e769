"""The official files of data sets as arrays: pickled batches, idx, .mat, .npz, .npy and folders of images.

Images come as uint8 (n, h, w, c), labels as int64 (n,). Nothing in a file is executed.
"""

from __future__ import annotations

import gzip
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from surefoot.data.pickles import read_pickled_arrays
from surefoot.errors import BadInput

__all__ = ["Arrays", "read_cifar", "read_folder", "read_idx", "read_mat", "read_npz", "unpacked"]

# (x_train, y_train, x_test, y_test)
Arrays = tuple[NDArray[np.generic], NDArray[np.int64], NDArray[np.generic], NDArray[np.int64]]
Pair = tuple[NDArray[np.generic], NDArray[np.int64]]


def read_npz(path: Path) -> Arrays:
    """``x_train``, ``y_train`` and either ``x_test``, ``y_test`` or ``x_val``, ``y_val``, from an ``.npz`` file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            test = "test" if "x_test" in file else "val"
            wanted = ("x_train", "y_train", f"x_{test}", f"y_{test}")
            missing = [name for name in wanted if name not in file]
            if missing:
                raise BadInput(f"{path.name} must hold x_train, y_train, x_test and y_test; {missing[0]} is missing")
            x_train, y_train, x_test, y_test = (file[name] for name in wanted)
    except (OSError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path.name} is no .npz file of arrays ({error})") from error
    return x_train, _labels(path, "y_train", y_train), x_test, _labels(path, f"y_{test}", y_test)


def _labels(path: Path, name: str, given: NDArray[np.generic]) -> NDArray[np.int64]:
    """Class numbers as whole numbers; floats only where they are whole."""
    if given.dtype.kind not in "fiu" or (given.dtype.kind == "f" and not (given == np.floor(given)).all()):
        shown = given.reshape(-1)[:3].tolist()
        raise BadInput(f"{path.name}: {name} must hold class numbers 0, 1, 2, ...; got {given.dtype} such as {shown}")
    return given.astype(np.int64)


def read_cifar(folder: Path, fine: bool) -> Arrays:
    """CIFAR-10's six pickled batches, or CIFAR-100's two (``fine``: its hundred classes)."""
    names = (["train"], ["test"]) if fine else ([f"data_batch_{i}" for i in range(1, 6)], ["test_batch"])
    key = "fine_labels" if fine else "labels"
    found: list[NDArray[np.generic]] = []
    for files in names:
        batches = [read_pickled_arrays(folder / name) for name in files]
        for name, batch in zip(files, batches, strict=True):
            if "data" not in batch or key not in batch or np.asarray(batch["data"]).shape[1:] != (3072,):
                raise BadInput(f"{name} must hold data (n, 3072) and {key}")
        images = np.concatenate([np.asarray(batch["data"], np.uint8) for batch in batches])
        found.append(images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy())
        found.append(np.concatenate([np.asarray(batch[key], np.int64) for batch in batches]))
    return found[0], found[1].astype(np.int64), found[2], found[3].astype(np.int64)


def read_idx(path: Path) -> NDArray[np.generic]:
    """An idx file of bytes (MNIST's format), compressed or not."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise BadInput(f"{path.name} is no idx file of bytes")
    ndim = raw[3]
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(ndim))
    body = raw[4 + 4 * ndim :]
    if len(body) != int(np.prod(shape)):
        raise BadInput(f"{path.name} says it holds {shape}, but has {len(body):,} bytes")
    return np.frombuffer(body, np.uint8).reshape(shape)


def read_mat(path: Path) -> Pair:
    """SVHN's cropped digits: ``X`` (32, 32, 3, n) and ``y`` (n, 1), in which 10 stands for 0."""
    from scipy.io import loadmat

    try:
        file = loadmat(str(path), variable_names=["X", "y"])
        images, labels = file["X"], file["y"].ravel()
    except (ValueError, KeyError, NotImplementedError) as error:
        raise BadInput(f"{path.name} must be SVHN's .mat file with X and y ({error})") from error
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), (labels % 10).astype(np.int64)


def read_folder(folder: Path, size: int, classes: list[str] | None = None) -> tuple[Pair, list[str]]:
    """Images in one sub-folder a class, each scaled and cropped at its centre to ``size`` pixels; and the classes."""
    from PIL import Image

    names = classes or sorted(each.name for each in folder.iterdir() if each.is_dir())
    if not names:
        raise BadInput(f"{folder.name} has no sub-folders; images are expected in one folder for each class")
    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        for path in sorted((folder / name).rglob("*")):
            if path.suffix.lower() in (".jpeg", ".jpg", ".png"):
                with Image.open(path) as opened:
                    images.append(_cropped(opened.convert("RGB"), size))
                labels.append(label)
    if not images:
        raise BadInput(f"{folder.name} holds no .jpeg, .jpg or .png files")
    return (np.stack(images), np.array(labels, np.int64)), names


def _cropped(image: object, size: int) -> NDArray[np.uint8]:
    width, height = image.size  # type: ignore[attr-defined]
    scale = size / min(width, height)
    if scale != 1:
        image = image.resize((max(size, round(width * scale)), max(size, round(height * scale))))  # type: ignore[attr-defined]
    array = np.asarray(image, np.uint8)
    top, left = (array.shape[0] - size) // 2, (array.shape[1] - size) // 2
    return array[top : top + size, left : left + size]


def unpacked(archive: Path, members: list[str]) -> tempfile.TemporaryDirectory[str]:
    """The named files of a tar archive, by their last names, in a temporary folder; no path in it is followed."""
    folder = tempfile.TemporaryDirectory()
    with tarfile.open(archive) as tar:
        for entry in tar:
            name = Path(entry.name).name
            if entry.isfile() and name in members:
                source = tar.extractfile(entry)
                assert source is not None
                (Path(folder.name) / name).write_bytes(source.read())
    return folder
