"""The kinds of columns of a table, and what each declares in public: ranges, values, patterns, numbers of buckets.

A further kind is a class here, its name in `KINDS`, and how its cells become numbers in `encoding`. The guide to all of
them is secagg/data/README.md.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import date, datetime
from typing import Any, ClassVar, Literal

from secagg.errors import BadInput
from secagg.system.reading import resembling

GUIDE = 'secagg/data/README.md, "The schema"'
"""Where people read how a schema is written."""
MissingRule = Literal["refuse", "midpoint", "indicator"]
MISSING_RULES: tuple[MissingRule, ...] = ("refuse", "midpoint", "indicator")
SECONDS_PER_DAY = 86_400
_TOKENS = {"YYYY": r"(?P<year>\d{4})", "MM": r"(?P<month>\d{1,2})", "DD": r"(?P<day>\d{1,2})"}
_TIMES = {"hh": r"(?P<hour>\d{1,2})", "mm": r"(?P<minute>\d{2})", "ss": r"(?P<second>\d{2})"}
_HASHING = "secagg feature hashing v1"
"""A public constant: another one would be another hash."""


@dataclass(frozen=True)
class Numeric:
    """A number in the declared range [low, high], scaled to [-1, 1]; where it is missing, `fill`, else the middle."""

    kind: ClassVar[str] = "numeric"
    width: ClassVar[int] = 1
    name: str
    low: float
    high: float
    fill: float | None = None
    missing_rule: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise BadInput(f"schema column {self.name!r}: the range [{self.low}, {self.high}] is empty or not finite")
        if not math.isfinite(self.high - self.low):
            raise BadInput(f"schema column {self.name!r}: the range [{self.low}, {self.high}] is too wide for float64")
        _refuse_fill(self.name, self.fill, self.low, self.high)

    @property
    def limits(self) -> tuple[float, float]:
        """The declared range."""
        return self.low, self.high

    @property
    def declared(self) -> str:
        """The range, for people."""
        return f"{self.low:g} to {self.high:g}"

    @property
    def filling(self) -> float | None:
        """What stands for a missing value; None: the middle of the range."""
        return self.fill

    def shown(self, value: float) -> str:
        """A value as people write it."""
        return f"{value:.6g}"


@dataclass(frozen=True)
class Dated:
    """A day, or a moment of one, from `low` to `high` (both YYYY-MM-DD), as days scaled to [-1, 1].

    `pattern` says how the file writes it: YYYY, MM and DD in any order, maybe hh, mm and ss, and what stands between
    them, as in DD.MM.YYYY hh:mm. No time zones: a time is what the file says.
    """

    kind: ClassVar[str] = "date"
    width: ClassVar[int] = 1
    name: str
    low: str
    high: str
    pattern: str = "YYYY-MM-DD"
    fill: str | None = None
    missing_rule: str = ""

    def __post_init__(self) -> None:
        _regex(self.name, self.pattern)
        low, high = self.limits
        if not low < high:
            raise BadInput(f"schema column {self.name!r}: the range from {self.low} to {self.high} is empty")
        _refuse_fill(self.name, self.filling, low, high)

    @property
    def limits(self) -> tuple[float, float]:
        """The first day and the last one, with its last second where the pattern has times."""
        last = (SECONDS_PER_DAY - 1) / SECONDS_PER_DAY if "hh" in self.pattern else 0.0
        return float(_day(self.name, self.low)), _day(self.name, self.high) + last

    @property
    def declared(self) -> str:
        """The range, for people."""
        return f"{self.low} to {self.high}"

    @property
    def filling(self) -> float | None:
        """What stands for a missing day, in days; None: the middle of the range."""
        return None if self.fill is None else float(_day(self.name, self.fill))

    def read(self, text: str) -> float:
        """The days since 0001-01-00 that a cell says, with the fraction of the day; NaN where it is no such date."""
        found = re.fullmatch(_regex(self.name, self.pattern), text)
        try:
            moment = datetime(**{part: int(digits) for part, digits in found.groupdict().items()})  # type: ignore[union-attr, arg-type]  # noqa: DTZ001
        except (AttributeError, ValueError):
            return math.nan
        seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
        return moment.toordinal() + seconds / SECONDS_PER_DAY

    def shown(self, value: float) -> str:
        """A day as people write it."""
        return date.fromordinal(math.floor(value)).isoformat()


@dataclass(frozen=True)
class Boolean:
    """Yes or no, 1 or -1: one of the texts of `true` or of `false`. A missing value is 0."""

    kind: ClassVar[str] = "boolean"
    width: ClassVar[int] = 1
    name: str
    true: tuple[str, ...]
    false: tuple[str, ...]
    missing_rule: str = ""

    def __post_init__(self) -> None:
        if not self.true or not self.false:
            raise BadInput(f"schema column {self.name!r}: needs texts for true and for false")
        _refuse_equal(self.name, self.values)

    @property
    def values(self) -> tuple[str, ...]:
        """Every text that it may hold, those for true first."""
        return self.true + self.false

    @property
    def declared(self) -> str:
        """The texts, for people."""
        return ", ".join(self.values)


@dataclass(frozen=True)
class Categorical:
    """One of the declared values, encoded one-hot. Values that read as the same number are the same."""

    kind: ClassVar[str] = "categorical"
    name: str
    values: tuple[str, ...]
    missing_rule: str = ""

    def __post_init__(self) -> None:
        if not self.values:
            raise BadInput(f"schema column {self.name!r}: needs one or more different values, got {self.values}")
        _refuse_equal(self.name, self.values)

    @property
    def width(self) -> int:
        """An entry for each value."""
        return len(self.values)

    @property
    def declared(self) -> str:
        """The values, for people."""
        return ", ".join(self.values)


@dataclass(frozen=True)
class Hashed:
    """Any text, as 1 or -1 in one of so many `buckets`: for columns of more values than anybody lists.

    Bucket and sign come from SHA-256 of public constants, the column's name and the cell, so that they are the same for
    all members, and values that share a bucket cancel on average (Weinberger et al. 2009, section 2). It hides nothing:
    whoever knows a value knows its bucket.
    """

    kind: ClassVar[str] = "hashed"
    name: str
    buckets: int
    missing_rule: str = ""

    def __post_init__(self) -> None:
        if not 2 <= self.buckets <= 4096:
            raise BadInput(f"schema column {self.name!r}: {self.buckets} buckets", remedy="give from 2 to 4096")

    @property
    def width(self) -> int:
        """An entry for each bucket."""
        return self.buckets

    @property
    def declared(self) -> str:
        """Into how many buckets, for people."""
        return f"{self.buckets} buckets"

    def place(self, value: str) -> tuple[int, int]:
        """The bucket of a value in canonical spelling, and its sign."""
        text = f"{_HASHING}\0{self.name}\0{value}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "little") % self.buckets, 1 if digest[8] & 1 else -1


Scaled = Numeric | Dated
Column = Numeric | Dated | Boolean | Categorical | Hashed
KINDS: Mapping[str, type[Column]] = {each.kind: each for each in (Numeric, Dated, Boolean, Categorical, Hashed)}


def canonical(value: str, decimal: str = ".") -> str:
    """Return the one spelling of a raw value: stripped; numbers as Python prints them, whole ones as integers.

    With the `decimal` "," a number is written with a comma, and what has a point is text.
    """
    text = value.strip()
    number = number_of(text, decimal)
    if not math.isfinite(number):
        return text
    return str(int(number)) if number.is_integer() else repr(number)


def number_of(text: str, decimal: str = ".") -> float:
    """The number that a text says, NaN where it says none."""
    if decimal != ".":
        text = "no number" if "." in text else text.replace(decimal, ".")
    try:
        return float(text)
    except ValueError:
        return math.nan


def column_to_dict(column: Column) -> dict[str, Any]:
    """A column as plain JSON values, without what has its default."""
    values = {field.name: getattr(column, field.name) for field in fields(column)}
    given = {field.name for field in fields(column) if field.default is MISSING or values[field.name] != field.default}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {"kind": column.kind, **{name: value for name, value in plain.items() if name in given}}


def column_from_dict(values: Any) -> Column:
    """Undo `column_to_dict`, strictly. Raises BadInput for another kind, and for keys and types that it has not."""
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        problem = f"schema: a column is a table of kind {', '.join(map(repr, KINDS))}; got {values!r}"
        raise BadInput(problem, remedy=f"see {GUIDE}")
    declared = {field.name: field for field in fields(KINDS[kind])}
    required = {name for name, field in declared.items() if field.default is MISSING} | {"kind"}
    only_keys(values, f"{kind} column", required, set(declared) - required)
    read = {name: _typed(value, name, str(declared[name].type)) for name, value in values.items() if name != "kind"}
    return KINDS[kind](**read)


def only_keys(values: Any, what: str, required: set[str], optional: set[str]) -> None:
    """Raise BadInput unless the keys are these."""
    if not isinstance(values, Mapping):
        raise BadInput(f"{what}: is a table of keys and values, got {values!r}")
    missing = sorted(required - set(values))
    unknown = sorted(set(values) - required - optional)
    if missing or unknown:
        named = (("missing", missing), ("unknown", unknown))
        faults = [f"{fault} keys: {', '.join(keys)}" for fault, keys in named if keys]
        near = resembling(unknown, required | optional)
        raise BadInput(f"{what}: {'; '.join(faults)}", remedy=" ".join(filter(None, (near, f"see {GUIDE}"))))


def text_of(value: Any, key: str) -> str:
    """A text. Raises BadInput for another value; TOML's dates are theirs."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, str):
        raise BadInput(f"schema: {key} holds text, got {value!r}", remedy="put it in quotes")
    return value


def texts_of(value: Any, key: str) -> tuple[str, ...]:
    """A list of texts. Raises BadInput for another value."""
    if not isinstance(value, list):
        raise BadInput(f"schema: {key} is a list of text, got {value!r}")
    return tuple(text_of(item, key) for item in value)


def _typed(value: Any, key: str, kind: str) -> Any:
    """A value of the type that a field declares."""
    if kind.startswith("tuple"):
        return texts_of(value, key)
    if kind.startswith("str"):
        return text_of(value, key)
    if isinstance(value, bool) or not isinstance(value, int if kind == "int" else int | float):
        whole = "a whole number" if kind == "int" else "a number"
        raise BadInput(f"schema: {key} is {whole}, got {value!r}")
    return value if kind == "int" else float(value)


def _refuse_equal(name: str, values: tuple[str, ...]) -> None:
    """Raise BadInput for values that read as the same."""
    if len({canonical(value) for value in values}) != len(values):
        raise BadInput(f"schema column {name!r}: needs one or more different values, got {values}")


def _refuse_fill(name: str, fill: float | None, low: float, high: float) -> None:
    """Raise BadInput for a stand-in of missing values that is outside the range."""
    if fill is not None and not low <= fill <= high:
        raise BadInput(f"schema column {name!r}: fill is outside the declared range")


def _day(name: str, text: str) -> int:
    """The ordinal of a day that a schema names. Raises BadInput."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").toordinal()  # noqa: DTZ007 (a day has no zone)
    except ValueError:
        raise BadInput(f"schema column {name!r}: {text!r} is no day", remedy="write YYYY-MM-DD") from None


def _regex(name: str, pattern: str) -> str:
    """The regular expression of a pattern of dates. Raises BadInput where it lacks a part, or has one twice."""
    expression = re.escape(pattern)
    for token, group in (_TOKENS | _TIMES).items():
        expression = expression.replace(token, group, 1)
    left = re.sub(r"\(\?P<\w+>[^)]*\)", "", expression)
    if not all(group in expression for group in _TOKENS.values()) or re.search("[A-Za-z]", left.replace("T", "", 1)):
        remedy = "write it with YYYY, MM and DD, each once, and maybe hh, mm and ss, as in DD.MM.YYYY hh:mm"
        raise BadInput(f"schema column {name!r}: {pattern!r} is no pattern of dates", remedy=remedy)
    return expression
