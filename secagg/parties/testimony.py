"""Offline verification of the transcript of a party that is not the server: what it was told and what it gave."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secagg.errors import BadInput, TranscriptInvalid
from secagg.parties.result import check_outcome
from secagg.parties.setup import SessionSetup
from secagg.parties.staging import read_vector
from secagg.protection.messages import Abort, Outcome, Receipt
from secagg.protection.sharing.binding import receipt_is_signed
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.messages import ShareManifest, ShareReceipt
from secagg.roster import SERVER_INDEX
from secagg.transcript import NOT_SEEN, FrameBody, Record, chain, open_frame, payload_of, peek


def require(holds: bool, record: Record, problem: str) -> None:
    """Raise TranscriptInvalid for the record unless it holds."""
    if not holds:
        raise TranscriptInvalid(record.index, problem)


class MemberVerifier:
    """Checks the transcript of a client, an aggregator or a key holder; its own frames say whose it is."""

    def __init__(self, setup: SessionSetup, records: Sequence[Record], folder: Path) -> None:
        own = [peek(record.content).sender for record in records if record.kind == "sent"]
        self._setup = setup
        self._folder = folder
        self._me = own[0] if own else SERVER_INDEX
        self._server_heads = {NOT_SEEN}
        self._own_heads: list[bytes] = []
        self._said: dict[str, str] = {}
        self._receipts: list[str] = []
        self._uploads = 0
        self._is_countersigned = False

    @property
    def role(self) -> str:
        """The party's role in the roster; a client that has sent nothing does not say more."""
        roster = self._setup.roster
        return roster.role(self._me) if 0 < self._me < len(roster.members) else "client"

    def check(self, record: Record) -> None:
        """Take in one record. Raises TranscriptInvalid, MalformedMessage or ProtocolViolation."""
        if record.kind == "policy":
            self._said["policy"] = hashlib.sha256(record.content).hexdigest()
        elif record.kind == "ledger":
            self._said["ledger"] = record.content.hex()
        elif record.kind == "aborted":
            self._said["aborted"] = record.content.decode(errors="replace")
        elif record.kind == "sent":
            self._check_sent(record)
        else:
            require(record.kind == "received", record, f"the transcript of a {self.role} holds no {record.kind}")
            self._check_received(record)

    def _check_sent(self, record: Record) -> None:
        body = peek(record.content)
        open_frame(record.content, self._setup.roster, self._setup.context.plan, self._me, body.receiver)
        require(body.head == record.previous, record, "a frame states another head than the transcript's")
        if body.receiver == SERVER_INDEX:
            require(body.seen in self._server_heads, record, "has seen another transcript of the server")
            self._own_heads.append(chain(body.head, "sent", record.content))

    def _check_received(self, record: Record) -> None:
        body = peek(record.content)
        receiver = self._me if self._me != SERVER_INDEX else body.receiver
        open_frame(record.content, self._setup.roster, self._setup.context.plan, body.sender, receiver)
        if body.sender == SERVER_INDEX:
            self._check_servers(record, body)
        elif body.step == ShareManifest.__name__:
            self._check_upload(record, body)
        else:
            self._check_receipt(record, body)

    def _check_servers(self, record: Record, body: FrameBody) -> None:
        self._server_heads.add(chain(body.head, "sent", record.content))
        own = self._own_heads if body.step == Abort.__name__ else self._own_heads[-1:]  # it says what came too late
        require(body.seen in (NOT_SEEN, *own), record, "the server has seen another transcript")
        self._is_countersigned = body.step == Receipt.__name__
        if body.step == Outcome.__name__:
            outcome = payload_of(body, Outcome)
            check_outcome(self._setup, outcome)
            self._said["outcome"] = outcome.aggregate_sha256.hex()

    def _check_upload(self, record: Record, body: FrameBody) -> None:
        """An aggregator keeps the very share that the client signed."""
        manifest: ShareManifest = payload_of(body, ShareManifest)
        place = list(self._setup.context.seconds).index(self._me)
        try:
            read_vector(self._folder, self._setup.roster.name(body.sender), body.sender, manifest.digests[place])
        except BadInput as error:
            raise TranscriptInvalid(record.index, str(error)) from None
        self._uploads += 1

    def _check_receipt(self, record: Record, body: FrameBody) -> None:
        """A client keeps receipts that its aggregators really signed."""
        receipt: ShareReceipt = payload_of(body, ShareReceipt)
        context = self._setup.context
        require(
            isinstance(context, SharedContext)
            and body.sender in context.seconds
            and receipt.aggregator == context.number_of(body.sender)
            and receipt.client == self._me
            and receipt_is_signed(context, receipt),
            record,
            "a receipt is not its aggregator's for this client",
        )
        self._receipts.append(self._setup.roster.name(body.sender))

    def conclusion(self, records: int) -> dict[str, Any]:
        """What the transcript proves. Raises TranscriptInvalid when its end is missing."""
        if "aborted" in self._said:
            return {"session": f"aborted: {self._said['aborted']}"}
        of_client = {
            "policy_sha256": self._said.get("policy", "-"),
            "ledger_row_sha256": self._said.get("ledger", "-"),
        }
        found: dict[str, Any] = of_client if self.role == "client" else {}
        if self._receipts:
            found["receipts_from"] = self._receipts
        if self._uploads:
            found["uploads"] = self._uploads
        if "outcome" not in self._said:
            if not (self._setup.protection.speaks_once and "ledger" in self._said):
                raise TranscriptInvalid(records, "the transcript ends before the session's outcome")
            return {"session": "this client has uploaded and has not fetched the outcome", **found}
        return {
            "session": f"this {self.role}'s part is complete and every frame is signed",
            **found,
            "aggregate_sha256": self._said["outcome"],
            "countersigned_by_server": self._is_countersigned,
        }
