"""Messages that every protection shares. Bounds and meaning: protos/secagg/v1/session.proto."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from secagg.crypto.labels import digest, number
from secagg.roster import MAX_CLIENTS
from secagg.wire import MAX_PART_BYTES, Items, Length, Range, message

MAX_VECTOR_BYTES = 2**40
"""The largest upload, or sum, that a message announces."""
Index = Annotated[int, Range(1, MAX_CLIENTS)]
Digest = Annotated[bytes, Length(32)]
Signature = Annotated[bytes, Length(64)]
Members = Annotated[tuple[int, ...], Items(1, MAX_CLIENTS, each=Range(1, MAX_CLIENTS), ascending=True)]

Complaints = Annotated[tuple[int, ...], Items(0, MAX_CLIENTS, each=Range(1, MAX_CLIENTS), ascending=True)]


class Announcement:
    """A message with `length` and `digest` (SHA-256) of bytes that follow it in chunks."""

    length: int
    digest: bytes


@message("UploadHeader")
@dataclass(frozen=True)
class UploadHeader(Announcement):
    """Announces a protected vector. `directory` and `dealers` are zero bytes where a protection has none."""

    length: Annotated[int, Range(1, MAX_VECTOR_BYTES)]
    digest: Digest
    directory: Digest
    dealers: Digest
    complaints: Complaints


@message("Outcome")
@dataclass(frozen=True)
class Outcome:
    """Whose vectors are in the sum, and what came of it.

    `broadcast` opens the next round, if there is one; `release` is the opened sum in a plan of several rounds.
    """

    members: Members
    aggregate_sha256: Digest
    head_sha256: Digest
    head: Annotated[bytes, Length(0, MAX_PART_BYTES)]
    broadcast: Annotated[bytes, Length(0, MAX_PART_BYTES)] = b""
    release: Annotated[bytes, Length(0, MAX_PART_BYTES)] = b""


@message("RoundOpening")
@dataclass(frozen=True)
class RoundOpening:
    """What led to round `number` of a plan: the sum of the round before, and what the server told of this one.

    `previous` is the context of the session before (the plan's digest before the second round, `context` before later
    ones), and so binds all that led to it.
    """

    number: Annotated[int, Range(2, 65_536)]
    previous: Digest
    aggregate_sha256: Digest
    broadcast: Annotated[bytes, Length(1, MAX_PART_BYTES)]

    @property
    def context(self) -> bytes:
        """The digest that stands for plan and history in the session that this opens (`SessionContext.plan`)."""
        return digest("round", number(self.number), self.previous, self.aggregate_sha256, self.broadcast)

    def statement(self, plan: bytes) -> bytes:
        """The digest by which a member that followed this opening says so (`Acknowledgement.opens`).

        It names the plan (by digest) too: who did not follow the rounds between cannot tell whose `previous` is.
        """
        return digest("opens", plan, self.context)


@message("Acknowledgement")
@dataclass(frozen=True)
class Acknowledgement:
    """A party has recorded the outcome. `opens` is the `statement` of what that opens, zero after the last round."""

    aggregate_sha256: Digest
    opens: Digest


@message("Return")
@dataclass(frozen=True)
class Return:
    """What opened a round, and the frames in which others said so, for a client that was away."""

    opening: RoundOpening
    acknowledgements: Annotated[tuple[bytes, ...], Items(1, MAX_CLIENTS, each=Length(1, 1024))]


@message("Receipt")
@dataclass(frozen=True)
class Receipt:
    """The server's last word to one client."""


@message("Abort")
@dataclass(frozen=True)
class Abort:
    """The sender has left the session for good."""

    reason: Annotated[str, Length(1, 2000)]
