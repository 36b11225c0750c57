"""Records as integers: the grid, and the rule that turns one feature vector into one integer vector.

These integers *are* the record for everything that follows; the rule looks at one record only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.data import Origin
from secagg.errors import BadInput, BadRecord

MAX_LEVELS = 1 << 26
"""R_q² of one record stays below 2⁵³, so that float64 products of records are exact."""
ROWS = 8192
REMEDY = "raise the public radius (--radius) or mend the record"


@dataclass(frozen=True)
class Grid:
    """R = `radius` > 0 (feature units) is `levels` = R_q steps, 1 ≤ R_q ≤ 2²⁶; `centre` c is public.

    A record is q = trunc((f − c)/step) with ‖q‖₂ ≤ R_q.
    """

    radius: float
    levels: int = 1 << 16
    centre: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= MAX_LEVELS:
            raise BadInput(f"the grid has {self.levels} levels", remedy=f"give 1 to {MAX_LEVELS}")
        if not (math.isfinite(self.radius) and self.step > 0):
            raise BadInput(f"the radius is {self.radius}", remedy="give a finite number above 0")
        if not math.isfinite(self.centre):
            raise BadInput(f"the centre is {self.centre}", remedy="give a finite number")

    @property
    def step(self) -> float:
        """Width of one grid unit, in feature units."""
        return self.radius / self.levels


def quantise(features: NDArray[np.float64], grid: Grid, origin: Origin | None = None) -> NDArray[np.int64]:
    """Return q (n, d) int64 for features (n, d); truncation is towards zero, so it never lengthens a record.

    Every step is elementwise or within one row, and the norm is checked in integers: batches do not matter.
    Raises BadRecord (naming the row by `origin`) for NaN, infinite entries and ‖q‖₂ > R_q.
    """
    integers = np.empty(features.shape, dtype=np.int64)
    for start in range(0, len(features), ROWS):
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.trunc((features[start : start + ROWS] - grid.centre) / grid.step)
            inside: NDArray[np.bool_] = np.all(np.abs(scaled) <= grid.levels, axis=1)
        _refuse_unless(inside, features, start, grid, origin)
        block = scaled.astype(np.int64)
        _refuse_unless(_short(block, grid.levels), features, start, grid, origin)
        integers[start : start + ROWS] = block
    return integers


def _short(block: NDArray[np.int64], levels: int) -> NDArray[np.bool_]:
    """Whether Σ q² ≤ R_q², in int64: entries are ≤ 2²⁶, so 2¹¹ of them cannot overflow; sum in such pieces."""
    total = np.zeros(len(block), dtype=np.int64)
    limit = levels * levels
    for start in range(0, block.shape[1], 1 << 10):
        piece = block[:, start : start + (1 << 10)]
        total = np.minimum(total + np.einsum("ij,ij->i", piece, piece), limit + 1)
    return total <= limit


def _refuse_unless(
    good: NDArray[np.bool_], features: NDArray[np.float64], start: int, grid: Grid, origin: Origin | None
) -> None:
    if good.all():
        return
    index = start + int(np.argmin(good))
    length = math.hypot(*(features[index] - grid.centre))
    problem = f"the feature vector has length {length:.6g}, above the public radius {grid.radius:.6g}"
    if not math.isfinite(length):
        problem = "the feature vector has NaN or infinite entries"
    if origin is None:
        raise BadRecord("features", index + 1, problem, remedy=REMEDY)
    raise origin.refusal(index, problem, REMEDY)
