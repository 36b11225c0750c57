"""`compare`: simulate methods side by side over partitions and seeds, under the chosen protection where possible.

Its tables have a row per method, a column per partition, the costs, and paired differences. A method that cannot run
under the protection runs without, and every number of such a run is marked. Runs are kept and not repeated, as by
`sweep`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from secagg.data import Dataset
from secagg.data.partition import one_by_one
from secagg.errors import BadInput
from secagg.experiments.baselines import FEDERATED, is_baseline
from secagg.experiments.figures import plot_groups
from secagg.experiments.input_data import values_of
from secagg.experiments.results import (
    Group,
    Interval,
    ResultRow,
    Run,
    RunResult,
    Value,
    accuracy_of,
    grouped,
    listed,
    measure_of,
    method_label,
    results_of,
    student_interval,
)
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.sweep import (
    AXES,
    LEAVE_OUT,
    Contender,
    Execution,
    Ran,
    combinations,
    distinct,
    given_grid,
    runs_of,
)
from secagg.experiments.tables import (
    DASH,
    SHOWN,
    SUPERSCRIPTS,
    Marks,
    Results,
    ResultTable,
    beside_accuracy,
    caption,
    footnotes,
    format_cell,
    measures_table,
    pipeline_notes,
)
from secagg.heads.artifact import clopper_pearson
from secagg.protection import UNPROTECTED, USUAL
from secagg.wire import plain, plain_fields

LISTED = ("partition", "epsilon", "expand", LEAVE_OUT)
"""The settings that may have several values in a comparison, besides the methods."""
SINGLE = tuple(name for name in AXES if name not in ("method", "parameters", *LISTED))
OF_SUMS = {name: getattr(SimulationSettings(), name) for name in FEDERATED}
"""Default values of the settings that a baseline refuses, with which it therefore runs."""


def compare(
    features: Any,
    labels: Any = None,
    *,
    method: str | Sequence[str],
    out: Path | str,
    seeds: int = 3,
    test_features: Any = None,
    test_labels: Any = None,
    classes: Sequence[str] | None = None,
    **settings: Any,
) -> Comparison:
    """Simulate methods side by side with the seeds 0…seeds−1, and write the results into `out`.

    `method`: names with their parameters, as in ["fedcgs", "slow=fedavg[rounds=50 rate=0.1]"], where slow is its short
    name in tables and figures. Data, settings and further
    arguments are those of `sweep`; only those in `LISTED` may be lists. A run that is refused is tried again with the
    protection `none`; its `unprotected` then says why. Raises BadInput for a comparison that cannot be.

    >>> compare(x, y, method=["fedcgs", "centralised"], test_features=xt, test_labels=yt, out="out")  # doctest: +SKIP
    """
    dataset, grid, how = given_grid(features, (labels, test_features, test_labels, classes), settings)
    contenders = [Contender.read(each) for each in values_of(method)]
    return compare_dataset(dataset, contenders, grid, seeds, out, **how)


def compare_dataset(
    dataset: Dataset,
    contenders: Sequence[Contender],
    grid: Mapping[str, Sequence[Any]],
    seeds: int,
    out: Path | str,
    **how: Any,
) -> Comparison:
    """Compare as `compare` does; `grid` has the values of each setting, `how` the arguments of `Execution.of`."""
    execution = Execution.of(out, **how)
    settings = execution.choose(_ask(dataset, contenders, grid, seeds))
    asked = runs_of(dataset, settings, execution, contenders)
    refused = [run for run in asked.runs if run.result is None and run.settings["protection"] != UNPROTECTED]
    open_ones = [{**run.settings, "protection": UNPROTECTED} for run in refused]
    done, progress = len(asked.runs), execution.progress
    report = None if progress is None else lambda more, total: progress(done + more, done + total)
    bare = runs_of(dataset, open_ones, replace(execution, progress=report), contenders) if refused else Ran((), 0, 0)
    instead = {id(run): replace(other, unprotected=run.refusal) for run, other in zip(refused, bare.runs, strict=True)}
    runs = tuple(instead.get(id(run), run) for run in asked.runs)
    ran = Ran(runs, asked.kept + bare.kept, asked.again + bare.again)
    name, protection = dataset.name, str(grid.get("protection", (USUAL,))[0])
    baselines = any(is_baseline(contender.method) for contender in contenders)
    idle = [each for each, default in OF_SUMS.items() if tuple(grid.get(each, (default,))) != (default,)]
    without = tuple(idle) if baselines else ()
    comparison = Comparison(name, protection, runs, without, ran.notes, asked.provenance)
    if results_of(runs) and execution.shard is None:  # refusals alone must not replace what was written before
        comparison.write(execution.out)
    return comparison


def _ask(
    dataset: Dataset, contenders: Sequence[Contender], grid: Mapping[str, Sequence[Any]], seeds: int
) -> list[dict[str, Any]]:
    if not contenders:
        raise BadInput("there is no method to compare")
    for name, values in grid.items():
        if name not in (*LISTED, *SINGLE):
            raise BadInput(f"a comparison has no {name}", remedy=f"choose among {', '.join((*LISTED, *SINGLE))}")
        if name in SINGLE and len(values) != 1:
            raise BadInput(f"a comparison takes one {name}", remedy=f"several values go with {', '.join(LISTED)}")
    spelled = {**grid, LEAVE_OUT: one_by_one(dataset, grid.get(LEAVE_OUT, (None,)))}
    conditions = combinations(spelled, seeds)
    asked = []
    for contender in distinct(contenders):
        given = {"method": contender.method, "parameters": contender.parameters}
        own = {**(OF_SUMS if is_baseline(contender.method) else {}), **given}
        asked += [{**condition, **own} for condition in conditions]
    return asked


ROW = ("method", "parameters", "epsilon", "expand")
COSTS = ("bytes per client", "client CPU s", "server s", "ε", "protection")
OPENED_ONLY = "ε bounds what is released, not what the server sees: it sees what every client sends."
CAPTION = (
    "Accuracy less that of the method in the second column, in percentage points, paired by seed: mean over the seeds "
    "that both have ± half the width of its 95 % Student-t interval (no ±: the same for every seed). It covers what "
    "the seeds move alone, not the choice of the test records, and each interval stands for itself."
)
DIGITS = 12
"""Decimals to which differences of accuracies are rounded: below are rounding errors of float64."""
UNSURE = f"{SUPERSCRIPTS[1]} Not surely different: the interval holds 0."
Place = tuple[str, str | None]
"""Where a run was tested: its partition, and the domain (COLUMN=VALUE) left out of training, if any."""


@dataclass(frozen=True)
class Column:
    """A comparison's column: accuracy on all or some domains' records, averaged over partitions or left-out domains."""

    label: str
    places: tuple[Place, ...]
    shows: str = "accuracy"
    domain: str | None = None

    def value(self, result: RunResult) -> tuple[float, Interval | None] | None:
        """Return the column's accuracy in a run's result, with its interval if it has one; None if the run lacks it."""
        found = result["by_domain"]
        if self.domain is not None:
            own = found["domains"].get(self.domain) if found else None
            return own and (own["accuracy"], clopper_pearson(own["correct"], own["total"]))
        if self.shows == "accuracy":
            return accuracy_of(result)
        return (found["in_domain"], None) if found and found["in_domain"] is not None else None

    def group(self, runs: Sequence[Run]) -> Group:
        """Return the mean accuracy over seeds, with its interval, of the runs that belong to this column."""
        return self._mean(runs, self.value)

    def measure(self, runs: Sequence[Run], name: str) -> str:
        """Return a measure's mean as text; a dash for domains, of which accuracy alone is known."""
        is_known = self.shows == "accuracy" and self.domain is None
        return format_cell(self._mean(runs, measure_of(name))) if is_known else DASH

    def _mean(self, runs: Sequence[Run], value: Value) -> Group:
        return Group.of([run for run in runs if place_of(run) in self.places], value, len(self.places))


@dataclass(frozen=True)
class _MethodRow(ResultRow):
    """The row of a method with its parameters, at one ε and expansion: accuracies and costs.

    `bytes_per_client`: the most in any run. `client_seconds` and `server_seconds`: the means over the runs.
    `protections`: those that ran. `promises`: ε, δ, adjacency and unit of what was released.
    """

    bytes_per_client: int | None
    client_seconds: float | None
    server_seconds: float | None
    protections: tuple[str, ...]
    promises: tuple[str, ...]

    @classmethod
    def of(cls, label: str, settings: Mapping[str, Any], runs: Sequence[Run], columns: Sequence[Column]) -> _MethodRow:
        """Summarise a method's runs by column."""
        results = results_of(runs)
        sent = [result["upload_bytes_per_client"] for result in results]
        most = max((each for each in sent if each is not None), default=None)
        at_client, at_server = (_mean([each[who] for each in results]) for who in ("client_seconds", "server_seconds"))
        ran = tuple(dict.fromkeys(result["protection"] for result in results))
        cells = tuple(column.group(runs) for column in columns)
        promises = tuple(dict.fromkeys(map(_promise, results)))
        return cls(label, settings, tuple(runs), cells, most, at_client, at_server, ran, promises)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        content = plain_fields(self, without=("runs", "cells"))
        reasons = [{"refused": plain(c.refusals), "unprotected_because": plain(c.unprotected)} for c in self.cells]
        cells = [cell.to_json() | why for cell, why in zip(self.cells, reasons, strict=True)]
        return {"label": content.pop("label"), "settings": content.pop("settings"), "entries": cells, **content}

    def texts(self, marks: Marks) -> tuple[str, ...]:
        """Return the texts of the table's row."""
        finite = math.isfinite(self.settings["epsilon"])
        bare = sorted({why for cell in self.cells for why in _why_bare(cell, finite)})
        cells = [format_cell(cell) + marks.of_cell(cell, *_why_bare(cell, finite)) for cell in self.cells]
        ran = [name + (marks.of(*bare) if name == UNPROTECTED and bare else "") for name in self.protections]
        is_noisy = any(promise != "none" for promise in self.promises)
        opened_only = marks.of(OPENED_ONLY) if is_noisy and UNPROTECTED in self.protections else ""
        sent = f"{self.bytes_per_client:,}" if self.bytes_per_client is not None else DASH
        costs = (sent, _seconds(self.client_seconds), _seconds(self.server_seconds))
        promised = (", ".join(self.promises) or DASH) + opened_only
        return self.label, *cells, *costs, promised, ", ".join(ran) or DASH


@dataclass(frozen=True)
class Comparison(Results):
    """All runs of a comparison in the order of its methods; `asked` is the protection that was requested.

    `inapplicable`: settings of secure sums that were asked for, and that its baselines do without. `notes`: its own and
    those of the runs, each once.
    """

    dataset: str
    asked: str
    runs: tuple[Run, ...]
    inapplicable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """A column for each partition or left-out domain, then columns of means over the domains."""
        places: list[Place] = list(dict.fromkeys(map(place_of, self.runs)))
        partitions = list(dict.fromkeys(partition for partition, _ in places))
        columns = []
        for partition in partitions:
            own = tuple(place for place in places if place[0] == partition)
            suffix = f", {partition}" if len(partitions) > 1 else ""
            labels = [f"{left.partition('=')[2]}{suffix}" if left else partition for _, left in own]
            columns += [Column(label, (place,)) for label, place in zip(labels, own, strict=True)]
            if len(own) > 1:
                columns.append(Column(f"mean{suffix}", own))
            if any(left for _, left in own):
                columns.append(Column(f"in domain{suffix}", own, "in_domain"))
        if len(places) == 1 and places[0][1] is None:
            measured = [result["by_domain"]["domains"] for result in results_of(self.runs) if result["by_domain"]]
            if domains := dict.fromkeys(name for each in measured for name in each):
                columns += [Column(name, (places[0],), "accuracy", name) for name in domains]
                columns.append(Column("mean of domains", (places[0],), "in_domain"))
        return tuple(columns)

    @cached_property
    def rows(self) -> tuple[_MethodRow, ...]:
        """A row for each method, ε and feature expansion; a row whose runs were all refused has no accuracy."""
        several = len({run.settings["expand"] for run in self.runs}) > 1
        rows = []
        for runs in grouped(self.runs, lambda run: tuple(run.settings[name] for name in ROW)):
            settings = {name: runs[0].settings[name] for name in ROW}
            label = method_label(settings["method"], settings["parameters"], runs[0].name)
            label += f", expand {settings['expand']}" if several else ""
            rows.append(_MethodRow.of(label, settings, runs, self.columns))
        return tuple(rows)

    @cached_property
    def table(self) -> ResultTable:
        """The main table: a row per method, a column per partition, then costs and protection; marks point to notes."""
        marks = Marks()
        rows: list[tuple[str, ...]] = []
        for row in self.rows:
            rows.append(row.texts(marks))
            for name in beside_accuracy(self.runs):
                cells = (column.measure(row.runs, name) for column in self.columns)
                rows.append((f"{row.label}, {SHOWN[name]}", *cells, *[""] * len(COSTS)))
        text = caption(self.dataset, self.runs, self.rows)
        if any(left for column in self.columns for _, left in column.places):
            text += " No client had a record of the column's domain, which is tested on; in domain: the other domains."
        if self.asked == UNPROTECTED:
            text += " Under protection none the server sees what every client sends."
        names = ", ".join(name.replace("_", " ") for name in self.inapplicable)
        without = [f"Baselines make no secure sum and ran without {names}."] if names else []
        header = ("method", *(column.label for column in self.columns), *COSTS)
        notes = (*marks.notes, *without, *pipeline_notes(self.runs), *footnotes(self.runs))
        return ResultTable(text, header, tuple(rows), notes)

    @property
    def tables(self) -> tuple[ResultTable, ...]:
        labels = {column.places[0]: column.label for column in reversed(self.columns) if len(column.places) == 1}
        several = len({row.settings["epsilon"] for row in self.rows}) > 1
        placed = [(row, own) for row in self.rows for own in grouped(row.runs, place_of)]
        groups = [(row.label_with_epsilon(several), labels[place_of(own[0])], own) for row, own in placed]
        further = measures_table(self.dataset, "partition", groups, pipeline_notes(self.runs))
        paired = paired_table(self.rows, [column.label for column in self.columns])
        return tuple(table for table in (self.table, paired, further) if table is not None)

    def plot(self, paths: Sequence[Path]) -> None:
        single = [len(column.places) == 1 and column.shows == "accuracy" for column in self.columns]
        drawn = {number: column.label for number, column in enumerate(self.columns) if single[number]}
        plot_groups(self.rows, drawn, paths, pipeline_notes(self.runs))

    def to_json(self) -> dict[str, Any]:
        columns = [{"label": c.label, "places": plain(c.places), "shows": c.domain or c.shows} for c in self.columns]
        return {
            "version": 1,
            "dataset": self.dataset,
            "protection": self.asked,
            "columns": columns,
            "rows": plain(self.rows),
            "paired": plain(pairs_of(self.rows)),
            "notes": [*self.table.notes, *self.notes],
            "not_private": listed(self.runs, "not_private"),
            "inapplicable": list(self.inapplicable),
            **self.runs_to_json(),
        }


@dataclass(frozen=True)
class Difference:
    """The mean difference of two methods' accuracies, in [−1, 1], over `seeds` ≥ 2, with 95 % Student-t `interval`."""

    mean: float
    interval: Interval
    seeds: int

    @classmethod
    def of(cls, one: Group, other: Group) -> Difference | None:
        """Return the difference `one` − `other` over the seeds that both have; None for fewer than two such seeds."""
        common = [seed for seed in one.by_seed if seed in other.by_seed]
        found = [round(one.by_seed[seed] - other.by_seed[seed], DIGITS) for seed in common]
        return cls(fmean(found), student_interval(found), len(found)) if len(found) > 1 else None

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes 0."""
        return not self.interval[0] <= 0 <= self.interval[1]

    def __str__(self) -> str:
        """Return the difference in percentage points, marked where its interval holds 0."""
        half = 50 * (self.interval[1] - self.interval[0])
        text = f"{100 * self.mean:+.2f}" + (f" ± {half:.2f}" if half else "")
        return text.replace("-", "−") + ("" if self.is_sure else SUPERSCRIPTS[1])

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return plain_fields(self, "is_sure", difference="mean", surely_different="is_sure")


@dataclass(frozen=True)
class Pair:
    """The accuracy differences `row` − `first` of two rows, by column; None where these rows share too few seeds."""

    row: ResultRow
    first: ResultRow
    differences: tuple[Difference | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        settings, minus = plain(self.row.settings), plain(self.first.settings)
        return {"label": self.row.label, "settings": settings, "minus": minus, "entries": plain(self.differences)}


def place_of(run: Run) -> Place:
    """Return a run's partition and left-out domain, which decide its column in the table."""
    return run.settings["partition"], run.settings["leave_out"]


def pairs_of(rows: Sequence[ResultRow]) -> tuple[Pair, ...]:
    """Pair each row with the first row of the same ε and feature expansion, if they share two seeds or more."""
    first: dict[tuple[Any, ...], ResultRow] = {}
    pairs = []
    for row in rows:
        if all(cell.accuracy is None for cell in row.cells):
            continue
        other = first.setdefault((row.settings["epsilon"], row.settings["expand"]), row)
        if other is not row:
            pairs.append(Pair(row, other, tuple(map(Difference.of, row.cells, other.cells))))
    return tuple(pair for pair in pairs if any(pair.differences))


def paired_table(rows: Sequence[ResultRow], columns: Sequence[str]) -> ResultTable | None:
    """Return a table of accuracy differences of paired rows, under the headings `columns`; None without any pair."""
    pairs = pairs_of(rows)
    if not pairs:
        return None
    several = len({row.settings["epsilon"] for row in rows}) > 1
    cells = tuple(
        (pair.row.label_with_epsilon(several), pair.first.label, *(str(each or DASH) for each in pair.differences))
        for pair in pairs
    )
    sure = all(each is None or each.is_sure for pair in pairs for each in pair.differences)
    return ResultTable(CAPTION, ("method", "less", *columns), cells, () if sure else (UNSURE,), "paired")


def _why_bare(cell: Group, finite: bool) -> list[str]:
    """Return notes that say why runs made no secure sum; with a finite ε they still had noise as a protection."""
    reasons = [why.partition("; give --protection none")[0] for why in cell.unprotected]  # the remedy is what was done
    return [f"Ran without {'a secure sum' if finite else 'protection'}: {reason}." for reason in reasons]


def _promise(result: RunResult) -> str:
    if result["epsilon"] == "inf":
        return "none"
    delta = f"{result['delta']:g}".replace("e-0", "e-")
    known = f"; {result['reproducible_noise']}" if result["reproducible_noise"] else ""
    return f"{result['epsilon']:g} (δ {delta}, {result['adjacency']}, {result['unit']}{known})"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _seconds(value: float | None) -> str:
    return DASH if value is None else f"{value:.3g}" if value < 1 else f"{value:.1f}"
