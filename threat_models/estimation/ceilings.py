"""The most that any membership test can reach while a privacy claim holds."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from secagg.errors import BadInput
from secagg.privacy import Mechanism, PrivacyClaim, Releases
from threat_models.findings import Series

Floats = NDArray[np.float64]

POINTS = 400
"""Values of ε at which the bound of a Rényi claim is taken; every one gives a valid ceiling."""
SMALLEST_DELTA = 1e-12


def ceiling(claim: PrivacyClaim, fpr: float) -> float:
    """The highest true positive rate of any test with the false positive rate `fpr` in [0, 1]. Raises BadInput.

    Gaussian mechanism: Φ(Φ⁻¹(FPR) + μ) (Dong, Roth & Su 2022). Discrete shares: the least over ε of
    min(e^ε·FPR + δ(ε), 1 − e^(−ε)·(1 − δ(ε) − FPR)), by the releases' Rényi curve (Kairouz, Oh & Viswanath 2015).
    """
    if not 0 <= fpr <= 1:
        raise BadInput(f"a false positive rate cannot be {fpr}", remedy="give a number from 0 to 1")
    return float(_ceilings(claim.releases, np.array([fpr]))[0])


def roc_ceiling(claim: PrivacyClaim, lowest: float = 1e-4) -> Series:
    """The ceiling as a line of a ROC curve, false positive rates from `lowest` in (0, ½) to 1. Raises BadInput."""
    if not 0 < lowest < 0.5:
        raise BadInput(f"the curve cannot start at {lowest}", remedy="give a number between 0 and 0.5")
    rates = np.union1d(np.geomspace(lowest, 1, 49), np.linspace(0.02, 1, 50))
    return Series("ceiling", tuple(rates.tolist()), tuple(_ceilings(claim.releases, rates).tolist()))


def auc_ceiling(claim: PrivacyClaim) -> float:
    """The largest area under the ROC curve of any test: Φ(μ/√2), or the area under the ceiling, rounded up."""
    releases = claim.releases
    if releases.first.mechanism is Mechanism.GAUSSIAN:
        return float(ndtr(releases.mu(1) / math.sqrt(2)))
    rates = np.concatenate([[0.0], np.geomspace(1e-6, 1, 2_000)])
    return min(1.0, float(np.diff(rates) @ _ceilings(releases, rates)[1:]))  # the ceiling grows: its right ends


def _ceilings(releases: Releases, fpr: Floats) -> Floats:
    if releases.first.mechanism is Mechanism.GAUSSIAN:
        gaussian: Floats = ndtr(ndtri(fpr) + releases.mu(1))
        return gaussian
    epsilon, delta = _promises(releases)
    rates = fpr[:, None]
    grown = np.exp(np.minimum(epsilon, 700.0)) * rates + delta
    spared = 1 - np.exp(-epsilon) * (1 - delta - rates)
    best: Floats = np.minimum(1.0, np.minimum(grown, spared).min(axis=1))
    return best


@lru_cache(maxsize=16)
def _promises(releases: Releases) -> tuple[Floats, Floats]:
    """Pairs (ε, δ) that releases keep, from ε = 0 to where δ is negligible."""
    curve = releases.curve()
    epsilon = np.linspace(0.0, curve.epsilon(SMALLEST_DELTA), POINTS)
    return epsilon, np.array([curve.delta(each) for each in epsilon.tolist()])
