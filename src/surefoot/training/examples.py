"""Pictures of the examples that carried the margin moment during a run, small enough to stand beside its journal."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surefoot.data.prepare import Prepared
from surefoot.runs.records import ARRAYS, read_journal
from surefoot.runs.writer import write_json

__all__ = ["EXAMPLES", "write_examples"]

EXAMPLES = "examples.json"
_MOST = 256  # pictures of each set, those that carried the moment most often first


def write_examples(folder: Path, data: Prepared) -> None:
    """Write ``examples.json``, if the data are images and tails were read: bytes (h, w, c) in base64 by row.

    It follows from the run's own files and data, so that a resumed run writes the same.
    """
    if len(data.shape) != 3 or data.shape[0] not in (1, 3):
        return
    records = read_journal(folder / ARRAYS)[0]
    found: dict[str, Any] = {}
    for part, examples in (("train", data.train), ("test", data.test)):
        seen = Counter(row for each in records if f"{part}.tail" in each for row in each[f"{part}.tail"]["rows"])
        rows = sorted(row for row, _ in sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:_MOST])
        if rows:
            # The set's own range is black to white: digits go from 0 to 16, photographs from 0 to 255.
            images = data.raw(examples.take(torch.tensor(rows))[0]).transpose(0, 2, 3, 1)
            low, high = float(images.min()), float(images.max())
            pixels = np.rint((images - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
            texts = [base64.b64encode(each.tobytes()).decode() for each in pixels]
            found[part] = {str(row): text for row, text in zip(rows, texts, strict=True)}
    if found:
        channels, height, width = data.shape
        write_json(folder / EXAMPLES, {"shape": [height, width, channels], **found})
