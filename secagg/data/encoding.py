"""Tables to numbers: scale and one-hot by the schema alone; what the schema does not foresee makes a bad record."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.data.faults import Faults
from secagg.data.records import UNLABELLED, Records
from secagg.data.schema import Categorical, Numeric, Schema, canonical
from secagg.data.table import COMMA_REMEDY, Table

REMEDY = "mend or remove the row, or declare the value in the schema"
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")


def encode_table(table: Table, schema: Schema, *, tolerant: bool = False) -> Records:
    """Encode every row of a table: numeric columns in [-1, 1], categorical ones one-hot, then indicators.

    NaN, infinite, out-of-range, unknown, missing (under the rule "refuse") and unlabelled values make a
    bad record: `tolerant` marks it, otherwise BadRecord names file, row and column, and never the value.
    """
    faults = Faults(table.origin, tolerant=tolerant)
    labels = _labels(table, schema, faults)
    encoded: list[NDArray[np.float64]] = []
    indicators: list[NDArray[np.float64]] = []
    for column in schema.columns:
        cells = _Cells.of(table, column.name, faults)
        missing = cells.among(schema.missing)
        if schema.missing_rule == "refuse":
            cells.refuse_where(missing, "a missing value")
        encoded.append(
            _scale(cells, column, missing) if isinstance(column, Numeric) else _one_hot(cells, column, missing)
        )
        indicators.append(missing[:, None].astype(np.float64))
    if schema.missing_rule == "indicator":
        encoded += indicators
    records = Records(np.hstack(encoded), labels, table.columns, table.origin)
    return records.discard(faults.bad | table.broken)


@dataclass(frozen=True, eq=False)
class _Cells:
    """One column of a table, its values in canonical spelling."""

    column: str
    values: NDArray[np.str_]
    faults: Faults

    @classmethod
    def of(cls, table: Table, column: str, faults: Faults) -> _Cells:
        return cls(column, _canonical(table.columns[column]), faults)

    def among(self, tokens: tuple[str, ...]) -> NDArray[np.bool_]:
        return np.isin(self.values, [canonical(token) for token in tokens])

    def refuse_where(self, bad: NDArray[np.bool_], problem: str, remedy: str = REMEDY) -> None:
        """The rows where `bad` holds are at fault."""
        self.faults.add(bad, f"column {self.column!r} holds {problem}", remedy)

    def indices_in(self, known: tuple[str, ...]) -> NDArray[np.int64]:
        """Return each value's index in `known`, -1 where it is not in it."""
        keys = np.array([canonical(value) for value in known])
        order = np.argsort(keys)
        position = order[np.minimum(np.searchsorted(keys, self.values, sorter=order), len(keys) - 1)]
        return np.where(keys[position] == self.values, position, -1)


def _canonical(values: NDArray[np.str_]) -> NDArray[np.str_]:
    distinct, inverse = np.unique(values, return_inverse=True)
    return np.array([canonical(str(value)) for value in distinct])[inverse]


def _scale(cells: _Cells, column: Numeric, missing: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Map [low, high] onto [-1, 1]; a missing value becomes the middle, 0."""
    numbers = parse_numbers(cells.values)
    unreadable = np.isnan(numbers) & ~missing
    with_comma = [bool(_DECIMAL_COMMA.fullmatch(value)) for value in cells.values[unreadable]]
    cells.refuse_where(unreadable, "no number", COMMA_REMEDY if any(with_comma) else REMEDY)
    cells.refuse_where(np.isinf(numbers) & ~missing, "no finite number")
    outside = ~((numbers >= column.low) & (numbers <= column.high)) & ~missing
    cells.refuse_where(outside, f"a number outside the declared range [{column.low:g}, {column.high:g}]")
    inside = np.where(outside | missing, column.low, numbers)  # other numbers could overflow
    scaled = (inside - column.low) / (column.high - column.low) * 2.0 - 1.0
    return np.where(missing, 0.0, scaled)[:, None]


def _one_hot(cells: _Cells, column: Categorical, missing: NDArray[np.bool_]) -> NDArray[np.float64]:
    """One entry per declared value; a missing value becomes all zero."""
    index = cells.indices_in(column.values)
    unknown = (index < 0) & ~missing
    cells.refuse_where(unknown, f"none of the declared values {list(column.values)}")
    encoded: NDArray[np.float64] = (index[:, None] == np.arange(len(column.values))).astype(np.float64)
    encoded[missing] = 0.0
    return encoded


def _labels(table: Table, schema: Schema, faults: Faults) -> NDArray[np.int64]:
    """Return the class index of every row; an unknown label is a fault, and, where the schema needs one, none is."""
    if not schema.needs_label and schema.label not in table.columns:
        return np.full(len(table), UNLABELLED, dtype=np.int64)
    cells = _Cells.of(table, schema.label, faults)
    raw = tuple(value for value, _ in schema.label_values)
    index = cells.indices_in(raw)
    unknown = index < 0
    absent = unknown & cells.among(schema.missing)
    if schema.needs_label:
        cells.refuse_where(absent, "no label")
    cells.refuse_where(unknown & ~absent, f"none of the declared labels {list(raw)}")
    classes = np.array([schema.classes.index(name) for _, name in schema.label_values], dtype=np.int64)
    return np.where(absent, UNLABELLED, classes[index])


def parse_numbers(values: NDArray[np.str_]) -> NDArray[np.float64]:
    """Return the values as float64, NaN where the text is no number."""
    distinct, inverse = np.unique(values, return_inverse=True)
    numbers: NDArray[np.float64] = np.array([_number(str(value)) for value in distinct], dtype=np.float64)[inverse]
    return numbers


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
