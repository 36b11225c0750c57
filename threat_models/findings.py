"""Findings of attacks: numbers with intervals and methods, curves, pictures, and one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

SHARE = "%"
REFUSED = "refused"
"""The unit of metrics whose value is 1 for a refused cheat and 0 for one that was not."""


class Verdict(StrEnum):
    """The conclusion drawn from an attack's numbers."""

    SUCCEEDS = "succeeds"
    """The adversary learns what the attack is after, beyond chance and beyond its interval."""
    FAILS = "fails"
    """The adversary does not learn it: the upper limit of the measure is below the bar, or it cannot be otherwise."""
    INCONCLUSIVE = "inconclusive"
    """Nothing can be said: the interval holds the bar, a control failed, or the records are in doubt."""
    NOT_APPLICABLE = "not applicable"
    """The adversary does not see what the attack needs."""


@dataclass(frozen=True)
class Metric:
    """A quantity that an attack measures. Rules and reports find it by its `id`; people read its `label`.

    `unit` is "" for a plain number, SHARE for a share of 1, REFUSED for 1 or 0 in words. `good` says what the number
    would be if nothing leaked; {baseline} and {ceiling} in it stand for the measure's own. `leads`: it may sum up a
    finding. `each` says of what a finding holds one measure each ("class", "sum"); empty where it holds one in all.
    """

    id: str
    label: str
    unit: str = ""
    good: str = ""
    leads: bool = False
    each: str = ""

    def variant(self, name: str, words: str) -> Metric:
        """Return this metric as measured in one way: append `.name` to the id, and `words` to the label."""
        return replace(self, id=f"{self.id}.{name}", label=f"{self.label}, {words}")

    def exact(
        self,
        value: float,
        method: str = "exact",
        *,
        of: str = "",
        baseline: float | None = None,
        ceiling: float | None = None,
    ) -> Measure:
        """Return a measurement of this metric as an exact value, without an interval."""
        value = float(value)
        return Measure(self, value, value, value, method, baseline, ceiling, of, has_interval=False)


def covers(name: str, metric: Metric) -> bool:
    """Return whether a rule's name stands for a metric: its id, the part of the id before a dot, or * for all."""
    return name in ("*", metric.id) or metric.id.startswith(f"{name}.")


@dataclass(frozen=True)
class Measure:
    """One measured number with its interval: `low` ≤ value ≤ `high` by `method` ("Clopper-Pearson, 95 %").

    `baseline` is what the same guess reaches without the view; `ceiling` the most that the plan's ε allows. `of` says
    what it was measured of, where the metric has one measure for each of several. Without an interval both limits are
    the value, or all that is possible where the data do not support one.
    """

    metric: Metric
    value: float
    low: float
    high: float
    method: str
    baseline: float | None = None
    ceiling: float | None = None
    of: str = ""
    has_interval: bool = True

    @property
    def label(self) -> str:
        """Readable name of the measured quantity, with the class or sum, for example, that it is about."""
        return f"{self.metric.label}, {self.of}" if self.of else self.metric.label


@dataclass(frozen=True)
class Series:
    """One line of a curve: its points and, if there are any, their lower and upper limits."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Curve:
    """A plot of lines over one pair of axes, both of which are logarithmic if `logarithmic`."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    logarithmic: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """Rows of images, uint8 (h, w, c), side by side; `columns` names them ("original", "from the aggregate", …)."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[NDArray[np.uint8], ...], ...] = field(repr=False)


@dataclass(frozen=True)
class Control:
    """The attack run on a case of known answer: whether it was `expected` to succeed, and whether it `succeeded`."""

    name: str
    expected: bool
    succeeded: bool

    @property
    def holds(self) -> bool:
        """True if the attack succeeded or failed on this control as expected."""
        return self.expected == self.succeeded


@dataclass(frozen=True)
class Finding:
    """The result of one attack by one adversary: its verdict, a sentence, and the measurements behind them.

    `unseen` are needed fields that the adversary may see, but the session lacks.
    """

    attack: str
    adversary: str
    verdict: Verdict
    sentence: str
    measures: tuple[Measure, ...] = ()
    curves: tuple[Curve, ...] = ()
    pictures: tuple[Picture, ...] = ()
    controls: tuple[Control, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def leading(self) -> Measure | None:
        """The finding's headline measure, the first whose metric may sum it up; None if there is none."""
        return next((measure for measure in self.measures if measure.metric.leads), None)


def decide(succeeded: bool, withstood: bool, controls: Sequence[Control]) -> Verdict:
    """Return the verdict on an attack's numbers; inconclusive if a control did not behave as expected.

    `withstood`: the upper limits of what the attack is after lie below the bar, or it cannot be otherwise. That nothing
    was found is no reason.
    """
    if not all(control.holds for control in controls):
        return Verdict.INCONCLUSIVE
    if succeeded:
        return Verdict.SUCCEEDS
    return Verdict.FAILS if withstood else Verdict.INCONCLUSIVE
