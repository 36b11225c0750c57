"""A server whose disk refuses a record once: it accepts nothing more, and its next life misses nobody."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from secagg.errors import BadInput
from secagg.session import ServerSession
from secagg.transcript import Journal
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.session import SessionRun, make_session


def _refuse(_: Journal) -> None:
    raise OSError(errno.ENOSPC, "full")


async def _again(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


class _Refused(SessionRun):
    """The record of client 2's upload is refused, and the client sends the same upload again at once."""

    def new_server(self, journal: Journal) -> ServerSession:
        session = super().new_server(journal)

        async def upload(member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
            if member != 2:
                return await ServerSession.upload(session, member, frame, parts)
            data = [part async for part in parts]
            for sync in (_refuse, Journal._sync):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(Journal, "_sync", sync)
                    with pytest.raises(BadInput, match="free the disk") as refused:
                        await ServerSession.upload(session, member, frame, _again(data))
            raise refused.value

        session.upload = upload  # type: ignore[method-assign]
        return session


async def test_upload_that_no_record_holds_is_never_accepted(tmp_path: Path) -> None:
    """The same upload again gets no signed acceptance; after a restart all clients are in the sum, and all verifies."""
    world = make_session(tmp_path, clients=3, protection="none", colluders=0)
    first = await asyncio.wait_for(_Refused(world).run(), 60)
    assert isinstance(first.server, BadInput)
    ending = await asyncio.wait_for(SessionRun(world).run(), 60)
    assert ending.server.members == (1, 2, 3)  # type: ignore[union-attr]
    for member in range(4):
        verify_transcript(world.transcript(member))
