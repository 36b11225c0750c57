"""ReLU random features: a fixed public projection, computed exactly, so that a record's features ignore its batch.

h = max(0, x P) (Rahimi & Recht 2007; used before a closed-form head by McDonnell et al. 2023). Floating-point
products depend on how BLAS cuts the batch; here both factors are integers, so every order gives the same bits.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from secagg.errors import BadInput, CapacityExceeded
from secagg.features.backbone import Features, digest_of

SEED = "secagg random features v1"
MANTISSA_BITS = 21
"""Bits of an entry's mantissa: a record is rounded to so many below its largest entry, so |x_int| ≤ 2²¹."""
ENTRY_BITS = 8
"""Binary scale of the projection: its entries have standard deviation 209 ≈ 0.8 · 2⁸, undone by division by 2⁸."""
MAX_ENTRY = 1020
BLOCK_ENTRIES = 1 << 24
MAX_SIZE = 1 << 16


@dataclass(frozen=True)
class Expansion:
    """An expansion of features (n, d) to random features (n, size), 1 ≤ size ≤ 65,536.

    Per record, with e the binary exponent of its largest |entry| (2^(e-1) ≤ max < 2^e):
    x_int = rint(f · 2^(21-e)), h = max(0, x_int P) · 2^(e-29). P (d, size) has integer entries, each the
    sum of eight bytes of a SHAKE-256 stream minus 1020 (mean 0, standard deviation 209). The product runs
    in float64 and is exact: |x_int| ≤ 2²¹ and |P| ≤ 1020, so every partial sum, in any order, is an
    integer of at most d · 2²¹ · 1020, which is below 2⁵³ for d ≤ 4,210,752; a larger d is refused
    (CapacityExceeded). All scalings are powers of two, exact as well.
    """

    size: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MAX_SIZE:
            raise BadInput(f"cannot expand to {self.size} features", remedy=f"give 1 to {MAX_SIZE}")

    @property
    def digest(self) -> str:
        """SHA-256 of the expansion's seed, size and constants; the backbone's digest fixes the input dimension d."""
        return digest_of(f"{SEED}: size {self.size}, {MANTISSA_BITS} bits, 8 bytes - {MAX_ENTRY}, 2^-{ENTRY_BITS}")

    def expand(self, features: Features) -> Features:
        """Map features (n, d) to (n, size) ≥ 0; a record with a NaN or infinite entry becomes NaN."""
        projection = projection_of(features.shape[1], self.size)
        expanded = np.empty((len(features), self.size))
        rows = max(1, BLOCK_ENTRIES // max(self.size, features.shape[1]))
        for start in range(0, len(features), rows):
            block = features[start : start + rows]
            peak = np.abs(block).max(axis=1, keepdims=True)
            peak[~np.isfinite(peak)] = np.nan
            exponent = np.frexp(peak)[1]
            integers = np.rint(np.ldexp(np.where(np.isnan(peak), np.nan, block), MANTISSA_BITS - exponent))
            product = np.maximum(integers @ projection, 0.0)
            expanded[start : start + rows] = np.ldexp(product, exponent - MANTISSA_BITS - ENTRY_BITS)
        return expanded

    def bound(self, input_dimension: int, input_bound: float) -> float:
        """Return the public L2 bound of an expanded record whose input (d,) has L2 norm ≤ `input_bound`.

        Rounding to 21 bits adds at most 2^(e-22) ≤ max · 2^-21 per entry, √d · 2^-21 of the norm; ReLU
        shortens; P stretches by at most its largest singular value.
        """
        from scipy.linalg import eigvalsh

        projection = projection_of(input_dimension, self.size)
        gram = projection @ projection.T if input_dimension <= self.size else projection.T @ projection
        largest = float(eigvalsh(gram, subset_by_index=(len(gram) - 1, len(gram) - 1))[0])
        rounding = 1.0 + input_dimension**0.5 * 2.0**-MANTISSA_BITS + 1e-9
        return float(input_bound * rounding * largest**0.5 * 2.0**-ENTRY_BITS)


@lru_cache(maxsize=2)
def projection_of(dimension: int, size: int) -> Features:
    """Return the public projection matrix P (dimension, size), integers as read-only float64."""
    largest = dimension * 2**MANTISSA_BITS * MAX_ENTRY
    if largest >= 2**53:
        raise CapacityExceeded("the exact random projection", largest, 2**53 - 1, remedy="use fewer input features")
    stream = hashlib.shake_256(f"{SEED}: {dimension} x {size}".encode()).digest(8 * dimension * size)
    sums = np.frombuffer(stream, dtype=np.uint8).reshape(dimension, size, 8).sum(axis=2, dtype=np.int64)
    projection: Features = (sums - MAX_ENTRY).astype(np.float64)
    projection.flags.writeable = False
    return projection
