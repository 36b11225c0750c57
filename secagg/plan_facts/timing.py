"""How long parties wait for each other, from the plan alone."""

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


def patience(plan: Plan) -> float:
    """For how many seconds a party goes on asking another one that is away or makes no sense."""
    return max(LEAST_PATIENCE, float(plan.step_seconds))


def longest_round(plan: Plan) -> float:
    """Seconds after which any round is over, whoever was late: most protections have fewer than so many steps.

    Each of them may be extended once, to twice its time.
    """
    return 2.0 * (max(plan.join_seconds, plan.round_seconds) + _MOST_STEPS * plan.step_seconds) + patience(plan)
