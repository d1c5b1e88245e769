"""Pictures of the examples that dominated the margin moment during a run."""

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
_MAX_PICTURES = 256  # of each set: the examples that dominated the moment most often


def write_examples(folder: Path, data: Prepared) -> None:
    """Write ``examples.json``: pictures (h, w, c) by row, as bytes in base64.

    Nothing is written if the data are no images or no tails were read. The file depends only on the run's own files and
    data, so that a resumed run writes the same bytes.

    Args:
        folder: The run's folder.
        data: Prepared data of the run.

    Raises:
        BadInput: If the folder is a symbolic link.
        StorageFault: If the disk refuses the write.
    """
    if len(data.shape) != 3 or data.shape[0] not in (1, 3):
        return
    records = read_journal(folder / ARRAYS)[0]
    pictures: dict[str, Any] = {}
    for part, examples in (("train", data.train), ("test", data.test)):
        seen = Counter(
            row for record in records if (tail := record.get(f"{part}.tail")) is not None for row in tail["rows"]
        )
        rows = sorted(row for row, _ in sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:_MAX_PICTURES])
        if rows:
            # The range of the set maps to black and white: digits range from 0 to 16, photographs from 0 to 255.
            images = data.raw(examples.take(torch.tensor(rows))[0]).transpose(0, 2, 3, 1)
            low, high = float(images.min()), float(images.max())
            pixels = np.rint((images - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
            texts = [base64.b64encode(image.tobytes()).decode() for image in pixels]
            pictures[part] = {str(row): text for row, text in zip(rows, texts, strict=True)}
    if pictures:
        channels, height, width = data.shape
        write_json(folder / EXAMPLES, {"shape": [height, width, channels], **pictures})
