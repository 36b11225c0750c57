"""`secagg server`: the server of a real federation."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import JsonOption, QuietOption, Speaker, two_columns
from secagg.cli.options import ModelOption, PlanOption, PluginOption
from secagg.cli.party import StateOption, TlsOption, credentials_for, rows_of
from secagg.errors import BadInput, SessionAborted
from secagg.federation import FederationServer, Stage
from secagg.files import keep_to_owner
from secagg.parties import SessionSetup
from secagg.parties.outcome import AGGREGATE_FILE, HEAD_FILE, TORCH_FILE
from secagg.parties.sealed_state import write_synced
from secagg.plan import NoiseFrom, read_plan
from secagg.transcript import FILE_NAME
from secagg.transport import Credentials, serve

_FAREWELL_SECONDS = 3.0


def server(
    plan: PlanOption,
    state: StateOption,
    tls: TlsOption,
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on; port 0 takes a free one.")],
    _: ModelOption = None,
    plugin: PluginOption = None,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run one session: collect protected vectors, learn their sum, build the head. Start again after a crash."""
    keep_to_owner()
    speaker = Speaker(quiet=quiet, json_to=json_to)
    credentials = credentials_for("server", tls)
    setup = SessionSetup.of(read_plan(plan), credentials.roster)
    if setup.plan.noise == NoiseFrom.AGGREGATOR and len(setup.context.seconds) < 2:
        raise BadInput("with this protection the server would open the exact sum", remedy="let the clients add noise")
    federation = FederationServer(setup, credentials.identity, state, lambda text: speaker.say(f"warning: {text}"))
    with closing(federation):
        last = asyncio.run(_serve(federation, credentials, listen, speaker))
    _export_torch(last.folder)
    content = _server_content(last, federation)
    write_synced(last.folder / "result.json", json.dumps(content, indent=2).encode())
    speaker.result(content, two_columns("The sum is opened", rows_of(content)))


async def _serve(federation: FederationServer, credentials: Credentials, listen: str, speaker: Speaker) -> Stage:
    endpoint, address = await serve(credentials, federation, listen)
    write_synced(federation.stages[0].folder / "address", address.encode())
    speaker.say(f"listening on {address}")
    was_over = federation.is_over
    try:
        last = await federation.run()
        if was_over:  # an earlier life may have died as it said its last word: who has not heard that asks again
            await asyncio.sleep(_FAREWELL_SECONDS)
        return last
    except SessionAborted:
        await federation.farewell()
        await asyncio.sleep(_FAREWELL_SECONDS)  # who was told last has the answer, and who just comes is told too
        raise
    finally:
        await endpoint.stop(grace=1.0)


def _export_torch(folder: Path) -> None:
    from secagg.head import load_as, save_state_dict
    from secagg.models import parse_artifact

    artifact, _ = load_as(folder / HEAD_FILE, parse_artifact)
    save_state_dict(artifact, folder / TORCH_FILE)


def _server_content(last: Stage, federation: FederationServer) -> dict[str, Any]:
    setup, folder, outcome = last.setup, last.folder, last.session.outcome
    if outcome is None:
        raise BadInput("the last session has no outcome", remedy="start the server again")
    return {
        "members": [setup.roster.name(member) for member in outcome.members],
        "survivors": len(outcome.members),
        "clients": len(setup.roster.clients),
        "rounds": setup.rounds,
        "promise": setup.claim.sentence() if setup.claim else None,
        "aggregate_sha256": outcome.aggregate_sha256.hex(),
        "head_sha256": outcome.head_sha256.hex(),
        "ring": setup.context.ring.bits,
        "vector_length": setup.layout.length,
        "seconds": dict(federation.steps_seconds),
        "head": str(folder / HEAD_FILE),
        "head_torch": str(folder / TORCH_FILE) if (folder / TORCH_FILE).exists() else None,
        "aggregate": str(folder / AGGREGATE_FILE),
        "transcript": str(folder / FILE_NAME),
        "transcripts": [str(stage.folder / FILE_NAME) for stage in federation.stages],
    }
