"""Signed integers ⇄ residues modulo 2^bits, and residues ⇄ packed bytes.

`Capacity` derives the ring's width from the plan alone, with the proof that no sum can wrap around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.layout import Integers
from secagg.errors import BadInput, CapacityExceeded, MalformedMessage

Residues = NDArray[Any]  # uint32 for rings of up to 32 bits, uint64 above


@dataclass(frozen=True)
class Ring:
    """The integers modulo 2^bits, with bits = 8, 16, …, 64.

    Sums are kept in machine words (uint32 or uint64), whose own wrap-around is a multiple of 2^bits;
    only packing cuts them to `bits`.
    """

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in range(8, 65, 8):
            raise BadInput(f"a ring has 8, 16, …, 64 bits, not {self.bits}")

    @property
    def entry_bytes(self) -> int:
        """Number of bytes of one packed entry."""
        return self.bits // 8

    @property
    def word(self) -> np.dtype[Any]:
        """The dtype that holds one residue in memory: uint32 for up to 32 bits, else uint64, little-endian."""
        return np.dtype("<u4") if self.bits <= 32 else np.dtype("<u8")

    def encode(self, values: Integers) -> Residues:
        """Return signed integers as residues. Raises CapacityExceeded for one outside −2^(bits−1) … 2^(bits−1) − 1."""
        if values.dtype != np.int64 or values.ndim != 1:
            raise BadInput(f"the ring encodes one-dimensional int64, got {values.dtype} of shape {values.shape}")
        if len(values) and self.bits < 64:
            low, high = int(values.min()), int(values.max())
            half = 1 << (self.bits - 1)
            if low < -half or high >= half:
                needed = 1 + max(max(high, 0).bit_length(), max(-low - 1, 0).bit_length())
                raise CapacityExceeded("an entry does not fit the ring", needed, self.bits, remedy="no bits are cut")
        return values.astype(np.int64, copy=True).view(np.uint64).astype(self.word)

    def decode(self, residues: Residues) -> Integers:
        """Return the signed integers −2^(bits−1) ≤ v < 2^(bits−1) that the residues stand for."""
        shift = np.int64(64 - self.bits)
        wide = residues.astype(np.uint64).view(np.int64)
        return np.asarray((wide << shift) >> shift, dtype=np.int64)

    def pack(self, residues: Residues) -> bytes:
        """Return the residues as `entry_bytes` little-endian bytes for each entry."""
        words = np.ascontiguousarray(residues, dtype=self.word)
        if self.entry_bytes == self.word.itemsize:
            return words.tobytes()
        octets = words.view(np.uint8).reshape(len(words), self.word.itemsize)
        packed = np.empty((len(words), self.entry_bytes), dtype=np.uint8)
        for place in range(self.entry_bytes):  # column by column: numpy copies short rows one at a time
            packed[:, place] = octets[:, place]
        return packed.tobytes()

    def unpack(self, packed: bytes | memoryview, length: int) -> Residues:
        """Return the `length` residues in packed bytes. Raises MalformedMessage for any other number of entries."""
        if len(packed) != length * self.entry_bytes:
            raise MalformedMessage("vector", f"{len(packed)} bytes are not {length} entries of {self.entry_bytes}")
        # Each word is read where its entry begins, with the first bytes of the next one in it, which the mask removes.
        filled = b"".join((packed, bytes(self.word.itemsize - self.entry_bytes)))
        words: Residues = np.ndarray((length,), dtype=self.word, buffer=filled, strides=(self.entry_bytes,))
        masked: Residues = words & self.word.type((1 << self.bits) - 1)
        return masked


LARGEST_RING = 64


@dataclass(frozen=True)
class Capacity:
    """The bound on the absolute value of any entry of a sum, from which the width of the ring follows.

    `clients` × `records` (per client) × `bound` (per record and entry) + `noise` (0 without noise).
    """

    clients: int
    records: int
    bound: int
    noise: int = 0

    @property
    def largest(self) -> int:
        """Largest absolute value of an entry: clients · records per client · bound per record + noise."""
        return self.clients * self.records * self.bound + self.noise

    def ring(self) -> Ring:
        """Return the smallest ring of whole bytes that no entry can wrap around: `largest` < 2^(bits−1).

        Raises CapacityExceeded when 64 bits are not enough.
        """
        needed = self.largest.bit_length() + 1
        if needed > LARGEST_RING:
            raise CapacityExceeded(
                "the ring of the sum (bits)", needed, LARGEST_RING, remedy="lower max_records, clients or levels"
            )
        return Ring(-(-needed // 8) * 8)

    def proof(self) -> str:
        """Return one line of arithmetic, to check by hand, which shows that no entry of the sum can wrap around."""
        bits = self.ring().bits
        terms = f"{self.clients} clients × {self.records} records × {self.bound} per record and entry"
        noise = f" + {self.noise} noise" if self.noise else ""
        return f"|sum| ≤ {terms}{noise} = {self.largest} < 2^{bits - 1}: a ring of {bits} bits cannot wrap"
