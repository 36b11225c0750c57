"""Tables to numbers: scale and one-hot by the schema alone; what the schema does not foresee makes a bad record."""

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
    """Encode every row of a table: numeric columns in [-1, 1], categorical ones one-hot, then indicators.

    NaN, infinite, out-of-range, unknown, missing (under the rule "refuse") and unlabelled values make a
    bad record: `tolerant` marks it, otherwise BadRecord names file, row and column, and never the value.
    """
    faults = Faults(table.origin, tolerant=tolerant)
    labels = _labels(table, schema, faults)
    encoded: list[Encoded] = []
    indicators: list[Encoded] = []
    for column in schema.columns:
        cells = Cells.of(table.columns[column.name], column.name, schema, faults)
        missing = cells.missing
        if schema.rule_of(column) == "refuse":
            cells.refuse_where(missing, "a missing value")
        encoded.append(encode_column(cells, column))
        if column in schema.indicated:
            indicators.append(missing[:, None].astype(np.float64))
    records = Records(np.hstack([*encoded, *indicators]), labels, table.columns, table.origin)
    return records.discard(faults.bad | table.broken)


def encode_column(cells: Cells, column: Column) -> Encoded:
    """Encode one column's cells as (n, width), each row within length 1."""
    match column:
        case Numeric() | Dated():
            return _scale(cells, column)
        case Boolean():
            return _signs(cells, column)
        case Categorical():
            return _one_hot(cells, column)
        case Hashed():
            return _hash(cells, column)


@dataclass(frozen=True, eq=False)
class Cells:
    """One column of a table: as its file has it, and in canonical spelling; `missing` (n,) bool."""

    column: str
    raw: NDArray[np.str_]
    values: NDArray[np.str_]
    missing: NDArray[np.bool_]
    decimal: str
    faults: Faults

    @classmethod
    def of(cls, raw: NDArray[np.str_], column: str, schema: Schema, faults: Faults) -> Cells:
        """Cells (n,) as a schema reads them."""
        values = _each(raw, lambda text: canonical(text, schema.decimal), np.str_)
        missing = np.isin(values, [canonical(token, schema.decimal) for token in schema.missing])
        return cls(column, raw, values, missing, schema.decimal, faults)

    def numbers(self, column: Scaled) -> Encoded:
        """The numbers, or days, that the cells say (n,); NaN where they say none."""
        if isinstance(column, Dated):
            return _each(self.raw, lambda text: column.read(text.strip()), np.float64)
        return parse_numbers(self.raw, self.decimal)

    def refuse_where(self, bad: NDArray[np.bool_], problem: str, remedy: str = REMEDY) -> None:
        """Add a fault for the rows where `bad` holds."""
        self.faults.add(bad, f"column {self.column!r} holds {problem}", remedy)

    def indices_in(self, known: tuple[str, ...]) -> NDArray[np.int64]:
        """Return each value's index in `known`, -1 where it is not in it."""
        keys = np.array([canonical(value, self.decimal) for value in known])
        order = np.argsort(keys)
        position = order[np.minimum(np.searchsorted(keys, self.values, sorter=order), len(keys) - 1)]
        return np.where(keys[position] == self.values, position, -1)


def _each(cells: NDArray[np.str_], read: Callable[[str], Any], kind: type) -> NDArray[Any]:
    """Apply a function to every cell (n,), once for each distinct one."""
    distinct, inverse = np.unique(cells, return_inverse=True)
    return np.array([read(str(cell)) for cell in distinct], dtype=kind)[inverse]


def _scale(cells: Cells, column: Scaled) -> Encoded:
    """Map [low, high] onto [-1, 1]; a missing value becomes what is declared for it, or the middle, 0."""
    (low, high), missing = column.limits, cells.missing
    numbers = cells.numbers(column)
    unreadable = np.isnan(numbers) & ~missing
    if isinstance(column, Dated):
        cells.refuse_where(unreadable, f"no date {column.pattern}")
        said = f"[{column.low}, {column.high}]"
    else:
        cells.refuse_where(unreadable, "no number", _remedy(cells, unreadable))
        cells.refuse_where(np.isinf(numbers) & ~missing, "no finite number")
        said = f"[{low:g}, {high:g}]"
    outside = ~((numbers >= low) & (numbers <= high)) & ~missing
    what = "date" if isinstance(column, Dated) else "number"
    cells.refuse_where(outside, f"a {what} outside the declared range {said}")
    inside = np.where(outside | missing, low, numbers)  # other numbers could overflow
    scaled = (inside - low) / (high - low) * 2.0 - 1.0
    return np.where(missing, scaled_fill(column), scaled)[:, None]


def _remedy(cells: Cells, unreadable: NDArray[np.bool_]) -> str:
    """Return the remedy for cells that are not numbers: another decimal mark, maybe."""
    pattern, remedy = (_DECIMAL_COMMA, COMMA_REMEDY) if cells.decimal == "." else (_DECIMAL_POINT, POINT_REMEDY)
    return remedy if any(pattern.fullmatch(value) for value in cells.raw[unreadable]) else REMEDY


def _signs(cells: Cells, column: Boolean) -> Encoded:
    """1 for true, -1 for false, 0 for a missing value."""
    index = _index(cells, column)
    signs = np.where(index < len(column.true), 1.0, -1.0)
    return np.where(cells.missing | (index < 0), 0.0, signs)[:, None]


def _one_hot(cells: Cells, column: Categorical) -> Encoded:
    """One entry per declared value; a missing value becomes all zero."""
    encoded: Encoded = (_index(cells, column)[:, None] == np.arange(len(column.values))).astype(np.float64)
    encoded[cells.missing] = 0.0
    return encoded


def _index(cells: Cells, column: Boolean | Categorical) -> NDArray[np.int64]:
    """Each value's place among the declared ones, -1 where it is missing or refused."""
    index = cells.indices_in(column.values)
    cells.refuse_where((index < 0) & ~cells.missing, f"none of the declared values {list(column.values)}")
    return index


def _hash(cells: Cells, column: Hashed) -> Encoded:
    """1 or -1 in the bucket of each value; a missing value becomes all zero."""
    places = _each(cells.values, column.place, np.int64).reshape(-1, 2)
    encoded = np.zeros((len(places), column.buckets))
    encoded[np.arange(len(places)), places[:, 0]] = places[:, 1]
    encoded[cells.missing] = 0.0
    return encoded


def _labels(table: Table, schema: Schema, faults: Faults) -> NDArray[np.int64]:
    """Return the class index of every row; an unknown label is a fault, and, where the schema needs one, none is."""
    if not schema.needs_label and schema.label not in table.columns:
        return np.full(len(table), UNLABELLED, dtype=np.int64)
    cells = Cells.of(table.columns[schema.label], schema.label, schema, faults)
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
