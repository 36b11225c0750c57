"""Recover single records from a sum's counts, class sums and second moment by a rotation that makes them non-negative.

B = FᵀF leaves F = Q·S open up to an orthogonal Q, where SᵀS = B. Class sums fix what Q does to the indicators of the
classes: u_c with Sᵀu_c = A_c. Of what is left, non-negative features with exact zeros single out one Q, up to the order
of records: the intersection of {F = Q·S} (projection: orthogonal Procrustes, Schönemann 1966) with {F ≥ floor}, found
by relaxed reflections (Elser, Rankenburg & Thibault 2007, "Searching with iterated maps"), which leave the local minima
in which alternating projections end. A count of unknowns tells where it stops: (n − C)²/2 of them against one equation
for each zero, so n − C ≲ 2·(share of zeros)·d.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.plan import Plan
from secagg.encoding import full_matrix
from secagg.errors import BadInput
from threat_models.session import AuditRecords, Blocks, Floats

STEP = 0.7
"""Relaxation β of the reflections; 1 would be the Douglas–Rachford method."""
RANK = 1e-11
"""Eigenvalues below this share of the largest are taken for rounding errors."""
TIES = 0.05
"""Share of a normalised record's entries that are taken to lie on its floor, where its zeros went."""
EVERY = 20
POLISH = 200


@dataclass(frozen=True, eq=False)
class _RecoveredRecords:
    """The recovered records of a sum, ordered by class: in units of R_q (n, d), as features (n, d), with labels (n,).

    Features are in their own units where records keep their length, else each up to its scale. `violation` is the
    part of their squared length that still lies below the floor: near 0 when a solution was found, if not the only one.
    """

    records: Floats = field(repr=False)
    features: Floats = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    violation: float


@dataclass(frozen=True, eq=False)
class _Rotations:
    """All matrices of records F = base + left·R·right, R orthogonal, with the sum's second moment and class sums."""

    base: Floats
    left: Floats
    right: Floats

    def of(self, rotation: Floats) -> Floats:
        return self.base + self.left @ (_polar(rotation) @ self.right)

    def nearest(self, features: Floats) -> Floats:
        return self.of(self.left.T @ (features - self.base) @ self.right.T)


def recover(
    blocks: Blocks, plan: Plan, *, public: AuditRecords | None = None, seed: int = 0, iterations: int = 2000
) -> _RecoveredRecords:
    """Recover the records of a sum of fewer records than dimensions from its counts, class sums and second moment.

    `public` records of the same kind tell where normalised ones have their floor; `iterations` 0 gives the random
    start, a mixture that fits the blocks. Raises BadInput for n = 0 or n ≥ d.
    """
    counts = np.maximum(np.rint(np.asarray(blocks["counts"], dtype=np.float64)), 0).astype(np.int64)
    total, dimension = int(counts.sum()), plan.dimension
    if not 1 <= total < dimension:
        raise BadInput(f"{total} records in {dimension} dimensions", remedy="only a sum of fewer records comes apart")
    root = root_of(blocks, plan, total)
    sums = np.asarray(blocks["class_sums"], dtype=np.float64) / plan.levels
    rotations = _rotations(root, counts, sums)
    found = rotations.of(np.random.default_rng(seed).standard_normal((len(rotations.right),) * 2))
    stages = _floors(plan, public)
    for floor in stages if iterations else ():
        found = _search(rotations, floor, found, iterations // len(stages))
    violation = float(np.sum((stages[-1](found) - found) ** 2) / max(float(np.sum(root**2)), 1e-300))
    labels = np.repeat(np.arange(len(counts)), counts)
    return _RecoveredRecords(found, as_features(found, plan), labels, violation)


def root_of(blocks: Blocks, plan: Plan, rank: int) -> Floats:
    """Compute S (rank, d) with SᵀS = B/R_q², for second moment B and quantisation radius R_q, by an eigendecomposition.

    By the `rank` largest eigenvalues of B, in falling order; those that are rounding error count as 0.
    """
    moment = full_matrix(np.asarray(blocks["second_moment"]), plan.dimension) / float(plan.levels) ** 2
    values, vectors = np.linalg.eigh(moment)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    values = np.where(values > RANK * max(values[0], 0.0), values, 0.0)
    return np.asarray(np.sqrt(values)[:, None] * vectors.T)


def as_features(rows: Floats, plan: Plan) -> Floats:
    """Return non-negative features from records (n, d) in units of the quantisation radius R_q.

    Those of normalised records are above the record's least entry, up to a scale.
    """
    if plan.grid.is_normalised:
        return np.asarray(rows - rows.min(axis=1, keepdims=True))
    return np.maximum(rows * plan.radius + plan.centre, 0.0)


def _floors(plan: Plan, public: AuditRecords | None) -> tuple[Callable[[Floats], Floats], ...]:
    """Return the projections on possible records of this plan, one for each stage of the search.

    f ≥ 0 is q ≥ −c·R_q/R. A normalised record's floor is its own; public records tell about where it is.
    """
    if not plan.grid.is_normalised:
        lowest = -plan.centre / plan.radius
        return (lambda rows: np.maximum(rows, lowest),)

    def own(rows: Floats) -> Floats:
        place = int(TIES * rows.shape[1])
        return np.maximum(rows, np.partition(rows, place, axis=1)[:, place : place + 1])

    if public is None or not len(public):
        return (own,)
    common = float(np.median(public.integers.min(axis=1))) / plan.levels
    return (lambda rows: np.maximum(rows, common)), own


def _rotations(root: Floats, counts: NDArray[np.int64], sums: Floats) -> _Rotations:
    """Return the rotations that class sums leave open: Q takes u_c to class c's indicator, complement to complement.

    Where B has less rank than records, the part of u_c outside its range is made up so that they are orthonormal.
    """
    present = np.flatnonzero(counts)
    lengths = np.sqrt(counts[present])
    indicators = (np.repeat(present, counts[present])[:, None] == present) / lengths
    known = np.linalg.lstsq(root.T, sums[present].T, rcond=1e-9)[0] / lengths
    missing = np.flatnonzero(~root.any(axis=1))
    if len(missing):
        values, vectors = np.linalg.eigh(np.eye(len(present)) - known.T @ known)
        keep = min(len(missing), len(present))
        known[missing[:keep]] = (np.sqrt(np.maximum(values, 0))[:, None] * vectors.T)[::-1][:keep]
    axes = _polar(known)
    left, right = (np.linalg.qr(each, mode="complete")[0][:, len(present) :] for each in (indicators, axes))
    return _Rotations(indicators @ (axes.T @ root), left, right.T @ root)


def _search(rotations: _Rotations, floor: Callable[[Floats], Floats], start: Floats, iterations: int) -> Floats:
    """Search by relaxed reflections from `start`, then by alternating projections from the best point on their way."""
    point, best, least = start, start, np.inf
    for step in range(iterations if len(rotations.right) else 0):
        near = rotations.nearest(point)
        if step % EVERY == 0 and (gap := float(np.sum((floor(near) - near) ** 2))) < least:
            best, least = near, gap
            if gap < RANK * float(np.sum(near**2)):
                break
        point = point + STEP * (floor(2 * near - point) - near)
    for _ in range(POLISH):
        best = rotations.nearest(floor(best))
    return best


def _polar(matrix: Floats) -> Floats:
    """Return the nearest matrix with orthonormal columns."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(left @ right)
