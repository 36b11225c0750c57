"""`secagg plan policy` and `secagg plan limits`: what a member agrees to, and what its consortium lets it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secagg.agreement.plan import read_plan
from secagg.agreement.policy import limits_text, read_limits
from secagg.cli.console import QuietOption, Speaker, refuse_existing, refuse_unwritable
from secagg.cli.options import PlanOption
from secagg.plan_facts.policy_writing import policy_accepting, policy_within
from secagg.system.plugins import is_planned


def write_policy(
    plan: PlanOption,
    data_name: Annotated[str, typer.Option(help="What your ledger calls this data set.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the policy.")],
    limits: Annotated[
        Path | None, typer.Option("--limits", help="The consortium's limits, or your own policy of an earlier plan.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Write a policy that trusts this plan's roster and code, for you to read and tighten.

    With --limits it concedes what these do, and nothing because the plan asks for it: see plan check.
    """
    refuse_existing(out)
    refuse_unwritable(out)
    agreed, speaker = read_plan(plan), Speaker(quiet=quiet)
    if limits is None:
        policy = policy_accepting(agreed, data_name)
        speaker.say(
            "note: roster, code and cost are what this plan asks for, all else is a default, which may refuse it (plan "
            "check says); --limits takes those of your consortium"
        )
    else:
        policy = policy_within(read_limits(limits), agreed, data_name)
    out.write_text(policy.to_toml(), encoding="utf-8")
    if is_planned(agreed.method) and agreed.method in policy.methods:
        speaker.say(f"WARNING: the policy lists {agreed.method}, code that would run with your rights: read it first")
    speaker.say(f"wrote {out}: read it, it decides what this member ever agrees to")


def write_limits(
    out: Annotated[Path, typer.Option("--out", help="Where to write them.")], quiet: QuietOption = False
) -> None:
    """Write what members accept at the most, for a consortium to edit and hand out: no plan's wishes are in it."""
    refuse_existing(out)
    refuse_unwritable(out)
    out.write_text(limits_text(), encoding="utf-8")
    Speaker(quiet=quiet).say(f"wrote {out}: edit it, and hand it out (pki kit --limits); plan policy --limits takes it")
