"""Checkpoints as two safetensors files that take turns, each with a digest of all it holds: one is always whole."""

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
_MAX_BYTES = 1 << 40  # of a file; what is claimed inside of it is checked against its size
_MAX_HEADER = 1 << 26  # of the names, shapes and metadata
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
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    facts = json.loads(canonical(dict(meta)))
    text = canonical({**facts, "sha256": _digest(ready, facts)})
    raw = save(ready, {_KEY: text})
    with replace_file(path, follow_folder=False) as stream:
        stream.write(raw)
    sync_folder(path.parent)


def load_checkpoint(path: Path) -> Checkpoint | None:
    """Tensors and facts of one file; None if it is missing or corrupted, `BadInput` if it is no regular file."""
    try:
        raw = read_file(path, _MAX_BYTES)
        meta = json.loads(_header(raw)["__metadata__"][_KEY])
        tensors = load(raw)
    except BadInput:  # a link, say: that is no harm that a death could do
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
    found = hashlib.sha256(canonical(dict(meta)).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return found.hexdigest()
