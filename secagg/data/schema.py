"""Schemas: what every column of a table means, fixed in public before any table is read.

A schema scales a table with constants that no record can change: declared ranges and value lists,
never the data's own minimum or mean. It travels inside the plan, so its dictionary form is strict.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from secagg.errors import BadInput, why
from secagg.printable import first_unprintable
from secagg.reading import parse_json, parse_toml, read_document, resembling

GUIDE = 'secagg/features/README.md, "A table of your own"'
"""Where people read how a schema is written."""
MissingRule = Literal["refuse", "midpoint", "indicator"]
MISSING_RULES: tuple[MissingRule, ...] = ("refuse", "midpoint", "indicator")


@dataclass(frozen=True)
class Numeric:
    """A number in the declared range [low, high], scaled to [-1, 1]."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise BadInput(f"schema column {self.name!r}: the range [{self.low}, {self.high}] is empty or not finite")
        if not math.isfinite(self.high - self.low):
            raise BadInput(f"schema column {self.name!r}: the range [{self.low}, {self.high}] is too wide for float64")


@dataclass(frozen=True)
class Categorical:
    """One of the declared values, encoded one-hot. Values that read as the same number are the same."""

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if len({canonical(value) for value in self.values}) != len(self.values) or not self.values:
            raise BadInput(f"schema column {self.name!r}: needs one or more different values, got {self.values}")


Column = Numeric | Categorical


@dataclass(frozen=True)
class Schema:
    """Columns, label and missing-value rule of one kind of table.

    `label_values` maps each raw label value to a class name. `missing` lists the tokens that stand for
    a missing value. `missing_rule`: "refuse"; "midpoint" (numeric: middle of the range, that is 0 after
    scaling; categorical: all zero); "indicator" (midpoint and one more 0/1 entry per column).
    `fields` is the order of all fields in a file without a header (it may name fields that are not used).
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
        if self.missing_rule not in MISSING_RULES:
            raise BadInput(f"schema: missing_rule is one of {MISSING_RULES}, got {self.missing_rule!r}")
        if self.fields and (len(set(self.fields)) != len(self.fields) or not set(names) <= set(self.fields)):
            raise BadInput("schema: fields must name every column and the label once")

    @property
    def dimension(self) -> int:
        """Length of one encoded record."""
        encoded = sum(1 if isinstance(column, Numeric) else len(column.values) for column in self.columns)
        return encoded + (len(self.columns) if self.missing_rule == "indicator" else 0)

    @property
    def bound(self) -> float:
        """Public L2 bound of one encoded record: √columns, as each column's entries have norm ≤ 1."""
        return math.sqrt(len(self.columns))

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values; `from_dict` undoes it exactly."""
        return {
            "label": self.label,
            "label_values": dict(self.label_values),
            "classes": list(self.classes),
            "missing": list(self.missing),
            "missing_rule": self.missing_rule,
            "fields": list(self.fields),
            "columns": [_column_to_dict(column) for column in self.columns],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Schema:
        """Read the plain form strictly. Raises BadInput for unknown keys, missing keys or other types."""
        _only_keys(values, "schema", {"label", "label_values", "classes", "columns"}, _OPTIONAL)
        label_values = values["label_values"]
        if not isinstance(label_values, Mapping):
            raise BadInput("schema: label_values maps raw values to class names")
        columns = values["columns"]
        if not isinstance(columns, list):
            raise BadInput("schema: columns is a list of tables")
        return cls(
            columns=tuple(_column_from_dict(column) for column in columns),
            label=_text(values["label"], "label"),
            label_values=tuple((_text(k, "label_values"), _text(v, "label_values")) for k, v in label_values.items()),
            classes=_texts(values["classes"], "classes"),
            missing=_texts(values.get("missing", ["", "?"]), "missing"),
            missing_rule=values.get("missing_rule", "refuse"),
            fields=_texts(values.get("fields", []), "fields"),
        )

    def to_json(self) -> str:
        """Return the one canonical JSON text of the schema, as the plan holds it."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Read what `to_json` wrote. Raises BadInput for anything else, other spellings included."""
        try:
            schema = cls.from_dict(parse_json(text))
        except ValueError as error:
            raise BadInput(f"the schema is not JSON: {error}") from error
        if schema.to_json() != text:
            raise BadInput("the schema is not in its canonical JSON form", remedy="make it with Schema.to_json")
        return schema


_OPTIONAL = {"missing", "missing_rule", "fields"}


def load_schema(source: str) -> Schema:
    """Read a schema from a TOML file, or a packaged one by name (`heart-disease`). Raises BadInput."""
    packaged = resources.files("secagg.data") / "schemas"
    names = sorted(entry.name.removesuffix(".toml") for entry in packaged.iterdir() if entry.name.endswith(".toml"))
    try:
        if source in names:
            text = (packaged / f"{source}.toml").read_text(encoding="utf-8")
        else:
            text = read_document(Path(source))
        return Schema.from_dict(parse_toml(text))
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"give a TOML file (see {GUIDE}) or the name of a packaged one: {', '.join(names)}"
        raise BadInput(f"cannot read the schema {source} ({why(error)})", remedy=remedy) from error
    except ValueError as error:
        raise BadInput(f"the schema {source} is not TOML: {error}") from error
    except BadInput as error:
        raise BadInput(f"{source}: {error.problem}", remedy=error.remedy) from error


def canonical(value: str) -> str:
    """Return the one spelling of a raw value: stripped; numbers as Python prints them, whole ones as integers."""
    text = value.strip()
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    return str(int(number)) if number.is_integer() else repr(number)


def _column_to_dict(column: Column) -> dict[str, Any]:
    if isinstance(column, Numeric):
        return {"name": column.name, "kind": "numeric", "low": column.low, "high": column.high}
    return {"name": column.name, "kind": "categorical", "values": list(column.values)}


def _column_from_dict(values: Any) -> Column:
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if kind == "numeric":
        _only_keys(values, "numeric column", {"name", "kind", "low", "high"})
        return Numeric(_text(values["name"], "name"), _number(values["low"]), _number(values["high"]))
    if kind == "categorical":
        _only_keys(values, "categorical column", {"name", "kind", "values"})
        return Categorical(_text(values["name"], "name"), _texts(values["values"], "values"))
    raise BadInput(f"schema: a column has kind 'numeric' or 'categorical', got {values!r}")


def _only_keys(values: Any, what: str, required: set[str], optional: set[str] | None = None) -> None:
    if not isinstance(values, Mapping):
        raise BadInput(f"{what}: is a table of keys and values, got {values!r}")
    missing = sorted(required - set(values))
    unknown = sorted(set(values) - required - (optional or set()))
    if missing or unknown:
        named = (("missing", missing), ("unknown", unknown))
        faults = [f"{fault} keys: {', '.join(keys)}" for fault, keys in named if keys]
        near = resembling(unknown, required | (optional or set()))
        raise BadInput(f"{what}: {'; '.join(faults)}", remedy=" ".join(filter(None, (near, f"see {GUIDE}"))))


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"schema: {key} holds text, got {value!r}", remedy="put it in quotes")
    return value


def _texts(value: Any, key: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise BadInput(f"schema: {key} is a list of text, got {value!r}")
    return tuple(_text(item, key) for item in value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"schema: low and high are numbers, got {value!r}")
    return float(value)
