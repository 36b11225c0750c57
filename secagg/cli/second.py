"""`secagg aggregator` and `secagg key-holder`: the second parties of the shared and the encrypted protection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import JsonOption, QuietOption, Speaker, two_columns
from secagg.cli.federation import StateOption, TlsOption, WaitOption, credentials_for, rows_of
from secagg.cli.options import PlanOption
from secagg.errors import BadInput
from secagg.federation import FederationSecond, session_folder
from secagg.files import keep_to_owner
from secagg.parties import SessionSetup
from secagg.parties.memory import write_synced
from secagg.parties.setup import LEAST_PATIENCE
from secagg.plan import read_plan
from secagg.protection import LocalParty
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.transcript import FILE_NAME
from secagg.transport import Credentials, Link, greet, serve

ServerOption = Annotated[str, typer.Option("--server", help="HOST:PORT of the server.")]


def aggregator(
    plan: PlanOption,
    server: ServerOption,
    state: StateOption,
    tls: TlsOption,
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on for clients; port 0 takes a free one.")],
    wait: WaitOption = LEAST_PATIENCE,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Hold one share of every client's vector, and publish the sum of the shares. Start again after a crash."""
    _take_part("aggregator", plan, server, state, tls, listen, wait, Speaker(quiet=quiet, json_to=json_to))


def key_holder(
    plan: PlanOption,
    server: ServerOption,
    state: StateOption,
    tls: TlsOption,
    wait: WaitOption = LEAST_PATIENCE,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make the session's key, and open one sum with it. Start again after a crash."""
    _take_part("key-holder", plan, server, state, tls, None, wait, Speaker(quiet=quiet, json_to=json_to))


def _take_part(
    role: str, plan: Path, server: str, state: Path, tls: Path, listen: str | None, wait: float, speaker: Speaker
) -> None:
    keep_to_owner()
    credentials = credentials_for(role, tls)
    setup = SessionSetup.of(read_plan(plan), credentials.roster)
    if credentials.index not in setup.context.seconds:
        raise BadInput(f"the plan's protection is {setup.plan.protection}, which has no {role}")
    me = LocalParty(credentials.index, credentials.identity, OperatingSystem())
    folder = session_folder(state, setup)
    greet(credentials, server, wait)
    federation = FederationSecond(setup, me, state, speaker.say)
    sessions = asyncio.run(_run(federation, credentials, server, listen, folder, speaker))
    content = _content(sessions, state)
    speaker.result(content, two_columns("The session is over", rows_of(content)))


async def _run(
    federation: FederationSecond,
    credentials: Credentials,
    server: str,
    listen: str | None,
    folder: Path,
    speaker: Speaker,
) -> list[tuple[SessionSetup, Outcome]]:
    endpoint = None
    if listen is not None:
        endpoint, address = await serve(credentials, federation, listen)
        write_synced(folder / "address", address.encode())
        speaker.say(f"listening on {address}")
    try:
        async with Link(credentials, server, federation.setup.patience) as link:
            return await federation.run(link)
    finally:
        if endpoint is not None:
            await endpoint.stop(grace=1.0)


def _content(sessions: list[tuple[SessionSetup, Outcome]], state: Path) -> dict[str, Any]:
    setup, outcome = sessions[-1]
    return {
        "members": [setup.roster.name(member) for member in outcome.members],
        "survivors": len(outcome.members),
        "aggregate_sha256": outcome.aggregate_sha256.hex(),
        "transcript": str(session_folder(state, setup) / FILE_NAME),
        "transcripts": [str(session_folder(state, each) / FILE_NAME) for each, _ in sessions],
    }
