"""Heads in closed form from sums, exact or noisy: the linear discriminant (FedCGS Eq. 9–11, corrected), class means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from secagg.encoding import Grid, full_matrix
from secagg.errors import BadInput
from secagg.heads.linear import ABSENT_BIAS, LinearHead
from secagg.privacy import OpenedNoise

Covariance = Literal["within", "total"]
RIDGE = 1e-3
"""Default γ of an exact covariance, to which γ·tr(Σ)/d is added; under noise the ridge is `NOISY_RIDGE`."""


def discriminant(
    aggregate: Mapping[str, NDArray[np.int64]], grid: Grid, *, covariance: Covariance = "within", ridge: float = RIDGE
) -> LinearHead:
    """Return the linear discriminant, a Gaussian classifier with one shared covariance, in feature (not grid) units.

    `aggregate` holds `counts` N (C,), `class_sums` A (C, d), `second_moment` B (upper triangle), in grid units.
    μ_j = A_j/N_j, m = Σ A_j/N, and the covariance is
      within  Σ = (B − Σ_j A_j A_jᵀ/N_j)/(N − C), C the classes with records: what Eq. 9 assumes;
      total   Σ = (B − N m mᵀ)/(N − 1): the paper's Eq. 7.
    With S = Σ + γ·tr(Σ)/d·I (`ridge` γ ≥ 0), w_j = S⁻¹(μ_j − m) and b_j = log(N_j/N) − ½(μ_j + m)ᵀw_j.
    That is Eq. 10 (whose b_j needs Σ⁻¹, not the Σ that Eq. 11 prints) less the same amount in every class, so
    the decisions are Eq. 10's; centring keeps the weights small where Σ is nearly singular and makes
    the head independent of the grid's centre. A class without records is left out (see `LinearHead`).
    Raises BadInput when the records are too few or all alike, or S is not positive definite.
    """
    if covariance not in ("within", "total") or not (np.isfinite(ridge) and ridge >= 0):
        raise BadInput(f"covariance {covariance!r} with ridge {ridge}", remedy="give within or total, and a ridge ≥ 0")
    counts = aggregate["counts"].astype(np.float64)
    present = counts > 0
    if (counts < 0).any() or counts.sum() <= present.sum():
        remedy = "the head needs more records than classes"
        raise BadInput(f"the sum holds {int(counts.sum())} records of {int(present.sum())} classes", remedy=remedy)
    sums = aggregate["class_sums"][present].astype(np.float64)
    counts = counts[present]
    moment = full_matrix(aggregate["second_moment"], sums.shape[1])
    if covariance == "within":
        sigma = within_scatter(moment, sums, counts) / (counts.sum() - len(counts))
    else:
        total = sums.sum(axis=0)
        sigma = (moment - np.outer(total, total) / counts.sum()) / (counts.sum() - 1)
    means = sums / counts[:, None]
    centre = sums.sum(axis=0) / counts.sum()
    sigma[np.diag_indices(len(sigma))] += ridge * np.trace(sigma) / len(sigma)
    try:
        weight = cho_solve(cho_factor(sigma, check_finite=False), (means - centre).T, check_finite=False).T
    except LinAlgError as error:
        remedy = "raise --ridge, or use more records than features"
        raise BadInput("the covariance is not positive definite", remedy=remedy) from error
    bias = np.log(counts / counts.sum()) - 0.5 * np.einsum("jd,jd->j", means + centre, weight)
    return in_feature_units(weight, bias, present, grid)


def within_scatter(moment: Matrix, sums: Matrix, counts: NDArray[np.float64]) -> Matrix:
    """Return the within-class scatter B − Σ_j A_j A_jᵀ/N_j (d, d) of `moment` B, class `sums` A and `counts` N > 0."""
    scaled = sums / np.sqrt(counts)[:, None]
    scatter: Matrix = moment - scaled.T @ scaled
    return scatter


def nearest_mean(
    aggregate: Mapping[str, NDArray[np.int64]], grid: Grid, noise: Mapping[str, OpenedNoise] | None
) -> LinearHead:
    """Return the head that predicts the nearest class mean μ_j: weights w_j = μ_j, biases b_j = −½‖μ_j‖².

    Under noise counts are taken as at least 1, so that no mean is longer than its sum.
    Raises BadInput when no class has records.
    """
    multiplier = noise["counts"].multiplier if noise is not None else 1
    counts = aggregate["counts"] / multiplier
    present = counts > 0 if noise is None else np.ones(len(counts), dtype=np.bool_)
    if not present.any():
        raise BadInput("the sum holds no record", remedy="the head needs one class at least")
    unit = grid.unit(aggregate["class_sums"].shape[1]) / grid.radius
    means = aggregate["class_sums"] / unit / np.maximum(counts, 1.0)[:, None]
    offset = 0.0 if grid.is_normalised else grid.centre
    weight, bias = means, -0.5 * (means * means).sum(axis=1) - offset * means.sum(axis=1)
    return LinearHead(
        np.where(present[:, None], weight, 0.0).astype(np.float32),
        np.where(present, bias, ABSENT_BIAS).astype(np.float32),
    )


def in_feature_units(weight: Matrix, bias: NDArray[np.float64], present: NDArray[np.bool_], grid: Grid) -> LinearHead:
    """Return the head in feature units, from weights and biases in quantisation units of the classes `present` (C,).

    It undoes the grid as the last step: q = (f − c)/step, or q = g·unit for normalised g, which the head then takes.
    """
    scaled = weight / (grid.radius / grid.unit(weight.shape[1]))
    full_weight = np.zeros((len(present), weight.shape[1]), dtype=np.float32)
    full_bias = np.full(len(present), ABSENT_BIAS, dtype=np.float32)
    with np.errstate(over="ignore"):
        full_weight[present] = scaled
        full_bias[present] = bias - (0.0 if grid.is_normalised else grid.centre) * scaled.sum(axis=1)
    return LinearHead(full_weight, full_bias)


Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class ReleaseNoise:
    """Standard deviations of the noise in an opened sum, in units of the summed integers.

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
class DiscriminantRelease:
    """Estimates of class counts, class sums and second moment from one noisy sum over records of L2 norm 1.

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
        """The estimated number of records n."""
        return float(self.counts.sum())

    @property
    def mean(self) -> Vector:
        """The mean record (d,), scaled down to norm 1 where noise made it longer than a mean of unit vectors can be."""
        return _cut(self.class_sums.sum(axis=0) / self.total)

    @property
    def shrunk_mean(self) -> Vector:
        """The mean record, shrunk towards zero by its share of noise (James & Stein 1961, positive part), of norm ≤ 1.

        ΣA_j has the noise C·d·σ_A² in all: where it is no longer than that, the mean is taken for zero, whereas of
        few records `mean` is noise of length 1.
        """
        summed = self.class_sums.sum(axis=0)
        noise = self.class_sums.size * self.sums_sigma**2
        return _cut(summed / self.total * (1.0 - noise / max(float(summed @ summed), noise)))


def _cut(mean: Vector) -> Vector:
    cut: Vector = mean / max(1.0, float(np.linalg.norm(mean)))
    return cut


def read_release(aggregate: Mapping[str, NDArray[np.int64]], grid: Grid, noise: ReleaseNoise) -> DiscriminantRelease:
    """Estimate counts, class sums and second moment (`DiscriminantRelease`) from their opened blocks in grid units."""
    unit = grid.unit(aggregate["class_sums"].shape[1])
    sums = aggregate["class_sums"].astype(np.float64) / unit
    moment = full_matrix(aggregate["second_moment"], sums.shape[1]) / unit**2
    sums_sigma, moment_sigma = noise.class_sums / unit, noise.second_moment / unit**2
    counts_sigma = noise.counts / noise.count_multiplier
    raw = aggregate["counts"].astype(np.float64) / noise.count_multiplier
    # ΣN and tr(B), two unbiased views of n as every record has length 1, by their precision.
    precisions = np.array([1 / (len(raw) * counts_sigma**2), 1 / (len(moment) * moment_sigma**2)])
    views = np.array([raw.sum(), float(np.trace(moment))])
    total = max(float(views @ precisions / precisions.sum()), float(len(raw)))
    squared = np.einsum("jd,jd->j", sums, sums) - sums.shape[1] * sums_sigma**2
    least = np.sqrt(np.maximum(squared, 1.0))
    counts = np.maximum(_shrink(raw, counts_sigma, total), least)
    return DiscriminantRelease(counts, sums, moment, sums_sigma, moment_sigma / math.sqrt(2))


def _shrink(raw: Vector, sigma: float, total: float) -> Vector:
    """Return the counts shrunk towards n/C (James & Stein 1961 with Lindley's mean, positive part; C ≥ 4).

    A class far below its neighbours keeps its distance; counts within the noise of each other become equal.
    """
    deviation = raw - raw.mean()
    spread = float(deviation @ deviation)
    loss = max(len(raw) - 3, 0) * sigma**2
    kept = 0.0 if spread <= loss else 1 - loss / spread
    shrunk: Vector = total / len(raw) + kept * deviation
    return shrunk


NOISY_RIDGE = 0.6
"""The ridge added to a noisy scatter's denoised spectrum, in units of σ√d (`edge`): half the noise's spectral norm."""


def denoise(matrix: Matrix, sigma: float) -> tuple[NDArray[np.float64], Matrix]:
    """Return denoised eigenvalues ξ ≥ 0, ascending (d,), and eigenvectors V (d, d), in columns, of a noisy matrix.

    `matrix` (d, d) is S + E, S positive semi-definite and E symmetric with standard deviation `sigma` > 0 off
    the diagonal (√2·sigma on it), in the unit of the matrix. V diag(ξ) Vᵀ is the rotation-invariant estimator
    of Bun, Allez, Bouchaud & Potters 2016 (additive noise), the best in Frobenius norm that keeps V:
    ξ_i = λ_i − 2σ²d·Re g(λ_i − iη), g(z) = (1/d) Σ_j 1/(z − λ_j), with η = σ, one mean level spacing of the
    noise. Pure noise gives ξ ≈ 0 where clipping at 0 would keep half of it. The finite sum is not monotone:
    ξ is its isotonic regression, then clipped at 0.
    """
    from scipy.optimize import isotonic_regression

    values, vectors = eigh(matrix)
    gap = values[:, None] - values[None, :]
    repulsion = (gap / (gap * gap + sigma * sigma)).sum(axis=1)
    shrunk = isotonic_regression(values - 2 * sigma * sigma * repulsion).x
    return np.maximum(shrunk, 0.0), vectors


def edge(dimension: int, sigma: float) -> float:
    """Return half the spectral norm of a symmetric noise matrix, σ√d (Wigner: eigenvalues fill [−2σ√d, 2σ√d])."""
    return float(sigma * np.sqrt(dimension))


def noise_aware_discriminant(aggregate: Mapping[str, NDArray[np.int64]], grid: Grid, noise: ReleaseNoise) -> LinearHead:
    """Return the linear discriminant from noisy sums, for records of L2 norm 1: (f − c)/‖f − c‖ in place of features f.

    `aggregate` holds the opened `counts` N (C,), `class_sums` A (C, d) and `second_moment` B (upper triangle),
    of records that were made to have the length R = `grid.levels` steps; `noise` is the noise on them. Only
    the release, its σ and the fact that ‖q‖ = R are used, so the head costs no privacy:
      N_j  shrunk towards n/C, n from ΣN and tr(B) together, and N_j ≥ ‖A_j‖, ≥ 1 (`read_release`);
      Σ    V diag(ξ + 0.6 σ√d) Vᵀ/n with ξ, V the denoised spectrum of B − Σ A_j A_jᵀ/N_j + Σ_j (σ_A²/N_j) I,
           the last term being what A's own noise subtracts on average (`denoise`), σ that of B off its diagonal;
      w_j = Σ⁻¹(μ_j − m), b_j = log(N_j/n) − ½(μ_j + m)ᵀw_j, μ_j = A_j/N_j, m = Σ A_j/n  (FedCGS Eq. 9–10).
    No class counts as absent: under noise nobody can tell.
    """
    release = read_release(aggregate, grid, noise)
    weight, bias = gaussian_classifier(release)
    return LinearHead(weight.astype(np.float32), bias.astype(np.float32))


def gaussian_classifier(release: DiscriminantRelease) -> tuple[Matrix, NDArray[np.float64]]:
    """Return weights (C, d) and biases (C,) of a Gaussian classifier of denoised covariance, for records of norm 1."""
    counts, sums = release.counts, release.class_sums
    means, centre = sums / counts[:, None], sums.sum(axis=0) / release.total
    values, vectors = denoise(unbiased_scatter(release), release.moment_sigma)
    spectrum = (values + NOISY_RIDGE * edge(len(values), release.moment_sigma)) / release.total
    weight = ((means - centre) @ vectors / spectrum) @ vectors.T
    bias = np.log(counts / release.total) - 0.5 * np.einsum("jd,jd->j", means + centre, weight)
    return weight, bias


def unbiased_scatter(release: DiscriminantRelease) -> Matrix:
    """Return the within-class scatter, n times the shared covariance, free of the bias from noise in class sums."""
    within = within_scatter(release.second_moment, release.class_sums, release.counts)
    within[np.diag_indices(len(within))] += release.sums_sigma**2 * (1 / release.counts).sum()
    return within
