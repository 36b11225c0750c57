"""Noise levels: parts of each client's noise share that are removed from a sum when fewer clients are missing.

With up to D of n clients missing, σ² is calibrated for the fewest honest shares, n − D less those known. If fewer are
missing, more shares arrive, and there is more noise than the promise needs. So a share may consist of parts: with
levels d_0 < … < d_ℓ = D and h_k honest shares if d_k clients are missing, τ_k = σ²·h_ℓ/h_k, and its parts have the
variances τ_0, τ_1 − τ_0, …, τ_ℓ − τ_(ℓ−1). If at most d_k are missing, the parts beyond τ_k are taken from the sum
again: h_k shares of τ_k have the variance of h_ℓ shares of σ². Each level keeps the promise by itself, by the theorem
for unequal shares; how many are missing is fixed before anything is opened, so that no level adds to another's cost.

Source: Jiang, Wang & Chen, "Dordis: Efficient federated learning with dropout-resilient differential privacy", EuroSys
2024, add-then-remove noise (XNoise); the theorem for unequal shares is in `secagg.privacy.shares`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from secagg.errors import BadInput

FRACTIONS = 1024
"""Every σ is a multiple of 1/1024 grid unit: an exact rational, the same float64 on every machine."""
LEAST_PART = math.sqrt(6)
"""Least σ of one part of a share in grid units: each step of the theorem for unequal shares then adds below 10⁻²⁴."""


@dataclass(frozen=True)
class NoiseLevel:
    """A level of noise: with at most `missing` clients not in a sum, `fewest` honest shares or more are in it."""

    missing: int
    fewest: int


def parts_of(sigma: float, lower: Sequence[NoiseLevel], fewest: int) -> tuple[float, ...]:
    """Return the σ of each part of a noise share with σ = `sigma`, of which `fewest` are in the smallest sum.

    σ itself without `lower` levels; else multiples of 1/1024, rounded up, whose squares sum to σ² or more.
    """
    if not lower:
        return (sigma,)
    variances = (0.0, *(sigma * sigma * (fewest / level.fewest) for level in lower), sigma * sigma)
    return tuple(round_up_sigma(math.sqrt(max(0.0, after - before))) for before, after in pairwise(variances))


def refuse_levels(lower: Sequence[NoiseLevel], fewest: int, parties: int) -> None:
    """Raise BadInput for levels out of order, or with more honest shares than there are."""
    honest = [parties + 1, *(level.fewest for level in lower), fewest]
    missing = [-1, *(level.missing for level in lower)]
    falls = all(a > b for a, b in pairwise(honest)) and all(a < b for a, b in pairwise(missing))
    if not falls:
        raise BadInput(
            f"there are no noise levels {[(each.missing, each.fewest) for each in lower]} below {fewest} of {parties}",
            remedy="keep the surplus noise, or let more clients be missing",
        )


def refuse_small_parts(name: str, least: float, lower: Sequence[NoiseLevel], fewest: int) -> None:
    """Raise BadInput if a part of a noise share with σ = `least` on a block is too small for the theorem."""
    if min(parts := parts_of(least, lower, fewest)) < LEAST_PART:
        raise BadInput(
            f"block {name}: a removable part of a noise share has sigma {min(parts):.4g} grid units",
            remedy=f"it must be at least {LEAST_PART:.3g}: keep the surplus noise, or give the grid more levels",
        )


def round_up_sigma(sigma: float) -> float:
    """Return σ rounded up to a multiple of 1/1024."""
    return math.ceil(sigma * FRACTIONS) / FRACTIONS
