"""The hash chain: records, and the head that commits to all of them. Format: protos/secagg/v1/transcript.proto."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from secagg.crypto.labels import digest
from secagg.wire import MAX_FRAME_BYTES, Length, Range, Text, message

Kind = Literal[
    "salt", "plan", "roster", "draw", "round", "return", "policy", "ledger", "received", "sent", "closed", "aborted"
]
MAGIC = b"secagg/records/1"
START = bytes(32)


@message("Record")
@dataclass(frozen=True)
class Record:
    """One thing that a party received, sent or decided."""

    index: Annotated[int, Range(0, 2**40)]
    previous: Annotated[bytes, Length(32)]
    kind: Annotated[str, Text(1, 20)]
    content: Annotated[bytes, Length(0, MAX_FRAME_BYTES)]

    @property
    def head(self) -> bytes:
        """The head after this record."""
        return chain(self.previous, self.kind, self.content)


def chain(head: bytes, kind: str, content: bytes) -> bytes:
    """The head after a record of `kind` and `content` that follows `head`.

    Whoever receives a frame that states its sender's head can compute the sender's next head with it.
    """
    return digest("record", head, kind.encode(), content)
