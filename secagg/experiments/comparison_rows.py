"""The rows and columns of a comparison: what the runs of a method say together, by partition, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from secagg.experiments.summary import Run, student_interval
from secagg.heads.evaluation import clopper_pearson
from secagg.protection import UNPROTECTED

ROW = ("method", "parameters", "epsilon", "expand")
Place = tuple[str, str | None]
"""A partition and what was left out."""


@dataclass(frozen=True)
class Column:
    """What a column shows: `accuracy`, `in_domain` (the mean over the domains of the clients) or one `domain`.

    Averaged over `places`.
    """

    label: str
    places: tuple[Place, ...]
    shows: str = "accuracy"
    domain: str | None = None

    def value(self, result: Mapping[str, Any]) -> tuple[float, tuple[float, float] | None] | None:
        """A run's value and, where it has one of its own, its interval; None where it has no such domain."""
        found = result["by_domain"]
        if self.domain is not None:
            own = found["domains"].get(self.domain) if found else None
            return own and (own["accuracy"], clopper_pearson(own["correct"], own["total"]))
        if self.shows == "accuracy":
            low, high = result["accuracy_interval"]
            return result["accuracy"], (low, high)
        return (found[self.shows], None) if found and found[self.shows] is not None else None


@dataclass(frozen=True)
class Entry:
    """Mean `accuracy` over the seeds and its 95 % `interval`, as a `Cell` of a sweep has them; None without any.

    `by_seed`: the accuracy of each seed that gave one.
    `refusals`: why other seeds, or all, gave nothing. `unprotected`: why what was measured had no protection although
    it was asked for; empty where it had. `diverged`: training did, with a seed or more.
    """

    accuracy: float | None
    interval: tuple[float, float] | None
    by_seed: Mapping[int, float]
    refusals: tuple[str, ...]
    unprotected: tuple[str, ...]
    diverged: bool = False

    @property
    def seeds(self) -> int:
        """How many seeds gave a result."""
        return len(self.by_seed)


@dataclass(frozen=True)
class Row:
    """One method with its parameters at one ε and expansion. `bytes_per_client`: the most in any run; seconds: means.

    `protections`: what ran, `promises`: ε, δ, adjacency and unit of what was released, for each run that has a result.
    """

    label: str
    settings: Mapping[str, Any]
    entries: tuple[Entry, ...]
    bytes_per_client: int | None
    client_seconds: float | None
    server_seconds: float | None
    protections: tuple[str, ...]
    promises: tuple[str, ...]

    def named(self, several: bool) -> str:
        """The label, with the ε where there are several."""
        return self.label + (f", ε {self.settings['epsilon']:g}" if several else "")


def place_of(run: Run) -> Place:
    """Where a run stands among the columns."""
    return run.settings["partition"], run.settings["leave_out"]


def row_of(runs: Sequence[Run], columns: Sequence[Column], expansions: bool) -> Row:
    """The row of one method's runs; its label tells the expansion where `expansions` differ."""
    first = runs[0].settings
    results = [run.result for run in runs if run.result]
    label = first["method"] + (f"[{first['parameters']}]" if first["parameters"] else "")
    if expansions:
        label += f", expand {first['expand']}"
    sent = [result["upload_bytes_per_client"] for result in results if result["upload_bytes_per_client"] is not None]
    return Row(
        label,
        {name: first[name] for name in ROW},
        tuple(_entry(runs, column) for column in columns),
        max(sent, default=None),
        _mean(results, "client_seconds"),
        _mean(results, "server_seconds"),
        tuple(dict.fromkeys(result["protection"] for result in results)),
        tuple(dict.fromkeys(map(_promise, results))),
    )


def _entry(runs: Sequence[Run], column: Column) -> Entry:
    own = [run for run in runs if place_of(run) in column.places]
    by_seed: dict[int, list[Run]] = {}
    for run in own:
        by_seed.setdefault(run.settings["seed"], []).append(run)
    found_by_seed, single = {}, None
    for seed, group in by_seed.items():
        found = [value for run in group if run.result and (value := column.value(run.result)) is not None]
        if len(found) == len(column.places):
            found_by_seed[seed] = fmean(value for value, _ in found)
            single = found[0][1] if len(found) == 1 else None
    values = list(found_by_seed.values())
    interval = student_interval(values) if len(values) > 1 else single
    return Entry(
        fmean(values) if values else None,
        (max(0.0, interval[0]), min(1.0, interval[1])) if values and interval is not None else None,
        found_by_seed,
        tuple(dict.fromkeys(run.refusal for run in own if run.refusal is not None)),
        tuple(dict.fromkeys(_why_unprotected(run) for run in own if run.result and _is_bare(run))) if values else (),
        any(run.result["diverged"] for run in own if run.result),
    )


def _is_bare(run: Run) -> bool:
    """Whether a run had no protection although one was asked for."""
    asked = run.unprotected is not None or run.settings["protection"] != UNPROTECTED
    return run.result is not None and asked and run.result["protection"] == UNPROTECTED


def _why_unprotected(run: Run) -> str:
    """Why: the refusal of what was asked for, or what leaves a client of a baseline."""
    if run.unprotected is not None:
        return run.unprotected
    leaves = run.result["leaves"] if run.result else None
    return f"with {run.settings['method']}, what leaves a client is {leaves or 'in the clear'}"


def _promise(result: Mapping[str, Any]) -> str:
    if result["epsilon"] == "inf":
        return "none"
    delta = f"{result['delta']:g}".replace("e-0", "e-")
    known = f"; {result['reproducible_noise']}" if result["reproducible_noise"] else ""
    return f"{result['epsilon']:g} (δ {delta}, {result['adjacency']}, {result['unit']}{known})"


def _mean(results: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [result[name] for result in results if result[name] is not None]
    return fmean(values) if values else None
