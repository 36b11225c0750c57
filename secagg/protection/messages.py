"""Messages that all protections share; the bounds and meaning of fields are in protos/secagg/v1/session.proto."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from secagg.agreement.roster import MAX_CLIENTS
from secagg.crypto.labels import digest, number
from secagg.wire import Items, Length, Range, Text, encode, message

MAX_VECTOR_BYTES = 2**40
"""The largest upload, or sum, that a message announces."""
MAX_ATTACHED = (1 << 30) + (1 << 20)
"""The largest attachment: a state of 2³⁰ bytes, and its names."""
MAX_DECLINE_REASON = 200
"""The most characters of a reason in a `Decline`."""
Index = Annotated[int, Range(1, MAX_CLIENTS)]
Digest = Annotated[bytes, Length(32)]
Signature = Annotated[bytes, Length(64)]
Members = Annotated[tuple[int, ...], Items(1, MAX_CLIENTS, each=Range(1, MAX_CLIENTS), ascending=True)]

Complaints = Annotated[tuple[int, ...], Items(0, MAX_CLIENTS, each=Range(1, MAX_CLIENTS), ascending=True)]


class Announcement:
    """The interface of a message that announces bytes to follow in chunks, by their `length` and SHA-256 `digest`."""

    length: int
    digest: bytes


class Entries:
    """The base class of messages that hold one signed entry for each member, in order."""

    entries: tuple[Any, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """The indices of the members that have an entry, in order."""
        return tuple(entry.member for entry in self.entries)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the message's canonical encoding, which binds every member and its whole entry."""
        return hashlib.sha256(encode(self)).digest()


@message("UploadHeader")
@dataclass(frozen=True)
class UploadHeader(Announcement):
    """A client's announcement of its vector; the digests `directory` and `dealers` are zero unless it is masked."""

    length: Annotated[int, Range(1, MAX_VECTOR_BYTES)]
    digest: Digest
    directory: Digest
    dealers: Digest
    complaints: Complaints


@message("Attachment")
@dataclass(frozen=True)
class Attachment:
    """A reference, by length and digest, to bytes that are fetched apart from the signed message."""

    length: Annotated[int, Range(1, MAX_ATTACHED)]
    digest: Digest

    @classmethod
    def of(cls, content: bytes) -> Attachment:
        """Return an attachment that refers to these bytes."""
        return cls(len(content), hashlib.sha256(content).digest())

    def names(self, content: bytes) -> bool:
        """Return whether these bytes have the attachment's length and digest."""
        return len(content) == self.length and hashlib.sha256(content).digest() == self.digest


Maybe = Annotated[tuple[Attachment, ...], Items(0, 1)]
"""One attachment, or none."""


@message("Outcome")
@dataclass(frozen=True)
class Outcome:
    """The server's message at a session's end: the clients in the sum, and digests of the results, fetched separately.

    `head` is a file, `broadcast` opens the next round, if there is one, `release` are the files that the opened sum
    follows from: one of the sum itself, in the session's ring, or those of the protection's `SumRelease`.
    """

    members: Members
    aggregate_sha256: Digest
    head_sha256: Digest
    head: Maybe = ()
    broadcast: Maybe = ()
    release: Annotated[tuple[Attachment, ...], Items(0, MAX_CLIENTS + 2)] = ()

    @property
    def attached(self) -> tuple[tuple[Attachment, ...], ...]:
        """The outcome's attachments, each of them optional: the head, the broadcast and the files of the sum."""
        return self.head, self.broadcast, self.release

    @property
    def opens(self) -> Attachment | None:
        """The attached broadcast with which the next round begins; None after the last round."""
        return self.broadcast[0] if self.broadcast else None

    def digest(self, round_digest: bytes) -> bytes:
        """Return the digest by which parties acknowledge this outcome of the round: all fields are bound."""
        return digest("outcome", round_digest, encode(self))


@message("RoundOpening")
@dataclass(frozen=True)
class RoundOpening:
    """The message that begins round `number` of a plan, with digests of the previous sum and the server's broadcast.

    `previous` is the round digest of the round before (the plan's digest before the second round), and so binds all
    that led to it.
    """

    number: Annotated[int, Range(2, 65_536)]
    previous: Digest
    aggregate_sha256: Digest
    broadcast: Attachment

    @property
    def round_digest(self) -> bytes:
        """The digest of plan and history that identifies the round begun here (`SessionContext.round_digest`)."""
        told = self.broadcast.length.to_bytes(8, "big"), self.broadcast.digest
        return digest("round", number(self.number), self.previous, self.aggregate_sha256, *told)

    def statement(self, plan: bytes) -> bytes:
        """Return the digest by which a member states that it followed this opening message (`Acknowledgement.opens`).

        It names the plan (by digest) too: who did not follow the rounds between cannot tell whose `previous` is.
        """
        return digest("opens", plan, self.round_digest)


@message("Acknowledgement")
@dataclass(frozen=True)
class Acknowledgement:
    """A party's message that it checked and recorded the outcome, of which `outcome` is the digest (`Outcome.digest`).

    `opens` is the next opening's `statement`; zero at the end. A client that was away knows the other two alone.
    """

    aggregate_sha256: Digest
    opens: Digest
    outcome: Digest


@message("Confirmation")
@dataclass(frozen=True)
class Confirmation:
    """The frames in which enough parties acknowledged one and the same outcome, for everyone in it."""

    acknowledgements: Annotated[tuple[bytes, ...], Items(1, MAX_CLIENTS, each=Length(1, 1024))]


@message("Return")
@dataclass(frozen=True)
class Return:
    """The opening message of a round, sent to a client that was away, with others' signed acknowledgements."""

    opening: RoundOpening
    acknowledgements: Annotated[tuple[bytes, ...], Items(1, MAX_CLIENTS, each=Length(1, 1024))]


@message("Receipt")
@dataclass(frozen=True)
class Receipt:
    """The server's last message to one client, whose signed frame countersigns the client's transcript."""


@message("Taken")
@dataclass(frozen=True)
class Taken:
    """The server's signed word that it has accepted the `frame` (SHA-256) which announced an upload, or gave a nonce.

    A server that then leaves its sender out is convicted by its own signatures (`Acceptance`).
    """

    frame: Digest


@message("Decline")
@dataclass(frozen=True)
class Decline:
    """A client's signed message that it stays away from a round; the `reason` is its own choice, and may be empty.

    It has the effect of an absence and no other: the receiver does not wait for this client. Its frame stands outside
    the transcripts' chains (`head` and `seen` are zero), and the next new message of the client withdraws it.
    """

    reason: Annotated[str, Text(0, MAX_DECLINE_REASON)] = ""


@message("Abort")
@dataclass(frozen=True)
class Abort:
    """The message by which a party leaves the session for good, with its reason."""

    reason: Annotated[str, Length(1, 2000)]
