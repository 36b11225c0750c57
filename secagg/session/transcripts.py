"""First records of a transcript (plan, roster, draw, round opening), and the session that follows from them.

A later round's transcript holds one opening, its own: what it names as the session before binds all that led there. For
what a round sums the broadcasts of all rounds before it may be needed. They are read where they are: each in the folder
of its round, which a party keeps beside; it vouches for itself by its digest, wherever it was found. One that is not
kept any more is made again of the sum that it followed from, and of the rounds before that. A restart needs none of
this: it goes through the sessions in order, and each opens the next.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from secagg.agreement.plan import Plan
from secagg.agreement.roster import SERVER_INDEX, Roster
from secagg.errors import BadInput, MalformedMessage, OtherVersion, ProtocolViolation, SecaggError, TranscriptInvalid
from secagg.protection.draw import Draw
from secagg.protection.messages import Outcome, Return, RoundOpening
from secagg.session.attachments import OPENING_FILE, folder_name, read_kept
from secagg.session.outcome import Files
from secagg.session.round_setup import RoundSetup
from secagg.transcript import FILE_NAME, Journal, Record, iterate_transcript, payload_of, peek
from secagg.wire import decode, encode, tag_of

T = TypeVar("T")
Follow = Callable[[RoundSetup, RoundOpening], RoundSetup]
"""The type of a function that leads from a plan's first session to the round that an opening begins."""
_BEGINNING = 5
"""The most records that may come first: a client's salt, the plan, the roster, the draw, the opening."""


def begin_transcript(journal: Journal, setup: RoundSetup) -> None:
    """Write a transcript's first records: plan, roster, and the draw of cohorts and the round's opening, if any.

    Records already written stay.
    Who returned writes what it was shown: the opening, and who has signed it.
    """
    journal.append("plan", encode(setup.plan))
    journal.append("roster", encode(setup.roster))
    if setup.draw is not None:
        journal.append("draw", encode(setup.draw))
    if setup.rejoin is not None:
        journal.append("return", encode(setup.rejoin))
    elif setup.opening is not None:
        journal.append("round", encode(setup.opening))


def setup_of(records: Sequence[Record], follow: Follow = RoundSetup.at) -> tuple[RoundSetup, Sequence[Record]]:
    """Derive a transcript's session (its round) from the first records; return it with the remaining records.

    `follow` leads to a later round. Raises TranscriptInvalid, BadInput for a transcript of a plan or roster of another
    version.

    A client's begins with 32 random bytes: its heads, which the server sees, then tell nothing of its policy.
    """
    index = int(bool(records) and records[0].kind == "salt")
    plan, roster = _content(records, index, "plan", Plan), _content(records, index + 1, "roster", Roster)
    index += 1
    try:
        setup = RoundSetup.of(plan, roster)
        if len(records) > index + 1 and records[index + 1].kind == "draw":
            index += 1
            setup = setup.with_draw(_content(records, index, "draw", Draw))
        if len(records) > index + 1 and records[index + 1].kind == "round":
            index += 1
            setup = follow(setup, _content(records, index, "round", RoundOpening))
        elif len(records) > index + 1 and records[index + 1].kind == "return":
            index += 1
            shown = _content(records, index, "return", Return)
            setup = replace(follow(setup, shown.opening), rejoin=shown)
    except (BadInput, MalformedMessage, ProtocolViolation) as error:
        raise TranscriptInvalid(index, str(roster.name_culprit(error))) from None
    return setup, records[index + 1 :]


class Openings:
    """Derivation of later rounds, from the transcripts `given` and the session folders beside one of them.

    Each opening is followed once, however many transcripts come after it, if those of earlier rounds are asked for
    first: of rounds whose opening is a whole state no more than the latest is held.
    """

    def __init__(self, given: Iterable[Path]) -> None:
        self._given = {context: path for path in given if (context := _context_of(path))}
        self._sessions: dict[tuple[bytes, bytes], RoundSetup] = {}

    def follow(self, state: Path, first: RoundSetup, opening: RoundOpening) -> RoundSetup:
        """Derive the round that the message `opening` begins, from the nearest known round and the openings between."""
        plan, at, missing = first.plan.digest, opening, list[RoundOpening]()
        while (known := self._known(state, first, at)) is None:
            missing.append(at)
            before = _opening_of(self._place(state, at.previous))
            if at.number == 2:
                known = first
            elif before is None or before.round_digest != at.previous:
                known, missing = first.at(opening), []
            else:
                at = before
                continue
            break
        for each in reversed(missing):
            told = self._broadcast(state, known, each)
            known = self._sessions[plan, each.round_digest] = known.following(each, told)
            if known.facts.opens_alone:
                self._sessions.pop((plan, each.previous), None)
        return known

    def _known(self, state: Path, first: RoundSetup, opening: RoundOpening) -> RoundSetup | None:
        """Return a round derived before, or one whose broadcast is at hand and holds the whole state; else None."""
        known = self._sessions.get((first.plan.digest, opening.round_digest))
        if known is None and first.facts.opens_alone:
            told = self._read_opening(state, opening)
            known = first.at(opening, told) if told else None
        return known

    def _broadcast(self, state: Path, before: RoundSetup, opening: RoundOpening) -> bytes:
        """Return the broadcast that begins a round, from its folder or computed from the sum before; else empty."""
        if kept := self._read_opening(state, opening):
            return kept
        path = self._place(state, opening.previous)
        with contextlib.suppress(SecaggError):  # what is wrong there is said where that transcript is verified
            outcome = outcome_of(iterate_transcript(path, torn_tail_allowed=True))
            if outcome is not None and outcome.opens == opening.broadcast:
                return Files(before, outcome, path.parent).broadcast
        return b""

    def _read_opening(self, state: Path, opening: RoundOpening) -> bytes:
        return read_kept(self._place(state, opening.round_digest).parent / OPENING_FILE, opening.broadcast) or b""

    def _place(self, state: Path, round_digest: bytes) -> Path:
        return self._given.get(round_digest, state / folder_name(round_digest) / FILE_NAME)


def outcome_of(records: Iterable[Record]) -> Outcome | None:
    """Return the server's Outcome message in a transcript; None if there is none."""
    for record in records:
        if record.kind in ("sent", "received"):
            body = peek(record.content)
            if body.sender == SERVER_INDEX and body.step == tag_of(Outcome):
                found: Outcome = payload_of(body, Outcome)
                return found
    return None


def round_of(path: Path) -> int:
    """Return the number of the round that a transcript states; 1 if it states none."""
    opening = _opening_of(path)
    return opening.number if opening is not None else 1


def _context_of(path: Path) -> bytes | None:
    """Return the round digest of a transcript's session; None for a file that is not a transcript."""
    opening = _opening_of(path)
    if opening is not None:
        return opening.round_digest
    plans = [record.content for record in _beginning(path) if record.kind == "plan"]
    return hashlib.sha256(plans[0]).digest() if plans else None


def _opening_of(path: Path) -> RoundOpening | None:
    told = {record.kind: record.content for record in _beginning(path)}
    try:
        if "return" in told:
            return decode(Return, told["return"]).opening
        return decode(RoundOpening, told["round"]) if "round" in told else None
    except SecaggError:
        return None


def next_return(state: Path, plan: Plan, after: int) -> Return | None:
    """Find the `Return` message by which a client first rejoined a plan after round `after`; None if it never did."""
    found = []
    for path in state.glob(f"*/{FILE_NAME}"):
        told = {record.kind: record.content for record in _beginning(path)}
        if "return" in told and told.get("plan") == encode(plan):
            found.append(decode(Return, told["return"]))
    later = [each for each in found if each.opening.number > after]
    return min(later, key=lambda each: each.opening.number, default=None)


def _beginning(path: Path) -> list[Record]:
    """Return the first records, from which the session is derived; none of a file that is not a transcript."""
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
        problem = f"the transcript has a {kind} of version {error.version}, this program reads version {error.known}"
        raise BadInput(problem, remedy="use the secagg that wrote it") from None
    except SecaggError as error:
        raise TranscriptInvalid(index, str(error)) from None
