"""Open a data set by name or path: a file, a folder, or one of the public data sets that come with scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from secagg.agreement.schema import Schema, load_schema
from secagg.data.arrays import NPZ, open_without_labels
from secagg.data.delimited import DELIMITED, line_breaks_in, other_order_in, write_without_line_breaks
from secagg.data.derivation import derive_schema, strays
from secagg.data.encoding import encode_table
from secagg.data.images import is_flat_folder, is_image_folder, open_flat, open_images
from secagg.data.parquet import PARQUET
from secagg.data.partition import Split, keep_all, split_records
from secagg.data.records import BAD, MAX_CELL, Dataset, Records, Tolerance, concatenate
from secagg.data.table import Format, LabelledFormat, Table, TableFormat, read_table
from secagg.data.triplets import TRIPLETS
from secagg.encoding.grid import Origin
from secagg.errors import BadInput, BadRecord
from secagg.system import plugins
from secagg.system.extras import extra

NAMES = ("breast-cancer", "digits", "wine")
POSITIVE = {"breast-cancer": "malignant"}
"""The positive class of those public data sets that have one."""


def _digits(cut: Split) -> Dataset:
    """Return 1,797 grey 8×8 digits (Alpaydin & Kaynak 1998) with values 0 to 16 divided by 16; labels come last."""
    with extra("experiments"):  # found, not imported: that would take longer than all that is done here
        found = find_spec("sklearn")
        if found is None or found.origin is None:
            raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    rows = np.loadtxt(Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    images, labels = rows[:, :-1].reshape(-1, 8, 8) / 16.0, rows[:, -1].astype(np.int64)
    records = Records(images, labels, {}, Origin.of("digits", np.arange(1, len(labels) + 1)))
    train, test = cut(records)
    return Dataset("digits", "images", train, test, tuple("0123456789"), bound=math.sqrt(64))


def _public_table(name: str, cut: Split) -> Dataset:
    """Return one of scikit-learn's tables; its schema is derived from the data, which are public."""
    with extra("experiments"):
        from sklearn import datasets

    label, bunch = "class", datasets.load_wine() if name == "wine" else datasets.load_breast_cancer()
    cells = zip(bunch.feature_names, bunch.data.T, strict=True)
    columns = {str(key): np.array([repr(float(cell)) for cell in column]) for key, column in cells}
    columns[label] = bunch.target_names.astype(np.str_)[bunch.target]
    n = len(bunch.target)
    table = Table(name, columns, Origin.of(name, np.arange(1, n + 1)), np.zeros(n, dtype=np.bool_))
    schema = replace(derive_schema([table], label), positive=POSITIVE.get(name, ""))
    train, test = cut(encode_table(table, schema))
    return Dataset(name, "table", train, test, schema.classes, schema, schema.bound)


FORMATS: tuple[Format, ...] = (NPZ, *TRIPLETS, DELIMITED, PARQUET)
"""Formats of data files, told apart by the ends of file names; add a format here."""
_added: list[Format] = []
"""Formats that users added, in the order in which they were given."""
A_TABLE = "a table"
IMAGE_FOLDER = "a folder of images"


def open_dataset(
    source: str,
    *,
    label: str | None = None,
    schema: Schema | str | Path | None = None,
    split: bool = True,
    tolerant: bool = False,
    most: int | None = None,
    image_size: tuple[int, ...] | None = None,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """Open `digits`, `breast-cancer`, `wine`, a file of `FORMATS`, or a folder of tables (one per client) or images.

    A folder of images is opened by `open_images`, which says what `image_size` and `classes` mean; nothing else takes
    them. `label` names the label column of a table; `schema`, or its file or name, says what its columns mean. Without
    a schema one is derived from the pooled records, which only `simulate` may do. A source without a test part is split
    by `split_records`, a folder within each file or domain; without `split` all records are for training. Raises
    BadInput, or BadRecord with file, row and remedy.

    With `tolerant` a record that cannot be used is not refused but stays in its place with label -1 and
    zero inputs (see `Records`), and no other record can tell; faults of the whole file still raise
    BadInput. `most`: how many records a plan allows; then limits of size are on single records, and on `most` of them,
    never on the file (see `Tolerance`). The promise is per record where nothing is pooled: a declared schema (a derived
    one leaves out empty cells and those that are no finite number, but one word makes a column categorical), no
    `split`, and an image size and classes that the file or the plan names.
    """
    path = Path(source)
    schema = load_schema(str(schema)) if isinstance(schema, str | Path) else schema
    cut = split_records if split else keep_all
    known = format_of(path)
    tolerance = Tolerance(most) if tolerant else None
    if source in NAMES:
        _refuse_label(source, label, schema)
        return _digits(cut) if source == "digits" else _public_table(source, cut)
    if isinstance(known, LabelledFormat):
        _refuse_label(source, label, schema)
        known.require(path)
        return known.open(path, cut, tolerance)
    if path.is_dir():
        if files := _tables_in(path):
            return _open_tables(path, files, label, schema, cut, tolerance)
        if not is_image_folder(path):
            raise BadInput(f"the folder {path} holds no table ({_tables()}) and no folders of images")
        _refuse_label(source, label, schema)
        return open_images(path, cut, size=image_size, classes=classes, tolerance=tolerance)
    if not path.exists():
        raise BadInput(f"there is no file or data set {source}", remedy=f"give a path or one of {', '.join(NAMES)}")
    if not isinstance(known, TableFormat):
        raise BadInput(f"cannot tell the format of {source} from its name", remedy=f"give {kinds_of_files()}")
    return _open_tables(path, {path: known}, label, schema, cut, tolerance)


def open_with_test(
    source: str,
    test: str,
    *,
    label: str | None = None,
    schema: Schema | None = None,
    tolerant: bool = False,
    image_size: tuple[int, ...] | None = None,
) -> Dataset:
    """Open a data set of training records whose test records are all of a second source, `test`, of the same kind.

    The options are those of `open_dataset`; a schema that has to be derived comes from both tables together.
    Raises BadInput, or BadRecord, also for test records of another kind, shape or class.
    """
    if schema is None and label is not None and kind_of(source) == kind_of(test) == A_TABLE:
        files = {**tables_at(Path(source)), **tables_at(Path(test))}
        tolerance = Tolerance() if tolerant else None
        schema = derive_schema([read_table(*each, None, tolerance=tolerance) for each in files.items()], label)
    data = open_dataset(source, schema=schema, split=False, tolerant=tolerant, image_size=image_size)
    if data.test is not None:
        raise BadInput(f"{source} brings test records of its own", remedy="leave out --test")
    size = data.train.inputs.shape[1:]
    others = open_dataset(test, schema=schema, split=False, tolerant=tolerant, image_size=size, classes=data.classes)
    if others.kind != data.kind or others.train.inputs.shape[1:] != size:
        problem = f"{test} holds {others.kind} of shape {others.train.inputs.shape[1:]}"
        raise BadInput(problem, remedy=f"the training records are {data.kind} of shape {size}")
    records = others.under(data.classes).train
    if (unknown := np.flatnonzero(records.labels >= len(data.classes))).size:
        problem = f"the label is none of the {len(data.classes)} classes of {source}"
        raise records.origin.refusal(int(unknown[0]), problem, "labels count from 0")
    return replace(data, test=records)


def read_public_table(path: Path) -> Table:
    """Read one table with a header as text, to derive a schema. Raises BadInput if the file is not a table."""
    known = format_of(path)
    if not path.exists():
        raise BadInput(f"there is no file {path}")
    if not isinstance(known, TableFormat) or not path.is_file():
        raise BadInput(f"{path} is no table", remedy=f"give a file: {_tables()}")
    return read_table(path, known, None)


def read_tables(files: Mapping[Path, TableFormat], schema: Schema, tolerance: Tolerance | None) -> Records:
    """Read and encode tables under one schema, and pool their records in order. Raises as `open_dataset` does."""
    tables = [read_table(*each, schema, tolerance=tolerance) for each in files.items()]
    return concatenate([encode_table(table, schema, tolerant=tolerance is not None) for table in tables])


def line_breaks_of(source: str, schema: Schema | None) -> tuple[str, ...]:
    """Return warnings about a table or a folder of tables: line breaks in cells, or columns in a wrong order."""
    files = [file for file, known in tables_at(Path(source)).items() if known is DELIMITED]
    return tuple(filter(None, (look(file, schema) for file in files for look in (line_breaks_in, other_order_in))))


def rewrite_line_breaks(path: Path, out: Path, schema: Schema | None) -> int:
    """Copy a text table with spaces for line breaks in cells; return how many records changed. Raises BadInput."""
    if format_of(path) is not DELIMITED or not path.is_file():
        raise BadInput(f"{path} is no delimited text", remedy=f"give a file: {DELIMITED.called}")
    if format_of(out) is not DELIMITED or out.suffix.lower() == ".gz":
        raise BadInput(f"{out} would not be read as delimited text", remedy="give a name that ends in .csv")
    return write_without_line_breaks(path, out, schema)


def format_of(path: Path) -> Format | None:
    """Return the format of a file by its name, among built-in, added and plug-in formats; None for unknown names."""
    known = next((each for each in (*FORMATS, *_added) if each.takes(path)), None)
    if known is not None or not path.suffix or not path.is_file():
        return known
    return next((each for each in map(_format, plugins.every(plugins.FORMATS)) if each.takes(path)), None)


def add_format(spec: str) -> None:
    """Register a further format: FILE.py:NAME, or an entry point of the group `secagg.formats`.

    Its code runs. Raises BadInput for code that brings no format, or one for files that others read already.
    """
    found = plugins.load(plugins.FORMATS, spec)
    if found is None:
        raise BadInput(f"there is no format {spec!r}", remedy="give FILE.py:NAME, or install what brings it")
    known = _format(found)
    if taken := [end for end in known.suffixes if any(each.takes(Path(f"x{end}")) for each in FORMATS)]:
        raise BadInput(f"{spec}: files {', '.join(taken)} are read already", remedy="choose another end of names")
    _added.append(known)


def _format(found: plugins.Plugin) -> Format:
    """Return the format that a plug-in brings. Raises BadInput for other values."""
    if not isinstance(found.value, TableFormat | LabelledFormat):
        problem = f"{found.name} of {found.source} is no format of data"
        raise BadInput(problem, remedy="make it a TableFormat or LabelledFormat of secagg.data.table")
    return found.value


def kinds_of_files() -> str:
    """Return a text that lists the kinds of data files, for help and error messages."""
    labelled = [each.called for each in FORMATS if not isinstance(each, TableFormat)]
    return f"{', '.join(labelled)} or a table ({_tables()})"


def _tables() -> str:
    return "; ".join(each.called for each in FORMATS if isinstance(each, TableFormat))


def kind_of(source: str) -> str | None:
    """Return the kind of a data source as text, without reading its records; None if `open_dataset` would refuse it."""
    path = Path(source)
    if source in NAMES:
        return "a data set that brings its own labels"
    known = format_of(path)
    if path.is_dir() and not isinstance(known, LabelledFormat):
        return A_TABLE if _tables_in(path) else IMAGE_FOLDER if is_image_folder(path) else None
    if not path.exists():
        return None
    return A_TABLE if isinstance(known, TableFormat) else f"{known.called} file" if known is not None else None


def _refuse_label(source: str, label: str | None, schema: Schema | None) -> None:
    if label is not None or schema is not None:
        raise BadInput(f"{source} brings its own labels", remedy="leave out the label column and the schema")


def _tables_in(folder: Path) -> dict[Path, TableFormat]:
    found = {file: format_of(file) for file in sorted(folder.iterdir(), key=lambda file: file.name) if file.is_file()}
    return {file: known for file, known in found.items() if isinstance(known, TableFormat)}


def tables_at(path: Path) -> dict[Path, TableFormat]:
    """Return the table file at a path, or those in a folder, each with its format."""
    known = format_of(path)
    return _tables_in(path) if path.is_dir() else {path: known} if isinstance(known, TableFormat) else {}


def _open_tables(
    path: Path,
    files: Mapping[Path, TableFormat],
    label: str | None,
    schema: Schema | None,
    cut: Split,
    tolerance: Tolerance | None,
) -> Dataset:
    if schema is None and label is None:
        raise BadInput(f"{path}: say which column is the label", remedy="name it with --label, or give --schema")
    if schema is not None and label is not None and label != schema.label:
        raise BadInput(f"the label column is {label!r} here and {schema.label!r} in the schema", remedy="give one")
    tables = [read_table(*each, schema, tolerance=tolerance) for each in files.items()]
    chosen = schema if schema is not None else derive_schema(tables, str(label))
    pairs = [cut(encode_table(table, chosen, tolerant=tolerance is not None)) for table in tables]
    train, test = (concatenate(part) for part in zip(*pairs, strict=True))
    starts = np.cumsum([0, *(len(part) for part, _ in pairs)])
    parts = tuple((file.name, np.arange(starts[i], starts[i + 1])) for i, file in enumerate(files))
    how = (test if len(test) else None, chosen.classes, chosen, chosen.bound, parts if path.is_dir() else None)
    return Dataset(path.name, "table", train, *how, notes=strays(tables, chosen) if schema is None else ())


def open_unlabelled(
    source: str, *, schema: Schema | None, image_size: tuple[int, ...], classes: Sequence[str], tolerant: bool = False
) -> Dataset:
    """Open a source whose labels may be missing, with all its records as training records.

    Labels are missing in a table without the schema's label column or with empty cells in it, in an .npz of `features`
    or `images` alone, and in a folder that holds images itself. A record without a label has `UNLABELLED`. Raises
    BadInput, or BadRecord with file, row and remedy, as `open_dataset` does; with `tolerant` a bad row of a table is
    marked, not refused.
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
    """Return, by index, the reason why each bad record of a table is bad; no reason quotes a cell."""
    return {int(index): _reason(records, int(index), schema) for index in np.flatnonzero(records.labels == BAD)}


def _reason(records: Records, index: int, schema: Schema) -> str:
    """Return the fault of one row, read strictly by itself; a broken or too long row has left no cells."""
    row = records.take(np.array([index]))
    if not any(cells[0] for cells in row.columns.values()):
        return f"it has no value, a field of more than {MAX_CELL} characters, or not the fields of the header"
    table = Table(row.origin.files[0], dict(row.columns), row.origin, np.zeros(1, dtype=np.bool_))
    try:
        encode_table(table, replace(schema, needs_label=False))
    except BadRecord as refusal:
        return refusal.fault
    return "it cannot be read"
