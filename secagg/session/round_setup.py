"""One round of a plan as every party derives it from public data, and a client's contribution to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from methods import Method
from methods.round import Local, Round
from secagg.agreement.plan import NoiseFrom, Plan
from secagg.agreement.roster import SERVER_INDEX, Roster
from secagg.crypto.labels import digest
from secagg.encoding import Integers
from secagg.errors import BadInput, ProtocolViolation
from secagg.plan_facts.facts import PlanFacts, SumFacts, identities_of
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import discrete_gaussian, rounded_gaussian
from secagg.protection import Protection, SessionContext
from secagg.protection.draw import DRAW, Draw, check_draw, cohorts
from secagg.protection.messages import Return, RoundOpening
from secagg.randomness import RandomSource


@dataclass(frozen=True)
class RoundSetup:
    """One round of a plan; all parties derive the same one from the plan, the roster and the broadcasts.

    `known_round` is what it sums, None where the broadcasts of the rounds between are not at hand. `opening` led to it,
    None to the plan's first. `rejoin` is what a client that returned in this round was given in place of the
    rounds before; None for all others.

    In a plan with cohorts the first round, number 0, is the draw; `seed` is empty until then, and `draw` the proof of
    it, None where a simulation has chosen the seed. In a round `context` is that of its cohort. The last round opens an
    end, of no steps, to clients that were not in it (`is_end`).
    """

    facts: PlanFacts
    context: SessionContext
    known_round: Round | None
    opening: RoundOpening | None = None
    rejoin: Return | None = None
    seed: bytes = b""
    draw: Draw | None = None

    @classmethod
    def of(cls, plan: Plan, roster: Roster) -> RoundSetup:
        """Return the plan's first round, or the random draw of cohorts if one precedes it. Raises BadInput."""
        facts = PlanFacts.of(plan, roster)
        context = replace(facts.kinds[0].context, identities=identities_of(roster, roster.clients))
        return cls(facts, context, facts.first_round)

    def with_draw(self, draw: Draw) -> RoundSetup:
        """Check a random draw of cohorts; return the plan's first round with them. Raises ProtocolViolation."""
        if not self.is_draw:
            raise ProtocolViolation(SERVER_INDEX, "tells a draw where there is none to be made")
        return self.seeded(check_draw(self.context, draw), draw)

    def seeded(self, seed: bytes, draw: Draw | None = None) -> RoundSetup:
        """Return the first round with the cohorts that the random `seed` decides; `self` in a plan without cohorts."""
        if not self.plan.cohort:
            return self
        seeded = replace(self, seed=seed, draw=draw)
        return replace(seeded, context=seeded.context_at(1, digest("cohorts", self.plan.digest, seed)))

    def following(self, opening: RoundOpening, broadcast: bytes = b"") -> RoundSetup:
        """Return the next round, whose digest commits to this round's sum and to the broadcast that begins the next.

        Who was told something else signs for another session, and no sum with the others comes about. What it sums is
        known with the `broadcast`, if what this one sums is, or the broadcast tells all.
        Raises MalformedMessage or ProtocolViolation for a broadcast that cannot open it, or is not what opens it.
        """
        if (opening.number, opening.previous) != (self.number + 1, self.context.round_digest):
            raise ProtocolViolation(SERVER_INDEX, f"opens round {opening.number} of another history")
        return self._later_round(opening, broadcast)

    def at(self, opening: RoundOpening, broadcast: bytes = b"", rejoin: Return | None = None) -> RoundSetup:
        """Return the later round that the server's message `opening` begins; `self` is the plan's first round.

        What it sums is known if `broadcast` alone determines it.
        `rejoin` is what a client rejoins it by, whoever may have signed that. Raises MalformedMessage or
        ProtocolViolation for a round that the plan does not have, or that cannot be.
        """
        opened = self.following if opening.number == self.number + 1 else self._later_round
        return replace(opened(opening, broadcast), rejoin=rejoin)

    def _later_round(self, opening: RoundOpening, broadcast: bytes) -> RoundSetup:
        if self.is_draw:
            raise ProtocolViolation(SERVER_INDEX, f"opens round {opening.number} before the cohorts are drawn")
        if opening.number > self.rounds + bool(self.seed):
            raise ProtocolViolation(SERVER_INDEX, "announces a round that the plan does not have")
        context, known = self.context_at(opening.number, opening.round_digest), self._round_of(opening, broadcast)
        return RoundSetup(self.facts, context, known, opening, seed=self.seed, draw=self.draw)

    def context_at(self, number: int, round_digest: bytes) -> SessionContext:
        """Return a round's protocol parameters (SessionContext), bound to all earlier rounds by its round digest."""
        session_id = digest("session of a round", self.plan.session, round_digest)
        identities = identities_of(self.roster, self.cohort(number))
        kind = self.facts.kinds[self.facts.kind_of(number)]
        return replace(kind.context, round_digest=round_digest, session_id=session_id, identities=identities)

    def _round_of(self, opening: RoundOpening, broadcast: bytes) -> Round | None:
        """Return the method's `Round` that begins with an opening; None if the data at hand do not determine it."""
        if not broadcast:
            return None
        if not opening.broadcast.names(broadcast):
            raise ProtocolViolation(SERVER_INDEX, f"what opens round {opening.number} is not what it is said to be")
        if opening.number > self.rounds:
            return None
        if self.known_round is not None and opening.number == self.number + 1:
            return self.known_round.decode_broadcast(broadcast, self.plan.grid)
        begun = self.facts.first_round
        return begun.from_broadcast(opening.number, broadcast, self.plan.grid) if begun.is_self_contained else None

    @property
    def plan(self) -> Plan:
        """The plan to which the round belongs."""
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
        """Number of rounds of the plan."""
        return self.facts.rounds

    @property
    def sum(self) -> SumFacts:
        """Layout, noise and ring (the modular integers) of this round's sum.

        In the draw of cohorts they are those of the first sum, at the plan's end those of the last.
        """
        return self.facts.kinds[self.facts.kind_of(self.number)]

    @property
    def round(self) -> Round:
        """The training method's `Round` for this round. Raises BadInput if earlier rounds' broadcasts are missing."""
        if self.known_round is None:
            problem = f"what round {self.number} sums follows from the rounds before it"
            raise BadInput(problem, remedy="give their transcripts too, or leave each in its folder beside this one's")
        return self.known_round

    @property
    def number(self) -> int:
        """The round's number in the plan, from 1; 0 for the draw of the cohorts."""
        return self.opening.number if self.opening is not None else int(not self.is_draw)

    @property
    def label(self) -> str:
        """The plan's short digest and the round, as lines of a log begin."""
        where = "draw of the cohorts" if self.is_draw else f"round {self.number} of {self.rounds}"
        return f"plan {self.plan.digest.hex()[:8]}, {where}"

    @property
    def is_draw(self) -> bool:
        """Whether this is the random draw of the cohorts, which comes before the first round."""
        return bool(self.plan.cohort) and not self.seed

    @property
    def is_end(self) -> bool:
        """Whether this is the step after the last round, which brings the result to clients outside its cohort."""
        return self.number > self.rounds

    @property
    def is_last(self) -> bool:
        """Whether this is the plan's last round."""
        return self.number == self.rounds

    @property
    def protocol(self) -> Protection:
        """The cryptographic protocol of this round: the plan's protection, or that of the random draw of cohorts."""
        return DRAW if self.is_draw else self.protection

    @property
    def shows_sum(self) -> bool:
        """Whether members receive the opened sum: before the last round always, in it only if the method needs that."""
        return not self.is_last or self.method.traits.shows_last_sum

    def cohort(self, number: int) -> tuple[int, ...]:
        """Return the indices of a round's clients: the drawn cohort, or all clients in a plan without cohorts.

        All clients too in the draw and at the plan's end.
        """
        clients, size = self.roster.clients, self.plan.cohort
        if not size or not 1 <= number <= self.rounds:
            return clients
        return cohorts(self.seed, len(clients), size, self.rounds)[number - 1]

    @property
    def join_seconds(self) -> int:
        """Seconds that parties may take to join: the plan's `join_seconds`, or `round_seconds` if they stay connected.

        Where they stay, they take so long to compute before they join.
        """
        waits = self.is_draw or (self.number == 1 and not self.seed) or self.protection.speaks_once
        return self.plan.join_seconds if waits else self.plan.round_seconds

    @property
    def remedy(self) -> str:
        """Advice after an aborted session, with the waiting times that may have been too short."""
        plan = self.plan
        joining = f"--join-seconds {plan.join_seconds}"
        if self.join_seconds != plan.join_seconds:
            joining = f"--round-seconds {plan.round_seconds}"
        return (
            "to try again, make a new plan, with new kits, policies and approvals; "
            f"if members were only late, with more time than {joining} and --step-seconds {plan.step_seconds}"
        )


def contribution_of(
    setup: RoundSetup, records: LocalRecords, randomness: RandomSource, member: int = 0, state: bytes = b""
) -> tuple[Integers, bytes]:
    """Compute a client's flat vector (int64) with its share of the noise, and its private state for the next round.

    The vector may leave, protected; the state never does.
    `member` is its roster index, `state` what the round before left it. The noise is drawn before the records are
    touched: how long that takes then says nothing of them.
    """
    plan, calibration = setup.plan, setup.sum.calibration
    noise = None
    if calibration is not None and plan.noise == NoiseFrom.CLIENT:
        noise = discrete_gaussian(calibration.segments, randomness)
    made = setup.round.contribute(local_of(setup, records, randomness, member, state))
    vector = setup.sum.layout.flatten(made.blocks)
    return (vector if noise is None else vector + noise), made.state


def local_of(
    setup: RoundSetup, records: LocalRecords, randomness: RandomSource, member: int = 0, state: bytes = b""
) -> Local:
    """Return the input from which a client computes its vector: records, and private `state` of the round before."""
    plan, own = setup.plan, records.counted
    of_plan = plan.training_sigma, plan.further_sigmas, plan.has_noise
    return Local(own, len(plan.classes), plan.grid, member, state, randomness, own.inputs, own.feature_map, *of_plan)


def opening_noise_of(setup: RoundSetup, randomness: RandomSource) -> Callable[[], Integers] | None:
    """Return a sampler of the noise that one party adds to the opened sum; None if clients add it, or there is none."""
    calibration = setup.sum.calibration
    if calibration is None or setup.plan.noise != NoiseFrom.AGGREGATOR:
        return None
    return partial(rounded_gaussian, calibration.segments, randomness)
