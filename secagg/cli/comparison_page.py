"""The page of `sweep --html` and `compare --html`: tables, figure and notes, in one file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from secagg.cli.page import render
from secagg.experiments.tables import ResultTable

STYLE = """
.results td, .results thead th + th { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.figure { max-width: 100%; height: auto; }
"""


def comparison_page(title: str, tables: Sequence[ResultTable], notes: Sequence[str], figure: Path) -> str:
    """The page; what `figure`, an SVG file, shows stands in the tables, too."""
    drawn = b64encode(figure.read_bytes()).decode()
    return render("comparison.html", STYLE, title=title, tables=tables, notes=notes, figure=drawn)
