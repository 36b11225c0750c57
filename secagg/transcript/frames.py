"""Frames: what one party says to another, signed, with the heads of both transcripts.

The hash chain: records, and the head that commits to all of them. Format: protos/secagg/v1/transcript.proto.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from secagg.agreement.roster import MAX_INDEX, SERVER_INDEX, Roster
from secagg.crypto.labels import digest
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.errors import MalformedMessage, ProtocolViolation
from secagg.wire import MAX_FRAME_BYTES, Length, Range, Text, decode, encode, message, tag_of

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


EVERYONE = 0
NOT_SEEN = bytes(32)


@message("Frame")
@dataclass(frozen=True)
class Frame:
    """Signed bytes."""

    body: Annotated[bytes, Length(1, MAX_FRAME_BYTES)] = field(repr=False)
    signature: Annotated[bytes, Length(64)]


@message("FrameBody")
@dataclass(frozen=True)
class FrameBody:
    """One party's message to another in one round. `step` is the tag of the payload's message."""

    round_digest: Annotated[bytes, Length(32)]
    sender: Annotated[int, Range(0, MAX_INDEX)]
    receiver: Annotated[int, Range(0, MAX_INDEX)]
    step: Annotated[str, Text(1, 20)]
    head: Annotated[bytes, Length(32)]
    seen: Annotated[bytes, Length(32)]
    payload: Annotated[bytes, Length(0, MAX_FRAME_BYTES)] = field(repr=False)


def sign_frame(identity: SigningKey, body: FrameBody) -> bytes:
    """The canonical bytes of a signed frame."""
    content = encode(body)
    return encode(Frame(content, identity.sign("frame", content)))


def make_body(round_digest: bytes, sender: int, receiver: int, head: bytes, seen: bytes, payload: Any) -> FrameBody:
    """A frame body around a payload message."""
    return FrameBody(round_digest, sender, receiver, tag_of(type(payload)), head, seen, encode(payload))


def open_frame(data: bytes, roster: Roster, round_digest: bytes, sender: int, receiver: int) -> FrameBody:
    """Check who signed a frame, for which session, and for whom.

    Raises MalformedMessage for bytes that are no frame, ProtocolViolation (culprit: the claimed sender, or
    whoever delivered it) for a wrong signature, session, sender or receiver.
    """
    frame = decode(Frame, data)
    body = decode(FrameBody, frame.body)
    if sender >= len(roster.members):
        raise MalformedMessage("Frame", f"there is no member {sender}")
    if not is_signed(roster.identity(sender), frame.signature, "frame", frame.body):
        raise ProtocolViolation(sender, f"the frame {body.step} is not signed by its identity")
    if body.sender != sender:
        raise ProtocolViolation(sender, "signed a frame in another member's name")
    if body.round_digest != round_digest:
        raise ProtocolViolation(sender, f"the frame {body.step} belongs to another session or plan")
    allowed = (receiver, EVERYONE) if sender == SERVER_INDEX else (receiver,)
    if body.receiver not in allowed:
        raise ProtocolViolation(sender, f"the frame {body.step} is addressed to another member")
    return body


def payload_of(body: FrameBody, expected: type[Any]) -> Any:
    """The payload, which must be of the expected message class. Raises MalformedMessage."""
    if body.step != tag_of(expected):
        raise MalformedMessage(body.step, f"{tag_of(expected)} is awaited at this step")
    return decode(expected, body.payload)


def peek(data: bytes) -> FrameBody:
    """The body of a frame without any check of who signed it: for a party's own records, and to find the sender."""
    return decode(FrameBody, decode(Frame, data).body)
