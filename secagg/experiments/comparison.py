"""What the runs of a comparison say together: a row per method, a column per partition, and what it cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from secagg.experiments.comparison_rows import ROW, Column, Entry, Place, Row, place_of, row_of
from secagg.experiments.measures import measures_table
from secagg.experiments.paired import paired_table, pairs_of
from secagg.experiments.summary import Run, not_private
from secagg.experiments.tables import (
    DASH,
    DIVERGED,
    Marks,
    Table,
    Tabled,
    caption,
    footnotes,
    pipeline_notes,
    shown_accuracy,
)
from secagg.protection import UNPROTECTED
from secagg.wire import plain

COSTS = ("bytes per client", "client CPU s", "server s", "ε", "protection")


@dataclass(frozen=True)
class Comparison(Tabled):
    """Every run of a comparison under the protection `asked`, in the order of its methods.

    `inapplicable`: settings of secure sums that were asked for, and that its baselines do without. `notes`: its own and
    those of the runs, each once.
    """

    dataset: str
    asked: str
    runs: tuple[Run, ...]
    inapplicable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """One per partition or left-out domain, then the means over the domains."""
        places: list[Place] = list(dict.fromkeys(map(place_of, self.runs)))
        partitions = list(dict.fromkeys(partition for partition, _ in places))
        columns = []
        for partition in partitions:
            own = tuple(place for place in places if place[0] == partition)
            suffix = f", {partition}" if len(partitions) > 1 else ""
            columns += [
                Column(f"{_value(left)}{suffix}" if left else partition, ((partition, left),)) for _, left in own
            ]
            if len(own) > 1:
                columns.append(Column(f"mean{suffix}", own))
            if any(left for _, left in own):
                columns.append(Column(f"in domain{suffix}", own, "in_domain"))
        if len(places) == 1 and places[0][1] is None:
            columns += self._of_domains(places[0])
        return tuple(columns)

    @property
    def domains(self) -> tuple[int, ...]:
        """The columns that are one domain each, left out or not."""
        chosen = [number for number, column in enumerate(self.columns) if column.domain is not None]
        alone = [
            number
            for number, column in enumerate(self.columns)
            if len(column.places) == 1 and column.places[0][1] is not None and column.shows == "accuracy"
        ]
        return tuple(chosen or alone)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The methods, in order; those of which every run was refused have no accuracy."""
        expansions = {run.settings["expand"] for run in self.runs}
        return tuple(row_of(group, self.columns, len(expansions) > 1) for group in self._by_row)

    @property
    def _by_row(self) -> tuple[list[Run], ...]:
        """The runs of each row."""
        groups: dict[tuple[Any, ...], list[Run]] = {}
        for run in self.runs:
            groups.setdefault(tuple(run.settings[name] for name in ROW), []).append(run)
        return tuple(groups.values())

    @cached_property
    def table(self) -> Table:
        """A row per method, a column per partition, then the costs and the protection; marks refer to the notes."""
        marks = Marks()
        rows = tuple(_cells(row, marks) for row in self.rows)
        counts = {entry.seeds for row in self.rows for entry in row.entries if entry.seeds}
        text = caption(self.dataset, self.runs, counts)
        if any(left for column in self.columns for _, left in column.places):
            text += " No client had a record of the column's domain, which is tested on; in domain: the other domains."
        if self.asked == UNPROTECTED:
            text += " Under protection none the server sees what every client sends."
        header = ("method", *(column.label for column in self.columns), *COSTS)
        return Table(
            text, header, rows, (*marks.notes, *self._without(), *pipeline_notes(self.runs), *footnotes(self.runs))
        )

    @property
    def tables(self) -> tuple[Table, ...]:
        """That of accuracies; below it, where there are any, paired differences and further measures."""
        whole = {column.places[0]: column.label for column in reversed(self.columns) if len(column.places) == 1}
        several = len({row.settings["epsilon"] for row in self.rows}) > 1
        groups = [
            (
                row.named(several),
                whole[place],
                [run for run in runs if place_of(run) == place],
            )
            for row, runs in zip(self.rows, self._by_row, strict=True)
            for place in dict.fromkeys(map(place_of, runs))
        ]
        further = measures_table(self.dataset, "partition", groups, pipeline_notes(self.runs))
        paired = paired_table(self.rows, [column.label for column in self.columns])
        return tuple(table for table in (self.table, paired, further) if table is not None)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file, version 1."""
        return {
            "version": 1,
            "dataset": self.dataset,
            "protection": self.asked,
            "columns": [
                {
                    "label": each.label,
                    "places": [list(place) for place in each.places],
                    "shows": each.domain or each.shows,
                }
                for each in self.columns
            ],
            "rows": [
                {
                    "label": row.label,
                    "settings": plain(row.settings),
                    "entries": [_plain_entry(entry) for entry in row.entries],
                    "bytes_per_client": row.bytes_per_client,
                    "client_seconds": row.client_seconds,
                    "server_seconds": row.server_seconds,
                    "protections": list(row.protections),
                    "promises": list(row.promises),
                }
                for row in self.rows
            ],
            "paired": [pair.to_json() for pair in pairs_of(self.rows)],
            "notes": [*self.table.notes, *self.notes],
            "not_private": list(not_private(self.runs)),
            "runs": [
                {
                    "settings": plain(run.settings),
                    "result": run.result,
                    "refused": run.refusal,
                    "unprotected_because": run.unprotected,
                }
                for run in self.runs
            ],
        }

    def _without(self) -> tuple[str, ...]:
        if not self.inapplicable:
            return ()
        names = ", ".join(name.replace("_", " ") for name in self.inapplicable)
        return (f"Baselines make no secure sum and ran without {names}.",)

    def _of_domains(self, place: Place) -> list[Column]:
        """The columns of the domains that the clients have, where the data tell them apart, and their mean."""
        found = [run.result["by_domain"] for run in self.runs if run.result and run.result["by_domain"]]
        names = dict.fromkeys(name for each in found for name in each["domains"])
        columns = [Column(name, (place,), "accuracy", name) for name in names]
        return [*columns, Column("mean of domains", (place,), "in_domain")] if columns else []


def _value(left_out: str) -> str:
    return left_out.partition("=")[2]


def _cells(row: Row, marks: Marks) -> tuple[str, ...]:
    """The texts of one row."""
    finite = math.isfinite(row.settings["epsilon"])
    bare = {why for entry in row.entries for why in _told(entry, finite)}
    shown = [_show(entry, marks, finite) for entry in row.entries]
    ran = [name + (marks.of(*sorted(bare)) if name == UNPROTECTED and bare else "") for name in row.protections]
    promised = [promise for promise in row.promises if promise != "none"]
    blind = marks.of(OPENED_ONLY) if promised and UNPROTECTED in row.protections else ""
    sent = f"{row.bytes_per_client:,}" if row.bytes_per_client is not None else DASH
    costs = (sent, _seconds(row.client_seconds), _seconds(row.server_seconds), ", ".join(row.promises) or DASH)
    return row.label, *shown, *costs[:3], costs[3] + blind, ", ".join(ran) or DASH


OPENED_ONLY = "ε bounds what is released, not what the server sees: it sees what every client sends."


def _told(entry: Entry, finite: bool) -> list[str]:
    """Why there was no secure sum; a finite ε is a protection too."""
    reasons = [why.partition("; give --protection none")[0] for why in entry.unprotected]  # the remedy is what was done
    return [f"Ran without {'a secure sum' if finite else 'protection'}: {reason}." for reason in reasons]


def _show(entry: Entry, marks: Marks, finite: bool) -> str:
    refused = (f"Refused: {reason}." for reason in entry.refusals)
    told = marks.of(*_told(entry, finite), *refused, *([DIVERGED] if entry.diverged else []))
    if entry.accuracy is None:
        return DASH + told
    return shown_accuracy(entry.accuracy, entry.interval, entry.seeds, len(entry.refusals)) + told


def _seconds(value: float | None) -> str:
    return DASH if value is None else f"{value:.3g}" if value < 1 else f"{value:.1f}"


def _plain_entry(entry: Entry) -> dict[str, Any]:
    return {
        "accuracy": entry.accuracy,
        "interval": list(entry.interval) if entry.interval is not None else None,
        "interval_kind": _kind(entry),
        "seeds": entry.seeds,
        "refused": list(entry.refusals),
        "unprotected_because": list(entry.unprotected),
    }


def _kind(entry: Entry) -> str | None:
    if entry.interval is None:
        return None
    return "student-t over seeds" if entry.seeds > 1 else "clopper-pearson"
