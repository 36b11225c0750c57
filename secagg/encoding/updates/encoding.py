"""Encoding of a client's model update as integers of bounded length, and decoding of their opened sum.

Also the other way to integers: gradients of single records, each made integers by itself and added exactly. Random
rounding would not do there: it bounds the length of what was rounded, not how far one record moves a rounded sum.

The public randomised Hadamard transform spreads a vector's length evenly over its entries. In a block of m = 2^k
entries y = H·D·x/√m, with D a diagonal of random signs and H the Walsh–Hadamard matrix in natural order (H = [[1, 1],
[1, −1]] ⊗ … ⊗ [[1, 1], [1, −1]], as `scipy.linalg.hadamard`). H·H = m, so x = D·H·y/√m undoes it (Ailon & Chazelle
2009; before secure sums: Kairouz, Liu & Steinke 2021). Forwards it runs in float64; backwards, where everybody must get
the same bits, in int64.

Conditional randomised rounding makes integers without bias, within a length stated beforehand (Kairouz, Liu & Steinke
2021, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation", arXiv 2102.06387,
Algorithm 1 and Proposition 22 on its length), with γ = 1 and β = e^(−1/2). What a sensitivity relies on is the
comparison of integers made here, never the length of a real vector.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg.crypto.labels import labelled
from secagg.errors import BadInput, CapacityExceeded
from secagg.randomness import RandomSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Gradients = NDArray[np.float32] | NDArray[np.float64]

MAX_LEVELS = 1 << 26
"""The most levels: squared lengths stay below 2⁵³, where float64 compares sums of squares of integers exactly."""
CLIPPED_ENTRIES = 2.0**-30
"""Probability that any entry of an update of full length is clipped at the usual `entry`."""
CHUNK_ENTRIES = 1 << 18
EXACT = 1 << 53
"""The largest integer up to which float64 holds all integers, 2⁵³."""
LEAST_EXPONENT = -1000
"""The least exponent of a scale: 2¹⁰⁰⁰ is a float64, and numbers still small after it need no exact square."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """A client's encoded update: the `integers` (padded,) to sum, and private facts on the clipping of it.

    `shortened`: the update was longer than the clip, or not finite (all zeros). `clipped_entries`: entries after
    rotation that were larger than the plan allows.
    """

    integers: Integers
    shortened: bool
    clipped_entries: int


@dataclass(frozen=True)
class UpdateEncoding:
    """The public parameters that encode updates of `size` entries as integers; all of them follow from the plan.

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
        """Return a limit on rotated entries that clips no update, with probability ≥ 1 − 2⁻³⁰ over the seed.

        An entry of a rotated block of m is Σ ±x_i/√m: above t with probability ≤ 2·exp(−t²m/(2‖x‖²)) (Hoeffding
        1963). Over all d padded entries, with the whole length in the smallest block:
        t = levels·√(2 ln(2d/2⁻³⁰)/m), at most `levels`. A proposal for the plan, so it need not be the same everywhere.
        """
        blocks = blocks_of(size)
        spread = math.sqrt(2 * math.log(2 * sum(blocks) / CLIPPED_ENTRIES) / blocks[-1])
        return min(levels, math.ceil(levels * spread))

    @property
    def padded(self) -> int:
        """Number of integers of one encoded update, padding included."""
        return self._rotation.padded

    @cached_property
    def squared_bound(self) -> int:
        """Bound Δ² on the squared L2 norm Σz² of one encoded update, in squared grid units."""
        return longest(self.levels, self.padded)

    @property
    def length(self) -> float:
        """L2 norm bound Δ of an encoded update in grid units, rounded up; zeroing an update moves the sum by ≤ Δ."""
        root = math.isqrt(self.squared_bound)
        return float(root if root**2 == self.squared_bound else math.nextafter(math.sqrt(self.squared_bound), math.inf))

    def encode(self, update: Floats, randomness: RandomSource) -> Encoded:
        """Encode a float64 update (size,) as integers. An update with NaN or infinite entries becomes zeros.

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
        """Decode an opened int64 sum (padded,) to the sum of updates (size,); the same bits on every machine.

        Un-rotated exactly, then times clip/levels. Raises BadInput for another shape or type, CapacityExceeded for
        entries that are too large (`Rotation.undo`).
        """
        return self._rotation.undo(total) * (self.clip / self.levels)

    @cached_property
    def _rotation(self) -> Rotation:
        return Rotation(self.size, self.seed)


def integers_of_records(gradients: Gradients, clip: float, levels: int) -> Integers:
    """Clip and round each record's gradient, a row of (n, size), to int64, independently of other records.

    Clipped to L2 length `clip`, which is `levels` grid units (1 to 2²⁶), and truncated toward zero; Σz² ≤ levels² is
    compared exactly. Zeros stand for a row with NaN or infinite entries, and for one that errors of float64 would leave
    longer, which takes a row whose every entry falls onto the grid. Not rotated.
    """
    none = np.zeros((0, *gradients.shape[1:]), dtype=np.int64)
    return np.concatenate([none, *(rows.astype(np.int64) for rows in _chunks_of_records(gradients, clip, levels))])


def sum_of_records(gradients: Gradients, clip: float, levels: int) -> Integers:
    """Add up the records' gradients, made integers by `integers_of_records`, exactly to int64 (size,), in small chunks.

    One record more or less moves it by an integer vector of length ≤ levels. |sum| ≤ n·levels ≤ 2⁵³ for at most 2²⁷
    records, which float64 holds exactly on the way. Raises BadInput for more.
    """
    if len(gradients) > EXACT // MAX_LEVELS:
        raise BadInput(f"{len(gradients)} records at once", remedy=f"add up at most {EXACT // MAX_LEVELS}")
    total = np.zeros(gradients.shape[1:])
    for rows in _chunks_of_records(gradients, clip, levels):
        total += rows.sum(axis=0)
    return total.astype(np.int64)


def _chunks_of_records(gradients: Gradients, clip: float, levels: int) -> Iterator[Floats]:
    """Yield the integers of some records after those of others, in float64, which holds them exactly."""
    _check_grid(clip, levels)
    if gradients.dtype not in (np.float32, np.float64) or gradients.ndim != 2:
        raise BadInput(f"gradients are floats of (records, entries), got {gradients.dtype} of {gradients.shape}")
    count = max(1, CHUNK_ENTRIES // max(1, gradients.shape[1]))
    for start in range(0, len(gradients), count):
        scaled, _ = _on_grid(gradients[start : start + count].astype(np.float64, copy=False), clip, levels)
        np.trunc(scaled, out=scaled)
        scaled[np.vecdot(scaled, scaled) > levels**2] = 0.0  # exact, as in `is_within`
        yield scaled


def _on_grid(rows: Floats, clip: float, levels: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return rows (n, d) in grid units, clipped to `levels` (zeros if not finite), and which rows were changed.

    Rows are first divided by a power of two near their largest entry, so that no square overflows.
    """
    with np.errstate(all="ignore"):
        rows = np.ascontiguousarray(rows)  # sums along a row must not depend on the layout
        highest, lowest = (which(rows, axis=1, keepdims=True, initial=0.0) for which in (np.max, np.min))
        peak = np.maximum(highest, -lowest)
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


TRIES = 20
"""The number of tries: one fails with probability ≤ e^(−1/2), all of them with at most 5·10⁻⁵."""
DIGIT = 1 << 16
PART = 1 << 14
"""The number of entries that are rounded at once: all arrays of this work stay in a core's cache."""
_ROOT_SCALE = 1 << 32


def longest(length: float, size: int) -> int:
    """Return a bound Δ² on Σz² for the rounding z of a vector with L2 norm `length` ≥ 0 grid units, `size` ≥ 1 entries.

    c = `length` and d = `size`, which counts the padding. Δ² = ⌊min((c + √d)², c² + d/4 + c + √d/2)⌋: every rounding
    keeps the first; the second, c² + d/4 + √(2 ln(1/β))·(c + √d/2), is exceeded with probability ≤ β = e^(−1/2).
    Computed with rationals, √d rounded up by at most 2⁻³²: the same on every machine, and at least c², so that
    truncation always fits. The bound is safe however it is rounded, for it is what a rounded vector is compared with.
    Raises CapacityExceeded for Δ² ≥ 2⁵³.
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
    """Round a vector x at random to neighbouring integers z with mean x; redraw until Σz² ≤ `squared_bound` < 2⁵³.

    After 20 failures toward zero. Never raises for what the vector holds: one that is too long even then, or not
    finite, becomes zeros. The draw is exactly unbiased; the condition, which is what bounds the length, leaves a bias
    of length ≤ β/(1 − β)·√d (the paper's Proposition 22), and hardly any where it hardly ever fails.
    """
    if not 0 <= squared_bound < EXACT:
        raise BadInput(f"a squared length of {squared_bound} cannot be compared exactly")
    with np.errstate(all="ignore"):
        if not is_within(truncated := np.trunc(vector), squared_bound):
            return np.zeros(len(vector), dtype=np.int64)
        for _ in range(TRIES):
            rounded = _to_neighbours(vector, randomness)
            if is_within(rounded, squared_bound):
                return rounded.astype(np.int64)
    return truncated.astype(np.int64)


def is_within(integers: Floats, squared_bound: int) -> bool:
    """Return whether Σz² ≤ `squared_bound` < 2⁵³ for integers z in float64, decided exactly. NaN is not within.

    In whatever order the sum is taken its partial sums are exact below 2⁵³, and as terms are ≥ 0 a sum that has
    reached 2⁵³ does not fall below it again.
    """
    return bool(np.dot(integers, integers) <= squared_bound)


def _to_neighbours(vector: Floats, randomness: RandomSource) -> Floats:
    """Return each entry rounded by a coin of its own, some entries after the others."""
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
    """Return independent coins that are heads with exactly these chances (n,), 0 ≤ p < 1.

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


Number = TypeVar("Number", np.float64, np.int64)

LARGEST_BLOCK = 1 << 16
"""The size of the largest block: two buffers of it are 1 MiB and stay in a core's cache during all levels."""
SMALLEST_STEP = 64
PADDING_PARTS = 50
SEED_BYTES = 32


def blocks_of(size: int) -> tuple[int, ...]:
    """Return the block sizes of a rotation of `size` ≥ 1 entries: powers of two, at most 2¹⁶ each, the largest first.

    The size is rounded up to a multiple of s, the largest power of two ≤ size/50, but at least 64 and at most 2¹⁶
    (below 64 entries: the next power of two). As many blocks of 2¹⁶ as fit are followed by the binary digits of the
    rest. So at most 2 % or 63 entries are padding, and no block is smaller than s: the smaller a block, the larger its
    entries can be (`UpdateEncoding.usual_entry`).
    """
    if size < 1:
        raise BadInput(f"cannot rotate {size} entries")
    step = max((1 << (size // PADDING_PARTS).bit_length()) >> 1, SMALLEST_STEP)
    step = min(step, LARGEST_BLOCK, 1 << (size - 1).bit_length())
    whole, rest = divmod(-(-size // step) * step, LARGEST_BLOCK)
    digits = (1 << digit for digit in reversed(range(rest.bit_length())))
    return (LARGEST_BLOCK,) * whole + tuple(digit for digit in digits if rest & digit)


@dataclass(frozen=True)
class Rotation:
    """The randomised Hadamard rotation of `size` entries that a public `seed` of 32 bytes determines.

    Signs are bits of SHAKE-256 of the labelled seed, lowest bit of a byte first: 1 stands for −1.
    """

    size: int
    seed: bytes

    def __post_init__(self) -> None:
        if len(self.seed) != SEED_BYTES:
            raise BadInput(f"the seed of a rotation has {SEED_BYTES} bytes, not {len(self.seed)}")
        blocks_of(self.size)

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Sizes of the blocks that are rotated separately, in order (`blocks_of`)."""
        return blocks_of(self.size)

    @cached_property
    def padded(self) -> int:
        """Number of entries after the rotation: `size`, and the zeros that pad the last block."""
        return sum(self.blocks)

    @cached_property
    def _signs(self) -> NDArray[np.int8]:
        """Return the sign ±1 of each padded entry."""
        stream = hashlib.shake_256(labelled("rotation", self.seed)).digest(-(-self.padded // 8))
        bits = np.unpackbits(np.frombuffer(stream, np.uint8), count=self.padded, bitorder="little")
        return 1 - 2 * bits.view(np.int8)

    def apply(self, vector: Floats) -> Floats:
        """Rotate a float64 vector (size,) to (padded,); its L2 norm stays the same but for rounding."""
        if vector.dtype != np.float64 or vector.shape != (self.size,):
            raise BadInput(f"the rotation takes {self.size} float64 entries, got {vector.dtype} of {vector.shape}")
        rotated = np.empty(self.padded)
        for at in self._places():
            part = vector[at]
            signed = np.zeros(at.stop - at.start)
            np.multiply(part, self._signs[at][: len(part)], out=signed[: len(part)])
            np.divide(_transform(signed), math.sqrt(len(signed)), out=rotated[at])
        return rotated

    def undo(self, total: Integers) -> Floats:
        """Rotate an int64 vector (padded,) back to float64 (size,).

        The exact integer transform, signs, one division by √m. The same bits on every machine: all partial sums are
        integers of absolute value ≤ m·max|total|, which int64 holds below 2⁶³; after it come a rounding to float64 and
        a correctly rounded division by a correctly rounded √m. Raises CapacityExceeded when a block's m·max|total| is
        2⁶³ or more.
        """
        if total.dtype != np.int64 or total.shape != (self.padded,):
            raise BadInput(f"the rotation undoes {self.padded} int64 entries, got {total.dtype} of {total.shape}")
        vector = np.empty(self.size)
        for at in self._places():
            block = total[at]
            largest = len(block) * max(int(block.max()), -int(block.min()))
            if largest >= 1 << 63:
                raise CapacityExceeded("undoing a rotation in int64", largest, (1 << 63) - 1, remedy="lower the levels")
            part = vector[at]
            np.divide(_transform(block.copy())[: len(part)], math.sqrt(len(block)), out=part)
            part *= self._signs[at][: len(part)]
        return vector

    def _places(self) -> Iterator[slice]:
        """Return the place of each block in the padded vector."""
        start = 0
        for block in self.blocks:
            yield slice(start, start + block)
            start += block


def _transform(values: NDArray[Number]) -> NDArray[Number]:
    """Return H·values for m = 2^k values, by k levels of additions and subtractions; `values` is overwritten.

    Each level replaces the lowest bit of every index by its transform and moves it to the top; after k levels the
    bits are in their places again (constant geometry, Pease 1968). Its long strides are fast whatever the level.
    """
    half = len(values) // 2
    spare = np.empty_like(values)
    for _ in range(half.bit_length()):
        even, odd = values[0::2], values[1::2]
        np.add(even, odd, out=spare[:half])
        np.subtract(even, odd, out=spare[half:])
        values, spare = spare, values
    return values
