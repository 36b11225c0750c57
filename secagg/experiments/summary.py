"""What the runs of a sweep say together: one accuracy with its interval per setting, over the seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from secagg.heads.evaluation import CONFIDENCE
from secagg.protection import UNPROTECTED


@dataclass(frozen=True)
class Run:
    """One point of a grid that was tried.

    `settings`: the fields of SimulationSettings by name, seed included. `result`: the JSON of the simulation, or None
    where it was refused for the reason `refusal`. `unprotected`: why the protection that was asked for was refused,
    where these settings are the same with none instead.
    """

    settings: Mapping[str, Any]
    result: Mapping[str, Any] | None
    refusal: str | None = None
    unprotected: str | None = None


@dataclass(frozen=True)
class Cell:
    """Mean `accuracy` over `seeds` seeds at one ε, and its 95 % `interval`; `refused` seeds gave no result.

    Several seeds: Student's t interval of the mean, cut to [0, 1]; it covers what the seeds move and the noise, not
    the choice of the test records. One seed: the Clopper–Pearson interval of its test records. `rounds` of refinement,
    where they are left to the rule; None where they are not.
    """

    epsilon: float
    accuracy: float
    interval: tuple[float, float]
    seeds: int
    refused: int
    rounds: int | None


@dataclass(frozen=True)
class Series:
    """What differs in ε and seed alone, by growing ε. `unprotected`: no secure sum ran.

    `known_noise`: some noise can be drawn again, and protects nobody.
    """

    label: str
    settings: Mapping[str, Any]
    unprotected: bool
    known_noise: bool
    cells: tuple[Cell, ...]


def student_interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean of n ≥ 2 values; of equal ones the value itself, to the bit."""
    if min(values) == max(values):
        return float(values[0]), float(values[0])
    half = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def summarise(runs: Sequence[Run]) -> tuple[Series, ...]:
    """The series that have a result, in the order of the runs."""
    series = []
    for label, group in labelled_groups(runs):
        first = next(run.result for run in group if run.result)
        bare = first["protection"] == UNPROTECTED
        series.append(Series(label, _find_shared(group[0]), bare, has_known_noise(group), _cells(group)))
    return tuple(series)


def labelled_groups(runs: Sequence[Run], *, refused: bool = False) -> list[tuple[str, list[Run]]]:
    """The runs of each series that has a result, by its label, in their order; with `refused` of the others too."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(repr(_find_shared(run)), []).append(run)
    kept = [group for group in groups.values() if refused or any(run.result for run in group)]
    shared = [_find_shared(group[0]) for group in kept]
    labels = []
    for settings in shared:
        peers = [peer for peer in shared if peer["method"] == settings["method"]]
        labels.append(described(settings, varying(peers)))
    return list(zip(labels, kept, strict=True))


def rounds_under_noise(series: Sequence[Series]) -> tuple[int, ...]:
    """How many rounds the rule gives runs with noise, where it gives those of the same series at ε = ∞ none."""
    found = set()
    for each in series:
        if any(cell.rounds == 0 for cell in each.cells if math.isinf(cell.epsilon)):
            found |= {cell.rounds for cell in each.cells if cell.rounds}
    return tuple(sorted(found))


def notes_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """What the runs' reports note, each once, in order."""
    return tuple(dict.fromkeys(note for run in runs if run.result for note in run.result["notes"]))


def not_private(runs: Sequence[Run]) -> tuple[str, ...]:
    """What the runs' results hold that was computed without noise although an ε is finite, each once."""
    return tuple(dict.fromkeys(name for run in runs if run.result for name in run.result["not_private"]))


def has_known_noise(runs: Sequence[Run]) -> bool:
    """Whether whoever knows a seed takes the noise off any of the runs again."""
    return any(run.result["reproducible_noise"] for run in runs if run.result)


def is_baseline(result: Mapping[str, Any]) -> bool:
    """Whether a result is that of a baseline: there was no sum."""
    return result["aggregate_sha256"] is None


def varying(settings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names whose values differ among some settings; none where there are no settings."""
    first = settings[0] if settings else {}
    return tuple(name for name in first if any(other[name] != first[name] for other in settings))


def described(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    """The method and the named settings, for a legend or a message."""
    unsaid = {"refine": "auto"}
    values = {name: unsaid.get(name, "default") if settings[name] is None else settings[name] for name in names}
    values.pop("method", None)
    return ", ".join([settings["method"], *(f"{name.replace('_', ' ')} {value}" for name, value in values.items())])


def _find_shared(run: Run) -> dict[str, Any]:
    """The settings that are the same within a series."""
    return {name: value for name, value in run.settings.items() if name not in ("epsilon", "seed")}


def _cells(runs: Sequence[Run]) -> tuple[Cell, ...]:
    tried = sorted({float(run.settings["epsilon"]) for run in runs})
    by_epsilon = [[run for run in runs if run.settings["epsilon"] == epsilon] for epsilon in tried]
    return tuple(cell_of(group) for group in by_epsilon if any(run.result for run in group))


def cell_of(runs: Sequence[Run]) -> Cell:
    """The mean of the runs of one series at one ε, at least one of which has a result."""
    results = [run.result for run in runs if run.result]
    accuracies = [float(result["accuracy"]) for result in results]
    low, high = results[0]["accuracy_interval"] if len(results) == 1 else student_interval(accuracies)
    return Cell(
        epsilon=float(runs[0].settings["epsilon"]),
        accuracy=float(np.mean(accuracies)),
        interval=(max(0.0, float(low)), min(1.0, float(high))),
        seeds=len(results),
        refused=len(runs) - len(results),
        rounds=results[0]["refine"] if runs[0].settings["refine"] is None else None,
    )
