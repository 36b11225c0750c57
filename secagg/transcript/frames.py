"""Frames: signed messages between parties, each with the hash-chain heads of sender's and receiver's transcripts.

A transcript's records form a hash chain, whose head commits to all of them. Format: protos/secagg/v1/transcript.proto.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from secagg.agreement.roster import MAX_INDEX, SERVER_INDEX, Roster
from secagg.crypto.labels import digest
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.errors import MalformedMessage, ProtocolViolation
from secagg.wire import MAX_FRAME_BYTES, Length, Range, Text, decode, encode, message, tag_of

_Beginning = Literal["salt", "plan", "roster", "draw", "round", "return"]
Kind = Literal[_Beginning, "policy", "ledger", "received", "sent", "confirmed", "closed", "aborted"]
MAGIC = b"secagg/records/1"
START = bytes(32)


@message("Record")
@dataclass(frozen=True)
class Record:
    """One entry of a transcript: what a party received, sent or decided."""

    index: Annotated[int, Range(0, 2**40)]
    previous: Annotated[bytes, Length(32)]
    kind: Annotated[str, Text(1, 20)]
    content: Annotated[bytes, Length(0, MAX_FRAME_BYTES)]

    @property
    def head(self) -> bytes:
        """Head of the transcript's hash chain after this record, 32 bytes."""
        return chain(self.previous, self.kind, self.content)


def chain(head: bytes, kind: str, content: bytes) -> bytes:
    """Return the head of the hash chain after a record of this `kind` and `content`, given the `head` before it.

    Whoever receives a frame that states its sender's head can compute the sender's next head with it.
    """
    return digest("record", head, kind.encode(), content)


EVERYONE = 0
NOT_SEEN = bytes(32)


@message("Frame")
@dataclass(frozen=True)
class Frame:
    """A signed message between parties: the encoded `FrameBody` and its sender's signature."""

    body: Annotated[bytes, Length(1, MAX_FRAME_BYTES)] = field(repr=False)
    signature: Annotated[bytes, Length(64)]


@message("FrameBody")
@dataclass(frozen=True)
class FrameBody:
    """One party's message to another in one round. `step` is the name of the payload's message class on the wire."""

    round_digest: Annotated[bytes, Length(32)]
    sender: Annotated[int, Range(0, MAX_INDEX)]
    receiver: Annotated[int, Range(0, MAX_INDEX)]
    step: Annotated[str, Text(1, 20)]
    head: Annotated[bytes, Length(32)]
    seen: Annotated[bytes, Length(32)]
    payload: Annotated[bytes, Length(0, MAX_FRAME_BYTES)] = field(repr=False)


def sign_frame(identity: SigningKey, body: FrameBody) -> bytes:
    """Sign a message's body; return the canonical bytes of the signed message (frame)."""
    content = encode(body)
    return encode(Frame(content, identity.sign("frame", content)))


def make_body(round_digest: bytes, sender: int, receiver: int, head: bytes, seen: bytes, payload: Any) -> FrameBody:
    """Build the body of a signed message (frame) that carries `payload`."""
    return FrameBody(round_digest, sender, receiver, tag_of(type(payload)), head, seen, encode(payload))


def open_frame(data: bytes, roster: Roster, round_digest: bytes, sender: int, receiver: int) -> FrameBody:
    """Decode a signed message (frame); check that `sender` signed it for this round and this receiver.

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
    """Decode the payload of a message's body, which must be of the class `expected`. Raises MalformedMessage."""
    if body.step != tag_of(expected):
        raise MalformedMessage(body.step, f"{tag_of(expected)} is awaited at this step")
    return decode(expected, body.payload)


def peek(data: bytes) -> FrameBody:
    """Decode a signed message's body without checking the signature, for own records or to learn the sender."""
    return decode(FrameBody, decode(Frame, data).body)
