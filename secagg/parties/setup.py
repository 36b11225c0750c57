"""What every party derives from the same plan and roster before the session begins."""

from __future__ import annotations

from dataclasses import dataclass

from methods import Method, method_named
from secagg.encoding import Capacity, Layout
from secagg.errors import BadInput
from secagg.plan import Plan
from secagg.policy import Policy
from secagg.protection import Protection, SessionContext, protection_named
from secagg.roster import Roster


@dataclass(frozen=True)
class SessionSetup:
    """One session's derived facts; equal for all parties because plan and roster are."""

    plan: Plan
    roster: Roster
    method: Method
    layout: Layout
    capacity: Capacity
    protection: Protection
    context: SessionContext

    @classmethod
    def of(cls, plan: Plan, roster: Roster) -> SessionSetup:
        """Derive. Raises BadInput when the plan is for another roster, or asks for what cannot be."""
        if plan.roster != roster.digest:
            raise BadInput(
                f"the plan is for the roster {plan.roster.hex()[:16]}…, this member has {roster.digest.hex()[:16]}…",
                remedy="have the authority hand out the roster again",
            )
        method = method_named(plan.method, plan.method_parameters)
        layout = Layout(method.blocks(plan.dimension, len(plan.classes), plan.levels))
        capacity = Capacity(len(roster.clients), plan.max_records, layout.bound)
        context = SessionContext(
            plan=plan.digest,
            session=plan.session,
            roster=plan.roster,
            identities={index: roster.identity(index) for index in roster.clients},
            names={index: roster.name(index) for index in roster.clients},
            ring=capacity.ring(),
            length=layout.length,
            colluders=plan.colluders,
            dropouts=plan.dropouts,
            minimum_cohort=plan.minimum_cohort,
        )
        protection = protection_named(plan.protection)
        protection.fewest(context)
        return cls(plan, roster, method, layout, capacity, protection, context)

    def check(self, policy: Policy, sessions: int) -> None:
        """Raise PlanRefused when the plan breaks the policy; `sessions` counts earlier ones over the same data."""
        clients, size = len(self.context.clients), self.context.packed_bytes
        policy.check(self.plan, clients, self.fewest, size, sessions)

    @property
    def fewest(self) -> int:
        """The smallest number of clients whose sum can be opened."""
        return self.protection.fewest(self.context)
