"""Runs of a sweep, a comparison or a search, and their means over seeds: `Run`, `Group` and `ResultRow`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, TypedDict

import numpy as np
from scipy.special import stdtrit

from secagg.heads.artifact import CONFIDENCE
from secagg.protection import UNPROTECTED

Interval = tuple[float, float]


class _DomainResult(TypedDict):
    """The accuracy on one domain's held-out records; `left_out` says that no client had a record of the domain."""

    accuracy: float
    correct: int
    total: int
    left_out: bool


class _ByDomain(TypedDict):
    """The accuracy of each domain, and the means over the domains that clients had and over those left out.

    `left_out_domain` is of domains that no client had: not MPFT's ood acc, which is of other clients' domains.
    """

    domains: dict[str, _DomainResult]
    in_domain: float | None
    left_out_domain: float | None


class RoundResult(TypedDict):
    """The JSON of one round's report (`RoundReport`)."""

    round: int
    accuracy: float | None
    accuracy_interval: list[float] | None
    epsilon_spent: float | None
    upload_bytes: int
    personal: dict[str, float]


class _Tuned(TypedDict):
    """The settings that a search found, written as words, and their mean validation loss."""

    settings: str
    loss: float


class RunResult(TypedDict):
    """The JSON of one simulation (`SimulationResult`); null where a baseline lacks what a secure sum has.

    `epsilon` is "inf" without noise. `not_private` names the keys whose values ε does not cover.
    """

    method: str
    dataset: str
    clients: int
    survivors: int
    partition: str
    seed: int
    noise_seed: int | None
    reproducible_noise: str | None
    protection: str
    epsilon: float | str
    delta: float | None
    adjacency: str | None
    unit: str
    noise: str | None
    refine: int
    at_least: int
    class_gate: int
    cohort: int
    covariance: str
    expand: int
    leave_out: str | None
    validate: float
    surplus_noise: str
    dropouts: int
    colluders: int | None
    tolerate: int | None
    accuracy: float | None
    accuracy_interval: list[float] | None
    accuracy_reference: float | None
    metrics: dict[str, Any] | None
    by_domain: _ByDomain | None
    adaptation: dict[str, Any] | None
    personal: list[dict[str, Any]] | None
    tuned: _Tuned | None
    rounds: list[RoundResult]
    promise: str | None
    leaves: str | None
    head_sha256: str | None
    bad_records: int
    bad_held_out: int
    diverged: bool
    normalisation: str | None
    radius: float | None
    levels: int | None
    aggregate_sha256: str | None
    ring: int | None
    vector_length: int | None
    upload_bytes_per_client: int | None
    bytes_saved_by_grid: int | None
    noise_removed: float | None
    client_seconds: float | None
    server_seconds: float | None
    seconds: dict[str, float]
    classes_left_out: list[str]
    notes: list[str]
    not_private: list[str]


@dataclass(frozen=True)
class Run:
    """One simulation of a grid of settings: its settings, and its result or the reason why it was refused.

    `settings`: the fields of SimulationSettings by name, seed included. `result` is None where the run was refused for
    the reason `refusal`. `unprotected`: why the protection that was asked for was refused, where these settings are the
    same with none instead. `name`: the short name that its method goes by, if it was given one.
    """

    settings: Mapping[str, Any]
    result: RunResult | None
    refusal: str | None = None
    unprotected: str | None = None
    name: str = ""

    def settings_without(self, *names: str) -> dict[str, Any]:
        """Return the settings except the named ones."""
        return {name: value for name, value in self.settings.items() if name not in names}

    @property
    def why_bare(self) -> str | None:
        """The reason why a run did not have the requested protection; None if it had it."""
        asked = self.unprotected is not None or self.settings["protection"] != UNPROTECTED
        if self.result is None or not asked or self.result["protection"] != UNPROTECTED:
            return None
        leaves = self.result["leaves"] or "in the clear"
        return self.unprotected or f"with {self.settings['method']}, what leaves a client is {leaves}"


Value = Callable[[RunResult], tuple[float, Interval | None] | None]
"""A function that reads a value in [0, 1], with its 95 % interval if it has one, from a result; None without value."""


def accuracy_of(result: RunResult) -> tuple[float, Interval | None] | None:
    """Return a run's accuracy and its interval; None where nothing was held out."""
    accuracy, interval = result["accuracy"], result["accuracy_interval"]
    return None if accuracy is None or interval is None else (accuracy, (interval[0], interval[1]))


def measure_of(name: str) -> Value:
    """Return a function that reads a measure of `secagg.scoring.metrics` by its name; None where a run has none."""

    def value(result: RunResult) -> tuple[float, Interval | None] | None:
        found = (result["metrics"] or {}).get(name)
        return (found["value"], (found["low"], found["high"])) if found else None

    return value


@dataclass(frozen=True)
class Group:
    """Runs that differ only in seed (or also in partition or left-out domain), with mean accuracy and 95 % interval.

    `by_seed`: the accuracy of each seed that gave one. Several seeds: Student's t interval of the mean, cut to [0, 1];
    it covers what the seeds move and the noise, not the choice of the test records. One seed: the Clopper–Pearson
    interval of its test records. None where there is neither.
    """

    runs: tuple[Run, ...]
    by_seed: Mapping[int, float]
    interval: Interval | None

    @classmethod
    def of(cls, runs: Sequence[Run], value: Value = accuracy_of, places: int = 1) -> Group:
        """Average one value of the runs' results over seeds, after averaging the values of each seed.

        A seed with fewer than `places` values (one for each partition or left-out domain) does not count.
        """
        found: dict[int, list[tuple[float, Interval | None]]] = {}
        for run in runs:
            if run.result and (one := value(run.result)) is not None:
                found.setdefault(run.settings["seed"], []).append(one)
        found = {seed: ones for seed, ones in found.items() if len(ones) >= places}
        by_seed = {seed: fmean(each for each, _ in ones) for seed, ones in found.items()}
        ones = [one for each in found.values() for one in each]
        interval = ones[0][1] if len(ones) == 1 else None
        if len(by_seed) > 1:
            interval = student_interval(list(by_seed.values()))
        within = None if interval is None else (max(0.0, float(interval[0])), min(1.0, float(interval[1])))
        return cls(tuple(runs), by_seed, within)

    @property
    def accuracy(self) -> float | None:
        """The mean accuracy over the seeds; None without any result."""
        return fmean(self.by_seed.values()) if self.by_seed else None

    @property
    def epsilon(self) -> float:
        """The ε that all these runs have."""
        return float(self.runs[0].settings["epsilon"])

    @property
    def seeds(self) -> int:
        """The number of seeds that gave a result."""
        return len(self.by_seed)

    @property
    def refused(self) -> int:
        """The number of runs without a result."""
        return sum(run.result is None for run in self.runs)

    @property
    def refusals(self) -> tuple[str, ...]:
        """The reasons for which runs were refused, each once."""
        return tuple(dict.fromkeys(run.refusal for run in self.runs if run.refusal is not None))

    @property
    def unprotected(self) -> tuple[str, ...]:
        """The distinct reasons why runs lacked the requested protection; () if the group has no accuracy."""
        return tuple(dict.fromkeys(filter(None, (run.why_bare for run in self.runs)))) if self.by_seed else ()

    @property
    def diverged(self) -> bool:
        """Whether training diverged with one seed or more."""
        return any(run.result["diverged"] for run in self.runs if run.result)

    @property
    def rounds(self) -> int | None:
        """The number of refinement rounds if `refine=auto` chose it; None if the settings fix it."""
        results = results_of(self.runs)
        return results[0]["refine"] if results and self.runs[0].settings["refine"] is None else None

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        kind = "student-t over seeds" if self.seeds > 1 else "clopper-pearson"
        return {
            "accuracy": self.accuracy,
            "interval": self.interval and list(self.interval),
            "interval_kind": self.interval and kind,
            "seeds": self.seeds,
        }


@dataclass(frozen=True)
class ResultRow:
    """A row of results: runs that share `settings`, in a group for each column of a table or each ε of a figure."""

    label: str
    settings: Mapping[str, Any]
    runs: tuple[Run, ...]
    cells: tuple[Group, ...]

    @property
    def unprotected(self) -> bool:
        """Whether any of the runs was without a secure sum."""
        return any(result["protection"] == UNPROTECTED for result in results_of(self.runs))

    def label_with_epsilon(self, several: bool) -> str:
        """Return the row's label, with its ε appended if `several` values of ε are compared."""
        return self.label + (f", ε {self.settings['epsilon']:g}" if several else "")


def student_interval(values: Sequence[float]) -> Interval:
    """Return Student's 95 % interval of the mean of n ≥ 2 values; for equal values exactly (value, value)."""
    if min(values) == max(values):
        return float(values[0]), float(values[0])
    half = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def grouped(runs: Sequence[Run], key: Callable[[Run], object]) -> list[list[Run]]:
    """Group runs by the value of `key`, keeping their order."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(repr(key(run)), []).append(run)
    return list(groups.values())


def summarise(runs: Sequence[Run], *, refused: bool = False) -> tuple[ResultRow, ...]:
    """Return a row for each series (runs that differ in ε and seed alone), with a group of runs for each ε, ascending.

    With `refused` also series and ε of which every run was refused.
    """
    series = grouped(runs, lambda run: run.settings_without("epsilon", "seed"))
    kept = [group for group in series if refused or results_of(group)]
    shared = [group[0].settings_without("epsilon", "seed") for group in kept]
    rows = []
    for settings, group in zip(shared, kept, strict=True):
        peers = [peer for peer in shared if peer["method"] == settings["method"]]
        label = described(settings, varying(peers), group[0].name)
        by_epsilon = grouped(group, lambda run: float(run.settings["epsilon"]))
        cells = sorted((Group.of(each) for each in by_epsilon if refused or results_of(each)), key=lambda g: g.epsilon)
        rows.append(ResultRow(label, settings, tuple(group), tuple(cells)))
    return tuple(rows)


def rounds_under_noise(series: Sequence[ResultRow]) -> tuple[int, ...]:
    """Return the numbers of refinement rounds of noisy runs, in series whose runs without noise had no such rounds."""
    found = set()
    for each in series:
        if any(cell.rounds == 0 for cell in each.cells if math.isinf(cell.epsilon)):
            found |= {cell.rounds for cell in each.cells if cell.rounds}
    return tuple(sorted(found))


def results_of(runs: Sequence[Run]) -> list[RunResult]:
    """Return the results of the runs that were not refused."""
    return [run.result for run in runs if run.result]


def listed(runs: Sequence[Run], name: Literal["notes", "not_private"]) -> list[str]:
    """Return the distinct entries in the list `name` (such as the notes) of all runs' results, in order."""
    return list(dict.fromkeys(text for result in results_of(runs) for text in result[name]))


def has_known_noise(runs: Sequence[Run]) -> bool:
    """Return whether any run's noise can be removed by those who know its seed."""
    return any(result["reproducible_noise"] for result in results_of(runs))


def is_baseline(result: RunResult) -> bool:
    """Return whether a result is that of a baseline, which makes no secure sum."""
    return result["aggregate_sha256"] is None


def varying(settings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names whose values differ among several settings."""
    first = settings[0] if settings else {}
    return tuple(name for name in first if any(other[name] != first[name] for other in settings))


def method_label(method: str, parameters: str, name: str = "") -> str:
    """Return a method's short name, or METHOD[PARAMETERS] where it has none."""
    return name or method + (f"[{parameters}]" if parameters else "")


def described(settings: Mapping[str, Any], names: Sequence[str], name: str = "") -> str:
    """Return the method, or its short `name`, and the settings of these `names` as text, for a legend or a message."""
    unsaid = {"refine": "auto"}
    values = {name: unsaid.get(name, "default") if settings[name] is None else settings[name] for name in names}
    values.pop("method", None)
    method = method_label(settings["method"], values.pop("parameters", ""), name)
    return ", ".join([method, *(f"{name.replace('_', ' ')} {value}" for name, value in values.items())])
