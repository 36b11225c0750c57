"""Bounds of fields, declared in their annotations: of messages, where each has exactly one, and of settings.

    rounds: Annotated[int, Range(1, 10_000)]
    norm: Literal["own", "shared"]

The codec checks messages; a dataclass of settings calls `require_in_range(self)` in its `__post_init__`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from secagg.errors import BadInput
from secagg.system.printable import first_unprintable

MAX_FRAME_BYTES = 64 << 20
"""The largest message that anybody takes, and the largest record of a transcript."""


class Choice(StrEnum):
    """One of a few words. In messages, settings, JSON and messages to people it is the word itself."""

    def __repr__(self) -> str:
        return repr(self.value)

    @classmethod
    def read(cls, text: str, name: str) -> Self:
        """The choice with this word; `name` says of what. Raises BadInput for another word."""
        if text not in tuple(cls):
            raise BadInput(f"no such {name}: {text}", remedy=f"choose one of {', '.join(cls)}")
        return cls(text)


@dataclass(frozen=True)
class Range:
    """An integer or a float with low ≤ value ≤ high, or < where `above` or `below` leaves that end out; never NaN.

    In a message minus zero is outside every range.
    """

    low: float
    high: float
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and (
            value < self.high if self.below else value <= self.high
        )

    def __str__(self) -> str:
        """Words for a refusal: "between 1 and 10", "above 0 and below 1", "at least 0 and finite"."""
        if not (self.above or self.below or math.isinf(self.high)):
            return f"between {self.low} and {self.high}"
        low = f"above {self.low}" if self.above else f"at least {self.low}"
        if math.isinf(self.high):
            return f"{low} and finite" if self.below else low
        return f"{low} and {'below' if self.below else 'at most'} {self.high}"

    def problem(self, value: float) -> str | None:
        """Why `value` is refused, or None."""
        if value == 0 and math.copysign(1.0, value) < 0:
            return "minus zero is not canonical"
        return None if value in self else f"{value} is outside {self.low}..{self.high}"


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


_DECLARED: dict[type, Mapping[str, Range | tuple[object, ...]]] = {}
"""The ranges and choices of the fields of classes that were checked before, by name."""


def require_in_range(settings: object) -> None:
    """Raise BadInput for a field of a dataclass that is outside the `Range` or the `Literal` of its annotation.

    None passes where the annotation is optional. Annotations are read at run time, those of base classes too: what they
    name must be imported, not only under TYPE_CHECKING.
    """
    cls = type(settings)
    if cls not in _DECLARED:
        found = {name: _allowed(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
        _DECLARED[cls] = {name: allowed for name, allowed in found.items() if allowed is not None}
    for name, allowed in _DECLARED[cls].items():
        value = getattr(settings, name)
        if value is not None and value not in allowed:
            told = str(allowed) if isinstance(allowed, Range) else f"one of {', '.join(map(str, allowed))}"
            raise BadInput(f"{name} must be {told} (got {value!r})")


def _allowed(hint: Any) -> Range | tuple[object, ...] | None:
    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        return next((each for each in arguments[1:] if isinstance(each, Range)), None)
    if get_origin(hint) is Literal:
        return arguments
    if get_origin(hint) in (Union, UnionType):
        return next((found for each in arguments if (found := _allowed(each)) is not None), None)
    return None
