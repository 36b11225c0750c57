"""Gaussian likelihoods of a released sum given a record in it, and of a record given released class statistics.

Records are integers q (n, d) in cells y (n,), their classes or what a sum divides these into; a record adds
Δ = (e_y, e_y ⊗ q, q qᵀ) to counts N, class sums A and second moment B (which prototypes and slot sums lack). `noise` is
that of the opened blocks: σ_N, σ_A, σ_B, the latter over √2 off the diagonal of a triangle, so that ⟨Δ, X⟩/σ² over the
upper triangle is qᵀXq/σ_B² over the whole matrix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from secagg.encoding import cell_sums, full_matrix
from secagg.privacy import OpenedNoise
from threat_models.session import AuditRecords, Blocks, Floats

Noise = Mapping[str, OpenedNoise]

MOMENTS = frozenset({"counts", "class_sums", "second_moment"})
RIDGE = 1e-3
"""Share of a covariance's mean eigenvalue that is added to each eigenvalue."""


def total(records: AuditRecords, cells: int, names: frozenset[str]) -> dict[str, Floats]:
    """Compute the exact sum over records in float64: counts, class sums and, if it is in `names`, the second moment.

    Exact while n·R_q² < 2⁵³.
    """
    rows, dimension = records.integers.astype(np.float64), records.integers.shape[1]
    kept = records.cells >= 0
    counts, sums = cell_sums(records.integers[kept], records.cells[kept], cells)
    blocks = {"counts": counts.astype(np.float64), "class_sums": sums.astype(np.float64)}
    if "second_moment" in names:
        blocks["second_moment"] = (rows.T @ rows)[np.triu_indices(dimension)]
    return blocks


def squared_mu(records: AuditRecords, noise: Noise) -> Floats:
    """Compute μ² = ‖Δ‖²/σ² (n,) for each record, where Δ is what it adds to a sum and σ² the noise's variance.

    At most the plan's μ², and less for shorter records.
    """
    rows = records.integers.astype(np.float64)
    squares = np.einsum("nd,nd->n", rows, rows)
    found: Floats = 1 / noise["counts"].sigma ** 2 + squares / noise["class_sums"].sigma ** 2
    if (moment := noise.get("second_moment")) is not None:
        length = squares**2
        if not moment.triangle:  # then ‖q qᵀ‖² over the upper triangle alone: (‖q‖⁴ + Σ q_i⁴)/2
            length = (length + np.sum(rows**4, axis=1)) / 2
        found += length / moment.sigma**2
    return found


def standardise(residual: Blocks, noise: Noise) -> dict[str, Floats]:
    """Divide a residual's entries by the standard deviations of their noise; return each block (named array) flattened.

    Each entry is N(0, 1) where the residual is planned noise.
    """
    found = {name: np.asarray(block, dtype=np.float64).ravel() / noise[name].sigma for name, block in residual.items()}
    for name, entries in found.items():
        if noise[name].triangle:
            _scale_off_diagonal(entries, math.sqrt(2))
    return found


def noise_ratio(residual: Blocks, noise: Noise) -> tuple[float, int]:
    """Return the ratio of a residual's mean square to the planned noise's variance, and the number of entries."""
    scaled = np.concatenate(list(standardise(residual, noise).values()))
    return float(np.mean(scaled**2)), len(scaled)


def _scale_off_diagonal(entries: Floats, factor: float) -> None:
    """Multiply in place the off-diagonal entries of a flat upper triangle (entries,), which zeros may follow."""
    apart = off_diagonal(len(entries))
    entries[: len(apart)][apart] *= factor


@lru_cache(maxsize=4)
def off_diagonal(size: int) -> NDArray[np.bool_]:
    """Flag which of the `size` entries of an upper triangle, taken row by row, are off the diagonal."""
    upper, right = np.triu_indices((math.isqrt(8 * size + 1) - 1) // 2)
    return np.asarray(upper != right)


def draw_noise(shapes: Blocks, noise: Noise, seed: int | list[int]) -> dict[str, Floats]:
    """Draw seeded Gaussian noise in the shapes of a released sum, for simulations, never for protection."""
    generator = np.random.default_rng(seed)
    found = {name: generator.normal(0, noise[name].sigma, np.shape(block)) for name, block in shapes.items()}
    for name, entries in found.items():
        if noise[name].triangle:
            _scale_off_diagonal(entries.reshape(-1), math.sqrt(0.5))
    return found


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Normal distributions of K classes (or parts): means (K, d), one covariance as eigenvalues and eigenvectors."""

    means: Floats = field(repr=False)
    values: Floats = field(repr=False)
    vectors: Floats = field(repr=False)

    def log_likelihood(self, records: AuditRecords) -> Floats:
        """Compute each record's log density (n,) under its own class's (or part's) distribution, up to a constant."""
        centred = (records.integers - self.means[records.cells]) @ self.vectors
        return np.asarray(-0.5 * (centred**2 / self.values).sum(axis=1))


def fit(blocks: Blocks, noise: Noise | None = None, like: Gaussians | None = None) -> Gaussians:
    """Estimate the mean of each class (or part of one), and the covariance within them, from a released sum.

    A release without second moment has no covariance: that of `like` is taken, or the identity. A ridge of 10⁻³ of the
    mean eigenvalue, and of half the spectral norm of B's noise, σ√d/√2 (`heads.discriminant`), keeps it definite.
    Counts are taken as 1 at least.
    """
    sums = np.asarray(blocks["class_sums"], dtype=np.float64)
    counts = np.maximum(np.asarray(blocks["counts"], dtype=np.float64), 1.0)
    means, dimension = sums / counts[:, None], sums.shape[1]
    if "second_moment" not in blocks:
        values = np.ones(dimension) if like is None else like.values
        return Gaussians(means, values, np.eye(dimension) if like is None else like.vectors)
    scaled = sums / np.sqrt(counts)[:, None]
    within = full_matrix(blocks["second_moment"], dimension) - scaled.T @ scaled
    values, vectors = eigh(within / counts.sum())
    edge = noise["second_moment"].sigma * np.sqrt(dimension / 2) / counts.sum() if noise is not None else 0.0
    values = np.maximum(values, 0.0)
    return Gaussians(means, values + RIDGE * max(values.mean(), 1.0) + edge, vectors)


def outside_range(records: AuditRecords, blocks: Blocks) -> Floats:
    """Compute the fraction of each record's length (n,) outside the second moment's range; 0 for a summed record.

    Says something for fewer records than features; a record that was not summed is inside with probability 0.
    """
    rows = records.integers.astype(np.float64)
    count = round(float(np.sum(blocks["counts"])))
    _, vectors = eigh(full_matrix(blocks["second_moment"], rows.shape[1]))
    span = vectors[:, max(0, rows.shape[1] - count) :]
    rest = rows - (rows @ span) @ span.T
    return np.asarray(np.linalg.norm(rest, axis=1) / np.maximum(np.linalg.norm(rows, axis=1), 1.0))
