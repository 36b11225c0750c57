"""Methods of a comparison against the first one, seed by seed: what partition and data do to both cancels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from secagg.experiments.comparison_rows import Entry, Row
from secagg.experiments.summary import student_interval
from secagg.experiments.tables import SUPERSCRIPTS, Table
from secagg.wire import plain

CAPTION = (
    "Accuracy less that of the method in the second column, in percentage points, paired by seed: mean over the seeds "
    "that both have ± half the width of its 95 % Student-t interval (no ±: the same for every seed). It covers what "
    "the seeds move alone, not the choice of the test records, and each interval stands for itself."
)
DIGITS = 12
"""Below these lies what subtraction leaves of equal differences."""
UNSURE = f"{SUPERSCRIPTS[1]} Not surely different: the interval holds 0."


@dataclass(frozen=True)
class Difference:
    """Mean of accuracy less accuracy, in [−1, 1], over `seeds` ≥ 2 seeds, and its 95 % Student-t `interval`."""

    mean: float
    interval: tuple[float, float]
    seeds: int

    @classmethod
    def of(cls, entry: Entry, other: Entry) -> Difference | None:
        """That of the seeds that both have; None where they have fewer than two."""
        common = [seed for seed in entry.by_seed if seed in other.by_seed]
        found = [round(entry.by_seed[seed] - other.by_seed[seed], DIGITS) for seed in common]
        return cls(fmean(found), student_interval(found), len(found)) if len(found) > 1 else None

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return not self.interval[0] <= 0 <= self.interval[1]

    def __str__(self) -> str:
        """In percentage points, marked where it is not sure."""
        half = 50 * (self.interval[1] - self.interval[0])
        text = f"{100 * self.mean:+.2f}" + (f" ± {half:.2f}" if half else "")
        return text.replace("-", "−") + ("" if self.is_sure else SUPERSCRIPTS[1])


@dataclass(frozen=True)
class Pair:
    """How `row` differs from `first`, in every column of the comparison; None where seeds are too few."""

    row: Row
    first: Row
    differences: tuple[Difference | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {
            "label": self.row.label,
            "settings": plain(self.row.settings),
            "minus": plain(self.first.settings),
            "entries": [
                each
                and {
                    "difference": each.mean,
                    "interval": list(each.interval),
                    "seeds": each.seeds,
                    "surely_different": each.is_sure,
                }
                for each in self.differences
            ],
        }


def pairs_of(rows: Sequence[Row]) -> tuple[Pair, ...]:
    """Each row against the first with a result at its ε and expansion, where two seeds or more are common to both."""
    first: dict[tuple[Any, ...], Row] = {}
    pairs = []
    for row in rows:
        if all(entry.accuracy is None for entry in row.entries):
            continue
        other = first.setdefault((row.settings["epsilon"], row.settings["expand"]), row)
        if other is not row:
            pairs.append(Pair(row, other, tuple(map(Difference.of, row.entries, other.entries))))
    return tuple(pair for pair in pairs if any(pair.differences))


def paired_table(rows: Sequence[Row], columns: Sequence[str]) -> Table | None:
    """A row for each pair, under the labels of the comparison's `columns`; None where there is no pair."""
    pairs = pairs_of(rows)
    if not pairs:
        return None
    several = len({row.settings["epsilon"] for row in rows}) > 1
    cells = tuple(
        (pair.row.named(several), pair.first.label, *("–" if each is None else str(each) for each in pair.differences))
        for pair in pairs
    )
    sure = all(each is None or each.is_sure for pair in pairs for each in pair.differences)
    return Table(CAPTION, ("method", "less", *columns), cells, () if sure else (UNSURE,), "paired")
