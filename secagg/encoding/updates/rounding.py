"""Real vectors in grid units → integers: at random without bias, within a length that is stated beforehand.

Conditional randomised rounding (Kairouz, Liu & Steinke 2021, "The Distributed Discrete Gaussian Mechanism for Federated
Learning with Secure Aggregation", arXiv 2102.06387, Algorithm 1 and Proposition 22 on its length), with γ = 1 and
β = e^(−1/2). What a sensitivity relies on is the comparison of integers made here, never the length of a real vector.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput, CapacityExceeded
from secagg.randomness import RandomSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

EXACT = 1 << 53
"""Every integer up to 2⁵³ in absolute value is a float64."""
TRIES = 20
"""One try fails with probability ≤ e^(−1/2), so that all of them do with at most 5·10⁻⁵."""
DIGIT = 1 << 16
PART = 1 << 14
"""Entries that are rounded at once: all that this takes stays in a core's cache."""
_ROOT_SCALE = 1 << 32


def longest(length: float, size: int) -> int:
    """Δ², the largest Σz² of a rounded vector: `length` c ≥ 0 in grid units, `size` d ≥ 1 counts the padding.

    Δ² = ⌊min((c + √d)², c² + d/4 + c + √d/2)⌋: every rounding keeps the first; the second, c² + d/4 +
    √(2 ln(1/β))·(c + √d/2), is exceeded with probability ≤ β = e^(−1/2). Computed with rationals, √d rounded up by at
    most 2⁻³²: the same on every machine, and at least c², so that truncation always fits. The bound is safe however it
    is rounded, for it is what a rounded vector is compared with. Raises CapacityExceeded for Δ² ≥ 2⁵³.
    """
    if not (math.isfinite(length) and length >= 0 and size >= 1):
        raise BadInput(f"nothing is rounded with length {length} and {size} entries")
    c = Fraction(length)
    root = Fraction(math.isqrt(size * _ROOT_SCALE**2 - 1) + 1, _ROOT_SCALE)
    bound = math.floor(min((c + root) ** 2, c * c + Fraction(size, 4) + c + root / 2))
    if bound >= EXACT:
        raise CapacityExceeded("the squared length of a rounded vector", bound, EXACT - 1, remedy="lower the levels")
    return bound


def round_randomly(vector: Floats, squared_bound: int, randomness: RandomSource) -> Integers:
    """Round each entry to a neighbouring integer z with E z = x, drawn anew until Σz² ≤ `squared_bound` < 2⁵³.

    After 20 failures toward zero. Never raises for what the vector holds: one that is too long even then, or not
    finite, becomes zeros. The draw is exactly unbiased; the condition, which is what bounds the length, leaves a bias
    of length ≤ β/(1 − β)·√d (the paper's Proposition 22), and hardly any where it hardly ever fails.
    """
    if not 0 <= squared_bound < EXACT:
        raise BadInput(f"a squared length of {squared_bound} cannot be compared exactly")
    with np.errstate(all="ignore"):
        if not is_within(np.trunc(vector), squared_bound):
            return np.zeros(len(vector), dtype=np.int64)
        for _ in range(TRIES):
            rounded = _to_neighbours(vector, randomness)
            if is_within(rounded, squared_bound):
                return rounded.astype(np.int64)
    return truncate(vector)


def truncate(vector: Floats) -> Integers:
    """Round each entry, |x| < 2⁶³, toward zero: no vector becomes longer."""
    return np.trunc(vector).astype(np.int64)


def is_within(integers: Floats, squared_bound: int) -> bool:
    """Whether Σz² ≤ `squared_bound` < 2⁵³ for integers z held in float64; decided exactly. NaN is not within.

    In whatever order the sum is taken its partial sums are exact below 2⁵³, and as terms are ≥ 0 a sum that has
    reached 2⁵³ does not fall below it again.
    """
    return bool(np.dot(integers, integers) <= squared_bound)


def _to_neighbours(vector: Floats, randomness: RandomSource) -> Floats:
    """Each entry rounded by a coin of its own, some entries after the others."""
    rounded = np.empty_like(vector)
    for start in range(0, len(vector), PART):
        part = vector[start : start + PART]
        size = np.abs(part)
        whole = np.floor(size)
        size -= whole  # exact: the fraction of a float64 is one
        whole += _coins(size, randomness)
        np.copysign(whole, part, out=rounded[start : start + PART])
    return rounded


def _coins(chances: Floats, randomness: RandomSource) -> NDArray[np.bool_]:
    """Independent coins that are heads with exactly these chances (n,), 0 ≤ p < 1.

    A uniform number in [0, 1) is compared with p digit by digit in base 2¹⁶, two random bytes each, until two digits
    differ; that leaves one in 65,536 entries for the second round. Every step on p is exact in float64.
    """
    scaled = chances * DIGIT
    digits = scaled.astype(np.uint16)
    drawn = np.frombuffer(randomness.bytes(2 * len(chances)), dtype="<u2")
    heads = drawn < digits
    undecided = np.flatnonzero(drawn == digits)
    rest = scaled[undecided] - digits[undecided]
    undecided, rest = undecided[rest > 0], rest[rest > 0]
    if len(undecided):
        heads[undecided] = _coins(rest, randomness)
    return heads
