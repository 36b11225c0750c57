"""Labelled records with their origins, the data set they make, and the rules for bad records."""

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
"""Label of a record that contributes zero."""

UNLABELLED = -2
"""Label of a record whose class nobody has said: only what is to be predicted may have it."""


DOMAIN = "domain"
"""The column that says which domain a record is of."""


@dataclass(frozen=True, eq=False)
class Records:
    """n labelled records.

    `inputs` (n, …): images uint8 or float in [0, 1]; tables float64 in [-1, 1]; features float64; triplets uint8, a
    picture and a text in one row (`secagg.data.triplets`).
    `labels` (n,) int64 in [0, C), or -1: a bad record, to be left out; its inputs are all zero. Only
    sources opened as tolerant have bad records. `columns`: raw values by column name, for `column:NAME`
    partitions.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.str_]]
    origin: Origin

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def bad(self) -> int:
        """The number of bad records, for the operator of this data set only, as it depends on them."""
        return int(np.count_nonzero(self.labels == BAD))

    def discard(self, bad: NDArray[np.bool_]) -> Records:
        """Return the same records in place, those where `bad` (n,) holds with label -1 and zero inputs."""
        if not bad.any():
            return self
        inputs, labels = self.inputs.copy(), self.labels.copy()
        inputs[bad], labels[bad] = 0, BAD
        return Records(inputs, labels, self.columns, self.origin)

    def take(self, indices: NDArray[np.int64]) -> Records:
        """Return the records at `indices`, in that order."""
        columns = {name: values[indices] for name, values in self.columns.items()}
        return Records(self.inputs[indices], self.labels[indices], columns, self.origin.take(indices))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test records of one source.

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
    schema: Schema | None
    bound: float | None
    parts: tuple[tuple[str, NDArray[np.int64]], ...] | None
    is_named: bool = True
    notes: tuple[str, ...] = ()

    def under(self, classes: Sequence[str]) -> Dataset:
        """Return the same records with labels that count in `classes`, a plan's, where each keeps its class's name.

        Labels of a source without names count in them already. Raises BadInput, whatever the records are, when the
        source names a class that is none of these.
        """
        if not self.is_named:
            return replace(self, classes=tuple(classes))
        if unknown := [name for name in self.classes if name not in classes]:
            raise BadInput(
                f"{self.name} names the classes {', '.join(unknown[:8])}, which are none of the plan's",
                remedy=f"name them as the plan does: {', '.join(classes[:8])}{', …' if len(classes) > 8 else ''}",
            )
        own = map(list(classes).index, self.classes)
        places = np.array([*own, UNLABELLED, BAD], dtype=np.int64)  # −2 and −1 are the last
        train = replace(self.train, labels=places[self.train.labels])
        test = replace(self.test, labels=places[self.test.labels]) if self.test is not None else None
        return replace(self, train=train, test=test, classes=tuple(classes))


def columns_of(columns: Iterable[str]) -> str:
    """List the columns of a data set, for a refusal of another."""
    names = ", ".join(sorted(columns))
    return f"it has {names}" if names else "it has none: tables bring columns, and so do further arrays of an .npz"


def parts_without(dataset: Dataset, left: NDArray[np.bool_]) -> tuple[tuple[str, NDArray[np.int64]], ...] | None:
    """Return each file's rows among the training records that stay where those of `left` (n,) go; None: no files."""
    if dataset.parts is None:
        return None
    place = np.cumsum(~left) - 1
    return tuple((name, place[rows[~left[rows]]].astype(np.int64)) for name, rows in dataset.parts)


def concatenate(groups: Sequence[Records]) -> Records:
    """Join groups of records in order; keeps the columns that every group has."""
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
"""Longest field of a table, in characters."""
CELL_BYTES = 64
"""What a short field of a table takes, about, as a value of Python."""
SHORTEST_LIMIT = 16
"""Characters that a field of a table may always have."""


@dataclass(frozen=True)
class Tolerance:
    """Mark bad records instead of refusing them; `most` is how many records a plan allows, None without a plan.

    With `most` every limit is on one record, and what the whole source may take is decided by `most` and by a record's
    size, which are public: no record can cross a limit for the others.
    """

    most: int | None = None

    def refuse_larger(self, what: object, count: int, each: int) -> None:
        """Raise BadInput for `count` records of `each` bytes beyond `data_limit`; with `most` for so many of them."""
        self.refuse_more(what, count)
        refuse_larger(what if self.most is None else f"{what}: {self.most} records", each * (self.most or count))

    def refuse_more(self, what: object, count: int) -> None:
        """Raise BadInput for more records than the plan allows."""
        if self.most is not None and count > self.most:
            remedy = "have a plan made with a larger max_records"
            raise BadInput(f"{what} holds more than {self.most} records, the most that the plan allows", remedy=remedy)

    def longest_cell(self, what: object, width: int) -> int:
        """Most characters of a field, where a record has `width` of them: MAX_CELL, or fewer if most records are many.

        Raises BadInput where these would be too few.
        """
        if self.most is None:
            return MAX_CELL
        self.refuse_larger(what, 0, width * (CELL_BYTES + 4 * SHORTEST_LIMIT))
        return min(MAX_CELL, (data_limit() // (self.most * width) - CELL_BYTES) // 4)


def bounded(tolerance: Tolerance | None) -> Tolerance | None:
    """The tolerance where a plan says how many records there may be; None for another."""
    return None if tolerance is None or tolerance.most is None else tolerance


class Faults:
    """Faults in the n records of one source: the first is raised, or with `tolerant` all are marked.

    `bad` (n,) bool: the marked records. Every fault is a rule on one record, so that under `tolerant`
    neither the other records nor an exception can tell whether a record is bad.
    """

    def __init__(self, origin: Origin, *, tolerant: bool) -> None:
        self.tolerant = tolerant
        self.origin = origin
        self.bad = np.zeros(len(origin.row), dtype=np.bool_)

    def add(self, bad: NDArray[np.bool_], problem: str, remedy: str) -> None:
        """Mark the records where `bad` (n,) holds; without `tolerant` raise BadRecord for the first of them.

        `problem` says what is wrong without the record's values: errors end up in logs and in tickets.
        """
        if self.tolerant:
            self.bad |= bad
        elif bad.any():
            index = int(np.argmax(bad))
            raise self.origin.refusal(index, problem, remedy)
