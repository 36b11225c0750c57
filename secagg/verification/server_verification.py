"""Offline verification of a server's transcript: the same protocol runs again, and the sum is computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import COUNTS, SessionAborted, TranscriptInvalid
from secagg.protection import SumToDeclare, SumToOpen
from secagg.protection.draw import Drawn
from secagg.protection.messages import Abort, Acknowledgement, Outcome, Receipt
from secagg.session.outcome import SumResult, open_sum
from secagg.session.outcome_check import IMPOSSIBLE_SUM, PURGED, UNSIGNED_END, Caveat, follows, require
from secagg.session.round_setup import RoundSetup
from secagg.session.rounds import outcome_of_draw
from secagg.session.server_protocol import ServerProtocol
from secagg.session.staging import is_purged, read_vector
from secagg.transcript import EVERYONE, NOT_SEEN, FrameBody, Record, chain, open_frame, payload_of, peek
from secagg.wire import encode, tag_of


class ServerVerifier:
    """Replays a server's transcript."""

    role = "server"
    author = SERVER_INDEX

    def __init__(self, setup: RoundSetup, folder: Path) -> None:
        self._setup = setup
        self._folder = folder
        self._protocol = ServerProtocol(setup)
        self._aborted: str | None = None
        self._final_head = NOT_SEEN
        self._countersigned: list[str] = []
        self._head_agrees = False
        self._has_announced_end = False
        self._is_purged = False
        self._left_open: tuple[Caveat, ...] = ()
        self.signers: set[int] = set()

    @property
    def outcome(self) -> Outcome | None:
        """The published outcome."""
        return self._protocol.outcome

    @property
    def proves(self) -> str:
        """Statement that the transcript proves, once all of it is checked."""
        ended = "the session ended for the stated reason, and no sum was published"
        return ended if self._aborted is not None else self._setup.protocol.proves

    @property
    def doubts(self) -> tuple[Caveat, ...]:
        """Caveats, once all of it is checked."""
        is_cut_off = self._aborted is not None and not self._has_announced_end
        found = (UNSIGNED_END, is_cut_off), (PURGED, self._is_purged)
        return (*(doubt for doubt, holds in found if holds), *self._left_open)

    def check(self, record: Record) -> None:
        """Take in one record. Raises TranscriptInvalid, or what the parts of the protocol raise."""
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
        if body.step == tag_of(Acknowledgement) and body.seen == self._final_head:
            self._countersigned.append(self._setup.roster.name(sender))

    def _reason_to_abort(self) -> str | None:
        if self._protocol.sum_to_open is None or isinstance(self._protocol.sum_to_open, Drawn):
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
        open_frame(record.content, self._setup.roster, self._setup.context.round_digest, SERVER_INDEX, body.receiver)
        require(body.head == record.previous, record, "a frame states another head than the transcript's")
        self.signers.add(SERVER_INDEX)
        head = chain(body.head, "sent", record.content)
        self._protocol.sent(head)
        declared = self._protocol.sum_to_declare
        if declared is not None and body.step == tag_of(declared.requests):
            self._check_request(record, declared, payload_of(body, declared.requests))
        if body.step == tag_of(Outcome):
            self._check_outcome(record, payload_of(body, Outcome))
            self._final_head = head
        elif body.step == tag_of(Receipt):
            require(body.seen == self._protocol.client_heads.get(body.receiver), record, "a receipt for another head")
        elif body.step == tag_of(Abort):
            self._check_end(record, body)
        else:
            self._check_due(record, body)

    def _check_end(self, record: Record, body: FrameBody) -> None:
        """Check an Abort: to everyone with the decided reason, or to one client that the session left out."""
        if body.receiver != EVERYONE:
            is_left_out = self._protocol.is_left_out(body.receiver)
            require(is_left_out, record, "tells a client that it came too late, which the session goes on with")
            return
        is_decided = self._aborted is not None and payload_of(body, Abort).reason == self._aborted[:2000]
        require(is_decided, record, "announces an abort that was not decided")
        self._has_announced_end = True

    def _check_request(self, record: Record, declared: SumToDeclare, request: Any) -> None:
        """Recompute the sum that the key holder got from the uploads."""
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
        if isinstance(ready, Drawn):
            require(
                outcome == outcome_of_draw(ready.members, ready.seed), record, "the outcome is not that of the draw"
            )
        elif not self._lacks_vectors():
            result = self._open(ready)
            is_sum = result.aggregate_sha256 == outcome.aggregate_sha256
            require(is_sum, record, "the published sum is not that of the uploads")
            self._head_agrees = result.artifact_sha256 == outcome.head_sha256
            self._left_open = (IMPOSSIBLE_SUM,) if result.impossible else ()
        require(peek(record.content).receiver == EVERYONE, record, "the outcome is not for everyone")
        self._left_open = follows(self._setup, outcome, self._folder) or self._left_open
        self._protocol.conclude(outcome)

    def _lacks_vectors(self) -> bool:
        """Whether the vectors that a check needs were all purged: what it would compute again then stays unproven."""
        self._is_purged |= is_purged(self._folder)
        return self._is_purged

    def conclusion(self, records: int) -> dict[str, Any]:
        """Findings of the transcript. Raises TranscriptInvalid when its end is missing."""
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
        if self._setup.is_draw:
            return {
                "session": "the draw follows from all that was received",
                "members": [self._setup.roster.name(member) for member in outcome.members],
                "seed": outcome.aggregate_sha256.hex(),
                "countersigned_by": self._countersigned
                or "nobody: a cut-off end cannot be told from members that left",
            }
        follows = "the published sum follows from all that was received"
        return {
            "session": "every step follows, but the sum was not computed again" if self._is_purged else follows,
            "members": [self._setup.roster.name(member) for member in outcome.members],
            "aggregate_sha256": outcome.aggregate_sha256.hex(),
            "head_sha256": outcome.head_sha256.hex() if any(outcome.head_sha256) else "none: another round follows",
            "head_recomputed_here": agrees if is_computed else "no",
            "countersigned_by": self._countersigned or "nobody: a cut-off end cannot be told from members that left",
        }
