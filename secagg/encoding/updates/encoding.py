"""A member's model update as integers whose length is checked, and the opened sum of such integers as an update.

Also the other way to integers: gradients of single records, each made integers by itself and added exactly. Random
rounding would not do there: it bounds the length of what was rounded, not how far one record moves a rounded sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.updates.rotation import Rotation, blocks_of
from secagg.encoding.updates.rounding import longest, round_randomly, truncate
from secagg.errors import BadInput
from secagg.randomness import RandomSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_LEVELS = 1 << 26
"""Squared lengths stay below 2⁵³, where float64 compares sums of squares of integers exactly."""
CLIPPED_ENTRIES = 2.0**-30
"""Chance that any entry of an update of full length is clipped at the usual `entry`."""
CHUNK_ENTRIES = 1 << 18
LEAST_EXPONENT = -1000
"""2¹⁰⁰⁰ is a float64, and what is still small after it needs no exact square."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """`integers` (padded,) of one update. The rest is for the member's own eyes: it tells of the data.

    `shortened`: the update was longer than the clip, or not finite (all zeros). `clipped_entries`: entries after
    rotation that were larger than the plan allows.
    """

    integers: Integers
    shortened: bool
    clipped_entries: int


@dataclass(frozen=True)
class UpdateEncoding:
    """The encoding of updates of `size` entries as integers; everything public, from the plan.

    An update is clipped to L2 length `clip` S (its own units), which is `levels` grid units (1 to 2²⁶), rotated under
    `seed`, clipped to ±`entry` in each entry (1 to `levels`) and rounded at random. So Σz² ≤ `squared_bound` and
    |z_j| ≤ `entry` hold for the integers of every update, whatever it holds: the first is what a sensitivity states,
    the second proves that a ring of members·entry cannot wrap.
    """

    size: int
    clip: float
    levels: int
    entry: int
    seed: bytes

    def __post_init__(self) -> None:
        _check_grid(self.clip, self.levels)
        if not 1 <= self.entry <= self.levels:
            raise BadInput(f"the largest entry is {self.entry}", remedy=f"give 1 to {self.levels}, as many as levels")
        longest(self.levels, self.padded)

    @staticmethod
    def usual_entry(size: int, levels: int) -> int:
        """An `entry` that clips nothing of an update with probability ≥ 1 − 2⁻³⁰ over the seed, whatever the update.

        An entry of a rotated block of m is Σ ±x_i/√m: above t with probability ≤ 2·exp(−t²m/(2‖x‖²)) (Hoeffding
        1963). Over all d padded entries, with the whole length in the smallest block:
        t = levels·√(2 ln(2d/2⁻³⁰)/m), at most `levels`. A proposal for the plan, so it need not be the same everywhere.
        """
        blocks = blocks_of(size)
        spread = math.sqrt(2 * math.log(2 * sum(blocks) / CLIPPED_ENTRIES) / blocks[-1])
        return min(levels, math.ceil(levels * spread))

    @property
    def padded(self) -> int:
        """Number of integers of an update."""
        return self._rotation.padded

    @cached_property
    def squared_bound(self) -> int:
        """Δ²: Σz² of one encoded update is at most this, in squared grid units."""
        return longest(self.levels, self.padded)

    @property
    def length(self) -> float:
        """Δ in grid units, rounded up: zeros in place of an update move the sum by at most this."""
        root = math.isqrt(self.squared_bound)
        return float(root if root**2 == self.squared_bound else math.nextafter(math.sqrt(self.squared_bound), math.inf))

    def encode(self, update: Floats, randomness: RandomSource) -> Encoded:
        """Integers of a float64 update (size,). One with NaN or infinite entries becomes zeros.

        Nothing that the update holds raises: an absence would tell of the data. Raises BadInput for another shape or
        type, which are public.
        """
        if update.dtype != np.float64 or update.shape != (self.size,):
            raise BadInput(f"an update is {self.size} float64 entries, got {update.dtype} of {update.shape}")
        scaled, shortened = _on_grid(update[None], self.clip, self.levels)
        rotated = self._rotation.apply(scaled[0])
        clipped = int(np.count_nonzero(np.abs(rotated) > self.entry))
        np.clip(rotated, -self.entry, self.entry, out=rotated)
        integers = round_randomly(rotated, self.squared_bound, randomness)
        return Encoded(integers, bool(shortened[0]), clipped)

    def decode(self, total: Integers) -> Floats:
        """The sum of updates (size,) for which an opened int64 sum (padded,) stands; the same bits on every machine.

        Un-rotated exactly, then times clip/levels. Raises BadInput for another shape or type, CapacityExceeded for
        entries that are too large (`Rotation.undo`).
        """
        return self._rotation.undo(total) * (self.clip / self.levels)

    @cached_property
    def _rotation(self) -> Rotation:
        return Rotation(self.size, self.seed)


def integers_of_records(gradients: Floats, clip: float, levels: int) -> Integers:
    """Each record's float64 gradient, a row of (n, size), as int64 by a rule that looks at this record alone.

    Clipped to L2 length `clip`, which is `levels` grid units (1 to 2²⁶), and truncated toward zero; Σz² ≤ levels² is
    compared exactly. Zeros stand for a row with NaN or infinite entries, and for one that errors of float64 would leave
    longer, which takes a row whose every entry falls onto the grid. Not rotated.
    """
    integers = np.empty(gradients.shape, dtype=np.int64)
    start = 0
    for chunk in _chunks_of_records(gradients, clip, levels):
        integers[start : start + len(chunk)] = chunk
        start += len(chunk)
    return integers


def sum_of_records(gradients: Floats, clip: float, levels: int) -> Integers:
    """The exact sum int64 (size,) of `integers_of_records`, made chunk by chunk: little memory beside the gradients.

    One record more or less moves it by an integer vector of length ≤ levels. |sum| ≤ n·levels < 2⁶³ for any n that
    fits into memory.
    """
    total = np.zeros(gradients.shape[1:], dtype=np.int64)
    for chunk in _chunks_of_records(gradients, clip, levels):
        total += chunk.sum(axis=0)
    return total


def _chunks_of_records(gradients: Floats, clip: float, levels: int) -> Iterator[Integers]:
    _check_grid(clip, levels)
    if gradients.dtype != np.float64 or gradients.ndim != 2:
        raise BadInput(f"gradients are float64 of (records, entries), got {gradients.dtype} of {gradients.shape}")
    rows = max(1, CHUNK_ENTRIES // max(1, gradients.shape[1]))
    for start in range(0, len(gradients), rows):
        scaled, _ = _on_grid(gradients[start : start + rows], clip, levels)
        np.trunc(scaled, out=scaled)
        scaled[np.einsum("ij,ij->i", scaled, scaled) > levels**2] = 0.0  # exact, as in `rounding.is_within`
        yield truncate(scaled)


def _on_grid(rows: Floats, clip: float, levels: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Rows (n, d) in grid units, clipped to `levels` of them; and which rows were changed. Not finite: zeros.

    Rows are first divided by a power of two near their largest entry, so that no square overflows.
    """
    with np.errstate(all="ignore"):
        rows = np.ascontiguousarray(rows)  # sums along a row must not depend on the layout
        peak = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
        exponent = np.maximum(np.frexp(peak)[1], LEAST_EXPONENT)
        scaled = rows * np.ldexp(1.0, -exponent)
        length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
        longer = np.ldexp(length, exponent) > clip
        scaled *= np.where(longer, levels / length, np.ldexp(levels / clip, exponent))
    infinite = ~np.isfinite(peak)
    scaled[infinite[:, 0]] = 0.0
    return scaled, (longer | infinite)[:, 0]


def _check_grid(clip: float, levels: int) -> None:
    if not 1 <= levels <= MAX_LEVELS:
        raise BadInput(f"the grid has {levels} levels", remedy=f"give 1 to {MAX_LEVELS}")
    if not (math.isfinite(clip) and clip > 0 and math.isfinite(levels / clip) and clip / levels > 0):
        raise BadInput(f"the clip is {clip}", remedy="give a finite number above 0")
