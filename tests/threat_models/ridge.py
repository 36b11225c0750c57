"""Ridge regression on one-hot labels: a method without counts, whose blocks have names that no audit knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from methods.method import Parameters, SimpleMethod, SumSpec
from methods.round import Contribution, Local, OpenedTotal, Step
from secagg.encoding import Block, Kind, full_matrix
from secagg.heads import LinearHead
from secagg.privacy import Adjacency, BlockSensitivity, BlockwiseSensitivity, Unit


@dataclass(frozen=True)
class Ridge(SimpleMethod):
    """Σ q qᵀ as a triangle and Σ e_y qᵀ (C, d). `factor` times the latter is summed, whatever is declared of it."""

    name: ClassVar[str] = "ridge"
    penalty: float = 1.0
    factor: int = 1

    @property
    def parameters(self) -> Parameters:
        """`penalty` and `factor`."""
        return {"penalty": self.penalty, "factor": self.factor}

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """A record adds at most R_q² to the triangle and R_q to the targets."""
        triangle = dimension * (dimension + 1) // 2
        moved = (
            BlockSensitivity("gram", float(levels) ** 2, triangle, triangle=True),
            BlockSensitivity("targets", float(levels), classes * dimension),
        )
        blocks = (
            Block("gram", (triangle,), bound=levels**2, kind=Kind.SECOND_MOMENT),
            Block("targets", (classes, dimension), bound=levels, kind=Kind.CLASS_SUMS),
        )
        stated = tuple(BlockwiseSensitivity(Unit.RECORD, each, moved) for each in Adjacency)
        return (SumSpec(blocks, stated, shares="equal"),)

    def contribute(self, local: Local) -> Contribution:
        """Exact integers."""
        records, labels = local.examples.records, local.examples.labels
        upper = np.triu_indices(records.shape[1])
        targets = np.eye(local.classes, dtype=np.int64)[labels].T @ records
        return Contribution({"gram": (records.T @ records)[upper], "targets": self.factor * targets})

    def finalize(self, opened: OpenedTotal) -> Step:
        """W = T (G + λ)⁻¹ in the grid's units; λ is `penalty` times the mean of G's diagonal."""
        targets = np.asarray(opened.blocks["targets"], dtype=np.float64)
        gram = full_matrix(opened.blocks["gram"], targets.shape[1])
        penalty = self.penalty * max(float(np.trace(gram)) / len(gram), 1.0)
        weight = np.linalg.solve(gram + penalty * np.eye(len(gram)), targets.T).T
        weight *= opened.grid.unit(len(gram)) / opened.grid.radius
        return Step(LinearHead(weight.astype(np.float32), np.zeros(len(targets), dtype=np.float32)))
