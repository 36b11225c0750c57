"""Rules that a plan must keep (records, groups, hidden parts, cohorts), and the facts of one of its sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from methods import Method
from methods.method import SumSpec
from secagg.agreement.plan import Plan
from secagg.agreement.roster import SERVER_INDEX, Roster
from secagg.encoding import LARGEST_RING, Kind, Ring
from secagg.errors import BadInput
from secagg.privacy import Calibration, Claim, PrivacyClaim
from secagg.protection import SessionContext, protection_named
from secagg.protection.messages import MAX_ATTACHED


def require_room(plan: Plan, clients: int) -> None:
    """Raise BadInput for a plan that states more records than it takes."""
    most = clients * plan.max_records
    if plan.at_least > most:
        raise BadInput(
            f"the plan states at least {plan.at_least} records, but takes at most {plan.max_records} of each of "
            f"{clients} clients, {most} in all",
            remedy=f"state at most {most}, or raise max_records",
        )


def calibrations_of(claim: Claim | None, sums: Sequence[SumSpec]) -> Sequence[Calibration | None]:
    """The noise that is added to every kind of sum, or to what goes into it; None where there is none."""
    if isinstance(claim, PrivacyClaim):
        return [each for each, _ in claim.releases.parts]
    return [None] * len(sums)


def require_hidden_parts(plan: Plan, method: Method) -> None:
    """Raise BadInput for exact sums of parts of classes that hide nobody, where vectors are to be hidden.

    Behind a class gate each part has two honest clients, whoever vanishes, if the census is true: nothing proves its
    entries, so that it rests on every client and on the protection's `sum_trust`.
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
    """Raise BadInput for groups of members that hide nobody: each has two honest ones in every sum, or none need hide.

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
    """Fewest members of a group, so that two honest ones are in its sum whichever members collude or vanish."""
    return plan.colluders + plan.dropouts + 2


def group_sizes(roster: Roster, groups: int) -> tuple[int, ...]:
    """Number of clients in each of `groups` groups."""
    return tuple(sum(index % groups == group for index in roster.clients) for group in range(groups))


def require_shown(sizes: Sequence[int]) -> None:
    """Raise BadInput for a sum longer than an outcome may attach."""
    if max(sizes, default=0) > MAX_ATTACHED:
        problem = f"a sum of {max(sizes)} bytes is too long to be shown to the members"
        raise BadInput(problem, remedy="use fewer features, or a smaller model")


def context_of(plan: Plan, roster: Roster, clients: Iterable[int]) -> SessionContext:
    """The facts of a sum of these clients; ring and length are found later.

    Raises BadInput when the roster lacks the parties that the protection needs.
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
    """The identity keys of some clients, by index."""
    return {index: roster.identity(index) for index in clients}


def require_cohorts(plan: Plan, clients: int, method: Method, sums: Sequence[SumSpec]) -> None:
    """Raise BadInput for a plan with cohorts that its members cannot make, or that its method cannot have.

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
    refusals = (
        (
            size >= clients,
            f"a cohort of {size} cannot be drawn from {clients} members",
            "leave the cohort out: all members are in every round",
        ),
        (sum(kind.times for kind in sums) < 2, f"{plan.method} takes one sum here", "cohorts are drawn for rounds"),
        (
            repeats and not plan.has_noise,
            "exact sums of the same records over changing cohorts are equations, which give members' parts away",
            "give a finite epsilon, which covers them together, or leave the cohort out",
        ),
        (
            keeps or not begun.is_self_contained,
            f"a round of {plan.method} takes what was left by rounds that who is not drawn does not see",
            "leave the cohort out, or train by fedavg",
        ),
        (
            plan.result != "members",
            "members that are not drawn for the last round are in all states but the last",
            "let the result go to members",
        ),
        (
            needed > sure,
            f"{needed} of a cohort of {size} must sign what others return by, of whom only {sure} are sure to be there",
            "draw larger cohorts, or allow fewer dropouts or colluders",
        ),
    )
    for is_broken, problem, remedy in refusals:
        if is_broken:
            raise BadInput(problem, remedy=remedy)
