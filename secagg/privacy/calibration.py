"""Noise calibration of one release: the σ of each block's entries, and the ε that it gives.

The joint release of blocks with noise σ_b is μ-Gaussian with μ² = sup Σ_b ‖Δ_b‖²/σ_b², so a budget is split by shares
p_b of μ², Σ p_b = 1, and never by shares of ε: σ_b = s_b·√κ/(μ·√p_b), with s_b the length of one unit's contribution
and κ = sup Σ_b (p_b/s_b²)·‖Δ_b‖² (1 for add/remove).

A symmetric matrix goes out as its upper triangle. Its off-diagonal entries get half the variance: then
Σ_i q_i⁴/v + Σ_{i<j} (q_i·q_j)²/(v/2) = ‖q‖₂⁴/v, the same μ with half the noise off the diagonal. The variance that
counts is σ² for one party's noise and, for the fewest shares of σ each, fewest·σ² − r² (`secagg.privacy.shares`): a
triangle's is min(v_diagonal, 2·v_off).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from secagg.errors import BadInput
from secagg.privacy.gaussian import OUTWARD, mu_of
from secagg.privacy.noise_levels import (
    LEAST_PART,
    NoiseLevel,
    parts_of,
    refuse_levels,
    refuse_small_parts,
    round_up_sigma,
)
from secagg.privacy.sampler import LARGEST_SIGMA
from secagg.privacy.sensitivity import Adjacency, BlockSensitivity, BlockwiseSensitivity, Sensitivity, Unit
from secagg.privacy.shares import ROUNDING, GaussianCost, gap_of_parts, sigma_for, variance_of
from secagg.privacy.subsampled import TrainingCost

SMALLEST_SHARE = 3.0
"""Least σ of one share of the noise in grid units: 6 of its variance of 9 count if it is alone, all among many."""
LEAST_COUNTED = 99 * ROUNDING
"""Least variance that a scalable block's multiplier leaves for the fewest shares: r² is then 1 % of what they add."""
SHARE_RULES: Mapping[str, Mapping[str, float]] = {
    "moments": {"counts": 0.02, "class_sums": 0.58, "second_moment": 0.40}
}
"""Named shares of μ²: counts need almost nothing; the best balance of the other blocks depends on the data's size."""


class Mechanism(StrEnum):
    """The ways to add noise: all of it by a trusted party, or a share of it by each client."""

    GAUSSIAN = "gaussian"
    """Each trusted party adds all the noise, a rounded Gaussian from an exact sampler: Balle & Wang holds exactly."""
    DISCRETE_SHARES = "discrete-shares"
    """Each client adds a discrete-Gaussian share: their sum is accounted as the Gaussian that it rounds."""


@dataclass(frozen=True)
class BlockNoise:
    """The noise that one party adds to one block; σ is in units of the block scaled by an integer `multiplier` ≥ 1.

    `sigma` holds for every entry, but for the off-diagonal entries of a triangle, which have `off_diagonal`.
    """

    block: BlockSensitivity
    multiplier: int
    sigma: float
    off_diagonal: float | None = None

    def __post_init__(self) -> None:
        name = self.block.name
        if self.block.triangle != (self.off_diagonal is not None):
            raise BadInput(f"block {name}: a triangle has a sigma of its own off the diagonal, no other block has")
        if self.multiplier < 1 or (self.multiplier > 1 and not self.block.scalable):
            raise BadInput(
                f"block {name} has the multiplier {self.multiplier}", remedy="only counts may have one above 1"
            )
        if self.off_diagonal is not None and self.off_diagonal > self.sigma:
            raise BadInput(f"block {name} has more noise off the diagonal than on it", remedy="σ/√2 is enough there")
        if not SMALLEST_SHARE <= self.least <= self.sigma <= LARGEST_SIGMA:
            raise BadInput(
                f"block {name}: a noise share has sigma {self.sigma:.4g} grid units",
                remedy=f"it must lie between {SMALLEST_SHARE:g} and {LARGEST_SIGMA:g}: change the grid's levels",
            )

    @property
    def least(self) -> float:
        """Smallest σ among the block's entries."""
        return self.sigma if self.off_diagonal is None else self.off_diagonal

    @property
    def segments(self) -> tuple[tuple[float, int], ...]:
        """Pairs (σ, number of consecutive entries that have it), in the order of the flattened block."""
        return self.segments_of(lambda sigma: sigma)

    def segments_of(self, of: Callable[[float], float]) -> tuple[tuple[float, int], ...]:
        """Return `segments` with `of`(σ) in the place of each σ."""
        on = of(self.sigma)
        if self.off_diagonal is None:
            return ((on, self.block.size),)
        off = of(self.off_diagonal)
        rows = range(self.block.dimension - 1, 0, -1)
        pairs = [pair for others in rows for pair in ((on, 1), (off, others))]
        return (*pairs, (on, 1))


@dataclass(frozen=True)
class OpenedNoise:
    """The total noise on a block of an opened sum: its σ in the sum's integer units, and the block's multiplier.

    `triangle`: the block is the upper triangle of a symmetric matrix, whose entries off the diagonal have σ/√2.
    """

    sigma: float
    multiplier: int = 1
    triangle: bool = False

    @property
    def of_record(self) -> OpenedNoise:
        """The same noise with the multiplier divided out, in units of one record's integers."""
        return OpenedNoise(self.sigma / self.multiplier, triangle=self.triangle)


@dataclass(frozen=True)
class NoiseCalibration:
    """The noise of one release: each party's σ by block, and the fewest honest parties for which ε holds.

    Discrete shares: `parties` clients add one share each and at least `fewest` shares are honest and arrive.
    Gaussian: each of `parties` noisers adds all of it and at least one (`fewest` = 1) is honest.
    `lower` are the levels, in order, at which part of each share is removed; below them all, the whole share stays.
    """

    sensitivity: Sensitivity
    mechanism: Mechanism
    blocks: tuple[BlockNoise, ...]
    fewest: int
    parties: int
    lower: tuple[NoiseLevel, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.parties:
            raise BadInput(f"{self.fewest} honest noise shares of {self.parties}", remedy="give 1 up to all of them")
        refuse_levels(self.lower, self.fewest, self.parties)
        for noise in self.blocks if self.lower else ():
            refuse_small_parts(noise.block.name, noise.least, self.lower, self.fewest)
        if self.mechanism is Mechanism.GAUSSIAN and (self.fewest != 1 or self.lower):
            raise BadInput("with the gaussian mechanism one honest party is enough", remedy="set the fewest to 1")
        if tuple(noise.block for noise in self.blocks) != self.sensitivity.blocks:
            raise BadInput("the noise is not for the blocks of the sensitivity")

    @property
    def unit(self) -> Unit:
        """The privacy unit, one record or one client, whose contribution the noise hides."""
        return self.sensitivity.unit

    @property
    def adjacency(self) -> Adjacency:
        """The relation between neighbouring data sets: add-remove or replace-one."""
        return self.sensitivity.adjacency

    @property
    def known(self) -> int:
        """The most shares in a sum that the adversary may know, where there are `lower` levels: the same at each."""
        return self.parties - self.lower[0].missing - self.lower[0].fewest

    @property
    def parts(self) -> tuple[tuple[tuple[float, int], ...], ...]:
        """For each part of a party's noise, pairs (σ, number of consecutive entries) in the flat vector's order.

        The first part always stays in the sum, and is all there is without `lower` levels.
        """

        def segments(place: int) -> tuple[tuple[float, int], ...]:
            return tuple(
                segment
                for noise in self.blocks
                for segment in noise.segments_of(lambda sigma: parts_of(sigma, self.lower, self.fewest)[place])
            )

        return tuple(segments(place) for place in range(1 + len(self.lower)))

    @property
    def segments(self) -> tuple[tuple[float, int], ...]:
        """The first of `parts`: the noise that a party draws for itself."""
        return self.parts[0]

    @property
    def levels(self) -> tuple[NoiseLevel, ...]:
        """All levels of noise: the `lower` ones, and that of the smallest sum, however many are missing from it."""
        return (*self.lower, NoiseLevel(self.parties, self.fewest))

    def left_of(self, sigma: float, missing: int) -> float:
        """Return what is left of a party's noise with this σ in a sum that `missing` clients are not in, as a σ."""
        return math.hypot(*parts_of(sigma, self.lower, self.fewest)[: 1 + self._level(missing)])

    def opened_noise(self, noisers: int) -> dict[str, OpenedNoise]:
        """Return each block's total noise, by name, in a sum of `noisers` parties, honest or not, that added theirs.

        What is removed because no more parties are missing does not count.
        """
        missing, times = self.parties - noisers, math.sqrt(noisers)
        return {
            noise.block.name: OpenedNoise(
                self.left_of(noise.sigma, missing) * times, noise.multiplier, noise.block.triangle
            )
            for noise in self.blocks
        }

    @property
    def largest(self) -> int:
        """Ten times the largest σ in the opened sum: noise on an entry exceeds it with probability below 2⁻⁷⁰."""
        sigmas = (self.left_of(noise.sigma, self.parties) for noise in self.blocks)
        return math.ceil(10 * max(sigmas) * math.sqrt(self.parties))

    def cost(self, honest: int | None = None, missing: int | None = None) -> GaussianCost:
        """Return the privacy cost against an adversary that knows all noise but that of `honest` ≥ 1 parties.

        None: of the fewest, the worst of every allowed honest set. Rounded up. Raises BadInput.
        `honest` counts the shares in a sum that `missing` clients are not in; None: in the smallest sum, and the cost
        is the worst of all levels of noise, with the shares of those who are missing there and not here.
        """
        honest = self.fewest if honest is None else honest
        if not 1 <= honest <= self.parties:
            raise BadInput(f"{honest} honest noise shares of {self.parties}", remedy="give 1 up to all of them")
        if missing is not None:
            return self._cost_at(self._level(missing), honest)
        more = (level.fewest - self.fewest for level in self.levels)
        costs = [self._cost_at(place, honest + arrived) for place, arrived in enumerate(more)]
        return GaussianCost(max(each.squared_mu for each in costs), max(each.gap for each in costs))

    def mu(self, honest: int) -> float:
        """Return the Gaussian-DP parameter μ of `cost(honest)`."""
        return self.cost(honest).mu

    def _level(self, missing: int) -> int:
        """Return the place of the least level at which so many may be missing; the last one keeps all noise."""
        return next(place for place, level in enumerate(self.levels) if missing <= level.missing)

    def _cost_at(self, level: int, honest: int) -> GaussianCost:
        """Return the privacy cost of a sum with the noise of a level, of `honest` shares of which nobody knows any."""
        weights, segments = {}, []
        for noise in self.blocks:
            on, off = (parts_of(each, self.lower, self.fewest)[: level + 1] for each in (noise.sigma, noise.least))
            if self.mechanism is Mechanism.GAUSSIAN:
                counted, less = on[0] ** 2, off[0] ** 2
            else:
                counted, less = (variance_of(_joined(each), honest) for each in (on, off))
                segments.append((off, noise.block.size))
            if noise.block.triangle:  # counts as at most twice what is off the diagonal
                counted = min(counted, 2 * less)
            weights[noise.block.name] = noise.multiplier**2 / (counted * (1 - 2.0**-50))
        gap = gap_of_parts(segments, self.parties)  # T for the most shares: it grows
        return GaussianCost(self.sensitivity.squared(weights) * (1 + 2.0**-48), gap)


def _joined(sigmas: Sequence[float]) -> float:
    """Return the σ of a sum of independent parts, rounded down."""
    return sigmas[0] if len(sigmas) == 1 else math.hypot(*sigmas) * (1 - 2.0**-50)


def calibrate_mu(
    sensitivity: Sensitivity,
    *,
    mu: float,
    mechanism: Mechanism,
    parties: int,
    fewest: int,
    shares: str | Mapping[str, float] = "moments",
    lower: tuple[NoiseLevel, ...] = (),
) -> NoiseCalibration:
    """Return the noise, σ rounded up, with which one release is μ-Gaussian DP.

    With discrete noise shares it is so up to a gap, bounded by `gap_of`.
    `shares` names a rule of `SHARE_RULES`, is "equal", or gives each block's share of μ². Raises BadInput, with
    figures, when the σ that one party adds is below 3 grid units or beyond the sampler, or a part of it that is
    removed at one of the `lower` levels is too small.
    """
    split = shares_of(sensitivity, shares)
    lengths = {block.name: block.l2 for block in sensitivity.blocks}
    kappa = sensitivity.squared({name: share / lengths[name] ** 2 for name, share in split.items()})
    if not (mu > 0 and fewest >= 1):
        raise BadInput(f"no noise for mu {mu} and {fewest} honest shares", remedy="both are above 0")
    unit = math.sqrt(kappa) / mu * OUTWARD
    sums = mechanism is Mechanism.DISCRETE_SHARES
    refuse_levels(lower, fewest, parties)
    blocks = tuple(
        _noise(block, block.l2 * unit / math.sqrt(split[block.name]), fewest if sums else 0, lower)
        for block in sensitivity.blocks
    )
    return NoiseCalibration(sensitivity, mechanism, blocks, fewest, parties, lower)


def shares_of(sensitivity: Sensitivity, shares: str | Mapping[str, float]) -> dict[str, float]:
    """Return blocks' shares of the budget μ², which sum to 1. Raises BadInput for unknown rules, names, shares ≤ 0."""
    names = [block.name for block in sensitivity.blocks]
    if shares == "equal":
        return {name: 1 / len(names) for name in names}
    if isinstance(shares, str) and shares not in SHARE_RULES:
        raise BadInput(f"unknown rule {shares!r}", remedy=f"the rules are {', '.join(sorted(SHARE_RULES))} and equal")
    given = SHARE_RULES[shares] if isinstance(shares, str) else shares
    if set(given) != set(names) or not all(0 < share < math.inf for share in given.values()):
        raise BadInput(f"the shares {dict(given)} do not fit", remedy=f"give each of {names} a share above 0")
    total = math.fsum(given.values())
    if abs(total - 1) > 1e-9:
        raise BadInput(f"the shares {dict(given)} sum to {total:.9g}", remedy="shares of μ² sum to 1")
    return {name: given[name] / total for name in names}


def read_shares(text: str) -> str | dict[str, float]:
    """Parse blocks' shares of μ²: a rule of `SHARE_RULES`, "equal", or BLOCK=SHARE,BLOCK=SHARE,…. Raises BadInput."""
    if "=" not in text:
        return text
    try:
        pairs = [part.split("=") for part in text.split(",")]
        return {name.strip(): float(share) for name, share in pairs}
    except ValueError:
        raise BadInput(
            f"{text!r} are no shares", remedy="write counts=0.02,class_sums=0.58,second_moment=0.4"
        ) from None


def _noise(block: BlockSensitivity, wanted: float, shares: int, lower: tuple[NoiseLevel, ...]) -> BlockNoise:
    """Return noise of which `shares` parts together count as Gaussian noise of σ = `wanted`; 0: one party adds it all.

    A scalable block gets the least multiplier with which that is enough for the rounding and each share, or part of a
    share, large enough.
    """
    if block.scalable:
        # σ of a share, such that each of its parts is large enough
        share = max(SMALLEST_SHARE, LEAST_PART / min(parts_of(1e6, lower, shares)) * 1e6 if lower else 0.0)
        least = max(LEAST_COUNTED, shares * share**2 - ROUNDING) if shares else SMALLEST_SHARE**2
        multiplier = max(1, math.ceil(math.sqrt(least) / wanted))
    else:
        multiplier = 1
    variance = (multiplier * wanted) ** 2
    sigma, off_diagonal = (sigma_for(each, shares) if shares else math.sqrt(each) for each in (variance, variance / 2))
    smallest = off_diagonal if block.triangle else sigma
    if smallest < SMALLEST_SHARE:
        raise BadInput(
            f"block {block.name}: a noise share would have sigma {smallest:.4g} grid units (sensitivity {block.l2:g})",
            remedy=f"it must be at least {SMALLEST_SHARE:g}: give the grid more levels, or allow fewer clients",
        )
    return BlockNoise(
        block, multiplier, round_up_sigma(sigma), round_up_sigma(off_diagonal) if block.triangle else None
    )


@dataclass(frozen=True)
class Part:
    """One kind of sum to calibrate: its sensitivity, the split of its μ² among blocks, and its share of the budget.

    All `times` sums of the kind together have the share `budget` of the plan's μ².
    """

    sensitivity: Sensitivity
    shares: str | Mapping[str, float]
    times: int = 1
    budget: float = 1.0

    def __post_init__(self) -> None:
        if self.times < 1 or not 0 < self.budget <= 1:
            raise BadInput(f"{self.times} sums with the share {self.budget} of the budget", remedy="give 1 or more")


_SAME = ("mechanism", "parties", "fewest", "lower", "unit", "adjacency")
"""What all sums of a plan have in common."""


@dataclass(frozen=True)
class Releases:
    """All releases of one plan: for each kind of sum, its noise calibration and how many such sums there are.

    The same parties add noise to all sums.
    `training` is what members' own training on the same records costs by itself: the sums are then further releases.
    """

    parts: tuple[tuple[NoiseCalibration, int], ...]
    training: TrainingCost | None = None

    def __post_init__(self) -> None:
        if not self.parts or not all(times >= 1 for _, times in self.parts):
            raise BadInput("a plan releases at least one sum")
        first = self.first
        for other, _ in self.parts:
            same = all(getattr(other, name) == getattr(first, name) for name in _SAME)
            if not same:
                raise BadInput("the sums of one plan are noised by different parties, or for different neighbours")
        if self.training is not None and (first.unit, first.adjacency) != (Unit.RECORD, Adjacency.ADD_REMOVE):
            raise BadInput(f"training on sampled records has no cost for {first.unit} and {first.adjacency}")

    @classmethod
    def of(cls, calibration: NoiseCalibration, times: int = 1) -> Releases:
        """Return the releases of a plan that has `times` sums of one kind."""
        return cls(((calibration, times),))

    @property
    def first(self) -> NoiseCalibration:
        """The first sum's calibration; the unit, adjacency, mechanism and parties in it are those of all sums."""
        return self.parts[0][0]

    def until(self, sums: int) -> Releases:
        """Return the releases of the first `sums` sums alone. Raises BadInput for fewer than 1 or more than exist."""
        parts, left = [], sums
        for calibration, times in self.parts:
            if taken := min(times, left):
                parts.append((calibration, taken))
            left -= taken
        if sums < 1 or left:
            raise BadInput(f"there are no first {sums} sums", remedy="give 1 up to all that there are")
        of = sum(times for _, times in self.parts)
        return Releases(tuple(parts), self.training and self.training.after(sums, of))

    def cost(self, honest: int | None = None, missing: int | None = None) -> GaussianCost:
        """Return the privacy cost of all sums, without clients' training; arguments as in `NoiseCalibration.cost`."""
        costs = [calibration.cost(honest, missing).times(times) for calibration, times in self.parts]
        return sum(costs[1:], start=costs[0])

    def mu(self, honest: int) -> float:
        """Return the Gaussian-DP parameter μ of `cost(honest)`."""
        return self.cost(honest).mu

    def whole(self, honest: int | None = None, missing: int | None = None) -> GaussianCost | TrainingCost:
        """Return the privacy cost of all sums and of the clients' training together.

        The arguments concern the sums alone, as in `cost`.
        """
        sums = self.cost(honest, missing)
        return sums if self.training is None else self.training.with_releases(sums)

    def epsilon(self, delta: float, *, honest: int | None = None, missing: int | None = None) -> float:
        """Return ε at `delta` of all sums and of the clients' training, rounded up; `missing` as in `cost`."""
        return self.whole(honest, missing).epsilon(delta)

    def about(self, unit: Unit, adjacency: Adjacency, sensitivities: Sequence[Sensitivity]) -> Releases:
        """Return the same releases with the privacy cost for another unit or adjacency than the plan claims.

        A ledger needs that beside the plan's claim.
        Raises BadInput beside training, which is accounted for one kind alone.
        """
        if self.training is not None or any((each.unit, each.adjacency) != (unit, adjacency) for each in sensitivities):
            raise BadInput(f"the sensitivities are not for {unit} and {adjacency}")
        parts = []
        for (calibration, times), other in zip(self.parts, sensitivities, strict=True):
            blocks = {block.name: block for block in other.blocks}
            noises = tuple(replace(noise, block=blocks[noise.block.name]) for noise in calibration.blocks)
            parts.append((replace(calibration, sensitivity=other, blocks=noises), times))
        return Releases(tuple(parts))


def of_client(sensitivity: Sensitivity, records: int) -> Sensitivity:
    """Convert the sensitivity to one record into the sensitivity to one client with at most `records` records.

    Each block is at most `records` times one record's length (triangle inequality). Raises BadInput.
    """
    if records < 1:
        raise BadInput(f"a client of {records} records", remedy="give 1 or more")
    blocks = tuple(replace(block, l2=records * block.l2) for block in sensitivity.blocks)
    return BlockwiseSensitivity(Unit.CLIENT, sensitivity.adjacency, blocks)


def of_record(sensitivity: BlockwiseSensitivity) -> Sensitivity:
    """Convert bounds on the L2 norm of a client's whole contribution into the sensitivity to one record.

    Any change of its records may turn a client's contribution into any other, as if the client were replaced: each
    block moves by twice its length at most, or √2 times where nothing is negative (`BlockwiseSensitivity`), whether the
    record is added, removed or replaced.
    """
    farther = math.sqrt(2) if sensitivity.nonnegative else 2
    factor = farther if sensitivity.adjacency is Adjacency.ADD_REMOVE else 1  # replacing counts it by itself
    blocks = tuple(replace(block, l2=factor * block.l2) for block in sensitivity.blocks)
    return replace(sensitivity, unit=Unit.RECORD, blocks=blocks)


def calibrate_releases(
    parts: Sequence[Part],
    *,
    epsilon: float,
    delta: float,
    mechanism: Mechanism,
    parties: int,
    fewest: int,
    share: float = 1.0,
    lower: tuple[NoiseLevel, ...] = (),
) -> Releases:
    """Return the least noise with which all sums together keep (ε, δ).

    With `share` below 1, all sums together spend this fraction of that budget's μ².
    Part i's sums have μ_i² = share·μ²·budget_i/times_i each. Of the whole μ² `result.epsilon(delta) <= epsilon` holds
    as computed; of a share it says nothing, as what has the rest is calibrated next. Raises BadInput as `calibrate_mu`
    does, and unless the budgets sum to 1 and the share is above 0.
    """
    if abs(math.fsum(part.budget for part in parts) - 1) > 1e-9:
        raise BadInput(f"the budgets {[part.budget for part in parts]} do not sum to 1")
    if not 0 < share <= 1:
        raise BadInput(f"the sums have the share {share} of the budget", remedy="give more than 0, at most 1")
    mu = mu_of(epsilon, delta) * math.sqrt(share)
    for _ in range(20):
        calibrations = [
            calibrate_mu(
                part.sensitivity,
                mu=mu * math.sqrt(part.budget / part.times),
                mechanism=mechanism,
                parties=parties,
                fewest=fewest,
                shares=part.shares,
                lower=lower,
            )
            for part in parts
        ]
        times = (part.times for part in parts)
        result = Releases(tuple(zip(calibrations, times, strict=True)))
        if result.epsilon(delta) <= epsilon:
            return result
        mu *= 1 - 2.0**-30
    raise BadInput(f"no noise of at most {parties} shares keeps epsilon {epsilon}", remedy="use a finer grid")
