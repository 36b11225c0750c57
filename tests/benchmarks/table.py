"""Lines of text in columns, and lines that are judged against a goal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table; details have no goal."""

    name: str
    measured: str
    goal: str = ""
    verdict: str = ""


def judged(name: str, value: float, goal: float, shown: Callable[[float], str]) -> Row:
    """A line for a value that is to be at most `goal`."""
    return Row(name, shown(value), f"≤ {shown(goal)}", "met" if value <= goal else "MISSED")


def table(lines: Sequence[Row]) -> str:
    """The lines under a heading, in columns."""
    return columns(
        [
            ("name", "measured", "goal", "verdict"),
            *((row.name, row.measured, row.goal, row.verdict) for row in lines),
        ]
    )


def columns(cells: Sequence[tuple[str, ...]]) -> str:
    """Lines of equally many cells: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        ).rstrip()
        for first, *rest in cells
    )
