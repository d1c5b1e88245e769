"""Readers of the official files of data sets: pickled batches, idx, .mat, .npz and folders of images.

Images are read as uint8 (n, h, w, c), labels as int64 (n,). No reader executes code from a file.
"""

from __future__ import annotations

import gzip
import pickle
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput

__all__ = ["Arrays", "read_cifar", "read_folder", "read_idx", "read_mat", "read_npz", "read_pickled_arrays", "unpacked"]

# (x_train, y_train, x_test, y_test)
Arrays = tuple[NDArray[np.generic], NDArray[np.int64], NDArray[np.generic], NDArray[np.int64]]
Pair = tuple[NDArray[np.generic], NDArray[np.int64]]


def read_npz(path: Path) -> Arrays:
    """Read an ``.npz`` file with ``x_train``, ``y_train``, and ``x_test``, ``y_test`` or ``x_val``, ``y_val``.

    Args:
        path: The file.

    Returns:
        Training inputs and labels, test inputs and labels; labels as int64.

    Raises:
        BadInput: If the file is no ``.npz`` file, an array is missing, or labels are not integers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "own.npz"
        ...     np.savez(path, x_train=np.ones((3, 2)), y_train=[0, 1, 0], x_val=np.ones((1, 2)), y_val=[1])
        ...     arrays = read_npz(path)
        >>> [array.shape for array in arrays]
        [(3, 2), (3,), (1, 2), (1,)]
    """
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
    """Class numbers as int64; floats are accepted only if they are integers."""
    if given.dtype.kind not in "fiu" or (given.dtype.kind == "f" and not (given == np.floor(given)).all()):
        shown = given.reshape(-1)[:3].tolist()
        raise BadInput(f"{path.name}: {name} must hold class numbers 0, 1, 2, ...; got {given.dtype} such as {shown}")
    return given.astype(np.int64)


def read_cifar(folder: Path, fine: bool) -> Arrays:
    """Read the six pickled batches of CIFAR-10, or the two of CIFAR-100 with its hundred fine classes.

    Args:
        folder: Folder of the batches, as the official archive holds it.
        fine: Whether the batches are those of CIFAR-100.

    Returns:
        Training images (50000, 32, 32, 3) and labels, test images (10000, 32, 32, 3) and labels.

    Raises:
        BadInput: If a batch is missing, is no pickle of arrays, or lacks images or labels.
    """
    names = (["train"], ["test"]) if fine else ([f"data_batch_{i}" for i in range(1, 6)], ["test_batch"])
    key = "fine_labels" if fine else "labels"
    arrays: list[NDArray[np.generic]] = []
    for files in names:
        batches = [read_pickled_arrays(folder / name) for name in files]
        for name, batch in zip(files, batches, strict=True):
            if "data" not in batch or key not in batch or np.asarray(batch["data"]).shape[1:] != (3072,):
                raise BadInput(f"{name} must hold data (n, 3072) and {key}")
        images = np.concatenate([np.asarray(batch["data"], np.uint8) for batch in batches])
        arrays.append(images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy())
        arrays.append(np.concatenate([np.asarray(batch[key], np.int64) for batch in batches]))
    return arrays[0], arrays[1].astype(np.int64), arrays[2], arrays[3].astype(np.int64)


def read_idx(path: Path) -> NDArray[np.generic]:
    """Read an idx file of bytes, the format of MNIST; a name that ends with ``.gz`` is decompressed.

    Args:
        path: The file.

    Returns:
        A read-only uint8 array of the shape that the file states.

    Raises:
        BadInput: If the file is no idx file of bytes, or its length does not fit its shape.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "labels-idx1-ubyte"
        ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 3]))
        ...     print(read_idx(path))
        [7 3]
    """
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
    """Read a ``.mat`` file of SVHN's cropped digits: ``X`` (32, 32, 3, n) and ``y`` (n, 1), where label 10 means 0.

    Args:
        path: The file.

    Returns:
        Images (n, 32, 32, 3) and labels (n,) from 0 to 9.

    Raises:
        BadInput: If the file is no ``.mat`` file with ``X`` and ``y``.
    """
    from scipy.io import loadmat

    try:
        file = loadmat(str(path), variable_names=["X", "y"])
        images, labels = file["X"], file["y"].ravel()
    except (ValueError, KeyError, NotImplementedError) as error:
        raise BadInput(f"{path.name} must be SVHN's .mat file with X and y ({error})") from error
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), (labels % 10).astype(np.int64)


def read_folder(folder: Path, size: int, classes: list[str] | None = None) -> tuple[Pair, list[str]]:
    """Read images from one sub-folder per class, each scaled and cropped at its centre to a square.

    Args:
        folder: The folder of the sub-folders.
        size: Height and width of the images in pixels.
        classes: Names of the sub-folders in the order of the labels; all sub-folders by name if None.

    Returns:
        The pair of images (n, size, size, 3) and labels (n,), and the names of the classes.

    Raises:
        BadInput: If there are no sub-folders or no images.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cat", "dog"):
        ...         (Path(folder) / name).mkdir()
        ...         Image.new("RGB", (6, 4)).save(Path(folder) / name / "1.png")
        ...     (images, labels), classes = read_folder(Path(folder), size=4)
        >>> images.shape, labels.tolist(), classes
        ((2, 4, 4, 3), [0, 1], ['cat', 'dog'])
    """
    from PIL import Image

    names = classes or sorted(path.name for path in folder.iterdir() if path.is_dir())
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
    """Extract named files of a tar archive into a temporary folder, without their paths in the archive.

    Args:
        archive: The archive, compressed or not.
        members: File names without folders; other members are left out.

    Returns:
        The temporary folder, a context manager that deletes the folder at the end.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "labels").write_text("0")
        ...     with tarfile.open(Path(folder) / "data.tar", "w") as tar:
        ...         tar.add(Path(folder) / "labels", "deep/inside/labels")
        ...     with unpacked(Path(folder) / "data.tar", ["labels"]) as place:
        ...         print([path.name for path in Path(place).iterdir()])
        ['labels']
    """
    folder = tempfile.TemporaryDirectory()
    with tarfile.open(archive) as tar:
        for entry in tar:
            name = Path(entry.name).name
            if entry.isfile() and name in members:
                source = tar.extractfile(entry)
                assert source is not None
                (Path(folder.name) / name).write_bytes(source.read())
    return folder


class _ArraysOnly(pickle.Unpickler):
    """Unpickler that allows only the names that numpy's arrays of plain numbers need."""

    _ALLOWED = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
        ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): lambda text, encoding="latin1": text.encode("latin1"),
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._ALLOWED[module, name]
        except KeyError:
            raise BadInput(f"the file names {module}.{name}, which is no array; it is not read") from None


def read_pickled_arrays(path: Path) -> dict[str, Any]:
    """Read a pickled dictionary of arrays and plain values, written by Python 2 or 3.

    Args:
        path: The file.

    Returns:
        The dictionary, whose keys are texts.

    Raises:
        BadInput: If the file is no such pickle, names anything but numpy arrays, or holds arrays of objects.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "batch"
        ...     _ = path.write_bytes(pickle.dumps({b"labels": [3, 1]}))
        ...     read_pickled_arrays(path)
        {'labels': [3, 1]}
    """
    try:
        with path.open("rb") as stream:
            content = _ArraysOnly(stream, encoding="bytes").load()
    except BadInput as error:
        raise BadInput(f"{path.name}: {error}") from error
    except Exception as error:
        raise BadInput(f"{path.name} is no pickled batch ({type(error).__name__}: {str(error)[:80]})") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path.name} must hold a dictionary of arrays; it holds a {type(content).__name__}")
    arrays = {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in content.items()}
    for key, value in arrays.items():
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise BadInput(f"{path.name}: array {key!r} holds objects, not numbers")
    return arrays
