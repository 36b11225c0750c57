"""The train/test split of sources that have none: fixed, public, the same for every user."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secagg.data.records import BAD, Dataset, Records, parts_without
from secagg.errors import BadInput

Split = Callable[[Records], tuple[Records, Records]]

SPLIT_SEED = 1
"""Public constant; changing it changes every published accuracy."""
VALIDATION_SEED = 2
"""Public, too."""


def held_out(labels: NDArray[np.int64], share: float = 0.2, seed: int = SPLIT_SEED) -> NDArray[np.bool_]:
    """Mark the test records: this share of each class (rounded half up), chosen by position alone.

    `labels` (n,) → (n,) bool; bad records (label -1) are never held out. Depends on no seed of the user
    and on no partition. The raw PCG64 stream is used because numpy keeps it stable across versions,
    unlike `Generator.permutation`.
    """
    keys = np.random.PCG64(seed).random_raw(len(labels))
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels[labels != BAD]):
        members = np.flatnonzero(labels == label)
        first = np.argsort(keys[members], kind="stable")[: math.floor(share * len(members) + 0.5)]
        chosen[members[first]] = True
    return chosen


def split_records(records: Records) -> tuple[Records, Records]:
    """Return (training, test) records, each in the source's order; a tiny source may have no test records."""
    test = held_out(records.labels)
    return records.take(np.flatnonzero(~test)), records.take(np.flatnonzero(test))


def keep_all(records: Records) -> tuple[Records, Records]:
    """Return every record for training, none for testing: what a member of a federation contributes."""
    return records, records.take(np.zeros(0, dtype=np.int64))


def hold_out(dataset: Dataset, share: float) -> tuple[Dataset, NDArray[np.bool_]]:
    """Return the data set with this share of its training records as its test part, and which they were (n,).

    The test part that it had is gone, so that nothing can be chosen by it. Always the same records, as by `held_out`.
    Raises BadInput for a share so small that it is no record.
    """
    held = held_out(dataset.train.labels, share, VALIDATION_SEED)
    if not held.any():
        problem = f"{share:g} of {len(held)} records is none"
        raise BadInput(problem, remedy="hold out a larger fraction of the training records")
    train, test = (dataset.train.take(np.flatnonzero(rows)) for rows in (~held, held))
    return replace(dataset, train=train, test=test, parts=parts_without(dataset, held)), held
