"""Feature shift: the records of one domain, hospital or instrument are in no client; a head is tested on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from secagg.data.records import Dataset, Records, columns_of, concatenate, parts_without
from secagg.errors import BadInput

EVERY = "*"


@dataclass(frozen=True)
class LeftOut:
    """`COLUMN=VALUE`: the records whose raw value of the column this is."""

    column: str
    value: str

    @classmethod
    def read(cls, text: str) -> LeftOut:
        """Read COLUMN=VALUE. Raises BadInput for anything else."""
        column, equals, value = text.partition("=")
        if not (column and equals and value):
            raise BadInput(f"cannot leave out {text!r}", remedy="give COLUMN=VALUE, for example domain=sketch")
        return cls(column, value)

    def among(self, records: Records) -> NDArray[np.bool_]:
        """Which of the records (n,) these are. Raises BadInput for records without that column."""
        if self.column not in records.columns:
            problem = f"the data set has no column {self.column!r} to leave out by"
            raise BadInput(problem, remedy=columns_of(records.columns))
        return np.asarray(records.columns[self.column] == self.value)

    def rows(self, dataset: Dataset) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which training records and which held-out ones these are.

        Raises BadInput where there is none, or no training record besides.
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
    """The data set without the records that have this raw value of a column; they, held out or not, are its test part.

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
    """The texts, each COLUMN=* spelled out as one COLUMN=VALUE for each value of the training records, in order.

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
