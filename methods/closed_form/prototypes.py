"""Class prototypes: a nearest-class-mean head from counts and class sums alone (Tan et al. 2022, FedProto; FedTC)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from methods.method import SimpleMethod, SumSpec, Traits, ZeroSums
from methods.round import Contribution, Local, Opened, Step
from secagg.encoding import cell_sums
from secagg.encoding.layout import Block, Kind
from secagg.heads.discriminant import nearest_mean
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Unit

SHARES = {"counts": 0.1, "class_sums": 0.9}
"""Of μ²: a count is one number a class, and only scales the prototype."""


@dataclass(frozen=True)
class Prototypes(SimpleMethod):
    """Counts N (C,) and class sums A (C, d): C + C·d numbers. No parameters."""

    name: ClassVar[str] = "prototypes"

    @property
    def traits(self) -> Traits:
        """The head's weights are the class means."""
        return replace(super().traits, weights="means")

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One record adds 1 to a count and q, ‖q‖₂ ≤ R_q, to a row of A."""
        blocks = (
            BlockSensitivity("counts", 1.0, classes, scalable=True),
            BlockSensitivity("class_sums", float(levels), classes * dimension),
        )
        return (
            SumSpec(
                blocks=(
                    Block("counts", (classes,), bound=1, kind=Kind.COUNTS),
                    Block("class_sums", (classes, dimension), bound=levels, kind=Kind.CLASS_SUMS),
                ),
                sensitivities=tuple(BlockwiseSensitivity(Unit.RECORD, each, blocks) for each in Adjacency),
                shares=SHARES,
                zero_sums=(ZeroSums("class_sums", -1, dimension / 2),),
            ),
        )

    def contribute(self, local: Local) -> Contribution:
        """Integer sums, whose order cannot matter."""
        counts, sums = cell_sums(local.examples.records, local.examples.labels, local.classes)
        return Contribution({"counts": counts, "class_sums": sums})

    def finalize(self, opened: Opened) -> Step:
        """The nearest class mean (`nearest_mean`)."""
        return Step(nearest_mean(opened.blocks, opened.grid, opened.noise))
