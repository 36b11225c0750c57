"""Every message of a session in its signed frame: replayed, misdirected, reordered, tampered, cut and stretched."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.agreement.roster import Member, Roster
from secagg.errors import MalformedMessage, ProtocolViolation
from secagg.protection.messages import Abort, Acknowledgement, Outcome, Receipt
from secagg.transcript import NOT_SEEN, make_body, open_frame, payload_of, sign_frame
from secagg.wire import MAX_FRAME_BYTES, encode
from tests.protection.masking.tampering import is_refused, refused_as
from tests.protection.rehearsal import SENT, SHOWN, Rehearsal, context_for
from tests.worlds.rosters import identity

PLAN, OTHER_PLAN = b"p" * 32, b"q" * 32
SERVER, SENDER, OTHER = 0, 2, 3
FROM_CLIENTS = (*SENT, "Acknowledgement", "Abort")
FROM_SERVER = (*SHOWN, "Outcome", "Receipt", "Abort")
BOTH = [(name, SENDER, SERVER) for name in FROM_CLIENTS] + [(name, SERVER, SENDER) for name in FROM_SERVER]
ROSTER = Roster.of(
    "frames",
    [Member("server", "server", identity(9).public)]
    + [Member(f"c{member}", "client", identity(member).public) for member in (1, 2, 3, 4)],
)
NAMES = {SERVER: "server", SENDER: "c2", OTHER: "c3"}
each_message = pytest.mark.parametrize(("name", "sender", "receiver"), BOTH, ids=str)


@cache
def payload(name: str) -> Any:
    """The message of this class of one honest session."""
    if name in SENT:
        return Rehearsal(context_for(4)).until_said(name).outbox[SENDER]
    if name in SHOWN:
        return Rehearsal(context_for(4)).until_shown(name).inbox[SENDER]
    others = (
        Acknowledgement(bytes(32), bytes(32), bytes(32)),
        Outcome((1, 2), bytes(32), bytes(32)),
        Receipt(),
        Abort("no"),
    )
    return next(message for message in others if type(message).__name__ == name)


def signer(sender: int) -> Any:
    """The identity key of a party."""
    return identity(sender or 9)


@cache
def frame(name: str, sender: int, receiver: int, plan: bytes = PLAN) -> bytes:
    """The signed frame around a message."""
    return sign_frame(signer(sender), make_body(plan, sender, receiver, bytes(32), NOT_SEEN, payload(name)))


@each_message
def test_honest_frames_open(name: str, sender: int, receiver: int) -> None:
    """What was signed for this session, sender and receiver opens and carries the message."""
    body = open_frame(frame(name, sender, receiver), ROSTER, PLAN, sender, receiver)
    assert payload_of(body, type(payload(name))) == payload(name)


@each_message
def test_frames_of_another_session_are_refused(name: str, sender: int, receiver: int) -> None:
    """A frame that was signed under another plan is refused, whoever replays it."""
    replayed = frame(name, sender, receiver, OTHER_PLAN)
    refused_as(sender, "another session or plan", open_frame, replayed, ROSTER, PLAN, sender, receiver)


@each_message
def test_frames_of_another_member_are_refused(name: str, sender: int, receiver: int) -> None:
    """A frame does not pass for one of another member, even when that one signs it in the first one's name."""
    refused_as(
        3, "not signed by its identity", open_frame, frame(name, sender, receiver), ROSTER, PLAN, OTHER, receiver
    )
    body = make_body(PLAN, sender, receiver, bytes(32), NOT_SEEN, payload(name))
    forged = sign_frame(signer(OTHER), body)
    refused_as(sender, "not signed by its identity", open_frame, forged, ROSTER, PLAN, sender, receiver)
    refused_as(3, "another member's name", open_frame, forged, ROSTER, PLAN, OTHER, receiver)


@each_message
def test_frames_for_another_member_are_refused(name: str, sender: int, receiver: int) -> None:
    """A frame that is addressed to somebody else is refused."""
    misdirected = frame(name, sender, OTHER)
    refused_as(sender, "addressed to another", open_frame, misdirected, ROSTER, PLAN, sender, receiver)


def test_only_the_server_speaks_to_everyone() -> None:
    """The server's frame to everyone opens for each client; a client's frame to the server opens for no client."""
    shown = frame("Survivors", SERVER, 0)
    assert open_frame(shown, ROSTER, PLAN, SERVER, SENDER) == open_frame(shown, ROSTER, PLAN, SERVER, OTHER)
    refused_as(2, "addressed to another", open_frame, frame("Opening", SENDER, 0), ROSTER, PLAN, SENDER, OTHER)


@each_message
def test_messages_of_another_step_are_refused(name: str, sender: int, receiver: int) -> None:
    """A frame of one step gives no message of any other, however alike the bytes are."""
    body = open_frame(frame(name, sender, receiver), ROSTER, PLAN, sender, receiver)
    for other in {*FROM_CLIENTS, *FROM_SERVER} - {name}:
        with pytest.raises(MalformedMessage, match="is awaited at this step"):
            payload_of(body, type(payload(other)))


@each_message
@given(st.data())
def test_tampered_frames_are_refused(name: str, sender: int, receiver: int, data: st.DataObject) -> None:
    """A frame with any byte changed, cut off or added is refused."""
    right = frame(name, sender, receiver)
    place = data.draw(st.integers(0, len(right) - 1))
    flip = data.draw(st.integers(1, 255))
    for wrong in (
        right[:place] + bytes([right[place] ^ flip]) + right[place + 1 :],
        right[:place],
        right[:place] + right[place + 1 :],
        right[:place] + bytes([flip]) + right[place:],
        right + bytes([flip]),
    ):
        if wrong != right:
            assert is_refused(sender, open_frame, wrong, ROSTER, PLAN, sender, receiver)


@pytest.mark.parametrize("sender", [SERVER, SENDER])
def test_oversized_frames_are_not_written(sender: int) -> None:
    """A payload above the limit is refused before anything is signed."""
    body = make_body(PLAN, sender, SENDER - sender, bytes(32), NOT_SEEN, Receipt())
    with pytest.raises(MalformedMessage, match="payload: length"):
        encode(type(body)(**{**vars(body), "payload": bytes(MAX_FRAME_BYTES + 1)}))


def test_signatures_of_frames_serve_nothing_else() -> None:
    """A frame's signature does not verify as the signature of what it carries, nor the other way round."""
    sent = payload("Endorsement")
    frame_of_it = frame("Endorsement", SENDER, SERVER)
    body = open_frame(frame_of_it, ROSTER, PLAN, SENDER, SERVER)
    swapped = frame_of_it[:-64] + sent.signature
    with pytest.raises(ProtocolViolation, match="not signed"):
        open_frame(swapped, ROSTER, PLAN, SENDER, SERVER)
    assert payload_of(body, type(sent)).signature != frame_of_it[-64:]
