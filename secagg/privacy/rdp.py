"""Rényi DP curves: they compose releases for which no tighter accounting is known, and give the total ε.

A curve is the Rényi divergence ρ(α) of a release at every order of one fixed grid. Curves of releases about the same
data add (Mironov 2017, Proposition 1). All values are rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.privacy.gaussian import check_delta

ORDERS = tuple(1 + math.floor(4096 * 2 ** (step / 32) + 0.5) / 4096 for step in range(-5 * 32, 15 * 32 + 1))
"""The orders α from 1.03 to 32769, 32 to the octave of α − 1: multiples of 2⁻¹², the same grid on every machine."""
UP = 1 + 2.0**-48
ALPHA: NDArray[np.float64] = np.array(ORDERS)


@dataclass(frozen=True)
class RdpCurve:
    """A Rényi DP curve: the divergence ρ(α) ≥ 0, in nats, at every order α of `ORDERS`."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.values) != len(ORDERS):
            raise BadInput(f"a Rényi curve has {len(ORDERS)} values, got {len(self.values)}")
        if not all(0 <= value < math.inf for value in self.values):
            raise BadInput("a Rényi curve has finite values of 0 or more")

    def __add__(self, other: RdpCurve) -> RdpCurve:
        """Return the curve of both releases about the same data (Mironov 2017, Proposition 1)."""
        return RdpCurve(tuple((np.add(self.values, other.values) * UP).tolist()))

    def epsilon(self, delta: float, place: int | None = None) -> float:
        """Return ε at δ, rounded up: the least over all Rényi orders. Raises BadInput.

        Given `place`, it is ε at the order `ORDERS[place]` instead.
        ρ(α) + ln((α − 1)/α) − (ln δ + ln α)/(α − 1) (Canonne, Kamath & Steinke 2020, Proposition 12; Asoodeh et al.
        2021).
        """
        parts = np.vstack([self.values, _conversion(delta)])
        bound = parts.sum(axis=0) + np.abs(parts).sum(axis=0) * (UP - 1)
        return max(0.0, float(bound.min() if place is None else bound[place]))


def best_order(epsilon: float, delta: float) -> int:
    """Return the index in `ORDERS` of the order α at which (ε, δ) allows the largest μ² of a curve ρ(α) = α·μ²/2.

    Raises BadInput for a δ out of range.
    """
    return int(np.argmax((epsilon - _conversion(delta).sum(axis=0)) / ALPHA))


def _conversion(delta: float) -> NDArray[np.float64]:
    """Return the excess of ε over ρ(α), in two parts."""
    check_delta(delta)
    return np.array([np.log1p(-1 / ALPHA), -(math.log(delta) + np.log(ALPHA)) / (ALPHA - 1)])
