"""The endpoint over real gRPC on this machine: who is let in, what is bounded, how failures reach the caller."""

import asyncio
import logging
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from secagg.errors import BadInput, MalformedMessage, NotNow, ProtocolViolation, ServerAway, SessionAborted
from secagg.transport import Credentials, Link, read_credentials, serve
from secagg.transport.limits import (
    CALLS_PER_MEMBER,
    CHUNK_BYTES,
    MAX_MESSAGE_BYTES,
    REFUSAL_SECONDS,
    REFUSALS_AT_ONCE,
)
from secagg.wire import MAX_FRAME_BYTES, rpc
from tests.transport.consortium import Remembering, certify
from tests.worlds.rosters import SERVER, enrol

PATIENCE = 0.3
UNBOUNDED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def channel(credentials: Credentials, address: str) -> grpc.aio.Channel:
    """A channel without any bound of its own."""
    options = [*UNBOUNDED, ("grpc.ssl_target_name_override", SERVER)]
    return grpc.aio.secure_channel(address, credentials.for_channel(credentials.ca_pem), options=options)


async def refusal(credentials: Credentials, address: str, parts: Iterable[Any] | None = None) -> grpc.aio.AioRpcError:
    """The status with which a call is refused."""
    async with channel(credentials, address) as opened:
        stub = rpc.SessionStub(opened)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await (stub.Upload(iter(parts)) if parts is not None else stub.Submit(rpc.SubmitRequest(frame=b"x")))
    return error.value


async def test_member_behind_the_certificate_is_known(consortium: Path, address: str, coordinator: Remembering) -> None:
    """Each call carries the roster index of the member whose certificate opened the connection."""
    for index, name in ((1, "alice"), (2, "bob")):
        async with Link(read_credentials(consortium / name), address, PATIENCE) as link:
            assert await link.submit(b"frame") == b""
        assert coordinator.submitted[-1] == (index, b"frame")


async def test_answer_and_due_frame_come_back(consortium: Path, address: str, coordinator: Remembering) -> None:
    """The coordinator's answer to a frame, and the frame that is due, reach the client unchanged, in chunks."""
    coordinator.answer, coordinator.frame = b"receipt", bytes(range(256)) * 10_000
    async with Link(read_credentials(consortium / "bob"), address, PATIENCE) as link:
        assert await link.submit(b"x") == b"receipt"
        assert await link.fetch(bytes(32), "Directory", 5) == coordinator.frame
    assert coordinator.asked == [(2, bytes(32), "Directory")] * 2  # a long one is read again once it has a place


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 7])
async def test_vector_arrives_whole(
    consortium: Path, address: str, coordinator: Remembering, tmp_path: Path, size: int
) -> None:
    """A part of a file, of any number of chunks, arrives byte for byte behind its frame, and the answer comes back."""
    content, coordinator.answer = (bytes(range(251)) * (size // 251 + 1))[:size], b"receipt"
    (tmp_path / "vector").write_bytes(b"before" + content + b"behind")
    async with Link(read_credentials(consortium / "alice"), address, PATIENCE) as link:
        assert await link.upload(b"header", tmp_path / "vector", 6, size) == b"receipt"
    assert coordinator.uploaded == [(1, b"header", content)]


@pytest.mark.parametrize(
    "parts", [[], [rpc.UploadPart(data=b"frame")], [rpc.UploadPart()]], ids=["none", "data", "bare"]
)
async def test_upload_without_its_frame(
    consortium: Path, address: str, coordinator: Remembering, parts: list[rpc.UploadPart]
) -> None:
    """An upload that does not begin with a frame brings no frame, and the refusal reaches its caller."""
    coordinator.failures = [MalformedMessage("Frame", "empty")]
    error = await refusal(read_credentials(consortium / "alice"), address, parts)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert coordinator.uploaded == []
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        with suppress(grpc.aio.AioRpcError):
            await rpc.SessionStub(opened).Upload(iter(parts))
    assert {frame for _, frame, _ in coordinator.uploaded} <= {b""}


@pytest.mark.parametrize("second", [rpc.UploadPart(frame=b"again"), rpc.UploadPart(data=bytes(CHUNK_BYTES + 1))])
async def test_wrong_part_of_an_upload(
    consortium: Path, address: str, coordinator: Remembering, second: rpc.UploadPart
) -> None:
    """A second frame, or a part beyond its bound, ends the upload."""
    parts = [rpc.UploadPart(frame=b"header"), second]
    error = await refusal(read_credentials(consortium / "alice"), address, parts)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert coordinator.uploaded == []


async def test_oversized_message(consortium: Path, address: str, coordinator: Remembering) -> None:
    """A message beyond the transport's bound is refused before the coordinator sees it."""
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await rpc.SessionStub(opened).Submit(rpc.SubmitRequest(frame=bytes(MAX_MESSAGE_BYTES + 1)))
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert coordinator.submitted == []


async def test_endless_frame_of_the_server(consortium: Path, address: str, coordinator: Remembering) -> None:
    """A client stops reading a frame that is longer than any frame can be, and has heard nothing."""
    coordinator.frame = bytes(MAX_FRAME_BYTES + 1)
    async with Link(read_credentials(consortium / "alice"), address, 0.0) as link:
        with pytest.raises(ServerAway, match="more than"):
            await link.fetch(bytes(32), "Outcome", 5)


async def test_nothing_due_in_time(consortium: Path, address: str, coordinator: Remembering) -> None:
    """Who waits in vain has nothing after the time it was given, and asks once when that is none."""
    coordinator.frame = None
    async with Link(read_credentials(consortium / "alice"), address, PATIENCE) as link:
        assert await link.fetch(bytes(32), "Inbox", 0.05) == b""
        coordinator.asked.clear()
        assert await link.fetch(bytes(32), "Outcome", 0) == b""
    assert coordinator.asked == [(1, bytes(32), "Outcome")]


REFUSALS = [
    ProtocolViolation(2, "lies"),
    MalformedMessage("Frame", "torn"),
    SessionAborted("too few"),
    NotNow("another plan"),
    BadInput("full"),
    RuntimeError("bug"),
]


@pytest.mark.parametrize("failure", REFUSALS, ids=lambda failure: type(failure).__name__)
async def test_refusal_ends_nothing(
    consortium: Path, address: str, coordinator: Remembering, failure: Exception
) -> None:
    """Whatever the coordinator refuses a frame with, the same frame is sent again, and taken when it may be."""
    coordinator.failures = [failure] * 3
    async with Link(read_credentials(consortium / "bob"), address, PATIENCE) as link:
        await link.submit(b"x")
    assert coordinator.submitted == [(2, b"x")]


@pytest.mark.parametrize("failure", REFUSALS[:4], ids=lambda failure: type(failure).__name__)
async def test_refusal_that_stays_is_told(
    consortium: Path, address: str, coordinator: Remembering, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal that does not end is told at once and at the end, with the coordinator's words, as no end at all."""
    coordinator.failures = [failure] * 1000
    words = failure.problem if isinstance(failure, NotNow | ProtocolViolation) else str(failure)
    async with Link(read_credentials(consortium / "bob"), address, 0.05) as link:
        with pytest.raises(ServerAway) as error:
            await link.submit(b"x")
    assert words in error.value.said
    assert error.value.exit_code == 75
    told = [record.getMessage() for record in caplog.records if record.name == "secagg.link"]
    assert len(told) == 1
    assert words in told[0]
    assert coordinator.submitted == []


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
async def test_every_status_is_asked_again(consortium: Path, code: grpc.StatusCode) -> None:
    """No status of gRPC ends anything: with each of them the same call is made again."""
    answers = [code, grpc.StatusCode.OK]

    async def answer(request: bytes, context: Any) -> bytes:
        if (next_ := answers.pop(0)) is not grpc.StatusCode.OK:
            await context.abort(next_, "\x1b[31mno\n")
        return rpc.SubmitReply(frame=request[-1:]).SerializeToString()

    server = grpc.aio.server()
    handlers = {"Submit": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("secagg.v1.Session", handlers),))
    port = server.add_secure_port("127.0.0.1:0", read_credentials(consortium / SERVER).for_server())
    await server.start()
    async with Link(read_credentials(consortium / "alice"), f"127.0.0.1:{port}", PATIENCE) as link:
        assert await link.submit(b"x") == b"x"
    await server.stop(None)
    assert answers == []


async def test_log_of_a_lost_connection_has_our_words(
    consortium: Path, coordinator: Remembering, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is stopped and started again is away, then back; what gRPC says of its sockets is in no line."""
    caplog.set_level(logging.INFO, "secagg.link")
    credentials = read_credentials(consortium / SERVER)
    server, address = await serve(credentials, coordinator, "127.0.0.1:0")
    async with Link(read_credentials(consortium / "bob"), address, PATIENCE) as link:
        await link.submit(b"x")
        await server.stop(None)
        again = asyncio.ensure_future(link.submit(b"y"))
        while not caplog.records:  # noqa: ASYNC110 (a log has no event)
            await asyncio.sleep(0.01)
        server, _ = await serve(credentials, coordinator, address)
        await again
    await server.stop(None)
    assert coordinator.submitted == [(2, b"x"), (2, b"y")]
    told = [record.getMessage() for record in caplog.records if record.name == "secagg.link"]
    assert told[-1] == "the server is back"
    assert told[:-1]
    assert all(line.startswith("the server: ") and "asking again for up to" in line for line in told[:-1])
    assert not [line for line in told for words in ("Socket", "Stream", "socket", "RST", "recv") if words in line]


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
async def test_status_of_a_library_is_not_quoted(consortium: Path, code: grpc.StatusCode) -> None:
    """Details that no endpoint of ours has marked as its own are replaced by our words."""

    async def answer(request: bytes, context: Any) -> bytes:
        await context.abort(code, "Stream removed (Socket closed)")

    server = grpc.aio.server()
    handlers = {"Submit": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("secagg.v1.Session", handlers),))
    port = server.add_secure_port("127.0.0.1:0", read_credentials(consortium / SERVER).for_server())
    await server.start()
    async with Link(read_credentials(consortium / "alice"), f"127.0.0.1:{port}", 0.0) as link:
        with pytest.raises(ServerAway) as error:
            await link.submit(b"x")
    await server.stop(None)
    assert error.value.said
    assert "Socket" not in error.value.said


async def test_answer_that_does_not_parse_is_asked_again(consortium: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that are no message of the service are no answer, to a call or in a stream."""
    replies = [b"\xff\xff", rpc.SubmitReply(frame=b"y").SerializeToString()]
    chunks = [b"\xff\xff", rpc.Chunk(data=b"z").SerializeToString()]

    async def answer(request: bytes, context: Any) -> bytes:
        return replies.pop(0)

    async def tell(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield chunks.pop(0)

    server = grpc.aio.server()
    handlers = {
        "Submit": grpc.unary_unary_rpc_method_handler(answer),
        "Fetch": grpc.unary_stream_rpc_method_handler(tell),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("secagg.v1.Session", handlers),))
    port = server.add_secure_port("127.0.0.1:0", read_credentials(consortium / SERVER).for_server())
    await server.start()
    async with Link(read_credentials(consortium / "alice"), f"127.0.0.1:{port}", PATIENCE) as link:
        assert await link.submit(b"x") == b"y"
        assert await link.fetch(bytes(32), "Inbox", 5) == b"z"
    await server.stop(None)


async def test_patience_begins_with_the_first_failure(
    consortium: Path, address: str, coordinator: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long question that fails at its end is asked again, however little patience it would have left."""
    now = [1000.0]
    monkeypatch.setattr("secagg.transport.client.time", SimpleNamespace(monotonic=lambda: now[0]))
    waited: list[float] = []

    async def fetch(member: int, round_digest: bytes, step: str, patience: float) -> bytes:
        now[0] += 14.0
        waited.append(patience)
        if len(waited) < 3:
            raise NotNow("killed")
        return b"due"

    monkeypatch.setattr(coordinator, "fetch", fetch)
    async with Link(read_credentials(consortium / "alice"), address, 15.0) as link:
        assert await link.fetch(bytes(32), "Inbox", 1000.0) == b"due"


async def test_calls_of_one_member_are_limited(consortium: Path, address: str, coordinator: Remembering) -> None:
    """A member has only so many calls open: one more is refused at once, and nobody else's."""
    release, arrived = asyncio.Event(), asyncio.Semaphore(0)

    async def submit(member: int, frame: bytes) -> bytes:
        if member == 1:
            arrived.release()
            await release.wait()
        return b"answer"

    coordinator.submit = submit  # type: ignore[method-assign]
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        stub = rpc.SessionStub(opened)
        held = [asyncio.ensure_future(_code_of(stub, b"x")) for _ in range(CALLS_PER_MEMBER)]
        for _ in held:
            await arrived.acquire()
        async with asyncio.timeout(10 * PATIENCE):
            assert await _code_of(stub, b"one more") is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert arrived.locked()
        async with Link(read_credentials(consortium / "bob"), address, PATIENCE) as link:
            assert await link.submit(b"x") == b"answer"
        release.set()
        assert await asyncio.gather(*held) == [grpc.StatusCode.OK] * CALLS_PER_MEMBER


@pytest.mark.parametrize(
    "method", ["secagg.v1.Session/Submit", "secagg.v1.Session/Fetch", "grpc.health.v1.Health/Check"]
)
@pytest.mark.parametrize("caller", ["alice", "stranger"])
async def test_calls_that_never_say_what_they_want(
    consortium: Path, address: str, coordinator: Remembering, method: str, caller: str
) -> None:
    """However many calls one certificate opens without ever sending the request, the others' calls are answered."""
    credentials = read_credentials(consortium / "alice")
    if caller == "stranger":
        certify(consortium, consortium / "alice", "mallory")
        credentials = replace(credentials, cert_pem=(consortium / "alice" / "cert.pem").read_bytes())

    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with channel(credentials, address) as opened:
        calls = [opened.stream_unary(f"/{method}")(never()) for _ in range(500)]
        async with asyncio.timeout(60.0):  # those that are refused at once are all that go over the bound
            for ended in islice(asyncio.as_completed([call.code() for call in calls]), len(calls) - 8):
                await ended
        async with Link(read_credentials(consortium / "bob"), address, 0.0) as link:
            await link.submit(b"x")
        assert coordinator.submitted == [(2, b"x")]
        for call in calls:
            call.cancel()


async def _code_of(stub: Any, frame: bytes) -> Any:
    call = stub.Submit(rpc.SubmitRequest(frame=frame))
    return await call.code()


async def test_refused_messages_cost_their_sender(
    consortium: Path, address: str, coordinator: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many refusals a member's calls are not looked at for a while; those of the others are."""
    now, asked = [time.monotonic()], [0]
    monkeypatch.setattr("secagg.transport.limits.RETRY_SECONDS", 0.0)
    monkeypatch.setattr("secagg.transport.server.time", SimpleNamespace(monotonic=lambda: now[0]))

    async def submit(member: int, frame: bytes) -> bytes:
        asked[0] += member == 1
        if frame == b"bad":
            raise ProtocolViolation(1, "did not sign it")
        return b""

    coordinator.submit = submit  # type: ignore[method-assign]
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        stub = rpc.SessionStub(opened)
        codes = [await _code_of(stub, b"bad") for _ in range(REFUSALS_AT_ONCE + 5)]
        assert codes == [grpc.StatusCode.INVALID_ARGUMENT] * REFUSALS_AT_ONCE + [grpc.StatusCode.RESOURCE_EXHAUSTED] * 5
        assert await _code_of(stub, b"good") is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert asked[0] == REFUSALS_AT_ONCE
        async with Link(read_credentials(consortium / "bob"), address, PATIENCE) as link:
            await link.submit(b"good")
        now[0] += REFUSAL_SECONDS
        assert await _code_of(stub, b"good") is grpc.StatusCode.OK
        assert await _code_of(stub, b"bad") is grpc.StatusCode.INVALID_ARGUMENT
        assert await _code_of(stub, b"good") is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("method", ["Submit", "Upload", "Fetch"])
async def test_request_that_does_not_parse_is_refused_by_name(
    consortium: Path, address: str, coordinator: Remembering, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes that are no request reach the coordinator as an empty one: a refusal of one line, without a traceback."""

    async def refuse(*_: Any) -> bytes:
        raise MalformedMessage("Frame", "empty")

    coordinator.submit = coordinator.upload = coordinator.fetch = refuse  # type: ignore[assignment,method-assign]
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        kind = {"Submit": opened.unary_unary, "Upload": opened.stream_unary, "Fetch": opened.unary_stream}[method]
        garbage = b"\xff\xff\xff"
        call = kind(f"/secagg.v1.Session/{method}")(iter([garbage]) if method == "Upload" else garbage)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [record.getMessage() for record in caplog.records] == ["refused alice: malformed Frame: empty"]
    assert all(record.exc_info is None for record in caplog.records)


async def test_connection_that_says_nothing_is_closed(consortium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects and does not complete the handshake is hung up on: it does not keep a connection for nothing."""
    monkeypatch.setattr("secagg.transport.limits.HANDSHAKE_SECONDS", 0.2)
    server, address = await serve(read_credentials(consortium / SERVER), Remembering(), "127.0.0.1:0")
    reader, writer = await asyncio.open_connection(*address.split(":"))
    async with asyncio.timeout(5.0):
        assert await reader.read() == b""
    writer.close()
    await server.stop(None)


async def test_server_may_have_as_many_connections_as_the_system_allows(consortium: Path) -> None:
    """The soft limit of open files is raised to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    try:
        server, _ = await serve(read_credentials(consortium / SERVER), Remembering(), "127.0.0.1:0")
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        await server.stop(None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_full_disk_of_the_server_is_waited_for(consortium: Path, address: str, coordinator: Remembering) -> None:
    """A server that cannot store for now is asked again, and its details stay on its side."""
    coordinator.failures = [BadInput("secret path"), BadInput("secret path")]
    async with Link(read_credentials(consortium / "bob"), address, 5) as link:
        await link.submit(b"x")
        assert coordinator.submitted == [(2, b"x")]
        coordinator.failures = [BadInput("secret path")] * 100_000
        link.patience = 0.05
        with pytest.raises(ServerAway) as error:
            await link.submit(b"y")
    assert "secret" not in str(error.value)
    assert "its disk is full" in error.value.said


async def test_internal_fault_does_not_leak(consortium: Path, address: str, coordinator: Remembering) -> None:
    """An unforeseen fault in the coordinator ends the call without its text reaching the client."""
    coordinator.failures = [RuntimeError("the key is 1234")]
    error = await refusal(read_credentials(consortium / "bob"), address)
    assert error.code() in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
    assert "1234" not in str(error.details())


async def test_stranger_of_the_same_authority(consortium: Path, address: str, coordinator: Remembering) -> None:
    """A valid certificate of the consortium whose name is not in the roster opens nothing."""
    certify(consortium, consortium / "bob", "mallory")
    credentials = replace(
        read_credentials(consortium / "alice"),
        cert_pem=(consortium / "bob" / "cert.pem").read_bytes(),
        key_pem=(consortium / "bob" / "key.pem").read_bytes(),
    )
    error = await refusal(credentials, address)
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "mallory" in str(error.details())
    async with Link(credentials, address, PATIENCE) as link:
        with pytest.raises(ServerAway, match="mallory is not a member of the roster"):
            await link.submit(b"x")
    assert coordinator.submitted == []


async def test_server_certificate_used_by_a_client(consortium: Path, address: str, coordinator: Remembering) -> None:
    """The server's own certificate is no client's."""
    error = await refusal(read_credentials(consortium / SERVER), address)
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    assert coordinator.submitted == []


@pytest.mark.parametrize("method", ["Submit", "Upload", "Fetch"])
async def test_every_call_asks_who_is_there(consortium: Path, address: str, method: str) -> None:
    """No call of the service is answered for a stranger."""
    async with channel(read_credentials(consortium / SERVER), address) as opened:
        stub = rpc.SessionStub(opened)
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "Submit": lambda: stub.Submit(rpc.SubmitRequest(frame=b"x")),
            "Upload": lambda: stub.Upload(iter([rpc.UploadPart(frame=b"x")])),
            "Fetch": lambda: _drain(stub.Fetch(rpc.FetchRequest(round_digest=bytes(32), step="Inbox"))),
        }
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await calls[method]()
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def _drain(chunks: AsyncIterator[Any]) -> None:
    async for _ in chunks:
        pass


@pytest.mark.parametrize("wrong", ["expired", "other authority", "no certificate"])
async def test_certificate_that_tls_refuses(
    consortium: Path, address: str, coordinator: Remembering, tmp_path: Path, wrong: str
) -> None:
    """An expired certificate, one of another authority, or none does not get through the handshake."""
    credentials = read_credentials(consortium / "alice")
    if wrong == "expired":
        certify(consortium, consortium / "alice", "alice", days=-1)
        credentials = replace(credentials, cert_pem=(consortium / "alice" / "cert.pem").read_bytes())
    elif wrong == "other authority":
        enrol(tmp_path / "other", "alice")
        other = read_credentials(tmp_path / "other" / "alice")
        credentials = replace(credentials, cert_pem=other.cert_pem, key_pem=other.key_pem)
    trusted = credentials.ca_pem
    tls = credentials.for_channel(trusted) if wrong != "no certificate" else grpc.ssl_channel_credentials(trusted)
    options = [("grpc.ssl_target_name_override", SERVER)]
    async with grpc.aio.secure_channel(address, tls, options=options) as opened:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await rpc.SessionStub(opened).Submit(rpc.SubmitRequest(frame=b"x"), timeout=5)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert coordinator.submitted == []


async def test_server_of_another_authority_gets_nothing(consortium: Path, tmp_path: Path) -> None:
    """A client sends nothing to a server that its own authority did not certify."""
    enrol(tmp_path / "other", "alice")
    impostor = Remembering()
    server, address = await serve(read_credentials(tmp_path / "other" / SERVER), impostor, "127.0.0.1:0")
    async with Link(read_credentials(consortium / "alice"), address, PATIENCE) as link:
        with pytest.raises(ServerAway):
            await link.submit(b"frame")
    await server.stop(None)
    assert impostor.submitted == []


async def test_member_cannot_play_the_server(consortium: Path) -> None:
    """A client sends nothing to a listener that shows another member's certificate."""
    impostor = Remembering()
    server, address = await serve(read_credentials(consortium / "bob"), impostor, "127.0.0.1:0")
    async with Link(read_credentials(consortium / "alice"), address, PATIENCE) as link:
        with pytest.raises(ServerAway):
            await link.submit(b"frame")
    await server.stop(None)
    assert impostor.submitted == []


async def test_health_is_serving(consortium: Path, address: str) -> None:
    """The standard health check answers SERVING."""
    async with channel(read_credentials(consortium / "alice"), address) as opened:
        reply = await health_pb2_grpc.HealthStub(opened).Check(health_pb2.HealthCheckRequest(service=""))
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("listen", ["192.0.2.1:0", "127.0.0.1:99999", "127.0.0.1:-1"])
async def test_address_that_cannot_be_listened_on(consortium: Path, listen: str) -> None:
    """An address that this machine does not have is refused in one line."""
    with pytest.raises(BadInput, match=r"cannot listen|HOST:PORT"):
        await serve(read_credentials(consortium / SERVER), Remembering(), listen)
