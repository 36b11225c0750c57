"""Rényi curves: of Gaussian releases, of sums of discrete-Gaussian shares, of compositions; and what ε they give.

A curve is the Rényi divergence ρ(α) of a release at every order of one fixed grid. Curves of releases about the same
data add (Mironov 2017, Proposition 1). All values are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.privacy.gaussian import LARGEST_MU, SMALLEST_DELTA, largest

ORDERS = tuple(1 + math.floor(4096 * 2 ** (step / 32) + 0.5) / 4096 for step in range(-5 * 32, 15 * 32 + 1))
"""α from 1.03 to 32769, 32 to the octave of α − 1, each a multiple of 2⁻¹² so that every machine has the same grid."""
SMALLEST_SIGMA = 0.5
UP = 1 + 2.0**-48
ALPHA: NDArray[np.float64] = np.array(ORDERS)


@dataclass(frozen=True)
class RdpCurve:
    """ρ(α) ≥ 0 for every α of `ORDERS`, in nats."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.values) != len(ORDERS):
            raise BadInput(f"a Rényi curve has {len(ORDERS)} values, got {len(self.values)}")
        if not all(0 <= value < math.inf for value in self.values):
            raise BadInput("a Rényi curve has finite values of 0 or more")

    def __add__(self, other: RdpCurve) -> RdpCurve:
        """Return the curve of both releases about the same data (Mironov 2017, Proposition 1)."""
        return _curve(np.add(self.values, other.values) * UP)

    def times(self, sessions: int) -> RdpCurve:
        """Return the curve of `sessions` ≥ 1 such releases about the same data. Raises BadInput."""
        if sessions < 1:
            raise BadInput(f"{sessions} sessions", remedy="give 1 or more")
        return _curve(np.array(self.values) * sessions * UP)

    def epsilon(self, delta: float) -> float:
        """Return ε at δ, rounded up. Raises BadInput for a δ out of range.

        The least over α of ρ(α) + ln((α − 1)/α) − (ln δ + ln α)/(α − 1) (Canonne, Kamath & Steinke 2020,
        Proposition 12; Asoodeh et al. 2021).
        """
        if not SMALLEST_DELTA <= delta < 1:
            raise BadInput(f"delta cannot be {delta}", remedy=f"give a number from {SMALLEST_DELTA:g} to below 1")
        parts = np.array([self.values, np.log1p(-1 / ALPHA), -(math.log(delta) + np.log(ALPHA)) / (ALPHA - 1)])
        bound = parts.sum(axis=0) + np.abs(parts).sum(axis=0) * (UP - 1)
        return max(0.0, float(bound.min()))

    def delta(self, epsilon: float) -> float:
        """Return δ at ε ≥ 0, rounded up, at most 1. Raises BadInput for an ε out of range.

        The least over α of e^((α − 1)(ρ(α) − ε))/(α − 1)·(1 − 1/α)^α (Canonne, Kamath & Steinke 2020, Proposition 12).
        """
        if not 0 <= epsilon < math.inf:
            raise BadInput(f"epsilon cannot be {epsilon}", remedy="give a finite number of 0 or more")
        parts = np.array([(ALPHA - 1) * self.values, (1 - ALPHA) * epsilon, ALPHA * np.log1p(-1 / ALPHA)])
        parts = np.vstack([parts, -np.log(ALPHA - 1)])
        bound = parts.sum(axis=0) + np.abs(parts).sum(axis=0) * (UP - 1)
        return min(1.0, math.exp(min(0.0, float(bound.min()))) * UP)


def gaussian_curve(mu: float, gap: float = 0.0) -> RdpCurve:
    """Return ρ(α) = α·μ²/2 + gap, for μ = Δ/σ ≥ 0 (Mironov 2017, Proposition 7) and `gap` of `summation_gap`."""
    if not (0 <= mu <= LARGEST_MU and 0 <= gap < math.inf):
        raise BadInput(f"no Rényi curve for a ratio of sensitivity to noise of {mu} with a gap of {gap}")
    return _curve((ALPHA * (mu * mu / 2) + gap) * UP)


def summation_gap(segments: Iterable[tuple[float, int]], shares: int) -> float:
    """Return Στ_j over all coordinates: what a sum of discrete Gaussians lacks of one discrete Gaussian, in nats.

    Each segment is (σ of one share in grid units, number of coordinates). For K = `shares` independent N_Z(0, σ_j²)
    per coordinate and Δ ∈ Z^D, Kairouz, Liu & Steinke 2021, Proposition 14 (its first bound, for one coordinate;
    divergences of independent coordinates add) gives ρ(α) ≤ α/2·Σ Δ_j²/(K·σ_j²) + Σ τ_j with

        τ_j = 10·Σ_{k=1}^{K−1} e^(−2π²·σ_j²·k/(k + 1)),   σ_j ≥ ½.

    Raises BadInput below that σ and for fewer than 1 share. Beyond σ ≈ 8 it underflows to 0, which is within the
    rounding of every curve with μ > 0.
    """
    if shares < 1:
        raise BadInput(f"{shares} noise shares", remedy="give 1 or more")
    steps = np.arange(1, shares, dtype=np.float64)
    total = 0.0
    for sigma, count in segments:
        if not SMALLEST_SIGMA <= sigma < math.inf:
            raise BadInput(f"a noise share has sigma {sigma} grid units", remedy="it needs at least 0.5")
        total += count * 10 * float(np.exp(-2 * math.pi**2 * sigma * sigma * (steps / (steps + 1))).sum())
    return total * (1 + 2.0**-32)


def shares_mu(epsilon: float, delta: float, *, gap: float = 0.0, sessions: int = 1) -> float:
    """Return the largest μ, rounded down, at which `sessions` sums of discrete shares keep (ε, δ) together.

    μ = Δ/σ for the σ of the honest shares' sum; `gap` as `summation_gap` gives it for one session.
    `gaussian_curve(mu, gap).times(sessions).epsilon(delta) <= epsilon` holds as computed. Raises BadInput.
    """
    if not 0 < epsilon < math.inf:
        raise BadInput(f"epsilon cannot be {epsilon}", remedy="give a finite number above 0")
    return largest(lambda mu: mu <= LARGEST_MU and gaussian_curve(mu, gap).times(sessions).epsilon(delta) <= epsilon)


def _curve(values: NDArray[np.float64]) -> RdpCurve:
    return RdpCurve(tuple(values.tolist()))
