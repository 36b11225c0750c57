"""The public randomised Hadamard transform, in blocks: it spreads a vector's length evenly over its entries.

In a block of m = 2^k entries y = H·D·x/√m, with D a diagonal of random signs and H the Walsh–Hadamard matrix in natural
order (H = [[1, 1], [1, −1]] ⊗ … ⊗ [[1, 1], [1, −1]], as `scipy.linalg.hadamard`). H·H = m, so x = D·H·y/√m undoes it
(Ailon & Chazelle 2009; before secure sums: Kairouz, Liu & Steinke 2021). Forwards it runs in float64; backwards, where
everybody must get the same bits, in int64.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg.crypto.labels import labelled
from secagg.errors import BadInput, CapacityExceeded

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Number = TypeVar("Number", np.float64, np.int64)

LARGEST_BLOCK = 1 << 16
"""Two buffers of a block are 1 MiB: they stay in a core's cache during all levels of the transform."""
SMALLEST_STEP = 64
PADDING_PARTS = 50
SEED_BYTES = 32


def blocks_of(size: int) -> tuple[int, ...]:
    """The blocks of a vector of `size` ≥ 1 entries: powers of two, at most 2¹⁶ each, the largest first.

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
    """The rotation of `size` entries under a public `seed` of 32 bytes; equal arguments, equal rotation.

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
        """The sizes of the blocks, in order (`blocks_of`)."""
        return blocks_of(self.size)

    @cached_property
    def padded(self) -> int:
        """Number of rotated entries: `size` and the zeros after it that fill the last block."""
        return sum(self.blocks)

    @cached_property
    def _signs(self) -> NDArray[np.int8]:
        """±1 for each padded entry."""
        stream = hashlib.shake_256(labelled("rotation", self.seed)).digest(-(-self.padded // 8))
        bits = np.unpackbits(np.frombuffer(stream, np.uint8), count=self.padded, bitorder="little")
        return 1 - 2 * bits.view(np.int8)

    def apply(self, vector: Floats) -> Floats:
        """Rotate a float64 vector (size,) to (padded,), of the same length up to rounding."""
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
        """Turn int64 (padded,) back to float64 (size,): the exact integer transform, signs, one division by √m.

        The same bits on every machine: all partial sums are integers of absolute value ≤ m·max|total|, which int64
        holds below 2⁶³; after it come a rounding to float64 and a correctly rounded division by a correctly rounded
        √m. Raises CapacityExceeded when a block's m·max|total| is 2⁶³ or more.
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
        """Where each block lies in the padded vector."""
        start = 0
        for block in self.blocks:
            yield slice(start, start + block)
            start += block


def _transform(values: NDArray[Number]) -> NDArray[Number]:
    """H·values for m = 2^k values, by k levels of additions and subtractions; `values` is overwritten.

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
