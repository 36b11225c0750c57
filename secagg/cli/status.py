"""`secagg status`: show the progress of a server's sessions."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from secagg.agreement.plan import read_plan
from secagg.cli.console import Speaker, two_columns
from secagg.cli.home import at_home
from secagg.cli.options import PluginOption, StateOption
from secagg.errors import BadInput
from secagg.session.outcome import RESULT_FILE
from secagg.session.purging import session_folders
from secagg.session.status import SessionStatus, status_of


@at_home("state", "plan")
def status(
    speaker: Speaker,
    state: StateOption,
    plan: Annotated[Path | None, typer.Option(help="Only the sessions of this plan.")] = None,
    plugin: PluginOption = None,
    watch: Annotated[
        float | None,
        typer.Option("--watch", min=0.1, metavar="SECONDS", help="Look again so often, until all sessions are over."),
    ] = None,
) -> None:
    """Say where each session of a server stands: who was heard, who is waited for, until when, or how it ended.

    All of it is read from the server's --state folder, whether the server runs or not; `secagg verify` checks it. With
    --watch a terminal is drawn anew at each look; elsewhere each change of a session is a line, or with --json - a JSON
    object.
    """
    only = read_plan(plan).digest if plan is not None else None
    if watch is not None:
        _watch(speaker, state, only, watch)
        return
    sessions = list(map(_tell, _statuses(state, only)))
    if not sessions:
        problem = f"there is no session of {plan} in {state}"
        raise BadInput(problem, remedy="give the plan and the --state folder of one server")
    speaker.result({"version": 1, "sessions": sessions}, *map(_table, sessions))


def _statuses(state: Path, only: bytes | None) -> list[SessionStatus]:
    """Return the sessions in a state folder, of one plan or of all, in the order of plans and rounds."""
    found = [status_of(folder) for folder in session_folders(state)]
    shown = [each for each in found if only in (None, each.setup.plan.digest)]
    shown.sort(key=lambda each: (each.setup.plan.digest, each.setup.number))
    return shown


def _table(session: dict[str, Any]) -> str:
    plain = {name: ", ".join(value) if isinstance(value, list) else value for name, value in session.items()}
    rows = [(name.replace("_", " "), str(value)) for name, value in plain.items() if value and name != "session"]
    return two_columns(session["session"], rows)


def _watch(speaker: Speaker, state: Path, only: bytes | None, pause: float) -> None:
    """Show the sessions at each look until all are over; there may be none yet."""
    seen: dict[str, dict[str, Any]] = {}
    console = Console()
    while True:
        try:
            found = _statuses(state, only)
        except BadInput:  # no session yet
            found = []
        sessions = list(map(_tell, found))
        changed = [each for each in sessions if seen.get(each["session"]) != _lasting(each)]
        seen |= {each["session"]: _lasting(each) for each in changed}
        if console.is_terminal:
            console.clear()
            speaker.text("", *map(_table, sessions))
        else:
            for each in changed:
                speaker.text(json.dumps(each) + "\n", _line(each))
        sys.stdout.flush()
        if found and all(each.is_over for each in found):
            return
        time.sleep(pause)


def _lasting(session: dict[str, Any]) -> dict[str, Any]:
    """Return a session without the seconds left, which change at every look."""
    return {**session, "seconds_left": None}


def _line(session: dict[str, Any]) -> str:
    """Return a session's state as one line for a log."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = (
        f"{now} plan {session['plan_sha256'][:12]} round {session['round']} of {session['rounds']}: {session['state']}"
    )
    waits = ", ".join(session["waiting_for"])
    until = f" until {session['until']}" if session["until"] else ""
    return f"{line}; {session['step']} of {waits}{until}" if waits else line


def _tell(standing: SessionStatus) -> dict[str, Any]:
    """Return a session's status as JSON values: how it ended, or whom the server waits for, and until when."""
    setup, is_over = standing.setup, standing.is_over
    ended = f"aborted: {standing.failure}" if standing.failure is not None else "over" if is_over else None
    closes = None if is_over or standing.closes is None else datetime.fromtimestamp(standing.closes, UTC)
    return {
        "session": str(standing.folder),
        "plan_sha256": setup.plan.digest.hex(),
        "round": setup.number,
        "rounds": setup.rounds,
        "state": ended or (_say_fetched(standing) if standing.is_opened else "under way"),
        "step": None if is_over else standing.step,
        "heard": None if standing.failure is not None else list(standing.heard),
        "waiting_for": [] if is_over else list(standing.waiting_for),
        "declined": list(standing.declined),
        "until": closes.isoformat(timespec="seconds") if closes is not None else None,
        "seconds_left": round(closes.timestamp() - time.time()) if closes is not None else None,
        "result": str(standing.folder / RESULT_FILE) if (standing.folder / RESULT_FILE).exists() else None,
    }


def _say_fetched(standing: SessionStatus) -> str:
    """Return in words whether the opened sum is a result yet, and for whom."""
    heard, enough = standing.confirmations
    return "opened, to be fetched" if standing.is_confirmed else f"unconfirmed: {heard} of {enough} acknowledgements"
