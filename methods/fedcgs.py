"""FedCGS: a Gaussian classifier from federated counts, class sums and second moment (Guan et al.)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from methods.method import Parameters
from secagg.encoding.layout import Block, Integers
from secagg.errors import BadInput
from secagg.head import LinearHead, discriminant
from secagg.head.discriminant import RIDGE, Covariance
from secagg.statistics import Grid, accumulate, implausibilities


@dataclass(frozen=True)
class FedCGS:
    """Counts N (C,), class sums A (C, d), upper triangle of the second moment B: C + C·d + d(d+1)/2 numbers.

    `covariance`: "within" (what the paper's classifier assumes) or "total" (what the paper computes).
    `ridge` γ ≥ 0 adds γ·tr(Σ)/d to the covariance's diagonal.
    """

    name: ClassVar[str] = "fedcgs"
    covariance: Covariance = "within"
    ridge: float = RIDGE

    def __post_init__(self) -> None:
        if self.covariance not in ("within", "total"):
            raise BadInput(f"unknown covariance {self.covariance!r}", remedy="give within or total")
        if not (math.isfinite(self.ridge) and self.ridge >= 0):
            raise BadInput(f"the ridge is {self.ridge}", remedy="give a number of 0 or more")

    @property
    def parameters(self) -> Parameters:
        """`covariance` and `ridge`."""
        return asdict(self)

    def blocks(self, dimension: int, classes: int, levels: int) -> tuple[Block, ...]:
        """One record adds ≤ 1 to a count, ≤ R_q to an entry of A and ≤ R_q² to one of B."""
        return (
            Block("counts", (classes,), bound=1),
            Block("class_sums", (classes, dimension), bound=levels),
            Block("second_moment", (dimension * (dimension + 1) // 2,), bound=levels * levels),
        )

    def contribute(self, records: Integers, labels: Integers, classes: int, levels: int) -> dict[str, Integers]:
        """Paper Eq. 3–5, in exact integers (`secagg.statistics.accumulate`)."""
        return accumulate(records, labels, classes, levels)

    def implausibilities(self, aggregate: Mapping[str, Integers], grid: Grid) -> list[str]:
        """Counts, lengths, trace and definiteness (`secagg.statistics.implausibilities`)."""
        return implausibilities(aggregate, grid)

    def head(self, aggregate: Mapping[str, Integers], grid: Grid) -> LinearHead:
        """Paper Eq. 9–11 with their errata (`secagg.head.discriminant`)."""
        return discriminant(aggregate, grid, covariance=self.covariance, ridge=self.ridge)
