"""Records to be predicted: they may lack labels, alone (a table's cell) or all together (its column, an array)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from secagg.data.arrays import NPZ, open_without_labels
from secagg.data.images import is_flat_folder, open_flat
from secagg.data.records import Dataset
from secagg.data.schema import Schema
from secagg.data.sources import format_of, open_dataset


def open_unlabelled(
    source: str, *, schema: Schema | None, image_size: tuple[int, ...], classes: Sequence[str]
) -> Dataset:
    """Open what `open_dataset` opens, all of it as training records, and the same without labels.

    That is a table without the schema's label column or with empty cells in it, an .npz of `features` or `images`
    alone, a folder that holds images itself. A record without a label has `UNLABELLED`. Raises BadInput, or BadRecord
    with file, row and remedy, as `open_dataset` does.
    """
    path = Path(source)
    if schema is not None:
        return open_dataset(source, schema=replace(schema, needs_label=False), split=False)
    if format_of(path) is NPZ and (found := open_without_labels(path)) is not None:
        return found
    if path.is_dir() and is_flat_folder(path):
        return open_flat(path, size=image_size, classes=classes)
    return open_dataset(source, split=False, image_size=image_size, classes=classes)
