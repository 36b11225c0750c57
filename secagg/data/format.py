"""What a format of data files is: a further one is a file with such a value, and its place in `sources.FORMATS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from secagg.agreement.schema import Schema
from secagg.data.faults import Tolerance
from secagg.data.records import Dataset
from secagg.data.split import Split
from secagg.system.extras import extra

Lines = tuple[list[str], list[list[str]], list[int]]
"""The header; each record's fields, none for a row that is no record; each record's row, from 1 on."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """How the names of its files end, in small letters, and what help and refusals call it.

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
