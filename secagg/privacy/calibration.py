"""Noise for every block of one release: how much, on which entries, and which ε it keeps.

The joint release of blocks with noise σ_b is μ-Gaussian with μ² = sup Σ_b ‖Δ_b‖²/σ_b², so a budget is split by shares
p_b of μ², Σ p_b = 1, and never by shares of ε: σ_b = s_b·√κ/(μ·√p_b), with s_b the length of one unit's contribution
and κ = sup Σ_b (p_b/s_b²)·‖Δ_b‖² (1 for add/remove).

A symmetric matrix goes out as its upper triangle. Its off-diagonal entries get σ/√2: then
Σ_i q_i⁴/σ² + Σ_{i<j} (q_i·q_j)²/(σ²/2) = ‖q‖₂⁴/σ², the same μ with half the noise variance off the diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from secagg.errors import BadInput
from secagg.privacy.gaussian import OUTWARD
from secagg.privacy.rdp import RdpCurve, gaussian_curve, summation_gap
from secagg.privacy.sampler import LARGEST_SIGMA
from secagg.privacy.sensitivity import Adjacency, BlockSensitivity, Sensitivity, Unit

SMALLEST_SHARE = 3.0
"""Least σ of one share in grid units; the gap of a sum of shares is then below 10⁻³⁷ per coordinate."""
FRACTIONS = 1024
"""Every σ is a multiple of 1/1024 grid unit: an exact rational, the same float64 on every machine."""
SHARE_RULES: Mapping[str, Mapping[str, float]] = {
    "moments": {"counts": 0.02, "class_sums": 0.58, "second_moment": 0.40},
}
"""Named shares of μ²: counts need almost nothing; which balance of the others is best depends on the data's size."""


class Mechanism(StrEnum):
    """Where the noise comes from."""

    GAUSSIAN = "gaussian"
    """Each trusted party adds all the noise, a rounded Gaussian from an exact sampler: Balle & Wang holds exactly."""
    DISCRETE_SHARES = "discrete-shares"
    """Each client adds a discrete-Gaussian share: Rényi accounting of their sum."""


@dataclass(frozen=True)
class BlockNoise:
    """The noise that one party adds to one block: σ in units of the block times its integer `multiplier` ≥ 1.

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
        if not SMALLEST_SHARE <= self.effective <= self.sigma <= LARGEST_SIGMA:
            raise BadInput(
                f"block {name}: a noise share has sigma {self.sigma:.4g} grid units",
                remedy=f"it must lie between {SMALLEST_SHARE:g} and {LARGEST_SIGMA:g}: change the grid's levels",
            )

    @property
    def effective(self) -> float:
        """The σ that a claim may count on: for a triangle no more than √2 times that of the off-diagonal entries."""
        if self.off_diagonal is None:
            return self.sigma
        return min(self.sigma, self.off_diagonal * math.sqrt(2) * (1 - 2.0**-50))

    @property
    def segments(self) -> tuple[tuple[float, int], ...]:
        """(σ, number of entries), in the order of the flat block."""
        if self.off_diagonal is None:
            return ((self.sigma, self.block.size),)
        rows = range(self.block.dimension - 1, 0, -1)
        pairs = [pair for others in rows for pair in ((self.sigma, 1), (self.off_diagonal, others))]
        return (*pairs, (self.sigma, 1))


@dataclass(frozen=True)
class OpenedNoise:
    """The noise on a block as it was opened: σ in integers (for a triangle, on its diagonal), and its multiplier."""

    sigma: float
    multiplier: int = 1

    @property
    def of_record(self) -> OpenedNoise:
        """The same in the units of one record, the multiplier divided out."""
        return OpenedNoise(self.sigma / self.multiplier)


@dataclass(frozen=True)
class Calibration:
    """The noise of one release: what each party adds, and the smallest honest set that the promise needs.

    Discrete shares: `parties` clients add one share each and at least `fewest` shares are honest and arrive.
    Gaussian: each of `parties` noisers adds all of it and at least one (`fewest` = 1) is honest.
    """

    sensitivity: Sensitivity
    mechanism: Mechanism
    blocks: tuple[BlockNoise, ...]
    fewest: int
    parties: int

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.parties:
            raise BadInput(f"{self.fewest} honest noise shares of {self.parties}", remedy="give 1 up to all of them")
        if self.mechanism is Mechanism.GAUSSIAN and self.fewest != 1:
            raise BadInput("with the gaussian mechanism one honest party is enough", remedy="set the fewest to 1")
        if tuple(noise.block for noise in self.blocks) != self.sensitivity.blocks:
            raise BadInput("the noise is not for the blocks of the sensitivity")

    @property
    def unit(self) -> Unit:
        """Whose contribution is hidden."""
        return self.sensitivity.unit

    @property
    def adjacency(self) -> Adjacency:
        """Which two data sets are neighbours."""
        return self.sensitivity.adjacency

    @property
    def segments(self) -> tuple[tuple[float, int], ...]:
        """(σ of one share, number of entries) over the whole flat vector, in layout order: what the sampler takes."""
        return tuple(segment for noise in self.blocks for segment in noise.segments)

    def opened(self, noisers: int) -> dict[str, OpenedNoise]:
        """Return the noise on each block when `noisers` parties added theirs, honest or not: this is for the head."""
        return {
            noise.block.name: OpenedNoise(noise.sigma * math.sqrt(noisers), noise.multiplier) for noise in self.blocks
        }

    @property
    def largest(self) -> int:
        """Ten times the largest σ of the opened noise: an entry exceeds it with probability below 2⁻⁷⁰."""
        return math.ceil(10 * max(noise.sigma for noise in self.blocks) * math.sqrt(self.parties))

    def mu(self, honest: int) -> float:
        """Return μ of the release against somebody who knows all noise but that of `honest` ≥ 1 parties; rounded up."""
        if not 1 <= honest <= self.parties:
            raise BadInput(f"{honest} honest noise shares of {self.parties}", remedy="give 1 up to all of them")
        added = honest if self.mechanism is Mechanism.DISCRETE_SHARES else 1
        weights = {
            noise.block.name: noise.multiplier**2 / (added * noise.effective * noise.effective) for noise in self.blocks
        }
        return math.sqrt(self.sensitivity.squared(weights)) * (1 + 2.0**-48)

    def gap(self) -> float:
        """Return Στ_j for the largest number of shares (τ_j grows with it); 0 for the gaussian mechanism."""
        if self.mechanism is Mechanism.GAUSSIAN:
            return 0.0
        segments = [(min(noise.sigma, noise.off_diagonal or noise.sigma), noise.block.size) for noise in self.blocks]
        return summation_gap(segments, self.parties)

    def curve(self, honest: int | None = None) -> RdpCurve:
        """Return the Rényi curve for the worst of every allowed honest set, or for `honest` shares and no fewer.

        α·μ²/2 is worst for the fewest shares and Στ_j for the most; each is taken at its own worst.
        """
        return gaussian_curve(self.mu(self.fewest if honest is None else honest), self.gap())


def calibrate_mu(
    sensitivity: Sensitivity,
    *,
    mu: float,
    mechanism: Mechanism,
    parties: int,
    fewest: int,
    shares: str | Mapping[str, float] = "moments",
) -> Calibration:
    """Return the noise with which one release is μ-Gaussian (up to the gap of discrete shares), σ rounded up.

    One client's share has variance σ²/fewest (discrete shares). `shares` names a rule of `SHARE_RULES`, is "equal", or
    gives each block's share of μ². Raises BadInput, with figures, when a share's σ is below 3 grid units or beyond the
    sampler.
    """
    split = shares_of(sensitivity, shares)
    lengths = {block.name: block.l2 for block in sensitivity.blocks}
    kappa = sensitivity.squared({name: share / lengths[name] ** 2 for name, share in split.items()})
    if not (mu > 0 and fewest >= 1):
        raise BadInput(f"no noise for mu {mu} and {fewest} honest shares", remedy="both are above 0")
    unit = math.sqrt(kappa) / (mu * math.sqrt(fewest)) * OUTWARD
    blocks = tuple(_noise(block, block.l2 * unit / math.sqrt(split[block.name])) for block in sensitivity.blocks)
    return Calibration(sensitivity, mechanism, blocks, fewest, parties)


def shares_of(sensitivity: Sensitivity, shares: str | Mapping[str, float]) -> dict[str, float]:
    """Return every block's share of μ², summing to 1. Raises BadInput for unknown rules, names and shares ≤ 0."""
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
    """Return what an option names: a rule of `SHARE_RULES`, "equal", or BLOCK=SHARE,BLOCK=SHARE,…. Raises BadInput."""
    if "=" not in text:
        return text
    try:
        pairs = [part.split("=") for part in text.split(",")]
        return {name.strip(): float(share) for name, share in pairs}
    except ValueError:
        raise BadInput(
            f"{text!r} are no shares", remedy="write counts=0.02,class_sums=0.58,second_moment=0.4"
        ) from None


def _noise(block: BlockSensitivity, sigma: float) -> BlockNoise:
    """Return the noise of one share of σ ≥ `sigma` units, with the least multiplier that makes it large enough."""
    multiplier = max(1, math.ceil(SMALLEST_SHARE / sigma)) if block.scalable else 1
    sigma *= multiplier
    off_diagonal = _up(sigma / math.sqrt(2)) if block.triangle else None
    if sigma / (math.sqrt(2) if block.triangle else 1) < SMALLEST_SHARE:
        raise BadInput(
            f"block {block.name}: a noise share would have sigma {sigma:.4g} grid units (sensitivity {block.l2:g})",
            remedy=f"it must be at least {SMALLEST_SHARE:g}: give the grid more levels, or allow fewer clients",
        )
    return BlockNoise(block, multiplier, _up(sigma), off_diagonal)


def _up(sigma: float) -> float:
    return math.ceil(sigma * FRACTIONS) / FRACTIONS
