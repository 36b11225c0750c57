"""Exact sums of softmax gradients of whitened integer records, with each record's gradient clipped by itself.

What a record adds depends on that record and on public numbers alone, bit for bit: products are of integers and
below 2⁵³, sums along a row are in integers, and all that is rounded is rounded entry by entry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput, CapacityExceeded

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

EXACT = 1 << 53
ROWS = 8192
MAX_LEVELS = 1 << 24
"""The most levels R: R² of a record stays below 2⁵⁰, so that rounding cannot lengthen it (`_scale_rows`)."""
ROW_BITS = 20
"""A row is rounded to this many bits below its largest entry; Σ of d squares then fits in int64."""

RESIDUAL_LEVELS = 1 << 12
"""The clip of a residual, in integers."""
WEIGHT_BITS = 16
"""The number of bits of a weight's fraction: weights are integers of 2⁻¹⁶."""
TABLE_BITS = 10
"""The number of bits to which logits are rounded down, 2⁻¹⁰, before the exponential is looked up."""
TABLE_SPAN = 32
EXPONENTIALS: Integers = np.rint(np.exp(-np.arange((TABLE_SPAN << TABLE_BITS) + 1) / 2**TABLE_BITS) * 2**30).astype(
    np.int64
)
"""The table of exp(−i/1024) in units of 2⁻³⁰; e^−32 is 0 there."""


@dataclass(frozen=True, eq=False)
class Whitening:
    """A public whitening of integer records q (d,), ‖q‖₂ ≤ `input_levels`, to x (d+1,), ‖x‖₂ ≤ R_x = `levels`.

    z = q·`matrix` − `centre`, (d, d) and (d,) in integers; x is z stretched to length ≈ R_x √(d/(d+1)),
    followed by the constant ⌊R_x/√(d+1)⌋ that carries the bias. q = 0, a record that may not count, gives x = 0.
    Raises CapacityExceeded unless z is exact: ‖q‖ times the longest column, plus the centre, below 2⁵³.
    """

    matrix: Integers
    centre: Integers
    input_levels: int
    levels: int = 1 << 16

    def __post_init__(self) -> None:
        if self.matrix.shape != (len(self.centre), len(self.centre)):
            raise BadInput(f"a whitening is (d, d) and (d,), got {self.matrix.shape} and {self.centre.shape}")
        if not 2 * math.isqrt(len(self.centre) + 1) < self.levels <= MAX_LEVELS or self.input_levels < 1:
            raise BadInput(f"a whitening of {self.input_levels} to {self.levels} levels")
        columns = np.sqrt((self.matrix.astype(np.float64) ** 2).sum(axis=0))
        largest = self.input_levels * float(columns.max()) * (1 + 1e-9) + float(np.abs(self.centre).max())
        if largest >= EXACT:
            raise CapacityExceeded("an exact whitening", math.ceil(largest), EXACT - 1, remedy="scale the matrix down")

    @property
    def bias(self) -> int:
        """The constant last entry of whitened records; the weight on it is the bias."""
        return math.isqrt(self.levels**2 // (len(self.centre) + 1))

    def map(self, records: Integers) -> Mapped:
        """Whiten records (n, d) and check their lengths, as `softmax_gradient` requires. Raises BadInput."""
        return Mapped.of(self.apply(records), self.levels)

    def apply(self, records: Integers) -> Integers:
        """Whiten records (n, d) to int64 (n, d+1). Raises BadInput for a record that is longer than `input_levels`.

        Every partial sum of q·matrix, in any order, is an integer of at most ‖q‖₂‖column‖₂ < 2⁵³.
        """
        mapped = np.zeros((len(records), len(self.centre) + 1), dtype=np.int64)
        matrix, length = self.matrix.astype(np.float64), math.isqrt(self.levels**2 - self.bias**2)
        for start in range(0, len(records), ROWS):
            block = records[start : start + ROWS]
            _check_lengths(block, self.input_levels)
            moved = block.astype(np.float64) @ matrix - self.centre
            exponent = np.frexp(np.abs(moved).max(axis=1, keepdims=True))[1]
            rounded = np.rint(np.ldexp(moved, ROW_BITS - exponent)).astype(np.int64)
            counted = (block != 0).any(axis=1)
            rows = mapped[start : start + ROWS]
            rows[:, :-1] = np.where(counted[:, None], _scale_rows(rounded, length, None), 0)
            rows[:, -1] = np.where(counted, self.bias, 0)
        return mapped


@dataclass(frozen=True, eq=False)
class Mapped:
    """Whitened records x (n, D), integers in float64, whose lengths ‖x‖₂ ≤ R_x = `levels` have been checked."""

    values: Floats
    levels: int

    @classmethod
    def of(cls, records: Integers, levels: int) -> Mapped:
        """Check the lengths of whitened records, once, and wrap them. Raises BadInput for one longer than `levels`."""
        values = np.empty(records.shape)
        for start in range(0, len(records), ROWS):
            values[start : start + ROWS] = records[start : start + ROWS]
            _check_lengths(values[start : start + ROWS], levels)
        return cls(values, levels)


def softmax_gradient(records: Mapped, labels: Integers, weights: Integers, clip: float) -> Integers:
    """Return the int64 sum (C, D) of C classes' clipped softmax gradients r·xᵀ over whitened records x (n, D).

    ‖x‖₂ ≤ R_x, labels are (n,). `weights` (C, D) are public, in units of 2⁻¹⁶ per unit of x/R_x. r is the residual p −
    e_label of the softmax p, scaled down to ‖p − e‖₂ ≤ `clip` (0 < clip ≤ √2), and in units of clip/2¹²; so one record
    adds at most 2¹²·R_x in L2 norm, and the sum is 2¹²·R_x/clip times the gradient of the cross-entropy. Add/remove:
    that is the sensitivity. Replace-one: twice that (residuals can be opposite), not √2 times. Raises BadInput for
    records, labels or weights that do not fit together, CapacityExceeded for weights or numbers of records whose
    products or sums are not exact.
    """
    _check_arguments(records, labels, weights, clip)
    values, levels = records.values, records.levels
    rows = min(ROWS, (EXACT - 1) // (RESIDUAL_LEVELS * levels))
    gradient = np.zeros(weights.shape, dtype=np.int64)
    transposed = weights.T.astype(np.float64)
    for start in range(0, len(values), rows):
        chunk = values[start : start + rows]
        residuals = _residuals(chunk @ transposed, labels[start : start + rows], levels, clip)
        gradient += (residuals.T.astype(np.float64) @ chunk).astype(np.int64)
    return gradient


def largest_score(weights: Integers, levels: int) -> int:
    """Return an upper bound on a record's score (logit) at integer weights (C, D); below 2⁵³ scores are exact."""
    longest = math.sqrt(float((weights.astype(np.float64) ** 2).sum(axis=1).max(initial=0.0)))
    return math.ceil(levels * longest * (1 + 1e-9))


def _residuals(scores: Floats, labels: Integers, levels: int, clip: float) -> Integers:
    """Return clipped residuals (n, C) with ‖r‖₂ ≤ 2¹², from exact integer scores in units of 2⁻¹⁶/R_x."""
    behind = scores.max(axis=1, keepdims=True) - scores
    place = np.floor(behind / (levels * 2.0 ** (WEIGHT_BITS - TABLE_BITS)))
    shares = EXPONENTIALS[np.minimum(place, TABLE_SPAN << TABLE_BITS).astype(np.int64)]
    residuals = shares / shares.sum(axis=1, keepdims=True)
    residuals[np.arange(len(labels)), labels] -= 1.0
    fine = np.rint(residuals * 2**ROW_BITS).astype(np.int64)
    return _scale_rows(fine, RESIDUAL_LEVELS, clip * 2**ROW_BITS)


def _scale_rows(rows: Integers, length: int, full: float | None) -> Integers:
    """Scale integer rows so that a row of length `full` or more gets at most `length`; None: every row gets it.

    Σ row² is exact in int64. A row is multiplied by length/max(‖row‖, full) with a relative error below 2⁻⁵¹
    and cut towards zero, so Σ result² ≤ length²(1 + 2⁻⁵⁰) + 0; being an integer, with length² < 2⁵⁰, it is
    ≤ length². Rows of zeros stay.
    """
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows).astype(np.float64))
    divisor = np.maximum(norms, 1.0 if full is None else full)
    scaled: Integers = np.trunc(rows * (length / divisor)[:, None]).astype(np.int64)
    return scaled


def _check_arguments(records: Mapped, labels: Integers, weights: Integers, clip: float) -> None:
    (count, dimension), levels = records.values.shape, records.levels
    if weights.ndim != 2 or weights.shape[1] != dimension or not 0 < clip <= math.sqrt(2) or levels < 1:
        raise BadInput(f"weights {weights.shape} and clip {clip} for records of {dimension} numbers")
    if len(labels) != count or (count and not (labels.min() >= 0 and labels.max() < len(weights))):
        raise BadInput(f"{count} records need {count} labels from 0 to {len(weights) - 1}")
    largest = max(largest_score(weights, levels), RESIDUAL_LEVELS * levels)
    if levels > MAX_LEVELS or largest >= EXACT:
        raise CapacityExceeded("an exact score of one record", largest, EXACT - 1, remedy="use smaller weights")
    if count * RESIDUAL_LEVELS * levels >= 1 << 63:
        needed = count * RESIDUAL_LEVELS * levels
        raise CapacityExceeded("the gradient in int64", needed, (1 << 63) - 1, remedy="lower the levels")


def _check_lengths(block: Integers | Floats, levels: int) -> None:
    """Raise BadInput for a record longer than `levels`: float64 sums of squares decide below 2⁵³ exactly."""
    floats = block.astype(np.float64, copy=False)
    if len(block) and np.einsum("ij,ij->i", floats, floats).max() > levels * levels:
        raise BadInput(f"a record is longer than {levels} levels", remedy="make records with `quantise`")
