"""`secagg pki`: make and renew the consortium's certificates, without an outside authority."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.agreement.roster import SERVER_INDEX, Roster, read_roster
from secagg.cli.console import QuietOption, Speaker, make_folder, two_columns
from secagg.errors import BadInput, PlanRefused, describe_error
from secagg.system.reading import read_limited
from secagg.transport.credentials import end_of
from secagg.transport.enrolment import (
    change_keys,
    create_authority,
    create_request,
    is_locked,
    issue,
    read_members,
    remove,
    renew_authority,
)

VARIABLE = "SECAGG_CA_PASSPHRASE"
_MOST = 4096
PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", help=f"First line: the authority's passphrase. Else {VARIABLE}, or a prompt."),
]


def passphrase_of(ca: Path, file: Path | None) -> bytes | None:
    """Return the passphrase of an authority's key; None where the key has none. Raises BadInput."""
    return ask_passphrase(file, twice=False) if is_locked(ca) else None


def ask_passphrase(file: Path | None, *, twice: bool) -> bytes:
    """Read a passphrase from a file, else the environment, else the terminal; `twice`: ask for a new one two times.

    Raises BadInput where there is nobody to ask, and for an empty one.
    """
    if file is not None:
        try:
            lines = read_limited(file, _MOST).decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            # No byte of the file is quoted.
            reason = describe_error(error) if isinstance(error, OSError) else "it is no UTF-8"
            problem = f"cannot read the passphrase in {file} ({reason})"
            raise BadInput(problem, remedy="give --passphrase-file a text file that you may read") from None
        given = lines[0] if lines else ""
    elif VARIABLE in os.environ:
        given = os.environ[VARIABLE]
    elif sys.stdin.isatty():
        asked = "Passphrase of the authority's key"
        given = str(typer.prompt(asked, hide_input=True, confirmation_prompt=twice, err=True))
    else:
        problem = "the authority's key needs a passphrase, and there is nobody to ask"
        raise BadInput(problem, remedy=f"give --passphrase-file, or set {VARIABLE}")
    if not given:
        raise BadInput("the passphrase is empty", remedy="write it on the first line of the file, or into the variable")
    return given.encode()


app = typer.Typer(
    help="Consortium CA, certificate requests and changes of keys, member certificates, roster.", no_args_is_help=True
)

CaOption = Annotated[Path, typer.Option("--ca", help="The authority's folder.")]


@app.command("init")
def init(
    ca: Annotated[Path, typer.Option("--ca", help="New folder of the authority (keep it off the servers).")],
    consortium: Annotated[str, typer.Option(help="Name of the consortium.")],
    protect: Annotated[
        bool, typer.Option("--protect", help="Put the authority's key under a passphrase (15 characters or more).")
    ] = False,
    passphrase_file: PassphraseOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make the consortium's certificate authority."""
    locks = protect or passphrase_file is not None
    create_authority(ca, consortium, ask_passphrase(passphrase_file, twice=True) if locks else None)
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
    _say_request(Speaker(quiet=quiet), f"made the keys of {name}", path)


@app.command("issue")
def issue_certificates(
    speaker: Speaker,
    requests: Annotated[list[Path], typer.Argument(help="The members' request.json files, the server's among them.")],
    ca: CaOption,
    passphrase_file: PassphraseOption = None,
) -> None:
    """Certify members and write the roster. Requests of pki renew and pki rotate are certified alike.

    Compare each identity key with its member over another channel first: the roster is what everyone trusts.
    """
    roster = issue(ca, requests, passphrase_of(ca, passphrase_file))
    _show(speaker, ca / "issued" / roster.name(SERVER_INDEX) / "roster.json")
    speaker.say(f"each member copies what is in {ca}/issued/NAME/ into its own folder, or gets a kit (secagg pki kit)")


@app.command("renew")
def renew(
    tls: Annotated[Path | None, typer.Option("--tls", help="This member's folder of keys.")] = None,
    ca: Annotated[Path | None, typer.Option("--ca", help="The authority's folder.")] = None,
    passphrase_file: PassphraseOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make a new TLS key, signed by this member's identity, and the request to send to the authority.

    The keys of now stay in force until the member joins by a kit that certifies the next. With --ca: a new certificate
    for the authority's own key, to which all members' go on belonging.
    """
    speaker = Speaker(quiet=quiet)
    if (tls is None) == (ca is None):
        raise BadInput("whose certificate is to be renewed?", remedy="give --tls DIR or --ca DIR")
    if tls is not None:
        _say_request(speaker, "the next keys are", change_keys(tls, rotate=False))
    if ca is not None:
        renew_authority(ca, passphrase_of(ca, passphrase_file))
        speaker.say(f"{ca / 'ca.pem'} ends on {end_of(ca / 'ca.pem').on}; give it to all members (secagg pki kit)")


@app.command("rotate")
def rotate(
    tls: Annotated[Path, typer.Option("--tls", help="This member's folder of keys.")], quiet: QuietOption = False
) -> None:
    """Make a new identity, signed by the one of now, and a new TLS key, and the request to send to the authority.

    Whoever has stolen the identity of now could do the same: then have the member removed, and enrol by another name.
    """
    _say_request(Speaker(quiet=quiet), "the next keys are", change_keys(tls, rotate=True))


def _say_request(speaker: Speaker, keys: str, path: Path) -> None:
    speaker.say(f"{keys} in {path.parent}; send {path} to the authority (it holds no secret)")
    speaker.say(f"identity key {json.loads(path.read_text())['identity']}: compare it over the phone")


@app.command("remove")
def remove_member(
    speaker: Speaker,
    name: Annotated[str, typer.Argument(help="The member to remove.")],
    ca: CaOption,
    reason: Annotated[str, typer.Option(help="Why, in words that all members read.")] = "",
    passphrase_file: PassphraseOption = None,
) -> None:
    """Take a member out of the register and the roster, for good: neither its name nor its keys are certified again.

    Plans of the new roster are closed to it from then on; those of older rosters go on unless the others stop them.
    """
    roster = remove(ca, name, reason, passphrase_of(ca, passphrase_file))
    _show(speaker, ca / "issued" / roster.name(SERVER_INDEX) / "roster.json")
    speaker.say(f"removed {name}; give all others the new roster (secagg pki kit), and make new plans")


@app.command("kit")
def kit(
    ca: CaOption,
    out: Annotated[Path, typer.Option("--out", help="Folder for the kits, NAME.kit for each member.")],
    plan: Annotated[Path | None, typer.Option("--plan", help="The plan that they are to run.")] = None,
    limits: Annotated[
        Path | None, typer.Option("--limits", help="The consortium's limits for policies (plan limits).")
    ] = None,
    address: Annotated[
        list[str] | None, typer.Option("--address", help="NAME=HOST:PORT of the server, of each aggregator.")
    ] = None,
    passphrase_file: PassphraseOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write one file for each member: certificates, register, plan, limits, addresses; no secret. Signed.

    Members join by it: secagg join. Only a kit of one's own fits one's own keys. Limits that refuse the plan make none.
    """
    from secagg.transport.kit import make_kits  # loads plans and all that they are made of

    pairs = [text.partition("=")[::2] for text in address or []]
    if len(dict(pairs)) != len(pairs):
        raise BadInput("a name has two addresses", remedy="give each name's --address once")
    kits = make_kits(ca, passphrase_of(ca, passphrase_file), plan, limits, dict(pairs))
    if plan is not None and limits is not None:
        _require_acceptable(plan, limits, read_members(ca).roster())
    make_folder(out)
    try:
        for name, text in kits.items():
            (out / f"{name}.kit").write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"cannot write the kits into {out} ({error.strerror})"
        raise BadInput(problem, remedy="give --out a folder of yours") from None
    Speaker(quiet=quiet).say(f"wrote {len(kits)} kits into {out}: send each member its own; next: secagg join")


def _require_acceptable(plan: Path, limits: Path, roster: Roster) -> None:
    """Raise BadInput, naming every violated line, if a client with a policy of these limits would refuse the plan.

    Code of others that the limits list is not run here: of its plan nothing more is known.
    """
    from secagg.agreement.plan import read_plan
    from secagg.agreement.policy import read_limits
    from secagg.plan_facts.policy_writing import policy_within
    from secagg.session import RoundSetup  # as above
    from secagg.system.plugins import is_planned

    agreed = read_plan(plan)
    policy = policy_within(read_limits(limits), agreed, "records")
    try:
        if is_planned(agreed.method):
            policy.require_method(agreed.method)
        else:
            RoundSetup.of(agreed, roster).facts.check(policy)
    except PlanRefused as error:
        problem = f"every client under {limits} would refuse the plan: {error.listed}"
        raise BadInput(problem, remedy="raise these limits, or make another plan; no kit was written") from None


@app.command("expiry")
def expiry(
    speaker: Speaker,
    tls: Annotated[Path | None, typer.Option("--tls", help="A member's folder of keys.")] = None,
    ca: Annotated[Path | None, typer.Option("--ca", help="The authority's folder: everybody's certificates.")] = None,
) -> None:
    """Say when certificates end, the first first; those that end within 30 days are warned of on stderr."""
    if (tls is None) == (ca is None):
        raise BadInput("say whose certificates", remedy="give one of --tls and --ca")
    folder = tls or ca or Path()
    certificates = [folder / "ca.pem", *([folder / "cert.pem"] if tls else sorted(folder.glob("issued/*/cert.pem")))]
    ends = sorted(map(end_of, certificates), key=lambda end: (end.days, str(end.file)))
    for end in filter(lambda each: each.is_near, ends):
        speaker.say(end.warning())
    rows = [(str(end.file), f"{end.on}, {max(end.days, 0)} days left") for end in ends]
    content = [{"file": str(end.file), "ends": end.on.isoformat(), "days_left": end.days} for end in ends]
    speaker.result({"certificates": content}, two_columns("Certificates", rows))


@app.command("show")
def show(speaker: Speaker, roster: Annotated[Path, typer.Argument(help="A roster.json file.")]) -> None:
    """Show a roster: members, identity keys, pins of TLS keys, digests."""
    _show(speaker, roster)


def _show(speaker: Speaker, file: Path) -> None:
    """Show a roster, with two digests: the roster's own, and that of the file as `sha256sum` has it."""
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
