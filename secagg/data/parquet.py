"""Parquet files as tables of text, so that they are encoded, and refused, like every other table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from secagg.agreement.schema import Dated, Schema
from secagg.data.records import Tolerance, bounded
from secagg.data.table import Lines, TableFormat, header_of, needed_columns
from secagg.errors import BadInput
from secagg.system.reading import refuse_larger

Cells = list[str]
T = TypeVar("T", str, bytes)
_CELL_BYTES = 64
"""What a cell takes as text, about."""
BATCH = 4096
"""Rows that are held as arrow has them, where they are read some at a time."""
_DAY, _MOMENT = "YYYY-MM-DD", "YYYY-MM-DD hh:mm:ss"
"""How days and moments are written where no schema says."""
_WRITTEN = re.compile(r"(?P<YYYY>\d{4})-(?P<MM>\d\d)-(?P<DD>\d\d)(?: (?P<hh>\d\d):(?P<mm>\d\d):(?P<ss>\d\d)[.,\d]*)?")
"""How arrow writes them, but for years that no pattern has."""


def parquet_columns(
    path: Path, *, tolerant: bool = False, decimal: str = ".", patterns: Mapping[str, str] | None = None
) -> dict[str, Cells]:
    """The columns of a Parquet file as text: numbers with this decimal mark, else as arrow writes them; absent: "".

    Integers, floats, decimals, booleans ("true", "false"), days, moments without a time zone and text can be columns,
    dictionary-encoded or not. `patterns`: how days and moments of columns are written. With `tolerant` bytes that are
    not UTF-8 are replaced. Raises BadInput for a file that is no Parquet, one that would take more bytes than
    `data_limit`, a column of another type, and names that are empty or repeated.
    """
    from pyarrow.parquet import ParquetFile

    with reading_parquet(path) as file:
        names = _check_names(path, ParquetFile(file))
        refuse_expanded(path, ParquetFile(file))
        table = ParquetFile(file, read_dictionary=names).read()
        texts = {name: texts_of(table[name], tolerant=tolerant, decimal=decimal) for name in names}
        return texts | {name: _dates(table[name], texts[name], (patterns or {}).get(name)) for name in names}


def _lines_alone(path: Path, schema: Schema, tolerance: Tolerance) -> Lines:
    """The rows of a file some at a time; one with a cell that is too long has no fields."""
    from pyarrow.parquet import ParquetFile

    patterns = {each.name: each.pattern for each in schema.columns if isinstance(each, Dated)}
    lines: list[list[str]] = []
    with reading_parquet(path) as file:
        header = _header_of(path, _check_names(path, ParquetFile(file)), schema)
        header = [header[place] for place in needed_columns(header, schema, tolerance)]
        longest = tolerance.longest_cell(path, len(header))
        for batch in batches_of(path, file, header, tolerance):
            columns = {name: texts_of(batch[name], tolerant=True, decimal=schema.decimal) for name in header}
            dated = [_dates(batch[name], cells, patterns.get(name)) for name, cells in columns.items()]
            rows = zip(*dated, strict=True)
            lines += [list(fields) if max(map(len, fields)) <= longest else [] for fields in rows]
    return header, lines, list(range(1, len(lines) + 1))


def batches_of(path: Path, file: IO[bytes], names: list[str], tolerance: Tolerance, rows: int = BATCH) -> Iterator[Any]:
    """Yield the columns of these names, as tables of at most so many rows. Raises BadInput for more than allowed."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    tolerance.refuse_more(path, ParquetFile(file).metadata.num_rows)
    for batch in ParquetFile(file, read_dictionary=names).iter_batches(rows, columns=names):
        yield pyarrow.Table.from_batches([batch])


@contextmanager
def reading_parquet(path: Path) -> Iterator[IO[bytes]]:
    """An open file. Raises BadInput for one that turns out to be no Parquet while it is read."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise BadInput(f"cannot read {path} as Parquet ({error.strerror or 'damaged'})") from error
    except UnicodeDecodeError:
        raise BadInput(f"{path} holds text that is not UTF-8", remedy="save the table as UTF-8") from None
    except (BadInput, MemoryError):
        raise
    except Exception as error:  # of arrow, for whatever is damaged
        raise BadInput(f"cannot read {path} as Parquet", remedy="write it again, or save it as .csv") from error


def refuse_expanded(path: Path, file: Any) -> None:
    """Raise BadInput for a Parquet file that would take more bytes than `data_limit`, read as dictionaries."""
    expanded = sum(file.metadata.row_group(index).total_byte_size for index in range(file.metadata.num_row_groups))
    refuse_larger(path, expanded + _CELL_BYTES * file.metadata.num_rows * len(list(file.schema_arrow)))


def _check_names(path: Path, file: Any) -> list[str]:
    """Return the columns' names before any is read. Raises BadInput for columns that are not cells of a table."""
    from pyarrow import types

    fields = list(file.schema_arrow)
    names = [field.name for field in fields]
    if len(set(names)) != len(names) or "" in names:
        raise BadInput(f"{path}: names of columns are empty or repeated", remedy="name every column once")
    plain = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean, _is_date)
    for field in fields:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        if not any(is_kind(kind) for is_kind in (*plain, types.is_decimal, types.is_null)):
            problem = f"{path}: column {field.name!r} is of type {kind}, which is no cell of a table"
            raise BadInput(problem, remedy="leave the column out, or store it as a number or as text")
    return names


def _is_date(kind: Any) -> bool:
    """Whether cells of this type are days, or moments without a time zone."""
    from pyarrow import types

    return bool(types.is_date(kind) or (types.is_timestamp(kind) and kind.tz is None))


def _dates(column: Any, cells: Cells, pattern: str | None) -> Cells:
    """Days and moments as the pattern writes them, without fractions of a second; other cells as they are."""
    from pyarrow import types

    if not _is_date(column.type):
        return cells
    pattern = pattern or (_DAY if types.is_date(column.type) else _MOMENT)
    return [_rewritten(found, pattern) if (found := _WRITTEN.fullmatch(cell)) else cell for cell in cells]


def _rewritten(found: re.Match[str], pattern: str) -> str:
    for token, digits in found.groupdict("00").items():
        pattern = pattern.replace(token, digits)
    return pattern


def texts_of(column: Any, *, tolerant: bool, decimal: str = ".") -> Cells:
    """The cells of a column as text, "" for an absent one. Raises UnicodeDecodeError unless `tolerant`."""
    return _cells(column, partial(_texts, tolerant=tolerant, decimal=decimal), "")


def bytes_of(column: Any) -> list[bytes]:
    """The cells of a column of bytes, none for an absent one."""
    return _cells(column, lambda values: [cell or b"" for cell in values.to_pylist()], b"")


def _cells(column: Any, read: Callable[[Any], list[T]], absent: T) -> list[T]:
    """The cells of a column; equal ones of a dictionary are one value, however many there are."""
    from pyarrow import types

    if not types.is_dictionary(column.type):
        return read(column)
    cells: list[T] = []
    for chunk in column.chunks:
        words = read(chunk.dictionary)
        cells += [absent if place is None else words[place] for place in chunk.indices.to_pylist()]
    return cells


def _texts(values: Any, tolerant: bool, decimal: str) -> Cells:
    import pyarrow
    from pyarrow import types

    if types.is_string(values.type) or types.is_large_string(values.type):
        raw = values.cast(pyarrow.large_binary()).to_pylist()
        return ["" if cell is None else cell.decode("utf-8", "replace" if tolerant else "strict") for cell in raw]
    return [(cell or "").replace(".", decimal) for cell in values.cast(pyarrow.string()).to_pylist()]


def read_lines(path: Path, schema: Schema | None, tolerance: Tolerance | None) -> Lines:
    """The names of the columns, and every row's fields, counted from 1."""
    if schema is not None and (limit := bounded(tolerance)):
        return _lines_alone(path, schema, limit)
    patterns = {each.name: each.pattern for each in schema.columns if isinstance(each, Dated)} if schema else None
    decimal, tolerant = schema.decimal if schema else ".", tolerance is not None
    columns = parquet_columns(path, tolerant=tolerant, decimal=decimal, patterns=patterns)
    header = _header_of(path, list(columns), schema)
    lines = [list(fields) for fields in zip(*columns.values(), strict=True)]
    return header, lines, list(range(1, len(lines) + 1))


def _header_of(path: Path, names: list[str], schema: Schema | None) -> list[str]:
    """The names of the columns. Raises BadInput where a schema knows none of them."""
    header, named = header_of(path, names, schema)
    if not named:
        raise BadInput(f"{path} has none of the schema's columns")
    return header


PARQUET = TableFormat(
    suffixes=(".parquet",), called=".parquet", library="pyarrow.parquet", extra="tables", lines=read_lines
)
