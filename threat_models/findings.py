"""What an attack found: numbers with intervals and methods, curves, pictures, and one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class Verdict(StrEnum):
    """What an attack's numbers say."""

    SUCCEEDS = "succeeds"
    """The adversary learns what the attack is after, beyond chance and beyond its interval."""
    FAILS = "fails"
    """It does not: the upper limit of what would be a success is below its bar, or it cannot be otherwise."""
    INCONCLUSIVE = "inconclusive"
    """The interval holds the bar, a control did not behave, or the records may not be what they are called."""
    NOT_APPLICABLE = "not applicable"
    """The adversary does not see what the attack needs."""


@dataclass(frozen=True)
class Measure:
    """One number: `low` ≤ value ≤ `high` by `method` at its level ("Clopper-Pearson, 95 %"; "none": no interval).

    `baseline` is what the same guess reaches without the view; `ceiling` the most that the plan's ε allows.
    """

    name: str
    value: float
    low: float
    high: float
    method: str
    baseline: float | None = None
    ceiling: float | None = None


@dataclass(frozen=True)
class Series:
    """One line of a curve: points, with lower and upper limits where there are any (empty: none)."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Curve:
    """Lines over one pair of axes; `logarithmic` axes for both."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    logarithmic: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """Rows of images, side by side; `columns` names them ("original", "from the aggregate", …); uint8 (h, w, c)."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[NDArray[np.uint8], ...], ...] = field(repr=False)


@dataclass(frozen=True)
class Control:
    """The same attack where the answer is known: `expected` to succeed (unprotected) or not (random); what it did."""

    name: str
    expected: bool
    succeeded: bool

    @property
    def holds(self) -> bool:
        """Whether the attack behaved as it must."""
        return self.expected == self.succeeded


@dataclass(frozen=True)
class Finding:
    """One attack by one adversary; `unseen` is what it sees, of use to the attack, and the audit has not."""

    attack: str
    adversary: str
    verdict: Verdict
    sentence: str
    measures: tuple[Measure, ...] = ()
    curves: tuple[Curve, ...] = ()
    pictures: tuple[Picture, ...] = ()
    controls: tuple[Control, ...] = ()
    unseen: tuple[str, ...] = ()
