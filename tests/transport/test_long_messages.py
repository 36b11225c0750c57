"""Long messages of the server over real gRPC on this machine: few are sent at a time, and nobody keeps a place."""

import asyncio
from pathlib import Path

import pytest

from secagg.transport import Link, read_credentials
from secagg.transport.limits import CALLS_PER_MEMBER, SHORT_BYTES
from secagg.wire import rpc
from tests.transport.consortium import Remembering
from tests.transport.test_endpoint import channel

PATIENCE = 10.0
LONG = bytes(8 << 20)
"""More than gRPC takes for a caller that does not read."""
STEP = rpc.FetchRequest(round_digest=bytes(32), step="Inbox")


@pytest.fixture(autouse=True)
def one_place(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One long message is sent at a time, and keeps its place for half a second."""
    monkeypatch.setattr("secagg.transport.limits.SENDS_AT_A_TIME", 1)
    monkeypatch.setattr("secagg.transport.limits.SEND_SECONDS", 0.5)
    return monkeypatch


async def asked_by(coordinator: Remembering, member: int, times: int) -> None:
    """Wait until a member's frame was asked for so many times."""
    async with asyncio.timeout(PATIENCE):
        while [who for who, _, _ in coordinator.asked].count(member) < times:  # noqa: ASYNC110 (a list has no event)
            await asyncio.sleep(0.01)


async def test_slow_reader_keeps_nobody_waiting(consortium: Path, address: str, coordinator: Remembering) -> None:
    """A caller that does not read loses its place to the next one, and has the whole message once it does read."""
    coordinator.frame = LONG
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        silent = rpc.SessionStub(opened).Fetch(STEP)
        await asked_by(coordinator, 1, 2)
        async with Link(read_credentials(consortium / "bob"), address, PATIENCE) as link, asyncio.timeout(PATIENCE):
            assert await link.fetch(bytes(32), "Inbox", 5) == LONG
            assert b"".join([part.data async for part in silent]) == LONG


async def test_member_that_starts_again_is_not_held_up(
    consortium: Path, address: str, coordinator: Remembering
) -> None:
    """A member's message that nobody reads any more does not hold up the one that its next life asks for."""
    coordinator.frame = LONG
    alice = read_credentials(consortium / "alice")
    async with channel(alice, address) as opened:
        silent = rpc.SessionStub(opened).Fetch(STEP)
        await asked_by(coordinator, 1, 2)
        async with Link(alice, address, PATIENCE) as link, asyncio.timeout(PATIENCE):
            assert await link.fetch(bytes(32), "Inbox", 5) == LONG
        silent.cancel()


async def test_places_come_back_from_callers_that_vanish(
    consortium: Path, address: str, coordinator: Remembering, caplog: pytest.LogCaptureFixture
) -> None:
    """Callers that hang up while they are sent a message, or wait for a place, keep none, and blame nobody."""
    coordinator.frame = LONG
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        for count in range(3 * CALLS_PER_MEMBER):
            calls = [rpc.SessionStub(opened).Fetch(STEP) for _ in range(1 + count % 3)]
            await asked_by(coordinator, 1, count + 2)
            for call in calls:
                call.cancel()
    async with Link(read_credentials(consortium / "bob"), address, PATIENCE) as link, asyncio.timeout(PATIENCE):
        for _ in range(3):
            assert await link.fetch(bytes(32), "Inbox", 5) == LONG
    assert not [record for record in caplog.records if record.name.startswith("secagg")]


async def test_message_is_read_once_there_is_a_place(
    one_place: pytest.MonkeyPatch, consortium: Path, address: str, coordinator: Remembering
) -> None:
    """While it waits for a place a caller's message is not in memory; a short message waits for none."""
    one_place.setattr("secagg.transport.limits.SEND_SECONDS", PATIENCE)  # read at each call
    coordinator.frame = LONG
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        silent = rpc.SessionStub(opened).Fetch(STEP)
        await asked_by(coordinator, 1, 2)
        async with Link(read_credentials(consortium / "bob"), address, PATIENCE) as link:
            waiting = asyncio.ensure_future(link.fetch(bytes(32), "Inbox", 5))
            await asked_by(coordinator, 2, 1)
            coordinator.frame = bytes(SHORT_BYTES)
            assert await link.fetch(bytes(32), "Outcome", 5) == bytes(SHORT_BYTES)
            assert coordinator.asked[2:] == [(2, bytes(32), "Inbox"), (2, bytes(32), "Outcome")]
            silent.cancel()
            assert await waiting == bytes(SHORT_BYTES)  # what is due by then
