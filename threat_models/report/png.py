"""Images as PNG bytes, without a library (PNG specification, third edition, W3C 2025, sections 5 and 11)."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOUR_TYPES = {1: 0, 3: 2}
"""PNG's number for grey and for RGB, by channels."""


def png(image: NDArray[np.uint8]) -> bytes:
    """A grey (h, w) or (h, w, 1) or an RGB (h, w, 3) image, uint8. Raises BadInput for anything else."""
    pixels = image[..., None] if image.ndim == 2 else image
    if image.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in COLOUR_TYPES or not image.size:
        raise BadInput(f"a picture of shape {image.shape} and type {image.dtype} is no 8-bit image")
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
