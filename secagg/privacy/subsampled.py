"""DP-SGD inside a member: noisy steps on batches that are drawn anew for each, and what they cost.

Every record is in a step's batch with probability q (`rate`), by its own draw that nobody else sees; clipped gradients
are summed, and noise is added. Rate and number of steps are public constants of the plan. The noise is a discrete
Gaussian of σ grid units, accounted as the Gaussian of which it is a rounding (`secagg.privacy.shares`, one share): its
variance counts as σ² − r², so that the `multiplier` is √(σ² − r²)/C with C the clip in grid units, and each step has a
gap T. That theorem's factors e^±T hold for each batch, hence for their mixture, and what they round is post-processed.

Neighbours have one record more or less, and no others are accounted: q amplifies for these alone.

Sources: Zhu, Dong & Wang 2022 and Doroshenko et al. 2022 (`secagg.privacy.losses`); Mironov, Talwar & Zhang, "Rényi
differential privacy of the sampled Gaussian mechanism", 2019.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, logsumexp, xlog1py

from secagg.errors import BadInput
from secagg.privacy.gaussian import check_delta, mu_of
from secagg.privacy.losses import Steps, delta_of_steps, epsilon_of_steps
from secagg.privacy.rdp import ALPHA, UP, RdpCurve
from secagg.privacy.shares import GaussianCost

SMALLEST_RATE = 1e-9
SMALLEST_MULTIPLIER, LARGEST_MULTIPLIER = 0.01, 1e6
MOST_STEPS = 10**7
SMALLEST, LARGEST = 1e-12, 1e300
"""Stand for an ε or a μ² of 0, and for an infinite ε, where a logarithm is taken."""
_TOLERANCE = 2.0**-12
"""How much larger than need be a multiplier may be that was searched for."""


@dataclass(frozen=True)
class SampledSteps:
    """So many steps of DP-SGD: sampling rate q in (0, 1] and noise multiplier of each. Raises BadInput."""

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
        """The distance that a record moves one step's sum, in units of its noise; rounded up."""
        return (1 + 2.0**-50) / self.multiplier

    def curve(self) -> RdpCurve:
        """Return ρ(α) of all steps, rounded up (Mironov, Talwar & Zhang 2019, Theorems 4 and 5 and section 3.3)."""
        return RdpCurve(tuple(self.steps * each * UP for each in _divergences(self.rate, self.mu)))


@dataclass(frozen=True)
class TrainingCost:
    """The cost of a member's training, with everything else that reads the same records: further Gaussian releases.

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

    def delta(self, epsilon: float) -> float:
        """Return δ at ε ≥ 0, rounded up, at most 1; 1 below 2T. Raises BadInput for an ε out of range."""
        if 0 <= epsilon < 2 * self.gap:
            return 1.0
        inner = (epsilon - 2 * self.gap) * (1 - 2.0**-50)
        found = self._unsampled().delta(inner)
        if self.steps.rate < 1:
            found = min(found, delta_of_steps(self._parts(), inner))
        return min(1.0, math.exp(self.gap) * found * UP)

    def beside(self, releases: GaussianCost) -> TrainingCost:
        """Return the cost of this and of further releases about the same records, rounded up."""
        gap = (self.gap + releases.gap) * UP
        return TrainingCost(self.steps, (self.squared_mu + releases.squared_mu) * UP, gap)

    def after(self, sums: int, of: int) -> TrainingCost:
        """Return at least the cost of what is trained before the first `sums` of so many sums, 1 ≤ sums ≤ of.

        That holds if as much is trained before each, and if nothing is before the first. Further releases are left out.
        """
        steps = replace(self.steps, steps=max(1, self.steps.steps * sums // of))
        return TrainingCost(steps, gap=self.gap * sums / of * UP)

    def curve(self) -> RdpCurve:
        """Return ρ(α) of everything, rounded up: what a ledger adds (`GaussianCost.curve` on the gap)."""
        widened = RdpCurve(tuple((self.gap * (2 * ALPHA - 1) / (ALPHA - 1) * UP).tolist()))
        total = self.steps.curve() + widened
        return total + GaussianCost(self.squared_mu).curve() if self.squared_mu else total

    @property
    def mu(self) -> float:
        """μ of a Gaussian release that never costs less, up to the gap: all of it, every record in every batch."""
        return self._unsampled().mu

    def _parts(self) -> tuple[Steps, ...]:
        training = Steps(self.steps.rate, self.steps.mu, self.steps.steps)
        return (training, Steps(1.0, math.sqrt(self.squared_mu) * UP, 1)) if self.squared_mu else (training,)

    def _unsampled(self) -> GaussianCost:
        """All of it as one Gaussian release, as if every record were in every batch: it never costs less.

        Divergences of mixtures are at most the largest of their parts'. Raises BadInput where it is out of range.
        """
        return GaussianCost((self.steps.steps * self.steps.mu**2 + self.squared_mu) * UP)


@functools.lru_cache(maxsize=256)
def _epsilon_of(parts: tuple[Steps, ...], delta: float) -> float:
    """All parties of a session in one process ask for the same."""
    return epsilon_of_steps(parts, delta)


def multiplier_for(
    rate: float, steps: int, *, epsilon: float, delta: float, squared_mu: float = 0.0, gap: float = 0.0
) -> float:
    """Return the least noise multiplier with which training keeps (ε, δ), to 2⁻¹² of it.

    `squared_mu` is what further releases about the same records cost, a share of `mu_of(epsilon, delta)`² perhaps; the
    multiplier leaves the rest to the steps. `TrainingCost(SampledSteps(rate, result, steps), squared_mu, gap)` keeps ε
    as computed. Raises BadInput where no multiplier does.
    """
    from scipy.optimize import brentq  # which every command would load

    def excess(logarithm: float) -> float:
        """By how much ε is more than it may be, on a scale where it is nearly linear in the multiplier's logarithm."""
        cost = TrainingCost(SampledSteps(rate, math.exp(logarithm), steps), squared_mu, gap)
        return math.log(min(max(cost.epsilon(delta), SMALLEST), LARGEST)) - math.log(epsilon)

    if not 0 < epsilon < math.inf:
        raise BadInput(f"epsilon cannot be {epsilon}", remedy="give a finite number above 0")
    low = high = math.log(_guess(rate, steps, mu_of(epsilon, delta) ** 2 - squared_mu))
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


def _guess(rate: float, steps: int, squared_mu: float) -> float:
    """Where to begin to search: μ = q·√(T·(e^(1/m²) − 1)) of many steps (Bu et al. 2020, "Deep learning with GDP")."""
    wanted = max(squared_mu, SMALLEST) / (steps * rate**2)
    return min(max(1 / math.sqrt(math.log1p(wanted)), SMALLEST_MULTIPLIER), LARGEST_MULTIPLIER)


@functools.lru_cache(maxsize=64)
def _divergences(rate: float, mu: float) -> tuple[float, ...]:
    """Rényi divergences of one step at every order, rounded up: ln A(α)/(α − 1), A(α) = E_Q[R^α], R = dP/dQ.

    A is known for whole orders. As E_Q[R] = 1, B(α) = (A(α) − 1)/(α(α − 1)) = E_Q[∫₁^R (R − u)·u^(α−2) du], the moments
    of a positive measure over u: ln B is convex (Hölder), and below its chord between whole orders of 2 and more. So is
    ln A between A(1) = 1 and A(2). ρ is never more than the Gaussian's without sampling.
    """
    below, above = np.floor(np.maximum(ALPHA, 2)), np.ceil(np.maximum(ALPHA, 2))
    found = {order: _log_excess(int(order), rate, mu) for order in np.unique([below, above])}
    low, high = (np.array([found[order] for order in orders]) for orders in (below, above))
    beyond = np.maximum(ALPHA, 2) - below
    bound = low + (high - low) * beyond + 2.0**-46 * (np.abs(low) + np.abs(high) + 1)
    log_moments = np.logaddexp(0.0, bound + np.log(np.maximum(ALPHA, 2) * (np.maximum(ALPHA, 2) - 1)))
    divergences = np.where(ALPHA < 2, log_moments, log_moments / (ALPHA - 1))
    return tuple((np.minimum(divergences, ALPHA * mu * mu / 2) * (1 + 2.0**-40)).tolist())


def _log_excess(order: int, rate: float, mu: float) -> float:
    """ln B(α) for a whole α ≥ 2, rounded up: A − 1 = Σ_{k≥2} C(α, k)·(1−q)^(α−k)·q^k·(e^(μ²k(k−1)/2) − 1)."""
    k = np.arange(2, order + 1, dtype=np.float64)
    exponents = mu * mu * k * (k - 1) / 2
    choices = [gammaln(order + 1), -gammaln(k + 1), -gammaln(order - k + 1)]
    terms = [*choices, xlog1py(order - k, -rate), k * math.log(rate), exponents, np.log(-np.expm1(-exponents))]
    off = sum(np.where(np.isfinite(term), np.abs(term), 0.0) for term in terms)
    return float(logsumexp(sum(terms) + 2.0**-46 * (off + 1))) - math.log(order * (order - 1))
