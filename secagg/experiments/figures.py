"""Figures for papers, 12 cm wide: accuracy against ε, by partition, and against rounds."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

from secagg.experiments.results import (
    Group,
    Interval,
    ResultRow,
    RoundResult,
    Run,
    described,
    grouped,
    has_known_noise,
    results_of,
    rounds_under_noise,
    student_interval,
    varying,
)
from secagg.experiments.seeding import REPRODUCIBLE
from secagg.protection import UNPROTECTED
from secagg.system.extras import extra

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours that colour-blind readers tell apart (Okabe & Ito 2008)."""
MARKERS = "osD^vP"
PALEST = 0.4
"""Share of a method's colour that is left at the smallest ε, the rest being white."""
GROUP = 0.8
"""Share of a group's width that its marks occupy."""
SHORT = 32
"""Most letters of a legend's entry with which two entries fit side by side."""
LINE = 60
"""Most letters of a legend's line."""
BARS = {"capsize": 2, "elinewidth": 0.8}
STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "svg.hashsalt": "secagg",
}
NO_NOISE = "no noise (ε = ∞)"
NO_ROUNDS = "no noise (ε = ∞; auto: one sum)"
CM = 1 / 2.54


@dataclass(frozen=True)
class Scale:
    """A figure's axis of values: its label, and the factor by which the values are multiplied."""

    label: str
    factor: float = 1.0


ACCURACY = Scale("accuracy (%)", 100.0)


def plot_accuracy(
    series: Sequence[ResultRow],
    paths: Sequence[Path],
    scale: Scale = ACCURACY,
    bounds: Mapping[str, Mapping[float, float]] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Plot each series' accuracy with intervals, and save the figure to `paths`, whose suffixes decide the format.

    Against ε on a logarithmic axis, the values at ε = ∞ as dashed lines; a sweep without finite ε has one row per
    series instead. `scale` says what the values are. `bounds` are up to two black lines against finite ε, by name.
    `notes` stand below.
    """
    finite = sorted({cell.epsilon for each in series for cell in each.cells if math.isfinite(cell.epsilon)})
    height = 7.0 if finite else 2.5 + 0.7 * len(series)
    with _figure(height, paths, [run for row in series for run in row.runs], notes) as figure:
        axes = figure.add_subplot()
        if not finite:
            for place, (each, look) in enumerate(zip(series, _looks(series), strict=True)):
                axes.errorbar(_values(each.cells, scale), [place], xerr=_errors(each.cells, scale), **BARS, **look)
            axes.set_yticks(range(len(series)), [fill(_label(each, each.label), SHORT) for each in series])
            axes.set_ylim(len(series) - 0.5, -0.5)
            axes.set_xlabel(scale.label)
            return
        _draw_against_epsilon(axes, series, finite, scale)
        for (name, line), dashes in zip((bounds or {}).items(), ("-.", ":"), strict=False):
            shown = [epsilon for epsilon in finite if epsilon in line]
            axes.plot(shown, [scale.factor * line[each] for each in shown], dashes, color="0", lw=0.9, label=name)
        handles = zip(*axes.get_legend_handles_labels(), strict=True)
        entries = sorted(handles, key=lambda entry: entry[1] in (NO_NOISE, NO_ROUNDS))
        _add_legend(figure, *zip(*entries, strict=True))


def plot_groups(
    rows: Sequence[ResultRow], columns: Mapping[int, str], paths: Sequence[Path], notes: Sequence[str]
) -> None:
    """Plot every method's accuracy with its interval, grouped by the comparison's columns.

    `columns` maps their indices to labels. A hollow mark made no secure sum; `notes` stand below.
    """
    drawn = [row for row in rows if any(cell.accuracy is not None for cell in row.cells)]
    several = len({row.settings["epsilon"] for row in drawn}) > 1
    with _figure(7.0, paths, [run for row in rows for run in row.runs], notes) as figure:
        axes = figure.add_subplot()
        axes.grid(visible=False, axis="x")
        for group in range(0, len(columns), 2):
            axes.axvspan(group - 0.5, group + 0.5, color="0.965", linewidth=0, zorder=0)
        for place, (row, look) in enumerate(zip(drawn, _looks(drawn), strict=True)):
            offset = GROUP * ((place + 0.5) / len(drawn) - 0.5)
            cells = [row.cells[number] for number in columns]
            where = [group + offset for group in range(len(cells))]
            values, errors = _values(cells, ACCURACY), _errors(cells, ACCURACY)
            label = row.label
            if several:
                epsilon = row.settings["epsilon"]
                label += ", no noise" if math.isinf(epsilon) else f", ε = {epsilon:g}"
            axes.errorbar(where, values, yerr=errors, label=_label(row, label), **BARS, **look | {"linestyle": "none"})
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_xticks(range(len(columns)), list(columns.values()))
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel(ACCURACY.label)
        _add_legend(figure, *axes.get_legend_handles_labels())


def write_curves(runs: Sequence[Run], folder: Path) -> bool:
    """Write accuracy by round to curves.csv, curves.png and curves.svg; return False if no run has measured rounds."""
    curves = curves_of(runs)
    if not any(curve.measured for curve in curves):
        return False
    with (folder / "curves.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, "not_private"])
        for curve in curves:
            for point in curve.points:  # a column is empty where nothing was measured or no noise was added
                row = [curve.label, point.round, point.accuracy, *(point.interval or (None, None)), point.seeds]
                marked = "accuracy" if curve.not_private else ""
                writer.writerow([*row, point.epsilon_spent, point.upload_bytes, marked])
    plot_curves([curve for curve in curves if curve.measured], [folder / "curves.png", folder / "curves.svg"])
    return True


def plot_curves(curves: Sequence[_RoundCurve], paths: Sequence[Path]) -> None:
    """Plot accuracy against rounds and, where ε is finite, against the ε spent so far, with intervals as bands."""
    has_noise = any(point.epsilon_spent is not None for curve in curves for point in curve.points)
    labels = [f"{curve.label} (no protection)" if curve.unprotected else curve.label for curve in curves]
    with _figure(6.5, paths, [run for curve in curves for run in curve.runs]) as figure:
        panels = figure.subplots(1, 2 if has_noise else 1, sharey=True, squeeze=False)[0]
        panels[0].set_xlabel("rounds")
        panels[0].set_ylabel(ACCURACY.label)
        looks = looks_of(labels, [each.unprotected for each in curves])
        for curve, label, look in zip(curves, labels, looks, strict=True):
            _draw_curve(panels[0], curve, [point.round for point in curve.measured], label, look)
            spent = [point.epsilon_spent for point in curve.measured if point.epsilon_spent is not None]
            if spent:
                _draw_curve(panels[1], curve, spent, label, look)
        if has_noise:
            panels[1].set_xlabel("ε spent so far")
            panels[1].set_xlim(left=0)
        if len(curves) > 1:
            _add_legend(figure, *panels[0].get_legend_handles_labels())


@contextmanager
def _figure(height: float, paths: Sequence[Path], runs: Sequence[Run], notes: Sequence[str] = ()) -> Iterator[Any]:
    """Yield a figure of `height` cm to draw on, and write it to `paths` afterwards."""
    with extra("experiments"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(12 * CM, height * CM), layout="constrained")
        yield figure
        save(figure, paths, known_noise=has_known_noise(runs), notes=notes)


def _add_legend(figure: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Draw a legend below the axes, for which the figure grows: in two columns where all labels are short, else in one.

    A label longer than a line is continued on the next.
    """
    columns = 2 if all(len(label) <= SHORT for label in labels) else 1
    texts = [fill(label, LINE) for label in labels]
    lines = -(-len(labels) // 2) if columns == 2 else sum(text.count("\n") + 1 for text in texts)
    figure.set_figheight(figure.get_figheight() + 0.45 * lines * CM)
    figure.legend(handles, texts, loc="outside lower center", ncols=columns)


def save(figure: Any, paths: Sequence[Path], *, known_noise: bool, notes: Sequence[str] = ()) -> None:
    """Save a figure, always as the same bytes, to files whose suffixes decide the format.

    Above noise that can be drawn again it says that nobody is protected; `notes` stand below.
    """
    if notes:
        text = "\n".join(fill(note, 88) for note in notes)
        if figure.legends:  # a label of the figure would lie on the legend below the axes
            figure.legends[0].set_title(text, prop={"size": 6})
        else:
            figure.supxlabel(text, size=6, x=0.02, ha="left")
    if known_noise:
        figure.suptitle(REPRODUCIBLE, size=8, color="firebrick")
    for path in paths:
        figure.savefig(path, dpi=300, metadata={"Date": None} if path.suffix == ".svg" else None)


def looks_of(
    labels: Sequence[str], unprotected: Sequence[bool], epsilons: Sequence[float] = ()
) -> list[dict[str, Any]]:
    """Return colour, marker and line style for each row: by label, paler at smaller ε, hollow without a secure sum."""
    names, strengths = list(dict.fromkeys(labels)), sorted(set(epsilons), reverse=True)
    looks = []
    for number, (label, bare) in enumerate(zip(labels, unprotected, strict=True)):
        place = names.index(label)
        step = strengths.index(epsilons[number]) / max(1, len(strengths) - 1) if epsilons else 0
        red_green_blue = bytes.fromhex(COLOURS[place % len(COLOURS)].removeprefix("#"))
        colour = tuple(1 - (1 - (1 - PALEST) * step) * (1 - part / 255) for part in red_green_blue)
        look = {"color": colour, "markerfacecolor": "white" if bare else colour, "linestyle": ":" if bare else "-"}
        looks.append(look | {"marker": MARKERS[(place + place // len(COLOURS)) % len(MARKERS)], "markersize": 3.5})
    return looks


def _looks(rows: Sequence[ResultRow]) -> list[dict[str, Any]]:
    epsilons = [float(row.settings.get("epsilon", math.inf)) for row in rows]
    return looks_of([row.label for row in rows], [row.unprotected for row in rows], epsilons)


def _draw_against_epsilon(axes: Any, series: Sequence[ResultRow], epsilons: Sequence[float], scale: Scale) -> None:
    for place, (each, look) in enumerate(zip(series, _looks(series), strict=True)):
        noisy = [cell for cell in each.cells if math.isfinite(cell.epsilon)]
        # A little to the side, so that intervals at the same ε do not hide each other.
        where = [cell.epsilon * 1.03 ** (place - (len(series) - 1) / 2) for cell in noisy]
        height, errors = _values(noisy, scale), _errors(noisy, scale)
        axes.errorbar(where, height, yerr=errors, label=_label(each, each.label), linewidth=1.2, **BARS, **look)
        for value in _values(each.cells[len(noisy) :], scale):
            # Dashes that leave room for those of up to two other series: without noise, accuracies often coincide.
            shared = min(len(series), 3)
            dashes = 4 * (place % shared), (4, 4 * max(1, shared - 1))
            axes.axhline(value, color=look["color"], linestyle=dashes, linewidth=0.8)
    if any(math.isinf(cell.epsilon) for each in series for cell in each.cells):
        label = NO_ROUNDS if rounds_under_noise(series) else NO_NOISE
        axes.plot([], [], color="0.4", linestyle="--", linewidth=0.8, label=label)
    axes.set_xscale("log")
    axes.set_xlim(0.8 * epsilons[0], 1.25 * epsilons[-1])
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("privacy budget ε")
    axes.set_ylabel(scale.label)


def _draw_curve(axes: Any, curve: _RoundCurve, places: Sequence[float], label: str, look: Mapping[str, Any]) -> None:
    if all(point.interval is not None for point in curve.measured):
        low, high = ([100 * (point.interval or (0.0, 0.0))[end] for point in curve.measured] for end in (0, 1))
        axes.fill_between(places, low, high, color=look["color"], alpha=0.15, linewidth=0)
    accuracies = [100 * (point.accuracy or 0.0) for point in curve.measured]
    axes.plot(places, accuracies, label=label, linewidth=1.2, **{**look, "markersize": 2.5})


def _label(row: ResultRow, label: str) -> str:
    """Return the label, with a remark on rows without a secure sum (a finite ε is a protection too)."""
    if not row.unprotected:
        return label
    is_finite = any(math.isfinite(cell.epsilon) for cell in row.cells)
    return f"{label} ({'ε alone, no secure sum' if is_finite else 'no protection'})"


def _values(cells: Sequence[Group], scale: Scale) -> list[float]:
    """Return the cells' accuracies, NaN where a cell has none."""
    return [math.nan if cell.accuracy is None else scale.factor * cell.accuracy for cell in cells]


def _errors(cells: Sequence[Group], scale: Scale) -> list[list[float]]:
    """Return the lengths of the error bars: from each value down to, and up to, the ends of its interval."""
    ends = [(cell.accuracy or 0.0, *(cell.interval or 2 * (cell.accuracy or 0.0,))) for cell in cells]
    return [
        [scale.factor * max(0.0, value - low) for value, low, _ in ends],
        [scale.factor * max(0.0, high - value) for value, _, high in ends],
    ]


COLUMNS = ("series", "round", "accuracy", "accuracy_low", "accuracy_high", "seeds", "epsilon_spent", "upload_bytes")


@dataclass(frozen=True)
class _Point:
    """A point of a curve: a round's mean accuracy over `seeds` seeds, and its 95 % interval as of a `Group`.

    None without a model to measure; members' own models of one seed have no interval. `epsilon_spent`, None without
    noise, and `upload_bytes` of one client: the most of any seed.
    """

    round: int
    accuracy: float | None
    interval: Interval | None
    seeds: int
    epsilon_spent: float | None
    upload_bytes: int

    @classmethod
    def of(cls, reports: Sequence[RoundResult], kind: str = "") -> _Point:
        """Return the point of one round in several runs; with `kind` of the members' own models of that kind."""
        values = [each["personal"].get(kind) if kind else each["accuracy"] for each in reports]
        accuracies = [value for value in values if value is not None]
        alone = next((each["accuracy_interval"] for each in reports if each["accuracy"] is not None and not kind), None)
        interval = (alone[0], alone[1]) if alone is not None else None
        if len(accuracies) > 1:
            low, high = student_interval(accuracies)
            interval = max(0.0, low), min(1.0, high)
        mean, interval = (fmean(accuracies), interval) if accuracies else (None, None)
        spent = max((each["epsilon_spent"] for each in reports if each["epsilon_spent"] is not None), default=None)
        sent = max(each["upload_bytes"] for each in reports)
        return cls(reports[0]["round"], mean, interval, len(accuracies), spent, sent)


@dataclass(frozen=True)
class _RoundCurve:
    """The accuracy after each round of runs that differ in their seed alone."""

    label: str
    points: tuple[_Point, ...]
    runs: tuple[Run, ...] = field(repr=False)

    @property
    def unprotected(self) -> bool:
        """Whether the runs had no protection."""
        return results_of(self.runs)[0]["protection"] == UNPROTECTED

    @property
    def not_private(self) -> bool:
        """Whether accuracies were counted on records without noise although ε is finite."""
        return any("rounds" in result["not_private"] for result in results_of(self.runs))

    @property
    def measured(self) -> tuple[_Point, ...]:
        """The points that have an accuracy."""
        return tuple(point for point in self.points if point.accuracy is not None)


def curves_of(runs: Sequence[Run]) -> tuple[_RoundCurve, ...]:
    """Return the curves of accuracy by round, for each combination of settings, in the order of the runs."""
    with_rounds = [run for run in runs if run.result and run.result["rounds"]]
    groups = grouped(with_rounds, lambda run: run.settings_without("seed"))
    names = varying([group[0].settings_without("seed") for group in groups])
    return tuple(curve for group in groups for curve in _curves(group, names))


def _curves(runs: Sequence[Run], names: Sequence[str]) -> Iterator[_RoundCurve]:
    """Yield the shared model's curve, and one for each kind of the members' own models."""
    found = [{each["round"]: each for each in result["rounds"]} for result in results_of(runs)]
    reports = [[each[number] for each in found] for number in found[0] if all(number in each for each in found)]
    settings = runs[0].settings
    others = [name for name in names if name != "epsilon"]
    label = described(settings, others, runs[0].name)
    if "epsilon" in names:
        label += ", no noise" if math.isinf(settings["epsilon"]) else f", ε = {settings['epsilon']:g}"
    yield _RoundCurve(label, tuple(map(_Point.of, reports)), tuple(runs))
    for kind in reports[-1][0]["personal"] if reports else ():
        points = tuple(_Point.of(each, kind) for each in reports)
        yield _RoundCurve(f"{label}: members' own, {kind}", points, tuple(runs))
