"""The examples that carry the margin moment, as pictures with their labels and predictions."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_tail", "save_tail"]


def save_tail(inputs: NDArray[Any], heavy: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the figure of the examples.

    Args:
        inputs: the inputs (n, ...).
        heavy: the examples, as in `draw_tail`.
        path: path that ends in ``.png``, ``.svg`` or ``.pdf``; the file appears complete or not at all.

    Raises:
        BadInput: if the path has another suffix.
    """
    kind = path.suffix[1:].lower()
    if kind not in ("png", "svg", "pdf"):
        raise BadInput(f"figures are .png, .svg or .pdf; got {path.name!r}")
    buffer = io.BytesIO()
    draw_tail(inputs, heavy).savefig(buffer, format=kind, dpi=140)
    with replace_file(path) as stream:
        stream.write(buffer.getvalue())


def draw_tail(inputs: NDArray[Any], heavy: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw one picture per example.

    Args:
        inputs: the inputs (n, ...): images (n, c, h, w) or vectors (n, d).
        heavy: the examples, at least one, with the keys ``row``, ``label``, ``predicted``, ``confidence``, ``margin``
            and ``share``.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure

    columns = min(5, len(heavy))
    rows = -(-len(heavy) // columns)
    figure = Figure(figsize=(2.1 * columns, 2.6 * rows), layout="constrained")
    for place, example in enumerate(heavy):
        axes = figure.add_subplot(rows, columns, place + 1)
        picture = _picture(inputs[example["row"]])
        axes.imshow(picture, cmap="gray" if picture.ndim == 2 else None, interpolation="nearest")
        axes.set_axis_off()
        axes.set_title(
            f"{example['share']:.0%} of Q, m = {example['margin']:.2f}\nis {example['label']}, "
            f"said {example['predicted']} at {example['confidence']:.2f}",
            fontsize=8,
        )
    return figure


def _picture(example: NDArray[Any]) -> NDArray[Any]:
    """(h, w) or (h, w, 3) in [0, 1] of an example (c, h, w), a square vector, or any other vector as one row."""
    if example.ndim == 3:
        example = example.transpose(1, 2, 0)
        example = example[..., 0] if example.shape[2] == 1 else example[..., :3]
    elif example.ndim == 1:
        side = round(len(example) ** 0.5)
        example = example.reshape(side, side) if side * side == len(example) else example[None]
    low, high = float(example.min()), float(example.max())
    if low < 0 or high > 1:
        example = (example - low) / max(high - low, 1e-12)
    return example
