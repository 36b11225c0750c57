"""Sensitivity: the farthest that a change between neighbouring data sets moves a joint release, in grid units.

Blocks bear different noise, so what counts is the worst step *under the noise of each block*:

    sup Σ_b w_b·‖Δ_b‖²    over all neighbouring data sets, with w_b = 1/σ_b²,

which is μ² of the joint release. With one σ for all blocks this is the usual squared L2 sensitivity over σ². The
worst step depends on the weights, so a sensitivity is a function of them and never one number to be scaled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from secagg.errors import BadInput
from secagg.wire import Choice


class Adjacency(Choice):
    """The relations that make two data sets neighbours: one unit added or removed, or one replaced."""

    ADD_REMOVE = "add-remove"
    """One unit is added or removed (dp_accounting: ADD_OR_REMOVE_ONE; a removed client's data are zeroed out)."""
    REPLACE_ONE = "replace-one"
    """One unit is exchanged for another (dp_accounting: REPLACE_ONE)."""


class Unit(Choice):
    """The privacy unit, one record or one client, whose contribution the noise hides."""

    RECORD = "record"
    """One labelled record."""
    CLIENT = "client"
    """All records of one client: its whole contribution, clipped; its noise stays."""


@dataclass(frozen=True)
class BlockSensitivity:
    """The sensitivity of one block: one record or client moves its `size` ≥ 1 integers by an L2 distance ≤ `l2` > 0.

    `triangle`: the block is the upper triangle of a symmetric matrix, row by row; `l2` is then the Frobenius norm of
    the full matrix, off-diagonal entries counting twice. `scalable`: the block is not on the grid of the features
    (counts), so that an integer multiplier may give it finer units.
    """

    name: str
    l2: float
    size: int
    triangle: bool = False
    scalable: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.l2 < math.inf and self.size >= 1):
            raise BadInput(f"block {self.name} has L2 sensitivity {self.l2} and {self.size} entries")
        if self.triangle and self.dimension * (self.dimension + 1) // 2 != self.size:
            raise BadInput(f"block {self.name} has {self.size} entries, which is no triangle d(d + 1)/2")

    @property
    def dimension(self) -> int:
        """Number of rows of the symmetric matrix whose upper triangle the block is."""
        return (math.isqrt(8 * self.size + 1) - 1) // 2


class Sensitivity(Protocol):
    """The joint sensitivity of all blocks of a release, for one privacy unit and one adjacency."""

    @property
    def unit(self) -> Unit:
        """The privacy unit, one record or one client, whose contribution the noise hides."""

    @property
    def adjacency(self) -> Adjacency:
        """The relation between neighbouring data sets: add-remove or replace-one."""

    @property
    def blocks(self) -> tuple[BlockSensitivity, ...]:
        """The blocks in layout order, each with the largest L2 norm of one unit's contribution."""

    def squared(self, weights: Mapping[str, float]) -> float:
        """Return the largest Σ_b w_b·‖Δ_b‖² between neighbours, over blocks b with change Δ_b and weight w_b > 0."""


@dataclass(frozen=True)
class BlockwiseSensitivity:
    """The sensitivity derived from each block's own bound alone, which is valid for every method and unit.

    Add/remove moves each block by at most its `l2`; replacing moves it by at most twice that (triangle inequality), and
    by at most √2 times that if contributions are `nonnegative`, in no entry below 0. For then ⟨x, y⟩ ≥ 0 for any two,
    so that ‖x − y‖² = ‖x‖² + ‖y‖² − 2⟨x, y⟩ ≤ ‖x‖² + ‖y‖² ≤ 2·l2². In blocks of two entries or more some reach it all
    at once: an l2 in the first entry of every block against an l2 in the second.
    """

    unit: Unit
    adjacency: Adjacency
    blocks: tuple[BlockSensitivity, ...]
    nonnegative: bool = False

    def squared(self, weights: Mapping[str, float]) -> float:
        """Return Σ_b w_b·l2_b² over all blocks b for add/remove; 4 times that for replace-one, 2 if `nonnegative`."""
        factor = 1 if self.adjacency is Adjacency.ADD_REMOVE else 2 if self.nonnegative else 4
        return factor * math.fsum(weights[block.name] * block.l2**2 for block in self.blocks)


@dataclass(frozen=True)
class CensusSensitivity:
    """The sensitivity of a census: each client adds 1 for each of `classes` of which it has a record, else 0.

    Add or remove a record of class j: entry j of its client's part changes by at most 1, no other does. Replace one of
    class j by one of class k: at most the entries j and k change, by at most 1 each: √2. A client's whole part, zeroed
    or exchanged for any other, changes each entry by at most 1, however many records it has: √C, reached by a client
    that holds every class against one that holds none.
    """

    unit: Unit
    adjacency: Adjacency
    classes: int

    @property
    def blocks(self) -> tuple[BlockSensitivity, ...]:
        """The census as one block: a record changes it by an L2 norm of at most 1, a client by at most √`classes`."""
        length = 1.0 if self.unit is Unit.RECORD else math.sqrt(self.classes)
        return (BlockSensitivity("census", length, self.classes, scalable=True),)

    def squared(self, weights: Mapping[str, float]) -> float:
        """Return the weighted squared change: w (a record added or removed), 2w (replaced), `classes`·w (a client)."""
        entries = {Adjacency.ADD_REMOVE: 1, Adjacency.REPLACE_ONE: min(2, self.classes)}[self.adjacency]
        return weights["census"] * (entries if self.unit is Unit.RECORD else self.classes)


@dataclass(frozen=True)
class CellSensitivity:
    """The sensitivity of counts and sums by part of a class: a record q, ‖q‖₂ ≤ R_q, adds 1 to one count, q to its sum.

    Add or remove a record: 1 and R_q. Replace it: in another cell √2 and √2·R_q at most, for any two of full length; in
    the same cell the count stays and the sum moves by ‖q − q'‖ ≤ 2·R_q, for opposite records. Each is reached by
    integers, q = (R_q, 0, …, 0) and its opposite; which is the larger depends on the weights.
    """

    unit = Unit.RECORD
    adjacency: Adjacency
    names: tuple[str, str]
    cells: int
    dimension: int
    levels: int

    @property
    def blocks(self) -> tuple[BlockSensitivity, ...]:
        """The sensitivity of each array: one record moves counts by 1 and sums by R_q = `levels`."""
        counts, sums = self.names
        return (
            BlockSensitivity(counts, 1.0, self.cells, scalable=True),
            BlockSensitivity(sums, float(self.levels), self.cells * self.dimension),
        )

    def squared(self, weights: Mapping[str, float]) -> float:
        """Return the squared L2 sensitivity of counts and sums together, the squares weighted by `weights`.

        It is n + a for add/remove, max(2n + 2a, 4a) for replace-one.
        Here n = w_counts and a = w_sums·R_q².
        """
        n, a = weights[self.names[0]], weights[self.names[1]] * self.levels**2
        if self.adjacency is Adjacency.ADD_REMOVE:
            return n + a
        return max(2 * (n + a), 4 * a) if self.cells > 1 else 4 * a


@dataclass(frozen=True)
class MomentSensitivity:
    """The sensitivity of counts N, class sums A and second moment B to one record q, ‖q‖₂ ≤ R_q = `levels`."""

    unit = Unit.RECORD
    adjacency: Adjacency
    classes: int
    dimension: int
    levels: int

    @property
    def blocks(self) -> tuple[BlockSensitivity, ...]:
        """The blocks counts, class sums and second moment, each with the largest L2 norm of a record's contribution.

        A record q adds 1, q and q·qᵀ, of L2 norm at most 1, `levels` and `levels`².
        """
        classes, dimension, levels = self.classes, self.dimension, self.levels
        return (
            BlockSensitivity("counts", 1.0, classes, scalable=True),
            BlockSensitivity("class_sums", float(levels), classes * dimension),
            BlockSensitivity("second_moment", float(levels**2), dimension * (dimension + 1) // 2, triangle=True),
        )

    def squared(self, weights: Mapping[str, float]) -> float:
        """Return the largest Σ_b w_b·‖Δ_b‖² between neighbours, over changes Δ_b of the three blocks, weighted by w_b.

        With n = w_N, a = w_A·R_q² and b = w_B·R_q⁴ it is

        - add/remove: n + a + b, reached by every record of full length;
        - replace-one: the larger of the two cases below.
          Another class: 2n + 2a + b·(2 − 2c²) ≤ 2(n + a + b), c the cosine of the two records; reached at c = 0.
          The same class: N does not move, A by ‖q − q'‖² = (2 − 2c)·R_q², B by (2 − 2c²)·R_q⁴; with t = −c this is
          2a + 2b + 2t·a − 2t²·b, largest at t = min(1, a/2b): 2a + 2b + a²/2b, or 4a when a > 2b.

        Shorter records do not do worse: with lengths x, y ≤ 1 and s = −c·x·y ≤ x·y the same-class case is
        a(x² + y² + 2s) + b(x⁴ + y⁴ − 2s²), which grows with x and y at fixed s. For equal noise (w the same for all)
        replace-one is exactly twice add/remove; for other weights it can be more, up to four times.
        """
        n = weights["counts"]
        a = weights["class_sums"] * self.levels**2
        b = weights["second_moment"] * self.levels**4
        if self.adjacency is Adjacency.ADD_REMOVE:
            return n + a + b
        same_class = 4 * a if a > 2 * b else 2 * a + 2 * b + a * a / (2 * b)
        return max(2 * (n + a + b), same_class) if self.classes > 1 else same_class
