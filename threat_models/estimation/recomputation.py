"""The auditor's second opinion on ε, computed from the noise in the plan by independent formulas.

Nothing here uses the accounting of `secagg.privacy`, whose results it checks: honest shares follow from the plan's
dropouts, colluders and minimum cohort, lengths from what the kinds of blocks are, and a client's from its most records.
What a method says of itself counts where it says more than that, or where a kind (an update, say) bounds nothing; an
auditor who found longer parts (`longest_parts`) counts these.

Training on sampled records, with sums beside it, is composed by privacy losses on one grid.
One step with noise multiplier m and sampling rate q is the pair N(0, m²) and (1 − q)·N(0, m²) + q·N(1, m²): the loss of
an outcome x is ±log((1 − q) + q·e^((2x − 1)/(2m²))). Losses of independent steps add up, so that their distribution is
a power of the step's under the Fourier transform (Koskela, Jälkö & Honkela 2020); that of sums with Gaussian noise of
the same records is normal, with mean μ²/2 and variance μ², and multiplies it. Nothing is shared with the accounting
of `secagg.privacy`, which bounds the same from above: this rounds to the nearest grid point, and is no bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from methods import sums_of
from methods.method import SampledTraining, SumSpec
from secagg.agreement.plan import NoiseFrom, Plan, ResultAccess
from secagg.encoding.layout import Kind
from secagg.errors import BadInput
from secagg.privacy import (
    Adjacency,
    BlockwiseSensitivity,
    CellSensitivity,
    CensusSensitivity,
    Mechanism,
    MomentSensitivity,
    NoiseLevel,
    Releases,
    Sensitivity,
    Unit,
)
from secagg.protection import PROTECTIONS
from threat_models.estimation.empirical_sensitivity import Found
from threat_models.session import Floats

TOLERANCE = 1e-3
"""Relative tolerance: the two computations of ε round differently, and one searches for the worst pair of records."""
LOST = 3.0
"""Variance by which a sum of discrete-Gaussian shares counts less than Gaussian noise, as it is one of integers.

A sum of such shares is within 10⁻²⁵ an entry, at the σ ≥ 3 that every plan's shares have, of a rounding of Gaussian
noise with this much less variance (Peikert 2010, Theorem 3.1, with r² = 3).
"""
LARGEST_EPSILON = 1e6


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Compute ε at δ of a Gaussian release with sensitivity μ·σ; 0 for μ ≤ 0 (Balle & Wang 2018, Theorem 8)."""
    if mu <= 0 or _log_delta(mu, 0.0) <= math.log(delta):
        return 0.0
    if _log_delta(mu, LARGEST_EPSILON) > math.log(delta):
        return math.inf
    return float(brentq(lambda epsilon: _log_delta(mu, epsilon) - math.log(delta), 0.0, LARGEST_EPSILON, xtol=1e-12))


def _log_delta(mu: float, epsilon: float) -> float:
    if math.isinf(mu):
        return 0.0
    upper, lower = float(log_ndtr(mu / 2 - epsilon / mu)), epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return upper + math.log1p(-math.exp(lower - upper)) if lower < upper else -math.inf


def epsilon_of(releases: Releases, delta: float) -> float:
    """Recompute the ε of calibrated releases at δ: the largest of all noise levels, each with its honest shares."""
    total = max(_squared_mu_at(releases, level) for level in releases.first.levels)
    if releases.training is None:
        return gaussian_epsilon(math.sqrt(total), delta)
    steps = releases.training.steps
    return sampled_epsilon(steps.rate, steps.multiplier, steps.steps, delta, total)


def _squared_mu_at(releases: Releases, level: NoiseLevel) -> float:
    """Compute μ² of all sums with the noise that is left at a level, from as many honest shares as it has."""
    shares, total = level.fewest if releases.first.mechanism is Mechanism.DISCRETE_SHARES else 0, 0.0
    for calibration, times in releases.parts:
        noises = {
            each.block.name: (
                each.multiplier,
                calibration.left_of(each.sigma, level.missing),
                calibration.left_of(each.off_diagonal, level.missing) if each.off_diagonal else 0.0,
            )
            for each in calibration.blocks
        }
        total += times * squared_mu(calibration.sensitivity, noises, shares)
    return total


@dataclass(frozen=True)
class SecondOpinion:
    """The ε recomputed from the noise in a plan, beside the ε that the plan claims."""

    epsilon: float
    claimed: float
    delta: float

    @property
    def agrees(self) -> bool:
        """True if the recomputed ε is no more than the claimed ε, but for rounding."""
        return self.epsilon <= self.claimed * (1 + TOLERANCE)

    @property
    def sentence(self) -> str:
        """A sentence that compares the recomputed ε with the claimed one."""
        verdict = f"{'as claimed or better' if self.agrees else 'more than is claimed'} ({self.claimed:.4g})"
        return f"The noise in the plan gives epsilon {self.epsilon:.4g} at delta {self.delta:g}, {verdict}."


def honest_shares(plan: Plan, clients: int) -> int:
    """Count the noise shares unknown to the adversary in the smallest sum that a plan for `clients` allows.

    Of several that open the sum one is honest, and each adds all noise. Where uploads are in clear a client's own share
    is all that hides it. A member that is shown a sum or a head knows its own share, whether others collude or not; who
    is alone in a sum has its own. Where cohorts are drawn a sum is one's of theirs, with all colluders in it.
    """
    if plan.noise == NoiseFrom.AGGREGATOR or not PROTECTIONS[plan.protection].hides_vectors:
        return 1
    shown = plan.result is ResultAccess.MEMBERS or sum(kind.times for kind in sums_of(plan)) > 1
    fewest = max(plan.min_clients_in_sum, (plan.cohort or clients) - plan.dropouts)
    return max(1, fewest - max(plan.colluders, int(shown)))


def share_left(plan: Plan, clients: int, missing: int) -> float:
    """Compute the part of a noise share's variance that is left in a sum which `missing` clients are not in.

    Where noise levels remove surplus noise, as many shares as are honest there have the variance that the fewest have.
    """
    level = next((each for each in plan.noise_levels if missing <= each), None)
    if level is None:
        return 1.0
    present = plan.cohort or clients
    most = present - max(plan.min_clients_in_sum, present - plan.dropouts)
    fewest = honest_shares(plan, clients)
    return fewest / (fewest + most - level)


def second_opinion(plan: Plan, honest: int, found: Found | None = None, *, consortium: int = 0) -> SecondOpinion:
    """Recompute ε from the noise in the plan, of which the adversary does not know `honest` ≥ 1 shares.

    `found` are lengths of one unit's parts that were reached, `consortium` is how many clients the plan has in all, 0
    where it is not known: then a cohort's members count as if they were in every round. Raises BadInput for a plan
    without noise, or with noise for other blocks than its method sums.
    """
    if plan.noise == NoiseFrom.MEMBER:
        return training_opinion(plan, consortium)
    if not plan.has_noise or honest < 1:
        raise BadInput("no epsilon follows from this plan", remedy="it needs noise, and one honest share of it")
    planned = list(plan.sum_noises)
    shares = 0 if plan.noise == NoiseFrom.AGGREGATOR else honest
    total = 0.0
    for place, kind in enumerate(sums_of(plan)):
        names = [block.name for block in kind.blocks]
        own, planned = planned[: len(names)], planned[len(names) :]
        if [noise.block for noise in own] != names:
            raise BadInput(f"the plan has noise for {[noise.block for noise in own]}, the method sums {names}")
        noises = {noise.block: (noise.multiplier, noise.sigma, noise.off_diagonal) for noise in own}
        reached = {name: (found or {}).get((place, name), 0.0) for name in names}
        total += _own_sums(plan, kind.times, consortium) * _squared_mu_of(plan, kind, _weights(noises, shares), reached)
    trained = training_of(plan)
    epsilon = _with_training(plan, total, consortium) if trained else gaussian_epsilon(math.sqrt(total), plan.delta)
    return SecondOpinion(epsilon, plan.epsilon, plan.delta)


def _own_sums(plan: Plan, sums: int, consortium: int) -> int:
    """Return the most sums that one client is in: clients are drawn in turn, all equally often but for one time."""
    if not plan.cohort or not consortium:
        return sums
    return math.ceil(Fraction(sums * plan.cohort, consortium))


def training_opinion(plan: Plan, consortium: int = 0) -> SecondOpinion:
    """Recompute ε of clients' DP-SGD training from the plan's σ, sampling rate and number of steps.

    It needs no honest party. What members measure and noise beside their steps counts as Gaussian releases. A step's
    noise is one discrete share. That it rounds a Gaussian but for a factor e^±T is left out: T is far below
    `TOLERANCE`. Raises BadInput for a plan whose members do not train so, or that promises another unit.
    """
    if any(kind.sensitivities or kind.training is None for kind in sums_of(plan)):
        raise BadInput("no epsilon follows from this plan", remedy="what is summed has no noise, or is not trained")
    return SecondOpinion(_with_training(plan, 0.0, consortium), plan.epsilon, plan.delta)


def training_of(plan: Plan) -> SampledTraining | None:
    """Return how members train on their records before the plan's sums; None where they do not."""
    trained = {kind.training for kind in sums_of(plan)} - {None}
    return next(iter(trained)) if len(trained) == 1 else None


def _with_training(plan: Plan, total: float, consortium: int) -> float:
    """Compute ε of members' own training and of sums with `total` μ² beside the training. Raises BadInput."""
    training = training_of(plan)
    if training is None or (plan.unit, plan.adjacency) != (Unit.RECORD, Adjacency.ADD_REMOVE):
        raise BadInput("no epsilon follows from this plan", remedy="members train on sampled records, add-remove")
    multiplier = math.sqrt(max(0.0, plan.training_sigma**2 - LOST)) / training.levels
    own = min(training.times, _own_sums(plan, sum(kind.times for kind in sums_of(plan)), consortium))
    if plan.noise == NoiseFrom.MEMBER:
        total += own * _squared_mu_beside(plan, training)
    return sampled_epsilon(training.rate, multiplier, training.steps * own, plan.delta, total)


def _squared_mu_beside(plan: Plan, training: SampledTraining) -> float:
    """Compute μ² of a member's noisy numbers beside its steps before one sum: Σ l²/(σ² − `LOST`), one share each.

    A record moves all of it together, so that μ² of the numbers add up (Dong, Roth & Su 2022, corollary 3.3). Raises
    BadInput where the plan has noise for other numbers than its method measures.
    """
    measured = {block.name: block.l2 for block in training.further}
    if set(planned := plan.further_sigmas) != set(measured):
        raise BadInput(f"beside the training the plan has noise for {list(planned)}, members measure {list(measured)}")
    weights = _weights({name: (1, sigma, 0.0) for name, sigma in planned.items()}, shares=1)
    return math.fsum(weights[name] * length**2 for name, length in measured.items())


def _squared_mu_of(plan: Plan, kind: SumSpec, weights: Mapping[str, float], reached: Mapping[str, float]) -> float:
    """Compute μ² of one sum of a kind. Parts longer than the kind allows count with the length `reached`."""
    unit, replaces = plan.unit, plan.adjacency is Adjacency.REPLACE_ONE
    # The most that one unit can move each block, by what its entries are; 0 where that is unknown.
    levels = float(plan.levels)
    of = {Kind.COUNTS: 1.0, Kind.CLASS_SUMS: levels, Kind.SECOND_MOMENT: levels**2}
    own = {
        block.name: math.sqrt(block.size) if block.kind is Kind.CENSUS else of.get(block.kind, 0.0)
        for block in kind.blocks
    }
    # What a method says of one unit that a kind of sum is about.
    stated = [block for each in kind.sensitivities if each.unit is kind.per for block in each.blocks]
    lengths = {
        name: max(length, reached[name], *(block.l2 for block in stated if block.name == name))
        for name, length in own.items()
    }
    if [block.kind for block in kind.blocks] == [Kind.CENSUS] and max(reached.values()) <= own[kind.blocks[0].name]:
        size = kind.blocks[0].size
        return weights[kind.blocks[0].name] * (size if unit is Unit.CLIENT else min(size, 1 + replaces))
    is_moment = any(isinstance(each, MomentSensitivity) for each in kind.sensitivities)
    is_cells = [block.kind for block in kind.blocks] == [Kind.COUNTS, Kind.CLASS_SUMS] and lengths == own
    parts = [weights[block.name] * lengths[block.name] ** 2 for block in kind.blocks]
    if unit is kind.per is Unit.RECORD and replaces and (is_moment or is_cells):
        return _worst_pair(*parts)
    if kind.per is Unit.CLIENT and (unit is Unit.RECORD or replaces):  # a client's part turns into any other
        return _apart(kind.sensitivities) * math.fsum(parts)
    times = 1 + replaces
    if unit is not kind.per:  # all records of a client one after the other
        times *= plan.max_records
    return times**2 * math.fsum(parts)


def _apart(stated: Sequence[Sensitivity]) -> int:
    """Return the largest squared distance of two parts of length 1: 4 for opposite ones, 2 where none is negative.

    The angle between parts without negative entries is a right one at most. That they are so is what a method says;
    where one is found that is not, parts count as √2 times as long (`longest_of`), which comes to 4.
    """
    says = [isinstance(each, BlockwiseSensitivity) and each.nonnegative for each in stated]
    return 2 if says and all(says) else 4


def _weights(noises: Mapping[str, tuple[int, float, float]], shares: int) -> dict[str, float]:
    """Return the weight of a squared length of each block: multiplier²/variance of the noise.

    A triangle takes the lesser of its two variances, the one off the diagonal doubled. The noise is the sum of `shares`
    discrete-Gaussian shares; with 0 shares it is what one party adds, a Gaussian.
    """

    def variance(sigma: float) -> float:
        return max(1e-300, shares * sigma**2 - LOST) if shares else sigma**2

    return {
        name: multiplier**2 / min(variance(sigma), *([2 * variance(off_diagonal)] if off_diagonal else []), math.inf)
        for name, (multiplier, sigma, off_diagonal) in noises.items()
    }


def squared_mu(sensitivity: Sensitivity, noises: Mapping[str, tuple[int, float, float]], shares: int) -> float:
    """Compute the Gaussian-DP μ² of one sum, whose `shares` noise shares each have the σ in `noises`.

    `noises` by block: (multiplier, σ, σ off the diagonal or 0); `shares` as in `_weights`.

    Moments, or counts and sums of cells: the worst pair of records, searched. A census: 1 or 2 entries, a client's all.
    Else the lengths stated, twice them where a unit is replaced, or √2 times where no entry is negative.
    """
    weights = _weights(noises, shares)
    replaces = sensitivity.adjacency is Adjacency.REPLACE_ONE
    if isinstance(sensitivity, CensusSensitivity):
        entries = sensitivity.classes if sensitivity.unit is Unit.CLIENT else 1 + replaces
        return entries * weights["census"]
    if isinstance(sensitivity, MomentSensitivity | CellSensitivity):
        levels = float(sensitivity.levels)  # one record of full length, through N, A and B if there is one
        parts = [weights[block.name] * levels ** (2 * power) for power, block in enumerate(sensitivity.blocks)]
        return _worst_pair(*parts) if replaces else math.fsum(parts)
    parts = [weights[block.name] * block.l2**2 for block in sensitivity.blocks]
    return (_apart([sensitivity]) if replaces else 1) * math.fsum(parts)


def _worst_pair(n: float, a: float, b: float = 0.0) -> float:
    """Search for the largest μ² between two records of lengths x, y ≤ 1 and cosine c, of one class (cell) or of two.

    A record of full length adds n, a and b to μ² through N, A and B. Where every class has a B of its own, records of
    two classes move b·(x⁴ + y⁴), which is most at c = 0, too, as where they share one.
    """
    x = np.linspace(0, 1, 11)[:, None, None]
    y = np.linspace(0, 1, 11)[None, :, None]
    c = np.linspace(-1, 1, 4001)
    second = b * (x**4 + y**4 - 2 * (c * x * y) ** 2)
    same = a * (x * x + y * y - 2 * c * x * y) + second
    other = 2 * n + a * (x * x + y * y) + second
    return float(max(same.max(), other.max()))


CELLS = 1 << 18
"""Number of grid points of the privacy loss: a power of two, for the Fourier transform."""
SPREADS = 40.0
"""Standard deviations of all steps' privacy loss that the grid reaches on either side."""
LEAST_REACH = 8.0
LARGEST_SQUARED_MU = 1e6
"""Largest μ² of releases beside the steps for which ε is computed; above it ε exceeds half of this value."""


def sampled_epsilon(rate: float, multiplier: float, steps: int, delta: float, squared_mu: float = 0.0) -> float:
    """Compute ε at δ of `steps` ≥ 1 Poisson-sampled Gaussian steps, the larger of a record's addition and removal.

    It is ∞ without noise. `squared_mu` is μ² of all releases beside the steps; above `LARGEST_SQUARED_MU` ε is ∞ too.
    Raises BadInput for a rate outside (0, 1].
    """
    if not 0 < rate <= 1 or steps < 1:
        raise BadInput(f"{steps} steps at the sampling rate {rate}")
    if not multiplier > 0 or squared_mu > LARGEST_SQUARED_MU:
        return math.inf
    reach = _reach(rate, multiplier, steps, delta) + squared_mu / 2 + SPREADS * math.sqrt(squared_mu)
    edges: Floats = np.asarray((np.arange(CELLS + 1) - 0.5 - CELLS // 2) * (2 * reach / CELLS), dtype=np.float64)
    # Probabilities of the loss of sums with this μ² on the same grid: all in the middle for 0.
    sums = np.diff(ndtr((edges - squared_mu / 2) / max(math.sqrt(squared_mu), 1e-12)))
    losses = (_step(rate, multiplier, is_removed, edges) for is_removed in (True, False))
    return max(_epsilon(step, steps, sums, delta, reach) for step in losses)


def _reach(rate: float, multiplier: float, steps: int, delta: float) -> float:
    """Choose the end of the grid: all steps' loss is beyond it with a probability far below δ.

    The loss of a step is no larger than (x + 1/2)/m² or so, and its square is q²(e^(1/m²) − 1) on average.
    """
    square = steps * rate**2 * math.expm1(min(1 / multiplier**2, 50.0))
    largest = (math.sqrt(-2 * math.log(delta)) + 1 / multiplier) * math.sqrt(steps) / multiplier
    gaussian = steps / (2 * multiplier**2) + 3 * largest
    return max(LEAST_REACH, min(gaussian, square / 2 + SPREADS * math.sqrt(square) + 3 * largest / math.sqrt(steps)))


def _step(rate: float, multiplier: float, is_removed: bool, edges: Floats) -> Floats:
    """Compute the probabilities (CELLS,) of one step's loss in the grid's cells between `edges`; 0 is in the middle."""
    sign = 1.0 if is_removed else -1.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inner = (np.exp(sign * edges) - (1 - rate)) / rate
        x = np.where(inner > 0, multiplier**2 * np.log(np.maximum(inner, 1e-300)) + 0.5, -np.inf)
    x = np.where(np.isposinf(np.exp(np.minimum(sign * edges, 709.0))), np.inf, x)
    below = ndtr(x / multiplier)
    if is_removed:  # outcomes with the record there
        below = (1 - rate) * below + rate * ndtr((x - 1) / multiplier)
    found: Floats = np.abs(np.diff(below))
    return found


def _epsilon(step: Floats, steps: int, sums: Floats, delta: float, reach: float) -> float:
    """Compute ε at δ of independent steps' losses and the sums' loss; what lies outside the grid counts as infinite."""
    transformed = [np.fft.rfft(np.fft.ifftshift(each)) for each in (step, sums)]
    power = np.fft.irfft(transformed[0] ** steps * transformed[1], CELLS)
    masses = np.maximum(np.fft.fftshift(power), 0.0)
    losses = (np.arange(CELLS) - CELLS // 2) * (2 * reach / CELLS)
    lost = max(0.0, -math.expm1(steps * math.log(min(1.0, float(step.sum())))))

    def excess(epsilon: float) -> float:
        above = losses > epsilon
        return lost + float(masses[above] @ -np.expm1(epsilon - losses[above])) - delta

    if excess(0.0) <= 0:
        return 0.0
    return math.inf if excess(reach) > 0 else float(brentq(excess, 0.0, reach, xtol=1e-9))
