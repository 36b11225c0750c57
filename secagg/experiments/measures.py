"""The other measures of what was compared, as a table below that of accuracies: one row per head, a column for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from secagg.experiments.summary import Run, student_interval
from secagg.experiments.tables import DASH, Table, shown_accuracy

SHOWN = {"balanced_accuracy": "balanced accuracy", "auc": "AUC", "f1": "F1", "calibration_error": "calibration error"}
"""Those of all records that there are of any number of classes, and their headings."""
Group = tuple[str, str, Sequence[Run]]
"""What names a row in its first and second column, and its runs, one for each seed."""


def measures_table(dataset: str, second: str, groups: Sequence[Group], notes: Sequence[str] = ()) -> Table | None:
    """A row for each group, the mean over its seeds as in the table of accuracies; `second` heads the second column.

    `notes` stand below.     None where no run was measured by anything but accuracy.
    """
    measured = [each for _, _, runs in groups for each in _metrics(runs)]
    if not measured:
        return None
    rows = tuple((first, value, *_cells(runs)) for first, value, runs in groups)
    positive = {each["positive_class"] for each in measured}
    of = f"of class {positive.pop()}" if positive != {None} else "means over the classes"
    text = f"In per cent, on the same records: AUC and F1 are {of}; a lower calibration error is better. {INTERVALS}"
    return Table(
        f"Further measures on {dataset}. {text}",
        ("method", second, *SHOWN.values()),
        rows,
        tuple(notes),
        name="measures",
    )


INTERVALS = "± is as for accuracy; brackets hold a single seed's own 95 % interval."


def by_epsilon(label: str, runs: Sequence[Run]) -> list[Group]:
    """The rows of a series, by growing ε."""
    epsilons = sorted({float(run.settings["epsilon"]) for run in runs if run.result})
    return [
        (
            label,
            "∞" if math.isinf(epsilon) else f"{epsilon:g}",
            [run for run in runs if float(run.settings["epsilon"]) == epsilon],
        )
        for epsilon in epsilons
    ]


def _metrics(runs: Sequence[Run]) -> list[Mapping[str, Any]]:
    return [run.result["metrics"] for run in runs if run.result and run.result["metrics"]]


def _cells(runs: Sequence[Run]) -> list[str]:
    found = _metrics(runs)
    return [_shown([each[name] for each in found if each[name]], len(runs)) for name in SHOWN]


def _shown(measures: Sequence[Mapping[str, float]], tried: int) -> str:
    if not measures:
        return DASH
    values = [each["value"] for each in measures]
    low, high = student_interval(values) if len(values) > 1 else (measures[0]["low"], measures[0]["high"])
    interval = (max(0.0, low), min(1.0, high))
    return shown_accuracy(fmean(values), interval, len(values), tried - len(values))
