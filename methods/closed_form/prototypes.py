"""Class prototypes: a nearest-class-mean head from counts and class sums alone (Tan et al. 2022, FedProto; FedTC)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from methods.method import SimpleMethod, SumSpec, ZeroSums
from methods.round import Blocks, Contribution, Local, Noise, Opened, Step
from methods.slots.slots import cell_sums
from secagg.encoding import Grid
from secagg.encoding.layout import Block, Kind
from secagg.errors import BadInput
from secagg.heads import LinearHead
from secagg.heads.linear import ABSENT_BIAS
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Unit

SHARES = {"counts": 0.1, "class_sums": 0.9}
"""Of μ²: a count is one number a class, and only scales the prototype."""


@dataclass(frozen=True)
class Prototypes(SimpleMethod):
    """Counts N (C,) and class sums A (C, d): C + C·d numbers. No parameters."""

    name: ClassVar[str] = "prototypes"

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


def nearest_mean(aggregate: Blocks, grid: Grid, noise: Noise | None) -> LinearHead:
    """Return the head of the nearest of the class means μ_j: w_j = μ_j, b_j = −½‖μ_j‖².

    Under noise counts are taken as at least 1, so that no mean is longer than its sum.
    Raises BadInput when no class has records.
    """
    multiplier = noise["counts"].multiplier if noise is not None else 1
    counts = aggregate["counts"] / multiplier
    present = counts > 0 if noise is None else np.ones(len(counts), dtype=np.bool_)
    if not present.any():
        raise BadInput("the sum holds no record", remedy="the head needs one class at least")
    unit = grid.unit(aggregate["class_sums"].shape[1]) / grid.radius
    means = aggregate["class_sums"] / unit / np.maximum(counts, 1.0)[:, None]
    offset = 0.0 if grid.is_normalised else grid.centre
    weight, bias = means, -0.5 * (means * means).sum(axis=1) - offset * means.sum(axis=1)
    return LinearHead(
        np.where(present[:, None], weight, 0.0).astype(np.float32),
        np.where(present, bias, ABSENT_BIAS).astype(np.float32),
    )
