"""How every transcript begins: what the session was derived from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from secagg.errors import BadInput, MalformedMessage, OtherVersion, ProtocolViolation, SecaggError, TranscriptInvalid
from secagg.parties.setup import SessionSetup
from secagg.plan import Plan
from secagg.protection.messages import RoundOpening
from secagg.roster import Roster
from secagg.transcript import Journal, Record
from secagg.wire import decode, encode

T = TypeVar("T")


def begin_transcript(journal: Journal, setup: SessionSetup) -> None:
    """Write the plan, the roster and what led to this round; a journal that has them stays as it is."""
    journal.append("plan", encode(setup.plan))
    journal.append("roster", encode(setup.roster))
    for opening in setup.openings:
        journal.append("round", encode(opening))


def setup_of(records: Sequence[Record]) -> tuple[SessionSetup, Sequence[Record]]:
    """The session of a transcript, and the records that follow its beginning.

    Raises TranscriptInvalid, BadInput for a transcript of a plan or roster of another version.

    A client's begins with 32 random bytes: its heads, which the server sees, then tell nothing of its policy.
    """
    index = int(bool(records) and records[0].kind == "salt")
    plan, roster = _content(records, index, "plan", Plan), _content(records, index + 1, "roster", Roster)
    index += 1
    try:
        setup = SessionSetup.of(plan, roster)
        while len(records) > index + 1 and records[index + 1].kind == "round":
            index += 1
            setup = setup.following(_content(records, index, "round", RoundOpening))
    except (BadInput, MalformedMessage, ProtocolViolation) as error:
        raise TranscriptInvalid(index, str(roster.name_culprit(error))) from None
    return setup, records[index + 1 :]


def _content(records: Sequence[Record], index: int, kind: str, cls: type[T]) -> T:
    if len(records) <= index or records[index].kind != kind:
        raise TranscriptInvalid(index, f"the {kind} is missing")
    try:
        return decode(cls, records[index].content)
    except OtherVersion as error:
        raise BadInput(
            f"the transcript has a {kind} of version {error.version}, this program reads version {error.known}",
            remedy="use the secagg that wrote it",
        ) from None
    except SecaggError as error:
        raise TranscriptInvalid(index, str(error)) from None
