"""One axis of a plot: where values lie on it, and where its ticks are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
MOST_TICKS = 6


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high`, drawn from `start` over `length` pixels (negative: upwards)."""

    low: float
    high: float
    logarithmic: bool
    start: float
    length: float

    @classmethod
    def over(cls, values: Iterable[float], logarithmic: bool, start: float, length: float) -> Axis:
        """The axis that shows all these values that it can; shares are shown from 0 to 1, decades whole."""
        found = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
        low, high = min(found, default=0.1), max(found, default=1.0)
        if logarithmic:
            low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
            return cls(low, high if high > low else 10 * low, True, start, length)
        if low >= 0 and high <= 1:
            return cls(0.0, 1.0, False, start, length)
        step = _step(high - low or abs(high) or 1.0)
        low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        return cls(low, high if high > low else low + step, False, start, length)

    def place(self, value: float) -> float | None:
        """The pixel of a value, held to the ends of the axis; None for what a logarithm or a number does not show."""
        if math.isnan(value) or (self.logarithmic and value <= 0):
            return None
        held = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(held / self.low) / math.log(self.high / self.low)
        else:
            share = (held - self.low) / (self.high - self.low)
        return round(self.start + share * self.length, 2)

    def ticks(self) -> list[float]:
        """At most about MOST_TICKS round values; powers of ten on a logarithmic axis."""
        if self.logarithmic:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            every = math.ceil((last - first) / MOST_TICKS)
            return [10.0**power for power in range(first, last + 1, every)]
        step = _step(self.high - self.low)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]


def _step(span: float) -> float:
    """The smallest round step that gives no more than MOST_TICKS − 1 intervals."""
    least = span / (MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in STEPS if step * power >= least * (1 - 1e-9))
