"""Class prototypes as integers: what members send of them, and what an opened sum makes of that.

Members may be divided into `groups`, which do not change and do not overlap: member i is of group i mod groups. Each
class then has a count and a sum for every group, side by side in one secure sum, and a member's are in its own group's
places alone. Groups are as large as a sum must be that hides a member (`RoundSetup` refuses smaller ones).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from methods.round import Opened
from secagg.encoding import Block, Integers, Kind

COUNTS, SUMS = "counts", "class_sums"
Floats = NDArray[np.float64]
SHARES = {COUNTS: 0.1, SUMS: 0.9}
"""Of μ²: a count is one number a class, and only scales the prototype."""


def blocks_of(classes: int, width: int, groups: int, most: int, levels: int) -> tuple[Block, Block]:
    """Counts (C,) and sums (C, width), for several groups (C, groups) and (C, groups, width).

    A member, or a record, has no more than `most` records of a class, each projected to length ≤ `levels`.
    """
    cells = (classes,) if groups == 1 else (classes, groups)
    return (
        Block(COUNTS, cells, bound=most, kind=Kind.COUNTS),
        Block(SUMS, (*cells, width), bound=most * levels, kind=Kind.CLASS_SUMS),
    )


def placed(counts: Integers, sums: Integers, member: int, groups: int) -> dict[str, Integers]:
    """The blocks of a member with these counts (C,) and sums (C, w): zeros in other groups' places."""
    if groups == 1:
        return {COUNTS: counts, SUMS: sums}
    all_counts = np.zeros((len(counts), groups), dtype=np.int64)
    all_sums = np.zeros((len(sums), groups, sums.shape[1]), dtype=np.int64)
    all_counts[:, member % groups], all_sums[:, member % groups] = counts, sums
    return {COUNTS: all_counts, SUMS: all_sums}


def shorten(counts: Integers, sums: Integers, cap: int) -> tuple[Integers, Integers]:
    """Return counts (C,) with ‖counts‖₂ ≤ cap, and sums (C, w) of so many records of the same means, truncated.

    Counts become min(n_j, t) for the largest whole t that fits, so that rare classes stay; sums of vectors without
    negative entries, each no longer than R, stay no longer than counts·R, so that ‖sums‖₂ ≤ cap·R.
    """
    low, high = 0, int(counts.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(min(count, middle) ** 2 for count in counts.tolist()) <= cap * cap
        low, high = (middle, high) if fits else (low, middle - 1)
    fewer = np.minimum(counts, low)
    return fewer, sums * fewer[:, None] // np.maximum(counts, 1)[:, None]


def prototypes_of(opened: Opened) -> Integers:
    """Return the prototype sets (S, C, width) in grid units: all members', and then every group's where there are any.

    A class that a group has no record of has all members' prototype there (Tan et al. 2022, Eq. 7).
    """
    counts = opened.blocks[COUNTS] / opened.multiplier(COUNTS)
    sums, levels = opened.blocks[SUMS] / opened.multiplier(SUMS), opened.grid.levels
    if counts.ndim == 1:
        return class_means(counts, sums, levels)[None]
    every = class_means(counts.sum(axis=1), sums.sum(axis=1), levels)
    own = [class_means(counts[:, group], sums[:, group], levels) for group in range(counts.shape[1])]
    padded = [np.where(each.any(axis=1, keepdims=True), each, every) for each in own]
    sets: Integers = np.stack([every, *padded])
    return sets


def class_means(counts: Floats, sums: Floats, levels: int) -> Integers:
    """Return the means (C, width) of counts (C,) and sums (C, width), truncated; 0 for a class without records.

    What noise may break is mended: a count below 1 is 1, no entry is negative, no mean longer than `levels`. Divisions
    of float64 and integers alone, so that everybody has the same.
    """
    means: Integers = np.clip(np.trunc(sums / np.maximum(counts, 1.0)[:, None]), 0, levels).astype(np.int64)
    for row, square in enumerate((means * means).sum(axis=1).tolist()):
        if square > levels**2:
            means[row] = means[row] * levels // (math.isqrt(square) + 1)
    return means
