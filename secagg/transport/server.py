"""The gRPC endpoint of a server or an aggregator: it identifies callers, enforces limits, and splits files.

It passes each call to a `Coordinator`, the party's side of the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, MalformedMessage, NotNow, OtherPlan, ProtocolViolation, SecaggError
from secagg.transport import limits
from secagg.transport.certificates import read_certificate, spki_sha256
from secagg.transport.credentials import Credentials
from secagg.wire import rpc

_log = logging.getLogger("secagg.server")
_SERVICE = "secagg.v1.Session"
_HEALTH = "grpc.health.v1.Health"
T = TypeVar("T")


class Coordinator(Protocol):
    """Interface of the party that answers the calls of a gRPC endpoint: the plan's server, or a helper."""

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Process a member's signed message (`frame`); return the signed answer, or no bytes."""

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Process a member's signed message and the bytes that it announces; return the signed answer, or no bytes."""

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        """Return the signed message of `step` for `member`; None if it is not there after `patience` seconds."""

    async def read(self, member: int, round_digest: bytes, digest: bytes) -> Path:
        """Return the path of the file with this digest, which a message to `member` has named."""


class Endpoint:
    """The gRPC service. It answers each refused call by a status with one line, and logs it with the member's name."""

    def __init__(self, credentials: Credentials, coordinator: Coordinator) -> None:
        self._roster = credentials.roster
        self._coordinator = coordinator
        self._uploading: set[int] = set()
        self._me = credentials.index
        self._slots = [asyncio.Semaphore(limits.CALLS_PER_MEMBER) for _ in credentials.roster.members]
        self._places = asyncio.Semaphore(limits.SENDS_AT_A_TIME)
        self._credit = [_Credit() for _ in credentials.roster.members]

    def handlers(self) -> dict[str, Any]:
        """Return the service's methods by name. A request that does not parse counts as an empty one, and is refused.

        All are streams here, which look the same to callers: gRPC hands over other calls once their request is whole,
        and until then they would count for everybody and nobody.
        """
        answer = rpc.SubmitReply.SerializeToString
        one, many = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        return {
            "Submit": one(self.Submit, _parsing(rpc.SubmitRequest), answer),
            "Upload": one(self.Upload, _parsing(rpc.UploadPart), answer),
            "Fetch": many(self.Fetch, _parsing(rpc.FetchRequest), rpc.Chunk.SerializeToString),
            "Read": many(self.Read, _parsing(rpc.ReadRequest), rpc.ReadPart.SerializeToString),
        }

    async def Submit(self, request_iterator: AsyncIterator[rpc.SubmitRequest], context: Any) -> rpc.SubmitReply:
        """Answer a gRPC call that sends one signed message (frame)."""
        member = await self._caller(context)
        async with self._guarded(member, context):
            frame = (await _only(request_iterator, limits.CALL_SECONDS)).frame  # the request would hold it once more
            return rpc.SubmitReply(frame=await self._coordinator.submit(member, frame))

    async def Upload(self, request_iterator: AsyncIterator[rpc.UploadPart], context: Any) -> rpc.SubmitReply:
        """Answer a gRPC call that sends a signed message (frame), then a vector in parts."""
        member = await self._caller(context)
        if member in self._uploading:
            await _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "one upload at a time")
        async with self._guarded(member, context):
            self._uploading.add(member)
            parts = aiter(request_iterator)
            try:
                first = await _first(parts, limits.SILENT_SECONDS)
                frame = first.frame if first is not None else b""
                return rpc.SubmitReply(frame=await self._coordinator.upload(member, frame, _data(parts)))
            finally:
                self._uploading.discard(member)

    async def Fetch(self, request_iterator: AsyncIterator[rpc.FetchRequest], context: Any) -> None:
        """Send the signed message (frame) for which the caller waits, in chunks; nothing if it is not there yet."""
        member = await self._caller(context)
        async with self._guarded(member, context):
            request = await _only(request_iterator, limits.SILENT_SECONDS)
            ask = partial(self._coordinator.fetch, member, request.round_digest, request.step)
            frame = await ask(min(limits.POLL_SECONDS, float(request.patience))) or b""
        if len(frame) <= limits.SHORT_BYTES:
            await _send(context, frame)
            return
        del frame  # read again once there is a place: those of all who wait would fill the memory
        async with self._slots[member], self._place():
            await _send(context, await ask(0.0) or b"")

    async def Read(self, request_iterator: AsyncIterator[rpc.ReadRequest], context: Any) -> AsyncIterator[rpc.ReadPart]:
        """Yield a file that a message has named, in parts, from the byte that the request's `start` gives."""
        member = await self._caller(context)
        async with self._guarded(member, context):
            request = await _only(request_iterator, limits.SILENT_SECONDS)
            path = await self._coordinator.read(member, request.round_digest, request.digest)
            if request.start >= path.stat().st_size:
                raise MalformedMessage("ReadRequest", f"it begins at byte {request.start}, where there is none")
        async with self._slots[member]:
            for part in _parts_of(path, request):
                yield part

    async def _caller(self, context: Any) -> int:
        """Return the roster index of the member that calls; refuse any other caller."""
        try:
            return self._member_behind(context.auth_context())
        except BadInput as error:
            _log.warning("refused a connection from %s: %s", context.peer(), error)
            await _refuse(context, grpc.StatusCode.UNAUTHENTICATED, str(error))
            raise

    def _member_behind(self, auth: Mapping[str, Sequence[bytes]]) -> int:
        """Return the index of the party whose key opened the connection. Raises BadInput for a stranger or old TLS."""
        if auth.get("ssl_tls_version") != [b"TLSv1.3"]:
            raise BadInput("TLS 1.3 is required", remedy="call with a client that has TLS 1.3")
        names = [name.decode(errors="replace") for name in auth.get("x509_subject_alternative_name", [])]
        index = self._roster.index(names[0]) if len(names) == 1 else self._me
        if index in (self._me, SERVER_INDEX):
            problem = f"the certificate of {', '.join(names) or 'nobody'} is no client's of this roster"
            raise BadInput(problem, remedy="have the member join by the newest kit")
        if spki_sha256(read_certificate(auth["x509_pem_cert"][0])) != self._roster.tls_spki_sha256(index):
            problem = f"the certificate of {names[0]} is for another key than the roster has"
            raise BadInput(problem, remedy="have the member join by the newest kit")
        return index

    @contextlib.asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Hold a place for a long message, for SEND_SECONDS at most: who reads it slowly keeps nobody waiting."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        late = loop.call_later(limits.SEND_SECONDS, self._places.release)
        try:
            yield
        finally:
            if late.when() > loop.time():  # else it has released the place, or is about to
                late.cancel()
                self._places.release()

    @contextlib.asynccontextmanager
    async def _guarded(self, member: int, context: Any) -> AsyncIterator[None]:
        """Admit a call while its member has few others open; end it with a status for an error raised inside."""
        if self._slots[member].locked():
            said = f"at most {limits.CALLS_PER_MEMBER} calls at a time"
            await _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, said)
        async with self._slots[member]:
            if not self._credit[member].is_left():
                await asyncio.sleep(limits.RETRY_SECONDS)
                await _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many refused messages; ask again later")
            try:
                yield
            except (ProtocolViolation, MalformedMessage) as error:
                self._roster.name_culprit(error)
                self._credit[member].spend()
                _log.warning("refused %s: %s", self._roster.name(member), error)
                await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except OtherPlan as error:
                _log.warning("%s runs another plan than this server: %s", self._roster.name(member), error.problem)
                await _refuse(context, grpc.StatusCode.NOT_FOUND, error.problem)
            except NotNow as error:
                _log.info("%s has to come again: %s", self._roster.name(member), error.problem)
                await _refuse(context, grpc.StatusCode.UNAVAILABLE, error.problem)
            except BadInput as error:
                _log.error("%s", error)
                problem = "its disk is full, or does not take what it is given; its operator has to see to that"
                await _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, problem)
            except SecaggError as error:
                await _refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
            except Exception:  # noqa: BLE001 (whatever it is, the caller learns only that it was not refused)
                _log.exception("a call of %s failed", self._roster.name(member))
                await _refuse(context, grpc.StatusCode.INTERNAL, "the server failed; its operator's log says why")


class _Credit:
    """The number of refused messages that one member may still send: some at once, and more as time passes."""

    def __init__(self) -> None:
        self._left = float(limits.REFUSALS_AT_ONCE)
        self._counted = time.monotonic()

    def is_left(self) -> bool:
        now = time.monotonic()
        self._left = min(limits.REFUSALS_AT_ONCE, self._left + (now - self._counted) / limits.REFUSAL_SECONDS)
        self._counted = now
        return self._left >= 1

    def spend(self) -> None:
        self._left -= 1


class Health:
    """The standard gRPC health check without Watch, for any caller with a certificate; few calls at a time."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(limits.CHECKS_AT_A_TIME)

    def handlers(self) -> dict[str, Any]:
        """Return the health service's only method, by name."""
        answer = health_pb2.HealthCheckResponse.SerializeToString
        parse = _parsing(health_pb2.HealthCheckRequest)
        return {"Check": grpc.stream_unary_rpc_method_handler(self.Check, parse, answer)}

    async def Check(self, request_iterator: AsyncIterator[Any], context: Any) -> Any:
        """Return SERVING for the server as a whole; refuse the name of a single service."""
        if self._places.locked():
            said = f"at most {limits.CHECKS_AT_A_TIME} checks at a time"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, said)
        async with self._places:
            try:
                service = (await _only(request_iterator, limits.SILENT_SECONDS)).service
            except (NotNow, MalformedMessage) as error:
                service = ""
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if service:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is one service, without a name")
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


async def _refuse(context: Any, code: grpc.StatusCode, said: str) -> None:
    """End a call with a status, marked as this endpoint's own, since gRPC sends statuses of its own."""
    await context.abort(code, said, (limits.OWN_WORDS,))


async def _send(context: Any, frame: bytes) -> None:
    for start in range(0, len(frame), limits.CHUNK_BYTES):
        await context.write(rpc.Chunk(data=frame[start : start + limits.CHUNK_BYTES]))


def _parts_of(path: Path, request: rpc.ReadRequest) -> Iterator[rpc.ReadPart]:
    with path.open("rb") as file:
        file.seek(request.start)
        while data := file.read(limits.CHUNK_BYTES):
            yield rpc.ReadPart(digest=request.digest, start=file.tell() - len(data), data=data)


def _parsing(message: Any) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> Any:
        try:
            return message.FromString(data)
        except DecodeError:
            return message()

    return parse


async def _first(parts: AsyncIterator[T], seconds: float) -> T | None:
    """Return the first message of a call, None if it has none. Raises NotNow if it does not come in time."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(parts, None)
    except TimeoutError:
        raise NotNow(f"nothing came for {seconds:.0f} s") from None


async def _only(requests: AsyncIterator[T], seconds: float) -> T:
    """Return the only request of a call. Raises NotNow if it does not come in time, MalformedMessage without one."""
    request = await _first(aiter(requests), seconds)
    if request is None:
        raise MalformedMessage("request", "none came")
    return request


async def _data(parts: AsyncIterator[rpc.UploadPart]) -> AsyncIterator[bytes]:
    async for part in parts:
        if part.WhichOneof("part") != "data" or not 0 < len(part.data) <= limits.CHUNK_BYTES:
            raise MalformedMessage("UploadPart", f"only data of 1 to {limits.CHUNK_BYTES} bytes may follow the frame")
        yield part.data


async def serve(credentials: Credentials, coordinator: Coordinator, listen: str) -> tuple[grpc.aio.Server, str]:
    """Start a gRPC endpoint with a health service; return it with the address it listens on. Raises BadInput."""
    host, _, wanted = listen.rpartition(":")
    if not host or not wanted.isdigit() or int(wanted) > 65_535:
        raise BadInput(f"{listen!r} is no address to listen on", remedy="write HOST:PORT")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # as many connections as may be: a thousand is the usual soft limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    options = [
        *limits.KEEPALIVE,
        ("grpc.so_reuseport", 0),  # a port that another process has is refused, not shared
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.HANDSHAKE_SECONDS)),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=16 * len(credentials.roster.members) + 16)
    services = {_SERVICE: Endpoint(credentials, coordinator).handlers(), _HEALTH: Health().handlers()}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(*each) for each in services.items()])
    try:
        port = server.add_secure_port(listen, credentials.for_server())
    except RuntimeError:
        port = 0
    if port == 0:
        raise BadInput(f"cannot listen on {listen}", remedy="give a free HOST:PORT of this machine")
    await server.start()
    return server, f"{host}:{port}"
