"""`secagg server` and `secagg client`: one process each of a real federation."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import JsonOption, QuietOption, Speaker, two_columns
from secagg.cli.plan import PlanOption
from secagg.errors import BadInput, SessionAborted
from secagg.ledger import Ledger, Release
from secagg.parties import (
    ClientHooks,
    ClientSession,
    Contribution,
    ServerSession,
    SessionSetup,
    SumResult,
    contribution_of,
    write_result,
)
from secagg.parties.explanation import explain
from secagg.parties.memory import write_synced
from secagg.parties.result import AGGREGATE_FILE, HEAD_FILE, TORCH_FILE
from secagg.plan import read_plan
from secagg.policy import Policy, read_policy
from secagg.protection import LocalParty
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.roster import SERVER_INDEX
from secagg.transcript import FILE_NAME, Journal, read_transcript
from secagg.transport import Credentials, Link, greet, read_credentials, serve
from secagg.wire import encode

StateOption = Annotated[Path, typer.Option("--state", help="This party's folder: sessions, transcripts, ledger.")]
TlsOption = Annotated[Path, typer.Option("--tls", help="This party's keys and certificates (secagg pki).")]
_FAREWELL_SECONDS = 3.0


def server(
    plan: PlanOption,
    state: StateOption,
    tls: TlsOption,
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on; port 0 takes a free one.")],
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run one session: collect masked vectors, learn their sum, build the head. Start again after a crash."""
    speaker = Speaker(quiet=quiet, json_to=json_to)
    credentials = read_credentials(tls)
    if credentials.index != SERVER_INDEX:
        raise BadInput(f"{credentials.name} is a client in the roster, not the server")
    setup = SessionSetup.of(read_plan(plan), credentials.roster)
    folder = session_folder(state, setup)

    def finish(result: SumResult) -> Outcome:
        for doubt in result.doubts:
            speaker.say(f"warning: the sum is implausible: {doubt}")
        return write_result(setup, result, folder)

    with closing(Journal(folder / FILE_NAME)) as journal:
        session = ServerSession(setup, credentials.identity, folder, journal, finish)
        outcome = asyncio.run(_serve(session, credentials, listen, folder, speaker))
    _export_torch(folder)
    content = _server_content(setup, outcome, session, folder)
    write_synced(folder / "result.json", json.dumps(content, indent=2).encode())
    speaker.result(content, two_columns("The sum is opened", _rows(content)))


async def _serve(
    session: ServerSession, credentials: Credentials, listen: str, folder: Path, speaker: Speaker
) -> Outcome:
    endpoint, address = await serve(credentials, session, listen)
    write_synced(folder / "address", address.encode())
    speaker.say(f"listening on {address}")
    try:
        return await session.run()
    except SessionAborted:
        await asyncio.sleep(_FAREWELL_SECONDS)  # the members ask once more and are told why
        raise
    finally:
        await endpoint.stop(grace=1.0)


def _export_torch(folder: Path) -> None:
    from secagg.head import load_safetensors, save_state_dict

    head, _ = load_safetensors(folder / HEAD_FILE)
    save_state_dict(head, folder / TORCH_FILE)


def _server_content(setup: SessionSetup, outcome: Outcome, session: ServerSession, folder: Path) -> dict[str, Any]:
    return {
        "members": [setup.roster.name(member) for member in outcome.members],
        "survivors": len(outcome.members),
        "clients": len(setup.context.clients),
        "aggregate_sha256": outcome.aggregate_sha256.hex(),
        "head_sha256": outcome.head_sha256.hex(),
        "ring": setup.context.ring.bits,
        "vector_length": setup.layout.length,
        "seconds": dict(session.steps_seconds),
        "head": str(folder / HEAD_FILE),
        "head_torch": str(folder / TORCH_FILE),
        "aggregate": str(folder / AGGREGATE_FILE),
        "transcript": str(folder / FILE_NAME),
    }


def client(
    plan: PlanOption,
    server: Annotated[str, typer.Option("--server", help="HOST:PORT of the server.")],
    data: Annotated[str, typer.Option(help="This member's records: an .npz, a table, …")],
    policy: Annotated[Path, typer.Option("--policy", help="This member's policy; it decides first.")],
    state: StateOption,
    tls: TlsOption,
    backbone: Annotated[str | None, typer.Option(help="Where this member keeps the backbone's file.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the server to be there.")] = 10.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would leave, and stop.")] = False,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Take part in one session. Start again after a crash: only the same bytes are ever sent again."""
    speaker = Speaker(quiet=quiet, json_to=json_to)
    credentials = read_credentials(tls)
    if credentials.index == SERVER_INDEX:
        raise BadInput(f"{credentials.name} is the server in the roster, not a client")
    setup = SessionSetup.of(read_plan(plan), credentials.roster)
    chosen = read_policy(policy)
    folder = session_folder(state, setup)
    ledger = Ledger(state)
    sessions = ledger.other_sessions(chosen.data_name, setup.plan.session)
    setup.check(chosen, sessions)
    with speaker.progress("computing the statistics") as progress:
        contribution = contribution_of(setup, data, backbone, progress)
    if dry_run:
        _explain_dry_run(speaker, setup, chosen, contribution, credentials.name)
        return
    with closing(Journal(folder / FILE_NAME)) as journal:
        session = _client_session(setup, credentials, chosen, folder, journal, ledger, contribution, speaker)
        if session.outcome is None:
            greet(credentials, server, wait)
        outcome = asyncio.run(_take_part(session, credentials, server, setup.plan.step_seconds))
    if outcome.head:
        write_synced(folder / HEAD_FILE, outcome.head)
    content = _client_content(setup, outcome, folder)
    speaker.result(content, two_columns("The session is over", _rows(content)))


async def _take_part(session: ClientSession, credentials: Credentials, server: str, patience: float) -> Outcome:
    async with Link(credentials, server, patience) as link:
        return await session.run(link)


def _client_session(
    setup: SessionSetup,
    credentials: Credentials,
    policy: Policy,
    folder: Path,
    journal: Journal,
    ledger: Ledger,
    contribution: Contribution,
    speaker: Speaker,
) -> ClientSession:
    plan = setup.plan
    release = Release(policy.data_name, plan.session, plan.digest, plan.unit, plan.adjacency, plan.epsilon, plan.delta)
    journal.append("plan", encode(plan))
    journal.append("roster", encode(setup.roster))
    journal.append("policy", policy.to_toml().encode())

    def before_upload() -> None:
        ledger.record(release, may_repeat=policy.repeat_sessions)
        journal.append("ledger", release.digest)

    hooks = ClientHooks(lambda: contribution.vector, before_upload, speaker.say)
    me = LocalParty(credentials.index, credentials.identity, OperatingSystem())
    return ClientSession(setup, me, folder, journal, hooks)


def _explain_dry_run(
    speaker: Speaker, setup: SessionSetup, policy: Policy, contribution: Contribution, name: str
) -> None:
    rows = [
        ("member", name),
        ("data set (ledger)", policy.data_name),
        ("records read", str(contribution.records)),
        *explain(setup),
    ]
    content = {"dry_run": True, "plan_sha256": setup.plan.digest.hex(), "upload_bytes": setup.context.packed_bytes}
    speaker.result(content, two_columns("Dry run: nothing was sent", rows))


def _client_content(setup: SessionSetup, outcome: Outcome, folder: Path) -> dict[str, Any]:
    records = read_transcript(folder / FILE_NAME)
    return {
        "members": [setup.roster.name(member) for member in outcome.members],
        "survivors": len(outcome.members),
        "upload_bytes": setup.context.packed_bytes,
        "sent_bytes": setup.context.packed_bytes + sum(len(r.content) for r in records if r.kind == "sent"),
        "aggregate_sha256": outcome.aggregate_sha256.hex(),
        "head_sha256": outcome.head_sha256.hex(),
        "head": str(folder / HEAD_FILE) if outcome.head else None,
        "transcript": str(folder / FILE_NAME),
    }


def _rows(content: dict[str, Any]) -> list[tuple[str, str]]:
    """The plain values, for people; lists and tables are in the JSON."""
    return [(name, str(value)) for name, value in content.items() if not isinstance(value, dict | list)]


def session_folder(state: Path, setup: SessionSetup) -> Path:
    """Return the session's folder inside a party's state folder. Raises BadInput when it cannot be made."""
    folder = state / setup.plan.digest.hex()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {folder} ({error.strerror})", remedy="free the disk") from None
    return folder
