"""Accuracy against ε as a figure that a paper can print, 12 cm wide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from secagg.experiments.seeding import REPRODUCIBLE
from secagg.experiments.summary import Cell, Series, rounds_under_noise
from secagg.system.extras import extra

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Told apart by colour-blind readers (Okabe & Ito 2008)."""
MARKERS = "osD^vP"
UNPROTECTED = {"markerfacecolor": "white", "linestyle": ":"}
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
    """What the values of a figure are: the axis' label, and by what they are multiplied."""

    label: str
    factor: float = 1.0


ACCURACY = Scale("accuracy (%)", 100.0)


def plot_accuracy(
    series: Sequence[Series],
    paths: Sequence[Path],
    scale: Scale = ACCURACY,
    bounds: Mapping[str, Mapping[float, float]] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Draw the accuracy of each series, with intervals, into files of the formats that their names say.

    Against ε on a logarithmic axis, the values at ε = ∞ as dashed lines; a sweep without finite ε has one row per
    series instead. `scale` says what the values are. `bounds` are up to two black lines against finite ε, by name.
    `notes` stand below.
    """
    with extra("experiments"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure

    finite = sorted({cell.epsilon for each in series for cell in each.cells if math.isfinite(cell.epsilon)})
    height = 8.0 if finite else 2.5 + 0.7 * len(series)
    with rc_context(STYLE):
        figure = Figure(figsize=(12 * CM, height * CM), layout="constrained")
        axes = figure.add_subplot()
        if finite:
            _against_epsilon(axes, series, finite, scale)
            for (name, line), dashes in zip((bounds or {}).items(), ("-.", ":"), strict=False):
                shown = [epsilon for epsilon in finite if epsilon in line]
                axes.plot(shown, [scale.factor * line[each] for each in shown], dashes, color="0", lw=0.9, label=name)
            entries = sorted(
                zip(*axes.get_legend_handles_labels(), strict=True), key=lambda entry: entry[1] in (NO_NOISE, NO_ROUNDS)
            )
            figure.legend(*zip(*entries, strict=True), loc="outside lower center", ncols=2)
        else:
            _by_series(axes, series, scale)
        save(figure, paths, known_noise=any(each.known_noise for each in series), notes=notes)


def save(figure: Any, paths: Sequence[Path], *, known_noise: bool, notes: Sequence[str] = ()) -> None:
    """Write a figure into files of the formats that their names say, the same bytes each time.

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


def looks_of(unprotected: Sequence[bool]) -> list[dict[str, Any]]:
    """Colour, marker and line of each series, by whether it is unprotected; those of one colour differ in marker."""
    looks = [
        {
            "color": COLOURS[place % len(COLOURS)],
            "marker": MARKERS[(place + place // len(COLOURS)) % len(MARKERS)],
            "linestyle": "-",
            "markersize": 3.5,
        }
        for place in range(len(unprotected))
    ]
    return [look | UNPROTECTED if bare else look for bare, look in zip(unprotected, looks, strict=True)]


def _looks(series: Sequence[Series]) -> list[dict[str, Any]]:
    return looks_of([each.unprotected for each in series])


def _against_epsilon(axes: Any, series: Sequence[Series], epsilons: Sequence[float], scale: Scale) -> None:
    for place, (each, look) in enumerate(zip(series, _looks(series), strict=True)):
        noisy = [cell for cell in each.cells if math.isfinite(cell.epsilon)]
        # A little to the side, so that intervals at the same ε do not hide each other.
        where = [cell.epsilon * 1.03 ** (place - (len(series) - 1) / 2) for cell in noisy]
        bars = {"capsize": 2, "elinewidth": 0.8, "linewidth": 1.2}
        height, errors = _values(noisy, scale), _errors(noisy, scale)
        axes.errorbar(where, height, yerr=errors, label=_label(each), **look, **bars)
        for cell in each.cells[len(noisy) :]:
            dashes = _dashes(place, len(series))
            axes.axhline(scale.factor * cell.accuracy, color=look["color"], linestyle=dashes, linewidth=0.8)
    if any(math.isinf(cell.epsilon) for each in series for cell in each.cells):
        label = NO_ROUNDS if rounds_under_noise(series) else NO_NOISE
        axes.plot([], [], color="0.4", linestyle="--", linewidth=0.8, label=label)
    axes.set_xscale("log")
    axes.set_xlim(0.8 * epsilons[0], 1.25 * epsilons[-1])
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("privacy budget ε")
    axes.set_ylabel(scale.label)


def _dashes(place: int, count: int) -> tuple[int, tuple[int, int]]:
    """Dashes that leave room for those of up to two other series: without noise, accuracies often coincide."""
    shared = min(count, 3)
    return 4 * (place % shared), (4, 4 * max(1, shared - 1))


def _by_series(axes: Any, series: Sequence[Series], scale: Scale) -> None:
    for place, (each, look) in enumerate(zip(series, _looks(series), strict=True)):
        values, errors = _values(each.cells, scale), _errors(each.cells, scale)
        axes.errorbar(values, [place], xerr=errors, capsize=2, elinewidth=0.8, **look)
    axes.set_yticks(range(len(series)), [_label(each) for each in series])
    axes.set_ylim(len(series) - 0.5, -0.5)
    axes.set_xlabel(scale.label)


def _label(series: Series) -> str:
    finite = any(math.isfinite(cell.epsilon) for cell in series.cells)
    return name_unprotected(series.label, finite) if series.unprotected else series.label


def name_unprotected(label: str, finite: bool) -> str:
    """The label of what made no secure sum; where it keeps a finite ε, that is a protection too."""
    return f"{label} ({'ε alone, no secure sum' if finite else 'no protection'})"


def _values(cells: Sequence[Cell], scale: Scale) -> list[float]:
    return [scale.factor * cell.accuracy for cell in cells]


def _errors(cells: Sequence[Cell], scale: Scale) -> list[list[float]]:
    """Distances from the values down and up to the ends of their intervals."""
    return [
        [scale.factor * max(0.0, cell.accuracy - cell.interval[0]) for cell in cells],
        [scale.factor * max(0.0, cell.interval[1] - cell.accuracy) for cell in cells],
    ]
