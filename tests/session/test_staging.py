"""Uploads on their way to the disk: nobody keeps a place by being slow, and nobody fills the disk."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from secagg.errors import BadInput, NotNow, ProtocolViolation
from secagg.session import staging
from secagg.session.staging import Staging
from tests.worlds.session import SessionRun, Wire, make_session

CONTENT = bytes(range(200))
PATIENCE = 5.0


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Staging:
    """A folder that receives two uploads at a time."""
    monkeypatch.setattr(staging, "UPLOADS_AT_A_TIME", 2)
    return Staging(tmp_path)


class Clock:
    """The event loop's clock, which the test may put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        """Seconds since some moment."""
        return asyncio.get_running_loop().time() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that the test moves."""
    clock = Clock()
    monkeypatch.setattr(staging, "_now", clock.now)
    return clock


async def whole(content: bytes = CONTENT) -> AsyncIterator[bytes]:
    """An upload that comes at once."""
    yield content


async def dripping(seconds: float) -> AsyncIterator[bytes]:
    """An upload of single bytes, without end."""
    while True:
        yield b"x"
        await asyncio.sleep(seconds)


async def silent() -> AsyncIterator[bytes]:
    """An upload of which one byte comes."""
    yield b"x"
    await asyncio.Event().wait()


async def receive(places: Staging, member: int, parts: AsyncIterator[bytes], size: int = len(CONTENT)) -> bytes:
    """Stage one upload and return what lies on the disk."""
    digest = hashlib.sha256(CONTENT).digest()
    async with asyncio.timeout(PATIENCE), places.receive(member, f"client-{member}", size, digest, parts) as part:
        return part.read_bytes()


def left_behind(places: Staging) -> list[Path]:
    """What lies in the folder of uploads."""
    return list(places._uploads.iterdir())


async def begun(places: Staging, member: int, parts: AsyncIterator[bytes]) -> asyncio.Task[bytes]:
    """An upload that waits for a place or for its next part."""
    task = asyncio.ensure_future(receive(places, member, parts, size=10**6))
    await asyncio.sleep(0.01)
    return task


async def test_whole_upload_is_received(places: Staging) -> None:
    """Bytes that are what was announced lie on the disk inside the context, and leave nothing behind it."""
    assert await receive(places, 1, whole()) == CONTENT
    assert left_behind(places) == []


async def test_silent_upload_gives_its_place_up(places: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads of which nothing comes end as ones that may come again, and those that waited are received."""
    monkeypatch.setattr(staging, "SILENT_SECONDS", 0.1)
    slow = [await begun(places, member, silent()) for member in (1, 2)]
    assert await receive(places, 3, whole()) == CONTENT
    for task in slow:
        with pytest.raises(NotNow, match="nothing came"):
            await task
    assert left_behind(places) == []


async def test_dripping_uploads_give_their_places_up(places: Staging, clock: Clock) -> None:
    """Uploads slower than the least rate end when others wait, who are received in the order of their coming."""
    slow = [await begun(places, member, dripping(0.02)) for member in (1, 2)]
    clock.ahead += 3600.0
    placed: list[int] = []

    async def honest(member: int) -> AsyncIterator[bytes]:
        placed.append(member)
        yield CONTENT

    assert await asyncio.gather(*(receive(places, member, honest(member)) for member in (3, 4, 5))) == [CONTENT] * 3
    assert placed == [3, 4, 5]
    ended = [task for task in slow if task.done()]
    assert ended
    for task in ended:
        with pytest.raises(NotNow, match="slower than"):
            task.result()
    for task in slow:
        task.cancel()
    await asyncio.wait(slow)


async def test_slow_upload_without_others_goes_on(places: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow line does no harm while nobody waits for its place."""
    monkeypatch.setattr(staging, "START_SECONDS", 0.0)
    monkeypatch.setattr(staging, "LEAST_RATE", 1e9)

    async def slow() -> AsyncIterator[bytes]:
        for start in range(0, len(CONTENT), 40):
            await asyncio.sleep(0.01)
            yield CONTENT[start : start + 40]

    assert await receive(places, 1, slow()) == CONTENT


async def test_all_uploads_end_with_their_step(places: Staging) -> None:
    """When a step closes, those that upload and those that wait for a place are told that it is too late."""
    tasks = [await begun(places, member, silent()) for member in (1, 2, 3)]
    places.end_all()
    for task in tasks:
        with pytest.raises(NotNow, match="too late"):
            await task
    assert left_behind(places) == []


async def test_waiting_for_a_place_is_counted(places: Staging, clock: Clock) -> None:
    """The longest wait is that of those who had to queue, and nothing without them."""
    assert places.longest_wait == 0.0
    first = [await begun(places, member, silent()) for member in (1, 2)]
    clock.ahead += 3600.0
    assert places.longest_wait < 3600.0
    third = await begun(places, 3, silent())
    clock.ahead += 3600.0
    assert places.longest_wait >= 3600.0
    first[0].cancel()
    await asyncio.sleep(0.01)
    waited = places.longest_wait
    clock.ahead += 3600.0
    assert places.longest_wait == waited > 0.0
    for task in (*first, third):
        task.cancel()
    await asyncio.gather(*first, third, return_exceptions=True)
    assert places.longest_wait == 0.0


async def test_more_than_the_announced_bytes_are_refused_at_once(places: Staging) -> None:
    """A stream without end is refused with the first byte too many: the disk holds no more than was announced."""
    sizes: list[int] = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            sizes.extend(path.stat().st_size for path in left_behind(places))
            assert len(sizes) < 100
            yield bytes(40)

    with pytest.raises(ProtocolViolation, match="more than the announced 200 bytes"):
        await receive(places, 1, endless())
    assert len(sizes) == 6
    assert max(sizes) <= len(CONTENT)
    assert left_behind(places) == []


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[::-1], b""], ids=["short", "other", "empty"])
async def test_other_bytes_are_refused(places: Staging, content: bytes) -> None:
    """Bytes that are fewer or others than the announced ones are their sender's fault."""
    with pytest.raises(ProtocolViolation, match="party 1: "):
        await receive(places, 1, whole(content))
    assert left_behind(places) == []


async def test_full_disk_is_said(places: Staging) -> None:
    """A disk that takes no more is no fault of the sender."""
    places._uploads.rmdir()
    with pytest.raises(BadInput, match="cannot store the upload of client-1"):
        await receive(places, 1, whole())


async def test_members_that_drip_do_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many members as the plan lets vanish hold all places with single bytes: the sum of the others is opened."""
    monkeypatch.setattr(staging, "UPLOADS_AT_A_TIME", 2)
    monkeypatch.setattr(staging, "START_SECONDS", 0.1)
    monkeypatch.setattr(staging, "LEAST_RATE", 1e9)
    upload, slow = Wire.upload, (1, 2)

    async def dripped(self: Wire, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        if self._member not in slow:
            await asyncio.sleep(0.05)  # the slow ones are there first
            return await upload(self, frame, vector, start, size)
        reply: bytes = await self._call(lambda party: party.upload(self._member, frame, dripping(0.05)))
        return reply

    monkeypatch.setattr(Wire, "upload", dripped)
    world = make_session(tmp_path, clients=7, dropouts=2)
    ending = await SessionRun(world).run()
    assert ending.server.members == (3, 4, 5, 6, 7)
    assert ending.total.tolist() == world.total((3, 4, 5, 6, 7)).tolist()
