"""Exact accounting for sums of discrete-Gaussian noise shares, treated as roundings of one Gaussian release.

**Theorem.** The sum s(D) ∈ Z^m of a data set D is opened with noise: entry j gets K independent shares N_Z(0, σ_j²),
fewest ≤ K ≤ parties, σ_j ≥ ½ and fewest·σ_j² > r² (r² = `ROUNDING`). Put

    v_j = fewest·σ_j² − r²,    η = 2·Σ_{k≥1} e^(−2π²·r²·k²),
    T = Σ_j [ ln((1 + η)/(1 − η)) + 5·Σ_{k=1}^{parties−1} e^(−2π²·σ_j²·k/(k + 1)) ].

If Σ_j (s_j − s'_j)²/v_j ≤ μ² for all neighbours, then for every ε ≥ 2T, with Balle & Wang's δ_BW (`delta_of`),

    δ(ε) ≤ e^T·δ_BW(μ, ε − 2T).

**Unequal shares.** A share may be a sum of independent parts N_Z(0, σ_{j,0}²), …, N_Z(0, σ_{j,p}²), σ_{j,i} ≥ ½, of
which the parts beyond the first i are taken from the sum again, i ≤ p known before the noise is opened and the same for
all shares (`secagg.privacy.calibration`, noise levels). With τ_j = σ_{j,0}² + … + σ_{j,i}² in the place of σ_j² the
theorem holds, and for each j T has, beside the terms of the first parts, for each further part q ≤ i

    5·Σ_{k=0}^{parties−1} e^(−2π²·A_k·σ_{j,q}²/(A_k + σ_{j,q}²)),    A_k = σ_{j,0}² + … + σ_{j,q−1}² + k·σ_{j,q}².

Sums that follow one another, each any function of the data and of what was opened before, their (μ_r, T_r) fixed in
advance: the same with μ² = Σμ_r² and T = ΣT_r.

**Proof.** Let F round a real y to the integer x with probability e^(−(x−y)²/2r²)/ρ(y), ρ(y) = Σ_{z∈Z} e^(−(z−y)²/2r²).
By Poisson summation ρ(y) = r√(2π)·(1 ± η). So for y ~ N(s, v) the outcome x has probability

    ∫ φ_√v(y − s)·e^(−(x−y)²/2r²)/ρ(y) dy = φ_√(v+r²)(x − s)/(1 ± η),

the convolution of two Gaussians, while N_Z(s, v + r²) has φ_√(v+r²)(x − s)/(1 + η'), 0 ≤ η' ≤ η, as s is an integer:
F(N(s, v)) and s + N_Z(0, v + r²) are within a factor e^±ln((1+η)/(1−η)) of each other at every x (Peikert 2010, Theorem
3.1). The sum of K shares is within e^±5Σ… of N_Z(0, K·σ²) (Kairouz, Liu & Steinke 2021, on convolutions of discrete
Gaussians); v is worst at K = fewest, this factor at K = parties. Entries are independent, so factors multiply, over
blocks of different σ too, and over rounds, where they hold for what follows each history. Hence what is opened, P', is
within e^±T of P, which post-processes Gaussian releases that compose to one with μ² = Σμ_r² (Dong, Roth & Su 2022). For
neighbours P, Q and any event then P' ≤ e^T·P ≤ e^T·(e^(ε−2T)·Q + δ_BW(μ, ε − 2T)) ≤ e^ε·Q' + e^T·δ_BW(μ, ε − 2T).

Without −r² the theorem is false: a discrete Gaussian's δ exceeds that of the continuous one with its σ.

Sources: Peikert, "An efficient and parallel Gaussian sampler for lattices", CRYPTO 2010; Kairouz, Liu & Steinke, "The
distributed discrete Gaussian mechanism for federated learning with secure aggregation", ICML 2021; Balle & Wang,
"Improving the Gaussian mechanism for differential privacy", ICML 2018; Dong, Roth & Su, "Gaussian differential
privacy", JRSS B 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from secagg.errors import BadInput
from secagg.privacy.gaussian import LARGEST_MU, SMALLEST_DELTA, check_delta, delta_of, epsilon_of

ROUNDING = 3.0
"""r² of the theorem, in squared grid units: each entry's variance loses it. 10⁶ entries then have T < 10⁻¹⁹."""
SMALLEST_SIGMA = 0.5
UP = 1 + 2.0**-48
"""A factor that covers the rounding of a few operations."""
_ETA = 2 * math.exp(-2 * math.pi**2 * ROUNDING) * (1 + 2.0**-32)  # the terms beyond the first are below 10⁻⁷⁶ of it
_ROUNDING_GAP = (math.log1p(_ETA) - math.log1p(-_ETA)) * (1 + 2.0**-32)


def variance_of(sigma: float, shares: int) -> float:
    """Return v = shares·σ² − r² (r² for rounding), rounded down: the Gaussian variance that the noise shares amount to.

    Raises BadInput where none is left.
    """
    variance = (shares * sigma * sigma * (1 - 2.0**-50) - ROUNDING) * (1 - 2.0**-50)
    if not 0 < variance < math.inf:
        raise BadInput(
            f"{shares} noise shares of sigma {sigma} grid units promise nothing",
            remedy=f"their variances must sum to more than {ROUNDING:g}",
        )
    return variance


def sigma_for(variance: float, shares: int) -> float:
    """Return the σ of each of `shares` discrete noise shares that together count as Gaussian noise of `variance`."""
    return math.sqrt((variance + ROUNDING) / shares)


def gap_of(segments: Iterable[tuple[float, int]], shares: int) -> float:
    """Return a bound T (nats, rounded up) on how far a sum with up to `shares` noise shares is from a Gaussian release.

    Each segment is (σ of one share in grid units, number of entries). Raises BadInput for a σ below ½ and fewer than
    1 share.
    """
    return gap_of_parts([((sigma,), count) for sigma, count in segments], shares)


def gap_of_parts(segments: Iterable[tuple[tuple[float, ...], int]], shares: int) -> float:
    """Return the bound T of `gap_of` for shares that are sums of independent parts, the first one listed first.

    Each segment is (σ of the parts of one share in grid units, number of entries). Raises BadInput as `gap_of` does.
    """
    if shares < 1:
        raise BadInput(f"{shares} noise shares", remedy="give 1 or more")
    total = 0.0
    for sigmas, count in segments:
        if not all(SMALLEST_SIGMA <= sigma < math.inf for sigma in sigmas):
            raise BadInput(f"a noise share has sigma {min(sigmas)} grid units", remedy="it needs at least 0.5")
        summed, before = _ROUNDING_GAP, 0.0
        for sigma in sigmas:
            own = sigma * sigma
            already = before + own * np.arange(not before, shares, dtype=np.float64)
            summed += 5 * float(np.exp(-2 * math.pi**2 * (already * own / (already + own))).sum())
            before += own
        total += count * summed
    return total * (1 + 2.0**-32)


@dataclass(frozen=True)
class GaussianCost:
    """The privacy cost of releases whose probabilities are within e^±`gap` of those of a Gaussian release.

    The Gaussian release may be post-processed.
    `squared_mu` is μ² of that Gaussian release.
    `gap` is T of the theorem, in nats; 0 for noise that one party adds in full (`Mechanism.GAUSSIAN`).
    """

    squared_mu: float
    gap: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.squared_mu < math.inf and 0 <= self.gap < math.inf):
            raise BadInput(f"no Gaussian release has a squared mu of {self.squared_mu} and a gap of {self.gap}")

    def __add__(self, other: GaussianCost) -> GaussianCost:
        """Return the cost of both releases about the same data, rounded up."""
        return GaussianCost((self.squared_mu + other.squared_mu) * UP, (self.gap + other.gap) * UP)

    def times(self, sessions: int) -> GaussianCost:
        """Return the cost of `sessions` ≥ 1 releases like this on the same data, rounded up. Raises BadInput."""
        if sessions < 1:
            raise BadInput(f"{sessions} sessions", remedy="give 1 or more")
        return GaussianCost(self.squared_mu * sessions * UP, self.gap * sessions * UP) if sessions > 1 else self

    def of_group(self, units: int) -> GaussianCost:
        """Return the cost for `units` ≥ 1 units together, rounded up: μ and T times `units`. Raises BadInput.

        Dong, Roth & Su 2022, Theorem 2.14; that it holds with T is proven in README.md, *People with several records*.
        """
        if units < 1:
            raise BadInput(f"a group of {units} units", remedy="give 1 or more")
        return GaussianCost(self.squared_mu * units**2 * UP, self.gap * units * UP) if units > 1 else self

    def group_epsilon(self, units: int, delta: float) -> float:
        """Return ε at δ, rounded up, of `units` ≥ 1 units together; as `epsilon` otherwise."""
        return self.of_group(units).epsilon(delta)

    @property
    def mu(self) -> float:
        """The μ of the Gaussian release (sensitivity over σ), rounded up."""
        return math.sqrt(self.squared_mu) * (1 + 2.0**-50)

    def epsilon(self, delta: float) -> float:
        """Return ε at δ, rounded up. Raises BadInput for a δ out of range.

        math.inf beyond what `epsilon_of` computes: for μ above `LARGEST_MU`, and δ·e^−T below `SMALLEST_DELTA`.
        """
        check_delta(delta)
        inner = delta * math.exp(-self.gap) * (1 - 2.0**-50) if self.gap else delta
        if self.mu > LARGEST_MU or inner < SMALLEST_DELTA:
            return math.inf
        if not self.gap:
            return epsilon_of(self.mu, delta)
        return (epsilon_of(self.mu, inner) + 2 * self.gap) * (1 + 2.0**-50)

    def delta(self, epsilon: float) -> float:
        """Return δ at ε ≥ 0, rounded up, at most 1.

        It is 1 for ε < 2·`gap`, and for μ above `LARGEST_MU`.
        Raises BadInput for an ε out of range.
        """
        if epsilon >= 0 and (epsilon < 2 * self.gap or self.mu > LARGEST_MU):
            return 1.0
        inner = (epsilon - 2 * self.gap) * (1 - 2.0**-50)
        return min(1.0, math.exp(self.gap) * delta_of(self.mu, inner) * UP)
