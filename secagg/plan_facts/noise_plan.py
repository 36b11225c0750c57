"""Compute the (ε, δ) guarantee of a plan's noise from the plan alone, and the least noise for a given (ε, δ).

Of members' own noisy training **alone**, where it is all that a sum depends on, what leaves a member is private by it:
one composition of steps. **With sums that are further releases** the two share the promise's budget by one rule, fixed
in the plan before anyone looks at a record: the sums get the share s of μ², μ being that of a Gaussian release with the
plan's (ε, δ), and their noise is calibrated for it as in any other plan; the training gets the least noise with which
all of it together, the steps' losses convolved with those of a Gaussian release of the sums' own μ², keeps (ε, δ). What
a member checks is that composition (`Releases.whole`), not the rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from methods import sums_of
from methods.method import SampledTraining, SumSpec
from secagg.agreement.plan import TRAINING, NoiseFrom, Plan, PlannedNoise, ResultAccess
from secagg.agreement.roster import Roster
from secagg.encoding import Layout
from secagg.errors import BadInput
from secagg.privacy import (
    Adjacency,
    BlockNoise,
    Claim,
    Mechanism,
    NoiseCalibration,
    NoiseLevel,
    PrivacyClaim,
    Releases,
    SampledSteps,
    Sensitivity,
    TrainingClaim,
    TrainingCost,
    Unit,
    multiplier_for,
)
from secagg.privacy.calibration import Part, calibrate_releases
from secagg.privacy.gaussian import mu_of
from secagg.privacy.shares import gap_of, sigma_for, variance_of
from secagg.protection import protection_named
from secagg.protection.draw import most_rounds

MOST_REMOVED = 5_000_000
"""The largest product of clients, dropouts and entries of a sum from which surplus noise is removed."""
MECHANISMS = {NoiseFrom.CLIENT: Mechanism.DISCRETE_SHARES, NoiseFrom.AGGREGATOR: Mechanism.GAUSSIAN}


def members_see(plan: Plan) -> bool:
    """Return whether members see an opened sum or a head: as their result, or before a further round."""
    return plan.result is ResultAccess.MEMBERS or sum(kind.times for kind in sums_of(plan)) > 1


@dataclass(frozen=True)
class NoiseParties:
    """Numbers of parties that add noise: all of them, and the `fewest` honest ones among them in any opened sum."""

    mechanism: Mechanism
    parties: int
    fewest: int
    lower: tuple[NoiseLevel, ...] = ()
    """The plan's noise levels, at which part of each share is removed again."""

    @classmethod
    def of(
        cls, plan: Plan, noise: NoiseFrom, roster: Roster, survivors: int, noise_levels: Sequence[int] = ()
    ) -> NoiseParties:
        """Count the parties that add noise; sums have `survivors` clients or more, `plan.colluders` of them dishonest.

        A member that sees what is opened knows its own share, so there the shares of one fewer count, colluders or not;
        who is alone in a sum has its own. Where the protection hides no single vector, each client's share must protect
        it alone. Whoever opens the sum adds all of an aggregator's noise: of several aggregators, one honest one is
        enough. Raises BadInput when no honest share need be left, or for noise levels that such a plan cannot have.
        """
        mechanism, protection = MECHANISMS[noise], protection_named(plan.protection)
        if mechanism is Mechanism.GAUSSIAN and protection.encrypts:
            problem = "the key holder would open the exact sum before an aggregator adds its noise"
            raise BadInput(problem, remedy="let the clients add noise, or choose another protection")
        if mechanism is Mechanism.GAUSSIAN:
            return cls(mechanism, len(roster.with_role(protection.helper_role)) or 1, 1)
        if survivors <= plan.colluders and protection.hides_vectors:
            raise BadInput(
                f"with {survivors} survivors and {plan.colluders} colluders no honest share of the noise need be left",
                remedy="allow fewer colluders or dropouts",
            )
        known, parties = max(plan.colluders, int(members_see(plan))), plan.cohort or len(roster.clients)

        def honest(present: int) -> int:
            return max(1, present - known) if protection.hides_vectors else 1

        if noise_levels and protection.keeps_noise:
            problem = f"surplus noise is not removed under protection {plan.protection}: {protection.keeps_noise}"
            raise BadInput(problem, remedy="keep it, or choose another protection")
        if noise_levels and noise_levels[-1] >= parties - survivors:
            most = parties - survivors
            problem = f"{noise_levels[-1]} missing clients are no noise level where {most} may be missing"
            raise BadInput(problem, remedy="have the plan written by plan new")
        lower = tuple(NoiseLevel(missing, honest(parties - missing)) for missing in noise_levels)
        return cls(mechanism, parties, honest(survivors), lower)


def charged(plan: Plan, sums: Sequence[SumSpec], clients: int) -> tuple[SumSpec, ...]:
    """Return a plan's kinds of sums, with `times` changed to the most sums of the kind that can include one client.

    In a plan with cohorts of k it is in at most ⌈R·k/n⌉ of R rounds (`protection.draw.schedule`), and these compose
    adaptively, as all rounds of a plan without cohorts do: each is a mechanism of its noise and sensitivity, applied to
    the client's data and to a state that earlier openings decide. A round without the client has the same law whatever
    its data are, given what was opened before, so that it is post-processing. Which rounds are its own was fixed by the
    draw before any data were used, and the bound holds for every draw: it need be neither secret nor fair, and that a
    client is drawn by chance is claimed to hide nothing. Noise and thresholds are those of a cohort that has all c
    colluders in it. This goes for a client's whole contribution, for the gradients of its records, and for its own
    training, whose steps are those of its rounds.
    """
    if not plan.cohort:
        return tuple(sums)
    return tuple(_charged(each, most_rounds(clients, plan.cohort, each.times)) for each in sums)


def _charged(kind: SumSpec, times: int) -> SumSpec:
    training = kind.training and replace(kind.training, times=min(times, kind.training.times))
    return replace(kind, times=times, training=training)


def noises_for(
    sums: Sequence[SumSpec], moved: Sequence[Sensitivity], noisers: NoiseParties, epsilon: float, delta: float
) -> tuple[PlannedNoise, ...]:
    """Calibrate the least noise per named array that guarantees (ε, δ), given each kind of sum's sensitivity (`moved`).

    With members' training the sums get its share of μ², and the steps' noise, which comes first, is found last. Raises
    BadInput, with a remedy, when none will do.
    """
    training = training_of(sums)
    parts = [Part(each, kind.shares, kind.times, kind.budget) for each, kind in zip(moved, sums, strict=True)]
    releases = calibrate_releases(
        parts,
        epsilon=epsilon,
        delta=delta,
        mechanism=noisers.mechanism,
        parties=noisers.parties,
        fewest=noisers.fewest,
        lower=noisers.lower,
        share=training.sums if training is not None else 1.0,
    )
    steps: tuple[PlannedNoise, ...] = ()
    if training is not None:
        _refuse_others(releases.first.unit, releases.first.adjacency)
        cost = releases.cost()
        steps = (_least_noise(training, epsilon, delta, cost.squared_mu, cost.gap),)
    return steps + tuple(
        PlannedNoise(noise.block.name, noise.multiplier, noise.sigma, noise.off_diagonal or 0.0)
        for calibration, _ in releases.parts
        for noise in calibration.blocks
    )


def releases_of(
    plan: Plan, sums: Sequence[SumSpec], noisers: NoiseParties, unit: Unit, adjacency: Adjacency
) -> Releases:
    """Describe a plan's noisy sums for privacy accounting. Raises BadInput if its noises do not fit the blocks."""
    planned = list(plan.sum_noises)
    moved = [each.sensitivity(unit, adjacency, plan.max_records) for each in sums]
    names = [block.name for each in moved for block in each.blocks]
    if names != [noise.block for noise in planned]:
        raise BadInput(f"the plan has noise for {[noise.block for noise in planned]}, the method sums {names}")
    parts = []
    for each, kind in zip(moved, sums, strict=True):
        blocks = tuple(
            BlockNoise(block, noise.multiplier, noise.sigma, noise.off_diagonal or None)
            for block, noise in zip(each.blocks, planned, strict=False)
        )
        planned = planned[len(blocks) :]
        of_parties = noisers.fewest, noisers.parties, noisers.lower
        parts.append((NoiseCalibration(each, noisers.mechanism, blocks, *of_parties), kind.times))
    return Releases(tuple(parts), training_beside(plan, sums))


def claim_of(plan: Plan, sums: Sequence[SumSpec], roster: Roster, fewest: int) -> Claim:
    """Return a plan's (ε, δ) guarantee for sums of `fewest` clients or more. Raises BadInput for too weak noise."""
    if plan.noise is NoiseFrom.MEMBER:
        return training_claim(plan, sums)
    refuse_training_alone(sums)
    noisers = NoiseParties.of(plan, NoiseFrom(plan.noise), roster, fewest, plan.noise_levels)
    if plan.noise_levels:
        refuse_much_removal(sums, noisers.parties, fewest)
    releases = releases_of(plan, sums, noisers, plan.unit, Adjacency(plan.adjacency))
    by_clients, hidden = noisers.mechanism is Mechanism.DISCRETE_SHARES, protection_named(plan.protection).hides_vectors
    rounds = sum(kind.times for kind in sums_of(plan))
    return PrivacyClaim(
        releases,
        plan.epsilon,
        plan.delta,
        among=rounds if plan.cohort else 0,
        holds_against_members=not by_clients or not hidden or members_see(plan) or plan.colluders > 0,
        each_alone=by_clients and not hidden,
    )


def refuse_much_removal(sums: Sequence[SumSpec], clients: int, fewest: int) -> None:
    """Raise BadInput if removing surplus noise takes every client too long: clients · dropouts · entries > 5·10⁶.

    Each client draws the noise of all others again, about 6·10⁶ entries a second.
    """
    missing, entries = clients - fewest, max(sum(block.size for block in kind.blocks) for kind in sums)
    if (draws := clients * missing * entries) > MOST_REMOVED:
        problem = f"{clients} clients, {missing} of which may be missing, and {entries} entries ({draws:.3g} draws)"
        remedy = f"{MOST_REMOVED:.0e} is the most: keep it, or allow fewer dropouts"
        raise BadInput(f"surplus noise is too much to remove for {problem}", remedy=remedy)


def levels_for(missing: int) -> tuple[tuple[int, ...], ...]:
    """Return the noise levels to try, best first, where up to `missing` clients of a sum may be missing."""
    return (((0, missing // 2),) if missing > 1 else ()) + (((0,),) if missing else ())


def layout_of(kind: SumSpec, calibration: NoiseCalibration | None) -> Layout:
    """Return the vector layout of a kind of sum: its blocks (named arrays), each with its scale factor for noise."""
    if calibration is None:
        return Layout(kind.blocks)
    pairs = zip(kind.blocks, calibration.blocks, strict=True)
    return Layout(tuple(replace(block, multiplier=noise.multiplier) for block, noise in pairs))


def training_of(sums: Sequence[SumSpec]) -> SampledTraining | None:
    """Return the noisy training (DP-SGD) that members do before some of a method's sums; None if there is none."""
    found = [each.training for each in sums if each.training is not None]
    return found[0] if found else None


def training_claim(plan: Plan, sums: Sequence[SumSpec]) -> TrainingClaim:
    """Return the (ε, δ) guarantee of members' noisy training alone. Raises BadInput for weak noise or no training."""
    training = _all_that_leaves(sums)
    _refuse_others(plan.unit, Adjacency(plan.adjacency))
    if [each.block for each in plan.noises] != [TRAINING, *(block.name for block in training.further)]:
        beside = "".join(f" and {block.name}" for block in training.further)
        raise BadInput(f"the plan has noise for {[e.block for e in plan.noises]}, not for members' training{beside}")
    alone, releases = _cost(training, plan.training_sigma), _cost_beside(training, plan.noises[1:])
    cost = replace(alone, squared_mu=releases[0], gap=alone.gap + releases[1])
    return TrainingClaim(cost, plan.epsilon, plan.delta)


def training_beside(plan: Plan, sums: Sequence[SumSpec]) -> TrainingCost | None:
    """Return the privacy cost of members' noisy training, in a plan whose sums have noise too; None without training.

    Raises BadInput where the plan lacks the training's noise or has some without training, and for other neighbours.
    """
    training = training_of(sums)
    if (training is not None) != plan.has_training_noise:
        blocks = [each.block for each in plan.noises]
        raise BadInput(f"the plan has noise for {blocks}, other than what its method does")
    if training is None:
        return None
    _refuse_others(plan.unit, Adjacency(plan.adjacency))
    return _cost(training, plan.training_sigma)


def training_noise(
    sums: Sequence[SumSpec], unit: Unit, adjacency: Adjacency, epsilon: float, delta: float
) -> tuple[PlannedNoise, ...]:
    """Calibrate the least noise of members' training steps, and of arrays outside training, that together keep (ε, δ).

    These arrays are the training's further measurements. The measurements get the share `training.share` of μ², divided
    as the sums divide it. Raises like `training_claim`.
    """
    training = _all_that_leaves(sums)
    _refuse_others(unit, adjacency)
    squared_mu, given = training.share * mu_of(epsilon, delta) ** 2, sums[0].shares
    shares = [given[block.name] if isinstance(given, Mapping) else 1.0 for block in training.further]
    further = tuple(
        _planned_noise(block.name, training.times * block.l2**2 / (share / math.fsum(shares) * squared_mu))
        for block, share in zip(training.further, shares, strict=True)
    )
    return (_least_noise(training, epsilon, delta, *_cost_beside(training, further)), *further)


def refuse_training_alone(sums: Sequence[SumSpec]) -> None:
    """Raise BadInput for a method whose only noise is that of members' own training.

    Called for plans in which other parties add noise.
    """
    training = training_of(sums)
    if training is not None and not training.sums:
        raise BadInput("here each member's own training adds the noise", remedy="let members add it (--noise member)")


def _least_noise(
    training: SampledTraining, epsilon: float, delta: float, squared_mu: float = 0.0, gap: float = 0.0
) -> PlannedNoise:
    steps = training.steps * training.times
    gap += steps * gap_of([(float(training.levels), training.size)], 1)
    rate = training.rate
    multiplier = multiplier_for(rate, steps, epsilon=epsilon, delta=delta, squared_mu=squared_mu, gap=gap)
    return _planned_noise(TRAINING, (multiplier * training.levels) ** 2)


def _planned_noise(block: str, variance: float) -> PlannedNoise:
    return PlannedNoise(block, 1, sigma_for(variance, 1) * (1 + 2.0**-40), 0.0)


def _cost(training: SampledTraining, sigma: float) -> TrainingCost:
    """Return the cost of all training steps, accounted as in `secagg.privacy.subsampled`; the clip is `levels`."""
    steps = training.steps * training.times
    multiplier = math.sqrt(variance_of(sigma, 1)) * (1 - 2.0**-50) / training.levels
    gap = steps * gap_of([(sigma, training.size)], 1)
    return TrainingCost(SampledSteps(training.rate, multiplier, steps), gap=gap)


def _cost_beside(training: SampledTraining, noises: Sequence[PlannedNoise]) -> tuple[float, float]:
    """Return μ² and gap T of all that members measure beside their training steps; both are 0 without measurements.

    Each is a Gaussian release of one number, of which a record moves all together by their lengths.
    """
    parts = zip(training.further, noises, strict=True)
    squared_mu = training.times * math.fsum(block.l2**2 / variance_of(noise.sigma, 1) for block, noise in parts)
    gap = training.times * gap_of([(noise.sigma, 1) for noise in noises], 1)
    return squared_mu * (1 + 2.0**-40), gap


def _all_that_leaves(sums: Sequence[SumSpec]) -> SampledTraining:
    """Return the training of a method whose sums depend on nothing else. Raises BadInput for any other method."""
    training = training_of(sums)
    if training is None:
        problem = "members do not train with noise of their own here"
        raise BadInput(problem, remedy="say how (sampling=0.1), or let clients add it")
    if len(sums) > 1 or training.sums:
        raise BadInput(
            "beside their noisy training members open sums about the same records, which takes noise in the sums too",
            remedy="let clients or an aggregator add that (--noise client), and no gate where training is all",
        )
    return training


def _refuse_others(unit: Unit, adjacency: Adjacency) -> None:
    """Raise BadInput unless neighbours differ by an added or removed record, as sampled training's guarantee needs."""
    if (unit, adjacency) != (Unit.RECORD, Adjacency.ADD_REMOVE):
        problem = f"training on sampled records promises nothing for {unit} and {adjacency}"
        raise BadInput(problem, remedy="it hides that one record was added or removed: choose record and add-remove")
