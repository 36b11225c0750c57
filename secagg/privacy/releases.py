"""Everything that one plan releases about the same data: sums of several kinds, each repeated so many times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from secagg.errors import BadInput
from secagg.privacy.calibration import Calibration, Mechanism, calibrate_mu
from secagg.privacy.gaussian import mu_of
from secagg.privacy.sensitivity import Adjacency, BlockwiseSensitivity, Sensitivity, Unit
from secagg.privacy.shares import GaussianCost
from secagg.privacy.subsampled import TrainingCost


@dataclass(frozen=True)
class Part:
    """One kind of sum: how far a unit moves it, how its μ² is shared among its blocks, and what it may spend.

    All `times` sums of the kind together have the share `budget` of the plan's μ².
    """

    sensitivity: Sensitivity
    shares: str | Mapping[str, float]
    times: int = 1
    budget: float = 1.0

    def __post_init__(self) -> None:
        if self.times < 1 or not 0 < self.budget <= 1:
            raise BadInput(f"{self.times} sums with the share {self.budget} of the budget", remedy="give 1 or more")


@dataclass(frozen=True)
class Releases:
    """The calibrations of one plan, each with its number of sums; the same parties add noise to all of them.

    `training` is what members' own training on the same records costs by itself: the sums are then further releases.
    """

    parts: tuple[tuple[Calibration, int], ...]
    training: TrainingCost | None = None

    def __post_init__(self) -> None:
        if not self.parts or not all(times >= 1 for _, times in self.parts):
            raise BadInput("a plan releases at least one sum")
        first = self.first
        for other, _ in self.parts:
            same = (other.mechanism, other.parties, other.fewest) == (first.mechanism, first.parties, first.fewest)
            if not same or (other.unit, other.adjacency) != (first.unit, first.adjacency):
                raise BadInput("the sums of one plan are noised by different parties, or for different neighbours")
        if self.training is not None and (first.unit, first.adjacency) != (Unit.RECORD, Adjacency.ADD_REMOVE):
            raise BadInput(f"training on sampled records has no cost for {first.unit} and {first.adjacency}")

    @classmethod
    def of(cls, calibration: Calibration, times: int = 1) -> Releases:
        """One kind of sum only."""
        return cls(((calibration, times),))

    @property
    def first(self) -> Calibration:
        """The first sum's; what is common to all is read from it."""
        return self.parts[0][0]

    def until(self, sums: int) -> Releases:
        """Return the first so many sums, in order. Raises BadInput for fewer than one, or more than there are."""
        parts, left = [], sums
        for calibration, times in self.parts:
            if taken := min(times, left):
                parts.append((calibration, taken))
            left -= taken
        if sums < 1 or left:
            raise BadInput(f"there are no first {sums} sums", remedy="give 1 up to all that there are")
        of = sum(times for _, times in self.parts)
        return Releases(tuple(parts), self.training and self.training.after(sums, of))

    def cost(self, honest: int | None = None) -> GaussianCost:
        """Return what all sums together cost, without any training; `honest` as in `Calibration.cost`."""
        costs = [calibration.cost(honest).times(times) for calibration, times in self.parts]
        return sum(costs[1:], start=costs[0])

    def mu(self, honest: int) -> float:
        """Return μ of `cost(honest)`."""
        return self.cost(honest).mu

    def whole(self, honest: int | None = None) -> GaussianCost | TrainingCost:
        """Return what the sums and the training cost; `honest` as in `cost`. No other party is in a member's noise."""
        return self.cost(honest) if self.training is None else self.training.beside(self.cost(honest))

    def epsilon(self, delta: float, *, honest: int | None = None) -> float:
        """Return ε of the whole, rounded up."""
        return self.whole(honest).epsilon(delta)

    def about(self, unit: Unit, adjacency: Adjacency, sensitivities: Sequence[Sensitivity]) -> Releases:
        """Return the same noise, accounted for other neighbours: what a ledger needs beside the plan's own promise.

        Raises BadInput beside training, which is accounted for one kind alone.
        """
        if self.training is not None or any((each.unit, each.adjacency) != (unit, adjacency) for each in sensitivities):
            raise BadInput(f"the sensitivities are not for {unit} and {adjacency}")
        pairs = zip(self.parts, sensitivities, strict=True)
        return Releases(tuple((_renoise(calibration, other), times) for (calibration, times), other in pairs))


def _renoise(calibration: Calibration, sensitivity: Sensitivity) -> Calibration:
    blocks = {block.name: block for block in sensitivity.blocks}
    noises = tuple(replace(noise, block=blocks[noise.block.name]) for noise in calibration.blocks)
    return replace(calibration, sensitivity=sensitivity, blocks=noises)


def of_client(sensitivity: Sensitivity, records: int) -> Sensitivity:
    """Return the sensitivity for one client's whole contribution of at most `records` records, from one record's.

    Each block is at most `records` times one record's length (triangle inequality). Raises BadInput.
    """
    if records < 1:
        raise BadInput(f"a client of {records} records", remedy="give 1 or more")
    blocks = tuple(replace(block, l2=records * block.l2) for block in sensitivity.blocks)
    return BlockwiseSensitivity(Unit.CLIENT, sensitivity.adjacency, blocks)


def of_record(sensitivity: Sensitivity) -> Sensitivity:
    """Return the sensitivity for one record, from that of a client's whole contribution, none of it being longer.

    Any change of its records may turn a client's contribution round: each block moves by twice its length at most
    (triangle inequality), whether the record is added, removed or replaced.
    """
    double = 2 if sensitivity.adjacency is Adjacency.ADD_REMOVE else 1  # replacing counts twice by itself
    blocks = tuple(replace(block, l2=double * block.l2) for block in sensitivity.blocks)
    return BlockwiseSensitivity(Unit.RECORD, sensitivity.adjacency, blocks)


def calibrate_releases(
    parts: Sequence[Part],
    *,
    epsilon: float,
    delta: float,
    mechanism: Mechanism,
    parties: int,
    fewest: int,
    share: float = 1.0,
) -> Releases:
    """Return the least noise with which all sums of all parts together keep (ε, δ), or `share` of its μ².

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
            )
            for part in parts
        ]
        times = (part.times for part in parts)
        result = Releases(tuple(zip(calibrations, times, strict=True)))
        if result.epsilon(delta) <= epsilon:
            return result
        mu *= 1 - 2.0**-30
    raise BadInput(f"no noise of at most {parties} shares keeps epsilon {epsilon}", remedy="use a finer grid")
