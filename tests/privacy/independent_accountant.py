"""Recompute what a plan costs from the noise that its parties draw, without a line of the product's accounting.

It reads the plan's fields, the number of clients, the layout of the sums, and the σ of the parts of clients' noise. The
distance by which a record or a client moves a sum is derived here:

- One record adds the multiplier m to one count, its vector (L2 ≤ R, the plan's levels) to one class's sum, and the
  triangle of its outer product to the second moment. With p_i = q_i² and Σp_i = R² that is Σp_i²/v + Σ_(i<j) p_i·p_j/w
  in units of the variances v on the diagonal and w off it, linear in Σp_i²: largest for one entry or d equal ones.
- Replaced by one of another class it moves counts and sums twice, and outer products of orthogonal vectors by 2·R⁴.
  Within a class counts stay; with cosine −t the sums move 2·R²(1 + t), outer products 2·R⁴(1 − t²).
- All this is convex in what a client holds, so that its M records move a sum most if they are M times the same one.
- A census has an entry in {0, 1} per client and class: a client changes all of them, a record one, or two if replaced.
- An update of levels R and d entries is an integer vector with squares of at most min((R + √d)², R² + d/4 + R + √d/2)
  (Kairouz, Liu & Steinke 2021, Proposition 22, with γ = 1 and β = e^(−1/2)); one record can turn it round.

The honest parts' sum counts as the rounding of a Gaussian with its variance less 3. Then
δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) (Balle & Wang 2018, Theorem 8). Steps on sampled records are composed by their
privacy losses on a grid (Koskela, Jälkö & Honkela 2020), in both orders of neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from secagg.agreement.plan import NoiseFrom, Plan
from secagg.encoding.layout import Kind
from secagg.plan_facts.facts import SumFacts
from secagg.privacy import Adjacency, Unit
from secagg.protection import protection_named
from secagg.protection.draw import cohorts
from secagg.session import RoundSetup

Floats = NDArray[np.float64]
ROUNDING = 3.0
"""Variance of the honest parts' sum that rounding to integers takes."""
REFINED = 1 << 28
"""Length of a refinement's gradient: residuals of 2¹² times records of 2¹⁶."""
STEP, HALF = 5e-4, 1 << 16
"""Width of the grid of privacy losses, and its points on either side of 0."""


def gaussian_delta(mu: float, epsilon: float | Floats) -> Floats:
    """δ of a Gaussian release at ε, of any shape."""
    return np.asarray(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def gaussian_epsilon(squared_mu: float, delta: float) -> float:
    """ε of a Gaussian release at δ; 0 where it has this δ at ε = 0."""
    mu = float(np.sqrt(squared_mu))
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    highest = mu * (mu / 2 - float(ndtri(delta)))
    return float(brentq(lambda epsilon: float(gaussian_delta(mu, epsilon)) - delta, 0.0, highest, xtol=1e-12))


@dataclass(frozen=True)
class Training:
    """So many `steps` on records drawn at `rate`, each of which moves a step's sum by `mu` deviations of its noise."""

    rate: float
    mu: float
    steps: int

    def losses(self, squared_mu: float, *, removed: bool) -> Floats:
        """Chances of the privacy losses k·STEP, k = −HALF … HALF − 1, together with Gaussian releases of this μ².

        A step is N(μ, 1) with chance `rate`, else N(0, 1), against N(0, 1); where nothing is `removed`, the other way
        round. Each loss counts at the nearest point.
        """
        edges = (np.arange(-HALF, HALF + 1) - 0.5) * STEP
        losses = np.exp(edges if removed else -edges[::-1])
        inside = np.maximum(losses - 1 + self.rate, 1e-300) / self.rate
        places = np.where(losses > 1 - self.rate, np.log(inside) / self.mu + self.mu / 2, -np.inf)
        plain, away = ndtr(places), ndtr(places - self.mu)
        law = np.diff((1 - self.rate) * plain + self.rate * away) if removed else np.diff(plain)[::-1]
        wave = np.fft.rfft(np.fft.ifftshift(law)) ** self.steps
        if squared_mu:
            gaussian = np.diff(ndtr((edges - squared_mu / 2) / np.sqrt(squared_mu)))
            wave = wave * np.fft.rfft(np.fft.ifftshift(gaussian))
        return np.asarray(np.fft.fftshift(np.fft.irfft(wave, 2 * HALF)))

    def deltas(self, squared_mu: float = 0.0) -> Floats:
        """δ at ε = 0, STEP, 2·STEP …, the larger one of both orders, together with Gaussian releases of this μ²."""
        points, found = np.arange(HALF) * STEP, []
        for removed in (True, False):
            chances = self.losses(squared_mu, removed=removed)[HALF:]
            above, weighed = (np.cumsum(each[::-1])[::-1] for each in (chances, chances * np.exp(-points)))
            found.append(above - np.exp(points) * weighed)
        return np.maximum(*found)

    def epsilon(self, squared_mu: float, delta: float) -> float:
        """ε at δ, together with Gaussian releases of this μ²; 0 where all have this δ at ε = 0."""
        deltas = self.deltas(squared_mu)
        after = int(np.argmax(deltas <= delta))
        return STEP * (after - float((delta - deltas[after]) / (deltas[after - 1] - deltas[after]))) if after else 0.0

    def row(self, squared_mu: float, failure: float) -> float:
        """The least μ² with δ(ε) ≤ failure + (1 − failure)·δ_Gauss(μ, ε) on the grid; `squared_mu` as in `deltas`."""
        asked = (self.deltas(squared_mu) - failure) / (1 - failure)
        points = np.flatnonzero(asked > 0)[::8]
        lacks = [float(np.max(asked[points] - gaussian_delta(mu, points * STEP))) for mu in (1e-3, 10.0)]
        assert lacks[0] > 0 > lacks[1]
        mu = brentq(lambda mu: float(np.max(asked[points] - gaussian_delta(mu, points * STEP))), 1e-3, 10.0)
        return float(mu) ** 2


@dataclass(frozen=True)
class Account:
    """The account of all that a plan's parties release about a record or a client; `setup` is its first round.

    `plan` may state another unit and adjacency than the round's own.
    """

    plan: Plan
    setup: RoundSetup

    @property
    def clients(self) -> int:
        """The number of clients in a sum if none is missing."""
        return self.plan.cohort or len(self.setup.roster.clients)

    @property
    def missing(self) -> range:
        """The numbers of clients that may be missing from a sum, in which two more than the colluders always are."""
        present = self.clients - self.plan.dropouts, self.plan.min_clients_in_sum, self.plan.colluders + 2
        return range(1 + self.clients - max(present))

    def honest(self, missing: int) -> int:
        """The fewest noise shares in a sum that the adversary does not know: it is c colluders, or one member."""
        known = max(self.plan.colluders, int(self.plan.result == "members"))
        is_hidden = protection_named(self.plan.protection).hides_vectors
        return max(1, self.clients - missing - known) if is_hidden else 1

    def parts(self, kind: SumFacts, missing: int) -> list[Floats]:
        """Variances of the parts of one client's noise that are not removed, in each entry of a sum."""
        assert kind.calibration is not None
        stays = (each.segments for each in kind.context.removable if missing > each.missing)
        return [_flat(each) for each in (kind.calibration.segments, *stays)]

    def variances(self, kind: SumFacts, missing: int) -> Floats:
        """Variance of the Gaussian noise that hides an honest client, in each entry of a sum."""
        share = np.sum(self.parts(kind, missing), axis=0)
        return share if self.plan.noise == NoiseFrom.AGGREGATOR else self.honest(missing) * share - ROUNDING

    def visits(self, kind: SumFacts) -> int:
        """The most of a kind's sums that one client is in, counted in schedules that eight seeds draw."""
        if not self.plan.cohort:
            return kind.spec.times
        members, size, times = len(self.setup.roster.clients), self.plan.cohort, kind.spec.times
        drawn = [Counter(chain(*cohorts(bytes([seed]) * 32, members, size, times))) for seed in range(8)]
        return max(each.most_common(1)[0][1] for each in drawn)

    def squared_mu(self, missing: int | None = None) -> float:
        """μ² of all noisy sums, for the worst neighbours; None: each sum lacks as many clients as costs most."""
        total, asked = np.zeros(3), self.missing if missing is None else [missing]
        for kind in self.setup.facts.kinds if self.plan.sum_noises else ():
            options = [squared_moves(self.plan, kind, self.variances(kind, each)) for each in asked]
            total += self.visits(kind) * np.max(options, axis=0)
        return float(total[0] if self.plan.adjacency == Adjacency.ADD_REMOVE else total[1:].max())

    @property
    def training(self) -> Training | None:
        """The steps that a member takes on its own records; None without noise of its own."""
        if not self.plan.has_training_noise:
            return None
        kind, named = self.setup.facts.kinds[-1], self.plan.method_parameters
        assert kind.spec.training is not None
        mu = kind.spec.training.levels / float(np.sqrt(self.plan.training_sigma**2 - ROUNDING))
        trained = named["rounds"] - bool(self.plan.sum_noises)  # noisy sums begin before the training does
        rounds = min(self.visits(kind), trained)
        return Training(named["sampling"], mu, named["steps"] * rounds)

    def epsilon(self, missing: int | None = None) -> float:
        """ε at the plan's δ of all that a client releases; `missing` as in `squared_mu`."""
        squared, training = self.squared_mu(missing), self.training
        return training.epsilon(squared, self.plan.delta) if training else gaussian_epsilon(squared, self.plan.delta)


def squared_moves(plan: Plan, kind: SumFacts, variances: Floats) -> Floats:
    """μ² of one sum, (3,): for one unit more or less, and for one replaced by one of another or of the same class."""
    weights, start = {}, 0
    for block in kind.layout.blocks:
        weights[block.kind] = block.multiplier**2 / variances[start : start + block.size]
        start += block.size
    is_whole, total = plan.unit == Unit.CLIENT, np.zeros(3)
    if Kind.CENSUS in weights:
        census = weights[Kind.CENSUS]
        return np.full(3, census.sum()) if is_whole else np.array([1, 2, 0]) * census.max()
    if Kind.UPDATE in weights:
        update = weights[Kind.UPDATE]
        first = 1 if is_whole or kind.spec.per is Unit.RECORD else 4
        total += np.array([first, 4, 4]) * _squared_update(plan, kind, len(update)) * update.max()
        total[0] += weights.get(Kind.OTHER, np.zeros(1)).max()  # the number of records
    else:
        total += np.array([1, 2, 0]) * weights[Kind.COUNTS].max()
        sums = plan.levels**2 * weights[Kind.CLASS_SUMS].max()
        one, apart = _squared_products(plan, weights.get(Kind.SECOND_MOMENT, np.zeros(0)))
        turned = min(1.0, sums / (2 * apart)) if apart else 1.0
        within = 2 * sums * (1 + turned) + 2 * apart * (1 - turned**2)
        total += [sums + one, 2 * (sums + apart), within]
    return total * plan.max_records**2 if is_whole and kind.spec.per is Unit.RECORD else total


def _squared_update(plan: Plan, kind: SumFacts, size: int) -> float:
    """Square of the length of a client's update, or of a record's gradient, in grid units."""
    if "refine" in plan.method_parameters:
        return float(REFINED**2)
    root, units = np.sqrt(size), max(plan.levels, 1 << int(np.ceil(np.log2(16 * np.sqrt(size)))))
    rounded = min((units + root) ** 2, units**2 + root**2 / 4 + units + root / 2)
    return float(units**2 if kind.spec.per is Unit.RECORD else rounded)


def _squared_products(plan: Plan, weights: Floats) -> tuple[float, float]:
    """Largest weighted squares of an outer product of length R², and half those of two orthogonal ones' difference."""
    if not len(weights):
        return 0.0, 0.0
    rows, columns = np.triu_indices(plan.dimension)
    diagonal, off = weights[rows == columns].max(), weights[rows != columns].max() / 2
    spread = diagonal / plan.dimension + off * (1 - 1 / plan.dimension)
    return float(max(diagonal, spread) * plan.levels**4), float(max(diagonal, off) * plan.levels**4)


def _flat(segments: Iterable[tuple[float, int]]) -> Floats:
    """σ² of every entry of a vector."""
    sigmas, sizes = zip(*segments, strict=True)
    return np.repeat(np.square(sigmas), sizes)


def law_of_sum(variances: Iterable[float], shares: int) -> Floats:
    """Law of the sum of `shares` shares, each a sum of discrete Gaussians of these variances, at −n … n.

    By convolution of positive numbers, cut off at 12 deviations of the sum: every chance is right to 13 digits.
    """
    each = list(variances)
    half = int(np.ceil(12 * np.sqrt(shares * sum(each))))
    laws = [np.exp(-(np.arange(-half, half + 1) ** 2) / (2 * variance)) for variance in each]
    return reduce(lambda one, other: np.convolve(one, other, "same"), [law / law.sum() for law in laws] * shares)


def exact_delta(law: Floats, distance: int, epsilon: float) -> float:
    """δ at ε of an integer with noise of this law that one unit moves by this distance."""
    return float(np.maximum(law[distance:] - np.exp(epsilon) * law[:-distance], 0).sum())
