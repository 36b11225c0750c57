"""`secagg server`: run the server of a federation over the network."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import PartySpeaker, Speaker, absent_rows, rows_of, two_columns
from secagg.cli.control import listening
from secagg.cli.home import at_home
from secagg.cli.monitor import HookOption, MetricsOption, Monitor, Position, name_in_log, position_of, run_until_stopped
from secagg.cli.options import ModelOption, PlanOption, PluginOption, StateOption, TlsOption
from secagg.cli.plan_approval import content_of
from secagg.errors import BadInput
from secagg.federation import Server, Stage, credentials_for, server_setup
from secagg.plan_facts.countersigning import gather_approvals
from secagg.scoring.card import card_of, classes_left_out, write_card
from secagg.session import RoundSetup
from secagg.session.attachments import folder_name
from secagg.session.outcome import AGGREGATE_FILE, HEAD_FILE, RESULT_FILE, TORCH_FILE
from secagg.session.status import status_of
from secagg.system.files import keep_to_owner, write_synced
from secagg.transcript import FILE_NAME


@at_home("plan", "state", "tls", "listen")
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
    metrics: MetricsOption = None,
    hook: HookOption = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check files, keys, certificates, approvals, port; start nothing: exit 0 or 2."),
    ] = False,
) -> None:
    """Run one session: collect protected vectors, learn their sum, build the head. Start again after a crash.

    SIGTERM stops it at once with all that was done kept (exit code 75); the same command goes on.
    """
    keep_to_owner()
    name_in_log(speaker, plan, tls)
    if check:
        _check(speaker, plan, state, tls, listen, approvals)
        return
    server = Server(plan, state=state, tls=tls, listen=listen, approvals=approvals, said=speaker.say)
    monitor = Monitor(speaker, server.credentials, server.federation.stages[0].setup.plan, state, metrics, hook)

    async def serve() -> Stage:
        controlled = listening(state, lambda: server.federation.current, speaker.say)
        async with server, monitor.watch(partial(_position, server)), controlled:
            return await server.last_stage()

    _finish(speaker, server, run_until_stopped(serve()))


def _finish(speaker: Speaker, server: Server, last: Stage) -> None:
    """Write the head, its card and the result beside the last session's transcript; say what it is."""
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


async def _position(server: Server) -> Position:
    return position_of(await server.federation.stages[-1].session.status())


def _check(speaker: Speaker, plan: Path, state: Path, tls: Path, listen: str, approvals: Path | None) -> None:
    """Check all that the server needs before its session, and change nothing. Raises BadInput for the first fault."""
    credentials = credentials_for("server", tls, speaker.say)
    setup = server_setup(plan, credentials)
    setup.facts.load_libraries()
    _require_open(setup, state)
    _require_alone(state / folder_name(setup.context.round_digest) / FILE_NAME)
    content: dict[str, Any] = {
        "member": credentials.name,
        "plan_sha256": setup.plan.digest.hex(),
        "roster_sha256": setup.roster.digest.hex(),
        "listen": listen,
        "certificate_days": {end.file.name: end.days for end in credentials.ends()},
    }
    if approvals is not None:
        gathered = gather_approvals(setup.plan, setup.roster, approvals)
        for line in gathered.lines():
            speaker.say(line)
        content["approvals"] = content_of(gathered)
    _require_free(listen)
    _require_writable(state)
    days = ", ".join(f"{file} {left}" for file, left in content["certificate_days"].items())
    rows = [*rows_of(content), ("days left", days)]
    speaker.result(content, two_columns("Ready to start", rows))


def _require_open(setup: RoundSetup, state: Path) -> None:
    """Raise BadInput where the plan's session has ended for good: it was aborted, or its last round is over."""
    for each in (status_of(path.parent) for path in sorted(state.glob(f"*/{FILE_NAME}"))):
        if each.setup.plan.digest != setup.plan.digest or not each.is_over:
            continue
        if each.failure is not None or each.setup.is_last:
            ended = f"aborted: {each.failure}" if each.failure is not None else "over: its result is there"
            raise BadInput(f"the plan's session is {ended}", remedy="make a new plan to run another")


def _require_alone(transcript: Path) -> None:
    """Raise BadInput where a server already runs this plan over this state, and so holds its transcript's lock."""
    if not transcript.exists():
        return
    with transcript.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "leave it running, or stop it (SIGTERM) before you start another"
            raise BadInput(f"a server already runs over {transcript.parent.parent}", remedy=remedy) from None


def _require_free(listen: str) -> None:
    """Raise BadInput unless this machine can listen on HOST:PORT now."""
    host, _, port = listen.rpartition(":")
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as found:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                found.bind(address)
    except (OSError, ValueError, OverflowError) as error:
        problem, remedy = f"cannot listen on {listen}", "give a free HOST:PORT of this machine"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            problem += ": a process already listens there, such as a running server"
            remedy = f"stop it, or {remedy}"
        raise BadInput(problem, remedy=remedy) from None


def _require_writable(state: Path) -> None:
    """Raise BadInput unless the state folder, or the nearest folder above it that is there, can be written to."""
    there = next(folder for folder in (state, *state.absolute().parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise BadInput(f"cannot write to {there}", remedy="give --state a folder of yours")
