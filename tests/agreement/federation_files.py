"""A small plan with its roster, for the tests of plan, roster, policy and ledger."""

import math

from secagg.agreement.plan import Plan
from secagg.agreement.policy import Policy
from secagg.agreement.roster import Member, Roster
from secagg.crypto.signatures import SigningKey
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup


def member(name: str, role: str = "client") -> Member:
    """A member with a fresh identity."""
    return Member(name, role, SigningKey.generate(OperatingSystem()).public)


def small_roster(clients: int = 4) -> Roster:
    """A server and some clients."""
    return Roster.of("small", [member("server", "server"), *(member(f"client-{n}") for n in range(1, clients + 1))])


def small_plan(roster: Roster, **choices: object) -> Plan:
    """A plan over features of two numbers."""
    data = PublicData("features", (2,), ("no", "yes"), None, None)
    return make_plan(data, roster, PlanChoices(**{"radius": 1.0, **choices}), OperatingSystem())  # type: ignore[arg-type]


def policy_for(plan: Plan, **changes: object) -> Policy:
    """A policy that accepts the plan, but for the changes."""
    fields = {"data_name": "mine", "roster": plan.roster.hex(), "backbones": (plan.backbone_digest.hex(),)}
    unbounded = {"max_epsilon": math.inf, "max_epsilon_total": math.inf}
    return Policy(**{**fields, **unbounded, **changes})  # type: ignore[arg-type]


def fewest(plan: Plan, roster: Roster) -> int:
    """The smallest set whose sum the plan lets be opened."""
    return RoundSetup.of(plan, roster).facts.fewest
