"""One noisy release of (N, A, B) in units of unit-length records, with what is known of its noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import Grid, full_matrix
from secagg.errors import BadInput

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class ReleaseNoise:
    """Standard deviation of the noise in the opened sum, in integers as they were summed.

    `second_moment` holds on B's diagonal; off the diagonal it is that over √2. The opened counts are
    `count_multiplier` times the records, and `counts` is the noise on them as opened.
    """

    counts: float
    class_sums: float
    second_moment: float
    count_multiplier: int = 1

    def __post_init__(self) -> None:
        sigmas = (self.counts, self.class_sums, self.second_moment)
        if not all(math.isfinite(sigma) and sigma > 0 for sigma in sigmas) or self.count_multiplier < 1:
            raise BadInput(f"noise {sigmas} with the multiplier {self.count_multiplier}", remedy="every σ is above 0")


@dataclass(frozen=True, eq=False)
class Release:
    """Estimates from one release of records of length 1.

    `counts` (C,) all ≥ 1; `class_sums` A (C, d); `second_moment` B (d, d) symmetric, with the noise as it was
    opened: `sums_sigma` per entry of A, `moment_sigma` per entry of B off its diagonal.
    """

    counts: Vector
    class_sums: Matrix
    second_moment: Matrix
    sums_sigma: float
    moment_sigma: float

    @property
    def total(self) -> float:
        """The number of records n."""
        return float(self.counts.sum())

    @property
    def mean(self) -> Vector:
        """The mean record (d,), not longer than 1, which no mean of records of length 1 is."""
        return _cut(self.class_sums.sum(axis=0) / self.total)

    @property
    def shrunk_mean(self) -> Vector:
        """The mean shrunk towards zero by what of it is noise (James & Stein 1961, positive part), not longer than 1.

        ΣA_j has the noise C·d·σ_A² in all: where it is no longer than that, the mean is taken for zero, whereas of
        few records `mean` is noise of length 1.
        """
        summed = self.class_sums.sum(axis=0)
        noise = self.class_sums.size * self.sums_sigma**2
        return _cut(summed / self.total * (1.0 - noise / max(float(summed @ summed), noise)))


def _cut(mean: Vector) -> Vector:
    cut: Vector = mean / max(1.0, float(np.linalg.norm(mean)))
    return cut


def read_release(aggregate: Mapping[str, NDArray[np.int64]], grid: Grid, noise: ReleaseNoise) -> Release:
    """Turn the opened blocks `counts`, `class_sums` and `second_moment` (grid units) into a `Release`."""
    unit = grid.unit(aggregate["class_sums"].shape[1])
    sums = aggregate["class_sums"].astype(np.float64) / unit
    moment = full_matrix(aggregate["second_moment"], sums.shape[1]) / unit**2
    sums_sigma, moment_sigma = noise.class_sums / unit, noise.second_moment / unit**2
    counts_sigma = noise.counts / noise.count_multiplier
    raw = aggregate["counts"].astype(np.float64) / noise.count_multiplier
    total = _total(raw, counts_sigma, float(np.trace(moment)), len(moment) * moment_sigma**2)
    squared = np.einsum("jd,jd->j", sums, sums) - sums.shape[1] * sums_sigma**2
    least = np.sqrt(np.maximum(squared, 1.0))
    counts = np.maximum(_shrink(raw, counts_sigma, total), least)
    return Release(counts, sums, moment, sums_sigma, moment_sigma / math.sqrt(2))


def _total(raw: Vector, sigma: float, trace: float, trace_variance: float) -> float:
    """Weigh ΣN and tr(B), two unbiased views of n as every record has length 1, by their precision."""
    precisions = np.array([1 / (len(raw) * sigma**2), 1 / trace_variance])
    total = float(np.array([raw.sum(), trace]) @ precisions / precisions.sum())
    return max(total, float(len(raw)))


def _shrink(raw: Vector, sigma: float, total: float) -> Vector:
    """Shrink the counts towards n/C (James & Stein 1961 with Lindley's mean, positive part; C ≥ 4).

    A class far below its neighbours keeps its distance; counts within the noise of each other become equal.
    """
    deviation = raw - raw.mean()
    spread = float(deviation @ deviation)
    loss = max(len(raw) - 3, 0) * sigma**2
    kept = 0.0 if spread <= loss else 1 - loss / spread
    shrunk: Vector = total / len(raw) + kept * deviation
    return shrunk
