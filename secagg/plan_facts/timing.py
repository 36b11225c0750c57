"""Seconds that parties wait for each other, from the plan alone."""

from __future__ import annotations

from secagg.agreement.plan import Plan

_MOST_STEPS = 6
LEAST_PATIENCE = 60.0
"""Seconds within which a server that stopped is expected to run again."""


def patience(plan: Plan) -> float:
    """Seconds for which a party goes on asking another one that is away or sends invalid answers."""
    return max(LEAST_PATIENCE, float(plan.step_seconds))


def longest_round(plan: Plan) -> float:
    """Upper bound of a round's seconds, with six steps, which most protections do not have.

    Each of them may be extended once, to twice its time.
    """
    return 2.0 * (max(plan.join_seconds, plan.round_seconds) + _MOST_STEPS * plan.step_seconds) + patience(plan)
