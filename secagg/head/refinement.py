"""Refinement rounds under differential privacy: a softmax head from noisy sums of clipped gradients.

The rounds run in a geometry that the one-shot release has already paid for: records are recentred, whitened by
the noisy second moment and made equally long before they are clipped (features of known covariance: Mehta et
al. 2023), so that Gaussian noise weighs equally in every direction and plain gradient steps are preconditioned.
Everything here is a deterministic function of releases and public numbers; clients can recompute it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.head.linear import LinearHead, Recentring
from secagg.head.noise_aware import gaussian_classifier
from secagg.head.opened_moments import Matrix, Release, ReleaseNoise, read_release
from secagg.head.spectrum import denoise, edge
from secagg.statistics import Grid
from secagg.statistics.softmax_gradient import EXACT, RESIDUAL_LEVELS, WEIGHT_BITS, Whitening

ONE_SHOT_SHARE = 0.5
"""The one-shot release's share of μ²; the rounds divide the rest evenly."""
CLIP = 0.5
"""Longest residual ‖p − e‖₂: records count alike until their label has about two thirds of the probability."""
STEP = 6.0
"""Largest step, in units of the inverse Hessian's scale D."""
RIDGE = 0.5
"""Added to the denoised second moment before whitening, in units of σ√d."""
MAX_WEIGHT = 2.0**20


@dataclass(frozen=True, eq=False)
class Refinement:
    """Where the rounds happen: `whitening` maps records (n, d) to (n, D), D = d + 1; `total` is the released n.

    `start` (C, D) are the weights of the one-shot head on mapped records of length 1.
    """

    whitening: Whitening
    start: Matrix
    total: float


def begin(aggregate: Mapping[str, NDArray[np.int64]], grid: Grid, noise: ReleaseNoise) -> Refinement:
    """Derive the geometry and the starting weights from the one-shot release (see `noise_aware_discriminant`).

    With m = Σ A_j/n and ξ, V the denoised spectrum of B − n m mᵀ: M = V diag((ξ + 0.5σ√d)/n)^(−1/2) Vᵀ/√d maps
    q/R − m to vectors of mean square length ≤ 1, and x/R_x = (√(d/D) (q/R − m)M/‖(q/R − m)M‖, 1/√D).
    The one-shot scores w·q/R + b become those of (√(D/d) M⁻¹w, √D (b + w·m)) as long as that norm is near 1.
    """
    release = read_release(aggregate, grid, noise)
    weight, bias = gaussian_classifier(release)
    dimension, mean = weight.shape[1], release.mean
    root, vectors = _root(release)
    matrix = (vectors / root) @ vectors.T
    unwhitened = (weight @ vectors * root) @ vectors.T * math.sqrt((dimension + 1) / dimension)
    start = np.column_stack([unwhitened, (bias + weight @ mean) * math.sqrt(dimension + 1)])
    return Refinement(_integers(matrix, mean, grid), start, release.total)


def _root(release: Release) -> tuple[NDArray[np.float64], Matrix]:
    """Return the eigenvalues (d,) of M⁻¹ and its eigenvectors (d, d)."""
    mean = release.mean
    moment = release.second_moment - release.total * np.outer(mean, mean)
    values, vectors = denoise(moment, release.moment_sigma)
    ridge = RIDGE * edge(len(values), release.moment_sigma)
    return np.sqrt((values + ridge) / release.total * len(values)), vectors


def _integers(matrix: Matrix, mean: NDArray[np.float64], grid: Grid) -> Whitening:
    """Scale M by the largest power of two that keeps ‖q‖·‖column‖ and the centre below 2⁵¹ each (‖m‖ ≤ 1)."""
    longest = grid.levels * float(np.sqrt((matrix * matrix).sum(axis=0)).max())
    scale = 2.0 ** math.floor(math.log2(EXACT / 8 / longest))
    scaled = np.rint(matrix * scale)
    centre = np.rint(grid.unit(len(mean)) * (mean @ scaled))
    return Whitening(scaled.astype(np.int64), centre.astype(np.int64), grid.levels)


def step(weights: Matrix, gradient: NDArray[np.int64], sigma: float, refinement: Refinement, rounds: int) -> Matrix:
    """Return the next weights (C, D) from one opened sum of `softmax_gradient` (C, D) at the present `weights`.

    `sigma` is the noise on each entry of the sum, in its integers. With G the gradient in real units and s the
    noise in these, U ← U − η (D/n) G, η = min(6, n/(D s √k)). D/n is the inverse of the whitened second moment.
    The second bound keeps the noise of all k = `rounds` steps below one unit (standard deviation) in a
    record's logit, so that few records or a small ε leave the head near where it started.
    """
    if not (math.isfinite(sigma) and sigma > 0) or rounds < 1 or gradient.shape != weights.shape:
        raise BadInput(f"a gradient {gradient.shape} with noise {sigma} in {rounds} rounds for {weights.shape}")
    unit = CLIP / (RESIDUAL_LEVELS * refinement.whitening.levels)
    size = refinement.total / weights.shape[1]
    eta = min(STEP, size / (sigma * unit * math.sqrt(rounds)))
    moved: Matrix = weights - eta / size * unit * gradient
    return moved


def integer_weights(weights: Matrix) -> NDArray[np.int64]:
    """Return weights (C, D) in units of 2⁻¹⁶, as they are broadcast; beyond ±2²⁰ they are cut."""
    integers: NDArray[np.int64] = np.rint(np.clip(weights, -MAX_WEIGHT, MAX_WEIGHT) * 2**WEIGHT_BITS).astype(np.int64)
    return integers


def refined_head(weights: Matrix, refinement: Refinement, grid: Grid) -> LinearHead:
    """Return the head for records of length 1, recentred and whitened like the integers of the rounds."""
    whitening = refinement.whitening
    unit = grid.unit(len(whitening.centre))
    largest = float(np.abs(whitening.matrix).max(initial=1))
    recentring = Recentring(
        (whitening.matrix / largest).astype(np.float32), (whitening.centre / (largest * unit)).astype(np.float32)
    )
    bias = weights[:, -1] * (whitening.bias / whitening.levels)
    return LinearHead(weights[:, :-1].astype(np.float32), bias.astype(np.float32), recentring)
