"""Frames: signed, for one session, from one member to one other."""

import hashlib
import json
from dataclasses import replace

import pytest

from secagg.agreement.plan import Plan
from secagg.agreement.roster import Member, Roster
from secagg.crypto.signatures import SigningKey
from secagg.errors import MalformedMessage, ProtocolViolation
from secagg.protection.messages import Abort, Receipt
from secagg.randomness import OperatingSystem
from secagg.transcript import EVERYONE, NOT_SEEN, FrameBody, make_body, open_frame, payload_of, peek, sign_frame
from secagg.wire import decode, encode, from_json
from tests.vectors.files import load
from tests.vectors.protobuf import canonical

SIGNED = load("signed")
KEYS = [SigningKey.generate(OperatingSystem()) for _ in range(3)]
ROSTER = Roster.of(
    "frames",
    [
        Member("server", "server", KEYS[0].public),
        Member("a", "client", KEYS[1].public),
        Member("b", "client", KEYS[2].public),
    ],
)
PLAN = bytes([3]) * 32
BODY = make_body(PLAN, 1, 0, bytes(32), NOT_SEEN, Abort("why"))


def test_frame_opens_to_its_body() -> None:
    """What was signed is what is opened."""
    frame = sign_frame(KEYS[1], BODY)
    assert open_frame(frame, ROSTER, PLAN, 1, 0) == BODY == peek(frame)
    assert payload_of(BODY, Abort) == Abort("why")


@pytest.mark.parametrize(
    ("key", "change", "culprit", "words"),
    [
        (2, {}, 1, "not signed by its identity"),
        (0, {}, 1, "not signed by its identity"),
        (1, {"sender": 2}, 1, "another member's name"),
        (1, {"sender": 0}, 1, "another member's name"),
        (1, {"round_digest": bytes(32)}, 1, "another session or plan"),
        (1, {"receiver": 2}, 1, "addressed to another member"),
    ],
)
def test_frame_that_is_not_what_it_should_be(key: int, change: dict[str, int], culprit: int, words: str) -> None:
    """Wrong signer, sender, session or receiver is refused and the member that brought it is named."""
    with pytest.raises(ProtocolViolation, match=words) as refusal:
        open_frame(sign_frame(KEYS[key], replace(BODY, **change)), ROSTER, PLAN, 1, 0)
    assert refusal.value.culprit == culprit


def test_only_the_server_speaks_to_everyone() -> None:
    """A frame to everyone opens for any client when the server sends it, and never from client to client."""
    shout = replace(BODY, sender=0, receiver=EVERYONE)
    assert open_frame(sign_frame(KEYS[0], shout), ROSTER, PLAN, 0, 2) == shout
    with pytest.raises(ProtocolViolation, match="addressed to another"):
        open_frame(sign_frame(KEYS[1], BODY), ROSTER, PLAN, 1, 2)


def test_every_flipped_bit_is_refused() -> None:
    """No bit of a frame can change: body, signature and the encoding around them."""
    frame = sign_frame(KEYS[1], BODY)
    for position in range(len(frame)):
        damaged = bytearray(frame)
        damaged[position] ^= 1
        with pytest.raises((ProtocolViolation, MalformedMessage)):
            open_frame(bytes(damaged), ROSTER, PLAN, 1, 0)


def test_every_truncation_and_addition_is_refused() -> None:
    """A frame has exactly its own bytes."""
    frame = sign_frame(KEYS[1], BODY)
    for damaged in (*(frame[:size] for size in range(len(frame))), frame + b"\0", frame + frame):
        with pytest.raises((ProtocolViolation, MalformedMessage)):
            open_frame(damaged, ROSTER, PLAN, 1, 0)


def test_signature_of_another_label_is_no_frame() -> None:
    """A signature that a member gave for something else does not make a frame."""
    from secagg.transcript.frames import Frame
    from secagg.wire import encode

    content = encode(BODY)
    frame = encode(Frame(content, KEYS[1].sign("survivors", content)))
    with pytest.raises(ProtocolViolation, match="not signed"):
        open_frame(frame, ROSTER, PLAN, 1, 0)


def test_payload_of_another_step_is_refused() -> None:
    """A step's name and its payload's class must agree, and the payload must be canonical."""
    with pytest.raises(MalformedMessage, match="Receipt is awaited"):
        payload_of(BODY, Receipt)
    with pytest.raises(MalformedMessage):
        payload_of(replace(BODY, payload=BODY.payload + b"\0"), Abort)


@pytest.mark.parametrize(
    "change", [{"sender": 4114}, {"step": ""}, {"step": "x" * 21}, {"round_digest": b""}, {"head": b"1"}]
)
def test_body_beyond_its_bounds_is_never_signed(change: dict[str, object]) -> None:
    """A body outside the bounds of the format cannot be made into a frame."""
    with pytest.raises(MalformedMessage):
        sign_frame(KEYS[1], FrameBody(**{**vars(BODY), **change}))


@pytest.mark.parametrize(
    "step", ["\x1b[31mSurvivors", "Sur\nvivors", "\u202eSurvivors", "Survivors\u200b", "\x9bA"], ids=ascii
)
def test_step_that_cannot_be_shown_is_no_frame(step: str) -> None:
    """A member's signed frame whose step would colour or break the server's log is refused without quoting it."""
    fields = {
        "round_digest": PLAN.hex(),
        "sender": 1,
        "receiver": 0,
        "step": step,
        "head": "00" * 32,
        "seen": NOT_SEEN.hex(),
    }
    content = canonical("FrameBody", {**fields, "payload": ""})
    frame = canonical("Frame", {"body": content.hex(), "signature": KEYS[1].sign("frame", content).hex()})
    for attempt in (lambda: open_frame(frame, ROSTER, PLAN, 1, 0), lambda: peek(frame)):
        with pytest.raises(MalformedMessage, match="step: it holds the character U") as refusal:
            attempt()
        assert str(refusal.value).isascii()
        assert str(refusal.value).isprintable()


def test_digests_of_plan_and_roster_are_frozen() -> None:
    """The canonical bytes of a plan and a roster, and so their digests, are an independent writer's, for good."""
    for case in SIGNED["hashed"]:
        cls = {"Plan": Plan, "Roster": Roster}[case["message"]]
        value = from_json(cls, json.dumps(case["value"]))
        assert encode(value).hex() == case["bytes"]
        assert value.digest.hex() == case["sha256"] == hashlib.sha256(bytes.fromhex(case["bytes"])).hexdigest()
        assert decode(cls, bytes.fromhex(case["bytes"])) == value


def test_signature_of_a_frame_is_frozen() -> None:
    """Under a published key the vector's frame is made to the bit, and opens under the vector's roster and plan."""
    key, frame = SigningKey.from_bytes(bytes.fromhex(SIGNED["private"])), bytes.fromhex(SIGNED["frame"]["bytes"])
    roster, plan = (
        decode(cls, bytes.fromhex(case["bytes"])) for cls, case in zip((Roster, Plan), SIGNED["hashed"], strict=True)
    )
    body = from_json(FrameBody, json.dumps(SIGNED["frame"]["body"]))
    assert key.public.hex() == SIGNED["public"] == roster.identity(1).hex()
    assert sign_frame(key, body) == frame
    assert open_frame(frame, roster, plan.digest, 1, 0) == body
    assert payload_of(body, Abort) == Abort("to be signed")
