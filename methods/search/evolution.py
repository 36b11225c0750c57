"""How settings are drawn and evolve: FedPop's operators with their errata mended, by arithmetic that everybody repeats.

Chen, Krompass, Gu & Tresp, "FedPop: Federated Population-based Hyperparameter Tuning". Whole numbers move to a
neighbour (Eq. 3 as printed moves them by ⌊δ⌋ = 0), and Eq. 5's decay is exponential. Only + − × ÷ of float64, so that
all have the same bits, and no draw but from public randomness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from methods.search.search_space import Setting, Space
from secagg.crypto.labels import digest, number

INTENSITY = 0.1
"""ε₀: how far a setting moves at first, in lengths of its interval."""
RESAMPLED = 0.1
"""p_re at first: how often a setting is drawn anew."""
BALL = 0.2
"""Δ: how far from its configuration's settings one that is tried beside them lies at most."""
RHO = 3
"""One in so many is replaced."""
DISCOUNT = 0.9
"""γ: what a round's score counts in comparison with the next one's."""
Floats = NDArray[np.float64]


class Draws:
    """Numbers that a seed of 32 bytes decides, one after another."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._count = seed, 0

    def unit(self) -> float:
        """A number from 0 to below 1: 53 bits of the next digest."""
        self._count += 1
        return (int.from_bytes(digest("a draw of evolution", self._seed, number(self._count))[:8], "big") >> 11) / 2**53

    def below(self, count: int) -> int:
        """A whole number from 0 to below `count` ≤ 2²⁰, uneven by less than 2⁻³²."""
        return int(self.unit() * count)

    def shuffled(self, count: int) -> list[int]:
        """0 … count − 1 in a random order (Fisher & Yates)."""
        order = list(range(count))
        for place in range(count - 1, 0, -1):
            other = self.below(place + 1)
            order[place], order[other] = order[other], order[place]
        return order


def annealed(first: float, done: int, of: int) -> float:
    """x₀/2·(1 + cos(π·r/R)) (Eq. 4) for r = `done` < R = `of`, 0 from there on."""
    return first / 2 * (1 + _cosine(math.pi * done / of)) if done < of else 0.0


def drawn(space: Space, draws: Draws) -> tuple[float, ...]:
    """Places drawn evenly from the whole space."""
    return tuple(_anywhere(each, draws) for each in space.settings)


def beside(space: Space, places: Sequence[float], draws: Draws, moved: Sequence[str]) -> tuple[float, ...]:
    """Places in a small ball around others; of the settings that are not `moved` the same."""
    return tuple(
        _near(each, place, BALL, draws) if each.name in moved else place
        for each, place in zip(space.settings, places, strict=True)
    )


def evolved(
    space: Space, places: Sequence[float], intensity: float, resampled: float, draws: Draws, moved: Sequence[str]
) -> tuple[float, ...]:
    """Evo (Eq. 3): each of the `moved` settings drawn near its place, or, with probability `resampled`, anywhere."""
    return tuple(
        place
        if each.name not in moved
        else _anywhere(each, draws)
        if draws.unit() < resampled
        else _near(each, place, intensity, draws)
        for each, place in zip(space.settings, places, strict=True)
    )


def extremes(scores: Sequence[float]) -> tuple[list[int], list[int]]:
    """The places of the best and of the worst scores, the lowest being the best: those within 1/ρ and beyond 1 − 1/ρ.

    Of K scores ⌊(K − 1)/ρ⌋ + 1 on either side, none of a single one; equal ones in their order.
    """
    ranked = sorted(range(len(scores)), key=lambda place: scores[place])
    count = (len(scores) - 1) // RHO + 1 if len(scores) > 1 else 0
    return ranked[:count], ranked[len(scores) - count :]


def _anywhere(setting: Setting, draws: Draws) -> float:
    return float(draws.below(setting.last + 1)) if setting.is_whole else draws.unit()


def _near(setting: Setting, place: float, reach: float, draws: Draws) -> float:
    """Evenly from within the reach, or from the place and its neighbours; what lies beyond an end is put there."""
    moved = place + draws.below(3) - 1 if setting.is_whole else place + reach * (2 * draws.unit() - 1)
    return min(max(float(moved), 0.0), float(setting.last))


def _cosine(angle: float) -> float:
    """cos of 0 … π by its series, to 10⁻¹⁵: libraries differ in the last bits."""
    term = total = 1.0
    for power in range(2, 42, 2):
        term *= -angle * angle / (power * (power - 1))
        total += term
    return total
