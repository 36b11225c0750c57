"""Class prototypes: a nearest-class-mean head from counts and class sums alone (Tan et al. 2022, FedProto; FedTC)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from methods.method import SimpleMethod, SumSpec, Traits, ZeroSums
from methods.round import Contribution, Local, OpenedTotal, Step
from secagg.encoding import cell_sums
from secagg.encoding.layout import Block, Kind
from secagg.heads.discriminant import nearest_mean
from secagg.privacy import Adjacency, CellSensitivity

SHARES = {"counts": 0.1, "class_sums": 0.9}
"""The blocks' shares of μ²: a count is one number per class, and only scales the prototype."""


@dataclass(frozen=True)
class Prototypes(SimpleMethod):
    """The method prototypes: a nearest-class-mean head from counts N (C,) and class sums A (C, d). No parameters."""

    name: ClassVar[str] = "prototypes"

    @property
    def traits(self) -> Traits:
        return replace(super().traits, weights="means")

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Specify the sum: a record adds 1 to its class's count and itself (L2 ≤ `levels`) to its class's sum.

        Replaced, it cannot move both most at once: within its class no count moves, between classes the sums by less.
        """
        blocks = (
            Block("counts", (classes,), bound=1, kind=Kind.COUNTS),
            Block("class_sums", (classes, dimension), bound=levels, kind=Kind.CLASS_SUMS),
        )
        names = ("counts", "class_sums")
        moved = tuple(CellSensitivity(each, names, classes, dimension, levels) for each in Adjacency)
        return (SumSpec(blocks, moved, SHARES, zero_sums=(ZeroSums("class_sums", -1, dimension / 2),)),)

    def contribute(self, local: Local) -> Contribution:
        counts, sums = cell_sums(local.examples.records, local.examples.labels, local.classes)
        return Contribution({"counts": counts, "class_sums": sums})

    def finalize(self, opened: OpenedTotal) -> Step:
        return Step(nearest_mean(opened.blocks, opened.grid, opened.noise))
