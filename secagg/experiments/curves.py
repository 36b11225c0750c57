"""Accuracy as rounds go by: a curve for each setting over its seeds, and their table for a machine."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from secagg.experiments.results import (
    Interval,
    RoundResult,
    Run,
    described,
    grouped,
    results_of,
    student_interval,
    varying,
)
from secagg.protection import UNPROTECTED

COLUMNS = (
    *("series", "round", "accuracy", "accuracy_low", "accuracy_high", "seeds"),
    *("epsilon_spent", "upload_bytes", "not_private"),
)


@dataclass(frozen=True)
class _Point:
    """One round: the mean accuracy over `seeds` seeds and its 95 % interval, as a `Group` has them.

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
        """The same round of several runs; `kind` is that of the members' own models, if they are meant."""
        values = [each["personal"].get(kind) if kind else each["accuracy"] for each in reports]
        accuracies = [value for value in values if value is not None]
        alone = next((each["accuracy_interval"] for each in reports if each["accuracy"] is not None and not kind), None)
        interval = (alone[0], alone[1]) if alone is not None else None
        if len(accuracies) > 1:
            low, high = student_interval(accuracies)
            interval = max(0.0, low), min(1.0, high)
        return cls(
            reports[0]["round"],
            fmean(accuracies) if accuracies else None,
            interval if accuracies else None,
            len(accuracies),
            max((each["epsilon_spent"] for each in reports if each["epsilon_spent"] is not None), default=None),
            max(each["upload_bytes"] for each in reports),
        )


@dataclass(frozen=True)
class RoundCurve:
    """The accuracy after each round of runs that differ in their seed alone."""

    label: str
    points: tuple[_Point, ...]
    runs: tuple[Run, ...] = field(repr=False)

    @property
    def unprotected(self) -> bool:
        """Whether no vector was hidden."""
        return results_of(self.runs)[0]["protection"] == UNPROTECTED

    @property
    def not_private(self) -> bool:
        """Whether accuracies were counted without noise although ε is finite."""
        return any("rounds" in result["not_private"] for result in results_of(self.runs))

    @property
    def measured(self) -> tuple[_Point, ...]:
        """The points with an accuracy."""
        return tuple(point for point in self.points if point.accuracy is not None)


def curves_of(runs: Sequence[Run]) -> tuple[RoundCurve, ...]:
    """One curve for each setting whose runs have rounds, in the order of the runs."""
    with_rounds = [run for run in runs if run.result and run.result["rounds"]]
    groups = grouped(with_rounds, lambda run: run.settings_without("seed"))
    names = varying([group[0].settings_without("seed") for group in groups])
    return tuple(curve for group in groups for curve in _curves(group, names))


def csv_of_curves(curves: Sequence[RoundCurve]) -> str:
    """One row per curve and point. A column is empty where nothing was measured or no noise was added."""
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


def _curves(runs: Sequence[Run], names: Sequence[str]) -> Iterator[RoundCurve]:
    """The curve of the shared model, and one for each kind of members' own models."""
    found = [{each["round"]: each for each in result["rounds"]} for result in results_of(runs)]
    reports = [[each[number] for each in found] for number in found[0] if all(number in each for each in found)]
    settings = runs[0].settings
    others = [name for name in names if name not in ("parameters", "epsilon")]
    parts = [described({**settings, "method": ""}, others).removeprefix(", ")]
    if "epsilon" in names:
        parts.append("no noise" if math.isinf(settings["epsilon"]) else f"ε = {settings['epsilon']:g}")
    given = f"[{settings['parameters']}]" if "parameters" in names and settings["parameters"] else ""
    label = ", ".join(filter(None, [settings["method"] + given, *parts]))
    yield RoundCurve(label, tuple(map(_Point.of, reports)), tuple(runs))
    for kind in reports[-1][0]["personal"] if reports else ():
        yield RoundCurve(
            f"{label}: members' own, {kind}", tuple(_Point.of(each, kind) for each in reports), tuple(runs)
        )
