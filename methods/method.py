"""What a method must say; clipping, noise, encoding, protection, transport and audit are given to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from secagg.encoding.layout import Block, Integers
from secagg.head import LinearHead
from secagg.statistics import Grid

Parameters = dict[str, str | float]


class Method(Protocol):
    """One secure sum and the head made from it. Immutable; the plan holds its name and parameters."""

    @property
    def name(self) -> str:
        """Name on the command line and in the plan."""
        ...

    @property
    def parameters(self) -> Parameters:
        """Everything that `method_named` needs beside the name to make this method again."""
        ...

    def blocks(self, dimension: int, classes: int, levels: int) -> tuple[Block, ...]:
        """Return the summed blocks, in layout order, for records q in Z^d with ‖q‖₂ ≤ `levels`."""
        ...

    def contribute(self, records: Integers, labels: Integers, classes: int, levels: int) -> dict[str, Integers]:
        """Return one client's blocks for records (n, d) and labels (n,), n ≥ 0; additive over records."""
        ...

    def implausibilities(self, aggregate: Mapping[str, Integers], grid: Grid) -> list[str]:
        """Return what no honest sum would show (no culprit); empty when plausible."""
        ...

    def head(self, aggregate: Mapping[str, Integers], grid: Grid) -> LinearHead:
        """Return the head from the opened sum, in feature units. Raises BadInput when it gives none."""
        ...
