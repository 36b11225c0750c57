"""Accuracy as rounds go by: a curve for each setting over its seeds, as a table for a machine and as a figure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from secagg.experiments.plots import CM, STYLE, looks_of, save
from secagg.experiments.summary import Run, described, has_known_noise, student_interval, varying
from secagg.protection import UNPROTECTED
from secagg.system.extras import extra

COLUMNS = (
    *("series", "round", "accuracy", "accuracy_low", "accuracy_high", "seeds"),
    *("epsilon_spent", "upload_bytes", "not_private"),
)

SHORT = 32
"""Letters of a legend's entry of which two fit beside each other."""


@dataclass(frozen=True)
class Point:
    """After so many rounds: the mean accuracy over `seeds` seeds and its 95 % interval, as a `Cell` has them.

    None without a model to measure; members' own models of one seed have no interval. `epsilon_spent`, None without
    noise, and `upload_bytes` of one client: the most of any seed.
    """

    round: int
    accuracy: float | None
    interval: tuple[float, float] | None
    seeds: int
    epsilon_spent: float | None
    upload_bytes: int


@dataclass(frozen=True)
class Curve:
    """The runs that differ in their seed alone. `not_private`: counted without noise, though ε is finite.

    `unprotected`: no vector was hidden. `known_noise`: the noise can be drawn again, and protects nobody.
    """

    label: str
    points: tuple[Point, ...]
    unprotected: bool
    known_noise: bool
    not_private: bool

    @property
    def measured(self) -> tuple[Point, ...]:
        """The points with an accuracy."""
        return tuple(point for point in self.points if point.accuracy is not None)


def curves_of(runs: Sequence[Run]) -> tuple[Curve, ...]:
    """One curve for each setting whose runs have rounds, in the order of the runs."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.result and run.result["rounds"]:
            groups.setdefault(repr(_shared(run)), []).append(run)
    shared = [_shared(group[0]) for group in groups.values()]
    names = varying(shared)
    return tuple(curve for group in groups.values() for curve in _curves(group, names))


def write_curves(runs: Sequence[Run], folder: Path) -> bool:
    """Write curves.csv, curves.png and curves.svg into a folder, where any run has rounds; return whether one has."""
    curves = curves_of(runs)
    if not any(curve.measured for curve in curves):
        return False
    (folder / "curves.csv").write_text(_csv(curves), encoding="utf-8")
    plot_curves(curves, [folder / "curves.png", folder / "curves.svg"])
    return True


def plot_curves(curves: Sequence[Curve], paths: Sequence[Path]) -> None:
    """Draw accuracy against rounds, and in a second panel against the ε spent where any is finite, into files.

    The bands are the intervals of the points.
    """
    with extra("experiments"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure

    drawn = [curve for curve in curves if curve.measured]
    has_noise = any(point.epsilon_spent is not None for curve in drawn for point in curve.points)
    columns = 2 if all(len(_shown(curve)) <= SHORT for curve in drawn) else 1
    height = 6.5 + (0.45 * -(-len(drawn) // columns) if len(drawn) > 1 else 0)
    with rc_context(STYLE):
        figure = Figure(figsize=(12 * CM, height * CM), layout="constrained")
        panels = figure.subplots(1, 2 if has_noise else 1, sharey=True, squeeze=False)[0]
        panels[0].set_xlabel("rounds")
        panels[0].set_ylabel("accuracy (%)")
        for curve, look in zip(drawn, looks_of([curve.unprotected for curve in drawn]), strict=True):
            _draw(panels[0], curve, [point.round for point in curve.measured], look)
            spent = [point.epsilon_spent for point in curve.measured if point.epsilon_spent is not None]
            if spent:
                _draw(panels[1], curve, spent, look)
        if has_noise:
            panels[1].set_xlabel("ε spent so far")
            panels[1].set_xlim(left=0)
        if len(drawn) > 1:
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=columns)
        save(figure, paths, known_noise=any(curve.known_noise for curve in drawn))


def _draw(axes: Any, curve: Curve, places: Sequence[float], look: Mapping[str, Any]) -> None:
    accuracies = [100 * (point.accuracy or 0.0) for point in curve.measured]
    if all(point.interval is not None for point in curve.measured):
        low, high = ([100 * (point.interval or (0.0, 0.0))[end] for point in curve.measured] for end in (0, 1))
        axes.fill_between(places, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axes.plot(places, accuracies, label=_shown(curve), linewidth=1.2, **{**look, "markersize": 2.5})


def _shown(curve: Curve) -> str:
    return f"{curve.label} (no protection)" if curve.unprotected else curve.label


def _curves(runs: Sequence[Run], names: Sequence[str]) -> Iterator[Curve]:
    """That of everybody's model, and one for each kind of members' own models."""
    results = [run.result for run in runs if run.result]
    found = [{each["round"]: each for each in result["rounds"]} for result in results]
    common = [number for number in found[0] if all(number in each for each in found)]
    told = [[each[number] for each in found] for number in common]
    label = _label(runs[0].settings, names)
    facts = (
        results[0]["protection"] == UNPROTECTED,
        has_known_noise(runs),
        any("rounds" in result["not_private"] for result in results),
    )
    yield Curve(label, tuple(_point(each) for each in told), *facts)
    for kind in told[-1][0]["personal"] if told else ():
        own = [[_of_own(each, kind) for each in group] for group in told]
        yield Curve(f"{label}: members' own, {kind}", tuple(_point(each) for each in own), *facts)


def _of_own(told: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A round's report with the mean accuracy of members' own models, of which one seed alone has no interval."""
    return {**told, "accuracy": told["personal"].get(kind), "accuracy_interval": None}


def _point(told: Sequence[Mapping[str, Any]]) -> Point:
    """What the same round of several runs comes to."""
    accuracies = [each["accuracy"] for each in told if each["accuracy"] is not None]
    interval = None
    if len(accuracies) == 1:
        alone = next(each["accuracy_interval"] for each in told if each["accuracy"] is not None)
        interval = (alone[0], alone[1]) if alone is not None else None
    elif accuracies:
        low, high = student_interval(accuracies)
        interval = max(0.0, low), min(1.0, high)
    return Point(
        told[0]["round"],
        float(np.mean(accuracies)) if accuracies else None,
        interval,
        len(accuracies),
        max((each["epsilon_spent"] for each in told if each["epsilon_spent"] is not None), default=None),
        max(each["upload_bytes"] for each in told),
    )


def _label(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    """The method with those of its settings that differ among the curves: fedavg[rate=0.5], ε = 2."""
    others = [name for name in names if name not in ("parameters", "epsilon")]
    parts = [described({**settings, "method": ""}, others).removeprefix(", ")]
    if "epsilon" in names:
        parts.append("no noise" if math.isinf(settings["epsilon"]) else f"ε = {settings['epsilon']:g}")
    given = f"[{settings['parameters']}]" if "parameters" in names and settings["parameters"] else ""
    return ", ".join(filter(None, [settings["method"] + given, *parts]))


def _shared(run: Run) -> dict[str, Any]:
    return {name: value for name, value in run.settings.items() if name != "seed"}


def _csv(curves: Sequence[Curve]) -> str:
    """One row per curve and point. Empty: not measured, or no noise."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for curve in curves:
        for point in curve.points:
            ends = point.interval or (None, None)
            marked = "accuracy" if curve.not_private else ""
            row = [curve.label, point.round, point.accuracy, *ends, point.seeds, point.epsilon_spent]
            writer.writerow([*row, point.upload_bytes, marked])
    return text.getvalue()
