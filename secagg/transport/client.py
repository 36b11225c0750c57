"""The caller's side of a gRPC connection: retries while the server is away, and chunks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, NotNow, ServerAway
from secagg.system.printable import escaped
from secagg.transport.credentials import Credentials
from secagg.transport.greeting import greet
from secagg.transport.limits import (
    CALL_SECONDS,
    CHUNK_BYTES,
    KEEPALIVE,
    OWN_WORDS,
    POLL_SECONDS,
    RECONNECT,
    RETRY_SECONDS,
    UPLOAD_SECONDS,
)
from secagg.wire import MAX_FRAME_BYTES, rpc

_FAILURES = {
    grpc.StatusCode.UNAVAILABLE: "there is no connection to it",
    grpc.StatusCode.DEADLINE_EXCEEDED: "it did not answer in time",
    grpc.StatusCode.CANCELLED: "it broke the call off",
}
T = TypeVar("T")
_log = logging.getLogger("secagg.link")


class Link:
    """A member's connection to the server, or to another `peer` of the roster. An asynchronous context manager.

    A channel trusts nothing but the certificate that the peer showed in a handshake just before, for the key that the
    roster pins: whatever the authority certifies besides, nobody else can be at its other end.

    Every call is idempotent at the peer, so whatever fails is answered by the same call again, for `patience` seconds
    from the first failure on, and a lost connection by a new channel. No status of gRPC means more than another: nobody
    has signed it, and it may be that of a peer that is being restarted or that runs another plan. Raises ServerAway in
    the end.
    """

    def __init__(self, credentials: Credentials, address: str, patience: float, peer: int = SERVER_INDEX) -> None:
        self._name = credentials.roster.name(peer)
        self._peer = "the server" if peer == SERVER_INDEX else self._name
        self._greet = partial(greet, credentials, address, 0.0, peer)
        self._credentials = credentials
        self._address = address
        self._channel: grpc.aio.Channel | None = None
        self.patience = patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._hang_up()

    async def submit(self, frame: bytes) -> bytes:
        """Send a frame; return the frame that answers it, or nothing."""
        request = rpc.SubmitRequest(frame=frame)
        reply: rpc.SubmitReply = await self._persist(lambda stub: _read(stub.Submit(request, timeout=CALL_SECONDS)))
        return reply.frame

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Send a frame and the bytes of a file that it announces; return the frame that answers it, or nothing."""
        reply: rpc.SubmitReply = await self._persist(
            lambda stub: _read(stub.Upload(_parts(frame, vector, start, size), timeout=UPLOAD_SECONDS))
        )
        return reply.frame

    async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame of `step`; nothing when it is not there within `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            patience = round(max(0.0, min(POLL_SECONDS, deadline - time.monotonic())))
            request = rpc.FetchRequest(round_digest=round_digest, step=step, patience=patience)
            asked = time.monotonic()
            frame = await self._persist(partial(self._receive, request))
            if frame or time.monotonic() >= deadline:
                return frame
            if time.monotonic() < asked + RETRY_SECONDS:
                await asyncio.sleep(RETRY_SECONDS)  # a peer that does not keep the call open is not asked all the time

    async def read(
        self, round_digest: bytes, digest: bytes, start: int, length: int, take: Callable[[bytes], None]
    ) -> None:
        """Have `take` take the bytes start … length − 1 of what the session has named by this digest, in order.

        A broken connection costs no byte that has come before: it is read on from there.
        """
        position = start

        async def read_on(stub: Any) -> None:
            nonlocal position
            begun = position
            call = stub.Read(
                rpc.ReadRequest(round_digest=round_digest, digest=digest, start=position), timeout=UPLOAD_SECONDS
            )
            try:
                async for part in call:
                    data = _next_part(_readable(part), digest, position, length)
                    take(data)
                    position += len(data)
                if position < length:
                    raise _Unusable(f"only {position} of {length} bytes")
            except (grpc.aio.AioRpcError, _Unusable):
                if position == begun:
                    raise
            finally:
                call.cancel()  # what is refused in the middle goes on at the other end, until it is told

        while position < length:
            await self._persist(read_on)

    async def check_plan(self, plan: bytes) -> None:
        """Ask once whether the peer runs the plan of this digest. Raises BadInput where it runs another.

        For the beginning, when nothing has been sent yet. Whatever else goes wrong is left to the calls that follow.
        """
        try:
            await self._receive(rpc.FetchRequest(round_digest=plan), rpc.SessionStub(await self._open()))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                said = _words_of(error)
                raise BadInput(said, remedy="nothing was sent; compare with whoever wrote the plan") from None
        except (BadInput, NotNow, _Unusable) as error:
            _log.info("%s was not asked which plan it runs: %s", self._peer, error)

    async def _receive(self, request: rpc.FetchRequest, stub: Any) -> bytes:
        frame = bytearray()
        async for chunk in stub.Fetch(request, timeout=POLL_SECONDS + CALL_SECONDS):
            frame += _readable(chunk).data
            if len(frame) > MAX_FRAME_BYTES:
                raise _Unusable(f"more than {MAX_FRAME_BYTES} bytes in one frame")
        return bytes(frame)

    async def _open(self) -> grpc.aio.Channel:
        """The channel to the peer. Raises BadInput or NotNow while nobody with the pinned key is there."""
        if self._channel is None:
            certificate = await asyncio.to_thread(self._greet)
            options = [*KEEPALIVE, *RECONNECT, ("grpc.ssl_target_name_override", self._name)]
            tls = self._credentials.for_channel(certificate)
            self._channel = grpc.aio.secure_channel(self._address, tls, options=options)
        return self._channel

    async def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _persist(self, call: Callable[[Any], Awaitable[T]]) -> T:
        failing_since, told = None, ""
        while True:
            try:
                answer = await call(rpc.SessionStub(await self._open()))
            except (BadInput, NotNow) as error:  # not the peer that the roster pins, or not yet
                said = error.problem
            except grpc.aio.AioRpcError as error:
                said = _words_of(error)
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    await self._hang_up()
            except _Unusable as error:
                said = str(error)
            else:
                if told:
                    _log.info("%s is back", self._peer)
                return answer
            failing_since = failing_since or time.monotonic()
            if time.monotonic() > failing_since + self.patience:
                raise ServerAway(self.patience, self._peer, said)
            if said != told:
                _log.warning("%s: %s; asking again for up to %.0f s", self._peer, said, self.patience)
                told = said
            await asyncio.sleep(RETRY_SECONDS)


class _Unusable(Exception):
    """An answer that cannot be one."""


async def _read(call: Awaitable[T | None]) -> T:
    return _readable(await call)


def _readable(answer: T | None) -> T:
    """The answer itself; gRPC has None for bytes that do not parse."""
    if answer is None:
        raise _Unusable("an answer that cannot be read")
    return answer


def _next_part(part: rpc.ReadPart, digest: bytes, start: int, length: int) -> bytes:
    """The bytes of the part that begins at `start`. Raises _Unusable for any other part."""
    data: bytes = part.data
    if part.digest != digest:
        raise _Unusable("a part of something else than was asked for")
    if part.start != start:
        raise _Unusable(f"the part from byte {part.start} in place of that from {start}")
    if not 0 < len(data) <= min(CHUNK_BYTES, length - start):
        raise _Unusable(f"a part of {len(data)} bytes, with {length - start} to come")
    return data


def _words_of(error: grpc.aio.AioRpcError) -> str:
    """The peer's words about a call that failed, or our words for what gRPC reports itself."""
    if OWN_WORDS in tuple(error.trailing_metadata() or ()):
        return _on_one_line(error.details() or error.code().name)
    return _FAILURES.get(error.code(), f"the call failed ({error.code().name})")


def _on_one_line(text: str) -> str:
    """The other side's words, fit for a log and an error."""
    return escaped(" ".join(text.split()))[:300]


async def _parts(frame: bytes, vector: Path, start: int, size: int) -> AsyncIterator[rpc.UploadPart]:
    yield rpc.UploadPart(frame=frame)
    with vector.open("rb") as file:
        file.seek(start)
        while size > 0 and (data := file.read(min(size, CHUNK_BYTES))):
            size -= len(data)
            yield rpc.UploadPart(data=data)
