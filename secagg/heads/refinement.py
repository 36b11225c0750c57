"""Refinement rounds: a softmax classifier trained by sums of clipped gradients, noisy under differential privacy.

The rounds run in a geometry that the first sum has already paid for: records are recentred, whitened by the noisy
second moment and made equally long before they are clipped (features of known covariance: Mehta et al. 2023), so that
Gaussian noise weighs equally in every direction and plain gradient steps are preconditioned. How μ² is divided, the
clip, the ridge in units of the noise and the number of rounds are constants; all else is a deterministic function of
releases and public numbers: clients can recompute it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import Grid
from secagg.encoding.softmax_gradient import EXACT, RESIDUAL_LEVELS, WEIGHT_BITS, Whitening
from secagg.errors import BadInput
from secagg.heads.discriminant import (
    DiscriminantRelease,
    Matrix,
    ReleaseNoise,
    Vector,
    denoise,
    edge,
    gaussian_classifier,
    read_release,
)
from secagg.heads.linear import LinearHead, Recentring

FIRST_SHARE = 0.2
"""The first sum's share of μ²; the rounds divide the rest evenly."""
FIRST_SHARES: Mapping[str, float] = {"counts": 0.1, "class_sums": 0.25, "second_moment": 0.65}
"""The blocks' shares of it. Rounds need only the second moment's large eigenvalues, and of class sums only the mean."""
CLIP = 0.5
"""Longest residual ‖p − e‖₂: records weigh alike until their label has about two thirds of the probability."""
WHITENING_RIDGE = 0.3
"""The ridge of the noisy second moment's denoised spectrum before whitening, in units of σ√d, as `NOISY_RIDGE`."""
EXPONENT = 0.45
"""The exponent of whitening: a bit less than ½, which makes all directions alike, as the large ones are less noise."""
EXACT_RIDGE = 0.5
"""The ridge before whitening for exact sums."""
ONE_GRID_STEP = ReleaseNoise(1.0, 1.0, 1.0)
"""A stand-in for the noise of exact sums, for rules that divide by σ."""
MAX_WEIGHT = 2.0**20


@dataclass(frozen=True)
class _Pace:
    """The length of a round's step: at most `longest` in units of the inverse Hessian, with heavy-ball `momentum` β.

    β keeps that share of the move before; a gradient then acts 1/(1 − β) times, for which the steps are shorter.
    """

    longest: float
    momentum: float = 0.0


EXACT_PACE = _Pace(6.0)
NOISY_PACE = _Pace(20.0, momentum=0.5)


@dataclass(frozen=True, eq=False)
class Refinement:
    """The start of refinement rounds: `whitening`, from records (n, d) to (n, D = d + 1), and first weights (C, D).

    `scale` is the mapped records' second moment in each direction that they fill, in records: n/d_eff.
    """

    whitening: Whitening
    start: Matrix
    scale: float


def begin(aggregate: Mapping[str, NDArray[np.int64]], grid: Grid, noise: ReleaseNoise) -> Refinement:
    """Return the start of refinement rounds from a noisy first sum: the whitening of records, and weights of zero.

    With m the shrunk mean (`DiscriminantRelease.shrunk_mean`), ξ, V the denoised spectrum of B − n m mᵀ and ρ = 0.3σ√d:
    M = V diag(n/(ξ + ρ))^0.45 Vᵀ, x/R_x = (√(d/D) (q/R − m)M/‖(q/R − m)M‖, 1/√D). What lies below the ridge stays as
    small as it is, so that mapped records fill d_eff = Σ e_i/max e directions, e = ξ/(ξ + ρ)^0.9, and not all D.
    """
    release = read_release(aggregate, grid, noise)
    values, vectors = _spectrum(release, release.shrunk_mean)
    stretched = (values + WHITENING_RIDGE * edge(len(values), release.moment_sigma)) ** EXPONENT
    energies = values / stretched**2
    filled = float(energies.sum() / energies.max()) if energies.max() > 0 else 1.0
    start = np.zeros((len(release.counts), len(values) + 1))
    whitening = _integers((vectors / stretched) @ vectors.T, release.shrunk_mean, grid)
    return Refinement(whitening, start, release.total / filled)


def begin_exact(aggregate: Mapping[str, NDArray[np.int64]], grid: Grid) -> Refinement:
    """Return the start of refinement rounds from a first sum without noise: the whitening, and first weights.

    M = V diag((ξ + ρ)/n)^(−1/2) Vᵀ/√d maps q/R − m to vectors of mean square length ≤ 1. The start are the scores
    w·q/R + b of the one-shot head (`gaussian_classifier`), which of mapped records are those of
    (√(D/d) M⁻¹w, √D (b + w·m)), as long as that norm is near 1.
    """
    release = read_release(aggregate, grid, ONE_GRID_STEP)
    mean, (weight, bias) = release.mean, gaussian_classifier(release)
    dimension = len(mean)
    values, vectors = _spectrum(release, mean)
    ridge = EXACT_RIDGE * edge(dimension, release.moment_sigma)
    root = np.sqrt((values + ridge) / release.total * dimension)
    unwhitened = (weight @ vectors * root) @ vectors.T * math.sqrt((dimension + 1) / dimension)
    start = np.column_stack([unwhitened, (bias + weight @ mean) * math.sqrt(dimension + 1)])
    whitening = _integers((vectors / root) @ vectors.T, mean, grid)
    return Refinement(whitening, start, release.total / (dimension + 1))


def _spectrum(release: DiscriminantRelease, mean: Vector) -> tuple[Vector, Matrix]:
    """Return the denoised eigenvalues (d,) of B − n m mᵀ, and the eigenvectors (d, d)."""
    moment = release.second_moment - release.total * np.outer(mean, mean)
    return denoise(moment, release.moment_sigma)


def _integers(matrix: Matrix, mean: NDArray[np.float64], grid: Grid) -> Whitening:
    """Scale M by the largest power of two that keeps ‖q‖·‖column‖ and the centre below 2⁵¹ each (‖m‖ ≤ 1)."""
    longest = grid.levels * float(np.sqrt((matrix * matrix).sum(axis=0)).max())
    scale = 2.0 ** math.floor(math.log2(EXACT / 8 / longest))
    scaled = np.rint(matrix * scale)
    centre = np.rint(grid.unit(len(mean)) * (mean @ scaled))
    return Whitening(scaled.astype(np.int64), centre.astype(np.int64), grid.levels)


def step(
    weights: Matrix,
    before: Matrix,
    gradient: NDArray[np.int64],
    sigma: float,
    refinement: Refinement,
    rounds: int,
    pace: _Pace,
) -> Matrix:
    """Return the weights (C, D) after one gradient step, from an opened sum of `softmax_gradient` (C, D) at `weights`.

    `before` are the weights of the round before, in the first the present ones. `sigma` is the noise on each entry of
    the sum, in its integers. With G the gradient in real units, s the noise in these and β the momentum:
    U ← U − η G/scale + β(U − U_before), η = (1 − β)·min(longest, scale/(s√k)). 1/`scale` is the inverse of the whitened
    second moment. The second bound keeps the noise of all k = `rounds` steps below one unit (standard deviation) in a
    record's logit, so that few records or a small ε leave the head near where it started.
    """
    if not (math.isfinite(sigma) and sigma > 0) or rounds < 1 or not gradient.shape == weights.shape == before.shape:
        raise BadInput(f"a gradient {gradient.shape} with noise {sigma} in {rounds} rounds for {weights.shape}")
    unit = CLIP / (RESIDUAL_LEVELS * refinement.whitening.levels)
    size = refinement.scale
    eta = (1 - pace.momentum) * min(pace.longest, size / (sigma * unit * math.sqrt(rounds)))
    moved: Matrix = weights - eta / size * unit * gradient + pace.momentum * (weights - before)
    return moved


def integer_weights(weights: Matrix) -> NDArray[np.int64]:
    """Convert weights (C, D) to the integers that are broadcast to clients, in units of 2⁻¹⁶ and clipped to ±2²⁰."""
    integers: NDArray[np.int64] = np.rint(np.clip(weights, -MAX_WEIGHT, MAX_WEIGHT) * 2**WEIGHT_BITS).astype(np.int64)
    return integers


def refined_head(weights: Matrix, refinement: Refinement, grid: Grid) -> LinearHead:
    """Return the head that refinement rounds gave, for records of L2 norm 1, which it recentres and whitens itself.

    It does with them as the rounds did with quantised records.
    """
    whitening = refinement.whitening
    unit = grid.unit(len(whitening.centre))
    largest = float(np.abs(whitening.matrix).max(initial=1))
    recentring = Recentring(
        (whitening.matrix / largest).astype(np.float32), (whitening.centre / (largest * unit)).astype(np.float32)
    )
    bias = weights[:, -1] * (whitening.bias / whitening.levels)
    return LinearHead(weights[:, :-1].astype(np.float32), bias.astype(np.float32), recentring)
