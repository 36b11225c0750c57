"""What happens to a record that cannot be used: refused, or marked so that it contributes zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.grid import Origin
from secagg.errors import BadInput
from secagg.system.reading import data_limit, refuse_larger

MAX_CELL = 1000
"""Longest field of a table, in characters."""
CELL_BYTES = 64
"""What a short field of a table takes, about, as a value of Python."""
SHORTEST_LIMIT = 16
"""Characters that a field of a table may always have."""


@dataclass(frozen=True)
class Tolerance:
    """Mark bad records, do not refuse them. `most`: how many records a plan allows; None: no plan says.

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
