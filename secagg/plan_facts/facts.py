"""Derive a plan's facts (sums, noise, privacy guarantee and cost, rings, sizes, waiting times), and check its rules."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from methods import Method, method_of
from methods.method import SumSpec, effort_of
from methods.round import Noise, Round
from secagg.agreement.plan import NoiseFrom, Plan
from secagg.agreement.policy import Policy
from secagg.agreement.roster import SERVER_INDEX, Roster
from secagg.encoding import Kind, Layout, Normalisation, Ring
from secagg.encoding.ring import LARGEST_RING, Capacity
from secagg.errors import BadInput
from secagg.ledger.spending import Spent
from secagg.plan_facts.noise_plan import NoiseParties, charged, claim_of, layout_of, releases_of
from secagg.privacy import Adjacency, Claim, Mechanism, NoiseCalibration, PrivacyClaim, Releases, TrainingClaim, Unit
from secagg.protection import Protection, SessionContext, protection_named
from secagg.protection.draw import most_rounds
from secagg.protection.interface import RemovableNoise
from secagg.protection.messages import MAX_ATTACHED

FINE_LEVELS = 1 << 16
"""Number of grid levels (R_q) of a plan without noise, which would hide the rounding."""


@dataclass(frozen=True)
class SumFacts:
    """Facts of one kind of sum in a plan: its blocks (named arrays), noise or None, vector's layout, ring (modulus).

    `context` is that of such a sum in the plan's first session, among as many clients as may be in one. `upload_bytes`
    are the bytes that each client uploads for it, beside its messages.
    """

    spec: SumSpec
    calibration: NoiseCalibration | None
    layout: Layout
    capacity: Capacity
    context: SessionContext
    upload_bytes: int

    @classmethod
    def of(cls, plan: Plan, context: SessionContext, spec: SumSpec, calibration: NoiseCalibration | None) -> SumFacts:
        """Choose the ring (modulus) for a sum over `context`'s clients. Raises CapacityExceeded if no ring holds it.

        Noise that a single aggregator adds comes after the sum has left the ring; that of two is part of the sum.
        """
        layout, noise = layout_of(spec, calibration), 0
        if calibration is not None and (plan.noise == NoiseFrom.CLIENT or calibration.parties > 1):
            noise = calibration.largest
        records = 1 if spec.per is Unit.CLIENT else plan.max_records
        capacity = Capacity(len(context.clients), records, layout.bound, noise)
        is_exact_census = not plan.has_noise and all(block.kind is Kind.CENSUS for block in layout.blocks)
        placed = replace(
            context,
            ring=capacity.ring(),
            length=layout.length,
            largest=capacity.largest,
            proves_bits=is_exact_census and protection_named(plan.protection).hides_vectors,
            removable=_removable(calibration),
        )
        return cls(spec, calibration, layout, capacity, placed, placed.upload_bytes)

    def opened_noise(self, survivors: int) -> Noise | None:
        """Return the public parameters of the noise in an opened sum of `survivors` clients; None without noise."""
        if self.calibration is None:
            return None
        by_clients = self.calibration.mechanism is Mechanism.DISCRETE_SHARES
        return self.calibration.opened_noise(survivors if by_clients else self.calibration.parties)


def _removable(calibration: NoiseCalibration | None) -> tuple[RemovableNoise, ...]:
    """Return the parts of each client's noise beyond the first, with the level at which each is removed."""
    if calibration is None:
        return ()
    pairs = zip(calibration.lower, calibration.parts[1:], strict=True)
    return tuple(RemovableNoise(level.missing, segments) for level, segments in pairs)


@dataclass(frozen=True)
class PlanFacts:
    """All facts that follow from a plan and its roster alone, whatever happens in its rounds.

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
        """Derive all facts of a plan. Raises BadInput when it is for another roster, or cannot be carried out."""
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
        noises = [each for each, _ in claim.releases.parts] if isinstance(claim, PrivacyClaim) else [None] * len(sums)
        pairs = zip(sums, noises, strict=True)
        facts = cls(plan, roster, method, protection, claim, tuple(SumFacts.of(plan, context, *pair) for pair in pairs))
        each = [kind.context for kind in facts.kinds]
        sizes = [of.packed_bytes + of.blinding_bytes + len(of.identities) * of.proof_bytes for of in each]
        shown = max(sizes if method.traits.shows_last_sum else sizes[:-1], default=0)
        if shown > MAX_ATTACHED:
            problem = f"a sum of {shown} bytes is too long to be shown to the members"
            raise BadInput(problem, remedy="use fewer features, or a smaller model")
        return facts

    def load_libraries(self) -> None:
        """Import the libraries that the plan's method loads on first use, so that no step waits for them."""
        for name in getattr(self.method, "libraries", ()):
            importlib.import_module(name)

    @cached_property
    def sums(self) -> tuple[SumSpec, ...]:
        """The method's declaration (`SumSpec`) of each kind of sum in the plan, in order."""
        return tuple(kind.spec for kind in self.kinds)

    @cached_property
    def rounds(self) -> int:
        """The number of rounds of the plan."""
        return sum(kind.times for kind in self.sums)

    @property
    def record_sums(self) -> int:
        """The largest number of sums that can include one client, apart from those that only count clients by class."""
        return sum(self.draws(kind.times) for kind in self.sums if kind.is_about_records)

    def kind_of(self, number: int) -> int:
        """Return the kind of sum that round `number` makes, as an index in `kinds`.

        Number 0 (the cohort draw) counts as round 1, numbers past the end as the last round.
        """
        kinds = [kind for kind, each in enumerate(self.sums) for _ in range(each.times)]
        return kinds[min(max(number, 1), self.rounds) - 1]

    @property
    def first_round(self) -> Round:
        """The method's first round, as a `Round` object, before any sum is opened."""
        return self.method.begin(self.plan.dimension, len(self.plan.classes), self.plan.levels)

    @property
    def opens_alone(self) -> bool:
        """Whether a round's clients need only the broadcast that begins the round, and none of earlier rounds."""
        return self.first_round.is_self_contained

    @property
    def cohort_size(self) -> int:
        """The largest number of clients in a sum: the cohort's size, or all clients."""
        return self.plan.cohort or len(self.roster.clients)

    def draws(self, rounds: int) -> int:
        """Return the most rounds that can include one client, among the plan's first `rounds`."""
        return most_rounds(len(self.roster.clients), self.cohort_size, rounds)

    @property
    def fewest(self) -> int:
        """The smallest number of clients, summed over all groups, with which a sum can be opened."""
        return self.protection.fewest(self.kinds[0].context)

    @property
    def groups(self) -> int:
        """The largest number of groups into which a sum of the plan divides clients, each with a sum of its own."""
        return max(kind.groups for kind in self.sums)

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """The number of clients in each group."""
        return group_sizes(self.roster, self.groups)

    @property
    def openers(self) -> tuple[str, ...]:
        """Names of the parties that must work together to open (unmask or decrypt) a sum.

        Where they are several, none alone learns anything.
        """
        helpers = [self.roster.name(index) for index in self.kinds[0].context.helpers]
        return tuple(helpers) if len(helpers) > 1 else (self.roster.name(SERVER_INDEX), *helpers)

    @property
    def sum_claim(self) -> PrivacyClaim | None:
        """The (ε, δ) guarantee of the noise in the sums; None without noise, or if training noise is all there is."""
        return self.claim if isinstance(self.claim, PrivacyClaim) else None

    @property
    def bytes_saved_by_grid(self) -> int:
        """Bytes saved in the first upload because noise allows a coarser quantisation grid; 0 without noise."""
        if self.sum_claim is None:
            return 0
        plan, own = self.plan, self.kinds[0]
        fine = self.method.sums(plan.dimension, len(plan.classes), FINE_LEVELS)[0]
        try:
            return SumFacts.of(plan, own.context, fine, None).upload_bytes - own.upload_bytes
        except BadInput:
            return 0

    def check(self, policy: Policy) -> None:
        """Check the plan by a client's policy. Raises PlanRefused when it breaks the policy."""
        effort = effort_of(charged(self.plan, self.sums, len(self.roster.clients)), self.method.traits.programs)
        fewest = min(self.fewest, min(self.group_sizes) - self.plan.dropouts) if self.groups > 1 else self.fewest
        longest = max(kind.upload_bytes for kind in self.kinds)
        policy.check(self.plan, self.cohort_size, fewest, longest, self.record_sums, effort)


def _require_grid(plan: Plan, method: Method, sums: Sequence[SumSpec]) -> None:
    """Raise BadInput for rounds whose result members do not receive, or a normalisation that the method cannot use."""
    if len(sums) > 1 and plan.result != "members":
        raise BadInput("between rounds every member learns the head", remedy="let the result go to members")
    if not plan.grid.is_normalised and method.traits.needs_unit_length:
        problem = f"{plan.method} with these parameters takes records of one length"
        raise BadInput(problem, remedy="choose centred-unit or unit")
    if plan.grid.normalisation is Normalisation.CENTRED_UNIT and method.traits.keeps_mean:
        raise BadInput(f"{plan.method} needs each record's own mean", remedy="normalise by unit")


def witnesses_of(facts: PlanFacts) -> int:
    """Return how many clients must sign before a client rejoins: the least t with 2t > cohort size + colluders."""
    return (facts.cohort_size + facts.plan.colluders) // 2 + 1


def witnesses_in_words(facts: PlanFacts) -> str:
    """Return whose signatures an absent client needs to rejoin: those of t other clients, or of all confirming helpers.

    Helpers sign where they confirm outcomes (`Protection.confirmers`).
    """
    context = facts.kinds[0].context
    confirmers, enough = facts.protection.confirmers(context)
    if not confirmers <= context.helpers.keys():
        return f"{witnesses_of(facts)} other clients"
    role = facts.roster.role(min(confirmers)).replace("-", " ")
    return f"{enough} {role}s" if enough > 1 else f"the {role}"


def may_return(facts: PlanFacts) -> bool:
    """Return whether clients that were away may return in a later round.

    All parties decide it by this function.
    Each broadcast must suffice to take part in its round, and there must be enough others to sign.
    """
    return facts.rounds > 1 and facts.opens_alone and witnesses_of(facts) < facts.cohort_size


KEPT_OPENINGS = 2
_MOST_STEPS = 6
LEAST_PATIENCE = 60.0
"""Least seconds that a party waits for a server that has stopped to run again."""


def patience(plan: Plan) -> float:
    """Return the seconds for which a party keeps asking another one that is away or sends invalid answers."""
    return max(LEAST_PATIENCE, float(plan.step_seconds))


def longest_round(plan: Plan) -> float:
    """Return an upper bound of a round's seconds: joining and six steps, each extended to double, plus `patience`."""
    return 2.0 * (max(plan.join_seconds, plan.round_seconds) + _MOST_STEPS * plan.step_seconds) + patience(plan)


def plan_cost(facts: PlanFacts) -> tuple[Spent, ...]:
    """Return the whole plan's privacy cost for each unit and adjacency; () without noise, as the cost is infinite.

    A guarantee for clients protects each record too; one for records means little for clients. Training on sampled
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
    """Return the ε at the plan's δ, and the costs as in `plan_cost`, of the plan's first `sums` sums alone.

    None where they cannot be told apart from the rest: with cohorts, with training, without noise, or for all.
    """
    claim = facts.sum_claim
    if claim is None or claim.releases.training is not None or facts.plan.cohort or not 0 < sums < facts.rounds:
        return None
    return claim.after(sums, facts.rounds), _gaussian_costs(facts, claim, lambda whole: whole.until(sums))


def _gaussian_costs(facts: PlanFacts, claim: PrivacyClaim, until: Callable[[Releases], Releases]) -> tuple[Spent, ...]:
    """Return the cost, for each unit and adjacency, of the part of the plan's releases that `until` selects."""
    first = claim.releases.first
    noisers = NoiseParties(first.mechanism, first.parties, first.fewest, first.lower)
    own = charged(facts.plan, facts.sums, len(facts.roster.clients))
    return tuple(
        Spent(unit, adjacency, until(releases_of(facts.plan, own, noisers, unit, adjacency)).cost())
        for unit in sorted({Unit.RECORD, claim.unit})
        for adjacency in Adjacency
    )


def require_room(plan: Plan, clients: int) -> None:
    """Raise BadInput if the records that a plan states (`at_least`) exceed clients times `max_records`."""
    most = clients * plan.max_records
    if plan.at_least > most:
        raise BadInput(
            f"the plan states at least {plan.at_least} records, but takes at most {plan.max_records} of each of "
            f"{clients} clients, {most} in all",
            remedy=f"state at most {most}, or raise max_records",
        )


def require_hidden_parts(plan: Plan, method: Method) -> None:
    """Raise BadInput if a plan hides vectors, yet opens exact sums of parts of a class, without a class gate.

    The parts of a class are its domains and slots. Behind a class gate each part has two honest clients, whoever
    vanishes: the entries of an exact census are proven.
    """
    hidden = plan.has_noise or not protection_named(plan.protection).hides_vectors
    if method.traits.needs_gate and not hidden and method.traits.class_threshold < group_least(plan):
        raise BadInput(
            f"{plan.method} tells parts of classes apart: without a class gate of two honest clients the exact sum of "
            "one can be a single client's own, or a single record",
            remedy="give a class gate of 2, and each domain and slot so many clients and more; or one slot, no domains "
            "and no concepts; or a finite epsilon",
        )


def require_groups(plan: Plan, sums: Sequence[SumSpec], roster: Roster) -> None:
    """Raise BadInput if a client group's sum may have fewer than two honest members, in a plan that hides vectors.

    No protection opens a sum of fewer than n − D clients, so a group lacks D of its members at most.
    """
    groups, clients = max(kind.groups for kind in sums), len(roster.clients)
    if groups == 1 or not protection_named(plan.protection).hides_vectors:
        return
    least = group_least(plan)
    if plan.cohort:
        problem = "members would be drawn for each round, and the method sums the same groups of them in all"
        raise BadInput(problem, remedy="let all members take part in every round")
    sizes = group_sizes(roster, groups)
    if min(sizes) < least:
        raise BadInput(
            f"the sum of a group of {min(sizes)} members would be opened, fewer than {least}: {plan.colluders} that "
            f"may collude, {plan.dropouts} that may vanish, and two more",
            remedy=f"{clients} members allow {clients // least} of the {groups} groups: have so few, or more members; "
            "members' own parts are published under protection none alone",
        )


def group_least(plan: Plan) -> int:
    """Return the least group size that leaves two honest members in a sum, if all colluders and dropouts are in it."""
    return plan.colluders + plan.dropouts + 2


def group_sizes(roster: Roster, groups: int) -> tuple[int, ...]:
    """Return the number of clients in each of `groups` groups."""
    return tuple(sum(index % groups == group for index in roster.clients) for group in range(groups))


def context_of(plan: Plan, roster: Roster, clients: Iterable[int]) -> SessionContext:
    """Collect the keys, names and thresholds of a sum of these clients, without ring and length (`SessionContext`).

    Raises BadInput if a helper is missing.
    """
    protection = protection_named(plan.protection)
    helpers = roster.with_role(protection.helper_role)
    return protection.context(
        SessionContext(
            round_digest=plan.digest,
            session_id=plan.session,
            roster=plan.roster,
            identities=identities_of(roster, clients),
            names={index: roster.name(index) for index in (SERVER_INDEX, *roster.clients, *helpers)},
            ring=Ring(LARGEST_RING),
            length=0,
            colluders=plan.colluders,
            dropouts=plan.dropouts,
            min_clients_in_sum=plan.min_clients_in_sum,
            server=roster.identity(SERVER_INDEX),
            helpers={index: roster.identity(index) for index in helpers},
            security=plan.security,
        )
    )


def identities_of(roster: Roster, clients: Iterable[int]) -> Mapping[int, bytes]:
    """Return the identity keys of these clients, by roster index."""
    return {index: roster.identity(index) for index in clients}


def require_cohorts(plan: Plan, clients: int, method: Method, sums: Sequence[SumSpec]) -> None:
    """Raise BadInput if a plan's cohorts (clients drawn per round) are too large or small, or its method forbids them.

    Whoever is not drawn takes the newest state on the word of t members of the cohort before, 2t > k + c: so there must
    be as many when D have vanished, and a state must tell all of its round. Where blocks are the same in every round,
    exact sums over changing cohorts are equations, which tell of single members.
    """
    size = plan.cohort
    if not size:
        return
    needed, sure = (size + plan.colluders) // 2 + 1, size - max(plan.dropouts, 1)
    repeats = any(block.kind is not Kind.UPDATE for kind in sums for block in kind.blocks)  # counts and weights, too
    begun = method.begin(plan.dimension, len(plan.classes), plan.levels)
    keeps = len(sums) > 1 or bool(method.traits.class_threshold) or any(kind.keeps_state for kind in sums)
    if size >= clients:
        problem = f"a cohort of {size} cannot be drawn from {clients} members"
        raise BadInput(problem, remedy="leave the cohort out: all members are in every round")
    if sum(kind.times for kind in sums) < 2:
        raise BadInput(f"{plan.method} takes one sum here", remedy="cohorts are drawn for rounds")
    if repeats and not plan.has_noise:
        problem = "exact sums of the same records over changing cohorts are equations, which give members' parts away"
        raise BadInput(problem, remedy="give a finite epsilon, which covers them together, or leave the cohort out")
    if keeps or not begun.is_self_contained:
        problem = f"a round of {plan.method} takes what was left by rounds that who is not drawn does not see"
        raise BadInput(problem, remedy="leave the cohort out, or train by fedavg")
    if plan.result != "members":
        problem = "members that are not drawn for the last round are in all states but the last"
        raise BadInput(problem, remedy="let the result go to members")
    if needed > sure:
        problem = (
            f"{needed} of a cohort of {size} must sign what others return by, of whom only {sure} are sure to be there"
        )
        raise BadInput(problem, remedy="draw larger cohorts, or allow fewer dropouts or colluders")
