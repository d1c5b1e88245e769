"""Checkpoints as two safetensors files that take turns, each with a digest of all it holds: one is always whole."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from surefoot.errors import StorageFault
from surefoot.training.records import canonical

__all__ = ["Checkpoint", "load_best", "load_checkpoint", "load_newest", "save_best", "save_checkpoint"]

_FILES = ("state-a.safetensors", "state-b.safetensors")
_BEST = "best.safetensors"
_KEY = "surefoot"  # one key: the order of several would be random

Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], turn: int) -> None:
    """Write tensors and facts under the name whose turn it is; it appears whole or not at all."""
    _save(folder / _FILES[turn % 2], tensors, meta)


def save_best(folder: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write the weights of the best reading so far."""
    _save(folder / _BEST, tensors, meta)


def load_newest(folder: Path) -> Checkpoint | None:
    """The whole checkpoint of the highest step; files that are harmed in any way are passed over."""
    found = [checkpoint for name in _FILES if (checkpoint := load_checkpoint(folder / name)) is not None]
    return max(found, key=lambda each: int(each[1]["step"]), default=None)


def load_best(folder: Path) -> Checkpoint | None:
    """The weights of the best reading, if they were kept and are unharmed."""
    return load_checkpoint(folder / _BEST)


def _save(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    folder = path.parent
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    facts = json.loads(canonical(dict(meta)))
    text = canonical({**facts, "sha256": _digest(ready, facts)})
    raw = save(ready, {_KEY: text})
    name = None
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".state.", delete=False) as stream:
            name = stream.name
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, path)
        sync_folder(folder)
    except OSError as error:
        if name is not None and os.path.exists(name):
            os.unlink(name)
        raise StorageFault(f"cannot write {path.name!r}: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    """Wait until a rename in the folder is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load_checkpoint(path: Path) -> Checkpoint | None:
    """Tensors and facts of one file; None if it is missing or harmed in any way."""
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {})[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, ValueError, TypeError):
        return None
    if not isinstance(meta, dict) or not isinstance(meta.get("step"), int):
        return None
    return (tensors, meta) if meta.pop("sha256", None) == _digest(tensors, meta) else None


def _digest(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    found = hashlib.sha256(canonical(dict(meta)).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return found.hexdigest()
