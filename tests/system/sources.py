"""Small plug-ins for tests: the sources of a method, an attack and a format, and a package that is as installed."""

from __future__ import annotations

from pathlib import Path

import pytest

METHOD = """
from dataclasses import dataclass
from typing import ClassVar
from pathlib import Path
from methods.closed_form.prototypes import Prototypes
{effect}

@dataclass(frozen=True)
class Mine(Prototypes):
    name: ClassVar[str] = "mine"
"""
FORMAT = """
from secagg.data.table import TableFormat

def lines(path, schema, tolerant):
    header, *rows = [line.split("|") for line in path.read_text().splitlines()]
    return header, rows, list(range(2, len(rows) + 2))

BARS = TableFormat(suffixes=("{end}",), called="{end}", lines=lines)
"""


def write_method(path: Path, effect: str = "") -> Path:
    """A method, and what else its code does when it runs."""
    path.write_text(METHOD.format(effect=effect))
    return path


def leaving(mark: Path) -> str:
    """Code that leaves a mark: whoever finds it knows that the code ran."""
    return f"Path({str(mark)!r}).touch()"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, group: str, name: str, source: str) -> Path:
    """Put a package with one module and one entry point where Python looks; return its folder."""
    inside = folder / package
    inside.mkdir(parents=True)
    (inside / "__init__.py").write_text("")
    (inside / "part.py").write_text(source)
    told = folder / f"{package}-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(f"[{group}]\n{name}\n")
    monkeypatch.syspath_prepend(str(folder))
    return inside
