"""The privacy loss of one sampled Gaussian step, or one Gaussian release: a law on a grid that is never too small.

Its construction and its error bounds are points 1 and 2 of `secagg.privacy.losses`, which composes such laws.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

SLACK = 2.0**-40
"""Relative error allowed for the normal distribution function."""
ROUNDING = 2.0**-50
"""Relative error allowed for a few operations in a row, per unit of what a logarithm or an exponent holds."""
TINY = 1e-300


class Steps(NamedTuple):
    """So many equal steps: sampling rate q in (0, 1], and μ > 0, how far a record moves the sum in units of σ."""

    rate: float
    mu: float
    times: int


@dataclass(frozen=True)
class Law:
    """Masses of P on the losses (first + i)·h, and at infinity."""

    first: int
    step: float
    masses: Floats
    infinite: float

    @property
    def losses(self) -> Floats:
        """The losses that have the masses."""
        return (self.first + np.arange(len(self.masses), dtype=np.float64)) * self.step

    def delta(self, epsilon: float) -> float:
        """δ(ε) for ε ≥ 0 and at least the first loss."""
        start = max(0, math.floor(epsilon / self.step) + 1 - self.first)
        over = -np.expm1(epsilon - self.losses[start:])
        return min(1.0, float(self.masses[start:] @ over) * (1 + 2.0**-30) + self.infinite)

    def epsilon(self, delta: float) -> float:
        """ε(δ), rounded up; infinite where no ε is enough. Between two points of the grid δ is linear in e^ε."""
        if self.infinite > delta:
            return math.inf
        last = self.first + len(self.masses)
        place = bisect_left(range(max(0, self.first), last), True, key=lambda k: self.delta(k * self.step) <= delta)
        place += max(0, self.first)
        if place == max(0, self.first):
            return place * self.step
        above, below = self.delta((place - 1) * self.step), self.delta(place * self.step)
        if self.step > 1:
            return place * self.step
        beyond = math.log1p(math.expm1(self.step) * (above - delta) / (above - below))
        return ((place - 1) * self.step + beyond) * (1 + 2.0**-40)


def losses_of(part: Steps, removed: bool, points: Floats) -> Floats:
    """Return L at points of the real line."""
    rate, mu, _ = part
    without = math.log1p(-rate) if rate < 1 else -math.inf
    found = np.logaddexp(without, math.log(rate) + mu * points - mu * mu / 2)
    return found if removed else -found


def discretise(part: Steps, removed: bool, reach: float, step: float) -> Law:
    """Return the law of one step's loss on the grid, between the losses at `reach` standard deviations."""
    ends = losses_of(part, removed, np.array([-reach, reach + part.mu]))
    first, last = math.floor(ends.min() / step), math.ceil(ends.max() / step)
    losses = np.arange(first, last + 1, dtype=np.float64) * step
    p, q, errors = _tails(part, removed, losses)
    sure = errors < 0.5
    half = min(int(np.count_nonzero(p.above > 0.5)), len(losses) - 1)
    lower = np.where(sure, -p.below * (1 - errors), 0.0)[:half]
    upper = np.where(sure, p.above * (1 + errors) + TINY, 1.0)[half:]
    tails = np.concatenate([np.minimum.accumulate(np.append(0.0, lower)), np.minimum.accumulate(upper)])
    masses = -np.diff(tails)
    masses[half] = max(0.0, masses[half] + 1)
    up = np.ones(len(losses))
    up[1:] = np.where(sure[1:] & sure[:-1], _upward(p.between(errors), q.between(errors), losses[:-1], step), 1.0)
    placed = up * masses
    placed[:-1] += ((1 - up) * masses)[1:]
    return Law(first, step, placed * (1 + 4 * ROUNDING), float(tails[-1]))


def _upward(p: tuple[Floats, Floats], q: tuple[Floats, Floats], lows: Floats, step: float) -> Floats:
    """w of each interval from `lows` on, rounded up: the part of its mass P that its upper end gets (1.)."""
    most, fewest = p[0] + p[1] + TINY, q[0] - q[1]
    known = fewest > TINY
    log_p, log_q = np.log(most[known]), np.log(fewest[known])
    ratios = np.exp(lows[known] + log_q - log_p)
    slack = ROUNDING * (np.abs(lows[known]) + np.abs(log_p) + np.abs(log_q) + 4)
    found = np.ones(len(lows))
    found[known] = np.clip((1 - ratios * (1 - slack)) / -math.expm1(-step) * (1 + ROUNDING), 0.0, 1.0)
    return found


def _thresholds(part: Steps, losses: Floats) -> tuple[Floats, Floats]:
    """The points t where ln((1 − q) + q·e^(μt − μ²/2)) is each loss, and relative errors of tails there (2.).

    Where there is none, as the loss is too low, −∞; where that cannot be told, an infinite error.
    """
    rate, mu, _ = part
    if rate == 1:
        moved, condition = losses, np.abs(losses)
    else:
        small = np.expm1(np.minimum(losses, 1.0)) / rate
        none, unsure = small < -1 - 2.0**-40, np.abs(small + 1) <= 2.0**-40
        small = np.where(none | unsure, 0.0, small)
        large = losses - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.maximum(losses, 1.0)))
        moved = np.where(losses > 1, large, np.log1p(small))
        condition = np.abs(losses) - math.log(rate) * (losses > 1) + np.abs(small) / (1 + small) + np.abs(moved)
        moved = np.where(none, -math.inf, moved)
        condition = np.where(none, 0.0, np.where(unsure, math.inf, condition))
    points = moved / mu + mu / 2
    off = ROUNDING * (condition / mu + np.where(np.isfinite(points), np.abs(points), 0.0) + mu)
    steepness = np.where(np.isfinite(points), 1 + np.abs(points) + mu, 1.0)
    return points, SLACK + 2 * off * steepness


class _Tails(NamedTuple):
    """Probabilities of a loss above and below each point of the grid."""

    above: Floats
    below: Floats

    def between(self, errors: Floats) -> tuple[Floats, Floats]:
        """Masses from each point to the next, and what they may be off by: from the smaller tails."""
        off_above, off_below = (errors * tails for tails in self)
        off_above, off_below = off_above[:-1] + off_above[1:], off_below[:-1] + off_below[1:]
        masses = np.where(off_above < off_below, -np.diff(self.above), np.diff(self.below))
        return masses, np.minimum(off_above, off_below)


def _tails(part: Steps, removed: bool, losses: Floats) -> tuple[_Tails, _Tails, Floats]:
    """Tails of P and of Q at each loss, and their relative errors."""
    points, errors = _thresholds(part, losses if removed else -losses)
    without = ndtr(-points), ndtr(points)
    moved = ndtr(part.mu - points), ndtr(points - part.mu)
    mixed = [(1 - part.rate) * one + part.rate * other for one, other in zip(without, moved, strict=True)]
    if removed:
        return _Tails(*mixed), _Tails(*without), errors
    return _Tails(*without[::-1]), _Tails(*mixed[::-1]), errors
