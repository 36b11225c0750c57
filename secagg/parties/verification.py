"""Offline verification of a transcript, by replaying it through the protocol that wrote it.

A server's transcript proves that the published sum is the sum of the accepted uploads: every frame is signed, every
step follows from the ones before it, and the vectors in `uploads/` are those that their senders signed. Another
party's transcript proves what it was told and what it gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SessionAborted, TranscriptInvalid
from secagg.parties.protocol import ServerProtocol
from secagg.parties.result import SumResult, check_outcome, open_sum
from secagg.parties.setup import SessionSetup
from secagg.parties.staging import read_vector
from secagg.parties.testimony import MemberVerifier, require
from secagg.parties.transcripts import setup_of
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


@dataclass(frozen=True)
class Verified:
    """A transcript that verifies: its session, the records after its beginning, and what it proves as plain values."""

    setup: SessionSetup
    records: Sequence[Record]
    findings: dict[str, Any]


def verify_transcript(path: Path) -> dict[str, Any]:
    """What the transcript proves, as plain values.

    Raises TranscriptInvalid naming the first record at fault, BadInput when the file cannot be read.
    """
    return verified(path).findings


def verified(path: Path) -> Verified:
    """The transcript, read and replayed. Raises as `verify_transcript` does."""
    records = read_transcript(path)
    setup, following = setup_of(records)
    is_servers = _is_servers(records)
    verifier = _ServerVerifier(setup, path.parent) if is_servers else MemberVerifier(setup, following, path.parent)
    for record in following:
        try:
            verifier.check(record)
        except TranscriptInvalid:
            raise
        except (MalformedMessage, ProtocolViolation) as error:
            raise TranscriptInvalid(record.index, str(error)) from None
    found: dict[str, Any] = {
        "role": verifier.role,
        "records": len(records),
        "head": records[-1].head.hex(),
    }
    if setup.rounds > 1:
        found["round"] = f"{len(setup.openings) + 1} of {setup.rounds}"
    found |= {"plan_sha256": setup.plan.digest.hex(), **verifier.conclusion(len(records))}
    return Verified(setup, following, found)


def _is_servers(records: Sequence[Record]) -> bool:
    """Whether the first frame was sent by the server and sent here, or the reverse of both."""
    for record in records:
        if record.kind in ("received", "sent"):
            try:
                return (peek(record.content).sender == SERVER_INDEX) == (record.kind == "sent")
            except MalformedMessage as error:
                raise TranscriptInvalid(record.index, str(error)) from None
    return True


class _ServerVerifier:
    """Replays a server's transcript."""

    role = "server"

    def __init__(self, setup: SessionSetup, folder: Path) -> None:
        self._setup = setup
        self._folder = folder
        self._protocol = ServerProtocol(setup)
        self._aborted: str | None = None
        self._final_head = NOT_SEEN
        self._countersigned: list[str] = []
        self._head_agrees = False

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
        require(self._protocol.is_wanted(sender, record.content, body), record, "a frame that was not awaited")
        self._protocol.take(sender, record.content, body)
        if body.step == Acknowledgement.__name__ and body.seen == self._final_head:
            self._countersigned.append(self._setup.roster.name(sender))

    def _reason_to_abort(self) -> str | None:
        if self._protocol.sum_to_open is None:
            return self._protocol.failure
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
            left_out = body.receiver != EVERYONE and self._protocol.is_left_out(body.receiver)
            require(left_out or self._aborted is not None, record, "announces an abort that was not decided")
        else:
            self._check_due(record, body)

    def _check_request(self, record: Record, declared: SumToDeclare, request: Any) -> None:
        """The sum that was shown to the key holder is recomputed from the uploads."""
        try:
            for member in declared.vectors:
                name, digest = self._setup.roster.name(member), self._protocol.uploads[member].digest
                declared.add(member, read_vector(self._folder, name, member, digest))
        except BadInput as error:
            raise TranscriptInvalid(record.index, str(error)) from None
        require(declared.is_sum(request), record, "the declared sum is not that of the uploads")
        self._protocol.declare(request)

    def _check_due(self, record: Record, body: FrameBody) -> None:
        due = self._protocol.due.get(body.step, {})
        receivers = due if body.receiver == EVERYONE else (body.receiver,)
        for member in receivers:
            require(member in due and encode(due[member]) == body.payload, record, f"the {body.step} does not follow")

    def _check_outcome(self, record: Record, outcome: Outcome) -> None:
        """The heart: the sum is recomputed from the uploads and the opened shares."""
        ready = self._protocol.sum_to_open
        if ready is None or ready.members != outcome.members:
            raise TranscriptInvalid(record.index, "the outcome does not follow, or names other clients")
        try:
            result = self._open(ready)
        except (BadInput, SessionAborted) as error:
            raise TranscriptInvalid(record.index, str(error)) from None
        require(
            result.aggregate_sha256 == outcome.aggregate_sha256, record, "the published sum is not that of the uploads"
        )
        require(peek(record.content).receiver == EVERYONE, record, "the outcome is not for everyone")
        check_outcome(self._setup, outcome)
        self._head_agrees = result.head_sha256 == outcome.head_sha256
        self._protocol.conclude(outcome)

    def conclusion(self, records: int) -> dict[str, Any]:
        outcome = self._protocol.outcome
        if self._aborted is not None:
            return {"session": f"aborted: {self._aborted}"}
        if outcome is None:
            raise TranscriptInvalid(records, "the transcript ends before the session's outcome")
        return {
            "session": "the published sum is the sum of the accepted uploads",
            "members": [self._setup.roster.name(member) for member in outcome.members],
            "aggregate_sha256": outcome.aggregate_sha256.hex(),
            "head_sha256": outcome.head_sha256.hex(),
            "head_recomputed_here": "the same bits"
            if self._head_agrees
            else "other bits (another processor or library)",
            "countersigned_by": self._countersigned or "nobody: a cut-off end cannot be told from members that left",
        }
