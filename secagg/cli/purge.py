"""`secagg purge`: delete the protected vectors of finished sessions."""

from __future__ import annotations

from secagg.cli.console import Speaker, two_columns
from secagg.cli.home import at_home
from secagg.cli.options import PluginOption, StateOption
from secagg.errors import SecaggError
from secagg.session.purging import earlier_sessions, purge_sum, session_folders
from secagg.session.purging import purge as purge_session


@at_home("state")
def purge(speaker: Speaker, state: StateOption, plugin: PluginOption = None) -> None:
    """Delete members' protected vectors of sessions that are over, and all sums and states but a plan's newest.

    Transcripts, with all digests, and heads stay. Verify and audit before: afterwards `verify` can tell no more than
    that the messages are consistent (exit code 4).
    """
    found: dict[str, str] = {}
    failures: list[SecaggError] = []
    deleted = sums = 0
    folders = session_folders(state)
    for folder in folders:
        try:
            count = purge_session(folder)
            files = purge_sum(folder) if folder in earlier_sessions(folders) else 0
        except SecaggError as error:
            failures.append(error)
            found[folder.name] = f"kept: {error}"
            continue
        deleted, sums = deleted + (count or 0), sums + files
        said = f"{count} vectors deleted" + (f", {files} files of sum and state" if files else "")
        found[folder.name] = "kept: the session is not over" if count is None else said
    content = {"deleted": deleted, "sums": sums, "sessions": found}
    speaker.result(content, two_columns("Vectors and sums", found.items()))
    if failures:
        raise failures[0]
