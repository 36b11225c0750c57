"""How every transcript begins: what the session was derived from.

A later round's transcript holds one opening, its own: what it names as the session before binds all that led there. For
what a round sums the broadcasts of all rounds before it may be needed. They are read where they are: each in the
transcript of its round, which a party keeps in the folder beside; it vouches for itself by its digest, wherever it was
found. A restart needs none of this: it goes through the sessions in order, and each opens the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from secagg.cohorts import Draw
from secagg.errors import BadInput, MalformedMessage, OtherVersion, ProtocolViolation, SecaggError, TranscriptInvalid
from secagg.parties.setup import SessionSetup
from secagg.plan import Plan
from secagg.protection.messages import Return, RoundOpening
from secagg.roster import Roster
from secagg.transcript import FILE_NAME, Journal, Record, iterate_transcript
from secagg.wire import decode, encode

T = TypeVar("T")
Follow = Callable[[SessionSetup, RoundOpening], SessionSetup]
"""From a plan's first session to the one that an opening begins."""
_BEGINNING = 5
"""Records: a client's salt, the plan, the roster, the draw, the opening."""


def folder_name(context: bytes) -> str:
    """Return what the folder of the session with this context digest is called."""
    return context.hex()[:16]


def begin_transcript(journal: Journal, setup: SessionSetup) -> None:
    """Write the plan, the roster, the draw and what opened this round; a journal that has them stays as it is.

    Who returned writes what it was shown: the opening, and who has signed it.
    """
    journal.append("plan", encode(setup.plan))
    journal.append("roster", encode(setup.roster))
    if setup.draw is not None:
        journal.append("draw", encode(setup.draw))
    if setup.shown is not None:
        journal.append("return", encode(setup.shown))
    elif setup.opening is not None:
        journal.append("round", encode(setup.opening))


def setup_of(
    records: Sequence[Record], follow: Follow = SessionSetup.opened_alone
) -> tuple[SessionSetup, Sequence[Record]]:
    """The session of a transcript, and the records that follow its beginning.

    `follow` leads to a later round. Raises TranscriptInvalid, BadInput for a transcript of a plan or roster of another
    version.

    A client's begins with 32 random bytes: its heads, which the server sees, then tell nothing of its policy.
    """
    index = int(bool(records) and records[0].kind == "salt")
    plan, roster = _content(records, index, "plan", Plan), _content(records, index + 1, "roster", Roster)
    index += 1
    try:
        setup = SessionSetup.of(plan, roster)
        if len(records) > index + 1 and records[index + 1].kind == "draw":
            index += 1
            setup = setup.drawn(_content(records, index, "draw", Draw))
        if len(records) > index + 1 and records[index + 1].kind == "round":
            index += 1
            setup = follow(setup, _content(records, index, "round", RoundOpening))
        elif len(records) > index + 1 and records[index + 1].kind == "return":
            index += 1
            setup = setup.returning(_content(records, index, "return", Return))
    except (BadInput, MalformedMessage, ProtocolViolation) as error:
        raise TranscriptInvalid(index, str(roster.name_culprit(error))) from None
    return setup, records[index + 1 :]


class Openings:
    """What opened the sessions of the transcripts `given`, and of those that lie in the folders beside one of them.

    Each opening is followed once, however many transcripts come after it.
    """

    def __init__(self, given: Iterable[Path]) -> None:
        found = (_opening_of(path) for path in given)
        self._given = {opening.context: opening for opening in found if opening is not None}
        self._sessions: dict[tuple[bytes, bytes], SessionSetup] = {}

    def beside(self, transcript: Path) -> Follow:
        """Look among the given ones first, then in the state folder that a transcript lies in."""
        return partial(self._follow, transcript.resolve().parent.parent)

    def _follow(self, state: Path, first: SessionSetup, opening: RoundOpening) -> SessionSetup:
        """Go back to a session that is known, then from there through every opening, as far as they are to be found."""
        plan, at, missing = first.plan.digest, opening, list[RoundOpening]()
        while (known := self._sessions.get((plan, at.context))) is None:
            missing.append(at)
            if at.number == 2:
                known = first
                break
            before = self._given.get(at.previous) or _find_kept(state, at.previous)
            if before is None:
                return first.opened_alone(opening)
            at = before
        for each in reversed(missing):
            known = self._sessions[plan, each.context] = known.following(each)
        return known


def _find_kept(state: Path, context: bytes) -> RoundOpening | None:
    opening = _opening_of(state / folder_name(context) / FILE_NAME)
    return opening if opening is not None and opening.context == context else None


def _opening_of(path: Path) -> RoundOpening | None:
    """What a transcript says that it was opened by; None where it says nothing of the sort."""
    told = {record.kind: record.content for record in _beginning(path)}
    try:
        if "return" in told:
            return decode(Return, told["return"]).opening
        return decode(RoundOpening, told["round"]) if "round" in told else None
    except SecaggError:
        return None


def next_return(state: Path, plan: Plan, after: int) -> Return | None:
    """What a client was shown when it first returned to a plan after a round, from its state folder; None if never."""
    found = []
    for path in state.glob(f"*/{FILE_NAME}"):
        told = {record.kind: record.content for record in _beginning(path)}
        if "return" in told and told.get("plan") == encode(plan):
            found.append(decode(Return, told["return"]))
    later = [each for each in found if each.opening.number > after]
    return min(later, key=lambda each: each.opening.number, default=None)


def _beginning(path: Path) -> list[Record]:
    """The records that tell what a session was derived from; none of a file that is no transcript."""
    try:
        return list(islice(iterate_transcript(path, torn_tail_allowed=True), _BEGINNING))
    except SecaggError:
        return []


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
