"""Delimited text files: comma, semicolon or tab, plain or gzipped, with a header or with a schema."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secagg.data.records import Origin
from secagg.data.schema import Schema
from secagg.errors import BadInput, BadRecord

TABLE_SUFFIXES = (".csv", ".data", ".tsv")
MAX_CELL = 1000
"""Longest field in characters: one column takes 4 bytes × its longest field × rows."""
DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True, eq=False)
class Table:
    """Raw text of one file by column, surrounding spaces removed; `origin` knows each record's row."""

    source: str
    columns: dict[str, NDArray[np.str_]]
    origin: Origin

    def __len__(self) -> int:
        return len(self.origin.row)


def is_table(path: Path) -> bool:
    """Whether the file name ends like a table (.csv .data .tsv, each also with .gz)."""
    return path.name.lower().removesuffix(".gz").endswith(TABLE_SUFFIXES)


def read_table(path: Path, schema: Schema | None) -> Table:
    """Read a table; without a schema the first row is the header.

    With a schema the first row is a header when it names the schema's columns; otherwise the file has
    none and `schema.fields` gives the order. Raises BadInput, or BadRecord for a row of another length.
    """
    lines, rows = _parse(path)
    if not lines:
        raise BadInput(f"{path} is empty")
    header, records_start = _header(path, lines[0], schema)
    lines, rows = lines[records_start:], rows[records_start:]
    if not lines:
        raise BadInput(f"{path} has a header and no records")
    for fields, row in zip(lines, rows, strict=True):
        if len(fields) != len(header):
            remedy = "every row needs the same number of fields"
            raise BadRecord(str(path), row, f"has {len(fields)} fields instead of {len(header)}", remedy=remedy)
        if max(map(len, fields)) > MAX_CELL:
            raise BadRecord(str(path), row, f"has a field of more than {MAX_CELL} characters", remedy="shorten it")
    cells = zip(*lines, strict=True)
    columns = {name: np.array([cell.strip() for cell in column]) for name, column in zip(header, cells, strict=True)}
    return Table(str(path), columns, Origin.of(str(path), np.array(rows, dtype=np.int64)))


def _parse(path: Path) -> tuple[list[list[str]], list[int]]:
    """Return the fields and the first line number of every row that is not blank."""
    try:
        text = path.read_bytes()
        if path.suffix.lower() == ".gz":
            text = gzip.decompress(text)
        content = list(io.StringIO(text.decode("utf-8-sig"), newline=""))
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text", remedy="save the table as UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"cannot read {path}: {error}") from error
    first = next((line for line in content if line.strip()), "")
    reader = csv.reader(content, delimiter=max(DELIMITERS, key=first.count), strict=True, skipinitialspace=True)
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
    """Return the column names and how many rows the header takes (0 when the file has none)."""
    names = [name.strip() for name in first]
    if schema is not None:
        needed = {column.name for column in schema.columns} | {schema.label}
        absent = sorted(needed - set(names))
        if absent == sorted(needed) and schema.fields:
            return list(schema.fields), 0
        if absent:
            raise BadInput(f"{path} lacks the columns {absent}; it has {names}", remedy="the schema names them")
    if len(set(names)) != len(names) or "" in names:
        remedy = "name every column once in the first row, or give a schema whose `fields` lists the order"
        raise BadInput(f"{path}: the first row is no header: names are empty or repeated", remedy=remedy)
    return names, 1
