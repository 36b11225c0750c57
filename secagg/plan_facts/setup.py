"""What every party derives from the same plan and roster before a session begins."""

from __future__ import annotations

import importlib
from collections.abc import Callable
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
    in_ring,
    require_groups,
    require_hidden_parts,
    require_room,
    require_shown,
)
from secagg.plan_facts.drawing import require_cohorts
from secagg.plan_facts.noise_plan import NoiseParties, charged, claim_of, layout_of, releases_of
from secagg.privacy import Adjacency, Calibration, Claim, PrivacyClaim, Releases, TrainingClaim, Unit
from secagg.protection import Protection, SessionContext, protection_named
from secagg.protection.draw import DRAW, Draw, check_draw, cohorts, most_rounds
from secagg.protection.messages import Return, RoundOpening

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
    a client uploads, beside its messages, for each kind of sum in order, `sum_bytes` those of the opened sum in ring
    width. `shown` is None but to a client that returned in this round: it was shown that in place of the rounds before.

    In a plan with cohorts the first session, number 0, is the draw; `seed` is empty until then, and `draw` the proof of
    it, None where a simulation has chosen the seed. In a round `context` is that of its cohort. The last round opens an
    end, of no steps, to clients that were not in it (`is_end`).
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
    sum_bytes: tuple[int, ...]
    claim: Claim | None
    calibration: Calibration | None
    shown: Return | None = None
    seed: bytes = b""
    draw: Draw | None = None

    @classmethod
    def of(cls, plan: Plan, roster: Roster) -> SessionSetup:
        """Derive the first session. Raises BadInput when the plan is for another roster, or asks for what cannot be."""
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
        if len(sums) > 1 and plan.result != "members":
            raise BadInput("between rounds every member learns the head", remedy="let the result go to members")
        if not plan.grid.is_normalised and method.traits.needs_unit_length:
            raise BadInput(
                f"{plan.method} with these parameters takes records of one length",
                remedy="choose centred-unit or unit",
            )
        if plan.grid.normalisation is Normalisation.CENTRED_UNIT and method.traits.keeps_mean:
            raise BadInput(f"{plan.method} needs each record's own mean", remedy="normalise by unit")
        protection = protection_named(plan.protection)
        require_cohorts(plan, len(roster.clients), method, sums)
        context = context_of(plan, roster, roster.clients[: plan.cohort or None])
        fewest, claim = protection.fewest(context), None
        require_hidden_parts(plan, method)
        require_groups(plan, sums, roster)
        if plan.has_noise:
            claim = claim_of(plan, charged(plan, sums, len(roster.clients)), roster, fewest)
        calibrations = calibrations_of(claim, sums)
        layouts = [layout_of(kind, each) for kind, each in zip(sums, calibrations, strict=True)]
        fits = [in_ring(context, plan, *each) for each in zip(sums, layouts, calibrations, strict=True)]
        uploads = tuple(placed.upload_bytes for _, placed in fits)  # CapacityExceeded where there is no room
        sum_bytes = tuple(placed.packed_bytes for _, placed in fits)
        require_shown(sum_bytes if method.traits.shows_last_sum else sum_bytes[:-1])
        capacity, context = fits[0][0], replace(fits[0][1], identities=identities_of(roster, roster.clients))
        first = (layouts[0], capacity, protection, context, uploads, sum_bytes, claim, calibrations[0])
        begun = method.begin(plan.dimension, len(plan.classes), plan.levels)
        return cls(plan, roster, method, begun, None, *first)

    def load_libraries(self) -> None:
        """Import what the plan's method loads on first use: a step's time is for its work alone."""
        for name in getattr(self.method, "libraries", ()):
            importlib.import_module(name)

    def drawn(self, draw: Draw) -> SessionSetup:
        """The session of the first round, once the cohorts are drawn. Raises ProtocolViolation as `check_draw` does."""
        if not self.is_draw:
            raise ProtocolViolation(SERVER_INDEX, "tells a draw where there is none to be made")
        return self.seeded(check_draw(self.context, draw), draw)

    def seeded(self, seed: bytes, draw: Draw | None = None) -> SessionSetup:
        """The same for a seed, whoever has chosen it; that of a plan without cohorts is as it was."""
        if not self.plan.cohort:
            return self
        seeded = replace(self, seed=seed, draw=draw)
        return replace(seeded, context=seeded.context_of_round(1, digest("cohorts", self.plan.digest, seed)))

    def following(self, opening: RoundOpening, broadcast: bytes = b"") -> SessionSetup:
        """The session of the next round, bound to this one's sum and to the broadcast that opens the round.

        Who was told something else signs for another session, and no sum with the others comes about. What it sums is
        known with the `broadcast`, if what this one sums is, or the broadcast tells all.
        Raises MalformedMessage or ProtocolViolation for a broadcast that cannot open it, or is not what opens it.
        """
        if (opening.number, opening.previous) != (self.number + 1, self.context.round_digest):
            raise ProtocolViolation(SERVER_INDEX, f"opens round {opening.number} of another history")
        return self.later(opening, self._round(opening, broadcast))

    def later(self, opening: RoundOpening, round_: Round | None = None) -> SessionSetup:
        """The session of any later round: without its `round` all follows from the plan and the opening alone.

        Raises ProtocolViolation for a round that the plan does not have.
        """
        if self.is_draw:
            raise ProtocolViolation(SERVER_INDEX, f"opens round {opening.number} before the cohorts are drawn")
        if opening.number > self.rounds + bool(self.seed):
            raise ProtocolViolation(SERVER_INDEX, "announces a round that the plan does not have")
        sums, kind = self.sums, self.kind_of(opening.number)
        calibration = calibrations_of(self.claim, sums)[kind]
        layout = layout_of(sums[kind], calibration)
        context = self.context_of_round(opening.number, opening.round_digest)
        capacity, context = in_ring(context, self.plan, sums[kind], layout, calibration)
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

    def context_of_round(self, number: int, round_digest: bytes) -> SessionContext:
        """The facts of a round, which its digest binds to all before it."""
        session_id = digest("session of a round", self.plan.session, round_digest)
        identities = identities_of(self.roster, self.cohort(number))
        return replace(self.context, round_digest=round_digest, session_id=session_id, identities=identities)

    def _round(self, opening: RoundOpening, broadcast: bytes) -> Round | None:
        """The round that an opening begins; None where that does not follow from what is at hand."""
        if not broadcast:
            return None
        if not opening.broadcast.names(broadcast):
            raise ProtocolViolation(SERVER_INDEX, f"what opens round {opening.number} is not what it is said to be")
        if opening.number > self.rounds:
            return None
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
    def protocol(self) -> Protection:
        """What the parties of this session do: the draw, or what the plan's protection has them do."""
        return DRAW if self.is_draw else self.protection

    @property
    def cohort_size(self) -> int:
        """How many clients may be in a sum."""
        return self.plan.cohort or len(self.roster.clients)

    def cohort(self, number: int) -> tuple[int, ...]:
        """The clients of a round: those drawn, or all, as in the draw and at the end."""
        clients, size = self.roster.clients, self.plan.cohort
        if not size or not 1 <= number <= self.rounds:
            return clients
        return cohorts(self.seed, len(clients), size, self.rounds)[number - 1]

    def draws(self, rounds: int) -> int:
        """Return in how many of the plan's first `rounds` rounds one client can be, at the most."""
        return most_rounds(len(self.roster.clients), self.cohort_size, rounds)

    @property
    def a_sum(self) -> SessionContext:
        """The facts of this session's sum; before the draw of any cohort's, which all have the same figures."""
        if not self.is_draw:
            return self.context
        return replace(self.context, identities=identities_of(self.roster, self.roster.clients[: self.plan.cohort]))

    @property
    def is_last(self) -> bool:
        """Whether no round follows this one."""
        return self.number == self.rounds

    @property
    def shows_sum(self) -> bool:
        """Whether members are shown the opened sum: where it opens a round, and where the last artifact takes it."""
        return not self.is_last or self.method.traits.shows_last_sum

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
        """How many of the plan's sums are about one client's records: all but censuses, as far as it is in them."""
        return sum(self.draws(kind.times) for kind in self.sums if kind.is_about_records)

    @property
    def spec(self) -> SumSpec:
        """The kind of sum of this session."""
        return self.sums[self.kind_of(self.number)]

    def kind_of(self, number: int) -> int:
        """Return of which kind, from 0, the plan's sum of this number, from 1, is; a draw's is the first one's."""
        kinds = [kind for kind, each in enumerate(self.sums) for _ in range(each.times)]
        return kinds[min(max(number, 1), self.rounds) - 1]

    @property
    def join_seconds(self) -> int:
        """How long parties may take to come: at first in their own time; in later rounds too where they may leave.

        Where they stay, they take so long to compute before they join.
        """
        waits = self.is_draw or (self.number == 1 and not self.seed) or self.protection.speaks_once
        return self.plan.join_seconds if waits else self.plan.round_seconds

    @property
    def longest_round(self) -> float:
        """Seconds after which any round is over, whoever was late: most protections have fewer than so many steps.

        Each of them may be extended once, to twice its time.
        """
        plan = self.plan
        return 2.0 * (max(plan.join_seconds, plan.round_seconds) + _MOST_STEPS * plan.step_seconds) + self.patience

    @property
    def patience(self) -> float:
        """For how many seconds a party goes on asking another one that is away or makes no sense."""
        return max(LEAST_PATIENCE, float(self.plan.step_seconds))

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
        return in_ring(self.a_sum, self.plan, kind, layout_of(kind, calibration), calibration)[1].upload_bytes

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

        Client-level privacy implies record-level privacy; the converse gives no useful bound. Training on sampled
        records has a cost for one kind of neighbours alone: then one row covers it and the sums.
        """
        if self.claim is None:
            return ()
        if isinstance(self.claim, TrainingClaim):
            return (Spent(self.claim.unit, self.claim.adjacency, self.claim.cost),)
        releases = self.claim.releases
        if releases.training is not None:
            return (Spent(self.claim.unit, self.claim.adjacency, releases.whole()),)
        return self._gaussian_costs(self.claim, lambda whole: whole)

    def spent_until(self, sums: int) -> tuple[float, tuple[Spent, ...]] | None:
        """ε at the plan's δ, and costs as in `spent`, of the plan's first so many sums.

        None where they cannot be told apart from the rest: with cohorts, with training, without noise, or for all.
        """
        claim = self.sum_claim
        if claim is None or claim.releases.training is not None or self.plan.cohort or not 0 < sums < self.rounds:
            return None
        return claim.after(sums, self.rounds), self._gaussian_costs(claim, lambda whole: whole.until(sums))

    def _gaussian_costs(self, claim: PrivacyClaim, until: Callable[[Releases], Releases]) -> tuple[Spent, ...]:
        """What `until` leaves of the plan's releases costs, for every unit and adjacency."""
        units = {Unit.RECORD, claim.unit}
        first = claim.releases.first
        noisers = NoiseParties(first.mechanism, first.parties, first.fewest)
        own = charged(self.plan, self.sums, len(self.roster.clients))
        return tuple(
            Spent(unit, adjacency, until(releases_of(self.plan, own, noisers, unit, adjacency)).cost())
            for unit in sorted(units)
            for adjacency in Adjacency
        )

    def check(self, policy: Policy) -> None:
        """Raise PlanRefused when the plan breaks the policy."""
        effort = effort_of(charged(self.plan, self.sums, len(self.roster.clients)), self.method.traits.programs)
        fewest = min(self.fewest, min(self.group_sizes) - self.plan.dropouts) if self.groups > 1 else self.fewest
        policy.check(self.plan, self.cohort_size, fewest, max(self.uploads), self.record_sums, effort)

    @property
    def groups(self) -> int:
        """Into how many groups of clients, each with a sum of its own, a kind of sum is divided at most."""
        return max(kind.groups for kind in self.sums)

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """How many clients each group has."""
        return group_sizes(self.roster, self.groups)

    @property
    def fewest(self) -> int:
        """The smallest number of clients in a sum that can be opened; of those, a group has a part."""
        return self.protection.fewest(self.a_sum)
