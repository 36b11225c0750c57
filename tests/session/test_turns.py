"""One thing at a time at the server: long checks stop nobody who waits, and nothing comes between check and record."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection.messages import Abort
from secagg.session import ServerSession
from secagg.transcript import make_body, peek, read_transcript, sign_frame
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.crashes import Fuse, FusedJournal
from tests.worlds.hosts import Left
from tests.worlds.session import SessionRun, SimulatedSession, Wire, make_session

PATIENCE = 10.0


class Held:
    """A server whose check of a message goes on in its thread until the test lets it end."""

    def __init__(self, session: ServerSession) -> None:
        self.session = session
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []
        self._take = session._protocol.take
        session._protocol.take = self._held  # type: ignore[method-assign]

    def _held(self, *message: Any) -> None:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        self._take(*message)

    async def until_begun(self) -> None:
        """Wait until the check has begun."""
        assert await asyncio.to_thread(self.begun.wait, PATIENCE)


@pytest.fixture
async def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[SimulatedSession, Held]]:
    """A server to which every message is a long one."""
    monkeypatch.setattr("secagg.session.server_session._SHORT", 0)
    world = make_session(tmp_path, join_seconds=60)
    with closing(FusedJournal(world.transcript(0), Fuse())) as journal:
        yield world, Held(SessionRun(world).new_server(journal))


async def first_frame(world: SimulatedSession, member: int) -> bytes:
    """The frame with which a client joins."""
    heard: list[bytes] = []

    class Deaf(Wire):
        async def submit(self, frame: bytes) -> bytes:
            heard.append(frame)
            raise Left

    federation = SessionRun(world)
    with FusedJournal(world.transcript(member), Fuse()) as journal, pytest.raises(Left):
        await federation.new_client(member, journal).run(Deaf(federation, member))
    return heard[0]


def received(world: SimulatedSession) -> list[tuple[int, str]]:
    """Whose frames the server's transcript holds."""
    frames = [peek(each.content) for each in read_transcript(world.transcript(0)) if each.kind == "received"]
    return [(frame.sender, frame.step) for frame in frames]


async def test_long_check_stops_nobody_who_waits(held: tuple[SimulatedSession, Held]) -> None:
    """While a message is checked in a thread of its own, questions are answered; it is recorded when it is checked."""
    world, server = held
    taking = asyncio.ensure_future(server.session.submit(1, await first_frame(world, 1)))
    await server.until_begun()
    assert await server.session.fetch(2, world.setup.context.round_digest, "Directory", 0.0) is None
    assert received(world) == []
    server.may_end.set()
    await taking
    assert received(world) == [(1, "KeyAdvertisement")]
    assert server.threads[0] is not threading.current_thread()


async def test_messages_are_checked_one_after_the_other(held: tuple[SimulatedSession, Held]) -> None:
    """The next message waits until the one before is checked and recorded."""
    world, server = held
    frames = [await first_frame(world, member) for member in (1, 2)]
    taking = [asyncio.ensure_future(server.session.submit(*each)) for each in enumerate(frames, start=1)]
    await server.until_begun()
    await asyncio.sleep(0.02)
    assert len(server.threads) == 1
    server.may_end.set()
    await asyncio.gather(*taking)
    assert received(world) == [(1, "KeyAdvertisement"), (2, "KeyAdvertisement")]


async def test_caller_that_hangs_up_splits_nothing(held: tuple[SimulatedSession, Held]) -> None:
    """A caller that hangs up while its message is checked is recorded all the same: memory is not ahead of the disk."""
    world, server = held
    frame = await first_frame(world, 1)
    taking = asyncio.ensure_future(server.session.submit(1, frame))
    await server.until_begun()
    taking.cancel()
    await asyncio.wait([taking])
    assert taking.cancelled()
    server.may_end.set()
    assert await server.session.submit(1, frame) == b""
    assert received(world) == [(1, "KeyAdvertisement")]
    assert len(server.threads) == 1


async def test_step_closes_only_between_messages(held: tuple[SimulatedSession, Held]) -> None:
    """A step whose time is over while a message is checked closes after it: the message counts and is recorded."""
    world, server = held
    taking = asyncio.ensure_future(server.session.submit(1, await first_frame(world, 1)))
    await server.until_begun()
    server.session._until_complete = partial(asyncio.sleep, 0)  # type: ignore[method-assign]
    deciding = asyncio.ensure_future(server.session.decide())
    await asyncio.sleep(0.02)
    assert not deciding.done()
    server.may_end.set()
    with pytest.raises(SessionAborted, match="only 1 of 3 clients joined"):
        await deciding
    await taking
    kinds = [record.kind for record in read_transcript(world.transcript(0))]
    assert kinds.index("received") < kinds.index("closed")
    assert "only 1 of 3 clients joined" in verify_transcript(world.transcript(0))["session"]


async def test_refused_message_leaves_no_trace(held: tuple[SimulatedSession, Held]) -> None:
    """A long message that its check refuses is in no record, and its sender may send the right one."""
    world, server = held
    server.may_end.set()
    frame = await first_frame(world, 1)
    true_take = server._take

    def refuse(*message: Any) -> None:
        raise ProtocolViolation(1, "did not sign it")

    server._take = refuse
    with pytest.raises(ProtocolViolation, match="did not sign it"):
        await server.session.submit(1, frame)
    assert received(world) == []
    server._take = true_take
    await server.session.submit(1, frame)
    assert received(world) == [(1, "KeyAdvertisement")]


@pytest.fixture
async def aborted(tmp_path: Path) -> AsyncIterator[tuple[SimulatedSession, ServerSession]]:
    """A server whose session is over because one client alone has joined and another has come and left."""
    world = make_session(tmp_path)
    with closing(FusedJournal(world.transcript(0), Fuse())) as journal:
        server = SessionRun(world).new_server(journal)
        await server.submit(1, await first_frame(world, 1))
        body = make_body(world.setup.context.round_digest, 2, 0, bytes(32), bytes(32), Abort("no power"))
        await server.submit(2, sign_frame(world.keys[2], body))
        with pytest.raises(SessionAborted):
            await server.decide()
        yield world, server


async def test_aborted_server_waits_for_those_who_took_part(aborted: tuple[SimulatedSession, ServerSession]) -> None:
    """The server stays until whoever took part has heard the signed end, and not for those who left or never came."""
    world, server = aborted
    leaving = asyncio.ensure_future(server.farewell(60.0))
    await asyncio.sleep(0.02)
    assert not leaving.done()
    frame = await server.fetch(1, world.setup.context.round_digest, "Directory", 0.0)
    assert frame is not None
    assert peek(frame).step == "Abort"
    async with asyncio.timeout(PATIENCE):
        await leaving


async def test_aborted_server_does_not_wait_for_ever(aborted: tuple[SimulatedSession, ServerSession]) -> None:
    """A member that never comes back is not waited for longer than members go on asking."""
    _, server = aborted
    async with asyncio.timeout(PATIENCE):
        await server.farewell(0.05)


@pytest.mark.parametrize("later", range(5))
async def test_server_that_is_stopped_as_something_changes_stops(
    held: tuple[SimulatedSession, Held], later: int
) -> None:
    """A cancellation ends the session's work, however shortly after the change that it waits for (in loop steps)."""
    _, server = held
    deciding = asyncio.ensure_future(server.session.decide())
    await asyncio.sleep(0.02)
    server.session._wake()
    for _ in range(later):
        await asyncio.sleep(0)
    deciding.cancel()
    await asyncio.wait([deciding], timeout=0.5)
    assert deciding.cancelled()
