"""Divide records: among simulated clients, into training and test records, and by values to leave out.

The partitions over clients:

iid             a random permutation, cut into parts whose sizes differ by at most one
dirichlet:ALPHA for each class, shares over clients drawn from Dirichlet(ALPHA, …, ALPHA) (Hsu, Qi & Brown
                2019); a small ALPHA gives each class to few clients, and clients may stay empty
shards:K        every client holds K classes, every class is held, and a class is cut evenly among its
                holders (after McMahan et al. 2017; no client sees more than K classes)
column:NAME     one client per distinct value of a raw column, in sorted order; the seed plays no part
column:NAME:K   K clients per value, in that order: a random permutation of its records, cut as iid is
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from secagg.data.records import BAD, Dataset, Records, columns_of, concatenate, parts_without
from secagg.errors import BadInput

Parts = tuple[NDArray[np.int64], ...]
FORMS = "iid, dirichlet:ALPHA, shards:K, column:NAME or column:NAME:K"


def partition(
    labels: NDArray[np.int64], columns: Mapping[str, NDArray[np.str_]], spec: str, clients: int | None, seed: int
) -> Parts:
    """Assign every record to exactly one client by the rule `spec`; return each client's record indices, ascending.

    Some clients may get none. `clients` ≥ 1; `column:…` also takes None, as the column fixes it. `seed` ≥ 0. Bad
    records (label -1) are of no class: dirichlet and shards deal them evenly. Raises BadInput for an unknown form, an
    impossible parameter or another number of clients.
    """
    if seed < 0:
        raise BadInput(f"the seed is {seed}", remedy="give a seed of 0 or more")
    form, _, parameter = spec.partition(":")
    generator = np.random.default_rng(seed)
    if form == "column":
        return _by_column(columns, parameter, clients, generator)
    if clients is None or clients < 1:
        raise BadInput(f"cannot divide the records over {clients} clients", remedy="give 1 client or more")
    if spec == "iid":
        parts = np.array_split(generator.permutation(len(labels)), clients)
    elif form == "dirichlet":
        try:
            alpha = float(parameter)
        except ValueError:
            alpha = math.nan
        if not (math.isfinite(alpha) and alpha >= 1e-3):
            problem = f"partition {spec!r}: ALPHA is a number of 0.001 or more"
            raise BadInput(problem, remedy="for example dirichlet:0.05")
        parts = _dirichlet(labels, clients, alpha, generator)
    elif form == "shards":
        each = _number(parameter, f"partition {spec!r}: K is a number of classes, 1 or more", "for example shards:2")
        parts = _shards(labels, clients, each, generator)
    else:
        raise BadInput(f"unknown partition {spec!r}", remedy=f"give {FORMS}")
    return tuple(np.sort(part).astype(np.int64) for part in parts)


def _dirichlet(
    labels: NDArray[np.int64], clients: int, alpha: float, generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    pieces = _bad_records(labels, clients)
    for label in _present(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(clients, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for client, piece in enumerate(np.split(members, cuts)):
            pieces[client].append(piece)
    return [np.concatenate(piece) for piece in pieces]


def _shards(
    labels: NDArray[np.int64], clients: int, each: int, generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Deal `each` shuffled classes to each client in turn; clients that share a class share its records."""
    classes = generator.permutation(_present(labels))
    if each > len(classes) or clients * each < len(classes):
        needed = math.ceil(len(classes) / clients)
        remedy = f"give shards:K with K from {needed} to {len(classes)}"
        raise BadInput(f"{clients} clients with {each} classes each cannot hold {len(classes)} classes", remedy=remedy)
    pieces = _bad_records(labels, clients)
    for place, label in enumerate(classes):
        holders = np.arange(place, clients * each, len(classes)) // each
        members = generator.permutation(np.flatnonzero(labels == label))
        for holder, piece in zip(holders, np.array_split(members, len(holders)), strict=True):
            pieces[holder].append(piece)
    return [np.concatenate(piece) for piece in pieces]


def _present(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(labels[labels != BAD])


def _bad_records(labels: NDArray[np.int64], clients: int) -> list[list[NDArray[np.int64]]]:
    """Start every client's list of pieces with an even share of the bad records (mostly none)."""
    return [[part] for part in np.array_split(np.flatnonzero(labels == BAD), clients)]


def _by_column(
    columns: Mapping[str, NDArray[np.str_]], parameter: str, clients: int | None, generator: np.random.Generator
) -> Parts:
    name, _, each = parameter.partition(":") if parameter not in columns else (parameter, "", "")
    if name not in columns:
        raise BadInput(f"the data set has no column {name!r}", remedy=columns_of(columns))
    values, owner = np.unique(columns[name], return_inverse=True)
    parts = [np.flatnonzero(owner == index) for index in range(len(values))]
    if each:
        problem = f"partition 'column:{parameter}': K is a number of clients, 1 or more"
        number = _number(each, problem, "for example column:domain:3")
        parts = [np.sort(piece) for part in parts for piece in np.array_split(generator.permutation(part), number)]
    if clients not in (None, len(parts)):
        remedy = f"leave out the number of clients or give {len(parts)}"
        raise BadInput(f"column {name!r} gives {len(parts)} clients but {clients} were asked for", remedy=remedy)
    return tuple(parts)


def _number(text: str, problem: str, remedy: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise BadInput(problem, remedy=remedy)
    return int(text)


Split = Callable[[Records], tuple[Records, Records]]

SPLIT_SEED = 1
"""Public seed of the training/test split; another one would change every published accuracy."""
VALIDATION_SEED = 2
"""Public seed of the split that holds out validation records."""


def held_out(labels: NDArray[np.int64], share: float = 0.2, seed: int = SPLIT_SEED) -> NDArray[np.bool_]:
    """Return a boolean array (n,), true for test records: a fixed pseudo-random `share` of each class, rounded half up.

    Within a class they are chosen by position alone. `labels` (n,) → (n,) bool; bad records (label -1) are never held
    out. Depends on no seed of the user and on no partition. The raw PCG64 stream is used because numpy keeps it stable
    across versions, unlike `Generator.permutation`.
    """
    keys = np.random.PCG64(seed).random_raw(len(labels))
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels[labels != BAD]):
        members = np.flatnonzero(labels == label)
        first = np.argsort(keys[members], kind="stable")[: math.floor(share * len(members) + 0.5)]
        chosen[members[first]] = True
    return chosen


def split_records(records: Records) -> tuple[Records, Records]:
    """Divide records into (training, test), each in the source's order; a tiny source may give no test records."""
    test = held_out(records.labels)
    return records.take(np.flatnonzero(~test)), records.take(np.flatnonzero(test))


def keep_all(records: Records) -> tuple[Records, Records]:
    """Return all records for training and an empty test part."""
    return records, records.take(np.zeros(0, dtype=np.int64))


def hold_out(dataset: Dataset, share: float) -> tuple[Dataset, NDArray[np.bool_]]:
    """Return the data set with `share` of its training records as test part, and a boolean array (n,), true for these.

    The test part that it had is gone, so that nothing can be chosen by it. Always the same records, as by `held_out`.
    Raises BadInput for a share so small that it is no record.
    """
    held = held_out(dataset.train.labels, share, VALIDATION_SEED)
    if not held.any():
        problem = f"{share:g} of {len(held)} records is none"
        raise BadInput(problem, remedy="hold out a larger fraction of the training records")
    train, test = (dataset.train.take(np.flatnonzero(rows)) for rows in (~held, held))
    return replace(dataset, train=train, test=test, parts=parts_without(dataset, held)), held


EVERY = "*"


@dataclass(frozen=True)
class LeftOut:
    """A choice of records to leave out, written `COLUMN=VALUE`: records with this raw value in the column."""

    column: str
    value: str

    @classmethod
    def read(cls, text: str) -> LeftOut:
        """Parse COLUMN=VALUE. Raises BadInput for a text that is not of this form."""
        column, equals, value = text.partition("=")
        if not (column and equals and value):
            raise BadInput(f"cannot leave out {text!r}", remedy="give COLUMN=VALUE, for example domain=sketch")
        return cls(column, value)

    def among(self, records: Records) -> NDArray[np.bool_]:
        """Return booleans (n,) that select the records to leave out. Raises BadInput for records without the column."""
        if self.column not in records.columns:
            problem = f"the data set has no column {self.column!r} to leave out by"
            raise BadInput(problem, remedy=columns_of(records.columns))
        return np.asarray(records.columns[self.column] == self.value)

    def rows(self, dataset: Dataset) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return boolean arrays that select the training and the test records to leave out.

        Raises BadInput if these are none, or all training records.
        """
        train = self.among(dataset.train)
        test = self.among(dataset.test) if dataset.test is not None else np.zeros(0, dtype=np.bool_)
        if not train.any() and not test.any():
            number = len(np.unique(dataset.train.columns[self.column]))
            remedy = f"give one of the column's {number} values; compare and sweep take * for each in turn"
            raise BadInput(f"no record has {self.column} = {self.value!r}", remedy=remedy)
        if train.all():
            raise BadInput(f"every training record has {self.column} = {self.value!r}; none would be left")
        return train, test


def leave_out(dataset: Dataset, column: str, value: str) -> Dataset:
    """Return the data set without the records that have this value in a column; those become its test part.

    Classes, schema and bound stay; a table of `parts` loses its records and remains, if need be empty.
    Raises BadInput for an unknown column or value, and when no training record would be left.
    """
    train, test = LeftOut(column, value).rows(dataset)
    left = [dataset.train.take(np.flatnonzero(train))]
    if dataset.test is not None:
        left.append(dataset.test.take(np.flatnonzero(test)))
    rest, parts = dataset.train.take(np.flatnonzero(~train)), parts_without(dataset, train)
    return replace(dataset, train=rest, test=concatenate(left), parts=parts)


def one_by_one(dataset: Dataset, texts: Sequence[str | None]) -> tuple[str | None, ...]:
    """Expand each COLUMN=* into one COLUMN=VALUE for each value in the training records, keeping the order.

    None, leaving out nothing, stays. Raises BadInput for what is not COLUMN=VALUE, and for an unknown column.
    """
    spelled: list[str | None] = []
    for text in texts:
        if text is not None and (left := LeftOut.read(text)).value == EVERY:
            left.among(dataset.train)
            spelled += [f"{left.column}={value}" for value in np.unique(dataset.train.columns[left.column])]
        else:
            spelled.append(text)
    return tuple(dict.fromkeys(spelled))
