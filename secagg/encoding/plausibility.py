"""What every honest sum satisfies. A complaint means that some client lied; it cannot say which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.grid import Grid
from secagg.encoding.layout import Block, Integers, Kind
from secagg.encoding.moments import full_matrix

SLACK = 1e-9
"""Relative room for float64 rounding in these checks; the sum itself is exact."""


def sanity_failures(blocks: Sequence[Block], values: Mapping[str, Integers], grid: Grid) -> list[str]:
    """Check an opened sum without noise by the kinds of its blocks; return complaints, none when it is plausible.

    Counts and a census: N_j ≥ 0. Class sums beside counts of the same cells: ‖A_j‖₂ ≤ N_j·R_q. A second moment B beside
    both of whole classes: B_ii ≥ Σ_j A_ji²/N_j (Cauchy–Schwarz in each class); 0 ≤ tr B ≤ N·R_q²; B positive
    semi-definite, which costs d³/3. Nothing is known of other kinds, nor what belongs together
    where a kind comes twice.
    """
    complaints = []
    for block in blocks:
        if block.kind in (Kind.CENSUS, Kind.COUNTS):
            complaints += _negative(block.kind, values[block.name])
    counts, sums, triangle = (
        _only(blocks, values, kind) for kind in (Kind.COUNTS, Kind.CLASS_SUMS, Kind.SECOND_MOMENT)
    )
    if counts is not None and sums is not None and sums.shape[:-1] == counts.shape:
        complaints += _long(counts, sums, grid)
        if triangle is not None and counts.ndim == 1:
            complaints += _moment_failures(counts, sums.astype(np.float64), triangle, grid)
    return complaints


def _only(blocks: Sequence[Block], values: Mapping[str, Integers], kind: Kind) -> Integers | None:
    """The block of a kind; None where there is none, or where of several it is not known which belongs to which."""
    found = [values[block.name] for block in blocks if block.kind is kind]
    return found[0] if len(found) == 1 else None


def _negative(kind: Kind, entries: Integers) -> list[str]:
    """The cells that fewer than no clients hold, or that have fewer than no records."""
    form = "{} is held by {} clients" if kind is Kind.CENSUS else "{} has {} records"
    return [form.format(_cell(place), entries[tuple(place)]) for place in np.argwhere(entries < 0)]


def _cell(place: Integers) -> str:
    """A class, and which part of it where it is divided."""
    class_, *parts = (int(each) for each in place)
    return f"class {class_}" + (f", part {'/'.join(map(str, parts))}," if parts else "")


def _long(counts: Integers, sums: Integers, grid: Grid) -> list[str]:
    """The cells whose sum is longer than so many records can be."""
    lengths = np.linalg.norm(sums.astype(np.float64), axis=-1)
    places = np.argwhere(lengths > np.maximum(counts, 0) * grid.levels * (1 + SLACK))
    return [
        f"{_cell(place)} sums to length {lengths[tuple(place)]:.6g}, above {max(0, counts[tuple(place)])} records of "
        f"{grid.levels}"
        for place in places
    ]


def _moment_failures(counts: Integers, sums: NDArray[np.float64], triangle: Integers, grid: Grid) -> list[str]:
    """What a second moment cannot be beside these counts (C,) and class sums (C, d)."""
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
    if not _positive_semidefinite(moment):
        complaints.append("the second moment is not positive semi-definite")
    return complaints


def _positive_semidefinite(moment: NDArray[np.float64]) -> bool:
    """Whether a Cholesky factor exists after adding SLACK of the trace to the diagonal."""
    trace = abs(float(np.trace(moment)))
    try:
        np.linalg.cholesky(moment + (SLACK * trace + 1.0) * np.eye(len(moment)))
    except np.linalg.LinAlgError:
        return False
    return True
