"""Offline verification of one party's transcript: of a client, an aggregator, a key holder, or the server.

For the server's the same protocol runs again, and the sum is computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import COUNTS, ProtocolViolation, SessionAborted, TranscriptInvalid
from secagg.protection import Handover, Script, SumToDeclare, SumToOpen
from secagg.protection.draw import Drawn
from secagg.protection.interface import Acceptance
from secagg.protection.messages import Abort, Acknowledgement, Attachment, Confirmation, Outcome, Receipt, Taken
from secagg.protection.proven_bits import PROVEN_CENSUS
from secagg.session.outcome import (
    PURGED,
    SILENT,
    SUM_GONE,
    UNCONFIRMED,
    UNSIGNED_END,
    UNSIGNED_REASON,
    Caveat,
    SumResult,
    follows,
    open_sum,
    require,
)
from secagg.session.round_setup import RoundSetup
from secagg.session.rounds import check_confirmation, outcome_of_draw
from secagg.session.server_protocol import ServerProtocol
from secagg.session.staging import is_purged, read_vector
from secagg.transcript import EVERYONE, NOT_SEEN, FrameBody, Record, chain, open_frame, payload_of, peek
from secagg.wire import decode, encode, tag_of


class MemberVerifier:
    """Verifier of a client's or helper's transcript; `author` is None for a client that has sent nothing."""

    def __init__(self, setup: RoundSetup, author: int | None, folder: Path) -> None:
        self._setup = setup
        self._folder = folder
        self.author = author
        self.outcome: Outcome | None = None
        self.signers: set[int] = set()
        self._server_heads = {NOT_SEEN}
        self._own_heads: list[bytes] = []
        self._said: dict[str, str] = {}
        self._announced: list[str] = []
        self._receipts: set[int] = set()
        self._uploaders: set[int] = set()
        self._is_countersigned = False
        self._is_confirmed = False
        self._sent: dict[bytes, str] = {}
        self._taken: Acceptance | None = None
        self._has_revealed = False
        self._lacks_vectors = False
        self._left_open: tuple[Caveat, ...] = ()
        self._heard: list[FrameBody] = []

    @property
    def role(self) -> str:
        """The party's role in the roster."""
        return "client" if self.author is None else self._setup.roster.role(self.author)

    @property
    def doubts(self) -> tuple[Caveat, ...]:
        """Points that the transcript leaves unproven (caveats), complete once every record is checked."""
        return (
            *((SILENT,) if self.author is None and not self._setup.is_end else ()),
            *self._doubts_of_end,
            *((PURGED,) if self._lacks_vectors else ()),
            *((UNCONFIRMED,) if self.outcome is not None and not self._is_confirmed else ()),
            *self._left_open,
        )

    @property
    def _doubts_of_end(self) -> tuple[Caveat, ...]:
        """The caveat if no signed frame confirms a recorded abort, or none confirms its reason; else ()."""
        if "aborted" not in self._said:
            return ()
        if not self._announced:
            return (UNSIGNED_END,)
        stated = {each[:2000] for each in (self._said["aborted"], str(SessionAborted(self._said["aborted"])))}
        return () if stated & set(self._announced) else (UNSIGNED_REASON,)

    @property
    def proves(self) -> str:
        """Sentence that says what the transcript proves, valid once every record is checked."""
        rules, outcome = self._setup.protocol.release, self.outcome
        is_opened = outcome is not None and outcome.release and SUM_GONE not in self._left_open
        if rules is None or not is_opened:
            return self._script.proves
        return PROVEN_CENSUS if self._setup.context.proves_bits else rules.proves

    def check(self, record: Record) -> None:
        """Verify the next record. Raises TranscriptInvalid, ProtocolViolation, MalformedMessage and others."""
        if record.kind in ("policy", "ledger") and self.role == "client":
            self._check_own(record)
        elif record.kind == "aborted":
            self._said["aborted"] = record.content.decode(errors="replace")
        elif record.kind == "sent":
            self._check_sent(record)
        elif record.kind == "confirmed":
            self._check_confirmation(record, decode(Confirmation, record.content))
        else:
            require(record.kind == "received", record, f"the transcript of a {self.role} holds no {record.kind}")
            self._check_received(record)

    @property
    def _script(self) -> Script:
        protection = self._setup.protocol
        is_client = self.author is None or self.author in self._setup.context.identities
        return protection.client if is_client or protection.helper is None else protection.helper

    def _check_own(self, record: Record) -> None:
        """Check a client's record of its policy or of its ledger's row: each stands once, before what depends on it."""
        is_late = "uploaded" in self._said or (record.kind == "policy" and bool(self._own_heads))
        require(not is_late, record, f"the {record.kind} comes after what it led to")
        require(record.kind not in self._said, record, f"a second {record.kind}")
        digest = hashlib.sha256(record.content).digest() if record.kind == "policy" else record.content
        require(len(digest) == hashlib.sha256().digest_size, record, "the digest of a ledger's row has another size")
        self._said[record.kind] = digest.hex()

    def _check_sent(self, record: Record) -> None:
        peeked = peek(record.content)
        require(peeked.sender == self.author, record, "it sent a frame in another party's name")
        body = self._open(record, peeked.sender, peeked.receiver)
        require(body.head == record.previous, record, "a frame states another head than the transcript's")
        receivers: AbstractSet[int] = {SERVER_INDEX, *self._setup.context.identities}
        if body.step == tag_of(self._script.announcement) and self.role == "client":
            receivers = self._setup.protocol.receivers(self._setup.context)
            self._said["uploaded"] = body.step
        require(body.receiver in receivers, record, f"the {body.step} is for somebody who gets none")
        if body.receiver == SERVER_INDEX:
            require(body.seen in self._server_heads, record, "has seen another transcript of the server")
            self._sent[hashlib.sha256(record.content).digest()] = body.step
            self._own_heads.append(chain(body.head, "sent", record.content))

    def _check_received(self, record: Record) -> None:
        peeked = peek(record.content)
        require(peeked.sender != self.author, record, "its own frame stands as if it had been received")
        body = self._open(record, peeked.sender, peeked.receiver if self.author is None else self.author)
        if body.sender == SERVER_INDEX:
            self._check_servers(record, body)
            return
        handover = self._setup.protocol.handover
        if handover is None:
            raise TranscriptInvalid(record.index, f"a {self.role} is sent no {body.step} but by the server")
        if body.step == tag_of(handover.upload):
            self._check_upload(record, body, handover)
        else:
            receipt, me = payload_of(body, handover.receipt), self.author  # a client keeps those signed for it alone
            is_signed = me is not None and handover.is_receipt(self._setup.context, receipt, body.sender, me)
            require(is_signed, record, "a receipt is not its aggregator's for this client")
            self._receipts.add(body.sender)

    def _open(self, record: Record, sender: int, receiver: int) -> FrameBody:
        """Check a frame's signature and note its signer."""
        setup = self._setup
        body = open_frame(record.content, setup.roster, setup.context.round_digest, sender, receiver)
        self.signers.add(body.sender)
        if body.step == tag_of(Abort):
            self._announced.append(payload_of(body, Abort).reason)
        self._has_revealed |= body.step == tag_of(setup.protocol.reveals)
        return body

    def _check_servers(self, record: Record, body: FrameBody) -> None:
        self._server_heads.add(chain(body.head, "sent", record.content))
        own = self._own_heads if body.step == tag_of(Abort) else self._own_heads[-1:]  # it says what came too late
        require(body.seen in (NOT_SEEN, *own), record, "the server has seen another transcript")
        if body.step == tag_of(Receipt):
            self._is_countersigned = body.seen in own
        self._check_taken(record, body)
        if body.step == tag_of(Confirmation):
            self._check_confirmation(record, payload_of(body, Confirmation))
        if body.step == tag_of(Outcome):
            outcome = payload_of(body, Outcome)
            require(self.outcome in (None, outcome), record, "the server announces a second outcome")
            require(set(outcome.members) <= set(self._setup.context.clients), record, "the outcome names strangers")
            self._left_open = follows(self._setup, outcome, self._folder, self._heard)
            self.outcome = outcome
        self._heard.append(body)

    def _check_confirmation(self, record: Record, shown: Confirmation) -> None:
        if self.outcome is None:
            raise TranscriptInvalid(record.index, "a confirmation before the outcome")
        try:
            check_confirmation(self._setup, self.outcome, shown)
        except ProtocolViolation as error:
            if record.kind != "confirmed":
                raise
            raise TranscriptInvalid(record.index, f"what was gathered {error.problem}") from None  # not by the server
        self._is_confirmed = True

    def _check_taken(self, record: Record, body: FrameBody) -> None:
        """Check the server's signed acceptance, and that nothing that it signs later leaves the client out.

        Raises ProtocolViolation (the server) where that does.
        """
        acceptance, roster = self._setup.protocol.acceptance, self._setup.roster
        if body.step == tag_of(Taken):
            step = self._sent.get(payload_of(body, Taken).frame)
            is_own = acceptance is not None and step == tag_of(acceptance.message) and self.role == "client"
            require(is_own, record, "the server has accepted what was not sent")
            self._taken = acceptance
        if self._taken is None or self.author is None:
            return
        listed = [payload_of(body, each).members for each in self._taken.lists if body.step == tag_of(each)]
        is_broken = any(self.author not in members for members in listed)
        if body.step == tag_of(Abort):
            reason, is_personal = payload_of(body, Abort).reason, body.receiver != EVERYONE
            is_broken = self._taken.is_broken_by(reason, roster.name(self.author), is_personal=is_personal)
        if is_broken:
            raise ProtocolViolation(SERVER_INDEX, self._taken.broken)

    def _check_upload(self, record: Record, body: FrameBody, handover: Handover) -> None:
        """Check that the bytes that a helper stored are those that the client signed."""
        context, me = self._setup.context, self.author
        if me is None or me not in self._setup.protocol.receivers(context):
            raise TranscriptInvalid(record.index, f"a {self.role} is sent no {body.step}")
        digest = handover.kept(context, payload_of(body, handover.upload), body.sender, me)
        if digest is None:
            raise TranscriptInvalid(record.index, "an upload is not its client's for these aggregators")
        self._uploaders.add(body.sender)
        self._lacks_vectors = is_purged(self._folder)
        if not self._lacks_vectors:
            read_vector(self._folder, self._setup.roster.name(body.sender), body.sender, digest)

    def conclusion(self, records: int) -> dict[str, Any]:
        """Return the findings as JSON values by name. Raises TranscriptInvalid if the session's end is missing."""
        if "aborted" in self._said:
            said = {"session": f"aborted: {self._said['aborted']}", "released": self._say_released()}
            return said | self._say_taken()
        of_client = {"policy_sha256": self._said.get("policy", "-"), "ledger_row_sha256": self._said.get("ledger", "-")}
        found: dict[str, Any] = of_client if self.role == "client" else {}
        found |= self._say_taken()
        if self._receipts:
            found["receipts_from"] = [self._setup.roster.name(each) for each in sorted(self._receipts)]
        if self._uploaders:
            found["uploads"] = len(self._uploaders)
        if self._setup.is_end:
            return {"session": "this client was not in the last round, and others have signed the result for it"}
        if self.author is None:
            return {"session": "this client has sent nothing yet", **found}
        if self.outcome is None:
            if not (self._setup.protocol.speaks_once and "uploaded" in self._said):
                raise TranscriptInvalid(records, "the transcript ends before the session's outcome")
            return {"session": "this client has uploaded and has not fetched the outcome", **found}
        return {
            "session": f"this {self.role}'s part is complete",
            **found,
            "aggregate_sha256": self.outcome.aggregate_sha256.hex(),
            "confirmed": self._is_confirmed,
            "countersigned_by_server": self._is_countersigned,
        }

    def _say_taken(self) -> dict[str, Any]:
        """Return whether the server has signed for what this client sent; no value where it had nothing to sign for."""
        acceptance = self._setup.protocol.acceptance
        has_sent = acceptance is not None and tag_of(acceptance.message) in self._sent.values()
        return {"accepted_by_server": self._taken is not None} if has_sent and self.role == "client" else {}

    def _say_released(self) -> str:
        """Return in words whether an aborted session counts as a release, as far as this party can know."""
        if self._has_revealed:
            return f"yes: {self._setup.protection.revealed}; {COUNTS}"
        if self.role != "client":
            return f"not by this {self.role}"
        if {"uploaded", "ledger"} & set(self._said):
            return f"perhaps: an upload may have left, and whether others opened it stands elsewhere; {COUNTS}"
        return "no, says this client: it has uploaded nothing"


class ServerVerifier:
    """Verifier of a server's transcript, which replays the records through the server's protocol."""

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
        self._said: list[FrameBody] = []
        self.signers: set[int] = set()

    @property
    def outcome(self) -> Outcome | None:
        """The outcome that the server published; None as long as no checked record holds one."""
        return self._protocol.outcome

    @property
    def proves(self) -> str:
        """Sentence that says what the transcript proves, valid once every record is checked."""
        ended = "the session ended for the stated reason, and no sum was published"
        if self._aborted is not None:
            return ended
        is_census = self.outcome is not None and self._setup.context.proves_bits and SUM_GONE not in self._left_open
        return PROVEN_CENSUS if is_census else self._setup.protocol.proves

    @property
    def doubts(self) -> tuple[Caveat, ...]:
        """Points that the transcript leaves unproven (caveats), complete once every record is checked."""
        is_cut_off = self._aborted is not None and not self._has_announced_end
        is_unconfirmed = self._protocol.outcome is not None and not self._protocol.is_confirmed
        found = (UNSIGNED_END, is_cut_off), (PURGED, self._is_purged), (UNCONFIRMED, is_unconfirmed)
        return (*(doubt for doubt, holds in found if holds), *self._left_open)

    def check(self, record: Record) -> None:
        """Verify the next record. Raises TranscriptInvalid, ProtocolViolation, MalformedMessage and others."""
        if record.kind == "received":
            self._check_received(record)
        elif record.kind == "closed":
            require(record.content.decode(errors="replace") == self._protocol.awaits, record, "closes another step")
            self._protocol.close()
        elif record.kind == "aborted":
            self._aborted = record.content.decode(errors="replace")
            is_reason = self._aborted in (self._protocol.cancellation or None, self._reason_to_abort())
            require(is_reason, record, "the session was aborted without that reason")
            self._protocol.abort(self._aborted)
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
        return open_sum(self._setup, ready, self._folder, self._protocol.uploads, self._protocol.upload_frames)

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
        elif body.step == tag_of(Taken):
            is_taken = self._protocol.is_acceptance(body.receiver, payload_of(body, Taken))
            require(is_taken, record, "signs that it has accepted what it has not")
        elif body.step == tag_of(Receipt):
            require(body.seen == self._protocol.client_heads.get(body.receiver), record, "a receipt for another head")
        elif body.step == tag_of(Abort):
            if body.receiver != EVERYONE:
                is_left_out = self._protocol.is_left_out(body.receiver)
                require(is_left_out, record, "tells a client that it came too late, which the session goes on with")
                return
            is_decided = self._aborted is not None and payload_of(body, Abort).reason == self._aborted[:2000]
            require(is_decided, record, "announces an abort that was not decided")
            self._has_announced_end = True
        else:
            due = self._protocol.due.get(body.step, {})
            require(bool(due), record, f"no {body.step} was due")
            for member in due if body.receiver == EVERYONE else (body.receiver,):
                is_due = member in due and encode(due[member]) == body.payload
                require(is_due, record, f"the {body.step} does not follow")
        self._said.append(body)

    def _check_request(self, record: Record, declared: SumToDeclare, request: Any) -> None:
        if not self._lacks_vectors():
            for member in declared.vectors:
                name, digest = self._setup.roster.name(member), self._protocol.uploads[member].digest
                declared.add(member, read_vector(self._folder, name, member, digest))
            require(declared.is_sum(request), record, "the declared sum is not that of the uploads")
        self._protocol.declare(request)

    def _check_outcome(self, record: Record, outcome: Outcome) -> None:
        """Check the published outcome: compute the sum again from the uploads and the opened shares."""
        ready = self._protocol.sum_to_open
        if ready is None or ready.members != outcome.members or self._protocol.outcome is not None:
            raise TranscriptInvalid(record.index, "the outcome does not follow, or names other clients")
        result: SumResult | None = None
        if isinstance(ready, Drawn):
            is_drawn = outcome == outcome_of_draw(ready.members, ready.seed)
            require(is_drawn, record, "the outcome is not that of the draw")
        elif not self._lacks_vectors():
            result = self._open(ready)
            is_sum = result.aggregate_sha256 == outcome.aggregate_sha256
            require(is_sum, record, "the published sum is not that of the uploads")
            self._head_agrees = result.artifact_sha256 == outcome.head_sha256
            is_released = tuple(map(Attachment.of, result.release)) in ((), outcome.release)
            require(is_released, record, "the released files are not those of the uploads and opened shares")
        require(peek(record.content).receiver == EVERYONE, record, "the outcome is not for everyone")
        self._left_open = follows(self._setup, outcome, self._folder, self._said, result)
        self._protocol.conclude(outcome)

    def _lacks_vectors(self) -> bool:
        """Return whether the vectors were purged, so that the sum cannot be computed again."""
        self._is_purged |= is_purged(self._folder)
        return self._is_purged

    def conclusion(self, records: int) -> dict[str, Any]:
        """Return the findings as JSON values by name. Raises TranscriptInvalid if the session's end is missing."""
        outcome = self._protocol.outcome
        if self._aborted is not None:
            revealed = self._protocol.revealed
            return {
                "session": f"aborted: {self._aborted}",
                "released": f"yes: {revealed}; {COUNTS}" if revealed else "no: nothing that opens the sum was shown",
            }
        if outcome is None:
            raise TranscriptInvalid(records, "the transcript ends before the session's outcome")
        members = [self._setup.roster.name(member) for member in outcome.members]
        signed_by = self._countersigned or "nobody: a cut-off end cannot be told from members that left"
        if self._setup.is_draw:
            said, seed = "the draw follows from all that was received", outcome.aggregate_sha256.hex()
            return {"session": said, "members": members, "seed": seed, "countersigned_by": signed_by}
        agrees = "the same bits" if self._head_agrees else "other bits (another processor or library)"
        if not self._head_agrees and SUM_GONE in self._left_open:
            agrees = "other bits, and its file is gone, so that nobody can say by how much"
        is_computed = not self._is_purged and self._setup.known_round is not None
        follows = "the published sum follows from all that was received"
        return {
            "session": "every step follows, but the sum was not computed again" if self._is_purged else follows,
            "members": members,
            "aggregate_sha256": outcome.aggregate_sha256.hex(),
            "head_sha256": outcome.head_sha256.hex() if any(outcome.head_sha256) else "none: another round follows",
            "head_recomputed_here": agrees if is_computed else "no",
            "countersigned_by": signed_by,
        }
