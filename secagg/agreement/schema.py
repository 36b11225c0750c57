"""Schemas: the kind, range or values of every column of a table, fixed in public before any table is read.

A schema scales a table with constants that no record can change: declared ranges and value lists,
never the data's own minimum or mean. It travels inside the plan, so its dictionary form is strict. A further kind of
column is a class here, its name in `KINDS`, and how its cells become numbers in `secagg.data.encoding`.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import date, datetime
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal

from secagg.errors import BadInput, describe_error
from secagg.system.printable import first_unprintable
from secagg.system.reading import instead_of, parse_json, parse_toml, read_document, utf8_remedy

GUIDE = 'secagg/data/README.md, "The schema"'
"""The guide on how to write a schema, for error messages."""
MissingRule = Literal["refuse", "midpoint", "indicator"]
MISSING_RULES: tuple[MissingRule, ...] = ("refuse", "midpoint", "indicator")
SECONDS_PER_DAY = 86_400
_TOKENS = {"YYYY": r"(?P<year>\d{4})", "MM": r"(?P<month>\d{1,2})", "DD": r"(?P<day>\d{1,2})"}
_TIMES = {"hh": r"(?P<hour>\d{1,2})", "mm": r"(?P<minute>\d{2})", "ss": r"(?P<second>\d{2})"}
_HASHING = "secagg feature hashing v1"
"""The public constant that starts every hashed text; changing it would change all buckets."""


@dataclass(frozen=True)
class Numeric:
    """A column of numbers in [low, high], scaled to [-1, 1]; missing ones become `fill` (None: the middle)."""

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
        """The declared range (low, high)."""
        return self.low, self.high

    @property
    def declared(self) -> str:
        """The declared range as text for people to read."""
        return f"{self.low:g} to {self.high:g}"

    @property
    def filling(self) -> float | None:
        """The number that replaces a missing value; None for the middle of the range."""
        return self.fill

    def to_text(self, value: float) -> str:
        """Return a value as text with six significant digits."""
        return f"{value:.6g}"


@dataclass(frozen=True)
class Dated:
    """A column of dates, with or without times, from `low` to `high` (YYYY-MM-DD), scaled to [-1, 1].

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
        """The first and the last day, as ordinals (0001-01-01 is 1).

        Where the pattern has times, the second is the last second of the last day.
        """
        last = (SECONDS_PER_DAY - 1) / SECONDS_PER_DAY if "hh" in self.pattern else 0.0
        return float(_day(self.name, self.low)), _day(self.name, self.high) + last

    @property
    def declared(self) -> str:
        """The declared range as text for people to read."""
        return f"{self.low} to {self.high}"

    @property
    def filling(self) -> float | None:
        """The ordinal of the day that replaces a missing one; None for the middle of the range."""
        return None if self.fill is None else float(_day(self.name, self.fill))

    def read(self, text: str) -> float:
        """Parse a cell as the ordinal of a day (0001-01-01 is 1) plus the time as a fraction; NaN for other text."""
        found = re.fullmatch(_regex(self.name, self.pattern), text)
        try:
            moment = datetime(**{part: int(digits) for part, digits in found.groupdict().items()})  # type: ignore[union-attr, arg-type]  # noqa: DTZ001
        except (AttributeError, ValueError):
            return math.nan
        seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
        return moment.toordinal() + seconds / SECONDS_PER_DAY

    def to_text(self, value: float) -> str:
        """Return the day with this ordinal as YYYY-MM-DD."""
        return date.fromordinal(math.floor(value)).isoformat()


@dataclass(frozen=True)
class Boolean:
    """A column of two values, encoded as 1 (a text listed in `true`), -1 (one in `false`) or 0 (missing)."""

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
        """Every text that stands for true or false in a table, those for true first."""
        return self.true + self.false

    @property
    def declared(self) -> str:
        """The texts that stand for true or false in a table, for people."""
        return ", ".join(self.values)


@dataclass(frozen=True)
class Categorical:
    """A column of one of the declared values, encoded one-hot. Spellings of one number (1, 1.0) are the same value."""

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
        """The number of entries in an encoded record: one for each value."""
        return len(self.values)

    @property
    def declared(self) -> str:
        """The declared values, for people."""
        return ", ".join(self.values)


@dataclass(frozen=True)
class Hashed:
    """A column of any text, encoded by feature hashing as ±1 in one of `buckets` entries: for values too many to list.

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
        """The number of entries in an encoded record: one for each bucket."""
        return self.buckets

    @property
    def declared(self) -> str:
        """The number of buckets, for people."""
        return f"{self.buckets} buckets"

    def place(self, value: str) -> tuple[int, int]:
        """Return the bucket (from 0) and the sign (1 or -1) to which a value in canonical spelling is hashed."""
        text = f"{_HASHING}\0{self.name}\0{value}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "little") % self.buckets, 1 if digest[8] & 1 else -1


Scaled = Numeric | Dated
Column = Numeric | Dated | Boolean | Categorical | Hashed
KINDS: Mapping[str, type[Column]] = {each.kind: each for each in (Numeric, Dated, Boolean, Categorical, Hashed)}


def canonical(value: str, decimal: str = ".") -> str:
    """Return the canonical spelling of a raw value: stripped; numbers as Python prints them, whole ones as integers.

    With the `decimal` "," a number is written with a comma, and what has a point is text.
    """
    text = value.strip()
    number = number_of(text, decimal)
    if not math.isfinite(number):
        return text
    return str(int(number)) if number.is_integer() else repr(number)


def number_of(text: str, decimal: str = ".") -> float:
    """Read a text as a number; NaN if it is not a number."""
    if decimal != ".":
        text = "no number" if "." in text else text.replace(decimal, ".")
    try:
        return float(text)
    except ValueError:
        return math.nan


def column_to_dict(column: Column) -> dict[str, Any]:
    """Return a column as JSON values, without the fields that have their defaults."""
    values = {field.name: getattr(column, field.name) for field in fields(column)}
    given = {field.name for field in fields(column) if field.default is MISSING or values[field.name] != field.default}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {"kind": column.kind, **{name: value for name, value in plain.items() if name in given}}


def column_from_dict(values: Any) -> Column:
    """Build a column from `column_to_dict`'s values. Raises BadInput for an unknown kind, or wrong keys or types."""
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
    """Raise BadInput unless `values` has all `required` keys, and otherwise `optional` keys only."""
    if not isinstance(values, Mapping):
        raise BadInput(f"{what}: is a table of keys and values, got {values!r}")
    missing = sorted(required - set(values))
    unknown = sorted(set(values) - required - optional)
    if missing or unknown:
        named = (("missing", missing), ("unknown", unknown))
        faults = [f"{fault} keys: {', '.join(keys)}" for fault, keys in named if keys]
        near = instead_of(unknown, required | optional)
        raise BadInput(f"{what}: {'; '.join(faults)}", remedy=" ".join(filter(None, (near, f"see {GUIDE}"))))


def text_of(value: Any, key: str) -> str:
    """Return the value as a string; TOML dates become strings. Raises BadInput for another type."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, str):
        raise BadInput(f"schema: {key} holds text, got {value!r}", remedy="put it in quotes")
    return value


def texts_of(value: Any, key: str) -> tuple[str, ...]:
    """Return the value as a tuple of strings. Raises BadInput for another type."""
    if not isinstance(value, list):
        raise BadInput(f"schema: {key} is a list of text, got {value!r}")
    return tuple(text_of(item, key) for item in value)


def _typed(value: Any, key: str, kind: str) -> Any:
    if kind.startswith("tuple"):
        return texts_of(value, key)
    if kind.startswith("str"):
        return text_of(value, key)
    if isinstance(value, bool) or not isinstance(value, int if kind == "int" else int | float):
        whole = "a whole number" if kind == "int" else "a number"
        raise BadInput(f"schema: {key} is {whole}, got {value!r}")
    return value if kind == "int" else float(value)


def _refuse_equal(name: str, values: tuple[str, ...]) -> None:
    if len({canonical(value) for value in values}) != len(values):
        raise BadInput(f"schema column {name!r}: needs one or more different values, got {values}")


def _refuse_fill(name: str, fill: float | None, low: float, high: float) -> None:
    if fill is not None and not low <= fill <= high:
        raise BadInput(f"schema column {name!r}: fill is outside the declared range")


def _day(name: str, text: str) -> int:
    """Return the ordinal of a day YYYY-MM-DD in a schema's column `name`. Raises BadInput."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").toordinal()  # noqa: DTZ007 (a day has no zone)
    except ValueError:
        raise BadInput(f"schema column {name!r}: {text!r} is no day", remedy="write YYYY-MM-DD") from None


def _regex(name: str, pattern: str) -> str:
    """Return the regular expression of a date pattern. Raises BadInput where it lacks a part, or has one twice."""
    expression = re.escape(pattern)
    for token, group in (_TOKENS | _TIMES).items():
        expression = expression.replace(token, group, 1)
    left = re.sub(r"\(\?P<\w+>[^)]*\)", "", expression)
    if not all(group in expression for group in _TOKENS.values()) or re.search("[A-Za-z]", left.replace("T", "", 1)):
        remedy = "write it with YYYY, MM and DD, each once, and maybe hh, mm and ss, as in DD.MM.YYYY hh:mm"
        raise BadInput(f"schema column {name!r}: {pattern!r} is no pattern of dates", remedy=remedy)
    return expression


DECIMALS = (".", ",")
DELIMITERS = (",", ";", "\t")
"""The allowed delimiters between a line's fields; where none is declared, the first line decides."""


@dataclass(frozen=True)
class Schema:
    """The schema of one kind of table: columns, label, and rule for missing values.

    `label_values` maps each raw label value to a class name. `missing` lists the tokens that stand for
    a missing value. `missing_rule`: "refuse"; "midpoint" (numbers and dates: the column's `fill`, else the middle of
    the range, that is 0 after scaling; others: all zero); "indicator" (midpoint and one more 0/1 entry per column). A
    column may have a rule of its own.
    `fields` is the order of all fields in a file without a header (it may name fields that are not used). `decimal` is
    the point or the comma in numbers, `delimiter` what divides fields; "": as each file's first line shows.
    `positive`: of two classes the one that sensitivity, specificity and F1 are of; "": neither is.
    `needs_label` False, which no file says: records to be predicted may lack the label, or the whole column.
    Raises BadInput when the parts contradict each other.
    """

    columns: tuple[Column, ...]
    label: str
    label_values: tuple[tuple[str, str], ...]
    classes: tuple[str, ...]
    missing: tuple[str, ...] = ("", "?")
    missing_rule: MissingRule = "refuse"
    fields: tuple[str, ...] = ()
    decimal: str = "."
    delimiter: str = ""
    positive: str = ""
    needs_label: bool = True

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns] + [self.label]
        if not self.columns or len(set(names)) != len(names):
            raise BadInput(f"schema: needs columns and a label with different names, got {names}")
        if odd := first_unprintable("".join([*names, *self.classes, *self.fields])):
            remedy = "rename it: members read these names before they agree"
            raise BadInput(f"schema: a name of a column or a class holds {odd}, which cannot be shown", remedy=remedy)
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise BadInput(f"schema: needs two or more different classes, got {self.classes}")
        raw = {canonical(value) for value, _ in self.label_values}
        if len(raw) != len(self.label_values) or {name for _, name in self.label_values} != set(self.classes):
            raise BadInput("schema: label_values must map different raw values onto exactly the declared classes")
        object.__setattr__(self, "label_values", tuple(sorted(self.label_values)))  # one order, one plan digest
        self._refuse_odd_rules()
        if self.fields and (len(set(self.fields)) != len(self.fields) or not set(names) <= set(self.fields)):
            raise BadInput("schema: fields must name every column and the label once")

    def _refuse_odd_rules(self) -> None:
        """Raise BadInput for unknown rules about cells, or rules that contradict each other."""
        if self.positive and (self.positive not in self.classes or len(self.classes) != 2):
            problem = f"schema: positive is {self.positive!r} and the classes are {', '.join(self.classes)}"
            raise BadInput(problem, remedy="name one of two classes, or leave positive out")
        for rule in (self.missing_rule, *filter(None, (column.missing_rule for column in self.columns))):
            if rule not in MISSING_RULES:
                raise BadInput(f"schema: missing_rule is one of {MISSING_RULES}, got {rule!r}")
        for column in self.columns:
            if isinstance(column, Scaled) and column.fill is not None and self.rule_of(column) == "refuse":
                remedy = 'give missing_rule = "indicator" (or "midpoint"), or leave out fill'
                raise BadInput(f"schema column {column.name!r}: missing values are refused, not filled", remedy=remedy)
        if self.decimal not in DECIMALS or self.delimiter not in ("", *DELIMITERS):
            problem = f"schema: decimal is {self.decimal!r} and delimiter {self.delimiter!r}"
            raise BadInput(problem, remedy='give decimal = "." or ",", and delimiter = ",", ";" or "\\t"')

    def rule_of(self, column: Column) -> str:
        """Return the rule for a column's missing values: the column's own if it has one, else the schema's."""
        return column.missing_rule or self.missing_rule

    @property
    def delimiters(self) -> tuple[str, ...]:
        """The field delimiters to try: the declared one or, without one, all but a comma that is the decimal mark."""
        return (self.delimiter,) if self.delimiter else tuple(each for each in DELIMITERS if each != self.decimal)

    @property
    def indicated(self) -> tuple[Column, ...]:
        """The columns whose missing values are marked by an additional entry of the encoded record (an indicator)."""
        return tuple(column for column in self.columns if self.rule_of(column) == "indicator")

    @property
    def dimension(self) -> int:
        """The number of entries of one encoded record."""
        return sum(column.width for column in self.columns) + len(self.indicated)

    @property
    def bound(self) -> float:
        """The public L2 bound of one encoded record: √columns, as each column's entries have norm ≤ 1.

        A column with an indicator, filled by another value than the middle, adds 1 + fill² in the place of 1.
        """
        filled = {column.name: scaled_fill(column) for column in self.indicated if isinstance(column, Scaled)}
        return math.sqrt(sum(1.0 + filled.get(column.name, 0.0) ** 2 for column in self.columns))

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values; `from_dict` undoes it exactly."""
        return {
            "label": self.label,
            "label_values": dict(self.label_values),
            "classes": list(self.classes),
            "missing": list(self.missing),
            "missing_rule": self.missing_rule,
            "fields": list(self.fields),
            "columns": [column_to_dict(column) for column in self.columns],
            **({"decimal": self.decimal} if self.decimal != "." else {}),
            **({"delimiter": self.delimiter} if self.delimiter else {}),
            **({"positive": self.positive} if self.positive else {}),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Schema:
        """Build a schema from `to_dict`'s values. Raises BadInput for unknown keys, missing keys or other types."""
        only_keys(values, "schema", {"label", "label_values", "classes", "columns"}, _OPTIONAL)
        label_values = values["label_values"]
        if not isinstance(label_values, Mapping):
            raise BadInput("schema: label_values maps raw values to class names")
        columns = values["columns"]
        if not isinstance(columns, list):
            raise BadInput("schema: columns is a list of tables")
        return cls(
            columns=tuple(column_from_dict(column) for column in columns),
            label=text_of(values["label"], "label"),
            label_values=tuple((str(raw), text_of(name, "label_values")) for raw, name in label_values.items()),
            classes=texts_of(values["classes"], "classes"),
            missing=texts_of(values.get("missing", ["", "?"]), "missing"),
            missing_rule=values.get("missing_rule", "refuse"),
            fields=texts_of(values.get("fields", []), "fields"),
            decimal=text_of(values.get("decimal", "."), "decimal"),
            delimiter=text_of(values.get("delimiter", ""), "delimiter"),
            positive=text_of(values.get("positive", ""), "positive"),
        )

    def to_json(self) -> str:
        """Return the canonical JSON text of the schema, which a plan holds."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Parse the exact text that `to_json` writes. Raises BadInput for any other text, even of an equal schema."""
        try:
            schema = cls.from_dict(parse_json(text))
        except ValueError as error:
            raise BadInput(f"the schema is not JSON: {error}") from error
        if schema.to_json() != text:
            raise BadInput("the schema is not in its canonical JSON form", remedy="make it with Schema.to_json")
        return schema


_OPTIONAL = {"missing", "missing_rule", "fields", "decimal", "delimiter", "positive"}


def load_schema(source: str) -> Schema:
    """Read a schema from a TOML file, or a packaged one by name (`heart-disease`). Raises BadInput."""
    packaged = resources.files("secagg.agreement") / "schemas"
    names = sorted(entry.name.removesuffix(".toml") for entry in packaged.iterdir() if entry.name.endswith(".toml"))
    try:
        if source in names:
            text = (packaged / f"{source}.toml").read_text(encoding="utf-8")
        else:
            text = read_document(Path(source))
        return Schema.from_dict(parse_toml(text))
    except UnicodeDecodeError as error:
        utf16 = error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        row = error.object.count(b"\n", 0, error.start) + 1
        remedy = utf8_remedy(Path(source), "schema", utf16=utf16)
        raise BadInput(f"{source}, line {row}: not UTF-8 text", remedy=remedy) from error
    except OSError as error:
        remedy = f"give a TOML file (see {GUIDE}) or the name of a packaged one: {', '.join(names)}"
        raise BadInput(f"cannot read the schema {source} ({describe_error(error)})", remedy=remedy) from error
    except ValueError as error:
        raise BadInput(f"the schema {source} is not TOML: {error}") from error
    except BadInput as error:
        raise BadInput(f"{source}: {error.problem}", remedy=error.remedy) from error


def scaled_fill(column: Scaled) -> float:
    """Return the value that replaces a missing one in a column, on the scale from -1 to 1; the middle is 0."""
    if column.filling is None:
        return 0.0
    low, high = column.limits
    return (column.filling - low) / (high - low) * 2.0 - 1.0
