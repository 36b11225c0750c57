"""`secagg status`: show the progress of a server's sessions."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.agreement.plan import read_plan
from secagg.cli.console import Speaker, two_columns
from secagg.cli.options import PluginOption, StateOption
from secagg.errors import BadInput
from secagg.session.outcome import RESULT_FILE
from secagg.session.purging import session_folders
from secagg.session.status import SessionStatus, status_of


def status(
    speaker: Speaker,
    state: StateOption,
    plan: Annotated[Path | None, typer.Option(help="Only the sessions of this plan.")] = None,
    plugin: PluginOption = None,
) -> None:
    """Say where each session of a server stands: who was heard, who is waited for, until when, or how it ended.

    All of it is read from the server's --state folder, whether the server runs or not; `secagg verify` checks it.
    """
    only = read_plan(plan).digest if plan is not None else None
    found = [status_of(folder) for folder in session_folders(state)]
    shown = [each for each in found if only in (None, each.setup.plan.digest)]
    if not shown:
        problem = f"there is no session of {plan} in {state}"
        raise BadInput(problem, remedy="give the plan and the --state folder of one server")
    shown.sort(key=lambda each: (each.setup.plan.digest, each.setup.number))
    sessions = list(map(_tell, shown))
    tables = []
    for each in sessions:
        plain = {name: ", ".join(value) if isinstance(value, list) else value for name, value in each.items()}
        rows = [(name.replace("_", " "), str(value)) for name, value in plain.items() if value and name != "session"]
        tables.append(two_columns(each["session"], rows))
    speaker.result({"version": 1, "sessions": sessions}, *tables)


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
