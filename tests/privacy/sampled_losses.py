"""Privacy losses of sampled Gaussian steps and of Gaussian releases on a fine grid: nothing of the accounting is used.

Intervals of losses are moved to their ends so that both probabilities stay (Doroshenko et al. 2022), in plain floats:
an upper bound up to their rounding, and next to exact.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import log_ndtr, ndtr

Floats = NDArray[np.float64]


def _tails(rate: float, away: float, removed: bool, losses: Floats) -> tuple[Floats, Floats]:
    """The chances, under P and under Q, that one step's loss is at most each of `losses`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.expm1(losses if removed else -losses) / rate
        points = np.where(inner > -1, np.log1p(inner) / away + away / 2, -np.inf)
    sign = 1 if removed else -1
    without, moved = ndtr(sign * points), ndtr(sign * (points - away))
    mixed = (1 - rate) * without + rate * moved
    return (mixed, without) if removed else (without, mixed)


def step_law(rate: float, away: float, removed: bool, step: float, half: int) -> tuple[Floats, float]:
    """One step's losses at −half·step … half·step, and the mass above: `away` is 1 over the noise multiplier."""
    ends = np.arange(-half, half + 1) * step
    under_p, under_q = _tails(rate, away, removed, ends)
    masses, others = np.diff(under_p), np.diff(under_q)
    with np.errstate(over="ignore", invalid="ignore"):
        upper = (masses - others * np.exp(ends[:-1])) / -math.expm1(-step)
    upper = np.where(np.isfinite(upper) & (masses > 1e-14), np.clip(upper, 0.0, masses), masses)
    law = np.append(masses - upper, 0.0)
    law[1:] += upper
    law[0] += under_p[0]
    return law, float(1 - under_p[-1])


def composed_law(rate: float, away: float, times: int, removed: bool, reach: float, bits: int) -> tuple[Floats, Floats]:
    """The grid of losses within ±`reach`, and the law of the sum of so many steps; what leaves the grid is above it."""
    half = 1 << (bits - 1)
    step = reach / half
    law, above = step_law(rate, away, removed, step, half - 1)
    padded = np.zeros(2 * half)
    padded[1:] = law
    spectrum = np.fft.rfft(np.fft.ifftshift(padded)) ** times
    total = np.fft.fftshift(np.fft.irfft(spectrum, 2 * half))
    total[-1] += 1 - (1 - above) ** times
    return np.arange(-half, half) * step, total


def curve(rate: float, multiplier: float, times: int, removed: bool, reach: float) -> tuple[Floats, Floats]:
    """δ(ε) of all steps at every ε ≥ 0 of a grid of 2¹⁹ points."""
    losses, law = composed_law(rate, 1 / multiplier, times, removed, reach, 20)
    start = len(losses) // 2
    losses, law = losses[start:], law[start:]
    above = np.cumsum(law[::-1])[::-1]
    weighed = np.cumsum((law * np.exp(-losses))[::-1])[::-1]
    return losses, np.append(above[1:] - np.exp(losses[:-1]) * weighed[1:], 0.0)


def gaussian_curve(mu: float, epsilons: Floats) -> Floats:
    """δ(ε) of a μ-Gaussian release (Balle & Wang 2018)."""
    first, second = log_ndtr(mu / 2 - epsilons / mu), epsilons + log_ndtr(-mu / 2 - epsilons / mu)
    return np.exp(first) * -np.expm1(second - first)


STEP, HALF = 2.0**-10, 1 << 14
POINTS = np.arange(-HALF, HALF + 1) * STEP
"""ε less what was lost so far, within ±16."""
END: Floats = np.maximum(0.0, -np.expm1(POINTS))
"""What an adversary who stops has: 1 − e^(ε − loss), where that is above 0."""


class Loss:
    """A mechanism's loss on the coarse grid of `POINTS`, and the chance `told` of an outright failure beside it."""

    def __init__(self, rate: float, away: float, times: int = 1, *, removed: bool = True, told: float = 0.0) -> None:
        self.law, self.above = step_law(rate, away, removed, STEP, HALF)
        if times > 1:
            losses, fine = composed_law(rate, away, times, removed, 2 * HALF * STEP, 18)
            self.law = np.zeros(2 * HALF + 1)
            places = np.ceil(losses / STEP - 1e-9).astype(int) + HALF
            # Each fine point goes to the coarse ones around it, both probabilities kept.
            lower = (places - HALF - 1) * STEP
            share = np.clip(-np.expm1(lower - losses) / -math.expm1(-STEP), 0.0, 1.0)
            for place, part in ((places, share), (places - 1, 1 - share)):
                np.add.at(self.law, np.clip(place, 0, 2 * HALF), fine * part)
            self.above = 0.0
        self.told = told

    def before(self, value: Floats) -> Floats:
        """The adversary's chance before this mechanism runs, given what it is afterwards at every loss."""
        padded = np.concatenate([np.ones(2 * HALF), value, np.zeros(2 * HALF)])
        mean = fftconvolve(padded, self.law)[3 * HALF : 5 * HALF + 1]
        return self.told + (1 - self.told) * (np.maximum(mean, 0.0) + self.above)
