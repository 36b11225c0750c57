"""Offline verification of the transcript of a client, an aggregator or a key holder."""

from __future__ import annotations

import hashlib
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import COUNTS, SessionAborted, TranscriptInvalid
from secagg.protection import Handover, Script
from secagg.protection.messages import Abort, Outcome, Receipt
from secagg.session.caveats import PURGED, SILENT, UNSIGNED_END, UNSIGNED_REASON, Caveat, require
from secagg.session.outcome_check import follows
from secagg.session.round_setup import RoundSetup
from secagg.session.staging import is_purged, read_vector
from secagg.transcript import NOT_SEEN, FrameBody, Record, chain, open_frame, payload_of, peek
from secagg.wire import tag_of


class MemberVerifier:
    """Checks the transcript of a client, an aggregator or a key holder, whose index is `author`.

    None is a client that has sent nothing yet: it cannot be told which.
    """

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
        self._has_revealed = False
        self._lacks_vectors = False
        self._left_open: tuple[Caveat, ...] = ()

    @property
    def role(self) -> str:
        """The party's role in the roster."""
        return "client" if self.author is None else self._setup.roster.role(self.author)

    @property
    def doubts(self) -> tuple[Caveat, ...]:
        """Caveats, once all of it is checked."""
        return (
            *((SILENT,) if self.author is None and not self._setup.is_end else ()),
            *self._doubts_of_end,
            *((PURGED,) if self._lacks_vectors else ()),
            *self._left_open,
        )

    @property
    def _doubts_of_end(self) -> tuple[Caveat, ...]:
        """Whether somebody has signed that it was aborted, and for the reason that the record states."""
        if "aborted" not in self._said:
            return ()
        if not self._announced:
            return (UNSIGNED_END,)
        stated = {each[:2000] for each in (self._said["aborted"], str(SessionAborted(self._said["aborted"])))}
        return () if stated & set(self._announced) else (UNSIGNED_REASON,)

    @property
    def proves(self) -> str:
        """Statement that the transcript proves, once all of it is checked."""
        return self._script.proves

    def check(self, record: Record) -> None:
        """Take in one record. Raises TranscriptInvalid, or what the parts of the protocol raise."""
        if record.kind in ("policy", "ledger") and self.role == "client":
            self._check_own(record)
        elif record.kind == "aborted":
            self._said["aborted"] = record.content.decode(errors="replace")
        elif record.kind == "sent":
            self._check_sent(record)
        else:
            require(record.kind == "received", record, f"the transcript of a {self.role} holds no {record.kind}")
            self._check_received(record)

    @property
    def _script(self) -> Script:
        protection = self._setup.protocol
        is_client = self.author is None or self.author in self._setup.context.identities
        return protection.client if is_client or protection.helper is None else protection.helper

    def _check_own(self, record: Record) -> None:
        """The digests of the policy that was followed, and of the ledger's row, to which what it sent next commits."""
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
            self._check_receipt(record, body, handover)

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
        self._is_countersigned = body.step == tag_of(Receipt) and body.seen in own
        if body.step == tag_of(Outcome):
            outcome = payload_of(body, Outcome)
            require(self.outcome in (None, outcome), record, "the server announces a second outcome")
            require(set(outcome.members) <= set(self._setup.context.clients), record, "the outcome names strangers")
            self._left_open = follows(self._setup, outcome, self._folder)
            self.outcome = outcome

    def _check_upload(self, record: Record, body: FrameBody, handover: Handover) -> None:
        """A helper keeps the very bytes that the client signed."""
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

    def _check_receipt(self, record: Record, body: FrameBody, handover: Handover) -> None:
        """A client keeps receipts that really were signed for it."""
        receipt, me = payload_of(body, handover.receipt), self.author
        is_signed = me is not None and handover.is_receipt(self._setup.context, receipt, body.sender, me)
        require(is_signed, record, "a receipt is not its aggregator's for this client")
        self._receipts.add(body.sender)

    def conclusion(self, records: int) -> dict[str, Any]:
        """Findings of the transcript. Raises TranscriptInvalid when its end is missing."""
        if "aborted" in self._said:
            return {"session": f"aborted: {self._said['aborted']}", "released": self._say_released()}
        of_client = {
            "policy_sha256": self._said.get("policy", "-"),
            "ledger_row_sha256": self._said.get("ledger", "-"),
        }
        found: dict[str, Any] = of_client if self.role == "client" else {}
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
            "countersigned_by_server": self._is_countersigned,
        }

    def _say_released(self) -> str:
        """Whether a session that ended without an outcome counts as a release, as far as this party can tell."""
        if self._has_revealed:
            return f"yes: {self._setup.protection.revealed}; {COUNTS}"
        if self.role != "client":
            return f"not by this {self.role}"
        if {"uploaded", "ledger"} & set(self._said):
            return f"perhaps: an upload may have left, and whether others opened it stands elsewhere; {COUNTS}"
        return "no, says this client: it has uploaded nothing"
