"""A comparison as figures that a paper can print, 12 cm wide: accuracy by partition, and by domain on a radar chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from secagg.experiments.comparison import Comparison
from secagg.experiments.comparison_rows import Entry, Row
from secagg.experiments.plots import CM, COLOURS, MARKERS, STYLE, name_unprotected, save
from secagg.experiments.summary import has_known_noise
from secagg.experiments.tables import pipeline_notes
from secagg.protection import UNPROTECTED
from secagg.system.extras import extra

GROUP = 0.8
"""Share of a group's width that its marks take."""
PALEST = 0.4
"""Of a method's colour, what the smallest ε keeps."""
POLAR_STEP = 10
"""Per cent between two rings of a radar chart, which begins one ring below the lowest accuracy."""


def plot_groups(comparison: Comparison, paths: Sequence[Path]) -> None:
    """Draw the accuracy of every method, with intervals, grouped by partition or left-out domain.

    A hollow mark made no secure sum.
    """
    with extra("experiments"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure

    rows = _with_results(comparison)
    shown = [n for n, column in enumerate(comparison.columns) if len(column.places) == 1 and column.shows == "accuracy"]
    with rc_context(STYLE):
        figure = Figure(figsize=(12 * CM, (7.0 + 0.45 * math.ceil(len(rows) / 2)) * CM), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(visible=False, axis="x")
        for group in range(0, len(shown), 2):
            axes.axvspan(group - 0.5, group + 0.5, color="0.965", linewidth=0, zorder=0)
        for place, (row, look) in enumerate(zip(rows, _looks(rows), strict=True)):
            offset = GROUP * ((place + 0.5) / len(rows) - 0.5)
            _draw_marks(axes, row, [row.entries[number] for number in shown], offset, look)
        axes.set_xlim(-0.5, len(shown) - 0.5)
        axes.set_xticks(range(len(shown)), [comparison.columns[number].label for number in shown])
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel("accuracy (%)")
        _legend(figure, axes, rows)
        save(figure, paths, known_noise=has_known_noise(comparison.runs), notes=pipeline_notes(comparison.runs))


def plot_domains(comparison: Comparison, paths: Sequence[Path]) -> None:
    """Draw every method's accuracy on each domain as a polygon; dashed and hollow: no secure sum."""
    with extra("experiments"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure

    rows = _with_results(comparison)
    numbers = comparison.domains
    angles = [2 * math.pi * turn / len(numbers) for turn in range(len(numbers))]
    with rc_context(STYLE):
        figure = Figure(figsize=(12 * CM, (9.5 + 0.45 * math.ceil(len(rows) / 2)) * CM), layout="constrained")
        axes: Any = figure.add_subplot(projection="polar")
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        for row, look in zip(rows, _looks(rows), strict=True):
            values = [_percent(row.entries[number]) for number in numbers]
            axes.plot([*angles, angles[0]], [*values, values[0]], label=_label(row, rows), linewidth=1.2, **look)
        axes.set_thetagrids([math.degrees(angle) for angle in angles], [comparison.columns[n].label for n in numbers])
        drawn = [value for row in rows for n in numbers if not math.isnan(value := _percent(row.entries[n]))]
        rings = [POLAR_STEP * math.floor(min(drawn) / POLAR_STEP - 1), POLAR_STEP * math.ceil(max(drawn) / POLAR_STEP)]
        axes.set_rlim(max(0, rings[0]), rings[1])
        axes.set_rgrids(range(max(0, rings[0]) + POLAR_STEP, rings[1] + 1, POLAR_STEP), color="0.45", size=6.5)
        axes.set_rlabel_position(180 / len(numbers))
        axes.spines["polar"].set_visible(False)
        axes.set_title("accuracy (%)", loc="left", size=8)
        _legend(figure, axes, rows)
        save(figure, paths, known_noise=has_known_noise(comparison.runs), notes=pipeline_notes(comparison.runs))


def _with_results(comparison: Comparison) -> list[Row]:
    return [row for row in comparison.rows if any(entry.accuracy is not None for entry in row.entries)]


def _draw_marks(axes: Any, row: Row, entries: Sequence[Entry], offset: float, look: Mapping[str, Any]) -> None:
    where = [group + offset for group in range(len(entries))]
    values = [_percent(entry) for entry in entries]
    ends = [entry.interval or 2 * (entry.accuracy or 0.0,) for entry in entries]
    errors = [
        [max(0.0, value - 100 * low) for value, (low, _) in zip(values, ends, strict=True)],
        [max(0.0, 100 * high - value) for value, (_, high) in zip(values, ends, strict=True)],
    ]
    marks = {**look, "linestyle": "none"}
    axes.errorbar(where, values, yerr=errors, label=row.label, capsize=2, elinewidth=0.8, **marks)


def _looks(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Each row's colour, marker and line: its method's own, the paler the smaller its ε is."""
    methods = list(dict.fromkeys(row.label for row in rows))
    epsilons = sorted({row.settings["epsilon"] for row in rows}, reverse=True)
    paler = (1 - PALEST) / max(1, len(epsilons) - 1)
    return [_look(methods.index(row.label), 1 - paler * epsilons.index(row.settings["epsilon"]), row) for row in rows]


def _look(place: int, strength: float, row: Row) -> dict[str, Any]:
    red_green_blue = bytes.fromhex(COLOURS[place % len(COLOURS)].removeprefix("#"))
    colour = tuple(1 - strength * (1 - part / 255) for part in red_green_blue)
    bare = UNPROTECTED in row.protections
    return {
        "color": colour,
        "marker": MARKERS[(place + place // len(COLOURS)) % len(MARKERS)],
        "markersize": 4,
        "markerfacecolor": "white" if bare else colour,
        "linestyle": (0, (3, 2)) if bare else "-",
    }


def _percent(entry: Entry) -> float:
    return math.nan if entry.accuracy is None else 100 * entry.accuracy


def _legend(figure: Any, axes: Any, rows: Sequence[Row]) -> None:
    handles, _ = axes.get_legend_handles_labels()
    figure.legend(handles, [_label(row, rows) for row in rows], loc="outside lower center", ncols=2)


def _label(row: Row, rows: Sequence[Row]) -> str:
    label = row.label
    if len({other.settings["epsilon"] for other in rows}) > 1:
        epsilon = row.settings["epsilon"]
        label += ", no noise" if math.isinf(epsilon) else f", ε = {epsilon:g}"
    finite = math.isfinite(row.settings["epsilon"])
    return name_unprotected(label, finite) if UNPROTECTED in row.protections else label
