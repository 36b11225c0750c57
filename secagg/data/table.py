"""Formats of data files, and tables: records as text by column, whatever the format of their file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.schema import Schema
from secagg.data.partition import Split
from secagg.data.records import DOMAIN, MAX_CELL, Dataset, Tolerance, bounded
from secagg.encoding.grid import Origin
from secagg.errors import BadInput, BadRecord
from secagg.system.extras import extra
from secagg.system.reading import refuse_larger, resembling

Lines = tuple[list[str], list[list[str]], list[int]]
"""The header; each record's fields, an empty list for a broken row; and each record's row in the file, from 1 on."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of data files: its file suffixes, in lower case, and its name in help and error messages.

    `library` is what must be importable to read it, and `extra` which extra of this package installs that.
    """

    suffixes: tuple[str, ...]
    called: str
    library: str = ""
    extra: str = ""

    def takes(self, path: Path) -> bool:
        """Return whether a file is of this format, judging by its name."""
        return path.name.lower().endswith(self.suffixes)

    def require(self, path: Path) -> None:
        """Raise BadInput unless the library that reads the format is installed."""
        with extra(self.extra, f"{path}: {self.called}", ", or save it in another format"):
            import_module(self.library or __name__)


@dataclass(frozen=True, kw_only=True)
class LabelledFormat(Format):
    """A file format with labelled records; `open` reads such a file as a data set.

    It takes the path, a function that splits off test records, and a tolerance of bad ones (None: refuse them).
    """

    open: Callable[[Path, Split, Tolerance | None], Dataset]


@dataclass(frozen=True, kw_only=True)
class TableFormat(Format):
    """A file format of text tables; `lines` reads such a file as text.

    It takes the path, a schema and a tolerance of bad records (schema and tolerance may be None). Raises BadInput for
    what is no such file, BadRecord for a row at fault unless tolerant.
    """

    lines: Callable[[Path, Schema | None, Tolerance | None], Lines]


COMMA_REMEDY = "it looks as if numbers have decimal commas: write 1.5 for 1,5, or say decimal = ',' in the schema"
THOUSANDS_REMEDY = {",": "write 1234,5 for 1.234,5", ".": "write 1234.5 for 1,234.5"}
"""Remedies against separators of thousands, by the decimal mark."""
POINT_REMEDY = "the schema says decimal = ',': write 1234,5 for 1,234.5, 1.234,5 and 1234.5, or say decimal = '.'"


@dataclass(frozen=True, eq=False)
class Table:
    """The raw text of one file by column, without surrounding spaces; `origin` gives each record's file and row.

    `broken` (n,) bool: rows that are no record of this table; their cells are empty.
    """

    source: str
    columns: dict[str, NDArray[np.str_]]
    origin: Origin
    broken: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.origin.row)


def read_table(path: Path, known: TableFormat, schema: Schema | None, *, tolerance: Tolerance | None = None) -> Table:
    """Read a table file in the format `known`; without a schema, its first row is the header.

    With a schema the first row is a header when it names the schema's columns; otherwise the file has
    none and `schema.fields` gives the order. Raises BadInput, or BadRecord for a row that cannot be split
    into the header's fields or has a field that is too long; with `tolerance` such a row is `broken`.
    """
    known.require(path)
    header, lines, rows = known.lines(path, schema, tolerance)
    if not lines and tolerance is None:
        raise BadInput(f"{path} has a header and no records")
    if tolerance is not None:
        tolerance.refuse_more(path, len(lines))
        places = needed_columns(header, schema, tolerance)
        if len(places) < len(header):
            header = [header[place] for place in places]
            lines = [[fields[place] for place in places if fields] for fields in lines]
    longest = MAX_CELL if tolerance is None else tolerance.longest_cell(path, len(header))
    short: list[list[str]] = []
    for row, fields in zip(rows, lines, strict=True):
        is_long = max(map(len, fields), default=0) > longest
        if is_long and tolerance is None:
            problem = f"has a field of more than {MAX_CELL} characters"
            raise BadRecord(str(path), row, problem, remedy="shorten it")
        short.append([] if is_long else fields)
    lines = short
    widths = (max((len(fields[place]) for fields in lines if fields), default=0) for place in range(len(header)))
    refuse_larger(path, 4 * len(lines) * sum(widths))
    empty = [""] * len(header)
    cells = zip(*(fields or empty for fields in lines), strict=True) if lines else ([] for _ in header)
    texts = [np.array([cell.strip() for cell in column], dtype=np.str_) for column in cells]
    broken = np.array([not fields for fields in lines], dtype=np.bool_)
    columns = dict(zip(header, texts, strict=True))
    return Table(str(path), columns, Origin.of(str(path), np.array(rows, dtype=np.int64)), broken)


def needed_columns(header: list[str], schema: Schema | None, tolerance: Tolerance | None) -> list[int]:
    """Return the indices of the columns to keep: all or, if a plan bounds the records, those that the schema names."""
    if schema is None or bounded(tolerance) is None:
        return list(range(len(header)))
    named = {DOMAIN, schema.label, *(column.name for column in schema.columns)}
    return [place for place, name in enumerate(header) if name in named]


def header_of(path: Path, first: list[str], schema: Schema | None) -> tuple[list[str], int]:
    """Return the column names, and how many rows the header takes (0 if the file has none).

    Where `schema.fields` allows no header, a first row that names none of the columns is a record.
    """
    names = [name.strip() for name in first]
    if schema is not None:
        needed = {column.name for column in schema.columns} | ({schema.label} if schema.needs_label else set())
        absent = sorted(needed - set(names))
        if schema.fields and absent == sorted(needed):
            unlabelled = not schema.needs_label and len(names) == len(schema.fields) - 1
            return [name for name in schema.fields if not (unlabelled and name == schema.label)], 0
        if absent:
            problem = f"{path} lacks the columns {', '.join(absent)} in its first row of {len(names)} fields"
            raise BadInput(problem, remedy=" ".join(filter(None, (resembling(absent, names), "the schema names them"))))
    if len(set(names)) != len(names) or "" in names:
        remedy = "name every column once in the first row, or give a schema whose `fields` lists the order"
        raise BadInput(f"{path}: the first row is no header: names are empty or repeated", remedy=remedy)
    return names, 1
