"""Frames of whole sessions, each where its receiver takes it, and changes of bytes that Hypothesis draws."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from secagg.agreement.roster import SERVER_INDEX
from secagg.protection.interface import WorkingState
from secagg.protection.sharing.aggregator import Collecting
from secagg.session import MemberSession
from secagg.session.receive_signed import SignedReceiver
from secagg.session.server_protocol import ServerProtocol
from secagg.transcript import open_frame, payload_of, peek, read_transcript, sign_frame
from secagg.transcript.frames import Frame
from secagg.wire import decode, encode, tag_of
from tests.vectors.protobuf import block, varint
from tests.worlds.session import SessionRun, SimulatedSession, make_session

LAYERS = ("frame", "body", "payload")
"""What is changed: all bytes as they come, or what is inside, which its sender then signs."""


@dataclass(frozen=True)
class Place:
    """One frame of a session and its receiver: `begin` makes what takes it, as it was just before; `take` gives it."""

    name: str
    frame: bytes
    sender: int
    begin: Callable[[], Any]
    take: Callable[[Any, bytes], None]


def play(folder: Path, protection: str) -> tuple[SimulatedSession, list[Place]]:
    """A session with all its places: at the server, at clients and helpers, and at aggregators that take uploads."""
    world = make_session(folder, protection=protection, dropouts=0, join_seconds=30, step_seconds=30)
    heard: list[tuple[Any, Any, Any, Any]] = []
    taken: list[tuple[Any, Any, Any, Any, bytes]] = []
    own_step, accept = MemberSession._own_step, Collecting.accept

    async def noting(session: MemberSession, connection: Any, state: Any, incoming: Any) -> Any:
        if not isinstance(state, WorkingState):
            upload = session._upload()  # at the end it is erased
            me = replace(session._me, upload=lambda: upload)
            heard.append((session._context, me, state, incoming))
        return await own_step(session, connection, state, incoming)

    def accepting(state: Collecting, context: Any, me: Any, upload: Any, content: bytes) -> Collecting:
        taken.append((state, context, me, upload, content))
        return accept(state, context, me, upload, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemberSession, "_own_step", noting)
        patch.setattr(Collecting, "accept", accepting)
        asyncio.run(SessionRun(world).run())
    places = [*_at_server(world), *(_at_member(world, *each) for each in heard)]
    return world, places + [_at_aggregator(world, *each) for each in taken]


def _at_server(world: SimulatedSession) -> Iterator[Place]:
    records = read_transcript(world.transcript(SERVER_INDEX))
    for number, record in enumerate(records):
        if record.kind != "received":
            continue

        def begin(before: Sequence[Any] = records[:number]) -> ServerProtocol:
            protocol = ServerProtocol(world.setup)
            for each in before:
                protocol.replay(each)
            return protocol

        def take(protocol: ServerProtocol, frame: bytes, sender: int = peek(record.content).sender) -> None:
            body = protocol.open(sender, frame)
            if protocol.is_wanted(sender, frame, body):
                protocol.take(sender, frame, body)

        body = peek(record.content)
        yield Place(f"{body.step} at the server", record.content, body.sender, begin, take)


def _received(world: SimulatedSession, member: int, message: type, sender: int) -> bytes:
    """A party's frame of this step from this sender, by its transcript."""
    frames = (record.content for record in read_transcript(world.transcript(member)) if record.kind == "received")
    return next(each for each in frames if peek(each).step == tag_of(message) and peek(each).sender == sender)


def _at_member(world: SimulatedSession, context: Any, me: Any, state: Any, incoming: Any) -> Place:
    receiver = SignedReceiver(world.setup, me.member, lambda _: None)

    def take(state: Any, frame: bytes) -> None:
        async def ask() -> bytes:
            return frame

        waited = receiver.receive_signed(SERVER_INDEX, (state.awaits,), ask, patience=-1.0)
        _, body = asyncio.run(waited)
        state.advance(context, me, payload_of(body, state.awaits))

    name = f"{tag_of(type(incoming))} at party {me.member}"
    frame = _received(world, me.member, type(incoming), SERVER_INDEX)
    return Place(name, frame, SERVER_INDEX, lambda: state, take)


def _at_aggregator(
    world: SimulatedSession, state: Collecting, context: Any, me: Any, upload: Any, content: bytes
) -> Place:
    records = [each.content for each in read_transcript(world.transcript(me.member)) if each.kind == "received"]
    frame = next(each for each in records if peek(each).payload == encode(upload))
    sender = peek(frame).sender

    def take(state: Collecting, data: bytes) -> None:
        body = open_frame(data, world.setup.roster, context.round_digest, sender, me.member)
        state.accept(context, me, payload_of(body, type(upload)), content)

    return Place(f"{tag_of(type(upload))} at aggregator {me.member}", frame, sender, lambda: state, take)


def picture(value: Any) -> Any:
    """Everything in a state machine that can change, as values that are compared later; what is frozen by identity."""
    if isinstance(value, bytes | str | int | float | type | None):
        return value
    if isinstance(value, dict):
        return {key: picture(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [picture(each) for each in value]
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if hasattr(value, "tobytes"):
        return value.tobytes()
    is_fixed = dataclasses.is_dataclass(value) and type(value).__dataclass_params__.frozen  # type: ignore[attr-defined]
    if not is_fixed and type(value).__module__.startswith("secagg."):
        return picture(vars(value))
    return id(value)


def in_layer(world: SimulatedSession, place: Place, layer: str, change: Callable[[bytes], bytes]) -> bytes:
    """The frame with one layer changed, and what is around it signed again by its sender."""
    key, body = world.keys[place.sender], peek(place.frame)
    if layer == "payload":
        return sign_frame(key, replace(body, payload=change(body.payload)))
    if layer == "body":
        content = change(decode(Frame, place.frame).body)
        return encode(Frame(content, key.sign("frame", content))) if content else b""
    return change(place.frame)


@st.composite
def changes(draw: st.DrawFn, others: Sequence[bytes]) -> Callable[[bytes], bytes]:
    """One or two changes of bytes: bits, pieces, parts of another frame, fields twice, numbers without end."""
    drawn = draw(st.lists(st.sampled_from(_CHANGES), min_size=1, max_size=2))
    steps = [partial(draw(change(others)), place=draw(st.floats(0, 1, exclude_max=True))) for change in drawn]

    def changed(data: bytes) -> bytes:
        for step in steps:
            data = step(data)
        return data

    return changed


def _at(data: bytes, place: float) -> int:
    return int(place * len(data))


def _flip(data: bytes, place: float, bit: int) -> bytes:
    at = _at(data, place)
    return data[:at] + bytes(byte ^ 1 << bit for byte in data[at : at + 1]) + data[at + 1 :]


def _cut(data: bytes, place: float, size: int) -> bytes:
    at = _at(data, place)
    return data[:at] + data[at + size :]


def _insert(data: bytes, place: float, piece: bytes) -> bytes:
    at = _at(data, place)
    return data[:at] + piece + data[at:]


def _overwrite(data: bytes, place: float, piece: bytes) -> bytes:
    at = _at(data, place)
    return data[:at] + piece + data[at + len(piece) :]


def _splice(data: bytes, place: float, other: bytes) -> bytes:
    return data[: _at(data, place)] + other[_at(other, place) :]


def _twice(data: bytes, place: float, number: int) -> bytes:
    return data + block(number, data[: _at(data, place)])


_PIECES = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from([b"\xff" * 9 + b"\x01", b"\xff" * 11, b"\x80" * 9 + b"\x00", varint(2**64 - 1), varint(2**31)]),
)
_CHANGES: tuple[Callable[[Sequence[bytes]], st.SearchStrategy[Any]], ...] = (
    lambda _: st.integers(0, 7).map(lambda bit: partial(_flip, bit=bit)),
    lambda _: st.sampled_from([1, 2, 64, 1 << 20]).map(lambda size: partial(_cut, size=size)),
    lambda _: _PIECES.map(lambda piece: partial(_insert, piece=piece)),
    lambda _: _PIECES.map(lambda piece: partial(_overwrite, piece=piece)),
    lambda others: st.sampled_from(others).map(lambda other: partial(_splice, other=other)),
    lambda _: st.integers(1, 8).map(lambda number: partial(_twice, number=number)),
)
