"""Data sets by name, as arrays: the places of their files, and the functions that read the files."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surefoot.data.formats import Arrays, read_cifar, read_folder, read_idx, read_mat, read_npz, unpacked
from surefoot.data.registry import DATASETS
from surefoot.deprecated import renamed_names
from surefoot.errors import BadInput
from surefoot.validation import suggest

__all__ = ["StoredData", "cifar", "corrupted", "digits", "folders", "load_set", "mnist", "svhn"]


@dataclass(frozen=True)
class StoredData:
    """Training and test examples as they are stored.

    Attributes:
        name: Name of the data set.
        x_train: Training inputs: images uint8 (n, h, w, c), or numbers (n, ...).
        y_train: Training labels, int64 (n,), from 0.
        x_test: Test inputs (m, ...) of the same shape per example.
        y_test: Test labels, int64 (m,).
        classes: Number of classes: the largest label plus 1.
    """

    name: str
    x_train: NDArray[np.generic]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.generic]
    y_test: NDArray[np.int64]
    classes: int

    def digest(self) -> str:
        """SHA-256 of all arrays with their shapes and types.

        Returns:
            64 hexadecimal digits.
        """
        content = hashlib.sha256()
        for array in (self.x_train, self.y_train, self.x_test, self.y_test):
            content.update(f"{array.dtype.str}{array.shape}".encode())
            content.update(np.ascontiguousarray(array).data)
        return content.hexdigest()


def data_folder(data: str | os.PathLike[str] | None) -> Path | None:
    """The folder of data sets: the given one, else the one that ``SUREFOOT_DATA`` names, else None.

    Args:
        data: A folder, or None.

    Returns:
        The folder's path; None if there is neither.
    """
    chosen = os.environ.get("SUREFOOT_DATA") if data is None else data
    return Path(chosen) if chosen else None


def load_set(name: str, root: Path | None) -> StoredData:
    """Load a data set by name.

    Args:
        name: A name of `surefoot.data.registry.DATASETS`, or ``arrays:NAME`` for the user's own file ``NAME.npz``.
        root: Folder of data sets; None suffices for embedded ones.

    Returns:
        The data set.

    Raises:
        BadInput: If the name is unknown, the files are missing, or inputs and labels are not valid.

    Example:
        >>> load_set("digits", None).x_train.shape
        (1438, 8, 8, 1)
    """
    own = name.removeprefix("arrays:") if name.startswith("arrays:") else None
    if own is None and name not in DATASETS:
        names = ", ".join(DATASETS)
        raise BadInput(f"data must be one of {names} or arrays:NAME; got {name!r}{suggest(name, DATASETS)}")
    if own is not None and (not own or Path(own).name != own):
        raise BadInput(f"arrays:NAME takes the name of an .npz file in the data folder, not a path; got {own!r}")
    entry = None if own is not None else DATASETS[name]
    if entry is not None and entry.embedded:
        return _checked(name, entry.build(root))
    if root is None:
        raise BadInput(f"{name} needs a folder of data; give data=... or set SUREFOOT_DATA")
    if entry is None:
        path = root / f"{str(own).removesuffix('.npz')}.npz"
        if not path.exists():
            raise BadInput(f"there is no {path.name} in the data folder; put x_train, y_train, x_test, y_test there")
        return _checked(name, read_npz(path))
    arrays: Arrays | None = entry.build(root)
    if arrays is None:
        raise BadInput(f"{name} is not in the data folder; {entry.remedy}")
    return _checked(name, arrays)


def _checked(name: str, arrays: Arrays) -> StoredData:
    x_train, y_train, x_test, y_test = arrays
    for part, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        if len(x) == 0 or y.shape != (len(x),):
            raise BadInput(
                f"{name}: x_{part} and y_{part} must have the same length above 0; got {x.shape} and {y.shape}"
            )
        if x.ndim < 2:
            raise BadInput(f"{name}: x_{part} must have shape (n, features) or (n, h, w, c); got {x.shape}")
        if x.dtype.kind not in "fiu":
            raise BadInput(f"{name}: x_{part} must hold numbers; got dtype {x.dtype}")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            row = int(np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))[0])
            raise BadInput(f"{name}: x_{part} must be finite; row {row} is not")
        if y.min() < 0:
            raise BadInput(f"{name}: labels must be at least 0; y_{part} has {int(y.min())}")
    if x_train.shape[1:] != x_test.shape[1:]:
        raise BadInput(f"{name}: examples must have one shape; got {x_train.shape[1:]} and {x_test.shape[1:]}")
    classes = int(max(y_train.max(), y_test.max())) + 1
    if classes < 2:
        raise BadInput(f"{name}: labels must be of two classes at least")
    return StoredData(name, x_train, y_train, x_test, y_test, classes)


def digits(root: Path | None) -> Arrays:
    """Read scikit-learn's digits; a fixed random fifth of the examples is the test set.

    Args:
        root: Not used: the data set is embedded.

    Returns:
        Training images (1438, 8, 8, 1) and labels, test images (359, 8, 8, 1) and labels.

    Example:
        >>> digits(None)[2].shape
        (359, 8, 8, 1)
    """
    table = np.loadtxt(_digits_file(), delimiter=",", dtype=np.int64)  # (n, 65): pixels, then the label
    table = table[np.random.default_rng(0).permutation(len(table))]
    images, labels = table[:, :-1].reshape(-1, 8, 8, 1).astype(np.uint8), table[:, -1].copy()
    cut = len(images) - len(images) // 5
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def _digits_file() -> Path:
    """The file that `sklearn.datasets.load_digits` reads; to import that function takes two seconds."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


def cifar(root: Path, fine: bool) -> Arrays | None:
    """Read CIFAR-10 or CIFAR-100 from an ``.npz`` file, the folder of batches, or the original archive.

    Args:
        root: Folder of data sets.
        fine: Whether to read CIFAR-100, with its hundred fine classes, instead of CIFAR-10.

    Returns:
        Training images (50000, 32, 32, 3) and labels, test images (10000, 32, 32, 3) and labels. None if there is no
        file.

    Raises:
        BadInput: If a file exists and is not valid.

    Example:
        >>> cifar(Path("no-such-folder"), fine=False) is None
        True
    """
    stem = "cifar100" if fine else "cifar10"
    folder, archive = ("cifar-100-python", "cifar-100-python.tar.gz") if fine else (
        "cifar-10-batches-py", "cifar-10-python.tar.gz")  # fmt: skip
    members = ["train", "test"] if fine else [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    if (root / f"{stem}.npz").exists():
        return read_npz(root / f"{stem}.npz")
    if (root / folder).is_dir():
        return read_cifar(root / folder, fine)
    if (root / archive).exists():
        with unpacked(root / archive, members) as place:
            return read_cifar(Path(place), fine)
    return None


def mnist(root: Path, stem: str) -> Arrays | None:
    """Read MNIST, or a data set in the format of MNIST, from an ``.npz`` file or a folder of idx files.

    Args:
        root: Folder of data sets.
        stem: Name of the folder, or of the ``.npz`` file without its ending.

    Returns:
        Training images (n, h, w, 1) and labels, test images (m, h, w, 1) and labels; None if a file is missing.

    Raises:
        BadInput: If a file exists and is not valid.

    Example:
        >>> mnist(Path("no-such-folder"), "mnist") is None
        True
    """
    if (root / f"{stem}.npz").exists():
        return read_npz(root / f"{stem}.npz")
    parts = []
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        paths = [root / stem / f"{name}-ubyte{end}" for end in (".gz", "")]
        there = [path for path in paths if path.exists()]
        if not there:
            return None
        parts.append(read_idx(there[0]))
    return parts[0][..., None], parts[1].astype(np.int64), parts[2][..., None], parts[3].astype(np.int64)


def svhn(root: Path) -> Arrays | None:
    """Read SVHN's cropped digits from ``svhn/train_32x32.mat`` and ``svhn/test_32x32.mat``.

    Args:
        root: Folder of data sets.

    Returns:
        Training images (n, 32, 32, 3) and labels, test images (m, 32, 32, 3) and labels; None if a file is missing.

    Raises:
        BadInput: If a file exists and is not valid.

    Example:
        >>> svhn(Path("no-such-folder")) is None
        True
    """
    train, test = root / "svhn" / "train_32x32.mat", root / "svhn" / "test_32x32.mat"
    return (*read_mat(train), *read_mat(test)) if train.exists() and test.exists() else None


def folders(root: Path, stem: str, size: int) -> Arrays | None:
    """Read images from ``train/`` and ``val/``, which hold one folder per class.

    Args:
        root: Folder of data sets.
        stem: Name of the folder that holds ``train/`` and ``val/``.
        size: Height and width in pixels to which images are scaled and cropped.

    Returns:
        Images (n, size, size, 3) and labels of ``train/``, images and labels of ``val/``; None if a folder is missing.

    Raises:
        BadInput: If a folder exists and holds no images.

    Example:
        >>> folders(Path("no-such-folder"), "imagenet", 224) is None
        True
    """
    train, val = root / stem / "train", root / stem / "val"
    if not (train.is_dir() and val.is_dir()):
        return None
    examples, classes = read_folder(train, size)
    return (*examples, *read_folder(val, size, classes)[0])


def corrupted(root: Path, stem: str, clean: str) -> Arrays | None:
    """Read a corrupted data set: the test set is every corruption at every severity, the training set is clean.

    Args:
        root: Folder of data sets.
        stem: Name of the folder of the ``.npy`` files: nineteen corruptions at five severities, and the labels.
        clean: Name of the data set whose training examples are taken.

    Returns:
        Clean training images and labels, corrupted test images and labels by file name; None if a file is missing.

    Raises:
        BadInput: If the clean data set exists and is not valid.

    Example:
        >>> corrupted(Path("no-such-folder"), "CIFAR-10-C", "cifar10") is None
        True

    References:
        Hendrycks and Dietterich (2019), "Benchmarking Neural Network Robustness to Common Corruptions and
        Perturbations".
    """
    files = sorted(path for path in (root / stem).glob("*.npy") if path.stem != "labels")
    labels, base = root / stem / "labels.npy", DATASETS[clean].build(root)
    if not files or not labels.exists() or base is None:
        return None
    images = np.concatenate([np.load(path, allow_pickle=False) for path in files])
    return base[0], base[1], images, np.tile(np.load(labels, allow_pickle=False).astype(np.int64), len(files))


if not TYPE_CHECKING:  # a module's __getattr__ would hide wrong names from type checkers
    __getattr__ = renamed_names(__name__)
