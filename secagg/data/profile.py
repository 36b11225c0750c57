"""Compare a member's own records with the declared schema before anything is sent; only the member sees the result.

Counts, minima and medians are of private records: they are shown on the member's own machine, and in no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from secagg.agreement.schema import Column, Dated, Hashed, Numeric, Schema
from secagg.data.encoding import ColumnCells, encode_column
from secagg.data.records import Faults, Records

NARROW = 0.05
"""Share of the declared range: values that all lie within so little of it may be in another unit."""
FEW = 10
"""Fewest values of a column about which doubts are reported."""
SHOWN = 8
"""Most values of a category that are counted one by one."""


@dataclass(frozen=True)
class _ColumnProfile:
    """A column's declaration beside what the records hold. `refused` counts cells that the declaration does not allow.

    `least`, `middle` and `most` are the minimum, median and maximum of numbers and dates, as people write them;
    `values` how often the most frequent others occur. `doubts`: what a person should look at.
    """

    name: str
    declared: str
    missing: int
    refused: int
    least: str = ""
    middle: str = ""
    most: str = ""
    values: tuple[tuple[str, int], ...] = ()
    doubts: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return the column's findings in one line, and a further line for each doubt."""
        counted = ", ".join(f"{value}: {count}" for value, count in self.values)
        found = f"minimum {self.least}, median {self.middle}, maximum {self.most}" if self.least else counted or "-"
        refused = f"; {self.refused} refused" if self.refused else ""
        line = f"{found}; declared {self.declared}; {self.missing} missing{refused}"
        return "\n".join([line, *(f"DOUBT: {doubt}" for doubt in self.doubts)])


@dataclass(frozen=True)
class Profile:
    """A summary of a member's records: how many there are, are bad and are of each class, and each column's values."""

    records: int
    bad: int
    classes: tuple[tuple[str, int], ...]
    columns: tuple[_ColumnProfile, ...]
    doubts: tuple[str, ...]
    positive: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """Return the findings as (name, text) pairs for display."""
        counts = [(f"class {name}{', positive' * (name == self.positive)}", str(count)) for name, count in self.classes]
        total = ("records", "\n".join([str(self.records), *(f"DOUBT: {doubt}" for doubt in self.doubts)]))
        return [total, *counts, *((column.name, column.sentence()) for column in self.columns)]

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain JSON values."""
        columns = [{**asdict(column), "values": dict(column.values)} for column in self.columns]
        return {**asdict(self), "classes": dict(self.classes), "columns": columns}


def profile_of(records: Records, classes: Sequence[str], schema: Schema | None, caveats: Sequence[str] = ()) -> Profile:
    """Summarise a member's records, and their columns if a schema is given; `caveats` are further doubts to report."""
    counts = tuple((name, int(np.count_nonzero(records.labels == label))) for label, name in enumerate(classes))
    absent = [name for name, count in counts if not count]
    doubts = [f"no record is of class {', '.join(absent)}"] if absent else []
    if records.bad:
        doubts.append(f"{records.bad} of {len(records)} cannot be used: malformed, or not labelled")
    doubts += caveats
    columns = tuple(_profile(records, column, schema) for column in schema.columns) if schema else ()
    positive = schema.positive if schema else ""
    if schema and len(classes) == 2 and not positive:
        doubts.append(f'the schema declares no positive class: add positive = "{classes[0]}" or "{classes[1]}"')
    return Profile(len(records), records.bad, counts, columns, tuple(doubts), positive)


def _profile(records: Records, column: Column, schema: Schema) -> _ColumnProfile:
    faults = Faults(records.origin, tolerant=True)
    cells = ColumnCells.of(records.columns[column.name], column.name, schema, faults)
    encode_column(cells, column)
    missing, refused = int(cells.missing.sum()), int(faults.bad.sum())
    doubts = [f"{missing} of {len(records)} values are missing"] if 2 * missing > len(records) >= FEW else []
    if not isinstance(column, Numeric | Dated):
        found, counts = np.unique(cells.values[~cells.missing], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        values = tuple((str(found[place]), int(counts[place])) for place in order[:SHOWN])
        if len(found) == 1 and counts[0] >= FEW:
            doubts.append(f"all {counts[0]} values are the same")
        if isinstance(column, Hashed):
            if len(found) > 2 * FEW and counts.max() == 1:
                doubts.append("no value occurs twice: is it an identifier?")
            values = (("different values", len(found)),)
        declared = column.declared if isinstance(column, Hashed) else f"{len(column.values)} values"
        return _ColumnProfile(column.name, declared, missing, refused, values=values, doubts=tuple(doubts))
    (low, high), numbers = column.limits, cells.numbers(column)
    there = np.sort(numbers[np.isfinite(numbers) & ~cells.missing])
    if not len(there):
        return _ColumnProfile(column.name, column.declared, missing, refused, doubts=tuple(doubts))
    least, most = float(there[0]), float(there[-1])
    share = (most - least) / (high - low)
    if len(there) >= FEW and least == most:
        doubts.append(f"all {len(there)} values are the same")
    elif len(there) >= FEW and share < NARROW:
        doubts.append(f"all {len(there)} values lie in {100 * share:.1f} % of the declared range: another unit?")
    if 2 * refused > len(there):
        doubts.append(f"{refused} of {len(there)} values are outside the declared range: another unit?")
    shown = (column.to_text(least), column.to_text(float(there[(len(there) - 1) // 2])), column.to_text(most))
    return _ColumnProfile(column.name, column.declared, missing, refused, *shown, (), tuple(doubts))
