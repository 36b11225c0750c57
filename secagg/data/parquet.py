"""Parquet files as tables of text, which are then encoded and checked as other tables are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
"""About how many bytes a cell takes as text."""
BATCH = 4096
"""Rows that are in memory as Arrow values at a time."""
_DAY, _MOMENT = "YYYY-MM-DD", "YYYY-MM-DD hh:mm:ss"
"""The form of dates and of times where the schema gives no pattern."""
_WRITTEN = re.compile(r"(?P<YYYY>\d{4})-(?P<MM>\d\d)-(?P<DD>\d\d)(?: (?P<hh>\d\d):(?P<mm>\d\d):(?P<ss>\d\d)[.,\d]*)?")
"""The form in which Arrow writes dates and times, up to the year 9999."""


def batches_of(path: Path, file: IO[bytes], names: list[str], tolerance: Tolerance, rows: int = BATCH) -> Iterator[Any]:
    """Yield a Parquet file's named columns in tables of up to `rows` rows.

    Raises BadInput for more rows than the plan's limit of records.
    """
    import pyarrow
    from pyarrow.parquet import ParquetFile

    tolerance.refuse_more(path, ParquetFile(file).metadata.num_rows)
    for batch in ParquetFile(file, read_dictionary=names).iter_batches(rows, columns=names):
        yield pyarrow.Table.from_batches([batch])


@contextmanager
def reading_parquet(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for a `with` block in which any failure to read it as Parquet raises BadInput."""
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
    """Raise BadInput for a Parquet file that would take more than `data_limit` bytes in memory."""
    expanded = sum(file.metadata.row_group(index).total_byte_size for index in range(file.metadata.num_row_groups))
    refuse_larger(path, expanded + _CELL_BYTES * file.metadata.num_rows * len(list(file.schema_arrow)))


def _check_names(path: Path, file: Any) -> list[str]:
    """Return the names of the columns. Raises BadInput for columns whose types are not those of a table's cells."""
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
    """Return whether an Arrow type is that of days, or of times without a time zone."""
    from pyarrow import types

    return bool(types.is_date(kind) or (types.is_timestamp(kind) and kind.tz is None))


def _dates(column: Any, cells: Cells, pattern: str | None) -> Cells:
    """Rewrite days and times by the pattern, without fractions of a second; other cells are unchanged."""
    from pyarrow import types

    if not _is_date(column.type):
        return cells
    pattern = pattern or (_DAY if types.is_date(column.type) else _MOMENT)
    rewritten = []
    for cell in cells:
        text, found = pattern, _WRITTEN.fullmatch(cell)
        for token, digits in found.groupdict("00").items() if found else ():
            text = text.replace(token, digits)
        rewritten.append(text if found else cell)
    return rewritten


def texts_of(column: Any, *, tolerant: bool, decimal: str = ".") -> Cells:
    """Return a column's cells as text, "" if missing. Raises UnicodeDecodeError for invalid UTF-8 unless `tolerant`."""
    import pyarrow
    from pyarrow import types

    def read(values: Any) -> Cells:
        if types.is_string(values.type) or types.is_large_string(values.type):
            raw = values.cast(pyarrow.large_binary()).to_pylist()
            return ["" if cell is None else cell.decode("utf-8", "replace" if tolerant else "strict") for cell in raw]
        return [(cell or "").replace(".", decimal) for cell in values.cast(pyarrow.string()).to_pylist()]

    return _cells(column, read, "")


def bytes_of(column: Any) -> list[bytes]:
    """Return a column's cells as bytes, b"" for missing ones."""
    return _cells(column, lambda values: [cell or b"" for cell in values.to_pylist()], b"")


def _cells(column: Any, read: Callable[[Any], list[T]], absent: T) -> list[T]:
    """Return a column's cells by applying `read`, which reads each entry of a dictionary column only once."""
    from pyarrow import types

    if not types.is_dictionary(column.type):
        return read(column)
    cells: list[T] = []
    for chunk in column.chunks:
        words = read(chunk.dictionary)
        cells += [absent if place is None else words[place] for place in chunk.indices.to_pylist()]
    return cells


def read_lines(path: Path, schema: Schema | None, tolerance: Tolerance | None) -> Lines:
    """Return the columns' names, each row's fields as text ("" for missing cells), and the rows' numbers from 1 on.

    Integers, floats, decimals, booleans ("true", "false"), days, moments without a time zone and text can be columns,
    dictionary-encoded or not: numbers with the schema's decimal mark, days and moments as it writes them, the others as
    arrow does. With `tolerance` bytes that are not UTF-8 are replaced; where it says how many records there may be,
    rows are read some at a time, and one with a cell that is too long has no fields. Raises BadInput for a file that is
    no Parquet, one that would take more bytes than `data_limit`, a column of another type, and names that are empty or
    repeated.
    """
    from pyarrow.parquet import ParquetFile

    limit = bounded(tolerance) if schema is not None else None
    decimal, columns = (schema.decimal, schema.columns) if schema is not None else (".", ())
    patterns = {each.name: each.pattern for each in columns if isinstance(each, Dated)}
    lines: list[list[str]] = []
    with reading_parquet(path) as file:
        names = _check_names(path, ParquetFile(file))
        header, named = header_of(path, names, schema)
        if not named:
            raise BadInput(f"{path} has none of the schema's columns")
        if limit is None:
            refuse_expanded(path, ParquetFile(file))
            tables, longest = iter([ParquetFile(file, read_dictionary=names).read()]), None
        else:
            names = header = [header[place] for place in needed_columns(header, schema, limit)]
            tables, longest = batches_of(path, file, header, limit), limit.longest_cell(path, len(header))
        for table in tables:
            texts = {name: texts_of(table[name], tolerant=tolerance is not None, decimal=decimal) for name in names}
            dated = [_dates(table[name], cells, patterns.get(name)) for name, cells in texts.items()]
            rows = [list(fields) for fields in zip(*dated, strict=True)]
            lines += rows if longest is None else [row if max(map(len, row)) <= longest else [] for row in rows]
    return header, lines, list(range(1, len(lines) + 1))


PARQUET = TableFormat(
    suffixes=(".parquet",), called=".parquet", library="pyarrow.parquet", extra="tables", lines=read_lines
)
