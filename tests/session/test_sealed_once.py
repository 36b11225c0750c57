"""A sealed message is stored before it leaves, and the stored bytes alone leave: nothing seals it a second time."""

import asyncio
from pathlib import Path

import pytest

from tests.session.test_crashes import CLIENT, check_ending, staged
from tests.worlds.crashes import Crash
from tests.worlds.session import SessionRun, Wire

SEALED = {"masked": "Dealing", "shared": "ShareManifest", "encrypted": "EncryptedUpload"}


class Cut(Wire):
    """A client's connection on which it dies once, just before or just after a sealed message has left it."""

    async def submit(self, frame: bytes) -> bytes:
        """Hand a frame over, or die."""
        self._leaving(frame, frame)
        reply = await super().submit(frame)
        self._die("after", frame)
        return reply

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Hand a frame and its bytes over, or die."""
        stored = await asyncio.to_thread(vector.read_bytes)
        self._leaving(frame, frame + stored[start : start + size])
        reply = await super().upload(frame, vector, start, size)
        self._die("after", frame)
        return reply

    def _leaving(self, frame: bytes, content: bytes) -> None:
        run = self._federation
        assert isinstance(run, Cutting)
        if run.step in frame:
            run.stored.append(frame in run.world.transcript(CLIENT).read_bytes())
            run.left.setdefault(self._receiver, []).append(content)
        self._die("before", frame)

    def _die(self, moment: str, frame: bytes) -> None:
        run = self._federation
        assert isinstance(run, Cutting)
        if run.step in frame and run.deaths == [moment]:
            run.deaths.clear()
            raise Crash(moment)


class Cutting(SessionRun):
    """A federation whose client dies once beside its sealed message; it notes what left, and whether it was stored."""

    def __init__(self, folder: Path, protection: str, moment: str) -> None:
        super().__init__(staged(folder, protection=protection))
        self.step, self.deaths = SEALED[protection].encode(), [moment]
        self.stored: list[bool] = []
        self.left: dict[int, list[bytes]] = {}

    async def client(self, member: int, leaves: str | None = None) -> object:
        """A client; the one that dies has the connection on which it does."""
        if member != CLIENT:
            return await super().client(member, leaves)
        others = {index: Cut(self, member, leaves, index) for index in self.hosts if index}
        return await self._again(member, self.new_client, Cut(self, member, leaves), others)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("protection", SEALED)
async def test_a_sealed_message_is_stored_and_sent_again_as_it_was(
    tmp_path: Path, protection: str, moment: str
) -> None:
    """Killed beside its sealed message a client sends the same envelopes again, which its transcript held before."""
    run = Cutting(tmp_path, protection, moment)
    ending = await run.run()
    check_ending(run, ending, CLIENT)
    assert not run.deaths
    assert all(run.stored)
    assert max(len(each) for each in run.left.values()) == 2
    assert all(len(set(each)) == 1 for each in run.left.values())
