"""Hiccups over real gRPC and mutual TLS: a member that was stalled, or met a wrong server, is in the sum after all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, ServerAway
from secagg.federation import FederationServer
from secagg.federation.endpoints import _meet
from secagg.protection.messages import Outcome
from secagg.session import staging
from secagg.transcript import FILE_NAME, read_transcript
from secagg.transport import Link, client, limits, serve
from secagg.wire import rpc
from tests.faults.proxy import Proxy, Trouble
from threat_models.active.consortium import Consortium
from threat_models.active.stage import Everyone, ignore, play, take_plan

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again soon."""
    monkeypatch.setattr(limits, "RETRY_SECONDS", 0.02)


async def listening(stack: AsyncExitStack, consortium: Consortium, state: Path) -> tuple[FederationServer, str]:
    """A server of the consortium's plan, and where it listens."""
    identity = consortium.credentials(SERVER_INDEX).identity
    server = FederationServer(consortium.setup, identity, state, ignore)
    stack.callback(server.close)
    endpoint, address = await serve(consortium.credentials(SERVER_INDEX), server, "127.0.0.1:0")
    stack.push_async_callback(endpoint.stop, None)
    return server, address


async def outcome_of(consortium: Consortium, member: int, address: str, patience: float) -> Outcome:
    """A client's part in the plan, from its folder."""
    async with Link(consortium.credentials(member), address, patience) as link:
        return (await take_plan(consortium, member).run(link))[-1][1]


async def test_server_with_another_plan_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A member that meets its server with another plan is told so at once, with both digests, and keeps its session."""
    consortium = Consortium.enrol(tmp_path, "masked")
    other = consortium.again()
    digests = [each.plan.digest.hex() for each in (consortium, other)]
    async with AsyncExitStack() as stack:
        _, address = await listening(stack, other, tmp_path / "wrong")
        with pytest.raises(ServerAway, match="the server runs another plan") as end:
            await outcome_of(consortium, 1, address, 0.1)
        assert all(digest in end.value.said for digest in digests)
        assert any(all(digest in line for digest in digests) for line in caplog.messages)
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE):
        server, address = await listening(stack, consortium, consortium.state(SERVER_INDEX))
        clients = [outcome_of(consortium, member, address, 10.0) for member in consortium.clients]
        last, *outcomes = await asyncio.gather(server.run(), *clients)
        assert last.session.outcome is not None
        assert last.session.outcome.members == consortium.clients
        assert outcomes == [last.session.outcome] * len(outcomes)


async def test_a_plan_is_compared_before_anything_is_sent(tmp_path: Path) -> None:
    """A member whose plan is not the server's is refused with both digests, and nothing of it is sent."""
    consortium = Consortium.enrol(tmp_path, "masked")
    async with AsyncExitStack() as stack:
        _, address = await listening(stack, consortium.again(), tmp_path / "wrong")
        link = await stack.enter_async_context(Link(consortium.credentials(1), address, PATIENCE))
        with pytest.raises(BadInput, match=r"the server runs another plan.*compare with whoever wrote") as refused:
            await _meet(link, lambda: None, consortium.plan.digest)
        member = take_plan(consortium, 1)
        with pytest.raises(BadInput, match="another plan"):
            await replace(member, greet=partial(_meet, link, lambda: None, consortium.plan.digest)).run(link)
        (transcript,) = consortium.state(1).rglob(FILE_NAME)
        assert not [record for record in read_transcript(transcript) if record.kind == "sent"]
    assert consortium.plan.digest.hex() in str(refused.value)
    async with AsyncExitStack() as stack:
        _, address = await listening(stack, consortium, consortium.state(SERVER_INDEX))
        link = await stack.enter_async_context(Link(consortium.credentials(1), address, PATIENCE))
        await _meet(link, lambda: None, consortium.plan.digest)


async def test_connection_that_swallows_everything_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose connection carries nothing any more, and is never closed, asks again over a new one."""
    scaled = {"grpc.keepalive_time_ms": 200, "grpc.keepalive_timeout_ms": 300, "grpc.http2.ping_timeout_ms": 300}
    monkeypatch.setattr(limits, "KEEPALIVE", [(name, scaled.get(name, value)) for name, value in limits.KEEPALIVE])
    monkeypatch.setattr(limits, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(limits, "POLL_SECONDS", 1.0)
    consortium = Consortium.enrol(tmp_path, "masked")
    async with AsyncExitStack() as stack:
        proxy = stack.enter_context(Proxy())
        _, address = await listening(stack, consortium, consortium.state(SERVER_INDEX))
        link = Link(consortium.credentials(1), proxy.listen(address), 8.0)
        await stack.enter_async_context(link)
        assert await link.fetch(consortium.plan.digest, "", 0.0) == b""
        before = proxy.carried
        proxy.begin(Trouble.DROP)
        assert await link.fetch(consortium.plan.digest, "", 0.0) == b""
        assert proxy.carried > before


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
async def test_stalled_upload_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: str) -> None:
    """A member whose upload stops in the middle for longer than the server waits sends it again, and is in the sum."""
    monkeypatch.setattr(staging, "SILENT_SECONDS", 0.2)
    parts, stalled = client._parts, []

    async def stalling(frame: bytes, vector: Path, start: int, size: int) -> AsyncIterator[rpc.UploadPart]:
        async for part in parts(frame, vector, start, size):
            if part.WhichOneof("part") == "data" and not stalled:
                stalled.append(part)
                await asyncio.sleep(1.0)
            yield part

    monkeypatch.setattr(client, "_parts", stalling)
    everyone = Everyone(Consortium.enrol(tmp_path, protection))
    endings = await play(everyone)
    assert stalled
    assert set(endings) == set(everyone.targets)
    assert not any(endings.values()), endings
    server = everyone.server
    assert server is not None
    outcome = server.stages[-1].session.outcome
    assert outcome is not None
    assert outcome.members == everyone.consortium.clients
