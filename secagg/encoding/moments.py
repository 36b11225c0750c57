"""Counts, class sums and second moment of integer records, exact at the speed of BLAS (FedCGS Eq. 3–5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput, CapacityExceeded
from secagg.system.reading import refuse_larger

Integers = NDArray[np.int64]

EXACT = 1 << 53
"""Every integer up to 2⁵³ in absolute value is a float64."""
ROWS = 8192
BLOCK_ENTRIES = 1 << 22


def accumulate(records: Integers, labels: Integers, classes: int, levels: int) -> dict[str, Integers]:
    """Sum integer records (n, d) with ‖q‖₂ ≤ R_q = `levels` and labels (n,) in [0, C).

    Returns `counts` N (C,), `class_sums` A (C, d) and `second_moment` B (d(d+1)/2,): the upper triangle of
    Σ q qᵀ, row by row as `np.triu_indices(d)`. n = 0 gives zeros.

    Exact: each partial sum of a float64 product over r records, in whatever order BLAS takes, is an integer
    of absolute value ≤ Σ|q_i q_j| ≤ r·R_q² (r·R_q for A). Records go through in chunks with r·R_q² < 2⁵³
    and each chunk's product is added in int64, which holds n·R_q² < 2⁶³. ‖q‖₂ ≤ R_q is checked, not assumed.
    Raises CapacityExceeded when one record or all n of them break these bounds, BadInput for a label out
    of range, a record that is too long, or sums that would take more bytes than `data_limit`.
    """
    count, dimension = records.shape
    _check(count, labels, classes, levels)
    refuse_larger(f"the sums of {classes} classes and {dimension} features", 8 * dimension * (classes + dimension))
    sums = np.zeros((classes, dimension), dtype=np.int64)
    moment = np.zeros((dimension, dimension), dtype=np.int64)
    rows = min(_exact_rows(levels), max(ROWS, BLOCK_ENTRIES // max(dimension, 1)))
    buffer = np.empty((min(rows, count), dimension))
    for start in range(0, count, rows):
        chunk = buffer[: min(rows, count - start)]
        chunk[:] = records[start : start + rows]
        _check_lengths(chunk, levels)
        members = (labels[start : start + rows] == np.arange(classes)[:, None]).astype(np.float64)
        sums += (members @ chunk).astype(np.int64)
        moment += (chunk.T @ chunk).astype(np.int64)  # numpy sees one matrix twice and calls syrk
    return {
        "counts": np.bincount(labels, minlength=classes).astype(np.int64),
        "class_sums": sums,
        "second_moment": upper_triangle(moment),
    }


def upper_triangle(matrix: Integers) -> Integers:
    """Return the upper triangle of (d, d), row by row, as (d(d+1)/2,)."""
    return matrix[np.tri(len(matrix), dtype=np.bool_).T]


def full_matrix(triangle: NDArray[np.int64], dimension: int) -> NDArray[np.float64]:
    """Return the symmetric float64 matrix (d, d) whose upper triangle is given row by row."""
    matrix = np.zeros((dimension, dimension))
    upper = np.tri(dimension, dtype=np.bool_).T
    matrix[upper] = triangle
    matrix.T[upper] = triangle
    return matrix


def _check(count: int, labels: Integers, classes: int, levels: int) -> None:
    if len(labels) != count or (count and not (labels.min() >= 0 and labels.max() < classes)):
        raise BadInput(f"{count} records need {count} labels from 0 to {classes - 1}")
    if levels * levels >= EXACT:
        raise CapacityExceeded("an exact product of one record", levels * levels, EXACT - 1, remedy="lower the levels")
    if count * levels * levels >= 1 << 63:
        needed = count * levels * levels
        raise CapacityExceeded(
            f"the sum over {count} records in int64", needed, (1 << 63) - 1, remedy="lower the levels"
        )


def _exact_rows(levels: int) -> int:
    """Largest r with r·R_q² < 2⁵³."""
    return max(1, (EXACT - 1) // (levels * levels))


def _check_lengths(chunk: NDArray[np.float64], levels: int) -> None:
    """Raise BadInput when a record is longer than R_q.

    The float64 sum of squares is exact below 2⁵³ and, being a sum of non-negative terms, does not fall
    below 2⁵³ once it has reached it; so comparing it with R_q² < 2⁵³ decides correctly.
    """
    if len(chunk) and np.einsum("ij,ij->i", chunk, chunk).max() > levels * levels:
        raise BadInput(f"a record is longer than the grid's {levels} levels", remedy="make records with `quantise`")
