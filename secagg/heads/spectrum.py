"""Eigenvalues of a symmetric matrix under Gaussian noise of known strength."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

Matrix = NDArray[np.float64]


def denoise(matrix: Matrix, sigma: float) -> tuple[NDArray[np.float64], Matrix]:
    """Return (ξ, V): estimated eigenvalues ≥ 0, ascending (d,), and the noisy eigenvectors V (d, d), in columns.

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
    """Half the spectral norm of the noise, σ√d (Wigner: its eigenvalues fill [−2σ√d, 2σ√d])."""
    return float(sigma * np.sqrt(dimension))
