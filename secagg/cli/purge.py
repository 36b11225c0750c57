"""`secagg purge`: the end of the vectors of finished sessions."""

from __future__ import annotations

from secagg.cli.console import JsonOption, QuietOption, Speaker, two_columns
from secagg.cli.party import StateOption
from secagg.errors import SecaggError
from secagg.parties.purging import purge as purge_session
from secagg.parties.purging import session_folders


def purge(state: StateOption, json_to: JsonOption = None, quiet: QuietOption = False) -> None:
    """Delete the members' protected vectors of sessions that are over; keep transcripts, digests, sums and heads.

    Verify and audit before: afterwards `verify` can tell no more than that the messages are consistent (exit code 4).
    """
    speaker = Speaker(quiet=quiet, json_to=json_to)
    found: dict[str, str] = {}
    failures: list[SecaggError] = []
    deleted = 0
    for folder in session_folders(state):
        try:
            count = purge_session(folder)
        except SecaggError as error:
            failures.append(error)
            found[folder.name] = f"kept: {error}"
            continue
        deleted += count or 0
        found[folder.name] = "kept: the session is not over" if count is None else f"{count} vectors deleted"
    speaker.result({"deleted": deleted, "sessions": found}, two_columns("Vectors", found.items()))
    if failures:
        raise failures[0]
