"""Parties that come late, are killed late or come back once more: deadlines, keys on the disk and lost receipts."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import ServerAway, SessionAborted
from secagg.protection.messages import Outcome
from secagg.transcript import Journal, peek, read_transcript
from tests.session.test_helper_sessions import EVERYONE, check_sum
from tests.worlds.crashes import Crash, Fuse
from tests.worlds.session import SessionRun, SimulatedSession, Wire, make_session

FIRST, LAST = 5, 6  # the two aggregators beside four clients; with a key holder FIRST is the key holder


def shared(folder: Path, **choices: Any) -> SimulatedSession:
    """Four clients, of which one may vanish, and two aggregators."""
    return make_session(folder, clients=4, protection="shared", dropouts=1, **choices)


class Late(SessionRun):
    """The last aggregator starts when the first one has waited for longer than clients have to join."""

    def start(self, member: int, journal: Journal) -> tuple[Any, Coroutine[Any, Any, Any]]:
        """The session, which for one party begins later."""
        called, session = super().start(member, journal)

        async def late() -> Any:
            await asyncio.sleep(2 * self.world.setup.join_seconds)
            return await session

        return called, late() if member == LAST else session


async def test_aggregators_may_start_far_apart(tmp_path: Path) -> None:
    """Clients have their whole time to upload from when all aggregators are there, not from when the first one is."""
    world = shared(tmp_path, join_seconds=1, step_seconds=5)
    check_sum(world, await Late(world).run(), EVERYONE)


async def test_restarted_aggregator_keeps_its_deadline(tmp_path: Path) -> None:
    """An aggregator killed late in its collection closes when it would have, and the others have not given it up."""
    world = shared(tmp_path, join_seconds=3, step_seconds=2)
    federation = SessionRun(world)

    async def kill() -> None:
        await asyncio.sleep(2.7)
        await federation.hosts[FIRST].kill()

    ending, _ = await asyncio.gather(federation.run(absent=(4,)), kill())
    check_sum(world, ending, (1, 2, 3))


@dataclass
class FuseAt(Fuse):
    """Kills its party the first time that it passes a point of this name, and looks at what its folder then holds."""

    name: str = ""
    home: Path = Path()
    found: tuple[str, ...] = ()

    def burn(self, name: str) -> None:
        """Pass one point."""
        first = name == self.name and name not in self.points
        super().burn(name)
        if first:
            self.found = secrets(self.home)
            raise Crash(name)


def secrets(home: Path) -> tuple[str, ...]:
    """The files of a party's folder that hold keys or protected bytes."""
    return tuple(path.name for path in home.iterdir() if path.suffix in (".key", ".state", ".bin"))


@pytest.mark.parametrize(
    ("protection", "member", "point"),
    [
        pytest.param("shared", 1, "before record aborted", id="client that was told"),
        pytest.param("shared", 1, "after record aborted", id="client"),
        pytest.param("shared", FIRST, "after record aborted", id="aggregator"),
        pytest.param("encrypted", FIRST, "after record aborted", id="key holder"),
    ],
)
async def test_killed_between_the_end_and_the_erasure(tmp_path: Path, protection: str, member: int, point: str) -> None:
    """A party killed when its transcript holds its end, its keys still there, erases them when it is back."""
    world = make_session(tmp_path, clients=4, protection=protection, dropouts=0)
    fuse = FuseAt(name=point, home=world.home(member))
    ending = await SessionRun(world, {member: fuse}).run(absent=(2, 3))
    assert fuse.found
    assert isinstance({**ending.clients, **ending.helpers}[member], SessionAborted)
    assert secrets(world.home(member)) == ()


class ComesBack(SessionRun):
    """Aggregators that end are gone; a client that finds one away comes back once when all have ended."""

    def __init__(self, world: SimulatedSession) -> None:
        super().__init__(world)
        self.ended = {FIRST: asyncio.Event(), LAST: asyncio.Event()}

    async def helper(self, member: int) -> Outcome:
        """An aggregator."""
        try:
            return await super().helper(member)
        finally:
            self.hosts[member].is_gone = True
            self.ended[member].set()

    async def client(self, member: int, leaves: str | None = None) -> Outcome:
        """A client."""
        try:
            return await super().client(member, leaves)
        except ServerAway:
            for end in self.ended.values():
                await end.wait()
            return await super().client(member, leaves)


async def test_client_that_lost_its_last_receipt_has_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client in the sum whose last receipt was lost fetches the outcome though the aggregators have ended."""
    upload, lost = Wire.upload, []

    async def losing(self: Wire, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        reply = await upload(self, frame, vector, start, size)
        if (self._member, self._receiver) == (2, LAST) and not lost:
            lost.append(reply)
            raise ServerAway(0)
        return reply

    monkeypatch.setattr(Wire, "upload", losing)
    world = shared(tmp_path, step_seconds=3)
    check_sum(world, await ComesBack(world).run(), EVERYONE)
    assert lost


async def test_client_waits_for_no_aggregator_once_there_is_an_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client whose last receipt was lost asks an aggregator that is silent, and fetches the outcome all the same."""
    upload, asked = Wire.upload, []

    async def silent(self: Wire, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        is_silent = (self._member, self._receiver) == (2, LAST)
        if is_silent and asked:
            await asyncio.Event().wait()
        reply = await upload(self, frame, vector, start, size)
        if is_silent:
            asked.append(reply)
            return b""  # as if lost on the way: it is asked again
        return reply

    monkeypatch.setattr(Wire, "upload", silent)
    world = shared(tmp_path, step_seconds=3)
    async with asyncio.timeout(60):
        check_sum(world, await SessionRun(world).run(), EVERYONE)
    assert asked


@pytest.mark.parametrize(
    ("how", "done"),
    [({"absent": (4,)}, "joined"), ({"leaving": {4: "Dealing"}}, "dealt shares")],
    ids=["absent", "leaving"],
)
async def test_nobody_uploads_for_a_sum_that_cannot_be(tmp_path: Path, how: dict[str, Any], done: str) -> None:
    """Where fewer have joined, or dealt shares, than a sum takes, the session ends before anybody uploads."""
    world = make_session(tmp_path, clients=4, protection="masked", dropouts=0, join_seconds=1, step_seconds=1)
    ending = await SessionRun(world).run(**how)
    assert isinstance(ending.server, SessionAborted)
    assert f"only 3 of 4 clients {done}; at least 4 are needed" in ending.server.reason
    sent = [peek(each.content).step for client in (1, 2, 3) for each in read_transcript(world.transcript(client))
            if each.kind == "sent"]  # fmt: skip
    assert sent
    assert "UploadHeader" not in sent
