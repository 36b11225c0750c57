"""Results as notebooks show them: a pandas frame, and a table in HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from secagg.extras import extra
from secagg.printable import escaped


def frame_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A `pandas.DataFrame` with a row for each mapping. Raises BadInput where pandas is not installed."""
    with extra("frames", "to_frame", ", or use to_json()"):
        import pandas

    return pandas.DataFrame(list(rows))


def html_of(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, notes: Sequence[str] = ()) -> str:
    """A table whose first column names the row; every text in it is escaped."""
    head = "".join(f'<th scope="col">{_text(each)}</th>' for each in header)
    body = "".join(
        f'<tr><th scope="row">{_text(row[0])}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    below = "".join(f"<p>{_text(each)}</p>" for each in notes)
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    return f"<table><caption>{_text(caption)}</caption>{top}<tbody>{body}</tbody></table>{below}"


def _text(value: str) -> str:
    return escape(escaped(value))
