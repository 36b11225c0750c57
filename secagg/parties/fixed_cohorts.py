"""Plans whose method opens the sums of fixed cohorts apart: how large these must be."""

from __future__ import annotations

from methods import Method
from secagg.errors import BadInput
from secagg.plan import Plan


def cohort_least(plan: Plan) -> int:
    """The fewest members of a fixed cohort: whoever vanishes or colludes, two honest ones are in its sum."""
    return plan.colluders + plan.dropouts + 2


def require_fixed_cohorts(plan: Plan, method: Method, clients: int, fewest: int) -> None:
    """Raise BadInput for a plan whose fixed cohorts are too small, or of which more could be missing than it counts on.

    `fewest` is the smallest number of `clients` whose sum can be opened.
    """
    if method.fixed_cohorts == 1:
        return
    if plan.cohort:
        problem = "members are drawn for each round, and the method has the same cohorts in all of them"
        raise BadInput(problem, remedy="let all members take part in every round")
    least, smallest = cohort_least(plan), clients // method.fixed_cohorts
    if smallest < least:
        raise BadInput(
            f"{clients} members in {method.fixed_cohorts} cohorts, whose sums are opened apart, are {smallest} in the "
            f"smallest: where {plan.dropouts} may vanish and {plan.colluders} collude it takes {least}",
            remedy=f"{clients} members allow {clients // least} cohorts: take so few settings, or more members",
        )
    if fewest < clients - plan.dropouts:
        raise BadInput(
            f"cohorts count on {plan.dropouts} dropouts, but a sum of {fewest} clients could be opened",
            remedy=f"set minimum_cohort to {clients - plan.dropouts}",
        )
