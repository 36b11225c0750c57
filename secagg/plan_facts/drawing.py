"""What a plan with cohorts must be, and how the draw of them ends."""

from __future__ import annotations

from collections.abc import Sequence

from methods import Method
from methods.method import SumSpec
from secagg.agreement.plan import Plan
from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Kind
from secagg.errors import BadInput, ProtocolViolation
from secagg.protection.messages import Outcome

NOTHING = bytes(32)


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
            keeps or not begun.stands_alone,
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


def outcome_of_draw(members: tuple[int, ...], seed: bytes) -> Outcome:
    """How a draw ends: with its seed in the place of a sum, and nothing else."""
    return Outcome(members, seed, NOTHING)


def check_outcome_of_draw(outcome: Outcome) -> None:
    """Raise ProtocolViolation for an end of the draw that shows anything but a seed."""
    if outcome != outcome_of_draw(outcome.members, outcome.aggregate_sha256):
        raise ProtocolViolation(SERVER_INDEX, "ends the draw with more than its seed")
