"""The promise that a plan's noise keeps, recomputed from the plan alone; and the noise that a promise takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from methods import sums_of
from methods.method import SumSpec
from secagg.agreement.plan import NoiseFrom, Plan, PlannedNoise, Result
from secagg.agreement.roster import Roster
from secagg.encoding import Layout
from secagg.errors import BadInput
from secagg.plan_facts.training_noise import (
    noise_beside,
    refuse_training_alone,
    training_beside,
    training_claim,
    training_of,
)
from secagg.privacy import (
    Adjacency,
    BlockNoise,
    Calibration,
    Claim,
    Mechanism,
    Part,
    PrivacyClaim,
    Releases,
    Sensitivity,
    Unit,
    calibrate_releases,
)
from secagg.protection import protection_named
from secagg.protection.draw import most_rounds

MECHANISMS = {NoiseFrom.CLIENT: Mechanism.DISCRETE_SHARES, NoiseFrom.AGGREGATOR: Mechanism.GAUSSIAN}


def members_see(plan: Plan) -> bool:
    """Whether members see an opened sum or a head: as their result, or before a further round."""
    return plan.result is Result.MEMBERS or sum(kind.times for kind in sums_of(plan)) > 1


@dataclass(frozen=True)
class NoiseParties:
    """Parties that add noise: `parties` add a share each, at least `fewest` honest ones are in every opened sum."""

    mechanism: Mechanism
    parties: int
    fewest: int

    @classmethod
    def of(cls, plan: Plan, noise: NoiseFrom, roster: Roster, survivors: int) -> NoiseParties:
        """Of a plan of which at least `survivors` clients are in every sum, `plan.colluders` of them not honest.

        A member that sees what is opened knows its own share, so there the shares of one fewer count, colluders or not;
        who is alone in a sum has its own. Where the protection hides no single vector, each client's share must protect
        it alone. Whoever opens the sum adds all of an aggregator's noise: of several aggregators, one honest one is
        enough. Raises BadInput when no honest share need be left.
        """
        mechanism, protection = MECHANISMS[noise], protection_named(plan.protection)
        if mechanism is Mechanism.GAUSSIAN and protection.encrypts:
            raise BadInput(
                "the key holder would open the exact sum before an aggregator adds its noise",
                remedy="let the clients add noise, or choose another protection",
            )
        if mechanism is Mechanism.GAUSSIAN:
            return cls(mechanism, len(roster.with_role(protection.helper_role)) or 1, 1)
        if survivors <= plan.colluders and protection.hides_vectors:
            raise BadInput(
                f"with {survivors} survivors and {plan.colluders} colluders no honest share of the noise need be left",
                remedy="allow fewer colluders or dropouts",
            )
        known = max(plan.colluders, int(members_see(plan)))
        honest = max(1, survivors - known) if protection.hides_vectors else 1
        return cls(mechanism, plan.cohort or len(roster.clients), honest)


def charged(plan: Plan, sums: Sequence[SumSpec], clients: int) -> tuple[SumSpec, ...]:
    """The kinds of sums of a plan, each so many `times` as one client can be in: what it is charged for.

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


def sensitivities(sums: Sequence[SumSpec], unit: Unit, adjacency: Adjacency, max_records: int) -> list[Sensitivity]:
    """Sensitivity of each kind of sum to one record, or to one client with at most `max_records` of them.

    Raises BadInput for a kind that has no sensitivity.
    """
    return [each.sensitivity(unit, adjacency, max_records) for each in sums]


def noises_for(
    sums: Sequence[SumSpec], moved: Sequence[Sensitivity], noisers: NoiseParties, epsilon: float, delta: float
) -> tuple[PlannedNoise, ...]:
    """The least noise that keeps (ε, δ), as a plan says it; `moved` are the sums' sensitivities.

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
        share=training.sums if training is not None else 1.0,
    )
    steps: tuple[PlannedNoise, ...] = ()
    if training is not None:
        neighbours = releases.first.unit, releases.first.adjacency
        steps = (noise_beside(training, *neighbours, releases.cost(), epsilon, delta),)
    return steps + tuple(
        PlannedNoise(noise.block.name, noise.multiplier, noise.sigma, noise.off_diagonal or 0.0)
        for calibration, _ in releases.parts
        for noise in calibration.blocks
    )


def releases_of(
    plan: Plan, sums: Sequence[SumSpec], noisers: NoiseParties, unit: Unit, adjacency: Adjacency
) -> Releases:
    """Everything that the plan releases, with its own noise, accounted for these neighbours.

    Raises BadInput when the plan's noises are not for the blocks of the method.
    """
    planned = list(plan.sum_noises)
    moved = sensitivities(sums, unit, adjacency, plan.max_records)
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
        parts.append((Calibration(each, noisers.mechanism, blocks, noisers.fewest, noisers.parties), kind.times))
    return Releases(tuple(parts), training_beside(plan, sums))


def claim_of(plan: Plan, sums: Sequence[SumSpec], roster: Roster, fewest: int) -> Claim:
    """The promise of a plan of which at least `fewest` clients are in every sum, and one in as many as `sums` say.

    Raises BadInput for weak noise.
    """
    if plan.noise is NoiseFrom.MEMBER:
        return training_claim(plan, sums)
    refuse_training_alone(sums)
    noisers = NoiseParties.of(plan, NoiseFrom(plan.noise), roster, fewest)
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


def layout_of(kind: SumSpec, calibration: Calibration | None) -> Layout:
    """The blocks of one kind of sum, each with its multiplier."""
    if calibration is None:
        return Layout(kind.blocks)
    pairs = zip(kind.blocks, calibration.blocks, strict=True)
    return Layout(tuple(replace(block, multiplier=noise.multiplier) for block, noise in pairs))
