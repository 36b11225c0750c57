"""`secagg join`: unpack a start kit (certificates, plan, limits, addresses) into a member's folder, its --home."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.agreement.policy import read_policy
from secagg.agreement.roster import SERVER_INDEX
from secagg.cli.console import Speaker, two_columns
from secagg.cli.home import POLICY_FILE
from secagg.cli.plan import write_policy
from secagg.errors import BadInput
from secagg.transport.kit import Joined, OpenedKit, read_kit
from secagg.transport.kit import join as join_by_kit


def join(
    speaker: Speaker,
    kit: Annotated[Path, typer.Argument(help="The file that the authority has sent (secagg pki kit).")],
    home: Annotated[Path, typer.Option("--home", help="This member's folder, with its keys in tls/ (pki request).")],
    data_name: Annotated[
        str | None,
        typer.Option(help="A client: write the policy too, by the kit's limits; what your ledger calls this data set."),
    ] = None,
) -> None:
    """Join a consortium by a start kit, or go on after its roster has changed. Compare the digests by telephone.

    The folder then holds plan, limits, policy, keys and addresses, and the commands take all of them from --home. A
    policy that is there already stays as it is.
    """
    opened = read_kit(kit)
    role = opened.roster.role(opened.roster.index(opened.kit.member))
    if data_name is not None and (role != "client" or opened.plan is None):
        raise BadInput("--data-name is for a client whose kit has a plan", remedy="leave it out")
    joined = join_by_kit(opened, home)
    for change in joined.changes:
        speaker.say(f"since then: {change}")
    roster, policy = opened.roster, home / POLICY_FILE
    if data_name is not None and joined.plan is not None and not policy.exists():
        write_policy(joined.plan, data_name, policy, joined.limits)
    content: dict[str, Any] = {
        "member": opened.kit.member,
        "consortium": roster.consortium,
        "members": len(roster.clients),
        "roster_sha256": roster.digest.hex(),
        "plan_sha256": opened.plan.digest.hex() if opened.plan else None,
        "plan": str(joined.plan) if joined.plan else None,
        "limits": str(joined.limits) if joined.limits else None,
        "policy": str(policy) if policy.exists() else None,
        "addresses": dict(opened.kit.addresses),
        "changes": list(joined.changes),
    }
    rows = [(name.replace("_", " "), str(value)) for name, value in content.items() if isinstance(value, str | int)]
    speaker.result(content, two_columns("Joined", rows), *_next(opened, joined, home, role))


def _next(opened: OpenedKit, joined: Joined, home: Path, role: str) -> list[str]:
    """Return the commands that the party runs next."""
    if opened.plan is None or joined.plan is None:
        return []
    here, plan = shlex.quote(str(home)), shlex.quote(str(joined.plan))
    steps = [f"secagg plan show --plan {plan} --roster {here}/tls/roster.json"]
    if role == "client":
        limits = f" --limits {here}/{joined.limits.name}" if joined.limits else ""
        steps += _policy_steps(opened.plan.roster, home / POLICY_FILE, here, f"--plan {plan}", limits)
    server = opened.roster.name(SERVER_INDEX)
    option, name = ("--listen", opened.kit.member) if role in ("server", "aggregator") else ("--server", server)
    address = "" if name in opened.kit.addresses else f" {option} HOST:PORT"
    steps.append(f"secagg {role} --home {here}{address}{' --data DATA --dry-run' * (role == 'client')}")
    return ["Next", *(f"  {step}" for step in steps)]


def _policy_steps(roster: bytes, policy: Path, here: str, plan: str, limits: str) -> list[str]:
    """Return the commands that write a policy for this roster: none if there is one, else new or carried over."""
    if not policy.exists():
        return [f"secagg plan policy {plan}{limits} --data-name NAME --out {here}/{POLICY_FILE}"]
    own = read_policy(policy)
    if own.roster == roster.hex():
        return []
    carried = f"--limits {here}/policy-before.toml --data-name {shlex.quote(own.data_name)}"
    move = f"mv {here}/{POLICY_FILE} {here}/policy-before.toml"
    return [move, f"secagg plan policy {plan} {carried} --out {here}/{POLICY_FILE}"]
