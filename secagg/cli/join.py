"""`secagg join`: unpack a start kit (certificates, plan, limits) into a member's folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.agreement.roster import SERVER_INDEX
from secagg.cli.console import Speaker, two_columns
from secagg.transport.kit import Joined, OpenedKit, read_kit
from secagg.transport.kit import join as join_by_kit

_FOLDERS = "--state {home}/state --tls {home}/tls"
_COMMANDS = {
    "server": f"secagg server --plan {{plan}} --listen {{server}} {_FOLDERS}",
    "client": f"secagg client --plan {{plan}} --server {{server}}{{aggregators}} --data DATA "
    f"--policy {{home}}/policy.toml {_FOLDERS} --dry-run",
    "aggregator": f"secagg aggregator --plan {{plan}} --server {{server}} --listen {{own}} {_FOLDERS}",
    "key-holder": f"secagg key-holder --plan {{plan}} --server {{server}} {_FOLDERS}",
}
"""The command that a party of each role runs next, as a template."""


def join(
    speaker: Speaker,
    kit: Annotated[Path, typer.Argument(help="The file that the authority has sent (secagg pki kit).")],
    home: Annotated[Path, typer.Option("--home", help="This member's folder, with its keys in tls/ (pki request).")],
) -> None:
    """Join a consortium by a start kit, or go on after its roster has changed. Compare the digests by telephone."""
    opened = read_kit(kit)
    joined = join_by_kit(opened, home)
    for change in joined.changes:
        speaker.say(f"since then: {change}")
    roster = opened.roster
    content: dict[str, Any] = {
        "member": opened.kit.member,
        "consortium": roster.consortium,
        "members": len(roster.members),
        "roster_sha256": roster.digest.hex(),
        "plan_sha256": opened.plan.digest.hex() if opened.plan else None,
        "plan": str(joined.plan) if joined.plan else None,
        "limits": str(joined.limits) if joined.limits else None,
        "addresses": dict(opened.kit.addresses),
        "changes": list(joined.changes),
    }
    rows = [(name.replace("_", " "), str(value)) for name, value in content.items() if isinstance(value, str | int)]
    speaker.result(content, two_columns("Joined", rows), *_next(opened, joined, home))


def _next(opened: OpenedKit, joined: Joined, home: Path) -> list[str]:
    if joined.plan is None:
        return []
    roster, addresses = opened.roster, opened.kit.addresses
    role = roster.role(roster.index(opened.kit.member))
    aggregators = [member.name for member in roster.members if member.role == "aggregator" and member.name in addresses]
    here, plan = shlex.quote(str(home)), shlex.quote(str(joined.plan))
    words = {
        "home": here,
        "plan": plan,
        "server": addresses.get(roster.name(SERVER_INDEX), "HOST:PORT"),
        "own": addresses.get(opened.kit.member, "HOST:PORT"),
        "aggregators": "".join(f" --aggregator {name}={addresses[name]}" for name in aggregators),
    }
    steps = [f"secagg plan show --plan {plan} --roster {here}/tls/roster.json"]
    if role == "client":
        limits = f" --limits {here}/{joined.limits.name}" if joined.limits else ""
        steps.append(f"secagg plan policy --plan {plan}{limits} --data-name NAME --out {here}/policy.toml")
    steps.append(_COMMANDS[role].format_map(words))
    return ["Next", *(f"  {step}" for step in steps)]
