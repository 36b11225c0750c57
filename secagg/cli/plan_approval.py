"""`secagg plan sign` and `secagg plan approvals`: countersign a plan, and list the members who have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.agreement.plan import read_plan
from secagg.agreement.policy import read_policy
from secagg.agreement.roster import read_roster
from secagg.cli.console import QuietOption, Speaker, make_folder, refuse_unwritable, two_columns
from secagg.cli.options import ModelFileOption, PlanOption, PluginOption, TlsOption
from secagg.plan_facts.countersigning import SUFFIX, Approvals, approve, gather_approvals
from secagg.plan_facts.policy_writing import admit_listed
from secagg.session import RoundSetup
from secagg.transport import read_credentials


def sign(
    plan: PlanOption,
    tls: TlsOption,
    out: Annotated[Path, typer.Option("--out", help="Folder for the approval, NAME.approval.")],
    policy: Annotated[Path | None, typer.Option("--policy", help="Sign only what this policy accepts.")] = None,
    model: ModelFileOption = None,
    plugin: PluginOption = None,
    quiet: QuietOption = False,
) -> None:
    """Countersign a plan, and so its page (plan show), for the coordinator to see; nothing else follows from it."""
    credentials, agreed, speaker = read_credentials(tls), read_plan(plan), Speaker(quiet=quiet)
    for end in filter(lambda each: each.is_near, credentials.ends()):
        speaker.say(end.warning())
    own = read_policy(policy) if policy is not None else None
    if own is not None:
        admit_listed(model, agreed, own)
    setup = RoundSetup.of(agreed, credentials.roster)
    if own is not None:
        setup.facts.check(own)
    path = out / f"{credentials.name}{SUFFIX}"
    make_folder(out)
    refuse_unwritable(path)
    path.write_text(approve(agreed, credentials.name, credentials.identity), encoding="utf-8")
    speaker.say(f"{credentials.name} approves the plan {agreed.digest.hex()}: send {path} to the coordinator")


def approvals(
    speaker: Speaker,
    folder: Annotated[Path, typer.Argument(help="Folder of the members' .approval files.")],
    plan: PlanOption,
    roster: Annotated[Path, typer.Option("--roster", help="The consortium's roster.json.")],
    plugin: PluginOption = None,
) -> None:
    """Show who has countersigned a plan."""
    agreed, members = read_plan(plan), read_roster(roster)
    RoundSetup.of(agreed, members)
    found = gather_approvals(agreed, members, folder)
    rows = [("approved by", ", ".join(found.given) or "-"), ("not by", ", ".join(found.missing) or "-")]
    rows += [(f"{name} does not count", why) for name, why in found.refused.items()]
    speaker.result({"plan_sha256": agreed.digest.hex(), **content_of(found)}, two_columns("Approvals", rows))


def content_of(found: Approvals) -> dict[str, Any]:
    """Return a plan's approvals, and the missing and refused ones, as JSON values."""
    return {"approved_by": list(found.given), "not_by": list(found.missing), "refused": dict(found.refused)}
