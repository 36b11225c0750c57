"""The gRPC endpoint of a server or an aggregator: who is calling, bounds, chunks. The coordinator knows the meaning."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, MalformedMessage, NotNow, OtherPlan, ProtocolViolation, SecaggError
from secagg.transport.certificates import read_certificate, spki_sha256
from secagg.transport.credentials import Credentials
from secagg.transport.limits import (
    CALL_SECONDS,
    CALLS_PER_MEMBER,
    CHECKS_AT_A_TIME,
    CHUNK_BYTES,
    HANDSHAKE_SECONDS,
    KEEPALIVE,
    OWN_WORDS,
    POLL_SECONDS,
    REFUSAL_SECONDS,
    REFUSALS_AT_ONCE,
    RETRY_SECONDS,
    SILENT_SECONDS,
)
from secagg.wire import rpc

_log = logging.getLogger("secagg.server")
_SERVICE = "secagg.v1.Session"
_HEALTH = "grpc.health.v1.Health"
T = TypeVar("T")


class Coordinator(Protocol):
    """The receiver of the endpoint's bytes."""

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Take a frame; return the frame that answers it, or nothing."""

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Take a frame that announces bytes, and the bytes; return the frame that answers it, or nothing."""

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        """The frame of that step for that member; None when it is not there after `patience` seconds."""

    async def read(self, member: int, round_digest: bytes, digest: bytes) -> Path:
        """The file with this digest, which a session has named to that member."""


class Endpoint:
    """Translates calls. Every refusal reaches the caller as a status with one line, and the log with its name."""

    def __init__(self, credentials: Credentials, coordinator: Coordinator) -> None:
        self._roster = credentials.roster
        self._coordinator = coordinator
        self._uploading: set[int] = set()
        self._me = credentials.index
        self._slots = [asyncio.Semaphore(CALLS_PER_MEMBER) for _ in credentials.roster.members]
        self._credit = [_Credit() for _ in credentials.roster.members]

    def handlers(self) -> dict[str, Any]:
        """The service's methods. A request that does not parse is an empty one: its sender is refused by name.

        All are streams here, which look the same to callers: gRPC hands over other calls once their request is whole,
        and until then they would count for everybody and nobody.
        """
        answer = rpc.SubmitReply.SerializeToString
        return {
            "Submit": grpc.stream_unary_rpc_method_handler(self.Submit, _parsing(rpc.SubmitRequest), answer),
            "Upload": grpc.stream_unary_rpc_method_handler(self.Upload, _parsing(rpc.UploadPart), answer),
            "Fetch": grpc.stream_stream_rpc_method_handler(
                self.Fetch, _parsing(rpc.FetchRequest), rpc.Chunk.SerializeToString
            ),
            "Read": grpc.stream_stream_rpc_method_handler(
                self.Read, _parsing(rpc.ReadRequest), rpc.ReadPart.SerializeToString
            ),
        }

    async def Submit(self, request_iterator: AsyncIterator[rpc.SubmitRequest], context: Any) -> rpc.SubmitReply:
        """One frame."""
        member = await self._caller(context)
        return rpc.SubmitReply(frame=await self._guard(member, context, self._submit(member, request_iterator)))

    async def _submit(self, member: int, requests: AsyncIterator[rpc.SubmitRequest]) -> bytes:
        request = await _only(requests, CALL_SECONDS)
        return await self._coordinator.submit(member, request.frame)

    async def Upload(self, request_iterator: AsyncIterator[rpc.UploadPart], context: Any) -> rpc.SubmitReply:
        """A frame, then the vector in parts."""
        member = await self._caller(context)
        if member in self._uploading:
            await _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "one upload at a time")
        return rpc.SubmitReply(frame=await self._guard(member, context, self._upload(member, request_iterator)))

    async def _upload(self, member: int, request_iterator: AsyncIterator[rpc.UploadPart]) -> bytes:
        self._uploading.add(member)
        parts = aiter(request_iterator)
        try:
            first = await _first(parts, SILENT_SECONDS)
            return await self._coordinator.upload(member, first.frame if first is not None else b"", _data(parts))
        finally:
            self._uploading.discard(member)

    async def Fetch(self, request_iterator: AsyncIterator[rpc.FetchRequest], context: Any) -> AsyncIterator[rpc.Chunk]:
        """The frame that the caller waits for, in chunks; nothing when it must ask again."""
        member = await self._caller(context)
        frame = await self._guard(member, context, self._fetch(member, request_iterator)) or b""
        for start in range(0, len(frame), CHUNK_BYTES):
            yield rpc.Chunk(data=frame[start : start + CHUNK_BYTES])

    async def _fetch(self, member: int, requests: AsyncIterator[rpc.FetchRequest]) -> bytes | None:
        request = await _only(requests, SILENT_SECONDS)
        patience = min(POLL_SECONDS, float(request.patience))
        return await self._coordinator.fetch(member, request.round_digest, request.step, patience)

    async def Read(self, request_iterator: AsyncIterator[rpc.ReadRequest], context: Any) -> AsyncIterator[rpc.ReadPart]:
        """An attachment that a session has named, in parts, from the byte on that the caller asks for."""
        member = await self._caller(context)
        request, path = await self._guard(member, context, self._find_file(member, request_iterator))
        async with self._slots[member]:
            for part in _parts_of(path, request):
                yield part

    async def _find_file(self, member: int, requests: AsyncIterator[rpc.ReadRequest]) -> tuple[rpc.ReadRequest, Path]:
        request = await _only(requests, SILENT_SECONDS)
        path = await self._coordinator.read(member, request.round_digest, request.digest)
        if request.start >= path.stat().st_size:
            raise MalformedMessage("ReadRequest", f"it begins at byte {request.start}, where there is none")
        return request, path

    async def _caller(self, context: Any) -> int:
        """The roster index of the member that calls; anybody else is refused."""
        try:
            return self._member_behind(context.auth_context())
        except BadInput as error:
            _log.warning("refused a connection from %s: %s", context.peer(), error)
            await _refuse(context, grpc.StatusCode.UNAUTHENTICATED, str(error))
            raise

    def _member_behind(self, auth: Mapping[str, Sequence[bytes]]) -> int:
        """The party whose key opened the connection. Raises BadInput below TLS 1.3, and for a stranger's key."""
        if auth.get("ssl_tls_version") != [b"TLSv1.3"]:
            raise BadInput("TLS 1.3 is required", remedy="call with a client that has TLS 1.3")
        names = [name.decode(errors="replace") for name in auth.get("x509_subject_alternative_name", [])]
        index = self._roster.index(names[0]) if len(names) == 1 else self._me
        if index in (self._me, SERVER_INDEX):
            raise BadInput(
                f"the certificate of {', '.join(names) or 'nobody'} is no client's of this roster",
                remedy="have the member join by the newest kit",
            )
        if spki_sha256(read_certificate(auth["x509_pem_cert"][0])) != self._roster.tls_spki_sha256(index):
            raise BadInput(
                f"the certificate of {names[0]} is for another key than the roster has",
                remedy="have the member join by the newest kit",
            )
        return index

    async def _guard(self, member: int, context: Any, work: Any) -> Any:
        if self._slots[member].locked():
            work.close()
            await _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {CALLS_PER_MEMBER} calls at a time")
        async with self._slots[member]:
            if not self._credit[member].is_left():
                work.close()
                await asyncio.sleep(RETRY_SECONDS)
                await _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many refused messages; ask again later")
            try:
                return await work
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
    """The number of refused messages that one member has left: some at once, then one in a while."""

    def __init__(self) -> None:
        self._left = float(REFUSALS_AT_ONCE)
        self._counted = time.monotonic()

    def is_left(self) -> bool:
        now = time.monotonic()
        self._left = min(REFUSALS_AT_ONCE, self._left + (now - self._counted) / REFUSAL_SECONDS)
        self._counted = now
        return self._left >= 1

    def spend(self) -> None:
        self._left -= 1


class Health:
    """The standard health check, for anyone with a certificate. Nobody can hold calls open: few are read at a time.

    Watch is not served.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(CHECKS_AT_A_TIME)

    def handlers(self) -> dict[str, Any]:
        """The service's method."""
        answer = health_pb2.HealthCheckResponse.SerializeToString
        parse = _parsing(health_pb2.HealthCheckRequest)
        return {"Check": grpc.stream_unary_rpc_method_handler(self.Check, parse, answer)}

    async def Check(self, request_iterator: AsyncIterator[Any], context: Any) -> Any:
        """SERVING, of the server as a whole."""
        if self._places.locked():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {CHECKS_AT_A_TIME} checks at a time")
        async with self._places:
            try:
                service = (await _only(request_iterator, SILENT_SECONDS)).service
            except (NotNow, MalformedMessage) as error:
                service = ""
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if service:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is one service, without a name")
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


async def _refuse(context: Any, code: grpc.StatusCode, said: str) -> None:
    """End a call with a status, marked as this endpoint's own words: gRPC has others of its own."""
    await context.abort(code, said, (OWN_WORDS,))


def _parts_of(path: Path, request: rpc.ReadRequest) -> Iterator[rpc.ReadPart]:
    with path.open("rb") as file:
        file.seek(request.start)
        while data := file.read(CHUNK_BYTES):
            yield rpc.ReadPart(digest=request.digest, start=file.tell() - len(data), data=data)


def _parsing(message: Any) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> Any:
        try:
            return message.FromString(data)
        except DecodeError:
            return message()

    return parse


async def _first(parts: AsyncIterator[T], seconds: float) -> T | None:
    """The first message of a call. Raises NotNow when it is not there in time."""
    try:
        return await asyncio.wait_for(anext(parts, None), seconds)
    except TimeoutError:
        raise NotNow(f"nothing came for {seconds:.0f} s") from None


async def _only(requests: AsyncIterator[T], seconds: float) -> T:
    """The request of a call that has one. Raises NotNow when it is not there in time, MalformedMessage without any."""
    request = await _first(aiter(requests), seconds)
    if request is None:
        raise MalformedMessage("request", "none came")
    return request


async def _data(parts: AsyncIterator[rpc.UploadPart]) -> AsyncIterator[bytes]:
    async for part in parts:
        if part.WhichOneof("part") != "data" or not 0 < len(part.data) <= CHUNK_BYTES:
            raise MalformedMessage("UploadPart", f"only data of 1 to {CHUNK_BYTES} bytes may follow the frame")
        yield part.data


def _allow_many_files() -> None:
    """Let this process have as many connections and files as it may: the usual soft limit is a thousand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(credentials: Credentials, coordinator: Coordinator, listen: str) -> tuple[grpc.aio.Server, str]:
    """Start the endpoint with a health service; return it with the address it listens on. Raises BadInput."""
    host, _, wanted = listen.rpartition(":")
    if not host or not wanted.isdigit() or int(wanted) > 65_535:
        raise BadInput(f"{listen!r} is no address to listen on", remedy="write HOST:PORT")
    _allow_many_files()
    options = [
        *KEEPALIVE,
        ("grpc.so_reuseport", 0),  # a port that another process has is refused, not shared
        ("grpc.server_handshake_timeout_ms", round(1000 * HANDSHAKE_SECONDS)),
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
