"""Counts, class sums and second moment of integer records, exact at the speed of BLAS (FedCGS Eq. 3–5).

Plausibility checks hold for every honest sum: a complaint means that some client lied; it cannot say which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.grid import Grid
from secagg.encoding.layout import Block, Integers, Kind
from secagg.errors import BadInput, CapacityExceeded
from secagg.system.reading import refuse_larger

EXACT = 1 << 53
"""The largest integer up to which float64 holds all integers, 2⁵³."""
ROWS = 8192
BLOCK_ENTRIES = 1 << 22


def accumulate(records: Integers, labels: Integers, classes: int, levels: int) -> dict[str, Integers]:
    """Return counts, class sums and second moment of integer records q (n, d), ‖q‖₂ ≤ `levels`, with labels (n,).

    R_q is `levels`, and labels lie in [0, C), with C `classes`. Returns `counts` N (C,), `class_sums` A (C, d) and
    `second_moment` B (d(d+1)/2,): the upper triangle of Σ q qᵀ, row by row as `np.triu_indices(d)`. n = 0 gives zeros.

    Exact: each partial sum of a float64 product over r records, in whatever order BLAS takes, is an integer
    of absolute value ≤ Σ|q_i q_j| ≤ r·R_q² (r·R_q for A). Records go through in chunks with r·R_q² < 2⁵³
    and each chunk's product is added in int64, which holds n·R_q² < 2⁶³. ‖q‖₂ ≤ R_q is checked, not assumed.
    Raises CapacityExceeded when one record or all n of them break these bounds, BadInput for a label out
    of range, a record that is too long, or sums that would take more bytes than `data_limit`.
    """
    count, dimension = records.shape
    if len(labels) != count or (count and not (labels.min() >= 0 and labels.max() < classes)):
        raise BadInput(f"{count} records need {count} labels from 0 to {classes - 1}")
    needed = levels * levels
    if needed >= EXACT:
        raise CapacityExceeded("an exact product of one record", needed, EXACT - 1, remedy="lower the levels")
    if count * needed >= 1 << 63:
        what = f"the sum over {count} records in int64"
        raise CapacityExceeded(what, count * needed, (1 << 63) - 1, remedy="lower the levels")
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
        "second_moment": moment[np.tri(dimension, dtype=np.bool_).T],
    }


def cell_sums(records: Integers, cells: Integers, size: int) -> tuple[Integers, Integers]:
    """Return exact counts (size,) and sums (size, d) of integer records (n, d) by group, the index in `cells` (n,)."""
    sums = np.zeros((size, records.shape[1]), dtype=np.int64)
    np.add.at(sums, cells, records)
    return np.bincount(cells, minlength=size).astype(np.int64), sums


def full_matrix(triangle: NDArray[np.int64], dimension: int) -> NDArray[np.float64]:
    """Return the symmetric float64 matrix (d, d) whose upper triangle is given row by row."""
    matrix = np.zeros((dimension, dimension))
    upper = np.tri(dimension, dtype=np.bool_).T
    matrix[upper] = triangle
    matrix.T[upper] = triangle
    return matrix


def _exact_rows(levels: int) -> int:
    """Return the largest r with r·R_q² < 2⁵³."""
    return max(1, (EXACT - 1) // (levels * levels))


def _check_lengths(chunk: NDArray[np.float64], levels: int) -> None:
    """Raise BadInput when a record is longer than R_q.

    The float64 sum of squares is exact below 2⁵³ and, being a sum of non-negative terms, does not fall
    below 2⁵³ once it has reached it; so comparing it with R_q² < 2⁵³ decides correctly.
    """
    if len(chunk) and np.einsum("ij,ij->i", chunk, chunk).max() > levels * levels:
        raise BadInput(f"a record is longer than the grid's {levels} levels", remedy="make records with `quantise`")


SLACK = 1e-9
"""Relative tolerance for float64 rounding in these checks; the sum itself is exact."""


def sanity_failures(blocks: Sequence[Block], values: Mapping[str, Integers], grid: Grid) -> list[str]:
    """Return messages about values in a noiseless opened sum that honest clients cannot cause; empty if plausible.

    Counts and a census: N_j ≥ 0. Class sums beside counts of the same cells: ‖A_j‖₂ ≤ N_j·R_q. A second moment B beside
    both of whole classes: B_ii ≥ Σ_j A_ji²/N_j (Cauchy–Schwarz in each class); 0 ≤ tr B ≤ N·R_q²; B positive
    semi-definite, which costs d³/3. Nothing is known of other kinds, nor what belongs together
    where a kind comes twice.
    """
    complaints = []
    for block in blocks:
        if block.kind in (Kind.CENSUS, Kind.COUNTS):
            form = "{} is held by {} clients" if block.kind is Kind.CENSUS else "{} has {} records"
            entries = values[block.name]
            complaints += [form.format(_cell(place), entries[tuple(place)]) for place in np.argwhere(entries < 0)]
    # Where a kind comes twice, it is not known which belongs to which.
    by_kind = {kind: [values[block.name] for block in blocks if block.kind is kind] for kind in Kind}
    only = {kind: found[0] if len(found) == 1 else None for kind, found in by_kind.items()}
    counts, sums, triangle = (only[kind] for kind in (Kind.COUNTS, Kind.CLASS_SUMS, Kind.SECOND_MOMENT))
    if counts is not None and sums is not None and sums.shape[:-1] == counts.shape:
        lengths = np.linalg.norm(sums.astype(np.float64), axis=-1)
        complaints += [
            f"{_cell(at)} sums to length {lengths[tuple(at)]:.6g}, above {max(0, counts[tuple(at)])} records of "
            f"{grid.levels}"
            for at in np.argwhere(lengths > np.maximum(counts, 0) * grid.levels * (1 + SLACK))
        ]
        if triangle is not None and counts.ndim == 1:
            complaints += _moment_failures(counts, sums.astype(np.float64), triangle, grid)
    return complaints


def _cell(place: Integers) -> str:
    """Return the name of a class, or of the part of a class where it is divided."""
    class_, *parts = (int(each) for each in place)
    return f"class {class_}" + (f", part {'/'.join(map(str, parts))}," if parts else "")


def _moment_failures(counts: Integers, sums: NDArray[np.float64], triangle: Integers, grid: Grid) -> list[str]:
    """Return complaints about a second moment that contradicts these counts (C,) and class sums (C, d)."""
    moment = full_matrix(triangle, sums.shape[1])
    complaints = []
    trace, limit = float(np.trace(moment)), float(np.maximum(counts, 0).sum()) * grid.levels**2
    if not 0 <= trace <= limit * (1 + SLACK):
        complaints.append(f"the second moment has trace {trace:.6g}, outside 0 to {limit:.6g}")
    present = counts > 0
    least = (sums[present] ** 2 / counts[present, None]).sum(axis=0)
    short = np.flatnonzero(np.diag(moment) < least * (1 - SLACK))
    if len(short):
        complaints.append(f"the second moment is below what the class sums require in {len(short)} coordinates")
    try:
        np.linalg.cholesky(moment + (SLACK * abs(trace) + 1.0) * np.eye(len(moment)))
    except np.linalg.LinAlgError:
        complaints.append("the second moment is not positive semi-definite")
    return complaints
