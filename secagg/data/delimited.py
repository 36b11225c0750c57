"""Delimited text as a table: comma, semicolon or tab, plain or gzipped, with a header or with a schema."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from pathlib import Path

from secagg.data.format import Lines, TableFormat
from secagg.data.schema import DELIMITERS, Schema
from secagg.data.table import COMMA_REMEDY, header_of
from secagg.errors import BadInput, BadRecord, why
from secagg.reading import data_limit, read_stream

SUFFIXES = (".csv", ".data", ".tsv")
_GROWTH = 16
"""A field of a few characters takes about this many times its length."""


def read_lines(path: Path, schema: Schema | None, tolerant: bool) -> Lines:
    """The lines of a file; with `tolerant` no row has a say in how another is read."""
    return _lines_alone(path, schema) if tolerant else _lines(path, schema)


def _lines(path: Path, schema: Schema | None) -> Lines:
    """Return header, fields and rows; the first row that cannot be used is refused."""
    lines, rows = _parse(path, _allowed(schema))
    if not lines:
        raise BadInput(f"{path} is empty")
    header, start = header_of(path, lines[0], schema)
    lines, rows = lines[start:], rows[start:]
    for fields, row in zip(lines, rows, strict=True):
        if len(fields) != len(header):
            remedy = _remedy(fields, header, in_order=start == 0)
            raise BadRecord(str(path), row, f"has {len(fields)} fields instead of {len(header)}", remedy=remedy)
    return header, lines, rows


def _remedy(fields: list[str], header: list[str], *, in_order: bool) -> str:
    """What to do about a row of too many or too few fields; `in_order`: the schema names them, no first row does."""
    others = [each for each in DELIMITERS if len(fields) == 1 and len(_split(fields[0], each)) == len(header) > 1]
    if others:
        return f"it is divided by {others[0]!r}, unlike the first row: use one delimiter in the whole file"
    if any(delimiter in field for field in fields for delimiter in DELIMITERS):
        return COMMA_REMEDY
    if in_order:
        return f"the schema names {len(header)} columns, the first is {header[0]!r}, the last {header[-1]!r}"
    return "every row needs the same number of fields"


def _lines_alone(path: Path, schema: Schema | None) -> Lines:
    """Return header, fields and rows, where no row has a say in how another is read; no fields: a broken row.

    Every line that is not blank is one record, so that a quote left open spoils its own line only. The
    delimiter is the header's; where the schema fixes the order, each line shows its own.
    """
    content = [(row, line) for row, line in enumerate(_content(path, "replace"), start=1) if line.strip()]
    if schema is not None and schema.fields:
        return _lines_in_order(content, list(schema.fields), schema.delimiters)
    if not content:
        raise BadInput(f"{path} is empty", remedy="a table without records has its header")
    delimiter = _delimiter(content[0][1], _allowed(schema))
    header, _ = header_of(path, _split(content[0][1], delimiter), schema)
    return (
        header,
        [_usable(line, (delimiter,), len(header)) for _, line in content[1:]],
        [row for row, _ in content[1:]],
    )


def _lines_in_order(content: list[tuple[int, str]], header: list[str], delimiters: tuple[str, ...]) -> Lines:
    """The lines of a file whose schema fixes the order of its columns.

    A line that spells this order is a header, wherever it stands, and no record; whatever else the first line says
    decides nothing for the others.
    """
    records = [(row, _usable(line, delimiters, len(header))) for row, line in content]
    kept = [(row, fields) for row, fields in records if [field.strip() for field in fields] != header]
    return header, [fields for _, fields in kept], [row for row, _ in kept]


def _usable(line: str, delimiters: tuple[str, ...], width: int) -> list[str]:
    """The fields of a line by the first delimiter that gives the right number; none where none does."""
    splits = (_split(line, delimiter) for delimiter in delimiters)
    return next((fields for fields in splits if len(fields) == width), [])


def _content(path: Path, errors: str) -> list[str]:
    """Return the lines of a text file, plain or gzipped; `errors` says what becomes of bytes that are not UTF-8."""
    try:
        with path.open("rb") as file:
            content = gzip.GzipFile(fileobj=file) if path.suffix.lower() == ".gz" else file
            text = read_stream(content.read, path, data_limit() // _GROWTH)
        return list(io.StringIO(text.decode("utf-8-sig", errors), newline=""))
    except UnicodeDecodeError as error:
        raise _refusal_of_encoding(path, error.object, error.start) from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"cannot read {path} ({why(error)})") from error


def _refusal_of_encoding(path: Path, content: bytes, place: int) -> BadRecord:
    """What to say of bytes that are not UTF-8 from this place on: the row and the field, not what stands there."""
    row = content.count(b"\n", 0, place) + 1
    before = content[content.rfind(b"\n", 0, place) + 1 : place]
    field = max(before.count(each.encode()) for each in DELIMITERS) + 1
    remedy = f"save the table as UTF-8, or: iconv -f WINDOWS-1252 -t UTF-8 {path} > utf8.csv"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        remedy = f"it looks like UTF-16: save the table as UTF-8, or: iconv -f UTF-16 -t UTF-8 {path} > utf8.csv"
    return BadRecord(str(path), row, f"field {field} is not UTF-8 text", remedy=remedy)


def _allowed(schema: Schema | None) -> tuple[str, ...]:
    """What may divide fields: any of all, or what a schema allows."""
    return DELIMITERS if schema is None else schema.delimiters


def _delimiter(line: str, allowed: tuple[str, ...]) -> str:
    """The one that the first line has most of."""
    return max(allowed, key=line.count)


def _split(line: str, delimiter: str) -> list[str]:
    """Return the fields of one line, none when its quotes do not match."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=True))
    except csv.Error:
        return []


def _parse(path: Path, delimiters: tuple[str, ...]) -> tuple[list[list[str]], list[int]]:
    """Return the fields and the first line number of every row that is not blank."""
    content = _content(path, "strict")
    first = next((line for line in content if line.strip()), "")
    reader = csv.reader(content, delimiter=_delimiter(first, delimiters), strict=True, skipinitialspace=True)
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


DELIMITED = TableFormat(
    suffixes=(*SUFFIXES, *(f"{suffix}.gz" for suffix in SUFFIXES)),
    called=f"{' '.join(SUFFIXES)}, also with .gz",
    lines=read_lines,
)
