"""Deletion of finished sessions' data: the protected vectors, and all but a plan's newest sums and broadcasts.

Transcripts, with the signed digests of all of these, and heads stay. Until then a party keeps them for `verify` and
`audit`. Whoever later breaks the key agreement opens every single vector with them and a transcript: they are kept no
longer than somebody means to check them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from methods import method_of
from secagg.agreement.plan import Plan
from secagg.errors import BadInput
from secagg.protection.messages import Outcome
from secagg.session.attachments import OPENING_FILE, SUM_FILE
from secagg.session.member_session import VECTOR_FILE
from secagg.session.release import RELEASE_FILE
from secagg.session.staging import vector_path
from secagg.session.transcripts import outcome_of, round_of
from secagg.system.files import sync_folder
from secagg.transcript import FILE_NAME, Journal, Record, iterate_transcript, peek
from secagg.wire import decode, tag_of


def session_folders(state: Path) -> tuple[Path, ...]:
    """List the session folders in a party's `state` folder, by name. Raises BadInput if there are none."""
    found = tuple(sorted(path.parent for path in state.glob(f"*/{FILE_NAME}")))
    if not found:
        raise BadInput(f"there are no sessions in {state}", remedy="start the party, or give the folder of another")
    return found


def purge(folder: Path) -> int | None:
    """Delete the vectors in a finished session's folder; return their number, or None if the session is unfinished.

    Raises BadInput while another process is at work in the folder, or when the disk refuses, TranscriptInvalid for a
    transcript that does not say whether the session is over.
    """
    with closing(Journal(folder / FILE_NAME)) as journal:
        if not any(map(_is_end, journal.records())):
            return None
        uploads = vector_path(folder, 0).parent
        vectors = [*uploads.glob("*"), *folder.glob(VECTOR_FILE)]
        _delete([*vectors, uploads], folder, "vectors")
        return len(vectors)


def purge_sum(folder: Path) -> int:
    """Delete a session's sum, with its release, and the broadcast that began its round; return the number of files.

    The session is one of `earlier_sessions`.
    Raises what `purge` raises.
    """
    with closing(Journal(folder / FILE_NAME)):
        released = folder.glob(RELEASE_FILE.format("*"))
        found = [path for path in (folder / SUM_FILE, folder / OPENING_FILE, *released) if path.exists()]
        _delete(found, folder, "sum")
        return len(found)


def _delete(paths: Iterable[Path], folder: Path, what: str) -> None:
    try:
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        sync_folder(folder)
    except OSError as error:
        raise BadInput(f"cannot delete the {what} in {folder} ({error.strerror})") from None


def earlier_sessions(folders: Iterable[Path]) -> frozenset[Path]:
    """Return the folders of finished sessions, without the latest one of each plan.

    Nobody needs their sums to go on; the latest's some member may not have yet. While a plan has rounds to come, only
    where what opens a round is all of it: else a party that starts again goes through the sums before.
    """
    over: dict[bytes, list[tuple[int, Path, Outcome | None]]] = {}
    for folder in folders:
        records = tuple(iterate_transcript(folder / FILE_NAME, torn_tail_allowed=True))
        plans = [record.content for record in records if record.kind == "plan"]
        if plans and any(map(_is_end, records)):
            over.setdefault(plans[0], []).append((round_of(folder / FILE_NAME), folder, outcome_of(records)))
    found = set[Path]()
    for plan, sessions in over.items():
        *earlier, (_, _, outcome) = sorted(sessions, key=lambda session: session[0])
        if outcome is None or outcome.opens is None or _opens_alone(decode(Plan, plan)):
            found.update(folder for _, folder, _ in earlier)
    return frozenset(found)


def _opens_alone(plan: Plan) -> bool:
    """Return whether a broadcast of the plan holds the method's whole state; False if the model's file is missing."""
    try:
        begun = method_of(plan).begin(plan.dimension, len(plan.classes), plan.levels)
    except BadInput:
        return False
    return begun.is_self_contained


def _is_end(record: Record) -> bool:
    """Return whether a record ends its session, so that no vector is read after it."""
    return record.kind == "aborted" or (
        record.kind in ("sent", "received") and peek(record.content).step == tag_of(Outcome)
    )
