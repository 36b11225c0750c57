"""Journal of a party that is not the server: frames received and sent, and signing of the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import LeftBehind, SessionAborted
from secagg.protection import LocalParty
from secagg.protection.messages import Abort, Acknowledgement, Outcome, Receipt
from secagg.session.round_setup import RoundSetup
from secagg.transcript import (
    EVERYONE,
    NOT_SEEN,
    FrameBody,
    Journal,
    chain,
    make_body,
    open_frame,
    payload_of,
    peek,
    sign_frame,
)
from secagg.wire import tag_of


class MemberTranscript:
    """One session's journal, and what follows from all that it holds: after a restart the same as before.

    `heard` is the server's last frame, `receipts` are the helpers that have signed for their part of an upload,
    `acknowledgement` is the frame that countersigns the outcome, `announcement` the message that bytes go with.
    """

    def __init__(self, setup: RoundSetup, me: LocalParty, journal: Journal, announcement: type) -> None:
        self._setup = setup
        self._me = me
        self._journal = journal
        self._announcement = tag_of(announcement)
        self._server_head = NOT_SEEN
        self.heard: FrameBody | None = None
        self.receipts: set[int] = set()
        self.outcome: Outcome | None = None
        self.acknowledgement = b""
        self.is_countersigned = False
        self.has_sent = False
        self.has_announced = False

    @property
    def head(self) -> bytes:
        """The head of all that is written."""
        return self._journal.head

    def replay(self) -> None:
        """Take in what an earlier life wrote. Raises SessionAborted when that holds the session's end."""
        for record in self._journal.records():
            self._take(record.kind, record.content)

    def sent(self, frames: Iterable[bytes]) -> None:
        """Write down frames that are about to leave; what stands there already is not written again."""
        for frame in frames:
            self._journal.append("sent", frame)
            self._take("sent", frame)

    def received(self, frame: bytes) -> FrameBody:
        """Write down a frame that was checked. Raises SessionAborted when it ends the session."""
        self._journal.append("received", frame)
        self._take("received", frame)
        return peek(frame)

    def ended(self, reason: str) -> None:
        """Write down why the session is over for this party."""
        self._journal.append("aborted", reason.encode())

    def payloads(self, expected: type) -> list[Any]:
        """All messages of a class that were received."""
        frames = [peek(record.content) for record in self._journal.records() if record.kind == "received"]
        return [payload_of(each, expected) for each in frames if each.step == tag_of(expected)]

    def sign(self, payload: Any, receivers: tuple[int, ...] = (SERVER_INDEX,)) -> tuple[bytes, ...]:
        """One frame for each receiver, as the journal will hold them: one after the other."""
        frames, head = [], self._journal.head
        for receiver in receivers:
            seen = self._server_head if receiver == SERVER_INDEX else NOT_SEEN
            body = make_body(self._setup.context.round_digest, self._me.member, receiver, head, seen, payload)
            frames.append(sign_frame(self._me.identity, body))
            head = chain(head, "sent", frames[-1])
        return tuple(frames)

    def announces(self, body: FrameBody) -> bool:
        """Whether bytes go with a frame."""
        return body.step == self._announcement

    def open_servers(self, frame: bytes) -> FrameBody:
        """A frame of the server for this party and session. Raises MalformedMessage or ProtocolViolation."""
        return open_frame(frame, self._setup.roster, self._setup.context.round_digest, SERVER_INDEX, self._me.member)

    def _take(self, kind: str, content: bytes) -> None:
        if kind == "aborted":
            raise SessionAborted(content.decode(errors="replace"))
        if kind == "sent":
            self.has_sent = True
            self.has_announced |= self.announces(peek(content))
            if peek(content).step == tag_of(Acknowledgement):
                self.acknowledgement = content
        elif kind == "received" and (sender := peek(content).sender) != SERVER_INDEX:
            self.receipts.add(sender)
        elif kind == "received":
            self._take_servers(self.open_servers(content), content)

    def _take_servers(self, body: FrameBody, frame: bytes) -> None:
        self.heard = body
        self._server_head = chain(body.head, "sent", frame)
        if body.step == tag_of(Outcome):
            self.outcome = payload_of(body, Outcome)
        elif body.step == tag_of(Receipt):
            self.is_countersigned = True
        elif body.step == tag_of(Abort):
            reason = payload_of(body, Abort).reason
            raise SessionAborted(reason) if body.receiver == EVERYONE else LeftBehind(reason)
