"""The formats of data files, and tables: records as text by column, whatever format their file has."""

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
"""The header; each record's fields, none for a row that is no record; each record's row, from 1 on."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of data files: the ends of their names, in small letters, and its name in help and refusals.

    `library` is what must be importable to read it, and `extra` which extra of this package installs that.
    """

    suffixes: tuple[str, ...]
    called: str
    library: str = ""
    extra: str = ""

    def takes(self, path: Path) -> bool:
        """Whether a file is of this format, by its name."""
        return path.name.lower().endswith(self.suffixes)

    def require(self, path: Path) -> None:
        """Raise BadInput unless what reads the format is installed."""
        with extra(self.extra, f"{path}: {self.called}", ", or save it in another format"):
            import_module(self.library or __name__)


@dataclass(frozen=True, kw_only=True)
class LabelledFormat(Format):
    """A format that says itself which records are labelled how; `open` takes the file, how to split, and tolerance.

    Tolerance is None where the first bad record is refused.
    """

    open: Callable[[Path, Split, Tolerance | None], Dataset]


@dataclass(frozen=True, kw_only=True)
class TableFormat(Format):
    """A table of text; `lines` takes the file, the schema if there is one, and tolerance, None for none.

    Raises BadInput for what is no such file, BadRecord for a row at fault unless tolerant.
    """

    lines: Callable[[Path, Schema | None, Tolerance | None], Lines]


COMMA_REMEDY = "it looks as if numbers have decimal commas: write 1.5 for 1,5, or say decimal = ',' in the schema"
THOUSANDS_REMEDY = {",": "write 1234,5 for 1.234,5", ".": "write 1234.5 for 1,234.5"}
"""What to do about thousands' separators, by the decimal mark."""
POINT_REMEDY = "the schema says decimal = ',': write 1234,5 for 1,234.5, 1.234,5 and 1234.5, or say decimal = '.'"


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


def read_table(path: Path, known: TableFormat, schema: Schema | None, *, tolerance: Tolerance | None = None) -> Table:
    """Read a table of a known format; without a schema the first row is the header.

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
    lines = [_short(path, row, fields, longest, tolerance) for row, fields in zip(rows, lines, strict=True)]
    widths = (max((len(fields[place]) for fields in lines if fields), default=0) for place in range(len(header)))
    refuse_larger(path, 4 * len(lines) * sum(widths))
    empty = [""] * len(header)
    cells = zip(*(fields or empty for fields in lines), strict=True) if lines else ([] for _ in header)
    columns = {
        name: np.array([cell.strip() for cell in column], dtype=np.str_)
        for name, column in zip(header, cells, strict=True)
    }
    broken = np.array([not fields for fields in lines], dtype=np.bool_)
    return Table(str(path), columns, Origin.of(str(path), np.array(rows, dtype=np.int64)), broken)


def needed_columns(header: list[str], schema: Schema | None, tolerance: Tolerance | None) -> list[int]:
    """The places of the columns that are kept: all, or where a plan says how many records, those that it reads."""
    if schema is None or bounded(tolerance) is None:
        return list(range(len(header)))
    named = {DOMAIN, schema.label, *(column.name for column in schema.columns)}
    return [place for place, name in enumerate(header) if name in named]


def _short(path: Path, row: int, fields: list[str], longest: int, tolerance: Tolerance | None) -> list[str]:
    """The fields of a row, none of which is too long."""
    if max(map(len, fields), default=0) <= longest:
        return fields
    if tolerance is not None:
        return []
    raise BadRecord(str(path), row, f"has a field of more than {MAX_CELL} characters", remedy="shorten it")


def header_of(path: Path, first: list[str], schema: Schema | None) -> tuple[list[str], int]:
    """Return the column names and how many rows the header takes (0 when the file has none).

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
