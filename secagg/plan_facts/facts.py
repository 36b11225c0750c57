"""Facts of a plan and its roster: method, sums, noise, promise, rings and sizes of uploads."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from methods import Method, method_of
from methods.method import SumSpec, effort_of
from methods.round import Noise, Round
from secagg.agreement.plan import NoiseFrom, Plan
from secagg.agreement.policy import Policy
from secagg.agreement.roster import SERVER_INDEX, Roster
from secagg.encoding import Capacity, Layout, Normalisation
from secagg.errors import BadInput
from secagg.plan_facts.noise_plan import charged, claim_of, layout_of
from secagg.plan_facts.plan_rules import (
    calibrations_of,
    context_of,
    group_sizes,
    require_cohorts,
    require_groups,
    require_hidden_parts,
    require_room,
    require_shown,
)
from secagg.privacy import Calibration, Claim, Mechanism, PrivacyClaim, Unit
from secagg.protection import Protection, SessionContext, protection_named
from secagg.protection.draw import most_rounds

FINE_LEVELS = 1 << 16
"""R_q where no noise hides the rounding."""


@dataclass(frozen=True)
class SumFacts:
    """One kind of a plan's sums: its blocks, the noise in it (None without), its layout and the ring that holds it.

    `context` is that of such a sum in the plan's first session, among as many clients as may be in one. `upload_bytes`
    are the bytes that each client uploads for it, beside its messages.
    """

    spec: SumSpec
    calibration: Calibration | None
    layout: Layout
    capacity: Capacity
    context: SessionContext
    upload_bytes: int

    @classmethod
    def of(cls, plan: Plan, context: SessionContext, spec: SumSpec, calibration: Calibration | None) -> SumFacts:
        """Place the blocks in a ring, `context` giving the clients. Raises CapacityExceeded when no ring holds the sum.

        Noise that a single aggregator adds comes after the sum has left the ring; that of two is part of the sum.
        """
        layout, noise = layout_of(spec, calibration), 0
        if calibration is not None and (plan.noise == NoiseFrom.CLIENT or calibration.parties > 1):
            noise = calibration.largest
        records = 1 if spec.per is Unit.CLIENT else plan.max_records
        capacity = Capacity(len(context.clients), records, layout.bound, noise)
        placed = replace(context, ring=capacity.ring(), length=layout.length, largest=capacity.largest)
        return cls(spec, calibration, layout, capacity, placed, placed.upload_bytes)

    def opened_noise(self, survivors: int) -> Noise | None:
        """Public facts of the noise in an opened sum of `survivors` clients; None without noise."""
        if self.calibration is None:
            return None
        by_clients = self.calibration.mechanism is Mechanism.DISCRETE_SHARES
        return self.calibration.opened_noise(survivors if by_clients else self.calibration.parties)


@dataclass(frozen=True)
class PlanFacts:
    """Everything that follows from a plan and its roster alone, whatever happens in its rounds.

    `kinds` are its kinds of sums in order, each taken `spec.times` times, one in each round. `claim` is the promise of
    all rounds together, None without noise.
    """

    plan: Plan
    roster: Roster
    method: Method
    protection: Protection
    claim: Claim | None
    kinds: tuple[SumFacts, ...]

    @classmethod
    def of(cls, plan: Plan, roster: Roster) -> PlanFacts:
        """Derive the facts. Raises BadInput when the plan is for another roster, or asks for what cannot be."""
        if plan.roster != roster.digest:
            raise BadInput(
                f"the plan is for the roster {plan.roster.hex()[:16]}…, this member has {roster.digest.hex()[:16]}…",
                remedy="have the authority hand out the roster again, or write a plan for the new one",
            )
        require_room(plan, len(roster.clients))
        plan.table_schema()
        plan.grid.unit(plan.dimension)
        method = method_of(plan)
        sums = method.sums(plan.dimension, len(plan.classes), plan.levels)
        _require_grid(plan, method, sums)
        protection = protection_named(plan.protection)
        require_cohorts(plan, len(roster.clients), method, sums)
        context = context_of(plan, roster, roster.clients[: plan.cohort or None])
        fewest, claim = protection.fewest(context), None
        require_hidden_parts(plan, method)
        require_groups(plan, sums, roster)
        if plan.has_noise:
            claim = claim_of(plan, charged(plan, sums, len(roster.clients)), roster, fewest)
        pairs = zip(sums, calibrations_of(claim, sums), strict=True)
        facts = cls(plan, roster, method, protection, claim, tuple(SumFacts.of(plan, context, *pair) for pair in pairs))
        sizes = [kind.context.packed_bytes for kind in facts.kinds]
        require_shown(sizes if method.traits.shows_last_sum else sizes[:-1])
        return facts

    def load_libraries(self) -> None:
        """Import what the plan's method loads on first use: a step's time is for its work alone."""
        for name in getattr(self.method, "libraries", ()):
            importlib.import_module(name)

    @cached_property
    def sums(self) -> tuple[SumSpec, ...]:
        """The kinds of sums, in order."""
        return tuple(kind.spec for kind in self.kinds)

    @cached_property
    def rounds(self) -> int:
        """Number of rounds of the plan."""
        return sum(kind.times for kind in self.sums)

    @property
    def record_sums(self) -> int:
        """Number of sums about one client's records: all but censuses, as far as it is in them."""
        return sum(self.draws(kind.times) for kind in self.sums if kind.is_about_records)

    def kind_of(self, number: int) -> int:
        """Return which kind, from 0, the sum of this round is; the first for the draw, the last for the end."""
        kinds = [kind for kind, each in enumerate(self.sums) for _ in range(each.times)]
        return kinds[min(max(number, 1), self.rounds) - 1]

    @property
    def first_round(self) -> Round:
        """The plan's first round."""
        return self.method.begin(self.plan.dimension, len(self.plan.classes), self.plan.levels)

    @property
    def opens_alone(self) -> bool:
        """Whether what opens a round of the plan is all of it: those before it are then not needed to go on."""
        return self.first_round.is_self_contained

    @property
    def cohort_size(self) -> int:
        """Most clients that may be in a sum."""
        return self.plan.cohort or len(self.roster.clients)

    def draws(self, rounds: int) -> int:
        """Return in how many of the plan's first `rounds` rounds one client can be, at the most."""
        return most_rounds(len(self.roster.clients), self.cohort_size, rounds)

    @property
    def fewest(self) -> int:
        """The smallest number of clients in a sum that can be opened; of those, a group has a part."""
        return self.protection.fewest(self.kinds[0].context)

    @property
    def groups(self) -> int:
        """Into how many groups of clients, each with a sum of its own, a kind of sum is divided at most."""
        return max(kind.groups for kind in self.sums)

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Number of clients of each group."""
        return group_sizes(self.roster, self.groups)

    @property
    def openers(self) -> tuple[str, ...]:
        """Names of those who open a sum together: of several, none alone learns anything."""
        helpers = [self.roster.name(index) for index in self.kinds[0].context.helpers]
        return tuple(helpers) if len(helpers) > 1 else (self.roster.name(SERVER_INDEX), *helpers)

    @property
    def sum_claim(self) -> PrivacyClaim | None:
        """The promise that noise in the sums keeps; None where there is none, or what is summed is private already."""
        return self.claim if isinstance(self.claim, PrivacyClaim) else None

    @property
    def bytes_saved_by_grid(self) -> int:
        """Bytes by which the first vector is shorter than in a plan without noise, on its finer grid.

        0 where there would be no such plan.
        """
        if self.sum_claim is None:
            return 0
        plan, own = self.plan, self.kinds[0]
        fine = self.method.sums(plan.dimension, len(plan.classes), FINE_LEVELS)[0]
        try:
            return SumFacts.of(plan, own.context, fine, None).upload_bytes - own.upload_bytes
        except BadInput:
            return 0

    def check(self, policy: Policy) -> None:
        """Raise PlanRefused when the plan breaks the policy."""
        effort = effort_of(charged(self.plan, self.sums, len(self.roster.clients)), self.method.traits.programs)
        fewest = min(self.fewest, min(self.group_sizes) - self.plan.dropouts) if self.groups > 1 else self.fewest
        longest = max(kind.upload_bytes for kind in self.kinds)
        policy.check(self.plan, self.cohort_size, fewest, longest, self.record_sums, effort)


def _require_grid(plan: Plan, method: Method, sums: Sequence[SumSpec]) -> None:
    """Raise BadInput where members would not learn what opens their next round, or records are not as the method's."""
    refusals = (
        (
            len(sums) > 1 and plan.result != "members",
            "between rounds every member learns the head",
            "let the result go to members",
        ),
        (
            not plan.grid.is_normalised and method.traits.needs_unit_length,
            f"{plan.method} with these parameters takes records of one length",
            "choose centred-unit or unit",
        ),
        (
            plan.grid.normalisation is Normalisation.CENTRED_UNIT and method.traits.keeps_mean,
            f"{plan.method} needs each record's own mean",
            "normalise by unit",
        ),
    )
    for is_broken, problem, remedy in refusals:
        if is_broken:
            raise BadInput(problem, remedy=remedy)


def witnesses_of(facts: PlanFacts) -> int:
    """Signatures of other clients that a client needs to rejoin a round: t, with 2t > n + c.

    n is how many may be in a sum: of cohorts their size.
    """
    return (facts.cohort_size + facts.plan.colluders) // 2 + 1


def may_return(facts: PlanFacts) -> bool:
    """Whether clients that were away may return in a later round: it is decided here, for all parties.

    Each broadcast must tell all of its round, and there must be enough others to sign.
    """
    return facts.rounds > 1 and facts.opens_alone and witnesses_of(facts) < facts.cohort_size


KEPT_OPENINGS = 2
