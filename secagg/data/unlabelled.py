"""Records to be predicted: they may lack labels, alone (a table's cell) or all together (its column, an array)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from secagg.agreement.schema import Schema
from secagg.data.arrays import NPZ, open_without_labels
from secagg.data.encoding import encode_table
from secagg.data.faults import MAX_CELL
from secagg.data.images import is_flat_folder, open_flat
from secagg.data.records import BAD, Dataset, Records
from secagg.data.sources import format_of, open_dataset
from secagg.data.table import Table
from secagg.errors import BadRecord


def open_unlabelled(
    source: str, *, schema: Schema | None, image_size: tuple[int, ...], classes: Sequence[str], tolerant: bool = False
) -> Dataset:
    """Open what `open_dataset` opens, all of it as training records, and the same without labels.

    That is a table without the schema's label column or with empty cells in it, an .npz of `features` or `images`
    alone, a folder that holds images itself. A record without a label has `UNLABELLED`. Raises BadInput, or BadRecord
    with file, row and remedy, as `open_dataset` does; with `tolerant` a bad row of a table is marked, not refused.
    """
    path = Path(source)
    if schema is not None:
        return open_dataset(source, schema=replace(schema, needs_label=False), split=False, tolerant=tolerant)
    if format_of(path) is NPZ and (found := open_without_labels(path)) is not None:
        return found
    if path.is_dir() and is_flat_folder(path):
        return open_flat(path, size=image_size, classes=classes)
    return open_dataset(source, split=False, image_size=image_size, classes=classes)


def reasons_of(records: Records, schema: Schema) -> dict[int, str]:
    """Why each bad record of a table is bad, by its index; never with a value of its cells."""
    return {int(index): _reason(records, int(index), schema) for index in np.flatnonzero(records.labels == BAD)}


def _reason(records: Records, index: int, schema: Schema) -> str:
    """Read one row strictly by itself and return its fault; a line that is no row, or too long, has left no cell."""
    row = records.take(np.array([index]))
    if not any(cells[0] for cells in row.columns.values()):
        return f"it has no value, a field of more than {MAX_CELL} characters, or not the fields of the header"
    table = Table(row.origin.files[0], dict(row.columns), row.origin, np.zeros(1, dtype=np.bool_))
    try:
        encode_table(table, replace(schema, needs_label=False))
    except BadRecord as refusal:
        return refusal.fault
    return "it cannot be read"
