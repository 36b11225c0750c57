"""Offline verification of transcripts, by replaying each through the protocol that wrote it.

Every frame is signed, every step follows from the ones before it, and the vectors in `uploads/` are those that their
senders signed; where all of these were purged, nothing is computed again. What a server's transcript then proves of the
published sum is a fact of the protection; another party's proves what it was told and what it gave. Whether the keys
are the members' own no transcript can tell, nor whether a round was opened as it says: for the first a verifier brings
plan and roster, for the second the transcripts of the rounds before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.errors import COUNTS, MalformedMessage, SecaggError, SessionAborted, TranscriptInvalid
from secagg.parties.member_verification import PURGED, UNSIGNED_END, Doubt, MemberVerifier, require
from secagg.parties.outcome import SumResult, check_outcome, open_sum
from secagg.parties.server_protocol import ServerProtocol
from secagg.parties.setup import SessionSetup
from secagg.parties.staging import is_purged, read_vector
from secagg.parties.transcripts import Openings, setup_of
from secagg.parties.vouching import Trust
from secagg.protection import SumToDeclare, SumToOpen
from secagg.protection.messages import Abort, Acknowledgement, Outcome, Receipt
from secagg.roster import SERVER_INDEX
from secagg.transcript import (
    EVERYONE,
    NOT_SEEN,
    FrameBody,
    Record,
    chain,
    open_frame,
    payload_of,
    peek,
    read_transcript,
)
from secagg.wire import encode

_BRING_PLAN = "bring the agreed plan (--plan)"
NOBODYS_KEYS = Doubt("signed by keys that nobody vouched for", "if these keys are the members' own", _BRING_PLAN)
NOBODYS_PLAN = Doubt(
    "made under a plan that nobody vouched for", "if this plan is the one that was agreed on", _BRING_PLAN
)
UNKNOWN = Doubt(
    "what its sum leads to needs the broadcasts of all rounds before",
    "if its sum leads to what it says",
    "give the transcripts of all rounds",
)
NOTHING_BROUGHT = Trust()


@dataclass(frozen=True)
class Verified:
    """A consistent transcript, its session, and what it tells.

    `author` is the index of the party that wrote it, None for a client that has sent nothing; `signers` are those whose
    signatures it holds. `vouched_by` is empty where nobody vouches for the plan; `doubts` are what it leaves open.
    """

    path: Path
    setup: SessionSetup
    records: Sequence[Record]
    author: int | None
    role: str
    outcome: Outcome | None
    signers: frozenset[int]
    vouched_by: str
    doubts: tuple[Doubt, ...]
    sentence: str
    told: dict[str, Any]

    @property
    def number(self) -> int:
        """Which of the plan's rounds this is, from 1."""
        return self.setup.number

    @property
    def verdict(self) -> str:
        """Whether the transcript verifies, or is no more than consistent, in words."""
        words = "; ".join(doubt.words for doubt in self.doubts)
        return f"consistent, but {words}" if words else "verifies"

    @property
    def proves(self) -> str:
        """What the transcript proves, after the conditions that its doubts leave."""
        conditions = ", and ".join(doubt.condition for doubt in self.doubts)
        return f"{conditions}: {self.sentence}" if conditions else self.sentence

    @property
    def signed_by(self) -> dict[str, str]:
        """The identity key (hex) of everyone whose signatures it holds, by name, in the roster's order."""
        roster = self.setup.roster
        return {roster.name(index): roster.identity(index).hex() for index in sorted(self.signers)}

    @property
    def findings(self) -> dict[str, Any]:
        """All of it as plain values."""
        setup = self.setup
        return {
            "verdict": self.verdict,
            "role": self.role,
            "records": len(self.records),
            "head": self.records[-1].head.hex(),
            **({"round": f"{self.number} of {setup.rounds}"} if setup.rounds > 1 else {}),
            "plan_sha256": setup.plan.digest.hex(),
            "roster_sha256": setup.roster.digest.hex(),
            "vouched_by": self.vouched_by or None,
            **self.told,
            "proves": self.proves,
            "signers": self.signed_by,
        }


def verified(path: Path, trust: Trust, openings: Openings) -> Verified:
    """The transcript, read, replayed, and held against what the verifier trusts; as if it were the first of its plan.

    `openings` may tell how the rounds before it were opened. Raises TranscriptInvalid naming the first record at fault,
    BadInput when the file cannot be read.
    """
    records = read_transcript(path)
    setup, following = setup_of(records, openings.beside(path))
    if problem := trust.contradiction(setup):
        raise TranscriptInvalid(place_of_plan(records), problem)
    verifier = _verifier(setup, records, path.parent)
    known: set[tuple[str, bytes]] = set()
    for record in following:
        require((record.kind, record.content) not in known, record, "it stands there already: no party writes it twice")
        known.add((record.kind, record.content))
        try:
            verifier.check(record)
        except TranscriptInvalid:
            raise
        except SecaggError as error:
            raise TranscriptInvalid(record.index, str(setup.roster.name_culprit(error))) from None
    told = verifier.conclusion(len(records))
    vouched_by = trust.vouches_for_plan(setup, path)
    doubts = (*verifier.doubts, *((UNKNOWN,) if setup.known_round is None else ()))
    if not vouched_by:
        doubts = (NOBODYS_PLAN if trust.vouches_for_keys(setup) else NOBODYS_KEYS, *doubts)
    return Verified(
        path,
        setup,
        records,
        verifier.author,
        verifier.role,
        verifier.outcome,
        frozenset(verifier.signers),
        vouched_by,
        doubts,
        verifier.proves,
        told,
    )


def place_of_plan(records: Sequence[Record]) -> int:
    """The index of the plan's record."""
    return int(records[0].kind == "salt")


def _verifier(setup: SessionSetup, records: Sequence[Record], folder: Path) -> _ServerVerifier | MemberVerifier:
    """What checks the transcript of the party that sent its first sent frame.

    Of those that have sent nothing a client's begins with a salt, and only a server has received members' frames.
    Raises TranscriptInvalid for the transcript of nobody who takes part.
    """
    frames = [record for record in records if record.kind in ("received", "sent")]
    first = next((record for record in frames if record.kind == "sent"), frames[0] if frames else None)
    if first is None:
        return MemberVerifier(setup, None, folder) if place_of_plan(records) else _ServerVerifier(setup, folder)
    try:
        sender = peek(first.content).sender
    except MalformedMessage as error:
        raise TranscriptInvalid(first.index, str(error)) from None
    if first.kind == "received":
        return MemberVerifier(setup, None, folder) if sender == SERVER_INDEX else _ServerVerifier(setup, folder)
    if sender == SERVER_INDEX:
        return _ServerVerifier(setup, folder)
    require(sender in {*setup.context.identities, *setup.context.seconds}, first, "its author has no part in the plan")
    return MemberVerifier(setup, sender, folder)


class _ServerVerifier:
    """Replays a server's transcript."""

    role = "server"
    author = SERVER_INDEX

    def __init__(self, setup: SessionSetup, folder: Path) -> None:
        self._setup = setup
        self._folder = folder
        self._protocol = ServerProtocol(setup)
        self._aborted: str | None = None
        self._final_head = NOT_SEEN
        self._countersigned: list[str] = []
        self._head_agrees = False
        self._has_announced_end = False
        self._is_purged = False
        self.signers: set[int] = set()

    @property
    def outcome(self) -> Outcome | None:
        """The published outcome."""
        return self._protocol.outcome

    @property
    def proves(self) -> str:
        """What the transcript proves, once all of it is checked."""
        ended = "the session ended for the stated reason, and no sum was published"
        return ended if self._aborted is not None else self._setup.protection.proves

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """What the transcript leaves open, once all of it is checked."""
        is_cut_off = self._aborted is not None and not self._has_announced_end
        return (*((UNSIGNED_END,) if is_cut_off else ()), *((PURGED,) if self._is_purged else ()))

    def check(self, record: Record) -> None:
        if record.kind == "received":
            self._check_received(record)
        elif record.kind == "closed":
            require(record.content.decode(errors="replace") == self._protocol.awaits, record, "closes another step")
            self._protocol.close()
        elif record.kind == "aborted":
            self._aborted = record.content.decode(errors="replace")
            require(self._aborted == self._reason_to_abort(), record, "the session was aborted without that reason")
        else:
            require(record.kind == "sent", record, f"a server's transcript holds no {record.kind}")
            self._check_sent(record)

    def _check_received(self, record: Record) -> None:
        sender = peek(record.content).sender
        require(0 < sender < len(self._setup.roster.members), record, "a frame of nobody in the roster")
        body = self._protocol.open(sender, record.content)
        self.signers.add(sender)
        require(self._protocol.is_wanted(sender, record.content, body), record, "a frame that was not awaited")
        self._protocol.take(sender, record.content, body)
        if body.step == Acknowledgement.__name__ and body.seen == self._final_head:
            self._countersigned.append(self._setup.roster.name(sender))

    def _reason_to_abort(self) -> str | None:
        if self._protocol.sum_to_open is None:
            return self._protocol.failure
        if self._lacks_vectors() or self._setup.known_round is None:
            return self._aborted
        try:
            self._open(self._protocol.sum_to_open)
        except SessionAborted as error:
            return error.reason
        return None

    def _open(self, ready: SumToOpen) -> SumResult:
        return open_sum(self._setup, ready, self._folder, self._protocol.uploads)

    def _check_sent(self, record: Record) -> None:
        body = peek(record.content)
        open_frame(record.content, self._setup.roster, self._setup.context.plan, SERVER_INDEX, body.receiver)
        require(body.head == record.previous, record, "a frame states another head than the transcript's")
        self.signers.add(SERVER_INDEX)
        head = chain(body.head, "sent", record.content)
        self._protocol.sent(head)
        declared = self._protocol.sum_to_declare
        if declared is not None and body.step == declared.requests.__name__:
            self._check_request(record, declared, payload_of(body, declared.requests))
        if body.step == Outcome.__name__:
            self._check_outcome(record, payload_of(body, Outcome))
            self._final_head = head
        elif body.step == Receipt.__name__:
            require(body.seen == self._protocol.client_heads.get(body.receiver), record, "a receipt for another head")
        elif body.step == Abort.__name__:
            self._check_end(record, body)
        else:
            self._check_due(record, body)

    def _check_end(self, record: Record, body: FrameBody) -> None:
        """The end is told to everyone with the reason that was decided, or to one client that the session left out."""
        if body.receiver != EVERYONE:
            is_left_out = self._protocol.is_left_out(body.receiver)
            require(is_left_out, record, "tells a client that it came too late, which the session goes on with")
            return
        is_decided = self._aborted is not None and payload_of(body, Abort).reason == self._aborted[:2000]
        require(is_decided, record, "announces an abort that was not decided")
        self._has_announced_end = True

    def _check_request(self, record: Record, declared: SumToDeclare, request: Any) -> None:
        """The sum that was shown to the key holder is recomputed from the uploads."""
        if not self._lacks_vectors():
            for member in declared.vectors:
                name, digest = self._setup.roster.name(member), self._protocol.uploads[member].digest
                declared.add(member, read_vector(self._folder, name, member, digest))
            require(declared.is_sum(request), record, "the declared sum is not that of the uploads")
        self._protocol.declare(request)

    def _check_due(self, record: Record, body: FrameBody) -> None:
        due = self._protocol.due.get(body.step, {})
        require(bool(due), record, f"no {body.step} was due")
        receivers = due if body.receiver == EVERYONE else (body.receiver,)
        for member in receivers:
            require(member in due and encode(due[member]) == body.payload, record, f"the {body.step} does not follow")

    def _check_outcome(self, record: Record, outcome: Outcome) -> None:
        """The heart: the sum is recomputed from the uploads and the opened shares."""
        ready = self._protocol.sum_to_open
        if ready is None or ready.members != outcome.members or self._protocol.outcome is not None:
            raise TranscriptInvalid(record.index, "the outcome does not follow, or names other clients")
        if not self._lacks_vectors():
            result = self._open(ready)
            is_sum = result.aggregate_sha256 == outcome.aggregate_sha256
            require(is_sum, record, "the published sum is not that of the uploads")
            self._head_agrees = result.artifact_sha256 == outcome.head_sha256
        require(peek(record.content).receiver == EVERYONE, record, "the outcome is not for everyone")
        check_outcome(self._setup, outcome)
        self._protocol.conclude(outcome)

    def _lacks_vectors(self) -> bool:
        """Whether the vectors that a check needs were all purged: what it would compute again then stays unproven."""
        self._is_purged |= is_purged(self._folder)
        return self._is_purged

    def conclusion(self, records: int) -> dict[str, Any]:
        outcome = self._protocol.outcome
        if self._aborted is not None:
            revealed = self._protocol.revealed
            return {
                "session": f"aborted: {self._aborted}",
                "released": f"yes: {revealed}; {COUNTS}" if revealed else "no: nothing that opens the sum was shown",
            }
        if outcome is None:
            raise TranscriptInvalid(records, "the transcript ends before the session's outcome")
        agrees = "the same bits" if self._head_agrees else "other bits (another processor or library)"
        is_computed = not self._is_purged and self._setup.known_round is not None
        follows = "the published sum follows from all that was received"
        return {
            "session": "every step follows, but the sum was not computed again" if self._is_purged else follows,
            "members": [self._setup.roster.name(member) for member in outcome.members],
            "aggregate_sha256": outcome.aggregate_sha256.hex(),
            "head_sha256": outcome.head_sha256.hex(),
            "head_recomputed_here": agrees if is_computed else "no",
            "countersigned_by": self._countersigned or "nobody: a cut-off end cannot be told from members that left",
        }
