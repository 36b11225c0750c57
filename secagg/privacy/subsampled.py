"""DP-SGD inside a client: the privacy cost of noisy steps on batches that are sampled anew at each step.

Every record is in a step's batch with probability q (`rate`), by its own draw that nobody else sees; clipped gradients
are summed, and noise is added. Rate and number of steps are public constants of the plan. The noise is a discrete
Gaussian of σ grid units, accounted as the Gaussian of which it is a rounding (`secagg.privacy.shares`, one share): its
variance counts as σ² − r², so that the `multiplier` is √(σ² − r²)/C with C the clip in grid units, and each step has a
gap T. That theorem's factors e^±T hold for each batch, hence for their mixture, and what they round is post-processed.

Neighbours have one record more or less, and no others are accounted: q amplifies for these alone.

Sources: Zhu, Dong & Wang 2022 and Doroshenko et al. 2022 (below).

# Privacy losses of sampled Gaussian steps and of Gaussian releases, composed to a δ(ε) that is never too small

**What is composed.** One step adds N(0, 1) to a sum that holds each record with probability q; the record moves it by
up to μ. With the record P' = (1 − q)·N(0, 1) + q·N(μ, 1) comes out, without it N(0, 1): this pair dominates the step,
(P', N) where the record is removed and (N, P') where it is added, in any dimension and whatever the other records are
(Zhu, Dong & Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022, Poisson
sampling). Steps that follow one another, each any function of what was opened before, their q and μ fixed in advance,
are dominated by the product of their pairs (the same paper, adaptive composition). A Gaussian release is q = 1.
With L = ln dP/dQ of each step, independent under P,

    δ(ε) = E[(1 − e^(ε − ΣL))₊].

As a function of one e^−L, the others fixed, this is convex and does not increase. So δ(ε) can only grow when the law
of one L is replaced (a) by one with larger tails P(L > ℓ), or (b) inside an interval [a, b] by masses on a and b alone
with the same P and Q = E[e^−L]: what was between is spread to the ends ("connecting the dots", Doroshenko, Ghazi,
Kamath, Kumar & Manurangsi, PETS 2022). `discretise` does both; laws may also weigh more than 1. In turn:

1. *Grid.* Losses are multiples k·h of a power of two, exact in floats. An interval's mass goes to its ends as (b) says;
   the part w of its upper end is computed from the least Q and the largest P that the errors allow, and a larger w is
   (a) again: where nothing can be computed w = 1, plain rounding up. Below the grid mass moves up to its first point,
   above it to infinity.
2. *Tails.* P(L > ℓ) is raised by its relative error r: `SLACK` for the normal distribution, and 2·dt·(1 + |t| + μ) for
   the point t where L = ℓ, which is known to dt (a normal's tail falls by a factor of at most e^(1 + |t|) a unit). In
   the lower half 1 − P(L > ℓ) is lowered instead. So all tails are at least the true ones, and rounding of differences
   and products is covered by a last factor.
3. *Tilt.* With p_k the law, e^(θkh − κ)·p_k is convolved instead, and the result times e^(Σκ − θkh) is the law of the
   sum: exactly, for any θ and κ. With the θ of Chernoff's bound at ε, the floats are accurate where δ(ε) is made.
4. *Wrap-around.* The cyclic convolution of length N gives each point of a window the masses of all points that are the
   same modulo N: at least its own. What lies above the window is at most e^(Σ ln E[e^(sL)] − s·top), s > 0 (Chernoff):
   added. What lies below counts for nothing at ε ≥ 0, as the window begins at 0 or lower.
5. *Floating point.* An FFT of length N has a relative error of at most `FFT_ERROR`·log₂ N in the 2-norm (Higham,
   "Accuracy and stability of numerical algorithms", 2002, Theorem 24.2; the constant is twice his), so each
   frequency of a law x an error e = `FFT_ERROR`·log₂ N·√N·‖x‖₂, and, A being the computed modulus plus e, the product
   of n_i-th powers one of at most ∏A_i^n_i·Σ n_i·(e_i/A_i + 2⁻⁵⁰), powers by products alone. Their mean over all
   frequencies, with the inverse FFT's own error, bounds the error of each point: it is added to each point.
6. *Infinity.* n laws with masses I_i at infinity have at most Σ n_i·I_i·∏(1 + …): added.

All that costs less than 10⁻⁶ of δ, and the grid less than 10⁻³ of ε, unless there are 10⁵ steps and more or nearly all
of them tell nothing (q of 10⁻⁵ and less with σ of ½ and less). Then the bound is looser, but one.

# The privacy loss of one step, or of one release: a law on a grid that is never too small

Its construction and its error bounds are points 1 and 2 above.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft
from scipy.special import logsumexp, ndtr, ndtri, ndtri_exp

from secagg.errors import BadInput
from secagg.privacy.gaussian import check_delta, delta_at_least, least, mu_of
from secagg.privacy.shares import UP, GaussianCost

Floats = NDArray[np.float64]

SLACK = 2.0**-40
"""Relative error allowed for the normal distribution function."""
ROUNDING = 2.0**-50
"""Relative error allowed for a few operations in a row, per unit of the size of a logarithm or exponent."""
TINY = 1e-300


class SubsampledSteps(NamedTuple):
    """`times` equal DP-SGD steps: sampling rate q in (0, 1]; a record moves the sum by `mu` > 0 times the noise's σ."""

    rate: float
    mu: float
    times: int


@dataclass(frozen=True)
class Law:
    """A privacy loss distribution: probabilities of the losses (`first` + i)·`step`, i ≥ 0, and of an infinite loss."""

    first: int
    step: float
    masses: Floats
    infinite: float

    @property
    def losses(self) -> Floats:
        """The finite losses, one for each probability in `masses`."""
        return (self.first + np.arange(len(self.masses), dtype=np.float64)) * self.step

    def delta(self, epsilon: float) -> float:
        """Return the δ of this privacy-loss distribution at ε ≥ 0, which is not below the least loss of the grid."""
        start = max(0, math.floor(epsilon / self.step) + 1 - self.first)
        over = -np.expm1(epsilon - self.losses[start:])
        return min(1.0, float(self.masses[start:] @ over) * (1 + 2.0**-30) + self.infinite)

    def epsilon(self, delta: float) -> float:
        """Return ε at δ, rounded up (between grid points δ is linear in e^ε); infinite where no ε is enough."""
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


def losses_of(part: SubsampledSteps, removed: bool, points: Floats) -> Floats:
    """Return the privacy loss of one step at each outcome in `points`, with a record removed, or else added."""
    rate, mu, _ = part
    without = math.log1p(-rate) if rate < 1 else -math.inf
    found = np.logaddexp(without, math.log(rate) + mu * points - mu * mu / 2)
    return found if removed else -found


def discretise(part: SubsampledSteps, removed: bool, reach: float, step: float) -> Law:
    """Return a pessimistic grid version of one step's privacy loss, for outcomes within `reach` standard deviations."""
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
    """Return w of each interval from `lows` on, rounded up: the part of its mass P that its upper end gets (1.)."""
    most, fewest = p[0] + p[1] + TINY, q[0] - q[1]
    known = fewest > TINY
    log_p, log_q = np.log(most[known]), np.log(fewest[known])
    ratios = np.exp(lows[known] + log_q - log_p)
    slack = ROUNDING * (np.abs(lows[known]) + np.abs(log_p) + np.abs(log_q) + 4)
    found = np.ones(len(lows))
    found[known] = np.clip((1 - ratios * (1 - slack)) / -math.expm1(-step) * (1 + ROUNDING), 0.0, 1.0)
    return found


def _thresholds(part: SubsampledSteps, losses: Floats) -> tuple[Floats, Floats]:
    """Return the points t where ln((1 − q) + q·e^(μt − μ²/2)) is each loss, and the tails' relative errors (2.).

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
        """Return the masses from each point to the next, and their errors, each from the smaller tail."""
        off_above, off_below = (errors * tails for tails in self)
        off_above, off_below = off_above[:-1] + off_above[1:], off_below[:-1] + off_below[1:]
        masses = np.where(off_above < off_below, -np.diff(self.above), np.diff(self.below))
        return masses, np.minimum(off_above, off_below)


def _tails(part: SubsampledSteps, removed: bool, losses: Floats) -> tuple[_Tails, _Tails, Floats]:
    """Return the tails of P and of Q at each loss, and their relative errors."""
    points, errors = _thresholds(part, losses if removed else -losses)
    without = ndtr(-points), ndtr(points)
    moved = ndtr(part.mu - points), ndtr(points - part.mu)
    mixed = [(1 - part.rate) * one + part.rate * other for one, other in zip(without, moved, strict=True)]
    if removed:
        return _Tails(*mixed), _Tails(*without), errors
    return _Tails(*without[::-1]), _Tails(*mixed[::-1]), errors


SIZE = 1 << 16
"""The number N of points of the grid."""
FFT_ERROR = 2.0**-49
NEGLIGIBLE = -40 * math.log(2)
"""Logarithm of the part of δ that cutting off may lose."""
NATS = 5.0
"""The excess allowed of a tilt's Chernoff bound over the best: floats have digits to spare, windows are narrower."""
_POWERS = 2.0 ** np.arange(-10, 30, 0.5)
_TILTS = np.concatenate([-_POWERS[::-1], [0.0], _POWERS])
_FARTHEST = 37.0
"""The number of standard deviations beyond which the normal distribution leaves the range of floats."""


def delta_of_steps(parts: Sequence[SubsampledSteps], epsilon: float) -> float:
    """Return δ at ε ≥ 0 of all DP-SGD steps on the same data, rounded up; the worse of adding and removing a record."""
    found = []
    for removed in (True, False):
        cumulants = _cumulants(parts, removed, _FARTHEST)
        target = max(-600.0, float((cumulants - _TILTS * epsilon)[_TILTS > 0].min()))
        found.append(_compose(parts, removed, target, epsilon).delta(epsilon))
    return max(found)


def epsilon_of_steps(parts: Sequence[SubsampledSteps], delta: float) -> float:
    """Return ε at δ of all DP-SGD steps on the same data, rounded up; the worse of adding and removing a record.

    Infinite where the grid is too coarse: for millions of steps that each tell next to nothing.
    """
    return max(_epsilon(parts, removed, delta) for removed in (True, False))


def _epsilon(parts: Sequence[SubsampledSteps], removed: bool, delta: float) -> float:
    """Return ε in one direction, at Chernoff's ε first, then about what is found there, until that hardly changes."""
    near, found = None, math.inf
    while True:
        better = _compose(parts, removed, math.log(delta), near).epsilon(delta)
        if not better < found * (1 - 2.0**-12):
            return min(better, found)
        near = found = better


def _compose(parts: Sequence[SubsampledSteps], removed: bool, target: float, near: float | None = None) -> Law:
    """Return the law of the sum of all losses, exact where δ is about e^target, at ε `near` (if None: Chernoff's)."""
    cut = target + NEGLIGIBLE
    reach = min(_FARTHEST, -float(ndtri_exp(cut - math.log(sum(part.times for part in parts)))))
    cumulants = _cumulants(parts, removed, reach)
    first, step, tilt = _window(parts, removed, reach, cumulants, target, near)
    laws = [discretise(part, removed, reach, step) for part in parts]
    if sum(part.times for part in parts) == 1:
        return laws[0]
    top = (first + SIZE) * step
    beyond = float(_TILTS[np.argmin(np.where(_TILTS > 0, cumulants - _TILTS * top, math.inf))])
    rest = math.fsum(part.times * _log_moment(law, beyond) for part, law in zip(parts, laws, strict=True))
    infinite = 1.001 * math.exp(min(0.0, rest - beyond * top))
    infinite += 1.001 * math.fsum(part.times * law.infinite for part, law in zip(parts, laws, strict=True))
    masses, shift = _convolve([part.times for part in parts], laws, tilt)
    masses = np.roll(masses, -(first % SIZE))
    exponents = shift - tilt * step * (first + np.arange(SIZE, dtype=np.float64))
    exponents += ROUNDING * (abs(shift) + np.abs(exponents) + 4)
    return Law(first, step, masses * np.exp(np.minimum(exponents, 600.0)), infinite)


def _window(
    parts: Sequence[SubsampledSteps], removed: bool, reach: float, cumulants: Floats, target: float, near: float | None
) -> tuple[int, float, float]:
    """Return first point, step and tilt of the window in which δ ≈ e^target is computed, at ε `near`.

    The tilt is the least whose Chernoff bound is nearly good enough. The tilted law's own bounds say where the window
    may begin and end: what wraps around is tilted back as if it lay elsewhere.
    """
    half = len(_POWERS) + 1
    if near is None:
        near = float(((cumulants[half:] - target) / _TILTS[half:]).min())
    logarithms = cumulants - _TILTS * near
    enough = max(target, float(logarithms[half:-1].min())) + NATS
    place = half + int(np.argmax(logarithms[half:-1] <= enough))
    tilt = float(_TILTS[place])
    beyond = float(((cumulants[half:] - target - NEGLIGIBLE) / _TILTS[half:]).min())
    others = np.delete(np.arange(len(_TILTS)), place)
    ends = (cumulants[others] - cumulants[place] - NEGLIGIBLE) / (_TILTS[others] - tilt)
    top, bottom = max(beyond, float(ends[place:].min())), min(0.0, float(ends[:place].max()))
    width = max(
        top - bottom, *(np.ptp(losses_of(part, removed, np.array([-reach, reach + part.mu]))) for part in parts)
    )
    step = 2.0 ** math.ceil(math.log2(width / (SIZE - 4)))
    return math.floor(bottom / step) - 1, step, tilt


def _cumulants(parts: Sequence[SubsampledSteps], removed: bool, reach: float) -> Floats:
    """Return Σ ln E[e^(sL)] for each s of `_TILTS`, by the trapezoidal rule: good for choosing, not for bounding."""
    total = np.zeros(len(_TILTS))
    for part in parts:
        points = np.linspace(-reach, reach + part.mu, 1025)
        weights = -(points**2) / 2 + math.log((points[1] - points[0]) / math.sqrt(2 * math.pi))
        losses = losses_of(part, removed, points)
        if removed:
            weights = weights + losses
        total += part.times * logsumexp(np.multiply.outer(_TILTS, losses) + weights, axis=1)
    return total


def _log_moment(law: Law, power: float) -> float:
    """Return ln Σ p·e^(power·loss), rounded up."""
    with np.errstate(divide="ignore"):
        found = float(logsumexp(np.log(law.masses) + power * law.losses))
    return found + 2 * ROUNDING * (abs(power) * float(np.abs(law.losses).max()) + abs(found) + 1000)


def _convolve(times: Sequence[int], laws: Sequence[Law], tilt: float) -> tuple[Floats, float]:
    """Return the sum's tilted law by cyclic convolution, k at k mod N, and Σκ; every point rounded up (3. to 5.)."""
    product = np.ones(SIZE // 2 + 1, dtype=np.complex128)
    log_bound, off, shift = np.zeros(len(product)), np.zeros(len(product)), 0.0
    fft_error = FFT_ERROR * math.log2(SIZE)
    for count, law in zip(times, laws, strict=True):
        kappa = _log_moment(law, tilt)
        with np.errstate(divide="ignore"):
            exponents = np.log(law.masses) + tilt * law.losses - kappa
        exponents += ROUNDING * (np.abs(tilt * law.losses) + abs(kappa) + 1000)
        places = (law.first + np.arange(len(law.masses))) % SIZE
        tilted = np.bincount(places, np.exp(exponents), minlength=SIZE) * (1 + ROUNDING)
        spectrum = rfft(tilted)
        error = fft_error * math.sqrt(SIZE) * float(np.linalg.norm(tilted)) * 1.001
        bounds = np.abs(spectrum) * (1 + ROUNDING) + error
        log_bound += count * np.log(bounds)
        off += count * (error / bounds + ROUNDING)
        product *= _power(spectrum, count)
        shift += count * kappa
    bounds = np.exp(np.maximum(log_bound, -690.0)) * 1.001
    both = np.full(len(bounds), 2.0)  # a real law's other frequencies mirror these
    both[[0, -1]] = 1.0
    error = float(both @ (bounds * off)) / SIZE + fft_error * math.sqrt(float(both @ bounds**2) / SIZE)
    return np.maximum(irfft(product, SIZE), 0.0) + 1.01 * error, shift


def _power(values: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """Return values^count by squaring: a relative error of count·√5·2⁻⁵³ (Brent, Percival & Zimmermann 2007)."""
    result = np.ones_like(values)
    while True:
        if count & 1:
            result *= values
        if not (count := count >> 1):
            return result
        values = values * values


SMALLEST_RATE = 1e-9
SMALLEST_MULTIPLIER, LARGEST_MULTIPLIER = 0.01, 1e6
MOST_STEPS = 10**7
SMALLEST, LARGEST = 1e-12, 1e300
"""Stand-ins where a logarithm is taken: for an ε or a μ² of 0, and for an infinite ε; no row has a μ below the one."""
LARGEST_LOSS = 600.0
"""The largest ε up to which a row is fitted."""
TRAININGS, CHANCE = 16, 2.0**-7
"""The most trainings about one data set, and each one's δ₀ as a part of the δ that all plans may have together."""
_TOLERANCE = 2.0**-12
"""The relative excess allowed of a multiplier that was searched for."""


@dataclass(frozen=True)
class SampledSteps:
    """`steps` steps of DP-SGD, all with sampling rate q in (0, 1] and the same noise multiplier. Raises BadInput."""

    rate: float
    multiplier: float
    steps: int

    def __post_init__(self) -> None:
        if not SMALLEST_RATE <= self.rate <= 1:
            raise BadInput(f"the sampling rate is {self.rate}", remedy=f"it lies between {SMALLEST_RATE:g} and 1")
        if not SMALLEST_MULTIPLIER <= self.multiplier <= LARGEST_MULTIPLIER:
            raise BadInput(
                f"the noise multiplier is {self.multiplier}",
                remedy=f"it lies between {SMALLEST_MULTIPLIER:g} and {LARGEST_MULTIPLIER:g}",
            )
        if not 1 <= self.steps <= MOST_STEPS:
            raise BadInput(f"training takes {self.steps} steps", remedy=f"give a number from 1 to {MOST_STEPS}")

    @property
    def mu(self) -> float:
        """Distance by which one record moves a step's sum, in units of the noise's σ; rounded up."""
        return (1 + 2.0**-50) / self.multiplier


@dataclass(frozen=True)
class TrainingCost:
    """The privacy cost of a client's noisy training and of all Gaussian releases that read the same records.

    Those have μ² = `squared_mu`, 0 where there are none. `gap` is T of steps and releases, in nats.
    Raises BadInput.
    """

    steps: SampledSteps
    squared_mu: float = 0.0
    gap: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.squared_mu < math.inf and 0 <= self.gap < math.inf):
            raise BadInput(f"no releases have a squared mu of {self.squared_mu} and a gap of {self.gap}")
        self._unsampled()

    def epsilon(self, delta: float) -> float:
        """Return ε at δ, rounded up, from the composed privacy losses. Raises BadInput for a δ out of range."""
        check_delta(delta)
        inner = delta * math.exp(-self.gap) * (1 - 2.0**-50)
        found = self._unsampled().epsilon(inner)
        if self.steps.rate < 1:
            found = min(found, _epsilon_of(self._parts(), inner))
        return (found + 2 * self.gap) * (1 + 2.0**-50)

    def group_epsilon(self, records: int, delta: float) -> float:
        """Return ε at δ, rounded up, of `records` ≥ 1 records together. Raises BadInput as `epsilon` does.

        Of several, by rows (μ, δ₀): δ_Gauss(k·μ, ε) + Σ_{i<k} Φ(Φ⁻¹(δ₀) + i·μ), as README.md proves (*People with
        several records*). Where no δ₀ makes that sum small beside δ, as if every record were in every batch.
        """
        if records == 1:
            return self.epsilon(delta)
        allowed = delta * math.exp(-records * self.gap) * CHANCE
        chance = allowed if self.steps.rate < 1 else 0.0
        while chance > TINY:
            row = self.row(chance)
            if math.fsum(ndtr(ndtri(chance) + i * row.mu) for i in range(records)) <= 1.9 * allowed:
                return row.group_epsilon(records, delta * (1 - 2 * CHANCE))
            chance = float(ndtr(ndtri(allowed / records) - (records - 1) * row.mu))
        return GaussianCost(self._unsampled().squared_mu, self.gap).group_epsilon(records, delta)

    def delta(self, epsilon: float) -> float:
        """Return δ at ε ≥ 0, rounded up, at most 1. Raises BadInput for an ε out of range.

        It is 1 for ε < 2·`gap`.
        """
        if 0 <= epsilon < 2 * self.gap:
            return 1.0
        inner = (epsilon - 2 * self.gap) * (1 - 2.0**-50)
        found = self._unsampled().delta(inner)
        if self.steps.rate < 1:
            found = min(found, delta_of_steps(self._parts(), inner))
        return min(1.0, math.exp(self.gap) * found * UP)

    def with_releases(self, releases: GaussianCost) -> TrainingCost:
        """Return the cost of this training and of further releases about the same records, rounded up."""
        gap = (self.gap + releases.gap) * UP
        return TrainingCost(self.steps, (self.squared_mu + releases.squared_mu) * UP, gap)

    def after(self, sums: int, of: int) -> TrainingCost:
        """Return an upper bound on the cost of the training for the first `sums` of the plan's `of` sums.

        1 ≤ `sums` ≤ `of`.
        That holds if as much is trained before each, and if nothing is before the first. Further releases are left out.
        """
        steps = replace(self.steps, steps=max(1, self.steps.steps * sums // of))
        return TrainingCost(steps, gap=self.gap * sums / of * UP)

    def row(self, chance: float) -> GaussianCost:
        """Return the Gaussian release that dominates this cost but for an outright failure of probability `chance`.

        Both orders of neighbours have δ(ε) ≤ `chance` + (1 − `chance`)·δ_Gauss(μ, ε) for every ε ≥ 0.
        """
        if self.steps.rate == 1:
            return GaussianCost(self._unsampled().squared_mu, self.gap)
        return GaussianCost(_row_of(self._parts(), chance, self.mu) ** 2 * UP, self.gap)

    @property
    def mu(self) -> float:
        """Upper bound on the Gaussian-DP μ of training and releases, as if each batch held all records.

        `gap` is not in it.
        """
        return self._unsampled().mu

    def _parts(self) -> tuple[SubsampledSteps, ...]:
        training = SubsampledSteps(self.steps.rate, self.steps.mu, self.steps.steps)
        return (training, SubsampledSteps(1.0, math.sqrt(self.squared_mu) * UP, 1)) if self.squared_mu else (training,)

    def _unsampled(self) -> GaussianCost:
        """Return the cost as one Gaussian release, as if every record were in every batch: it is never less.

        Divergences of mixtures are at most the largest of their parts'. Raises BadInput where it is out of range.
        """
        return GaussianCost((self.steps.steps * self.steps.mu**2 + self.squared_mu) * UP)


_epsilon_of = functools.lru_cache(maxsize=256)(epsilon_of_steps)  # all parties of one process ask for the same


@functools.lru_cache(maxsize=256)
def _row_of(parts: tuple[SubsampledSteps, ...], chance: float, most: float) -> float:
    """Return the least μ of a Gaussian row for these steps and a δ₀ of `chance`; `most` if that is less."""
    orders = [_curves(parts, removed, chance) for removed in (True, False)]
    apart = min((most for curves in orders for *_, most in curves), default=1.0)  # δ(0) is the same in both orders

    def fits(mu: float, ends: Floats, deltas: Floats, _: float) -> bool:
        bound = chance + (1 - chance) * delta_at_least(mu, ends)
        return bool(np.all(deltas.clip(max=apart) <= bound * (1 - ROUNDING)))

    def covers(mu: float) -> bool:
        return mu > SMALLEST and all(any(fits(mu, *each) for each in curves) for curves in orders)

    return least(lambda mu: mu >= most or covers(mu))


def _curves(parts: Sequence[SubsampledSteps], removed: bool, chance: float) -> list[tuple[Floats, Floats, float]]:
    """Return bounds of δ(ε), in one order, as intervals: the end of each, and δ where it begins; and δ(0).

    They cover all ε ≥ 0 where δ may be above `chance`. Above √`chance` δ is that of a law which is exact about ε = 0,
    below of one of two tails.
    """
    root, found = math.sqrt(chance), []
    tails = [_compose(parts, removed, math.log(chance))]
    if math.isfinite(near := tails[0].epsilon(chance)):
        tails.append(_compose(parts, removed, math.log(chance), near))
    body, larger = _curve(_compose(parts, removed, math.log(root), 0.0))
    join = int(np.argmax(larger <= root))
    for tail, deltas in map(_curve, tails):
        start = int(np.searchsorted(tail, body[join], side="right")) - 1
        ends, starts = np.append(body[1 : join + 1], tail[start + 1 :]), np.append(larger[:join], deltas[start:])
        over = starts[:-1] > chance
        if starts[-1] <= chance:  # and beyond the last point δ is no larger
            found.append((ends[over], starts[:-1][over], float(starts[0])))
    return found


def _curve(law: Law) -> tuple[Floats, Floats]:
    """Return a law's points ε ≥ 0, as far as exponentials go, and δ at each of them, rounded up."""
    losses, masses = law.losses[-law.first :], law.masses[-law.first :]
    above, weighed = (np.append(np.cumsum(each[:0:-1])[::-1], 0.0) for each in (masses, masses * np.exp(-losses)))
    count = int(np.searchsorted(losses, LARGEST_LOSS))
    found = above[:count] * (1 + SIZE * ROUNDING) - np.exp(losses[:count]) * weighed[:count] + law.infinite
    return losses[:count], np.maximum(found, 0.0)


@functools.lru_cache(maxsize=256)
def multiplier_for(
    rate: float, steps: int, *, epsilon: float, delta: float, squared_mu: float = 0.0, gap: float = 0.0
) -> float:
    """Return the least noise multiplier with which training is (ε, δ)-private, to a relative precision of 2⁻¹².

    `squared_mu` is what further releases about the same records cost, a share of `mu_of(epsilon, delta)`² perhaps; the
    multiplier leaves the rest to the steps. `TrainingCost(SampledSteps(rate, result, steps), squared_mu, gap)` keeps ε
    as computed. Raises BadInput where no multiplier does.
    """
    from scipy.optimize import brentq  # which every command would load

    def excess(logarithm: float) -> float:
        """Return by how much ε exceeds its bound, on a scale nearly linear in the multiplier's logarithm."""
        cost = TrainingCost(SampledSteps(rate, math.exp(logarithm), steps), squared_mu, gap)
        return math.log(min(max(cost.epsilon(delta), SMALLEST), LARGEST)) - math.log(epsilon)

    if not 0 < epsilon < math.inf:
        raise BadInput(f"epsilon cannot be {epsilon}", remedy="give a finite number above 0")
    # The search begins at μ = q·√(T·(e^(1/m²) − 1)) of many steps (Bu et al. 2020, "Deep learning with GDP").
    wanted = max(mu_of(epsilon, delta) ** 2 - squared_mu, SMALLEST) / (steps * rate**2)
    guess = 1 / math.sqrt(math.log1p(wanted))
    low = high = math.log(min(max(guess, SMALLEST_MULTIPLIER), LARGEST_MULTIPLIER))
    while high < math.log(LARGEST_MULTIPLIER) and excess(high) > 0:
        low, high = high, min(high + 0.25, math.log(LARGEST_MULTIPLIER))
    while low > math.log(SMALLEST_MULTIPLIER) and excess(low) <= 0:
        low, high = max(low - 0.25, math.log(SMALLEST_MULTIPLIER)), low
    if excess(high) > 0:
        raise BadInput(
            f"no noise of {steps} steps keeps epsilon {epsilon} at delta {delta:g}",
            remedy="train fewer steps, raise epsilon, or let the other releases have less",
        )
    if excess(low) > 0:
        high = brentq(excess, low, high, xtol=_TOLERANCE / 2)
        while excess(high) > 0:
            high += _TOLERANCE / 2
    return min(math.exp(high), LARGEST_MULTIPLIER)
