"""Encode tables as numbers, scaled or one-hot, by the schema alone; a value that the schema refuses is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.schema import (
    Boolean,
    Categorical,
    Column,
    Dated,
    Hashed,
    Numeric,
    Scaled,
    Schema,
    canonical,
    number_of,
    scaled_fill,
)
from secagg.data.records import UNLABELLED, Faults, Records
from secagg.data.table import COMMA_REMEDY, POINT_REMEDY, Table

REMEDY = "mend or remove the row, or declare the value in the schema"
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_DECIMAL_POINT = re.compile(r"[+-]?[\d.,]*\.[\d.,]+")
Encoded = NDArray[np.float64]


def encode_table(table: Table, schema: Schema, *, tolerant: bool = False) -> Records:
    """Encode every row of a table: numbers in [-1, 1], categories one-hot, then indicators of missing values.

    NaN, infinite, out-of-range, unknown, missing (under the rule "refuse") and unlabelled values make a
    bad record: `tolerant` marks it, otherwise BadRecord names file, row and column, and never the value.
    """
    faults = Faults(table.origin, tolerant=tolerant)
    labels = _labels(table, schema, faults)
    encoded: list[Encoded] = []
    indicators: list[Encoded] = []
    for column in schema.columns:
        cells = ColumnCells.of(table.columns[column.name], column.name, schema, faults)
        missing = cells.missing
        if schema.rule_of(column) == "refuse":
            cells.refuse_where(missing, "a missing value")
        encoded.append(encode_column(cells, column))
        if column in schema.indicated:
            indicators.append(missing[:, None].astype(np.float64))
    records = Records(np.hstack([*encoded, *indicators]), labels, table.columns, table.origin)
    return records.discard(faults.bad | table.broken)


def encode_column(cells: ColumnCells, column: Column) -> Encoded:
    """Encode a column's n cells as an array (n, width), each row of which has L2 norm ≤ 1.

    Missing values become zeros, or what the schema declares. Numbers and dates lie in [-1, 1], true and false are 1 and
    -1, a category has an entry for each declared value, and a hashed value is 1 or -1 in its bucket.
    """
    match column:
        case Numeric() | Dated():
            return _scale(cells, column)
        case Boolean():
            index = _index(cells, column)
            signs = np.where(index < len(column.true), 1.0, -1.0)
            return np.where(cells.missing | (index < 0), 0.0, signs)[:, None]
        case Categorical():
            is_value = _index(cells, column)[:, None] == np.arange(len(column.values))
            return np.where(cells.missing[:, None], 0.0, is_value)
        case Hashed():
            places = _each(cells.values, column.place, np.int64).reshape(-1, 2)
            encoded = np.zeros((len(places), column.buckets))
            encoded[np.arange(len(places)), places[:, 0]] = places[:, 1] * ~cells.missing
            return encoded


@dataclass(frozen=True, eq=False)
class ColumnCells:
    """The cells of one column, as in the file (`raw`) and in canonical spelling (`values`); `missing` is (n,) bool."""

    column: str
    raw: NDArray[np.str_]
    values: NDArray[np.str_]
    missing: NDArray[np.bool_]
    decimal: str
    faults: Faults

    @classmethod
    def of(cls, raw: NDArray[np.str_], column: str, schema: Schema, faults: Faults) -> ColumnCells:
        """Build a column's cells from raw text (n,), with the schema's decimal mark and markers of missing values."""
        values = _each(raw, lambda text: canonical(text, schema.decimal), np.str_)
        missing = np.isin(values, [canonical(token, schema.decimal) for token in schema.missing])
        return cls(column, raw, values, missing, schema.decimal, faults)

    def numbers(self, column: Scaled) -> Encoded:
        """Return each cell (n,) as a number, or a date as the number of its day; NaN for a text that is neither."""
        if isinstance(column, Dated):
            return _each(self.raw, lambda text: column.read(text.strip()), np.float64)
        return parse_numbers(self.raw, self.decimal)

    def refuse_where(self, bad: NDArray[np.bool_], problem: str, remedy: str = REMEDY) -> None:
        """Mark the rows where `bad` (n,) is true, or raise BadRecord for the first if bad rows are not tolerated."""
        self.faults.add(bad, f"column {self.column!r} holds {problem}", remedy)

    def indices_in(self, known: tuple[str, ...]) -> NDArray[np.int64]:
        """Return each value's index in `known`; -1 for a value that is not in it."""
        keys = np.array([canonical(value, self.decimal) for value in known])
        order = np.argsort(keys)
        position = order[np.minimum(np.searchsorted(keys, self.values, sorter=order), len(keys) - 1)]
        return np.where(keys[position] == self.values, position, -1)


def _each(cells: NDArray[np.str_], read: Callable[[str], Any], kind: type) -> NDArray[Any]:
    """Apply a function to every cell (n,), once for each distinct one."""
    distinct, inverse = np.unique(cells, return_inverse=True)
    return np.array([read(str(cell)) for cell in distinct], dtype=kind)[inverse]


def _scale(cells: ColumnCells, column: Scaled) -> Encoded:
    """Map [low, high] onto [-1, 1]; a missing value becomes the declared one, or else 0, the middle."""
    (low, high), missing = column.limits, cells.missing
    numbers = cells.numbers(column)
    unreadable = np.isnan(numbers) & ~missing
    if isinstance(column, Dated):
        cells.refuse_where(unreadable, f"no date {column.pattern}")
        declared = f"date outside the declared range [{column.low}, {column.high}]"
    else:
        other, remedy = (_DECIMAL_COMMA, COMMA_REMEDY) if cells.decimal == "." else (_DECIMAL_POINT, POINT_REMEDY)
        has_other = any(other.fullmatch(value) for value in cells.raw[unreadable])
        cells.refuse_where(unreadable, "no number", remedy if has_other else REMEDY)
        cells.refuse_where(np.isinf(numbers) & ~missing, "no finite number")
        declared = f"number outside the declared range [{low:g}, {high:g}]"
    outside = ~((numbers >= low) & (numbers <= high)) & ~missing
    cells.refuse_where(outside, f"a {declared}")
    inside = np.where(outside | missing, low, numbers)  # other numbers could overflow
    scaled = (inside - low) / (high - low) * 2.0 - 1.0
    return np.where(missing, scaled_fill(column), scaled)[:, None]


def _index(cells: ColumnCells, column: Boolean | Categorical) -> NDArray[np.int64]:
    """Return each value's index among the declared values; -1 where it is missing or refused."""
    index = cells.indices_in(column.values)
    cells.refuse_where((index < 0) & ~cells.missing, f"none of the declared values {list(column.values)}")
    return index


def _labels(table: Table, schema: Schema, faults: Faults) -> NDArray[np.int64]:
    """Return each row's class index. An unknown label is a fault; so is a missing one, if the schema needs labels."""
    if not schema.needs_label and schema.label not in table.columns:
        return np.full(len(table), UNLABELLED, dtype=np.int64)
    cells = ColumnCells.of(table.columns[schema.label], schema.label, schema, faults)
    raw = tuple(value for value, _ in schema.label_values)
    index = cells.indices_in(raw)
    unknown = index < 0
    absent = unknown & cells.missing
    if schema.needs_label:
        cells.refuse_where(absent, "no label")
    cells.refuse_where(unknown & ~absent, f"none of the declared labels {list(raw)}")
    classes = np.array([schema.classes.index(name) for _, name in schema.label_values], dtype=np.int64)
    return np.where(absent, UNLABELLED, classes[index])


def parse_numbers(values: NDArray[np.str_], decimal: str = ".") -> Encoded:
    """Return the values as float64, NaN where the text is not a number."""
    return _each(values, lambda text: number_of(text.strip(), decimal), np.float64)
