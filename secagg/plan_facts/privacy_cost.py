"""Cost of a plan for the privacy ledger, as a whole or for its first sums."""

from __future__ import annotations

from collections.abc import Callable

from secagg.ledger.spending import Spent
from secagg.plan_facts.facts import PlanFacts
from secagg.plan_facts.noise_plan import NoiseParties, charged, releases_of
from secagg.privacy import Adjacency, PrivacyClaim, Releases, TrainingClaim, Unit


def plan_cost(facts: PlanFacts) -> tuple[Spent, ...]:
    """Cost of the whole plan, for every unit and adjacency; empty without noise, which has no bound.

    A client's promise protects each of its records too; a record's says nothing useful of a client. Training on sampled
    records has a cost for one kind of neighbours alone: then one row covers it and the sums.
    """
    claim = facts.claim
    if claim is None:
        return ()
    if isinstance(claim, TrainingClaim):
        return (Spent(claim.unit, claim.adjacency, claim.cost),)
    if claim.releases.training is not None:
        return (Spent(claim.unit, claim.adjacency, claim.releases.whole()),)
    return _gaussian_costs(facts, claim, lambda whole: whole)


def plan_cost_until(facts: PlanFacts, sums: int) -> tuple[float, tuple[Spent, ...]] | None:
    """ε at the plan's δ, and costs as in `plan_cost`, of the plan's first so many sums.

    None where they cannot be told apart from the rest: with cohorts, with training, without noise, or for all.
    """
    claim = facts.sum_claim
    if claim is None or claim.releases.training is not None or facts.plan.cohort or not 0 < sums < facts.rounds:
        return None
    return claim.after(sums, facts.rounds), _gaussian_costs(facts, claim, lambda whole: whole.until(sums))


def _gaussian_costs(facts: PlanFacts, claim: PrivacyClaim, until: Callable[[Releases], Releases]) -> tuple[Spent, ...]:
    """Cost of those releases of the plan that `until` leaves, for every unit and adjacency."""
    first = claim.releases.first
    noisers = NoiseParties(first.mechanism, first.parties, first.fewest)
    own = charged(facts.plan, facts.sums, len(facts.roster.clients))
    return tuple(
        Spent(unit, adjacency, until(releases_of(facts.plan, own, noisers, unit, adjacency)).cost())
        for unit in sorted({Unit.RECORD, claim.unit})
        for adjacency in Adjacency
    )
