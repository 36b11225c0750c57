"""Exact (ε, δ) of one Gaussian release, and its inverses (Balle & Wang 2018, Theorem 8).

A release with joint L2 sensitivity Δ and noise σ on every coordinate is described by μ = Δ/σ alone:

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ).

With u = (ε/μ − μ/2)/√2 and v = (ε/μ + μ/2)/√2, e^ε = e^(v² − u²) and so

    δ(ε) = ½·e^(−u²)·(erfcx(u) − erfcx(v)),    erfcx(x) = e^(x²)·erfc(x),

which keeps the small factor e^(−u²) outside the difference: no digits of a small δ are lost, and no logarithm is
needed. Every function rounds away from the optimistic side: δ and ε up, μ down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc, erfcx

from secagg.errors import BadInput

SMALLEST_DELTA = 1e-250
LARGEST_MU = 1e6
SLACK = 2.0**-43
"""Relative error allowed for erfcx, exp and the arithmetic, per unit of 1 + v²."""
OUTWARD = 1 + 2.0**-40
"""Last factor of a noise multiplier, so that 1 divided by it does not round above the μ that was solved for."""


def delta_of(mu: float, epsilon: float) -> float:
    """Return δ of a μ-Gaussian DP release at `epsilon` ≥ 0, rounded up, for 0 < `mu` ≤ 10⁶. Raises BadInput."""
    _check(mu=mu, epsilon=epsilon)
    u = (epsilon / mu - mu / 2) / math.sqrt(2)
    v = (epsilon / mu + mu / 2) / math.sqrt(2)
    slack = SLACK * (1 + v * v)
    if u >= 0:
        return min(1.0, 0.5 * math.exp(-u * u) * float(erfcx(u) * (1 + slack) - erfcx(v)))
    return min(1.0, 0.5 * (math.erfc(u) * (1 + slack) - math.exp(-u * u) * float(erfcx(v))))


def delta_at_least(mu: float, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return δ of a μ-Gaussian DP release, `mu` > 0, at each ε ≥ 0, rounded down."""
    u = (epsilons / mu - mu / 2) / math.sqrt(2)
    v = (epsilons / mu + mu / 2) / math.sqrt(2)
    small = np.exp(-u * u)
    tail = np.where(u >= 0, small * erfcx(np.maximum(u, 0.0)), erfc(u)) * (1 - SLACK * (1 + v * v))
    found: NDArray[np.float64] = np.maximum(0.0, 0.5 * (tail - small * erfcx(v)))
    return found


def epsilon_of(mu: float, delta: float) -> float:
    """Return the least ε ≥ 0, rounded up, at which a μ-Gaussian DP release has this δ. Raises BadInput.

    The upper end of the last bracket: `delta_of(mu, epsilon_of(mu, delta)) <= delta` holds as computed.
    """
    _check(mu=mu, delta=delta)
    return least(lambda epsilon: delta_of(mu, epsilon) <= delta)


@lru_cache(maxsize=256)
def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest μ, rounded down, of a Gaussian release that is (ε, δ)-private. Raises BadInput.

    `epsilon_of(mu_of(epsilon, delta), delta) <= epsilon` holds as computed.
    """
    _check(epsilon=epsilon, delta=delta)
    mu = largest(lambda trial: trial <= LARGEST_MU and delta_of(trial, epsilon) <= delta)
    while epsilon_of(mu, delta) > epsilon:
        mu *= 1 - 2.0**-50
    return mu


def noise_multiplier_of(mu: float) -> float:
    """Return the noise multiplier σ/Δ = 1/μ (noise over sensitivity), rounded up."""
    _check(mu=mu)
    return OUTWARD / mu


def least(holds: Callable[[float], bool]) -> float:
    """Find by bisection the least x ≥ 0 from which on `holds` is true, rounded up to where it is true."""
    if holds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
        if math.isinf(high):
            raise BadInput("no finite epsilon covers this release")
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def largest(holds: Callable[[float], bool]) -> float:
    """Find by bisection the largest x > 0 up to which `holds` is true, rounded down to where it is true."""
    low = 1.0
    while not holds(low):
        low /= 2
        if low < 1 / LARGEST_MU**2:
            raise BadInput("no amount of noise gives this epsilon and delta", remedy="raise epsilon or delta")
    high = 2 * low
    while holds(high):
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def check_delta(delta: float) -> None:
    """Raise BadInput unless `SMALLEST_DELTA` ≤ δ < 1, where the formulas here can be computed."""
    if not SMALLEST_DELTA <= delta < 1:
        raise BadInput(f"delta cannot be {delta}", remedy=f"give a number from {SMALLEST_DELTA:g} to below 1")


def _check(*, mu: float = 1.0, epsilon: float = 1.0, delta: float = 0.5) -> None:
    if not 0 < mu <= LARGEST_MU:
        raise BadInput(f"the ratio of sensitivity to noise is {mu}", remedy=f"it lies above 0, up to {LARGEST_MU:g}")
    if not 0 <= epsilon < math.inf:
        raise BadInput(f"epsilon cannot be {epsilon}", remedy="give a finite number of 0 or more")
    check_delta(delta)
