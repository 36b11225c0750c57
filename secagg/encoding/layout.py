"""Blocks (the named tensors of one sum) and their layout as one flat vector."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput

Integers = NDArray[np.int64]


class Kind(StrEnum):
    """The statistic that a block holds; gates, plausibility checks, audits and documents go by it, not by its name."""

    COUNTS = "counts"
    """Records in each cell: (C,), or (C, …) where classes are divided."""
    CLASS_SUMS = "class sums"
    """Sums of the records of each of these cells: the shape of the counts, then d."""
    SECOND_MOMENT = "second moment"
    """Upper triangle of Σ q·qᵀ, row by row: (d(d + 1)/2,)."""
    CENSUS = "census"
    """The number of clients that hold each cell; it tells nothing more of their records."""
    UPDATE = "update"
    """A step that clients computed from their records at public weights: gradients, or differences of models."""
    SCORE = "score"
    """A measure of how well a model did on clients' records."""
    OTHER = "other"
    """A statistic of which nothing more is known."""


@dataclass(frozen=True)
class Block:
    """One named tensor of a secure sum: its shape, the kind of statistic that it holds, and bounds on its entries.

    `bound` is the largest absolute value that one record can add to one entry (≥ 1); one client, in a sum per client.
    `multiplier` scales the integers before the sum so that they carry enough grid units of noise.
    """

    name: str
    shape: tuple[int, ...]
    bound: int
    kind: Kind
    multiplier: int = 1

    @property
    def size(self) -> int:
        """Number of entries of the block."""
        return math.prod(self.shape)


def sum_digest(vector: Integers) -> bytes:
    """Return the SHA-256 of a sum as little-endian int64 in layout order (`aggregate_sha256`), 32 bytes."""
    return hashlib.sha256(vector.astype("<i8").tobytes()).digest()


@dataclass(frozen=True)
class Layout:
    """The order in which a sum's blocks (named tensors) are concatenated into one flat vector."""

    blocks: tuple[Block, ...]

    @property
    def length(self) -> int:
        """Number of entries of the flat vector."""
        return sum(block.size for block in self.blocks)

    @property
    def bound(self) -> int:
        """Largest absolute value that one record can add to any entry of the flat vector."""
        return max(block.bound * block.multiplier for block in self.blocks)

    def flatten(self, tensors: Mapping[str, Integers]) -> Integers:
        """Concatenate named tensors to the flat int64 vector, in layout order, each scaled by its integer multiplier.

        Raises BadInput when a block is missing, unknown, of another shape or not int64.
        """
        names = {block.name for block in self.blocks}
        if set(tensors) != names:
            raise BadInput(f"the layout holds the blocks {sorted(names)}, got {sorted(tensors)}")
        flat = np.empty(self.length, dtype=np.int64)
        start = 0
        for block in self.blocks:
            tensor = tensors[block.name]
            if tensor.dtype != np.int64 or tensor.shape != block.shape:
                raise BadInput(
                    f"block {block.name} is int64 of shape {block.shape}, got {tensor.dtype} of shape {tensor.shape}"
                )
            np.multiply(tensor.reshape(-1), block.multiplier, out=flat[start : start + block.size])
            start += block.size
        return flat

    def split(self, flat: Integers) -> dict[str, Integers]:
        """Split the flat vector into its named tensors, which stay scaled by their integer multipliers."""
        if flat.dtype != np.int64 or flat.shape != (self.length,):
            raise BadInput(f"the layout needs {self.length} int64 entries, got {flat.dtype} of shape {flat.shape}")
        tensors: dict[str, Integers] = {}
        start = 0
        for block in self.blocks:
            tensors[block.name] = flat[start : start + block.size].reshape(block.shape)
            start += block.size
        return tensors
