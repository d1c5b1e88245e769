"""Checkpoints as two safetensors files that are written in turn, each with a digest of its whole content.

While one file is written, the other one is intact: a run that dies at any moment leaves a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from surefoot.errors import BadInput
from surefoot.files import read_file, replace_file, sync_folder
from surefoot.runs.records import canonical

__all__ = ["CHECKPOINTS", "Checkpoint", "load_best", "load_checkpoint", "load_newest", "save_best", "save_checkpoint"]

_FILES = ("state-a.safetensors", "state-b.safetensors")
_BEST = "best.safetensors"
CHECKPOINTS = (*_FILES, _BEST)
_MAX_BYTES = 1 << 40  # of a file; sizes that a file claims are checked against its real size
_MAX_HEADER = 1 << 26  # of the names, shapes and metadata
_KEY = "surefoot"  # one key: safetensors writes several in random order

Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], turn: int) -> None:
    """Write a checkpoint to the one of the two files whose turn it is, by an atomic rename.

    Args:
        folder: The run's folder.
        tensors: Tensors by name.
        meta: The rest of the state, as values that JSON can hold; ``"step"`` is among them.
        turn: Number of the checkpoint; even and odd numbers use different files.

    Raises:
        BadInput: If the folder is a symbolic link.
        StorageFault: If the disk refuses the write; the file is then as it was.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for turn in range(3):
        ...         save_checkpoint(Path(folder), {"w": torch.tensor([1.0])}, {"step": 200 * turn}, turn)
        ...     load_newest(Path(folder))
        ({'w': tensor([1.])}, {'step': 400})
    """
    _save(folder / _FILES[turn % 2], tensors, meta)


def save_best(folder: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write the weights of the best reading so far, by an atomic rename.

    Args:
        folder: The run's folder.
        tensors: Weights by name.
        meta: The ``"step"`` of the weights, and the value of the metric.

    Raises:
        BadInput: If the folder is a symbolic link.
        StorageFault: If the disk refuses the write; the file is then as it was.
    """
    _save(folder / _BEST, tensors, meta)


def load_newest(folder: Path) -> Checkpoint | None:
    """Load the intact checkpoint of the highest step; corrupted files are ignored.

    Args:
        folder: The run's folder.

    Returns:
        Tensors by name and metadata; None if there is no intact checkpoint.

    Raises:
        BadInput: If the folder or a checkpoint is a link, or a checkpoint is no regular file.
    """
    intact = [checkpoint for name in _FILES if (checkpoint := load_checkpoint(folder / name)) is not None]
    return max(intact, key=lambda checkpoint: int(checkpoint[1]["step"]), default=None)


def load_best(folder: Path) -> Checkpoint | None:
    """Load the weights of the best reading.

    Args:
        folder: The run's folder.

    Returns:
        Weights by name and metadata; None if they were not kept or are corrupted.

    Raises:
        BadInput: If the folder or the file is a link, or the file is not regular.
    """
    return load_checkpoint(folder / _BEST)


def _save(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    metadata = json.loads(canonical(dict(meta)))
    text = canonical({**metadata, "sha256": _digest(ready, metadata)})
    raw = save(ready, {_KEY: text})
    with replace_file(path, follow_folder=False) as stream:
        stream.write(raw)
    sync_folder(path.parent)


def load_checkpoint(path: Path) -> Checkpoint | None:
    """Load one checkpoint file and compare its content with its digest.

    Args:
        path: The file.

    Returns:
        Tensors by name and metadata; None if the file is missing or corrupted.

    Raises:
        BadInput: If the file or its folder is a link, or the file is not regular.
    """
    try:
        raw = read_file(path, _MAX_BYTES)
        meta = json.loads(_header(raw)["__metadata__"][_KEY])
        tensors = load(raw)
    except BadInput:  # such as a link, which an interrupted write cannot leave
        raise
    except (OSError, SafetensorError, struct.error, KeyError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    if not isinstance(meta, dict) or not isinstance(meta.get("step"), int):
        return None
    return (tensors, meta) if meta.pop("sha256", None) == _digest(tensors, meta) else None


def _header(raw: bytes) -> Any:
    """The JSON at the front of a safetensors file."""
    (size,) = struct.unpack_from("<Q", raw)
    if size > min(_MAX_HEADER, len(raw) - 8):
        raise ValueError
    return json.loads(raw[8 : 8 + size])


def _digest(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    content = hashlib.sha256(canonical(dict(meta)).encode())
    for name, tensor in sorted(tensors.items()):
        content.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        content.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return content.hexdigest()
