"""What every honest sum satisfies. A complaint means that some client lied; it cannot say which."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from secagg.statistics.grid import Grid
from secagg.statistics.moments import full_matrix

SLACK = 1e-9
"""Relative room for float64 rounding in these checks; the sum itself is exact."""


def implausibilities(aggregate: Mapping[str, NDArray[np.int64]], grid: Grid) -> list[str]:
    """Check an opened sum of `counts`, `class_sums` and `second_moment`; return complaints, none when plausible.

    N_j ≥ 0; ‖A_j‖₂ ≤ N_j·R_q; B_ii ≥ Σ_j A_ji²/N_j (Cauchy–Schwarz in each class); 0 ≤ tr B ≤ N·R_q²;
    B positive semi-definite. Costs d³/3. For sums without noise.
    """
    counts = aggregate["counts"].astype(np.float64)
    sums = aggregate["class_sums"].astype(np.float64)
    moment = full_matrix(aggregate["second_moment"], sums.shape[1])
    complaints = [f"class {j} has {int(counts[j])} records" for j in np.flatnonzero(counts < 0)]
    positive = np.maximum(counts, 0.0)
    lengths = np.linalg.norm(sums, axis=1)
    complaints += [
        f"class {j} sums to length {lengths[j]:.6g}, above {int(positive[j])} records of {grid.levels}"
        for j in np.flatnonzero(lengths > positive * grid.levels * (1 + SLACK))
    ]
    trace, limit = float(np.trace(moment)), float(positive.sum()) * grid.levels**2
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
