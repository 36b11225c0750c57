"""What a field may hold. Every field of a message carries exactly one of these in its annotation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from secagg.system.printable import first_unprintable

MAX_FRAME_BYTES = 64 << 20
"""The largest message that anybody takes, and the largest record of a transcript."""


@dataclass(frozen=True)
class Range:
    """An integer or a float with low ≤ value ≤ high. NaN and minus zero are outside every range."""

    low: float
    high: float

    def problem(self, value: float) -> str | None:
        """Why `value` is refused, or None."""
        if value == 0 and math.copysign(1.0, value) < 0:
            return "minus zero is not canonical"
        return None if self.low <= value <= self.high else f"{value} is outside {self.low}..{self.high}"


@dataclass(frozen=True)
class Length:
    """Bytes or text with low ≤ len(value) ≤ high; `Length(n)` is exactly n."""

    low: int
    high: int | None = None

    def problem(self, value: bytes | str) -> str | None:
        """Why `value` is refused, or None. The value itself is never quoted: it may be a secret."""
        high = self.low if self.high is None else self.high
        return None if self.low <= len(value) <= high else f"length {len(value)} is outside {self.low}..{high}"


@dataclass(frozen=True)
class Text:
    """Text of low ≤ len(value) ≤ high characters that all show (`is_printable`): people read it, in terminals too."""

    low: int
    high: int

    def problem(self, value: str) -> str | None:
        """Why `value` is refused, or None."""
        if odd := first_unprintable(value):
            return f"it holds the character {odd}, which cannot be shown"
        return Length(self.low, self.high).problem(value)


@dataclass(frozen=True)
class Items:
    """A tuple of low..high items. `each` bounds items that are plain numbers or texts.

    With `ascending` the items (or their attribute of that name) must strictly increase.
    """

    low: int
    high: int
    each: Range | Length | Text | None = None
    ascending: bool | str = False

    def problem(self, values: tuple[object, ...]) -> str | None:
        """Why `values` is refused, or None."""
        if not self.low <= len(values) <= self.high:
            return f"{len(values)} items are outside {self.low}..{self.high}"
        if self.each is not None:
            for value in values:
                if found := self.each.problem(value):  # type: ignore[arg-type]
                    return found
        if self.ascending:
            keys = [getattr(item, self.ascending) for item in values] if isinstance(self.ascending, str) else values
            if any(later <= earlier for earlier, later in pairwise(keys)):
                return "items are not in strictly ascending order"
        return None
