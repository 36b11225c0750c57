"""Pictures on disk: a folder for each class, as data are read, and one sheet to look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from secagg.errors import BadInput
from secagg.generation.pictures import Pictures

GAP = 2
WHITE = 255
UNSAFE = set("/\\:\0")
"""In no name of a folder, on any system."""


def write_pictures(pictures: Pictures, classes: Sequence[str], folder: Path) -> None:
    """Write PNG files CLASS/NUMBER.png into a new folder. Raises BadInput, writing nothing, as `require_names` does."""
    require_names(classes)
    for number, (pixels, label) in enumerate(zip(pictures.pixels, pictures.labels, strict=True)):
        place = folder / classes[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{number:06}.png")


def require_names(classes: Sequence[str]) -> None:
    """Raise BadInput for a class whose folder would lie elsewhere: its name comes from whoever wrote the plan."""
    for name in classes:
        if name in {".", ".."} or set(name) & UNSAFE:
            raise BadInput(f"the class {name!r} cannot be the name of a folder", remedy="rename it in the plan")


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
