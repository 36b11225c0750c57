"""The best results that any membership-inference test can have while a privacy claim holds."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from secagg.errors import BadInput
from secagg.privacy import Claim, GaussianCost, TrainingClaim, TrainingCost
from threat_models.findings import Series
from threat_models.session import Floats

LOSSES = 12
"""Number of ε, up to twice a claim's own, at which δ of members' sampled training is computed."""
RATES = 10_000
"""Number of false positive rates over which a ceiling is added up."""


def ceiling(claim: Claim, fpr: float) -> float:
    """Compute the highest TPR that the claim allows any test at a false positive rate. Raises BadInput outside [0, 1].

    e^T·Φ(Φ⁻¹(e^T·FPR) + μ): a μ-Gaussian release has it at T = 0 (Dong, Roth & Su 2022), and what is within e^±T of one
    changes each rate by such a factor. Members' sampled training tells no more than if it took every record at every
    step, which is a Gaussian release; nor than e^ε·FPR + δ(ε) and 1 − e^−ε·(1 − FPR − δ(ε)), for the δ(ε) of all of its
    steps and every ε ≥ 0 (Kairouz, Oh & Viswanath 2015), of which some are tried.
    """
    if not 0 <= fpr <= 1:
        raise BadInput(f"a false positive rate must be between 0 and 1 (got {fpr})")
    return float(_ceilings(claim, np.array([fpr]))[0])


def roc_ceiling(claim: Claim, lowest: float = 1e-4) -> Series:
    """Return the best ROC curve that a claim allows, from FPR `lowest` on. Raises BadInput outside (0, ½)."""
    if not 0 < lowest < 0.5:
        raise BadInput(f"the curve must start between 0 and 0.5 (got {lowest})")
    rates = np.union1d(np.geomspace(lowest, 1, 49), np.linspace(0.02, 1, 50))
    return Series("ceiling", tuple(rates.tolist()), tuple(_ceilings(claim, rates).tolist()))


def auc_ceiling(claim: Claim) -> float:
    """Compute the largest area under the ROC curve that any test can have under the claim.

    It is e^(2T)·Φ(μ/√2), for two draws; of sampled training at most the area below `ceiling`, rounded up.
    """
    cost = _cost(claim)
    best = min(1.0, math.exp(2 * cost.gap) * float(ndtr(cost.mu / math.sqrt(2))))
    return min(best, float(np.mean(_ceilings(claim, np.arange(1, RATES + 1) / RATES))))


def _cost(claim: Claim) -> GaussianCost | TrainingCost:
    return claim.cost if isinstance(claim, TrainingClaim) else claim.releases.whole()


def _ceilings(claim: Claim, fpr: Floats) -> Floats:
    cost = _cost(claim)
    grown = np.minimum(1.0, math.exp(cost.gap) * fpr)
    best: Floats = np.minimum(1.0, math.exp(cost.gap) * ndtr(ndtri(grown) + cost.mu))
    if isinstance(cost, TrainingCost) and cost.steps.rate < 1:
        for epsilon, delta in _losses(cost, claim.epsilon):
            best = np.minimum(best, math.exp(epsilon) * fpr + delta)
            best = np.minimum(best, 1 - math.exp(-epsilon) * (1 - fpr - delta))
    return best


@lru_cache(maxsize=16)
def _losses(cost: TrainingCost, claimed: float) -> tuple[tuple[float, float], ...]:
    """Compute δ, rounded up, at some ε from the least at which it is below 1 to twice the claimed ε."""
    tried = 2 * cost.gap + np.linspace(0.0, 2 * claimed, LOSSES)
    return tuple((epsilon, cost.delta(epsilon)) for epsilon in tried.tolist())
