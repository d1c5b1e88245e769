"""Small pictures as PNG data URIs, by the standard library alone."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["data_uri", "png"]


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode a picture as PNG.

    Args:
        pixels: bytes, grey (h, w) or RGB (h, w, 3).

    Returns:
        The file's contents.

    References:
        RFC 2083 (1997), "PNG (Portable Network Graphics) Specification".
    """
    height, width = pixels.shape[:2]
    colour = 2 if pixels.ndim == 3 else 0
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))  # 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def data_uri(shape: Any, text: Any) -> str | None:
    """Encode a picture of ``examples.json`` as a data URI.

    Args:
        shape: height, width and number of channels (1 or 3); a side has at most 512 pixels.
        text: the bytes of the picture in base64.

    Returns:
        The URI; None if shape and bytes do not fit.
    """
    try:
        height, width, channels = (int(size) for size in shape)
        raw = base64.b64decode(text, validate=True)
        if not (1 <= height <= 512 and 1 <= width <= 512 and channels in (1, 3)):
            return None
        pixels = np.frombuffer(raw, np.uint8).reshape(height, width, channels)
    except (ValueError, TypeError, OverflowError):
        return None
    picture = pixels[..., 0] if channels == 1 else pixels
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
