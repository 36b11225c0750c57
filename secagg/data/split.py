"""The train/test split of sources that have none: fixed, public, the same for every user."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from secagg.data.records import BAD, Records

Split = Callable[[Records], tuple[Records, Records]]

SPLIT_SEED = 1
"""Public constant; changing it changes every published accuracy."""


def held_out(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the test records: 20 % of each class (rounded half up), chosen by position alone.

    `labels` (n,) → (n,) bool; bad records (label -1) are never held out. Depends on no seed of the user
    and on no partition. The raw PCG64 stream is used because numpy keeps it stable across versions,
    unlike `Generator.permutation`.
    """
    keys = np.random.PCG64(SPLIT_SEED).random_raw(len(labels))
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels[labels != BAD]):
        members = np.flatnonzero(labels == label)
        first = np.argsort(keys[members], kind="stable")[: (2 * len(members) + 5) // 10]
        chosen[members[first]] = True
    return chosen


def split_records(records: Records) -> tuple[Records, Records]:
    """Return (training, test) records, each in the source's order; a tiny source may have no test records."""
    test = held_out(records.labels)
    return records.take(np.flatnonzero(~test)), records.take(np.flatnonzero(test))


def keep_all(records: Records) -> tuple[Records, Records]:
    """Return every record for training, none for testing: what a member of a federation contributes."""
    return records, records.take(np.zeros(0, dtype=np.int64))
