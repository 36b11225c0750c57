"""Open a data set by name or path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from secagg.data.arrays import open_arrays
from secagg.data.derivation import derive_schema
from secagg.data.encoding import encode_table
from secagg.data.images import is_image_folder, open_images
from secagg.data.named import NAMES, open_named
from secagg.data.records import Dataset, concatenate
from secagg.data.schema import Schema
from secagg.data.split import Split, keep_all, split_records
from secagg.data.table import TABLE_FORMATS, is_table, read_table
from secagg.errors import BadInput

A_TABLE = "a table"
IMAGE_FOLDER = "a folder of images"


def open_dataset(
    source: str,
    *,
    label: str | None = None,
    schema: Schema | None = None,
    split: bool = True,
    tolerant: bool = False,
    image_size: tuple[int, ...] | None = None,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """Open `digits`, `breast-cancer`, `wine`, an `.npz` file, a table, a folder of tables (one client each) or images.

    A folder of images is opened by `open_images`, which says what `image_size` and `classes` mean; nothing else takes
    them. `label` names the label column of a table; `schema` says what its columns mean. Without a schema one is
    derived from the pooled records, which only `simulate` may do. A source without a test part is split by
    `split_records`, a folder within each file or domain; without `split` all
    records are for training. Raises BadInput, or BadRecord with file, row and remedy.

    With `tolerant` a record that cannot be used is not refused but stays in its place with label -1 and
    zero inputs (see `Records`), and no other record can tell; faults of the whole file still raise
    BadInput. The promise is per record where nothing is pooled: a declared schema (a derived one leaves
    out empty cells and those that are no finite number, but one word makes a column categorical), no
    `split`, and an image size and classes that the file or the plan names.
    """
    path = Path(source)
    cut = split_records if split else keep_all
    arrays = path.suffix.lower() == ".npz"
    if source in NAMES or arrays:
        _refuse_label(source, label, schema)
        return open_arrays(path, cut, tolerant=tolerant) if arrays else open_named(source, cut)
    if path.is_dir():
        if files := _tables_in(path):
            return _open_tables(path, files, label, schema, cut, tolerant)
        if not is_image_folder(path):
            raise BadInput(f"the folder {path} holds no table ({TABLE_FORMATS}) and no folders of images")
        _refuse_label(source, label, schema)
        return open_images(path, cut, size=image_size, classes=classes, tolerant=tolerant)
    if not path.exists():
        remedy = f"give a path or one of {', '.join(NAMES)}"
        raise BadInput(f"there is no file or data set {source}", remedy=remedy)
    if not is_table(path):
        remedy = f"give .npz or a table ({TABLE_FORMATS})"
        raise BadInput(f"cannot tell the format of {source} from its name", remedy=remedy)
    return _open_tables(path, [path], label, schema, cut, tolerant)


def kind_of(source: str) -> str | None:
    """What `open_dataset` would take a source for, in words; None where it would refuse it. Reads no record."""
    path = Path(source)
    if source in NAMES:
        return "a data set that brings its own labels"
    if path.is_dir():
        return A_TABLE if _tables_in(path) else IMAGE_FOLDER if is_image_folder(path) else None
    if not path.is_file():
        return None
    return "an .npz file" if path.suffix.lower() == ".npz" else A_TABLE if is_table(path) else None


def _refuse_label(source: str, label: str | None, schema: Schema | None) -> None:
    if label is not None or schema is not None:
        raise BadInput(f"{source} brings its own labels", remedy="leave out the label column and the schema")


def _tables_in(folder: Path) -> list[Path]:
    return sorted((file for file in folder.iterdir() if file.is_file() and is_table(file)), key=lambda file: file.name)


def _open_tables(
    path: Path, files: list[Path], label: str | None, schema: Schema | None, cut: Split, tolerant: bool
) -> Dataset:
    """Read, encode and split each file on its own, then pool them in order."""
    if schema is None and label is None:
        raise BadInput(f"{path}: say which column is the label", remedy="name it with --label, or give --schema")
    if schema is not None and label is not None and label != schema.label:
        raise BadInput(f"the label column is {label!r} here and {schema.label!r} in the schema", remedy="give one")
    tables = [read_table(file, schema, tolerant=tolerant) for file in files]
    chosen = schema if schema is not None else derive_schema(tables, str(label))
    pairs = [cut(encode_table(table, chosen, tolerant=tolerant)) for table in tables]
    train = concatenate([part for part, _ in pairs])
    test = concatenate([part for _, part in pairs])
    starts = np.cumsum([0, *(len(part) for part, _ in pairs)])
    parts = tuple((file.name, np.arange(starts[i], starts[i + 1])) for i, file in enumerate(files))
    return Dataset(
        name=path.name,
        kind="table",
        train=train,
        test=test if len(test) else None,
        classes=chosen.classes,
        schema=chosen,
        bound=chosen.bound,
        parts=parts if path.is_dir() else None,
    )
