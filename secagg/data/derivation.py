"""Schemas made from tables: derived for public data and simulations, or drafted as TOML for people to correct."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.schema import (
    GUIDE,
    Boolean,
    Categorical,
    Column,
    Dated,
    Hashed,
    Numeric,
    Schema,
    canonical,
    column_to_dict,
    number_of,
)
from secagg.data.encoding import parse_numbers
from secagg.data.table import THOUSANDS_REMEDY, Table
from secagg.errors import BadInput
from secagg.system.printable import escaped

MAX_VALUES = 256
FEW = 10
"""A column's exceptions are few if they are fewer than one in this many of its distinct values."""
MISSING = ("", "?")
NOT_A_NUMBER = ("nan", "+nan", "-nan")  # a bad number that encoding refuses, not a category
DAYS = ("YYYY-MM-DD", "DD.MM.YYYY", "DD/MM/YYYY", "MM/DD/YYYY", "YYYY/MM/DD", "DD-MM-YYYY")
PATTERNS = (*DAYS, *(f"{day}{time}" for day in DAYS for time in (" hh:mm", " hh:mm:ss", "Thh:mm:ss")))
"""Patterns of dates that are recognised; the first that fits all values of a column is taken."""
EVER = "0001-01-01", "9999-12-30"
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")


def derive_schema(tables: Sequence[Table], label: str) -> Schema:
    """Derive a schema from pooled tables: the ranges of numbers and dates, and the values of all other columns.

    It looks at every record, so it belongs to public data sets and to `simulate`; members of a real
    federation declare a schema instead. Missing values are refused. Raises BadInput when the label or a
    column is absent, or when a column of text has more than 256 values (an identifier, not a category).
    """
    names = list(tables[0].columns)
    for table in tables:
        if label not in table.columns:
            remedy = "name the label column with --label; a file without a header needs --schema"
            problem = f"none of the {len(table.columns)} columns of {table.source} is called {label!r}"
            raise BadInput(problem, remedy=remedy)
        if set(table.columns) != set(names):
            remedy = "give tables with the same columns, or a schema that names the shared ones"
            raise BadInput(f"{table.source} has other columns than {tables[0].source}", remedy=remedy)
    pooled = {name: np.unique(np.concatenate([table.columns[name] for table in tables])) for name in names}
    decimal = decimal_of([pooled[name] for name in names if name != label])
    labels = categories(label, pooled[label])
    columns = tuple(_column(name, pooled[name], decimal) for name in names if name != label)
    spelled = tuple((value, value) for value in labels)
    return Schema(columns, label, spelled, labels, missing=MISSING, decimal=decimal)


def decimal_of(columns: Sequence[NDArray[np.str_]]) -> str:
    """Return the decimal mark of columns: a comma if some number has a comma and none has a point, else a point.

    Columns whose marks may all group thousands, as in 293.927, count only where there are no others.
    """
    found, clear = [], []
    present = [values[~np.isin(values, MISSING)] for values in columns]
    for mark in (",", "."):
        written = [values for values in present if not np.isnan(parse_numbers(values, mark)).any()]
        numbers = [values[np.strings.find(values, mark) >= 0] for values in written]
        found.append(any(map(len, numbers)))
        clear.append(any(not all(map(_GROUPED.fullmatch, map(str, values))) for values in numbers))
    commas, points = clear if any(clear) else found
    return "," if commas and not points else "."


def date_pattern(values: NDArray[np.str_]) -> str:
    """Return the first date pattern (YYYY-MM-DD, say) that fits all values; "" if none fits or `values` is empty."""
    if not len(values) or not all(re.match(r"\d{1,4}[-./]\d", str(value)) for value in values):
        return ""
    tried = (Dated("", *EVER, pattern) for pattern in PATTERNS)
    fitting = (each for each in tried if not any(np.isnan(each.read(str(value))) for value in values))
    return next((each.pattern for each in fitting), "")


def strays(tables: Sequence[Table], schema: Schema) -> tuple[str, ...]:
    """Describe each column that became categorical because a few of its cells are text among numbers.

    Each note names the column, and file and row of the first such cell, never the cell. Few: fewer than one distinct
    value in ten, of at least ten.
    """
    notes = []
    for column in schema.columns:
        if not isinstance(column, Categorical):
            continue
        text = [value for value in column.values if np.isnan(number_of(value, schema.decimal))]
        if not 0 < FEW * len(text) < len(column.values):
            continue
        found = [(table, np.isin(table.columns[column.name], text)) for table in tables]
        table, cells = next((table, cells) for table, cells in found if cells.any())
        notes.append(
            f"column {column.name!r} became a category of {len(column.values)} values, as {table.source}, row "
            f"{table.origin.row[np.argmax(cells)]}, holds text among numbers; mend it, or declare the column numeric"
        )
    return tuple(notes)


def _column(name: str, values: NDArray[np.str_], decimal: str) -> Column:
    present = values[~np.isin(values, MISSING)]
    numbers = parse_numbers(present, decimal)
    text = np.isnan(numbers) & ~np.isin(np.char.lower(present), NOT_A_NUMBER)
    if pattern := date_pattern(present):
        whole = Dated(name, *EVER, pattern)
        days = [whole.read(str(value)) for value in present]
        last = min(max(days) + 1, date.max.toordinal())  # 31 December 9999 is how files say "no end"
        return Dated(name, whole.to_text(min(*days, last - 1)), whole.to_text(last), pattern)
    if text.any():
        return Categorical(name, categories(name, present))
    finite = numbers[np.isfinite(numbers)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    if low == high:
        low, high = low - max(1.0, abs(low)), high + max(1.0, abs(high))
    return Numeric(name, low, high)


def categories(name: str, values: NDArray[np.str_]) -> tuple[str, ...]:
    """Return a column's distinct values, in numeric order if all are numbers, else in alphabetical order."""
    distinct = {canonical(str(value)) for value in values if value not in MISSING}
    if len(distinct) > MAX_VALUES:
        remedy = "leave it out with a schema, or declare it numeric"
        raise BadInput(f"column {name!r} has {len(distinct)} different values, which is no category", remedy=remedy)
    if not distinct:
        raise BadInput(f"column {name!r} has no values", remedy="leave it out with a schema")
    numbers = parse_numbers(np.array(sorted(distinct)))
    if np.isnan(numbers).any():
        return tuple(sorted(distinct))
    return tuple(sorted(distinct, key=float))


ABSENT = (*MISSING, "NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", "-", "--", ".")
"""Texts that mean a missing value in many files; a draft declares the empty cell and those that its file holds."""
PAIRS = ("true false", "yes no", "y n", "t f", "ja nein", "j n", "oui non", "si no", "wahr falsch", "vrai faux")
LISTED = 30
"""Most values of a category that a draft lists; a category of more values is hashed."""
BUCKETS = 64
SHOWN = 3
"""Most values that are not numbers, in a column of numbers, that a remark quotes."""
_THOUSANDS = re.compile(
    r"[+-]?\d{1,3}(?P<group>[., '’])\d{3}(?:(?P=group)\d{3})*(?:(?!(?P=group))(?P<decimal>[.,])\d+)?"
)
FEW_CODES = 8
"""Most different whole numbers of a column that may be codes of categories."""


@dataclass(frozen=True)
class Draft:
    """A drafted schema with a remark on each column; `unused` lists the columns left out, with the reasons."""

    schema: Schema
    remarks: tuple[str, ...]
    unused: tuple[tuple[str, str], ...]
    source: str

    def to_toml(self) -> str:
        """Return the schema as TOML for people, with comments on how each column was interpreted and why."""
        schema = self.schema
        head = [
            f"# A draft, from the public file {escaped(self.source)}: read every line and correct it. Members agree",
            "# to what stands here; nothing of it may come from their records: ranges and values are what can occur.",
            f"# The format: {GUIDE}",
        ]
        keys = [("label", schema.label), ("classes", schema.classes), ("missing", schema.missing)]
        keys += [("missing_rule", schema.missing_rule), ("decimal", schema.decimal), ("delimiter", schema.delimiter)]
        lines = [*head, *(f"{key} = {_toml(value)}" for key, value in keys if value != "")]
        if len(schema.classes) == 2:
            line = f"positive = {_toml(schema.positive)} #" if schema.positive else '# positive = "" # FILL IN:'
            either = " or ".join(map(_toml, schema.classes))
            lines.insert(len(head) + 2, f"{line} {either}, the one to be recognised, whose sensitivity is stated")
        lines += [f"# not used: {_toml(name)}, {reason}" for name, reason in self.unused]
        lines += ["", "[label_values] # what stands in the file = the class that it means"]
        lines += [f"{_toml(raw)} = {_toml(name)}" for raw, name in schema.label_values]
        for column, remark in zip(schema.columns, self.remarks, strict=True):
            values = column_to_dict(column)
            lines += ["", f"[[columns]]{f' # {remark}' if remark else ''}"]
            order = ["name", "kind", *(field.name for field in fields(column) if field.name != "name")]
            lines += [f"{key} = {_toml(values[key])}" for key in order if key in values]
        return "\n".join(lines) + "\n"


def draft_schema(table: Table, label: str, positive: str = "") -> Draft:
    """Draft a schema from a public table: guess the kinds of its columns, and round their ranges outwards.

    Raises BadInput for no such label, and for a positive class that is none of two.
    """
    if label not in table.columns:
        remedy = f"name the label column with --label: {', '.join(table.columns)}"
        raise BadInput(f"no column of {table.source} is called {label!r}", remedy=remedy)
    distinct = {name: np.unique(cells) for name, cells in table.columns.items()}
    absent = (*ABSENT, *(mark for name, values in distinct.items() if name != label for mark in _marks(values)))
    present = {name: values[~np.isin(values, absent)] for name, values in distinct.items()}
    decimal = decimal_of([_numbers(values) for name, values in present.items() if name != label])
    columns, remarks, unused = [], [], []
    for name, values in present.items():
        if name == label:
            continue
        rule = "indicator" if np.isin(distinct[name], absent).any() else ""
        repeated = len(values) < len(table) - np.isin(table.columns[name], absent).sum()
        column, remark = _guess(name, values, decimal, rule, repeated=repeated)
        if isinstance(column, Numeric) and (marks := _marks(distinct[name])):
            remark += f"; taken for missing values: {', '.join(map(_toml, marks))}"
        if column is None:
            unused.append((name, remark))
        else:
            columns.append(column)
            remarks.append(remark)
    labels = categories(label, present[label])
    missing = tuple(dict.fromkeys(each for each in absent if not each or any(each in v for v in distinct.values())))
    schema = Schema(
        tuple(columns), label, tuple((value, value) for value in labels), labels, missing=missing, decimal=decimal,
        delimiter=";" if decimal == "," else "", positive=positive,
    )  # fmt: skip
    return Draft(schema, tuple(remarks), tuple(unused), Path(table.source).name)


def _guess(
    name: str, values: NDArray[np.str_], decimal: str, rule: str, *, repeated: bool
) -> tuple[Column | None, str]:
    """Guess a column's kind from its distinct values, with a remark; None for a column without information."""
    if not len(values):
        return None, "it has no values"
    spelled = [str(value) for value in values]
    for pair in (*PAIRS, "1 0"):
        true, false = (tuple(each for each in spelled if each.casefold() == word) for word in pair.split())
        if true and false and len(true) + len(false) == len(spelled):
            return Boolean(name, true, false, missing_rule=rule), ""
    if pattern := date_pattern(values):
        whole = Dated(name, *EVER, pattern)
        days = [whole.read(value) for value in spelled]
        first, last = (whole.to_text(day)[:4] for day in (min(days), max(days)))
        remark = "days from 1 January of the first year to 31 December of the last one in the file: widen"
        return Dated(name, f"{first}-01-01", f"{last}-12-31", pattern, missing_rule=rule), remark
    numbers = parse_numbers(values, decimal)
    finite = np.isfinite(numbers)
    if finite.all():
        return _guess_range(name, numbers, rule)
    thousands = [_THOUSANDS.fullmatch(str(value)) for value in values[~finite]]
    mark = next((each["decimal"] for each in thousands if each and each["decimal"]), decimal)
    grouped = f"its numbers have thousands' separators: {THOUSANDS_REMEDY[mark]}" if all(thousands) else ""
    if FEW * (~finite).sum() < len(values):
        column, remark = _guess_range(name, numbers[finite], rule)
        told = ", ".join(_toml(str(value)) for value in values[~finite][:SHOWN])
        mended = f" ({grouped})" if grouped else ""
        return column, f"{remark}; refused as no number until it is mended{mended}, or listed as missing: {told}"
    if grouped:
        return None, grouped
    if len(values) <= LISTED:
        listed = tuple(sorted({canonical(value, decimal) for value in spelled}))
        return Categorical(name, listed, missing_rule=rule), "every value that can occur"
    if not repeated:
        return None, "no value occurs twice: it looks like an identifier"
    return Hashed(name, BUCKETS, missing_rule=rule), f"{len(values)} different values, by a public hash"


def _marks(values: NDArray[np.str_]) -> tuple[str, ...]:
    """Return the texts that mark missing numbers in a column: a few of its values, without digits, among numbers."""
    text = values[~np.isin(values, (*_numbers(values), *ABSENT))]
    return tuple(str(value) for value in text if not any(map(str.isdigit, value)))


def _numbers(values: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return the numbers (with either decimal mark) among distinct values if few are not numbers; else all values."""
    text = np.isnan(parse_numbers(values, ".")) & np.isnan(parse_numbers(values, ",")) & ~np.isin(values, ABSENT)
    return values[~text] if FEW * text.sum() < len(values) else values


def _guess_range(name: str, numbers: NDArray[np.float64], rule: str) -> tuple[Column, str]:
    """Return a numeric column from the least to the greatest value, both rounded outwards to steps of fitting size."""
    least, most = float(numbers.min()), float(numbers.max())
    span = most - least  # of the smallest numbers no power of ten is left, of the largest none is enough: refused below
    step = (10.0 ** math.floor(math.log10(span)) or span) if 0 < span < math.inf else max(1.0, abs(least))
    low, high = math.floor(least / step) * step, math.ceil(most / step) * step
    if low == high:
        low, high = low - step, high + step
    remark = "the file's range, rounded: widen it to what can occur"
    distinct = np.unique(numbers)
    if 2 < len(distinct) <= FEW_CODES and (distinct == np.round(distinct)).all():
        codes = ", ".join(f'"{int(number)}"' for number in distinct)
        remark += f'; if these are codes: kind = "categorical", values = [{codes}]'
    return Numeric(name, float(f"{low:.12g}"), float(f"{high:.12g}"), missing_rule=rule), remark


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)
