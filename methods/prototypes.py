"""Class prototypes: a nearest-class-mean head from counts and class sums alone (Tan et al. 2022, FedProto; FedTC)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from methods.method import Examples, Noise, OneShot, Parameters, Sum
from secagg.encoding.layout import Block, Integers
from secagg.errors import BadInput
from secagg.head import LinearHead
from secagg.head.linear import ABSENT_BIAS
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Unit
from secagg.statistics import Grid

SHARES = {"counts": 0.1, "class_sums": 0.9}
"""Of μ²: a count is one number a class, and only scales the prototype."""


@dataclass(frozen=True)
class Prototypes(OneShot):
    """Counts N (C,) and class sums A (C, d): C + C·d numbers. No parameters."""

    name: ClassVar[str] = "prototypes"

    @property
    def parameters(self) -> Parameters:
        """None."""
        return {}

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[Sum, ...]:
        """One record adds 1 to a count and q, ‖q‖₂ ≤ R_q, to a row of A."""
        blocks = (
            BlockSensitivity("counts", 1.0, classes, scalable=True),
            BlockSensitivity("class_sums", float(levels), classes * dimension),
        )
        return (
            Sum(
                blocks=(
                    Block("counts", (classes,), bound=1),
                    Block("class_sums", (classes, dimension), bound=levels),
                ),
                sensitivity={each: BlockwiseSensitivity(Unit.RECORD, each, blocks) for each in Adjacency},
                shares=SHARES,
            ),
        )

    def contribute(self, examples: Examples, classes: int, levels: int) -> dict[str, Integers]:
        """Integer sums, whose order cannot matter."""
        sums = np.zeros((classes, examples.records.shape[1]), dtype=np.int64)
        np.add.at(sums, examples.labels, examples.records)
        return {"counts": np.bincount(examples.labels, minlength=classes).astype(np.int64), "class_sums": sums}

    def implausibilities(self, aggregate: Mapping[str, Integers], grid: Grid) -> list[str]:
        """Counts below 0 and class sums longer than their counts allow."""
        counts = aggregate["counts"]
        lengths = np.linalg.norm(aggregate["class_sums"].astype(np.float64), axis=1)
        long = np.flatnonzero(lengths > np.maximum(counts, 0) * grid.levels * (1 + 1e-9))
        return [f"class {j} has the count {counts[j]}" for j in np.flatnonzero(counts < 0)] + [
            f"class {j} sums to length {lengths[j]:.6g}, above {counts[j]} records of {grid.levels}" for j in long
        ]

    def head(self, aggregate: Mapping[str, Integers], grid: Grid, noise: Noise | None) -> LinearHead:
        """The nearest of the class means μ_j: w_j = μ_j, b_j = −½‖μ_j‖². Raises BadInput when no class has records.

        Under noise counts are taken as at least 1, so that no mean is longer than its sum.
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
