"""The best results that any membership-inference test can have while a privacy claim holds."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from secagg.errors import BadInput
from secagg.privacy import PrivacyClaim
from threat_models.findings import Series
from threat_models.session import Floats


def ceiling(claim: PrivacyClaim, fpr: float) -> float:
    """Compute the highest TPR that the claim allows any test at a false positive rate. Raises BadInput outside [0, 1].

    e^T·Φ(Φ⁻¹(e^T·FPR) + μ): a μ-Gaussian release has it at T = 0 (Dong, Roth & Su 2022), and what is within e^±T of one
    changes each rate by such a factor. Members' training counts as if it took every record at every step: that is a
    Gaussian release, and tells no less.
    """
    if not 0 <= fpr <= 1:
        raise BadInput(f"a false positive rate must be between 0 and 1 (got {fpr})")
    return float(_ceilings(claim, np.array([fpr]))[0])


def roc_ceiling(claim: PrivacyClaim, lowest: float = 1e-4) -> Series:
    """Return the best ROC curve that a claim allows, from FPR `lowest` on. Raises BadInput outside (0, ½)."""
    if not 0 < lowest < 0.5:
        raise BadInput(f"the curve must start between 0 and 0.5 (got {lowest})")
    rates = np.union1d(np.geomspace(lowest, 1, 49), np.linspace(0.02, 1, 50))
    return Series("ceiling", tuple(rates.tolist()), tuple(_ceilings(claim, rates).tolist()))


def auc_ceiling(claim: PrivacyClaim) -> float:
    """Compute the largest area under the ROC curve that any test can have under the claim.

    It is e^(2T)·Φ(μ/√2), for two draws.
    """
    cost = claim.releases.whole()
    return min(1.0, math.exp(2 * cost.gap) * float(ndtr(cost.mu / math.sqrt(2))))


def _ceilings(claim: PrivacyClaim, fpr: Floats) -> Floats:
    cost = claim.releases.whole()
    grown = np.minimum(1.0, math.exp(cost.gap) * fpr)
    best: Floats = np.minimum(1.0, math.exp(cost.gap) * ndtr(ndtri(grown) + cost.mu))
    return best
