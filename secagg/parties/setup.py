"""What every party derives from the same plan and roster before a session begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from methods import Method, method_named
from methods.method import SumSpec, domains_of, effort_of
from methods.round import Noise, Round
from secagg.crypto.labels import digest
from secagg.encoding import LARGEST_RING, Capacity, Layout, Ring
from secagg.errors import BadInput, ProtocolViolation
from secagg.parties.noise_plan import NoiseParties, claim_of, layout_of, releases_of
from secagg.plan import NoiseFrom, Plan
from secagg.policy import Policy
from secagg.privacy import Adjacency, Calibration, Claim, PrivacyClaim, TrainingClaim, Unit
from secagg.protection import Protection, SessionContext, protection_named
from secagg.protection.messages import MAX_ATTACHED, Return, RoundOpening
from secagg.roster import SERVER_INDEX, Roster
from secagg.spending import Spent

_MOST_STEPS = 6
LEAST_PATIENCE = 60.0
"""Seconds: whoever looks after a server has it running again by then."""
FINE_LEVELS = 1 << 16
"""R_q where no noise hides the rounding."""


@dataclass(frozen=True)
class SessionSetup:
    """One session's derived facts; equal for all parties because plan, roster and broadcasts are.

    A plan of several rounds has one session for each: `round` is what this one sums, `opening` led to it (None to the
    first). `known_round` is None where the broadcasts of the rounds between are not at hand. `claim` is the promise of
    all of them together, `calibration` the noise of this one; both are None without noise. `uploads` are the bytes that
    a client uploads, beside its messages, for each kind of sum in order. `shown` is None but to a client that returned
    in this round, which was shown it in place of the rounds before.
    """

    plan: Plan
    roster: Roster
    method: Method
    known_round: Round | None
    opening: RoundOpening | None
    layout: Layout
    capacity: Capacity
    protection: Protection
    context: SessionContext
    uploads: tuple[int, ...]
    claim: Claim | None
    calibration: Calibration | None
    shown: Return | None = None

    @classmethod
    def of(cls, plan: Plan, roster: Roster) -> SessionSetup:
        """Derive the first session. Raises BadInput when the plan is for another roster, or asks for what cannot be."""
        if plan.roster != roster.digest:
            raise BadInput(
                f"the plan is for the roster {plan.roster.hex()[:16]}…, this member has {roster.digest.hex()[:16]}…",
                remedy="have the authority hand out the roster again, or write a plan for the new one",
            )
        _require_room(plan, len(roster.clients))
        plan.table_schema()
        plan.grid.unit(plan.dimension)
        method = method_named(plan.method, plan.method_parameters)
        sums = method.sums(plan.dimension, len(plan.classes), plan.levels)
        if len(sums) > 1 and plan.result != "members":
            raise BadInput("between rounds every member learns the head", remedy="let the result go to members")
        if not plan.grid.is_normalised and method.needs_unit_length:
            raise BadInput(
                f"{plan.method} with these parameters takes records of one length",
                remedy="choose centred-unit or unit",
            )
        protection = protection_named(plan.protection)
        context = _context(plan, roster)
        fewest, claim = protection.fewest(context), None
        if method.class_threshold and fewest < len(roster.clients) - plan.dropouts:
            raise BadInput(
                f"a class gate counts on {plan.dropouts} dropouts, but a sum of {fewest} clients could be opened",
                remedy=f"set minimum_cohort to {len(roster.clients) - plan.dropouts}",
            )
        _require_cohorts(plan, method, len(roster.clients), fewest)
        if plan.has_noise:
            claim = claim_of(plan, sums, roster, fewest)
        calibrations = _calibrations(claim, sums)
        layouts = [layout_of(kind, each) for kind, each in zip(sums, calibrations, strict=True)]
        fits = [_in_ring(context, plan, *each) for each in zip(sums, layouts, calibrations, strict=True)]
        uploads = tuple(placed.upload_bytes for _, placed in fits)  # CapacityExceeded where there is no room
        for _, placed in fits if method.shows_last_sum else fits[:-1]:
            if placed.packed_bytes > MAX_ATTACHED:
                problem = f"a sum of {placed.packed_bytes} bytes is too long to be shown to the members"
                raise BadInput(problem, remedy="use fewer features, or a smaller model")
        capacity, context = fits[0]
        first = (layouts[0], capacity, protection, context, uploads, claim, calibrations[0])
        begun = method.begin(plan.dimension, len(plan.classes), plan.levels)
        return cls(plan, roster, method, begun, None, *first)

    def following(self, opening: RoundOpening, broadcast: bytes = b"") -> SessionSetup:
        """The session of the next round, bound to this one's sum and to the broadcast that opens the round.

        Who was told something else signs for another session, and no sum with the others comes about. What it sums is
        known with the `broadcast`, if what this one sums is, or the broadcast tells all.
        Raises MalformedMessage or ProtocolViolation for a broadcast that cannot open it, or is not what opens it.
        """
        if (opening.number, opening.previous) != (self.number + 1, self.context.plan):
            raise ProtocolViolation(SERVER_INDEX, f"opens round {opening.number} of another history")
        return self.later(opening, self._round(opening, broadcast))

    def later(self, opening: RoundOpening, round_: Round | None = None) -> SessionSetup:
        """The session of any later round: without its `round` all follows from the plan and the opening alone.

        Raises ProtocolViolation for a round that the plan does not have.
        """
        if opening.number > self.rounds:
            raise ProtocolViolation(SERVER_INDEX, "announces a round that the plan does not have")
        sums, kind = self.sums, self.kind_of(opening.number)
        calibration = _calibrations(self.claim, sums)[kind]
        layout = layout_of(sums[kind], calibration)
        capacity, context = _in_ring(self.context, self.plan, sums[kind], layout, calibration)
        bound = opening.context
        context = replace(context, plan=bound, session=digest("session of a round", self.plan.session, bound))
        return replace(
            self,
            known_round=round_,
            opening=opening,
            layout=layout,
            capacity=capacity,
            context=context,
            calibration=calibration,
            shown=None,
        )

    def returning(self, shown: Return, broadcast: bytes = b"") -> SessionSetup:
        """The session of a later round to a client that was shown its opening, whoever may have signed that.

        What it sums is known with the `broadcast`. Raises MalformedMessage or ProtocolViolation for one that cannot be.
        """
        return replace(self.opened_alone(shown.opening, broadcast), shown=shown)

    def opened_alone(self, opening: RoundOpening, broadcast: bytes = b"") -> SessionSetup:
        """The session that an opening begins, from this first one; of what it sums, what its `broadcast` alone tells.

        Raises MalformedMessage or ProtocolViolation for one that cannot be.
        """
        if opening.number == 2:
            return self.following(opening, broadcast)
        return self.later(opening, self._round(opening, broadcast))

    def _round(self, opening: RoundOpening, broadcast: bytes) -> Round | None:
        """The round that an opening begins; None where that does not follow from what is at hand."""
        if not broadcast:
            return None
        if not opening.broadcast.names(broadcast):
            raise ProtocolViolation(SERVER_INDEX, f"what opens round {opening.number} is not what it is said to be")
        if self.known_round is not None and opening.number == self.number + 1:
            return self.known_round.decode_broadcast(broadcast, self.plan.grid)
        begun = self._begun
        return begun.later(opening.number, broadcast, self.plan.grid) if begun.stands_alone else None

    @property
    def opens_alone(self) -> bool:
        """Whether what opens a round of the plan is all of it: those before it are then not needed to go on."""
        return self._begun.stands_alone

    @property
    def _begun(self) -> Round:
        """The plan's first round."""
        return self.method.begin(self.plan.dimension, len(self.plan.classes), self.plan.levels)

    @property
    def round(self) -> Round:
        """What this session sums. Raises BadInput where that is not known."""
        if self.known_round is None:
            raise BadInput(
                f"what round {self.number} sums follows from the rounds before it",
                remedy="give their transcripts too, or leave each in its folder beside this one's",
            )
        return self.known_round

    @property
    def number(self) -> int:
        """Which of the plan's rounds this is, from 1."""
        return self.opening.number if self.opening is not None else 1

    @property
    def is_last(self) -> bool:
        """Whether no round follows this one."""
        return self.number == self.rounds

    @property
    def shows_sum(self) -> bool:
        """Whether members are shown the opened sum: where it opens a round, and where the last artifact takes it."""
        return not self.is_last or self.method.shows_last_sum

    @cached_property
    def sums(self) -> tuple[SumSpec, ...]:
        """The kinds of sums of the plan, in order."""
        plan = self.plan
        return self.method.sums(plan.dimension, len(plan.classes), plan.levels)

    @cached_property
    def rounds(self) -> int:
        """How many sessions the plan has in all."""
        return sum(kind.times for kind in self.sums)

    @property
    def record_sums(self) -> int:
        """How many of the plan's sums are about records: all but censuses."""
        return sum(kind.times for kind in self.sums if kind.is_about_records)

    @property
    def spec(self) -> SumSpec:
        """The kind of sum of this session."""
        return self.sums[self.kind_of(self.number)]

    def kind_of(self, number: int) -> int:
        """Return of which kind, from 0, the plan's sum of this number, from 1, is."""
        return [kind for kind, each in enumerate(self.sums) for _ in range(each.times)][number - 1]

    @property
    def join_seconds(self) -> int:
        """How long parties may take to come: at first in their own time; in later rounds too where they may leave.

        Where they stay, they take so long to compute before they join.
        """
        waits = self.number == 1 or self.protection.speaks_once
        return self.plan.join_seconds if waits else self.plan.round_seconds

    @property
    def longest_round(self) -> float:
        """Seconds after which any round is over, whoever was late: most protections have fewer than so many steps."""
        plan = self.plan
        return float(max(plan.join_seconds, plan.round_seconds) + _MOST_STEPS * plan.step_seconds) + self.patience

    @property
    def patience(self) -> float:
        """For how many seconds a party goes on asking another one that is away or makes no sense."""
        return max(LEAST_PATIENCE, float(self.plan.step_seconds))

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
        plan, first = self.plan, self.sum_claim.releases.first
        fine, own = (
            self.method.sums(plan.dimension, len(plan.classes), each)[0] for each in (FINE_LEVELS, plan.levels)
        )
        try:
            return self._vector_bytes(fine, None) - self._vector_bytes(own, first)
        except BadInput:
            return 0

    @property
    def upload_bytes(self) -> int:
        """Bytes that a client uploads in this session, beside its messages."""
        return self.context.upload_bytes

    def _vector_bytes(self, kind: SumSpec, calibration: Calibration | None) -> int:
        return _in_ring(self.context, self.plan, kind, layout_of(kind, calibration), calibration)[1].upload_bytes

    @property
    def openers(self) -> tuple[str, ...]:
        """Names of those who open the sum together: of several, none alone learns anything."""
        seconds = [self.context.names[index] for index in self.context.seconds]
        return tuple(seconds) if len(seconds) > 1 else (self.roster.name(SERVER_INDEX), *seconds)

    def opened_noise(self, survivors: int) -> Noise | None:
        """What is known of the noise in this session's opened sum of so many clients; None without noise."""
        if self.calibration is None:
            return None
        by_clients = self.plan.noise == NoiseFrom.CLIENT
        return self.calibration.opened(survivors if by_clients else self.calibration.parties)

    def spent(self) -> tuple[Spent, ...]:
        """What the whole plan costs the ledger, for every unit and adjacency; empty without noise: no bound.

        A silo's promise protects each of its records too; a record's says nothing useful of a silo.
        """
        if self.claim is None:
            return ()
        if isinstance(self.claim, TrainingClaim):
            return (Spent(self.claim.unit, self.claim.adjacency, self.claim.cost),)
        units = {Unit.RECORD, self.claim.unit}
        first = self.claim.releases.first
        noisers = NoiseParties(first.mechanism, first.parties, first.fewest)
        return tuple(
            Spent(unit, adjacency, releases_of(self.plan, self.sums, noisers, unit, adjacency).cost())
            for unit in sorted(units)
            for adjacency in Adjacency
        )

    def check(self, policy: Policy) -> None:
        """Raise PlanRefused when the plan breaks the policy."""
        clients, fewest, effort = len(self.context.clients), self.fewest, effort_of(self.sums)
        if self.method.cohorts > 1:
            fewest = clients // self.method.cohorts - self.plan.dropouts
        policy.check(self.plan, clients, fewest, max(self.uploads), self.record_sums, effort)

    @property
    def fewest(self) -> int:
        """The smallest number of clients whose sum can be opened."""
        return self.protection.fewest(self.context)


def cohort_least(plan: Plan) -> int:
    """The fewest members of a cohort: whoever vanishes or colludes, two honest ones are in its sum."""
    return plan.colluders + plan.dropouts + 2


def _require_room(plan: Plan, clients: int) -> None:
    """Raise BadInput for a plan that states more records than it takes."""
    most = clients * plan.max_records
    if plan.at_least > most:
        raise BadInput(
            f"the plan states at least {plan.at_least} records, but takes at most {plan.max_records} of each of "
            f"{clients} clients, {most} in all",
            remedy=f"state at most {most}, or raise max_records",
        )


def _calibrations(claim: Claim | None, sums: Sequence[SumSpec]) -> Sequence[Calibration | None]:
    """The noise that is added to every kind of sum, or to what goes into it; None where there is none."""
    if isinstance(claim, PrivacyClaim):
        return [each for each, _ in claim.releases.parts]
    return [None] * len(sums)


def _require_cohorts(plan: Plan, method: Method, clients: int, fewest: int) -> None:
    """Raise BadInput for a plan whose cohorts are too small.

    Also for one that tells domains apart, unless a gate, noise or nobody hides a client's part.
    """
    if method.cohorts > 1:
        least, smallest = cohort_least(plan), clients // method.cohorts
        if smallest < least:
            raise BadInput(
                f"{clients} members in {method.cohorts} cohorts, whose sums are opened apart, are {smallest} in the "
                f"smallest: where {plan.dropouts} may vanish and {plan.colluders} collude it takes {least}",
                remedy=f"{clients} members allow {clients // least} cohorts: take so few settings, or more members",
            )
        if fewest < clients - plan.dropouts:
            raise BadInput(
                f"cohorts count on {plan.dropouts} dropouts, but a sum of {fewest} clients could be opened",
                remedy=f"set minimum_cohort to {clients - plan.dropouts}",
            )
    hidden = plan.has_noise or method.class_threshold or not protection_named(plan.protection).hides_vectors
    if domains_of(plan.method_parameters) and not hidden:
        raise BadInput(
            "without a class gate the sum of a class in a domain that one client has is its own prototype",
            remedy="give a class gate, and each domain at least that many clients, or a finite epsilon",
        )


def _context(plan: Plan, roster: Roster) -> SessionContext:
    """Ring and length are found later. Raises BadInput when the roster lacks the parties that the protection needs."""
    protection = protection_named(plan.protection)
    seconds = roster.with_role(protection.second_role)
    return protection.context(
        SessionContext(
            plan=plan.digest,
            session=plan.session,
            roster=plan.roster,
            identities={index: roster.identity(index) for index in roster.clients},
            names={index: roster.name(index) for index in (SERVER_INDEX, *roster.clients, *seconds)},
            ring=Ring(LARGEST_RING),
            length=0,
            colluders=plan.colluders,
            dropouts=plan.dropouts,
            minimum_cohort=plan.minimum_cohort,
            server=roster.identity(SERVER_INDEX),
            seconds={index: roster.identity(index) for index in seconds},
            security=plan.security,
        )
    )


def _in_ring(
    context: SessionContext, plan: Plan, kind: SumSpec, layout: Layout, calibration: Calibration | None
) -> tuple[Capacity, SessionContext]:
    """The capacity that a layout needs, and the context with its ring and length. Raises CapacityExceeded.

    Noise that a single aggregator adds comes after the sum has left the ring; that of two is part of the sum.
    """
    noise = 0
    if calibration is not None and (plan.noise == NoiseFrom.CLIENT or calibration.parties > 1):
        noise = calibration.largest
    records = 1 if kind.per is Unit.SILO else plan.max_records
    capacity = Capacity(len(context.clients), records, layout.bound, noise)
    placed = replace(context, ring=capacity.ring(), length=layout.length, largest=capacity.largest)
    return capacity, placed
