"""Tables from delimited text: comma, semicolon or tab, plain or gzipped, with a header or a schema."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

from secagg.agreement.schema import DELIMITERS, Schema
from secagg.data.records import Tolerance, bounded
from secagg.data.table import COMMA_REMEDY, Lines, TableFormat, header_of, needed_columns
from secagg.errors import BadInput, BadRecord, describe_error
from secagg.system.reading import data_limit, read_stream, utf8_remedy

SUFFIXES = (".csv", ".data", ".tsv")
_GROWTH = 16
"""About how many bytes of memory a short field takes for each of its bytes in the file."""
LONGEST_LINE = 1 << 20
"""Most characters of a line, where lines are read one by one."""
UNUSABLE = '"'
"""A text that cannot be split into fields, as its quote is left open; it stands for lines that are too long."""
ENDS = ("\n", "\r")
MOST_LINES = 100
"""Most lines of one record with line breaks in its cells."""
_REWRITES = "`secagg schema check` or `new` with --without-line-breaks NEW.csv"
BREAKS_REMEDY = f"a record is one line: {_REWRITES} writes spaces instead"
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


def read_lines(path: Path, schema: Schema | None, tolerance: Tolerance | None) -> Lines:
    """Read a delimited file into its header, each record's fields, and each record's row number in the file.

    Bad rows are refused; with `tolerance` they have no fields, and no row affects how others are read.
    """
    if tolerance is not None:
        return _lines_alone(path, schema, tolerance)
    content = []
    for row, line in enumerate(_text_of(path), start=1):
        _refuse_other_encoding(path, row, line)
        if line.strip():
            content.append((row, line))
    if not content:
        raise BadInput(f"{path} is empty")
    delimiter = _delimiter(content[0][1], schema)
    split = [(row, _fields(path, row, line, delimiter)) for row, line in content]
    split = [(row, fields) for row, fields in split if any(field.strip() for field in fields)]
    header, start = header_of(path, split[0][1] if split else [], schema)
    lines, rows = [fields for _, fields in split[start:]], [row for row, _ in split[start:]]
    for fields, row in zip(lines, rows, strict=True):
        if len(fields) != len(header):
            remedy = _remedy(fields, header, in_order=start == 0)
            raise BadRecord(str(path), row, f"has {len(fields)} fields instead of {len(header)}", remedy=remedy)
    return header, lines, rows


def _fields(path: Path, row: int, line: str, delimiter: str) -> list[str]:
    """Return the fields of one line. Raises BadRecord for unbalanced quotes, with their likely cause."""
    try:
        return next(_reader([line], delimiter))
    except csv.Error as error:
        torn = broken_cells(list(_text_of(path, whole=False)), delimiter)
        if any(first + 1 == row for first, _ in torn):
            problem = f"a quoted cell holds a line break (records with one: {len(torn)})"
            raise BadRecord(str(path), row, problem, remedy=BREAKS_REMEDY) from None
        problem = f"cannot be split into fields ({error})"
        raise BadRecord(str(path), row, problem, remedy="check its quotes") from error


def _remedy(fields: list[str], header: list[str], *, in_order: bool) -> str:
    """Return the remedy for a row with a wrong number of fields; `in_order`: the columns' names are the schema's."""
    others = [each for each in DELIMITERS if len(fields) == 1 and len(_split(fields[0], each)) == len(header) > 1]
    if others:
        return f"it is divided by {others[0]!r}, unlike the first row: use one delimiter in the whole file"
    if any(delimiter in field for field in fields for delimiter in DELIMITERS):
        return COMMA_REMEDY
    if in_order:
        return f"the schema names {len(header)} columns, the first is {header[0]!r}, the last {header[-1]!r}"
    return "every row needs the same number of fields"


def _lines_alone(path: Path, schema: Schema | None, tolerance: Tolerance) -> Lines:
    """Return header, fields and rows, each line read independently of the others; a broken row has no fields.

    Every line that is not blank is one record, so that a quote left open spoils its own line only. The
    delimiter is the header's; where the schema fixes the order, each line shows its own. Of records to be predicted the
    first line decides what the columns are, as it does without `tolerance`: nobody is to be protected from it there.
    """
    numbered = enumerate(_text_of(path, tolerance), start=1)
    content: Iterator[tuple[int, str]] = ((row, line) for row, line in numbered if line.strip())
    if schema is not None and schema.fields and schema.needs_label:
        header, delimiters = list(schema.fields), schema.delimiters
    else:
        row, first = next(content, (0, ""))
        if not row:
            raise BadInput(f"{path} is empty", remedy="a table without records has its header")
        _refuse_other_encoding(path, row, first)
        delimiters = (_delimiter(first, schema),)
        header, named = header_of(path, _fields(path, row, first, delimiters[0]), schema)
        content = content if named else chain([(row, first)], content)
    places = needed_columns(header, schema, tolerance)
    longest = tolerance.longest_cell(path, len(places))
    lines: list[list[str]] = []
    rows: list[int] = []
    for row, line in content:
        splits = [_split(_replaced(line), delimiter) for delimiter in delimiters]
        fields = next((each for each in splits if len(each) == len(header)), [])
        if schema is not None and schema.fields and [field.strip() for field in fields] == header:
            continue  # it spells the schema's order: a header, wherever it stands
        cells = [fields[place] for place in places] if fields else []
        lines.append(cells if max(map(len, cells), default=0) <= longest else [])
        rows.append(row)
        tolerance.refuse_more(path, len(rows))
    return [header[place] for place in places], lines, rows


def _text_of(path: Path, tolerance: Tolerance | None = None, *, whole: bool = True) -> Iterator[str]:
    """Yield the lines of a text file, plain or gzipped; a byte that is not UTF-8 becomes a lone surrogate.

    Raises BadInput for a file of more than `data_limit` bytes once opened; but where `tolerance` says how many records
    there may be, or not `whole`, lines are read one by one, and one of more than LONGEST_LINE characters is UNUSABLE.
    """
    try:
        with path.open("rb") as file:
            content: IO[bytes] = gzip.GzipFile(fileobj=file) if path.suffix.lower() == ".gz" else file  # type: ignore[assignment]
            longest = LONGEST_LINE
            if whole and bounded(tolerance) is None:
                content, longest = io.BytesIO(read_stream(content.read, path, data_limit() // _GROWTH)), -1
            text = io.TextIOWrapper(content, "utf-8-sig", "surrogateescape", newline="")
            while line := text.readline(longest):
                if len(line) == longest and not line.endswith(ENDS):
                    while (rest := text.readline(longest)) and not rest.endswith(ENDS):
                        pass
                    line = UNUSABLE
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"cannot read {path} ({describe_error(error)})") from error


def _replaced(line: str) -> str:
    """Return the line with � for bytes that are not UTF-8."""
    return line if line.isascii() else line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _refuse_other_encoding(path: Path, row: int, line: str) -> None:
    """Raise BadRecord for a line that is not UTF-8, naming row and field but never the content."""
    if found := None if line.isascii() else _NOT_UTF8.search(line):
        before = line[: found.start()]
        field = max(before.count(each) for each in DELIMITERS) + 1
        utf16 = line.encode("utf-8", "surrogateescape").startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        raise BadRecord(str(path), row, f"field {field} is not UTF-8 text", remedy=utf8_remedy(path, utf16=utf16))


def _delimiter(line: str, schema: Schema | None) -> str:
    """Return the delimiter that is most frequent in the first line, among those that the schema allows."""
    return max(DELIMITERS if schema is None else schema.delimiters, key=line.count)


def _split(line: str, delimiter: str) -> list[str]:
    """Return the fields of one line; none where its quotes do not match."""
    try:
        return next(_reader([line], delimiter))
    except csv.Error:
        return []


def _reader(lines: Iterable[str], delimiter: str) -> Any:
    return csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)


def broken_cells(text: Sequence[str], delimiter: str) -> list[tuple[int, int]]:
    """Find records whose quoted cells contain line breaks; return their line ranges (first, end) in `text`.

    Such a record is a line with a quote left open that makes, with at most MOST_LINES behind it, as many fields as the
    first record has. Any other open quote spoils its own line alone.
    """
    found, place, width = [], 0, 0
    while place < len(text):
        lines, fields = 1, []
        try:
            reader = _reader(text[place : place + MOST_LINES], delimiter)
            fields, lines = next(reader), reader.line_num
        except (csv.Error, StopIteration):
            pass
        width = width or len(fields)
        lines = lines if len(fields) == width else 1
        if lines > 1:
            found.append((place, place + lines))
        place += lines
    return found


def other_order_in(path: Path, schema: Schema | None) -> str:
    """Return a warning if the table's columns are not in the order of the schema's `fields`, else "".

    Where a plan has noise no line decides how others are read, and this header would not be followed.
    """
    if schema is None or not schema.fields:
        return ""
    first = next((line for line in _text_of(path, whole=False) if line.strip()), "")
    names = [name.strip() for name in _split(first, _delimiter(first, schema))]
    if names == list(schema.fields) or not {schema.label, *(each.name for each in schema.columns)} <= set(names):
        return ""
    order = ", ".join(schema.fields)
    return f"{path} has a header that is not the schema's `fields`: under noise it is not followed; order them {order}"


def line_breaks_in(path: Path, schema: Schema | None) -> str:
    """Return a warning if the table's quoted cells hold line breaks, else ""."""
    text = [_replaced(line) for line in _text_of(path, whole=False)]
    if not (torn := broken_cells(text, _first_delimiter(text, schema))):
        return ""
    first = f"{path}, row {torn[0][0] + 1}"
    return f"records torn apart by a line break in a quoted cell: {len(torn)}, the first {first}; {BREAKS_REMEDY}"


def write_without_line_breaks(path: Path, out: Path, schema: Schema | None = None) -> int:
    """Copy a table, replacing line breaks in quoted cells by spaces; return the number of records changed.

    All other characters stay. Raises BadInput for a table that is not UTF-8, FileExistsError for `out` if it exists.
    """
    text = list(_text_of(path, whole=False))
    for row, line in enumerate(text, start=1):
        _refuse_other_encoding(path, row, line)
    torn = broken_cells(text, _first_delimiter(text, schema))
    for start, end in torn:
        text[start : end - 1] = [line.rstrip("\r\n") + " " for line in text[start : end - 1]]
    with out.open("x", encoding="utf-8", newline="") as file:
        file.writelines(text)
    return len(torn)


def _first_delimiter(text: Sequence[str], schema: Schema | None) -> str:
    return _delimiter(next((line for line in text if line.strip()), ""), schema)


_GZIPPED = tuple(f"{suffix}.gz" for suffix in SUFFIXES)
DELIMITED = TableFormat(suffixes=SUFFIXES + _GZIPPED, called=f"{' '.join(SUFFIXES)}, also with .gz", lines=read_lines)
