"""Uploads that bring nothing over real gRPC on this machine: they end, and they are in nobody's way."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from secagg.transport import Link, read_credentials
from secagg.wire import rpc
from tests.transport.consortium import Remembering
from tests.transport.test_endpoint import channel

PATIENCE = 10.0
MORE_THAN_THE_SERVER_TAKES = 80
"""Calls at a time; an endpoint of a roster of three answers 64."""


async def begun(stub: Any, count: int) -> list[Any]:
    """So many Upload calls that have reached the server and say nothing."""
    calls = [stub.Upload() for _ in range(count)]
    await asyncio.gather(*(call.wait_for_connection() for call in calls), return_exceptions=True)
    return calls


async def test_idle_uploads_of_one_member_leave_room_for_others(
    consortium: Path, address: str, coordinator: Remembering
) -> None:
    """Of many idle uploads of one member all but one are refused at once, and another member is answered."""
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        calls = await begun(rpc.SessionStub(opened), MORE_THAN_THE_SERVER_TAKES)
        ends = [asyncio.ensure_future(call.code()) for call in calls]
        async with asyncio.timeout(PATIENCE):
            for place, end in enumerate(asyncio.as_completed(ends), start=1):
                assert await end is grpc.StatusCode.RESOURCE_EXHAUSTED
                if place == len(calls) - 1:
                    break
        async with Link(read_credentials(consortium / "bob"), address, PATIENCE) as link:
            await link.submit(b"x")
        assert [call.done() for call in calls].count(False) == 1
        for call in calls:
            call.cancel()
    assert coordinator.submitted == [(2, b"x")]
    assert coordinator.uploaded == []


async def test_upload_that_never_begins_is_ended(
    consortium: Path, address: str, coordinator: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload whose frame does not come in time is ended, may come again, and its member may then upload."""
    monkeypatch.setattr("secagg.transport.limits.SILENT_SECONDS", 0.1)
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        stub = rpc.SessionStub(opened)
        (idle,) = await begun(stub, 1)
        async with asyncio.timeout(PATIENCE):
            assert await idle.code() is grpc.StatusCode.UNAVAILABLE
        monkeypatch.undo()
        await stub.Upload(iter([rpc.UploadPart(frame=b"header"), rpc.UploadPart(data=b"vector")]))
    assert coordinator.uploaded == [(1, b"header", b"vector")]


async def test_empty_part_is_refused(consortium: Path, address: str, coordinator: Remembering) -> None:
    """A part without a byte ends the upload: nobody holds its place by sending nothing."""
    parts = [rpc.UploadPart(frame=b"header"), rpc.UploadPart(data=b""), rpc.UploadPart(data=b"vector")]
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await rpc.SessionStub(opened).Upload(iter(parts))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert coordinator.uploaded == []
