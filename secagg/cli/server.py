"""`secagg server`: run the server of a federation over the network."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import PartySpeaker, absent_rows, rows_of, two_columns
from secagg.cli.control import listening
from secagg.cli.options import ModelOption, PlanOption, PluginOption, StateOption, TlsOption
from secagg.cli.plan_approval import content_of
from secagg.errors import BadInput
from secagg.federation import Server, Stage
from secagg.scoring.card import card_of, classes_left_out, write_card
from secagg.session.outcome import AGGREGATE_FILE, HEAD_FILE, RESULT_FILE, TORCH_FILE
from secagg.system.files import keep_to_owner, write_synced
from secagg.transcript import FILE_NAME


def server(
    speaker: PartySpeaker,
    plan: PlanOption,
    state: StateOption,
    tls: TlsOption,
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on; port 0 takes a free one.")],
    _: ModelOption = None,
    plugin: PluginOption = None,
    approvals: Annotated[
        Path | None, typer.Option(help="Folder of members' approvals (plan sign): say who has countersigned.")
    ] = None,
) -> None:
    """Run one session: collect protected vectors, learn their sum, build the head. Start again after a crash."""
    keep_to_owner()
    server = Server(plan, state=state, tls=tls, listen=listen, approvals=approvals, said=speaker.say)

    async def serve() -> Stage:
        async with server, listening(state, lambda: server.federation.current, speaker.say):
            return await server.last_stage()

    last = asyncio.run(serve())
    from secagg.heads import load_as
    from secagg.heads.export import save_state_dict
    from secagg.networks import parse_artifact

    save_state_dict(load_as(last.folder / HEAD_FILE, parse_artifact)[0], last.folder / TORCH_FILE)
    setup, folder, outcome = last.setup, last.folder, last.session.outcome
    if outcome is None:
        raise BadInput("the last session has no outcome", remedy="start the server again")
    write_card(folder, card_of(setup, outcome.head_sha256.hex(), outcome.members))
    missing = [setup.roster.name(each) for each in setup.context.clients if each not in outcome.members]
    content: dict[str, Any] = {
        "members": [setup.roster.name(member) for member in outcome.members],
        "missing": missing,
        "declined": [name for name in last.session.declined if name in missing],
        "survivors": len(outcome.members),
        "clients": len(setup.roster.clients),
        "rounds": setup.rounds,
        "promise": setup.facts.claim.sentence() if setup.facts.claim else None,
        "aggregate_sha256": outcome.aggregate_sha256.hex(),
        "classes_left_out": classes_left_out(setup),
        "head_sha256": outcome.head_sha256.hex(),
        "ring": setup.context.ring.bits,
        "vector_length": setup.sum.layout.length,
        "seconds": dict(server.federation.steps_seconds),
        "head": str(folder / HEAD_FILE),
        "head_torch": str(folder / TORCH_FILE) if (folder / TORCH_FILE).exists() else None,
        "aggregate": str(folder / AGGREGATE_FILE),
        "transcript": str(folder / FILE_NAME),
        "transcripts": [str(stage.folder / FILE_NAME) for stage in server.federation.stages],
    }
    if server.approvals is not None:
        content["approvals"] = content_of(server.approvals)
    write_synced(folder / RESULT_FILE, json.dumps(content, indent=2).encode())
    speaker.result(content, two_columns("The sum is opened", [*rows_of(content), *absent_rows(content)]))
