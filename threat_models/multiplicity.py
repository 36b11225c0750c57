"""The level of each interval of an audit, corrected so that all that the gate judges hold together.

Among many intervals of 95 % some miss. Bonferroni's correction divides what may go wrong in all among the limits that
are planned; their number follows from the adversaries and the gate's rules, before anything is measured. It needs no
assumption on how the attacks depend on each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

FAMILY = 0.05
"""All judged limits of one audit hold together but for this probability."""
_LEVEL: ContextVar[float] = ContextVar("level of one interval", default=FAMILY)


@dataclass(frozen=True)
class Comparisons:
    """The `count` of limits that a gate may judge; other limits have a `reserved` part of `FAMILY`."""

    count: int
    reserved: float = 0.0

    @property
    def level(self) -> float:
        """The probability with which each interval may miss."""
        return (FAMILY - self.reserved) / max(1, self.count)

    @contextmanager
    def apply(self) -> Iterator[None]:
        """A context in which intervals are made at this level, unless they are asked for at another."""
        token = _LEVEL.set(self.level)
        try:
            yield
        finally:
            _LEVEL.reset(token)

    def sentence(self) -> str:
        """The correction in words, for people."""
        if not self.count:
            return "No decision of the gate rests on an attack's confidence limit: nothing was corrected for."
        return (
            f"The gate's decisions rest on up to {self.count} confidence limits, counted from adversaries and rules "
            f"before anything was measured. Each interval is at {100 * (1 - self.level):.4g} %, so that all of them "
            f"hold together with {100 * (1 - FAMILY):g} % (Bonferroni)."
        )


def current_level() -> float:
    """The probability with which an interval made now may miss: `FAMILY` where nothing else was planned."""
    return _LEVEL.get()
