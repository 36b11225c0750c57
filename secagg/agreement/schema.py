"""Schemas: what every column of a table means, fixed in public before any table is read.

A schema scales a table with constants that no record can change: declared ranges and value lists,
never the data's own minimum or mean. It travels inside the plan, so its dictionary form is strict.
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from secagg.agreement.columns import (
    GUIDE,
    MISSING_RULES,
    Boolean,
    Categorical,
    Column,
    Dated,
    Hashed,
    MissingRule,
    Numeric,
    Scaled,
    canonical,
    column_from_dict,
    column_to_dict,
    only_keys,
    text_of,
    texts_of,
)
from secagg.errors import BadInput, why
from secagg.system.printable import first_unprintable
from secagg.system.reading import parse_json, parse_toml, read_document, utf8_remedy

DECIMALS = (".", ",")
DELIMITERS = (",", ";", "\t")
"""What may divide the fields of a line; where nothing is declared, the first line shows it."""


@dataclass(frozen=True)
class Schema:
    """Columns, label and missing-value rule of one kind of table.

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
        """Raise BadInput for rules about cells that there are not, or that contradict each other."""
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
            raise BadInput(
                f"schema: decimal is {self.decimal!r} and delimiter {self.delimiter!r}",
                remedy='give decimal = "." or ",", and delimiter = ",", ";" or "\\t"',
            )

    def rule_of(self, column: Column) -> str:
        """What happens to a column's missing values."""
        return column.missing_rule or self.missing_rule

    @property
    def delimiters(self) -> tuple[str, ...]:
        """What may divide the fields of a line: as declared, else no comma where numbers have commas."""
        return (self.delimiter,) if self.delimiter else tuple(each for each in DELIMITERS if each != self.decimal)

    @property
    def indicated(self) -> tuple[Column, ...]:
        """The columns that have an entry which says where they are missing."""
        return tuple(column for column in self.columns if self.rule_of(column) == "indicator")

    @property
    def dimension(self) -> int:
        """Length of one encoded record."""
        return sum(column.width for column in self.columns) + len(self.indicated)

    @property
    def bound(self) -> float:
        """Public L2 bound of one encoded record: √columns, as each column's entries have norm ≤ 1.

        But for a column that may be missing and is filled by another value than the middle, beside its indicator.
        """
        return math.sqrt(sum(self._squared_bound(column) for column in self.columns))

    def _squared_bound(self, column: Column) -> float:
        filled = scaled_fill(column) if isinstance(column, Scaled) and column in self.indicated else 0.0
        return 1.0 + filled**2

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
        """Read the plain form strictly. Raises BadInput for unknown keys, missing keys or other types."""
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
        raise BadInput(f"cannot read the schema {source} ({why(error)})", remedy=remedy) from error
    except ValueError as error:
        raise BadInput(f"the schema {source} is not TOML: {error}") from error
    except BadInput as error:
        raise BadInput(f"{source}: {error.problem}", remedy=error.remedy) from error


def scaled_fill(column: Scaled) -> float:
    """What stands for a missing value of a column, on the scale from -1 to 1; the middle is 0."""
    if column.filling is None:
        return 0.0
    low, high = column.limits
    return (column.filling - low) / (high - low) * 2.0 - 1.0


__all__ = [
    "GUIDE",
    "Boolean",
    "Categorical",
    "Column",
    "Dated",
    "Hashed",
    "Numeric",
    "Scaled",
    "Schema",
    "canonical",
    "load_schema",
]
