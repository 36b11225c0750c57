"""What a plan says, derived once (`PlanFacts`), and what each of its rounds is (`RoundSetup`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from methods import Method, method_of
from methods.method import SumSpec, effort_of
from methods.round import Noise, Round
from secagg.agreement.plan import NoiseFrom, Plan
from secagg.agreement.policy import Policy
from secagg.agreement.roster import SERVER_INDEX, Roster
from secagg.crypto.labels import digest
from secagg.encoding import Capacity, Layout, Normalisation
from secagg.errors import BadInput, ProtocolViolation
from secagg.ledger.spending import Spent
from secagg.plan_facts.contexts import (
    calibrations_of,
    context_of,
    group_sizes,
    identities_of,
    require_groups,
    require_hidden_parts,
    require_room,
    require_shown,
)
from secagg.plan_facts.drawing import require_cohorts
from secagg.plan_facts.noise_plan import NoiseParties, charged, claim_of, layout_of, releases_of
from secagg.privacy import Adjacency, Calibration, Claim, Mechanism, PrivacyClaim, Releases, TrainingClaim, Unit
from secagg.protection import Protection, SessionContext, protection_named
from secagg.protection.draw import DRAW, Draw, check_draw, cohorts, most_rounds
from secagg.protection.messages import Return, RoundOpening

_MOST_STEPS = 6
LEAST_PATIENCE = 60.0
"""Seconds within which a server that stopped is expected to run again."""
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
        records = 1 if spec.per is Unit.SILO else plan.max_records
        capacity = Capacity(len(context.clients), records, layout.bound, noise)
        placed = replace(context, ring=capacity.ring(), length=layout.length, largest=capacity.largest)
        return cls(spec, calibration, layout, capacity, placed, placed.upload_bytes)

    def opened_noise(self, survivors: int) -> Noise | None:
        """What is known of the noise in an opened sum of so many clients; None without noise."""
        if self.calibration is None:
            return None
        by_clients = self.calibration.mechanism is Mechanism.DISCRETE_SHARES
        return self.calibration.opened(survivors if by_clients else self.calibration.parties)


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
        require_shown(sizes if method.shows_last_sum else sizes[:-1])
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
        """How many rounds the plan has in all."""
        return sum(kind.times for kind in self.sums)

    @property
    def record_sums(self) -> int:
        """How many of the plan's sums are about one client's records: all but censuses, as far as it is in them."""
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
        return self.first_round.stands_alone

    @property
    def cohort_size(self) -> int:
        """How many clients may be in a sum."""
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
        """How many clients each group has."""
        return group_sizes(self.roster, self.groups)

    @property
    def openers(self) -> tuple[str, ...]:
        """Names of those who open a sum together: of several, none alone learns anything."""
        seconds = [self.roster.name(index) for index in self.kinds[0].context.seconds]
        return tuple(seconds) if len(seconds) > 1 else (self.roster.name(SERVER_INDEX), *seconds)

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
        effort = effort_of(charged(self.plan, self.sums, len(self.roster.clients)), self.method.programs)
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
            not plan.grid.is_normalised and method.needs_unit_length,
            f"{plan.method} with these parameters takes records of one length",
            "choose centred-unit or unit",
        ),
        (
            plan.grid.normalisation is Normalisation.CENTRED_UNIT and method.keeps_mean,
            f"{plan.method} needs each record's own mean",
            "normalise by unit",
        ),
    )
    for is_broken, problem, remedy in refusals:
        if is_broken:
            raise BadInput(problem, remedy=remedy)


def plan_cost(facts: PlanFacts) -> tuple[Spent, ...]:
    """What the whole plan costs the ledger, for every unit and adjacency; empty without noise: no bound.

    A silo's promise protects each of its records too; a record's says nothing useful of a silo. Training on sampled
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
    """What `until` leaves of the plan's releases costs, for every unit and adjacency."""
    first = claim.releases.first
    noisers = NoiseParties(first.mechanism, first.parties, first.fewest)
    own = charged(facts.plan, facts.sums, len(facts.roster.clients))
    return tuple(
        Spent(unit, adjacency, until(releases_of(facts.plan, own, noisers, unit, adjacency)).cost())
        for unit in sorted({Unit.RECORD, claim.unit})
        for adjacency in Adjacency
    )


def patience(plan: Plan) -> float:
    """For how many seconds a party goes on asking another one that is away or makes no sense."""
    return max(LEAST_PATIENCE, float(plan.step_seconds))


def longest_round(plan: Plan) -> float:
    """Seconds after which any round is over, whoever was late: most protections have fewer than so many steps.

    Each of them may be extended once, to twice its time.
    """
    return 2.0 * (max(plan.join_seconds, plan.round_seconds) + _MOST_STEPS * plan.step_seconds) + patience(plan)


@dataclass(frozen=True)
class RoundSetup:
    """One round of a plan, equal for all parties because plan, roster and broadcasts are.

    `known_round` is what it sums, None where the broadcasts of the rounds between are not at hand. `opening` led to it,
    None to the plan's first. `shown` is None but to a client that returned in this round: it was shown that in place of
    the rounds before.

    In a plan with cohorts the first round, number 0, is the draw; `seed` is empty until then, and `draw` the proof of
    it, None where a simulation has chosen the seed. In a round `context` is that of its cohort. The last round opens an
    end, of no steps, to clients that were not in it (`is_end`).
    """

    facts: PlanFacts
    context: SessionContext
    known_round: Round | None
    opening: RoundOpening | None = None
    shown: Return | None = None
    seed: bytes = b""
    draw: Draw | None = None

    @classmethod
    def of(cls, plan: Plan, roster: Roster) -> RoundSetup:
        """The plan's first round, or its draw. Raises BadInput as `PlanFacts.of` does."""
        facts = PlanFacts.of(plan, roster)
        context = replace(facts.kinds[0].context, identities=identities_of(roster, roster.clients))
        return cls(facts, context, facts.first_round)

    def drawn(self, draw: Draw) -> RoundSetup:
        """The first round, once the cohorts are drawn. Raises ProtocolViolation as `check_draw` does."""
        if not self.is_draw:
            raise ProtocolViolation(SERVER_INDEX, "tells a draw where there is none to be made")
        return self.seeded(check_draw(self.context, draw), draw)

    def seeded(self, seed: bytes, draw: Draw | None = None) -> RoundSetup:
        """The same for a seed, whoever has chosen it; that of a plan without cohorts is as it was."""
        if not self.plan.cohort:
            return self
        seeded = replace(self, seed=seed, draw=draw)
        return replace(seeded, context=seeded.context_at(1, digest("cohorts", self.plan.digest, seed)))

    def following(self, opening: RoundOpening, broadcast: bytes = b"") -> RoundSetup:
        """The next round, bound to this one's sum and to the broadcast that opens it.

        Who was told something else signs for another session, and no sum with the others comes about. What it sums is
        known with the `broadcast`, if what this one sums is, or the broadcast tells all.
        Raises MalformedMessage or ProtocolViolation for a broadcast that cannot open it, or is not what opens it.
        """
        if (opening.number, opening.previous) != (self.number + 1, self.context.plan):
            raise ProtocolViolation(SERVER_INDEX, f"opens round {opening.number} of another history")
        return self._opened(opening, broadcast)

    def at(self, opening: RoundOpening, broadcast: bytes = b"", shown: Return | None = None) -> RoundSetup:
        """Any later round, from the plan's first: of what it sums it knows what its `broadcast` alone tells.

        `shown` is what a client that returns in it was shown, whoever may have signed that. Raises MalformedMessage or
        ProtocolViolation for a round that the plan does not have, or that cannot be.
        """
        opened = self.following if opening.number == self.number + 1 else self._opened
        return replace(opened(opening, broadcast), shown=shown)

    def _opened(self, opening: RoundOpening, broadcast: bytes) -> RoundSetup:
        if self.is_draw:
            raise ProtocolViolation(SERVER_INDEX, f"opens round {opening.number} before the cohorts are drawn")
        if opening.number > self.rounds + bool(self.seed):
            raise ProtocolViolation(SERVER_INDEX, "announces a round that the plan does not have")
        context = self.context_at(opening.number, opening.context)
        return RoundSetup(
            self.facts, context, self._round_of(opening, broadcast), opening, seed=self.seed, draw=self.draw
        )

    def context_at(self, number: int, bound: bytes) -> SessionContext:
        """The facts of a round's session, which `bound` binds to all before it."""
        session = digest("session of a round", self.plan.session, bound)
        identities = identities_of(self.roster, self.cohort(number))
        kind = self.facts.kinds[self.facts.kind_of(number)]
        return replace(kind.context, plan=bound, session=session, identities=identities)

    def _round_of(self, opening: RoundOpening, broadcast: bytes) -> Round | None:
        """What the round sums that an opening begins; None where that does not follow from what is at hand."""
        if not broadcast:
            return None
        if not opening.broadcast.names(broadcast):
            raise ProtocolViolation(SERVER_INDEX, f"what opens round {opening.number} is not what it is said to be")
        if opening.number > self.rounds:
            return None
        if self.known_round is not None and opening.number == self.number + 1:
            return self.known_round.decode_broadcast(broadcast, self.plan.grid)
        begun = self.facts.first_round
        return begun.later(opening.number, broadcast, self.plan.grid) if begun.stands_alone else None

    @property
    def plan(self) -> Plan:
        """The plan that the round is of."""
        return self.facts.plan

    @property
    def roster(self) -> Roster:
        """The plan's roster."""
        return self.facts.roster

    @property
    def method(self) -> Method:
        """The plan's method."""
        return self.facts.method

    @property
    def protection(self) -> Protection:
        """The plan's protection."""
        return self.facts.protection

    @property
    def rounds(self) -> int:
        """How many rounds the plan has in all."""
        return self.facts.rounds

    @property
    def sum(self) -> SumFacts:
        """The kind of sum of this round; of the first at the draw, of the last at the end."""
        return self.facts.kinds[self.facts.kind_of(self.number)]

    @property
    def round(self) -> Round:
        """What this round sums. Raises BadInput where that is not known."""
        if self.known_round is None:
            raise BadInput(
                f"what round {self.number} sums follows from the rounds before it",
                remedy="give their transcripts too, or leave each in its folder beside this one's",
            )
        return self.known_round

    @property
    def number(self) -> int:
        """Which of the plan's rounds this is, from 1; 0 for the draw before them."""
        return self.opening.number if self.opening is not None else int(not self.is_draw)

    @property
    def is_draw(self) -> bool:
        """Whether this is the draw of the cohorts, not a round."""
        return bool(self.plan.cohort) and not self.seed

    @property
    def is_end(self) -> bool:
        """Whether this is what the last round opens to clients that were not in it: the result."""
        return self.number > self.rounds

    @property
    def is_last(self) -> bool:
        """Whether no round follows this one."""
        return self.number == self.rounds

    @property
    def protocol(self) -> Protection:
        """What the parties of this round do: the draw, or what the plan's protection has them do."""
        return DRAW if self.is_draw else self.protection

    @property
    def shows_sum(self) -> bool:
        """Whether members are shown the opened sum: where it opens a round, and where the last artifact takes it."""
        return not self.is_last or self.method.shows_last_sum

    def cohort(self, number: int) -> tuple[int, ...]:
        """The clients of a round: those drawn, or all, as in the draw and at the end."""
        clients, size = self.roster.clients, self.plan.cohort
        if not size or not 1 <= number <= self.rounds:
            return clients
        return cohorts(self.seed, len(clients), size, self.rounds)[number - 1]

    @property
    def join_seconds(self) -> int:
        """How long parties may take to come: at first in their own time; in later rounds too where they may leave.

        Where they stay, they take so long to compute before they join.
        """
        waits = self.is_draw or (self.number == 1 and not self.seed) or self.protection.speaks_once
        return self.plan.join_seconds if waits else self.plan.round_seconds

    @property
    def remedy(self) -> str:
        """Advise what to do after an aborted session, with the times that may have been too short."""
        plan = self.plan
        joining = f"--join-seconds {plan.join_seconds}"
        if self.join_seconds != plan.join_seconds:
            joining = f"--round-seconds {plan.round_seconds}"
        return (
            "to try again, make a new plan, with new kits, policies and approvals; "
            f"if members were only late, with more time than {joining} and --step-seconds {plan.step_seconds}"
        )
