"""Write a member's policy for one plan: defaults loosened to accept it, or given limits with the plan's digests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from methods import method_of
from secagg.agreement.plan import NoiseFrom, Plan
from secagg.agreement.policy import Policy
from secagg.plan_facts.records import admit_program
from secagg.protection import USUAL, protection_named
from secagg.system.plugins import is_planned


def policy_accepting(plan: Plan, data_name: str) -> Policy:
    """Return the default policy, loosened where needed to accept this plan. Raises BadInput for an unknown protection.

    That is its roster, backbone, program, method and cost, a protection that keeps one party from seeing any vector,
    and noise from those who open the sum where they are several, of whom one honest one is enough. Everything else is
    for a person to concede.
    """
    protection = protection_named(plan.protection)
    by_openers = plan.noise == NoiseFrom.AGGREGATOR and protection.fewest_helpers > 1
    return Policy(
        data_name=data_name,
        roster=plan.roster.hex(),
        backbones=(plan.backbone_digest.hex(),),
        programs=_programs(plan),
        methods=(plan.method,),
        protections=(protection.name,) if protection.hides_vectors else (USUAL,),
        noise_from=(NoiseFrom.CLIENT.value, NoiseFrom.AGGREGATOR.value) if by_openers else (NoiseFrom.CLIENT.value,),
        max_epsilon=plan.epsilon,
        max_epsilon_total=plan.epsilon,
    )


def policy_within(limits: Mapping[str, Any], plan: Plan, data_name: str) -> Policy:
    """Return a policy of these limits, with the plan's roster, backbone and programs; it may refuse the plan.

    Code that the limits list stays as it is; other code of the plan is then refused.
    """
    facts = {"backbones": (plan.backbone_digest.hex(),), "programs": _programs(plan)}
    return Policy(**{**facts, **limits, "roster": plan.roster.hex(), "data_name": data_name})


def admit_listed(file: Path | None, plan: Plan, policy: Policy) -> None:
    """Permit a plan's plug-in method to run, and its model program in `file` to be parsed, if the policy lists them.

    Raises PlanRefused for code of others that the policy does not list: before any of it runs.
    """
    if is_planned(plan.method):
        policy.require_method(plan.method)
    policy.require_listed(method_of(plan).traits.programs)
    if file is not None:
        admit_program(file)


def _programs(plan: Plan) -> tuple[str, ...]:
    """Return the digests of the programs that a plan trains; () for a plug-in's method, which must run to tell."""
    if is_planned(plan.method):
        return ()
    return method_of(plan).traits.programs
