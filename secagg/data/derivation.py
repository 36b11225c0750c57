"""Schemas derived from the tables themselves: for public data and for simulation only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.columns import Categorical, Column, Dated, Numeric, canonical, number_of
from secagg.agreement.schema import Schema
from secagg.data.encoding import parse_numbers
from secagg.data.table import Table
from secagg.errors import BadInput

MAX_VALUES = 256
MISSING = ("", "?")
NOT_A_NUMBER = ("nan", "+nan", "-nan")  # a bad number that encoding refuses, not a category
DAYS = ("YYYY-MM-DD", "DD.MM.YYYY", "DD/MM/YYYY", "MM/DD/YYYY", "YYYY/MM/DD", "DD-MM-YYYY")
PATTERNS = (*DAYS, *(f"{day}{time}" for day in DAYS for time in (" hh:mm", " hh:mm:ss", "Thh:mm:ss")))
"""Patterns of dates that are recognised, the first that fits all of a column's values."""
EVER = "0001-01-01", "9999-12-30"
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")


def derive_schema(tables: Sequence[Table], label: str) -> Schema:
    """Derive a schema from pooled tables: numbers and dates with their minimum and maximum, others by value.

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
    return Schema(
        columns=tuple(_column(name, pooled[name], decimal) for name in names if name != label),
        label=label,
        label_values=tuple((value, value) for value in labels),
        classes=labels,
        missing=MISSING,
        decimal=decimal,
    )


def decimal_of(columns: Sequence[NDArray[np.str_]]) -> str:
    """The decimal mark of columns' distinct values: a comma where columns have such numbers, and none has a point.

    Columns whose marks may all group thousands, as in 293.927, count only where there are no others.
    """
    found, clear = [], []
    for mark in (",", "."):
        numbers = [values[np.strings.find(values, mark) >= 0] for values in columns if _all_numbers(values, mark)]
        found.append(any(map(len, numbers)))
        clear.append(any(not all(map(_GROUPED.fullmatch, map(str, values))) for values in numbers))
    commas, points = clear if any(clear) else found
    return "," if commas and not points else "."


def _all_numbers(values: NDArray[np.str_], decimal: str) -> bool:
    """Whether all of a column's values that are there are numbers, written with this mark."""
    present = values[~np.isin(values, MISSING)]
    return not np.isnan(parse_numbers(present, decimal)).any()


def date_pattern(values: NDArray[np.str_]) -> str:
    """The pattern of dates that all of some values are of; "" where there is none, or no value."""
    if not len(values) or not all(re.match(r"\d{1,4}[-./]\d", str(value)) for value in values):
        return ""
    tried = (Dated("", *EVER, pattern) for pattern in PATTERNS)
    fitting = (each for each in tried if not any(np.isnan(each.read(str(value))) for value in values))
    return next((each.pattern for each in fitting), "")


def strays(tables: Sequence[Table], schema: Schema) -> tuple[str, ...]:
    """What to say of columns that a few cells of text among numbers make categories of many values.

    Each note names the column, and file and row of the first such cell, never the cell. Few: fewer than one distinct
    value in ten, of at least ten.
    """
    notes = []
    for column in schema.columns:
        if not isinstance(column, Categorical):
            continue
        text = [value for value in column.values if np.isnan(number_of(value, schema.decimal))]
        if not 0 < 10 * len(text) < len(column.values):
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
        return Dated(name, whole.shown(min(*days, last - 1)), whole.shown(last), pattern)
    if text.any():
        return Categorical(name, categories(name, present))
    finite = numbers[np.isfinite(numbers)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    if low == high:
        low, high = low - max(1.0, abs(low)), high + max(1.0, abs(high))
    return Numeric(name, low, high)


def categories(name: str, values: NDArray[np.str_]) -> tuple[str, ...]:
    """Return the distinct values: by size when all are numbers, else alphabetically."""
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
