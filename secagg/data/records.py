"""Labelled records with the file and row of each, data sets made of them, and the rules for bad records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.schema import Schema
from secagg.encoding.grid import Origin
from secagg.errors import BadInput
from secagg.system.reading import data_limit, refuse_larger

Kind = Literal["features", "images", "table", "triplets"]

BAD = -1
"""Label of a bad record, which contributes zeros."""
UNLABELLED = -2
"""Label of a record of unknown class; only records to be predicted may have it."""
DOMAIN = "domain"
"""Name of the column that holds each record's domain."""


@dataclass(frozen=True, eq=False)
class Records:
    """Labelled records: n inputs with their labels, further columns, and the file and row that each came from.

    `inputs` (n, …): images uint8 or float in [0, 1]; tables float64 in [-1, 1]; features float64; triplets uint8, a
    picture and a text in one row (`secagg.data.triplets`). `labels` (n,) int64 in [0, C), or -1: a bad record, to be
    left out; its inputs are all zero. Only sources opened as tolerant have bad records. `columns`: raw values by column
    name, for `column:NAME` partitions.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.str_]]
    origin: Origin

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def bad(self) -> int:
        """The number of bad records; it depends on private data, so only the owner of the data may see it."""
        return int(np.count_nonzero(self.labels == BAD))

    def discard(self, bad: NDArray[np.bool_]) -> Records:
        """Return a copy in which the records where `bad` (n,) is true are marked bad, by label -1 and zero inputs."""
        if not bad.any():
            return self
        inputs, labels = self.inputs.copy(), self.labels.copy()
        inputs[bad], labels[bad] = 0, BAD
        return replace(self, inputs=inputs, labels=labels)

    def take(self, indices: NDArray[np.int64]) -> Records:
        """Return the records at `indices`, in that order."""
        columns = {name: values[indices] for name, values in self.columns.items()}
        return Records(self.inputs[indices], self.labels[indices], columns, self.origin.take(indices))


@dataclass(frozen=True, eq=False)
class Dataset:
    """The training and test records of one source.

    `bound` is a public L2 bound of one input after scaling (images: √d; tables: √columns, as every
    column's entries have norm ≤ 1), None for features. `parts` holds, for a folder of tables, each
    file's name and the indices of its training records. `is_named`: `classes` are the source's own
    words, not numbers in their place. `notes`: what whoever opened it should know of it, one sentence each.
    """

    name: str
    kind: Kind
    train: Records
    test: Records | None
    classes: tuple[str, ...]
    schema: Schema | None = None
    bound: float | None = None
    parts: tuple[tuple[str, NDArray[np.int64]], ...] | None = None
    is_named: bool = True
    notes: tuple[str, ...] = ()

    def under(self, classes: Sequence[str]) -> Dataset:
        """Return the data set with its labels renumbered as indices into a plan's `classes`, matched by class name.

        Labels of a source without names count in them already. Raises BadInput, whatever the records are, when the
        source names a class that is none of these.
        """
        if not self.is_named:
            return replace(self, classes=tuple(classes))
        if unknown := [name for name in self.classes if name not in classes]:
            problem = f"{self.name} names the classes {', '.join(unknown[:8])}, which are none of the plan's"
            remedy = f"name them as the plan does: {', '.join(classes[:8])}{', …' if len(classes) > 8 else ''}"
            raise BadInput(problem, remedy=remedy)
        own = map(list(classes).index, self.classes)
        places = np.array([*own, UNLABELLED, BAD], dtype=np.int64)  # −2 and −1 are the last
        train = replace(self.train, labels=places[self.train.labels])
        test = replace(self.test, labels=places[self.test.labels]) if self.test is not None else None
        return replace(self, train=train, test=test, classes=tuple(classes))


def columns_of(columns: Iterable[str]) -> str:
    """Return a text that lists a data set's columns, for the message that refuses an unknown column."""
    names = ", ".join(sorted(columns))
    return f"it has {names}" if names else "it has none: tables bring columns, and so do further arrays of an .npz"


def parts_without(dataset: Dataset, left: NDArray[np.bool_]) -> tuple[tuple[str, NDArray[np.int64]], ...] | None:
    """Return each file's record indices, counted without the records where `left` (n,) is true; None if no files."""
    if dataset.parts is None:
        return None
    place = np.cumsum(~left) - 1
    return tuple((name, place[rows[~left[rows]]].astype(np.int64)) for name, rows in dataset.parts)


def concatenate(groups: Sequence[Records]) -> Records:
    """Join groups of records in order, keeping the columns that every group has."""
    shared = [name for name in groups[0].columns if all(name in group.columns for group in groups)]
    starts = np.cumsum([0, *(len(group.origin.files) for group in groups)])
    origin = Origin(
        tuple(file for group in groups for file in group.origin.files),
        np.concatenate([group.origin.file + start for group, start in zip(groups, starts[:-1], strict=True)]),
        np.concatenate([group.origin.row for group in groups]),
    )
    return Records(
        np.concatenate([group.inputs for group in groups]),
        np.concatenate([group.labels for group in groups]),
        {name: np.concatenate([group.columns[name] for group in groups]) for name in shared},
        origin,
    )


MAX_CELL = 1000
"""Most characters of a table's field."""
CELL_BYTES = 64
"""About how many bytes a short field of a table takes as a Python value."""
SHORTEST_LIMIT = 16
"""Characters that a table's field may always have, whatever the limit on memory."""


@dataclass(frozen=True)
class Tolerance:
    """A rule that bad records are marked, not refused; `most` is the plan's limit of records (None: without a plan).

    With `most` every limit is on one record, and what the whole source may take is decided by `most` and by a record's
    size, which are public: no record can cross a limit for the others.
    """

    most: int | None = None

    def refuse_larger(self, what: object, count: int, each: int) -> None:
        """Raise BadInput if `count` records of `each` bytes, or the plan's limit of them, would exceed `data_limit`."""
        self.refuse_more(what, count)
        refuse_larger(what if self.most is None else f"{what}: {self.most} records", each * (self.most or count))

    def refuse_more(self, what: object, count: int) -> None:
        """Raise BadInput if `count` is more records than the plan allows."""
        if self.most is not None and count > self.most:
            remedy = "have a plan made with a larger max_records"
            raise BadInput(f"{what} holds more than {self.most} records, the most that the plan allows", remedy=remedy)

    def longest_cell(self, what: object, width: int) -> int:
        """Return the maximum number of characters in a field, for records of `width` fields.

        Raises BadInput where these would be too few.
        """
        if self.most is None:
            return MAX_CELL
        self.refuse_larger(what, 0, width * (CELL_BYTES + 4 * SHORTEST_LIMIT))
        return min(MAX_CELL, (data_limit() // (self.most * width) - CELL_BYTES) // 4)


def bounded(tolerance: Tolerance | None) -> Tolerance | None:
    """Return `tolerance` if it has a plan's limit on the number of records, else None."""
    return None if tolerance is None or tolerance.most is None else tolerance


class Faults:
    """The faults found in the n records of one source; the first is raised or, with `tolerant`, all are marked.

    `bad` (n,) bool: the marked records. Every fault is a rule on one record, so that under `tolerant`
    neither the other records nor an exception can tell whether a record is bad.
    """

    def __init__(self, origin: Origin, *, tolerant: bool) -> None:
        self.tolerant = tolerant
        self.origin = origin
        self.bad = np.zeros(len(origin.row), dtype=np.bool_)

    def add(self, bad: NDArray[np.bool_], problem: str, remedy: str) -> None:
        """Mark the records where `bad` (n,) is true; without `tolerant`, raise BadRecord for the first of them.

        `problem` says what is wrong without the record's values: errors end up in logs and in tickets.
        """
        if self.tolerant:
            self.bad |= bad
        elif bad.any():
            raise self.origin.refusal(int(np.argmax(bad)), problem, remedy)
