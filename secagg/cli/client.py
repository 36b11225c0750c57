"""`secagg client`: one member of a real federation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import JsonOption, QuietOption, Speaker, two_columns
from secagg.cli.options import (
    AggregatorsOption,
    BackboneFileOption,
    FormatOption,
    ModelFileOption,
    PlanOption,
    PluginOption,
    StayOption,
)
from secagg.cli.party import StateOption, TlsOption, WaitOption, credentials_for, rows_of
from secagg.cli.schema import told_of
from secagg.data.profile import Profile
from secagg.data.sources import kinds_of_files
from secagg.errors import BadInput
from secagg.federation import FederationClient, open_ledger, session_folder
from secagg.files import keep_to_owner
from secagg.parties import LocalRecords, SessionSetup, look_at_own, read_records
from secagg.parties.consent import admit_listed
from secagg.parties.explanation import explain
from secagg.parties.outcome import HEAD_FILE, write_personal
from secagg.parties.private_state import recall_state
from secagg.parties.rounds import following_setup
from secagg.parties.setup import LEAST_PATIENCE
from secagg.plan import read_plan
from secagg.policy import Policy, read_policy
from secagg.protection import LocalParty
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.roster import SERVER_INDEX
from secagg.transcript import FILE_NAME, read_transcript
from secagg.transport import Credentials, Link, greet


def client(
    plan: PlanOption,
    server: Annotated[str, typer.Option("--server", help="HOST:PORT of the server.")],
    data: Annotated[str, typer.Option(help=f"This member's records: {kinds_of_files()}, ….")],
    policy: Annotated[Path, typer.Option("--policy", help="This member's policy; it decides first.")],
    state: StateOption,
    tls: TlsOption,
    backbone: BackboneFileOption = None,
    model: ModelFileOption = None,
    plugin: PluginOption = None,
    formats: FormatOption = None,
    aggregators: AggregatorsOption = None,
    stay: StayOption = False,
    wait: WaitOption = LEAST_PATIENCE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would leave, and stop.")] = False,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Take part in one session. Start again after a crash: only the same bytes are ever sent again.

    Where the protection lets a client speak once, it uploads and leaves; run the same command again, later, for the
    outcome.
    """
    keep_to_owner()
    speaker = Speaker(quiet=quiet, json_to=json_to)
    credentials = credentials_for("client", tls)
    agreed, chosen = read_plan(plan), read_policy(policy)
    admit_listed(model, agreed, chosen)
    setup = SessionSetup.of(agreed, credentials.roster)
    addresses = _addresses(setup, aggregators or [])
    setup.check(chosen)
    session_folder(state, setup)
    ledger = open_ledger(state)
    with speaker.progress("reading the records") as progress:
        records = read_records(setup, data, backbone, progress)
    me = LocalParty(credentials.index, credentials.identity, OperatingSystem())
    link = Link(credentials, server, setup.patience)
    plan_to_check = None if ledger.has_uploaded(setup.context.plan) else setup.plan.digest
    meet = partial(_meet, link, partial(greet, credentials, server, wait), plan_to_check)
    federation = FederationClient(setup, me, chosen, ledger, state, records, meet, speaker.say, stay)
    ledger.check(federation.release, chosen.budget)
    if records.bad:
        speaker.say(f"{records.bad} of {len(records)} records count for nothing: malformed, or without a direction")
    if dry_run:
        own = look_at_own(setup, data)
        _explain_dry_run(speaker, setup, chosen, records, credentials.name, own)
        return
    sessions = asyncio.run(_take_part(federation, link, credentials, addresses))
    due = following_setup(*sessions[-1]) if sessions else setup
    if due is not None:
        speaker.result(_uploaded_content(due, state), _what_next(due))
        return
    content = _client_content(sessions, state)
    speaker.result(content, two_columns("The session is over", rows_of(content)))


def _addresses(setup: SessionSetup, given: list[str]) -> dict[int, str]:
    """Each aggregator's address by its index. Raises BadInput unless there is one for every aggregator of the plan."""
    asked = setup.protection.receivers(setup.context) - {SERVER_INDEX}
    names = {setup.roster.name(index): index for index in asked}
    found = dict(text.partition("=")[::2] for text in given)
    if set(found) != set(names) or len(found) != len(given):
        wanted = " ".join(f"--aggregator {name}=HOST:PORT" for name in sorted(names))
        raise BadInput(
            f"the plan's aggregators are {', '.join(sorted(names)) or 'none'}", remedy=f"give {wanted or 'none'}"
        )
    for name, address in found.items():
        if not address.rpartition(":")[0] or not address.rpartition(":")[2].isdigit():
            raise BadInput(f"{address!r} is no address of {name}", remedy="write HOST:PORT")
    return {names[name]: address for name, address in found.items()}


async def _meet(link: Link, greets: Callable[[], object], plan: bytes | None) -> None:
    """See that the server is there, and runs the plan; None where a vector may have left, so that nothing ends this."""
    await asyncio.to_thread(greets)
    if plan is not None:
        await link.check_plan(plan)


async def _take_part(
    federation: FederationClient, server: Link, credentials: Credentials, aggregators: dict[int, str]
) -> list[tuple[SessionSetup, Outcome]]:
    patience = federation.setup.patience
    async with AsyncExitStack() as links:
        link = await links.enter_async_context(server)
        others = {
            index: await links.enter_async_context(Link(credentials, address, patience, index))
            for index, address in aggregators.items()
        }
        return await federation.run(link, others)


def _explain_dry_run(
    speaker: Speaker, setup: SessionSetup, policy: Policy, records: LocalRecords, name: str, own: Profile
) -> None:
    rows = [
        ("member", name),
        ("data set (ledger)", policy.data_name),
        ("records read", f"{len(records)}, of which {records.bad} count for nothing"),
        *explain(setup),
    ]
    content = {"dry_run": True, "plan_sha256": setup.plan.digest.hex(), "upload_bytes": setup.context.upload_bytes}
    text = two_columns("Dry run: nothing was sent", rows)
    speaker.result({**content, "own_records": own.to_json()}, text, told_of(own))


def _uploaded_content(setup: SessionSetup, state: Path) -> dict[str, Any]:
    """What has left, and where the receipts are."""
    transcript = session_folder(state, setup) / FILE_NAME
    sent = [record for record in read_transcript(transcript) if record.kind == "sent"]
    return {
        "uploaded": True,
        "round": setup.number,
        "rounds": setup.rounds,
        "promise": setup.claim.sentence() if setup.claim else None,
        "upload_bytes": setup.context.upload_bytes,
        "sent_bytes": setup.context.upload_bytes + sum(len(record.content) for record in sent),
        "transcript": str(transcript),
    }


def _what_next(setup: SessionSetup) -> str:
    """Which upload has left, and what a member does next."""
    said = f"Uploaded, round {setup.number} of {setup.rounds}; run the same command again, later, for the outcome"
    return said if setup.number == setup.rounds else f"{said} and the next round"


def _client_content(sessions: list[tuple[SessionSetup, Outcome]], state: Path) -> dict[str, Any]:
    """What came of all rounds; the head is the last one's. Writes the member's own models, if any."""
    folders = [session_folder(state, setup) for setup, _ in sessions]
    setup, outcome = sessions[-1]
    own = write_personal(setup, outcome, recall_state(folders[-1], setup.context.plan), folders[-1])
    vectors = sum(each.context.upload_bytes for each, _ in sessions if not (each.is_draw or each.is_end))
    records = [record for folder in folders for record in read_transcript(folder / FILE_NAME)]
    names = [setup.roster.name(member) for member in outcome.members]
    return {
        **({"signed_by": names} if setup.is_end else {"members": names, "survivors": len(names)}),
        "promise": setup.claim.sentence() if setup.claim else None,
        "upload_bytes": vectors,
        "sent_bytes": vectors + sum(len(record.content) for record in records if record.kind == "sent"),
        "aggregate_sha256": outcome.aggregate_sha256.hex(),
        "head_sha256": outcome.head_sha256.hex(),
        "head": str(folders[-1] / HEAD_FILE) if outcome.head else None,
        "personal": {name: str(path) for name, path in own.items()},
        "transcript": str(folders[-1] / FILE_NAME),
        "transcripts": [str(folder / FILE_NAME) for folder in folders],
    }
