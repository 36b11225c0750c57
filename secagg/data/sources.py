"""Open a data set by name or path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from secagg.agreement.schema import Schema
from secagg.data.arrays import NPZ
from secagg.data.delimited import DELIMITED, line_breaks_in, other_order_in, write_without_line_breaks
from secagg.data.derivation import derive_schema, strays
from secagg.data.encoding import encode_table
from secagg.data.faults import Tolerance
from secagg.data.format import Format, LabelledFormat, TableFormat
from secagg.data.images import is_image_folder, open_images
from secagg.data.named import NAMES, open_named
from secagg.data.parquet import PARQUET
from secagg.data.records import Dataset, Records, concatenate
from secagg.data.split import Split, keep_all, split_records
from secagg.data.table import Table, read_table
from secagg.data.triplets import TRIPLETS
from secagg.errors import BadInput
from secagg.system import plugins

FORMATS: tuple[Format, ...] = (NPZ, *TRIPLETS, DELIMITED, PARQUET)
"""Every format of data files, by the end of its name; a further one is its file and a place in this line."""
_added: list[Format] = []
"""Those of one's own, in the order in which they were given."""
A_TABLE = "a table"
IMAGE_FOLDER = "a folder of images"


def open_dataset(
    source: str,
    *,
    label: str | None = None,
    schema: Schema | None = None,
    split: bool = True,
    tolerant: bool = False,
    most: int | None = None,
    image_size: tuple[int, ...] | None = None,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """Open `digits`, `breast-cancer`, `wine`, a file of the `FORMATS`, a folder of tables (one client each) or images.

    A folder of images is opened by `open_images`, which says what `image_size` and `classes` mean; nothing else takes
    them. `label` names the label column of a table; `schema` says what its columns mean. Without a schema one is
    derived from the pooled records, which only `simulate` may do. A source without a test part is split by
    `split_records`, a folder within each file or domain; without `split` all
    records are for training. Raises BadInput, or BadRecord with file, row and remedy.

    With `tolerant` a record that cannot be used is not refused but stays in its place with label -1 and
    zero inputs (see `Records`), and no other record can tell; faults of the whole file still raise
    BadInput. `most`: how many records a plan allows; then limits of size are on single records, and on `most` of them,
    never on the file (see `Tolerance`). The promise is per record where nothing is pooled: a declared schema (a derived
    one leaves out empty cells and those that are no finite number, but one word makes a column categorical), no
    `split`, and an image size and classes that the file or the plan names.
    """
    path = Path(source)
    cut = split_records if split else keep_all
    known = format_of(path)
    tolerance = Tolerance(most) if tolerant else None
    if source in NAMES:
        _refuse_label(source, label, schema)
        return open_named(source, cut)
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
        remedy = f"give a path or one of {', '.join(NAMES)}"
        raise BadInput(f"there is no file or data set {source}", remedy=remedy)
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
    """Open a data set whose test records are those of another source of the same kind; none of its own is held out.

    The options are those of `open_dataset`; a schema that has to be derived comes from both tables together.
    Raises BadInput, or BadRecord, also for test records of another kind, shape or class.
    """
    if schema is None and label is not None and kind_of(source) == kind_of(test) == A_TABLE:
        files = {**tables_at(Path(source)), **tables_at(Path(test))}
        schema = derive_schema(
            [
                read_table(file, known, None, tolerance=Tolerance() if tolerant else None)
                for file, known in files.items()
            ],
            label,
        )
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
    """The text of one table with a header, to make a schema of. Raises BadInput for another file."""
    known = format_of(path)
    if not path.exists():
        raise BadInput(f"there is no file {path}")
    if not isinstance(known, TableFormat) or not path.is_file():
        raise BadInput(f"{path} is no table", remedy=f"give a file: {_tables()}")
    return read_table(path, known, None)


def read_tables(files: Mapping[Path, TableFormat], schema: Schema, tolerance: Tolerance | None) -> Records:
    """Read and encode tables of one schema, and pool their records in order. Raises what `open_dataset` raises."""
    tables = [read_table(file, known, schema, tolerance=tolerance) for file, known in files.items()]
    return concatenate([encode_table(table, schema, tolerant=tolerance is not None) for table in tables])


def line_breaks_of(source: str, schema: Schema | None) -> tuple[str, ...]:
    """What the owner of a table, or of a folder of tables, should know of line breaks in cells, and of its header."""
    files = [file for file, known in tables_at(Path(source)).items() if known is DELIMITED]
    return tuple(filter(None, (look(file, schema) for file in files for look in (line_breaks_in, other_order_in))))


def rewrite_line_breaks(path: Path, out: Path, schema: Schema | None) -> int:
    """Write a table with spaces for line breaks in quoted cells; return how many records had one.

    Raises BadInput for what is no delimited text.
    """
    if format_of(path) is not DELIMITED or not path.is_file():
        raise BadInput(f"{path} is no delimited text", remedy=f"give a file: {DELIMITED.called}")
    if format_of(out) is not DELIMITED or out.suffix.lower() == ".gz":
        raise BadInput(f"{out} would not be read as delimited text", remedy="give a name that ends in .csv")
    return write_without_line_breaks(path, out, schema)


def format_of(path: Path) -> Format | None:
    """The format that a file's name says it has; where none of ours takes it, what others bring is asked."""
    known = next((each for each in (*FORMATS, *_added) if each.takes(path)), None)
    if known is not None or not path.suffix or not path.is_file():
        return known
    return next((each for each in map(_format, plugins.every(plugins.FORMATS)) if each.takes(path)), None)


def add_format(spec: str) -> None:
    """Read a format of one's own from now on: FILE.py:NAME, or an entry point of the group `secagg.formats`.

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
    """Raise BadInput for what is no format."""
    if not isinstance(found.value, TableFormat | LabelledFormat):
        problem = f"{found.name} of {found.source} is no format of data"
        raise BadInput(problem, remedy="make it a TableFormat or LabelledFormat of secagg.data.format")
    return found.value


def kinds_of_files() -> str:
    """What a file of records may be, for help and refusals."""
    labelled = [each.called for each in FORMATS if not isinstance(each, TableFormat)]
    return f"{', '.join(labelled)} or a table ({_tables()})"


def _tables() -> str:
    return "; ".join(each.called for each in FORMATS if isinstance(each, TableFormat))


def kind_of(source: str) -> str | None:
    """What `open_dataset` would take a source for, in words; None where it would refuse it. Reads no record."""
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
    """The tables of a folder, in the order of their names."""
    found = {file: format_of(file) for file in sorted(folder.iterdir(), key=lambda file: file.name) if file.is_file()}
    return {file: known for file, known in found.items() if isinstance(known, TableFormat)}


def tables_at(path: Path) -> dict[Path, TableFormat]:
    """The table at a path, or those of a folder."""
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
    """Read, encode and split each file on its own, then pool them in order."""
    if schema is None and label is None:
        raise BadInput(f"{path}: say which column is the label", remedy="name it with --label, or give --schema")
    if schema is not None and label is not None and label != schema.label:
        raise BadInput(f"the label column is {label!r} here and {schema.label!r} in the schema", remedy="give one")
    tables = [read_table(file, known, schema, tolerance=tolerance) for file, known in files.items()]
    chosen = schema if schema is not None else derive_schema(tables, str(label))
    pairs = [cut(encode_table(table, chosen, tolerant=tolerance is not None)) for table in tables]
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
        notes=strays(tables, chosen) if schema is None else (),
    )
