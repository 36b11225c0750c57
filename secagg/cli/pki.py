"""`secagg pki`: the consortium's certificates, made by the members themselves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import JsonOption, QuietOption, Speaker, two_columns
from secagg.roster import SERVER_INDEX, read_roster
from secagg.transport.enrolment import create_authority, create_request, issue

app = typer.Typer(help="Consortium CA, certificate requests, member certificates, roster.", no_args_is_help=True)


@app.command("init")
def init(
    ca: Annotated[Path, typer.Option("--ca", help="New folder of the authority (keep it off the servers).")],
    consortium: Annotated[str, typer.Option(help="Name of the consortium.")],
    quiet: QuietOption = False,
) -> None:
    """Make the consortium's certificate authority."""
    create_authority(ca, consortium)
    Speaker(quiet=quiet).say(f"made the authority of {consortium} in {ca}; next, every member: secagg pki request")


@app.command("request")
def request(
    name: Annotated[str, typer.Argument(help="The member's name: a-z, 0-9 and hyphen.")],
    tls: Annotated[Path, typer.Option("--tls", help="New folder for this member's keys; they never leave it.")],
    role: Annotated[str, typer.Option(help="client, server, aggregator or key-holder.")] = "client",
    quiet: QuietOption = False,
) -> None:
    """Make a member's keys and the request to send to the authority."""
    path = create_request(tls, name, role)
    speaker = Speaker(quiet=quiet)
    speaker.say(f"made the keys of {name} in {tls}; send {path} to the authority (it holds no secret)")
    speaker.say(f"identity key {json.loads(path.read_text())['identity']}: compare it over the phone")


@app.command("issue")
def issue_certificates(
    requests: Annotated[list[Path], typer.Argument(help="The members' request.json files, the server's among them.")],
    ca: Annotated[Path, typer.Option("--ca", help="The authority's folder.")],
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Certify members and write the roster.

    Compare each identity key with its member over another channel first: the roster is what everyone trusts.
    """
    roster = issue(ca, requests)
    speaker = Speaker(quiet=quiet, json_to=json_to)
    _show(speaker, ca / "issued" / roster.name(SERVER_INDEX) / "roster.json")
    speaker.say(f"each member copies ca.pem, cert.pem and roster.json from {ca}/issued/NAME/ into its own folder")


@app.command("show")
def show(
    roster: Annotated[Path, typer.Argument(help="A roster.json file.")],
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show a roster: members, identity keys, pins of TLS keys, digests."""
    _show(Speaker(quiet=quiet, json_to=json_to), roster)


def _show(speaker: Speaker, file: Path) -> None:
    """What a roster's file holds, and two digests: the roster's own, and that of the file as `sha256sum` has it."""
    roster, file_sha256 = read_roster(file), hashlib.sha256(file.read_bytes()).hexdigest()
    content: dict[str, Any] = {
        "consortium": roster.consortium,
        "roster_sha256": roster.digest.hex(),
        "file_sha256": file_sha256,
        "members": [
            {"name": m.name, "role": m.role, "identity": m.identity.hex(), "tls_spki_sha256": m.tls_spki_sha256.hex()}
            for m in roster.members
        ],
    }
    rows = [
        (f"{member.name} ({member.role})", f"identity {member.identity.hex()}\nTLS key  {member.tls_spki_sha256.hex()}")
        for member in roster.members
    ]
    digests = [
        ("roster", f"{roster.digest.hex()} (its canonical bytes: so it stands in plans and policies)"),
        ("roster.json", f"{file_sha256} (the file: so sha256sum prints it)"),
    ]
    speaker.result(content, two_columns(f"Roster of {roster.consortium}", rows), two_columns("SHA-256", digests))
