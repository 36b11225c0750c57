"""`secagg status`: where a server's sessions stand."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.agreement.plan import read_plan
from secagg.cli.console import JsonOption, QuietOption, Speaker, two_columns
from secagg.cli.options import PluginOption, StateOption
from secagg.errors import BadInput
from secagg.session.outcome import RESULT_FILE
from secagg.session.purging import session_folders
from secagg.session.status import SessionStatus, status_of


def status(
    state: StateOption,
    plan: Annotated[Path | None, typer.Option(help="Only the sessions of this plan.")] = None,
    plugin: PluginOption = None,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say where each session of a server stands: who was heard, who is waited for, until when, or how it ended.

    All of it is read from the server's --state folder, whether the server runs or not; `secagg verify` checks it.
    """
    only = read_plan(plan).digest if plan is not None else None
    found = [status_of(folder) for folder in session_folders(state)]
    shown = [each for each in found if only in (None, each.setup.plan.digest)]
    if not shown:
        raise BadInput(
            f"there is no session of {plan} in {state}", remedy="give the plan and the --state folder of one server"
        )
    shown.sort(key=lambda each: (each.setup.plan.digest, each.setup.number))
    sessions = [_tell(each) for each in shown]
    tables = [two_columns(each["session"], _rows(each)) for each in sessions]
    Speaker(quiet=quiet, json_to=json_to).result({"version": 1, "sessions": sessions}, *tables)


def _tell(standing: SessionStatus) -> dict[str, Any]:
    """Plain values; of a session that is over what it came to, of another one whom it waits for, and until when."""
    setup, is_over = standing.setup, standing.is_over
    ended = f"aborted: {standing.failure}" if standing.failure is not None else "over" if is_over else None
    closes = None if is_over or standing.closes is None else datetime.fromtimestamp(standing.closes, UTC)
    return {
        "session": str(standing.folder),
        "plan_sha256": setup.plan.digest.hex(),
        "round": setup.number,
        "rounds": setup.rounds,
        "state": ended or ("opened, to be fetched" if standing.is_opened else "under way"),
        "step": None if is_over else standing.step,
        "heard": None if standing.failure is not None else list(standing.heard),
        "waiting_for": [] if is_over else list(standing.waiting_for),
        "until": closes.isoformat(timespec="seconds") if closes is not None else None,
        "seconds_left": round(closes.timestamp() - time.time()) if closes is not None else None,
        "result": str(standing.folder / RESULT_FILE) if (standing.folder / RESULT_FILE).exists() else None,
    }


def _rows(session: dict[str, Any]) -> list[tuple[str, str]]:
    shown = {name: ", ".join(value) if isinstance(value, list) else value for name, value in session.items()}
    return [(name.replace("_", " "), str(value)) for name, value in shown.items() if value and name != "session"]
