"""Run a helper's part of a plan: the code that `secagg aggregator` and `secagg key-holder` share."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from secagg.agreement.plan import read_plan
from secagg.cli.console import Speaker, rows_of, two_columns
from secagg.cli.control import listening
from secagg.cli.hook import Hook
from secagg.cli.metrics import MetricsAddress
from secagg.cli.monitor import Monitor, name_in_log, run_until_stopped
from secagg.errors import BadInput
from secagg.federation import FederationHelper, credentials_for, session_folder
from secagg.federation.endpoints import grace_of
from secagg.plan_facts.facts import patience
from secagg.protection import LocalParty
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.system.files import keep_to_owner, write_synced
from secagg.system.threads import compute_aside
from secagg.transcript import FILE_NAME
from secagg.transport import Link, greet, serve

ServerOption = Annotated[str, typer.Option("--server", help="HOST:PORT of the server.")]


def take_part(
    role: str,
    plan: Path,
    server: str,
    state: Path,
    tls: Path,
    listen: str | None,
    wait: float,
    speaker: Speaker,
    metrics: MetricsAddress | None,
    hook: Hook | None,
) -> None:
    """Run a helper through every session of the plan. `listen`: HOST:PORT for clients; None where none connects."""
    keep_to_owner()
    name_in_log(speaker, plan, tls)
    credentials = credentials_for(role, tls, speaker.say)
    setup = RoundSetup.of(read_plan(plan), credentials.roster)
    if credentials.index not in setup.context.helpers:
        problem = f"the plan's protection is {setup.plan.protection}, which has no {role}"
        raise BadInput(problem, remedy="leave this party out, or make a plan that needs it (plan new --protection)")
    me = LocalParty(credentials.index, credentials.identity, OperatingSystem())
    folder = session_folder(state, setup)
    monitor = Monitor(speaker, credentials, setup.plan, state, metrics, hook)
    meet = partial(compute_aside, partial(greet, credentials, server, wait))
    federation = FederationHelper(setup, me, state, speaker.say, meet)

    async def run() -> list[tuple[RoundSetup, Outcome]]:
        endpoint, done = None, list[tuple[RoundSetup, Outcome]]()
        if listen is not None:
            endpoint, address = await serve(credentials, federation, listen)
            write_synced(folder / "address", address.encode())
            speaker.say(f"listening on {address}")
        try:
            controlled = listening(state, lambda: federation.current, speaker.say)
            async with monitor, Link(credentials, server, patience(setup.plan)) as link, controlled:
                if not (folder / FILE_NAME).exists():
                    await federation.greet()
                    await link.check_plan(setup.plan.digest)
                done += await federation.run(link)
                return done
        finally:
            if endpoint is not None:
                await endpoint.stop(grace_of(len(credentials.roster.members), stopped=not done))

    sessions = run_until_stopped(run())
    last, outcome = sessions[-1]
    content = {
        "members": [last.roster.name(member) for member in outcome.members],
        "survivors": len(outcome.members),
        "aggregate_sha256": outcome.aggregate_sha256.hex(),
        "transcript": str(session_folder(state, last) / FILE_NAME),
        "transcripts": [str(session_folder(state, each) / FILE_NAME) for each, _ in sessions],
    }
    speaker.result(content, two_columns("The session is over", rows_of(content)))
