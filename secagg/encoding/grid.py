"""Quantisation: a public grid, and the rule that rounds one feature vector to one vector of integers.

These integers *are* the record for everything that follows; the rule looks at one record only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput, BadRecord
from secagg.wire import Choice

MAX_LEVELS = 1 << 26
"""The most levels R_q: R_q² of one record stays below 2⁵³, so that float64 products of records are exact."""
ROWS = 8192
FLAT = 1e-9
"""A vector whose entries differ by less than this part of the largest counts as one without direction."""
MEND = "mend or remove the record"
RAISE = f"raise the public radius, or {MEND}"


@dataclass(frozen=True, eq=False)
class Origin:
    """The source file and row number of each record, so that an error message can name them.

    `file` (n,) indexes `files`; `row` (n,) counts from 1, header included, as an editor does.
    """

    files: tuple[str, ...]
    file: NDArray[np.int64]
    row: NDArray[np.int64]

    @classmethod
    def of(cls, source: str, rows: NDArray[np.int64]) -> Origin:
        """Build the origins (file and row) of records that all come from the file `source`, at these row numbers."""
        return cls((source,), np.zeros(len(rows), dtype=np.int64), rows)

    def take(self, indices: NDArray[np.int64]) -> Origin:
        """Return the files and rows of the records at `indices`, in that order."""
        return Origin(self.files, self.file[indices], self.row[indices])

    def refusal(self, index: int, problem: str, remedy: str) -> BadRecord:
        """Build, without raising it, the error that names the file and row of record `index`."""
        return BadRecord(self.files[self.file[index]], int(self.row[index]), problem, remedy=remedy)


class Normalisation(Choice):
    """The ways to normalise a feature vector f before it is rounded to integers."""

    NONE = "none"
    """g = f − c keeps its length; a record beyond the public radius is refused."""
    UNIT = "unit"
    """g = (f − c)/‖f − c‖₂ with the public constant c: every record has length 1."""
    CENTRED_UNIT = "centred-unit"
    """g = (f − f̄)/‖f − f̄‖₂ with the record's own mean f̄: needs no constant, whatever the features' scale."""


@dataclass(frozen=True)
class Grid:
    """A public quantisation grid: vectors up to `radius` from `centre` become integers of length ≤ `levels`.

    R = `radius` > 0 (feature units) is R_q = `levels` steps, 1 ≤ R_q ≤ 2²⁶; c = `centre`. Without normalisation a
    record is q = trunc((f − c)/step); with it R = 1 and q = round(g·(R_q − √d/2)), which rounding by at most ½ in each
    of d entries cannot make longer than R_q. Either way ‖q‖₂ ≤ R_q.
    """

    radius: float
    levels: int = 1 << 16
    centre: float = 0.0
    normalisation: Normalisation = Normalisation.NONE

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= MAX_LEVELS:
            raise BadInput(f"the grid has {self.levels} levels", remedy=f"give 1 to {MAX_LEVELS}")
        if not (math.isfinite(self.radius) and self.step > 0):
            raise BadInput(f"the radius is {self.radius}", remedy="give a finite number above 0")
        if not math.isfinite(self.centre):
            raise BadInput(f"the centre is {self.centre}", remedy="give a finite number")
        if self.is_normalised and self.radius != 1.0:
            raise BadInput(f"normalised records have length 1, not {self.radius:g}", remedy="leave the radius out")
        if self.normalisation is Normalisation.CENTRED_UNIT and self.centre:
            raise BadInput(
                "centred-unit records take their own mean as centre", remedy="leave the centre out, or use unit"
            )

    @property
    def step(self) -> float:
        """Size of one grid step in units of the features, for a grid that does not normalise records."""
        return self.radius / self.levels

    @property
    def is_normalised(self) -> bool:
        """True if every record is scaled to length 1 before it is rounded.

        A record without a direction (see `quantise`) becomes 0 and must not be counted.
        """
        return self.normalisation is not Normalisation.NONE

    def unit(self, dimension: int) -> float:
        """Return the radius in grid steps for records of `dimension` features. Raises BadInput for too few levels."""
        unit = self.levels - (math.sqrt(dimension) / 2 if self.is_normalised else 0.0)
        if unit < self.levels / 2:
            raise BadInput(f"{self.levels} levels cannot hold {dimension} features", remedy="give more levels")
        return unit


def quantise(features: NDArray[np.float64], grid: Grid, origin: Origin | None = None) -> NDArray[np.int64]:
    """Round features (n, d) to int64 q (n, d) by the grid's rule; ‖q‖₂ ≤ R_q = `grid.levels` is checked in integers.

    Every step is elementwise or within one row: batches do not matter. Without normalisation a record with NaN or
    infinite entries or ‖q‖₂ > R_q raises BadRecord (naming the row by `origin`). With it no record is refused: one
    without a direction (NaN, infinite, all entries alike) is q = 0, which may not count, and no other record is.
    """
    integers = np.empty(features.shape, dtype=np.int64)
    for start in range(0, len(features), ROWS):
        rows = np.ascontiguousarray(features[start : start + ROWS])  # sums along a row must not depend on the layout
        if grid.is_normalised:
            integers[start : start + ROWS] = _directions(rows, grid)
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.trunc((rows - grid.centre) / grid.step)
            inside: NDArray[np.bool_] = np.all(np.abs(scaled) <= grid.levels, axis=1)
        _refuse_unless(inside, features, start, grid, origin)
        block = scaled.astype(np.int64)
        _refuse_unless(_short(block, grid.levels), features, start, grid, origin)
        integers[start : start + ROWS] = block
    return integers


def inputs_of(features: NDArray[np.float64], grid: Grid) -> NDArray[np.float64]:
    """Return features (n, d) as inputs of a head made on this grid: unchanged, or normalised and rounded."""
    if not grid.is_normalised:
        return features
    return quantise(features, grid) / grid.unit(features.shape[1])


def _directions(features: NDArray[np.float64], grid: Grid) -> NDArray[np.int64]:
    """Return normalised rows as integers, first divided by their largest entry, so that no square overflows."""
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(features).max(axis=1, keepdims=True), abs(grid.centre))
        rows = features / scale
        own_mean = grid.normalisation is Normalisation.CENTRED_UNIT
        rows -= rows.mean(axis=1, keepdims=True) if own_mean else grid.centre / scale
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        scaled = np.rint(rows * (grid.unit(features.shape[1]) / lengths))
    good = np.isfinite(scaled).all(axis=1) & (lengths[:, 0] > FLAT)
    integers = np.where(good[:, None], scaled, 0.0).astype(np.int64)
    integers[~_short(integers, grid.levels)] = 0
    return integers


def _short(block: NDArray[np.int64], levels: int) -> NDArray[np.bool_]:
    """Return whether Σ q² ≤ R_q², in int64: entries are ≤ 2²⁶, so 2¹¹ of them cannot overflow; sum in such pieces."""
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
    problem, remedy = f"the feature vector is longer than the public radius {grid.radius:.6g}", RAISE
    if not np.isfinite(features[index]).all():
        problem, remedy = "the feature vector has NaN or infinite entries", MEND
    if origin is None:
        raise BadRecord("features", index + 1, problem, remedy=remedy)
    raise origin.refusal(index, problem, remedy)


SIGNIFICANT_BITS = 8


def round_up(bound: float) -> float:
    """Round a positive bound on a norm up to 8 significant bits, with room for the norm's float64 rounding error."""
    mantissa, exponent = math.frexp(bound * (1.0 + 2.0**-40))
    return math.ldexp(math.ceil(math.ldexp(mantissa, SIGNIFICANT_BITS)), exponent - SIGNIFICANT_BITS)
