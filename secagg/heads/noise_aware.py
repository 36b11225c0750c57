"""The discriminant head from a release under differential privacy: post-processing with the known noise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import Grid
from secagg.heads.discriminant import within_scatter
from secagg.heads.linear import LinearHead
from secagg.heads.opened_moments import Matrix, Release, ReleaseNoise, read_release
from secagg.heads.spectrum import denoise, edge

RIDGE = 0.6
"""The ridge in units of σ√d, which is half the spectral norm of the second moment's noise."""


def noise_aware_discriminant(aggregate: Mapping[str, NDArray[np.int64]], grid: Grid, noise: ReleaseNoise) -> LinearHead:
    """Return the head for records of length 1, that is for (f − c)/‖f − c‖ and not for f.

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


def gaussian_classifier(release: Release) -> tuple[Matrix, NDArray[np.float64]]:
    """Return the weights (C, d) and biases (C,) for records of length 1."""
    counts, sums = release.counts, release.class_sums
    means, centre = sums / counts[:, None], sums.sum(axis=0) / release.total
    values, vectors = denoise(unbiased_scatter(release), release.moment_sigma)
    spectrum = (values + RIDGE * edge(len(values), release.moment_sigma)) / release.total
    weight = ((means - centre) @ vectors / spectrum) @ vectors.T
    bias = np.log(counts / release.total) - 0.5 * np.einsum("jd,jd->j", means + centre, weight)
    return weight, bias


def unbiased_scatter(release: Release) -> Matrix:
    """Return the scatter within classes, n times their common covariance, unbiased by the noise of A."""
    within = within_scatter(release.second_moment, release.class_sums, release.counts)
    within[np.diag_indices(len(within))] += release.sums_sigma**2 * (1 / release.counts).sum()
    return within
