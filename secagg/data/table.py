"""Tables: delimited text (comma, semicolon or tab, plain or gzipped, with a header or with a schema) and Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secagg.data.parquet import PARQUET, parquet_columns
from secagg.data.records import Origin
from secagg.data.schema import Schema
from secagg.errors import BadInput, BadRecord, why
from secagg.reading import data_limit, read_stream, refuse_larger

TEXT_SUFFIXES = (".csv", ".data", ".tsv")
TABLE_FORMATS = f"{' '.join(TEXT_SUFFIXES)}, also with .gz, or {PARQUET}"
MAX_CELL = 1000
"""Longest field in characters: one column takes 4 bytes × its longest field × rows."""
_GROWTH = 16
"""A field of a few characters takes about this many times its length."""
DELIMITERS = (",", ";", "\t")
COMMA_REMEDY = "it looks as if numbers have decimal commas: write 1.5 for 1,5"


@dataclass(frozen=True, eq=False)
class Table:
    """Raw text of one file by column, surrounding spaces removed; `origin` knows each record's row.

    `broken` (n,) bool: rows that are no record of this table; their cells are empty.
    """

    source: str
    columns: dict[str, NDArray[np.str_]]
    origin: Origin
    broken: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.origin.row)


def is_table(path: Path) -> bool:
    """Whether the file name ends like a table (.csv .data .tsv, each also with .gz; .parquet)."""
    return path.name.lower().removesuffix(".gz").endswith(TEXT_SUFFIXES) or _is_parquet(path)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == PARQUET


def read_table(path: Path, schema: Schema | None, *, tolerant: bool = False) -> Table:
    """Read a table; without a schema the first row is the header.

    With a schema the first row is a header when it names the schema's columns; otherwise the file has
    none and `schema.fields` gives the order. Raises BadInput, or BadRecord for a row that cannot be split
    into the header's fields or has a field that is too long; with `tolerant` such a row is `broken`.
    """
    if _is_parquet(path):
        header, lines, rows = _lines_of_parquet(path, schema, tolerant)
    else:
        header, lines, rows = _lines_alone(path, schema) if tolerant else _lines(path, schema)
    if not lines and not tolerant:
        raise BadInput(f"{path} has a header and no records")
    refuse_larger(path, _bytes_of(lines, len(header)))
    empty = [""] * len(header)
    cells = zip(*(fields or empty for fields in lines), strict=True) if lines else ([] for _ in header)
    columns = {
        name: np.array([cell.strip() for cell in column], dtype=np.str_)
        for name, column in zip(header, cells, strict=True)
    }
    broken = np.array([not fields for fields in lines], dtype=np.bool_)
    return Table(str(path), columns, Origin.of(str(path), np.array(rows, dtype=np.int64)), broken)


def _lines(path: Path, schema: Schema | None) -> tuple[list[str], list[list[str]], list[int]]:
    """Return header, fields and rows; the first row that cannot be used is refused."""
    lines, rows = _parse(path)
    if not lines:
        raise BadInput(f"{path} is empty")
    header, start = _header(path, lines[0], schema)
    lines, rows = lines[start:], rows[start:]
    for fields, row in zip(lines, rows, strict=True):
        if len(fields) != len(header):
            other = any(delimiter in field for field in fields for delimiter in DELIMITERS)
            remedy = COMMA_REMEDY if other else "every row needs the same number of fields"
            raise BadRecord(str(path), row, f"has {len(fields)} fields instead of {len(header)}", remedy=remedy)
        if not _is_short(fields):
            raise _too_long(path, row)
    return header, lines, rows


def _lines_of_parquet(
    path: Path, schema: Schema | None, tolerant: bool
) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the names of the columns, fields and rows, counted from 1; no fields: a broken row."""
    columns = parquet_columns(path, tolerant=tolerant)
    header, named = _header(path, list(columns), schema)
    if not named:
        raise BadInput(f"{path} has none of the schema's columns")
    lines = [list(fields) for fields in zip(*columns.values(), strict=True)]
    rows = list(range(1, len(lines) + 1))
    if tolerant:
        return header, [fields if _is_short(fields) else [] for fields in lines], rows
    for row, fields in zip(rows, lines, strict=True):
        if not _is_short(fields):
            raise _too_long(path, row)
    return header, lines, rows


def _bytes_of(lines: list[list[str]], width: int) -> int:
    """What the columns take as arrays of text."""
    longest = [max((len(fields[place]) for fields in lines if fields), default=0) for place in range(width)]
    return 4 * len(lines) * sum(longest)


def _is_short(fields: list[str]) -> bool:
    return max(map(len, fields), default=0) <= MAX_CELL


def _too_long(path: Path, row: int) -> BadRecord:
    return BadRecord(str(path), row, f"has a field of more than {MAX_CELL} characters", remedy="shorten it")


def _lines_alone(path: Path, schema: Schema | None) -> tuple[list[str], list[list[str]], list[int]]:
    """Return header, fields and rows, where no row has a say in how another is read; no fields: a broken row.

    Every line that is not blank is one record, so that a quote left open spoils its own line only. The
    delimiter is the header's; where the schema fixes the order, each line shows its own.
    """
    content = [(row, line) for row, line in enumerate(_content(path, "replace"), start=1) if line.strip()]
    if schema is not None and schema.fields:
        return _lines_in_order(content, list(schema.fields))
    if not content:
        raise BadInput(f"{path} is empty", remedy="a table without records has its header")
    delimiter = _delimiter(content[0][1])
    header, _ = _header(path, _split(content[0][1], delimiter), schema)
    return (
        header,
        [_usable(line, (delimiter,), len(header)) for _, line in content[1:]],
        [row for row, _ in content[1:]],
    )


def _lines_in_order(content: list[tuple[int, str]], header: list[str]) -> tuple[list[str], list[list[str]], list[int]]:
    """The lines of a file whose schema fixes the order of its columns.

    A line that spells this order is a header, wherever it stands, and no record; whatever else the first line says
    decides nothing for the others.
    """
    records = [(row, _usable(line, DELIMITERS, len(header))) for row, line in content]
    kept = [(row, fields) for row, fields in records if [field.strip() for field in fields] != header]
    return header, [fields for _, fields in kept], [row for row, _ in kept]


def _usable(line: str, delimiters: tuple[str, ...], width: int) -> list[str]:
    """The fields of a line by the first delimiter that gives the right number; none if they cannot be used."""
    splits = (_split(line, delimiter) for delimiter in delimiters)
    fields = next((fields for fields in splits if len(fields) == width), [])
    return fields if _is_short(fields) else []


def _content(path: Path, errors: str) -> list[str]:
    """Return the lines of a text file, plain or gzipped; `errors` says what becomes of bytes that are not UTF-8."""
    try:
        with path.open("rb") as file:
            content = gzip.GzipFile(fileobj=file) if path.suffix.lower() == ".gz" else file
            text = read_stream(content.read, path, data_limit() // _GROWTH)
        return list(io.StringIO(text.decode("utf-8-sig", errors), newline=""))
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text", remedy="save the table as UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"cannot read {path} ({why(error)})") from error


def _delimiter(line: str) -> str:
    return max(DELIMITERS, key=line.count)


def _split(line: str, delimiter: str) -> list[str]:
    """Return the fields of one line, none when its quotes do not match."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=True))
    except csv.Error:
        return []


def _parse(path: Path) -> tuple[list[list[str]], list[int]]:
    """Return the fields and the first line number of every row that is not blank."""
    content = _content(path, "strict")
    first = next((line for line in content if line.strip()), "")
    reader = csv.reader(content, delimiter=_delimiter(first), strict=True, skipinitialspace=True)
    lines: list[list[str]] = []
    rows: list[int] = []
    start = 1
    try:
        for fields in reader:
            if fields and any(field.strip() for field in fields):
                lines.append(fields)
                rows.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise BadRecord(
            str(path), start, f"cannot be split into fields ({error})", remedy="check its quotes"
        ) from error
    return lines, rows


def _header(path: Path, first: list[str], schema: Schema | None) -> tuple[list[str], int]:
    """Return the column names and how many rows the header takes (0 when the file has none).

    Where `schema.fields` allows no header, a first row that names none of the columns is a record.
    """
    names = [name.strip() for name in first]
    if schema is not None:
        needed = {column.name for column in schema.columns} | {schema.label}
        absent = sorted(needed - set(names))
        if schema.fields and absent == sorted(needed):
            return list(schema.fields), 0
        if absent:
            problem = f"{path} lacks the columns {', '.join(absent)} in its first row of {len(names)} fields"
            raise BadInput(problem, remedy="the schema names them")
    if len(set(names)) != len(names) or "" in names:
        remedy = "name every column once in the first row, or give a schema whose `fields` lists the order"
        raise BadInput(f"{path}: the first row is no header: names are empty or repeated", remedy=remedy)
    return names, 1
