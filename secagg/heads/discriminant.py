"""The linear discriminant head from counts, class sums and second moment (FedCGS Eq. 9–11, corrected)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from secagg.encoding import Grid, full_matrix
from secagg.errors import BadInput
from secagg.heads.linear import ABSENT_BIAS, LinearHead

Covariance = Literal["within", "total"]
RIDGE = 1e-3
"""Default γ: the ridge is γ·tr(Σ)/d."""

Matrix = NDArray[np.float64]


def discriminant(
    aggregate: Mapping[str, NDArray[np.int64]], grid: Grid, *, covariance: Covariance = "within", ridge: float = RIDGE
) -> LinearHead:
    """Return the head of the Gaussian classifier with one shared covariance, for features (not grid units).

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
        sigma = _total(moment, sums, counts)
    means = sums / counts[:, None]
    centre = sums.sum(axis=0) / counts.sum()
    weight = _solve(sigma, (means - centre).T, ridge).T
    bias = np.log(counts / counts.sum()) - 0.5 * np.einsum("jd,jd->j", means + centre, weight)
    return in_feature_units(weight, bias, present, grid)


def within_scatter(moment: Matrix, sums: Matrix, counts: NDArray[np.float64]) -> Matrix:
    """Return B − Σ_j A_j A_jᵀ/N_j (d, d), for counts above 0."""
    scaled = sums / np.sqrt(counts)[:, None]
    scatter: Matrix = moment - scaled.T @ scaled
    return scatter


def _total(moment: Matrix, sums: Matrix, counts: NDArray[np.float64]) -> Matrix:
    total = sums.sum(axis=0)
    covariance: Matrix = (moment - np.outer(total, total) / counts.sum()) / (counts.sum() - 1)
    return covariance


def _solve(sigma: Matrix, right: Matrix, ridge: float) -> Matrix:
    """Solve (Σ + γ·tr(Σ)/d·I) x = right by Cholesky."""
    dimension = len(sigma)
    sigma[np.diag_indices(dimension)] += ridge * np.trace(sigma) / dimension
    try:
        solution: Matrix = cho_solve(cho_factor(sigma, check_finite=False), right, check_finite=False)
    except LinAlgError as error:
        remedy = "raise --ridge, or use more records than features"
        raise BadInput("the covariance is not positive definite", remedy=remedy) from error
    return solution


def in_feature_units(weight: Matrix, bias: NDArray[np.float64], present: NDArray[np.bool_], grid: Grid) -> LinearHead:
    """Return the head for features of one for q, of weights and biases of the classes `present` (C,); others are out.

    It undoes the grid as the last step: q = (f − c)/step, or q = g·unit for normalised g, which the head then takes.
    """
    scaled = weight / (grid.radius / grid.unit(weight.shape[1]))
    full_weight = np.zeros((len(present), weight.shape[1]), dtype=np.float32)
    full_bias = np.full(len(present), ABSENT_BIAS, dtype=np.float32)
    with np.errstate(over="ignore"):
        full_weight[present] = scaled
        full_bias[present] = bias - (0.0 if grid.is_normalised else grid.centre) * scaled.sum(axis=1)
    return LinearHead(full_weight, full_bias)
