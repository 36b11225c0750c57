"""What happens to a record that cannot be used: refused, or marked so that it contributes zero."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.data.records import Origin


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
