"""`secagg client`: run one member of a federation over the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.budget import budget_content, budget_rows, budget_sentence
from secagg.cli.console import PartySpeaker, Speaker, absent_rows, rows_of, two_columns
from secagg.cli.home import at_home
from secagg.cli.hook import Hook
from secagg.cli.metrics import MetricsAddress
from secagg.cli.monitor import HookOption, MetricsOption, Monitor, name_in_log, run_until_stopped
from secagg.cli.options import (
    AggregatorsOption,
    BackboneFileOption,
    FormatOption,
    ModelFileOption,
    PlanOption,
    PluginOption,
    StateOption,
    StayOption,
    TlsOption,
    WaitOption,
)
from secagg.cli.schema import OWN
from secagg.data.sources import kinds_of_files
from secagg.errors import BadInput, PlanRefused, SecaggError, SessionAborted
from secagg.features.local_records import look_at_own
from secagg.federation import Client, decline_plan, session_folder
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.facts import LEAST_PATIENCE
from secagg.protection.messages import MAX_DECLINE_REASON, Outcome
from secagg.scoring.card import card_of, write_card
from secagg.session import RoundSetup
from secagg.session.outcome import HEAD_FILE, write_personal
from secagg.session.rounds import following_setup
from secagg.session.sealed_state import recall_state
from secagg.system.files import keep_to_owner
from secagg.transcript import FILE_NAME, read_transcript
from secagg.wire import Text


def _read_reason(text: str) -> str:
    """Return the option --decline-reason. Raises BadInput for a text that is too long or unprintable."""
    if problem := Text(0, MAX_DECLINE_REASON).problem(text):
        raise BadInput(f"--decline-reason: {problem}", remedy="write one short line, or leave it out")
    return text


@at_home("plan", "server", "policy", "state", "tls", "aggregators")
def client(
    speaker: PartySpeaker,
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
    metrics: MetricsOption = None,
    hook: HookOption = None,
    decline_reason: Annotated[
        str, typer.Option(callback=_read_reason, help="A reason that those who wait for it may read; none by default.")
    ] = "",
    decline: Annotated[
        bool,
        typer.Option(help="Where this member refuses the plan, or is interrupted before its upload, tell the others."),
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would leave, and stop.")] = False,
) -> None:
    """Take part in one session. Start again after a crash: only the same bytes are ever sent again.

    Where the protection lets a client speak once, it uploads and leaves; run the same command again, later, for the
    outcome.

    A client that refuses the plan, or is interrupted (Ctrl-C) before its upload, signs and sends that it declines the
    round, so that nobody waits for it: without the policy's reason, which may disclose something. Started again while
    others are still awaited, it takes part all the same. SIGTERM, as of a supervisor, sends nothing: the client stops
    at once with all that was done kept (exit code 75), and the same command goes on.
    """
    keep_to_owner()
    name_in_log(speaker, plan, tls)
    # The addresses by name, as NAME=HOST:PORT gives them; none where a name is given twice, which no plan accepts.
    found = dict(text.partition("=")[::2] for text in aggregators or [])
    addresses = found if len(found) == len(aggregators or []) else {}
    declines = partial(
        decline_plan, plan, server=server, tls=tls, state=state, aggregators=addresses, reason=decline_reason
    )
    with _declining(speaker, declines if decline and not dry_run else None):
        member = Client(
            plan,
            server=server,
            data=data,
            policy=policy,
            state=state,
            tls=tls,
            backbone=backbone,
            model=model,
            aggregators=addresses,
            stays=stay,
            wait=wait,
            decline=decline_reason if decline else None,
            said=speaker.say,
            reading=partial(speaker.progress, "reading the records"),
        )
    if member.records.bad:
        bad, total = member.records.bad, len(member.records)
        speaker.say(f"{bad} of {total} records count for nothing: malformed, or without a direction")
    if dry_run:
        _explain_dry_run(speaker, member, data)
    else:
        _take_part(speaker, member, metrics, hook)


@contextmanager
def _declining(speaker: Speaker, declines: Callable[[], Coroutine[Any, Any, tuple[str, ...]]] | None) -> Iterator[None]:
    """Decline the plan by `declines`, if any, where it is refused in this context, or interrupted; say who knows.

    A file that cannot be read, a missing library or a full disk is no refusal: the member mends it and starts again.
    Where no server is there, nobody waits for this member yet, and the refusal is all that is said.
    """
    try:
        yield
    except (PlanRefused, KeyboardInterrupt):
        if declines is not None:
            with suppress(SecaggError):
                heard = ", ".join(asyncio.run(declines())) or "nobody"
                speaker.say(f"declined: {heard} will not wait for this client")
        raise


def _take_part(speaker: Speaker, member: Client, metrics: MetricsAddress | None, hook: Hook | None) -> None:
    """Run the plan's sessions, and say how they ended, or that the client may come back later."""
    try:
        sessions = run_until_stopped(_sessions(member, speaker, metrics, hook), member.stop_declining)
    except SessionAborted:
        name, limit = member.policy.data_name, member.policy.budget
        speaker.say(budget_sentence(member.federation.ledger.account(None, name, limit), name))
        raise
    due = following_setup(*sessions[-1]) if sessions else member.setup
    budget, spent = _budget(member)
    if due is not None:
        title = f"Uploaded, round {due.number} of {due.rounds}; run the same command again, later, for the outcome"
        title += "" if due.number == due.rounds else " and the next round"
        speaker.result(_uploaded_content(due, member.state) | budget, two_columns(title, spent))
        return
    content = _client_content(sessions, member.state) | budget
    own = [(f"own model, {name}", path) for name, path in content["personal"].items()]
    speaker.result(content, two_columns("The session is over", rows_of(content) + absent_rows(content) + own + spent))


async def _sessions(
    member: Client, speaker: Speaker, metrics: MetricsAddress | None, hook: Hook | None
) -> list[tuple[RoundSetup, Outcome]]:
    async with Monitor(speaker, member.credentials, member.setup.plan, member.state, metrics, hook):
        return await member.sessions()


def _budget(member: Client) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    account, name = member.federation.account(), member.policy.data_name
    return {"budget": budget_content(account, name)}, budget_rows(account, name)


def _explain_dry_run(speaker: Speaker, member: Client, data: str) -> None:
    setup, records, (budget, spent) = member.setup, member.records, _budget(member)
    own = look_at_own(setup.plan, data)
    rows = [
        ("member", member.credentials.name),
        ("data set (ledger)", member.policy.data_name),
        ("records read", f"{len(records)}, of which {records.bad} count for nothing"),
        *explain(setup.facts),
        *spent,
    ]
    content = {"dry_run": True, "plan_sha256": setup.plan.digest.hex(), "upload_bytes": setup.context.upload_bytes}
    text = two_columns("Dry run: nothing was sent", rows)
    speaker.result(content | budget | {"own_records": own.to_json()}, text, two_columns(OWN, own.rows()))


def _uploaded_content(setup: RoundSetup, state: Path) -> dict[str, Any]:
    """Return JSON values for an upload whose outcome is not awaited: bytes sent, privacy promise, transcript's path."""
    transcript = session_folder(state, setup) / FILE_NAME
    sent = [record for record in read_transcript(transcript) if record.kind == "sent"]
    return {
        "uploaded": True,
        "round": setup.number,
        "rounds": setup.rounds,
        "promise": setup.facts.claim.sentence() if setup.facts.claim else None,
        "upload_bytes": setup.context.upload_bytes,
        "sent_bytes": setup.context.upload_bytes + sum(len(record.content) for record in sent),
        "transcript": str(transcript),
    }


def _client_content(sessions: list[tuple[RoundSetup, Outcome]], state: Path) -> dict[str, Any]:
    """Return JSON values on all rounds, with the last round's head. Writes the member's personal models, if any."""
    folders = [session_folder(state, setup) for setup, _ in sessions]
    setup, outcome = sessions[-1]
    own = write_personal(setup, outcome, recall_state(folders[-1], setup.context.round_digest), folders[-1])
    if outcome.head:
        write_card(folders[-1], card_of(setup, outcome.head_sha256.hex(), outcome.members))
    vectors = sum(each.context.upload_bytes for each, _ in sessions if not (each.is_draw or each.is_end))
    records = [record for folder in folders for record in read_transcript(folder / FILE_NAME)]
    names = [setup.roster.name(member) for member in outcome.members]
    missing = [setup.roster.name(each) for each in setup.context.clients if each not in outcome.members]
    return {
        **({"signed_by": names} if setup.is_end else {"members": names, "survivors": len(names), "missing": missing}),
        "promise": setup.facts.claim.sentence() if setup.facts.claim else None,
        "upload_bytes": vectors,
        "sent_bytes": vectors + sum(len(record.content) for record in records if record.kind == "sent"),
        "aggregate_sha256": outcome.aggregate_sha256.hex(),
        "head_sha256": outcome.head_sha256.hex(),
        "head": str(folders[-1] / HEAD_FILE) if outcome.head else None,
        "personal": {name: str(path) for name, path in own.items()},
        "transcript": str(folders[-1] / FILE_NAME),
        "transcripts": [str(folder / FILE_NAME) for folder in folders],
    }
