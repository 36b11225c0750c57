"""Pictures on disk: a folder for each class, as data are read, and one sheet to look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from secagg.generation.pictures import Pictures

GAP = 2
WHITE = 255


def write_pictures(pictures: Pictures, classes: Sequence[str], folder: Path) -> None:
    """Write PNG files CLASS/NUMBER.png into a new folder; class names are those of a plan, safe as file names."""
    for number, (pixels, label) in enumerate(zip(pictures.pixels, pictures.labels, strict=True)):
        place = folder / classes[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{number:06}.png")


def contact_sheet(rows: Sequence[NDArray[Any]], path: Path) -> None:
    """Write pictures (n, h, w, 3) uint8, a row for each group, as one PNG."""
    side_h, side_w = rows[0].shape[1:3]
    width, height = max(map(len, rows)), len(rows)
    sheet = np.full((height * (side_h + GAP), width * (side_w + GAP), 3), WHITE, dtype=np.uint8)
    for y, row in enumerate(rows):
        for x, picture in enumerate(row):
            top, left = y * (side_h + GAP), x * (side_w + GAP)
            sheet[top : top + side_h, left : left + side_w] = picture
    Image.fromarray(sheet).save(path)
