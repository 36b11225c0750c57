"""Results as rows: one without nested values, a pandas frame of several, a table in HTML as notebooks show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from secagg.system.extras import extra
from secagg.system.printable import escaped


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


def flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without nested values."""
    values = {name: value for name, value in result.items() if not isinstance(value, (dict, list))}
    if result:
        values["accuracy_low"], values["accuracy_high"] = result["accuracy_interval"] or (None, None)
        values |= _measures(result["metrics"])
        for name, found in (result["by_domain"] or {"domains": {}})["domains"].items():
            values[f"accuracy_on_{name}"] = found["accuracy"]
        values |= {f"seconds_{name}": value for name, value in result["seconds"].items()}
        values["not_private"] = " ".join(result["not_private"])
        values["notes"] = "; ".join(result["notes"])
    return values


def _measures(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """Each measure of all records but accuracy, which has its own columns, with the ends of its interval.

    Those of each class are in the JSON.
    """
    found = {name: each for name, each in (metrics or {}).items() if isinstance(each, dict) and name != "accuracy"}
    ends = (("", "value"), ("_low", "low"), ("_high", "high"))
    return {f"{name}{suffix}": each[end] for name, each in found.items() for suffix, end in ends}
