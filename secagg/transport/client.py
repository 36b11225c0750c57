"""The caller's side of a gRPC connection: retries while the server is away, and chunks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from secagg.errors import BadInput, ServerAway, SessionAborted
from secagg.roster import SERVER_INDEX
from secagg.transport.credentials import Credentials
from secagg.transport.greeting import greet
from secagg.transport.limits import (
    CALL_SECONDS,
    CHUNK_BYTES,
    KEEPALIVE,
    MAX_FRAME_BYTES,
    POLL_SECONDS,
    RETRY_SECONDS,
    UPLOAD_SECONDS,
)
from secagg.wire import rpc

T = TypeVar("T")
_AWAY = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,  # its disk is full: somebody may free it
    grpc.StatusCode.UNKNOWN,  # it failed without meaning to refuse
    grpc.StatusCode.INTERNAL,
)


class Link:
    """A member's connection to the server, or to another `peer` of the roster. An asynchronous context manager.

    A channel trusts nothing but the certificate that the peer showed in a handshake just before, for the key that the
    roster pins: whatever the authority certifies besides, nobody else can be at its other end.

    Every call is idempotent at the peer, so a lost connection is answered by a new channel and the same call again, for
    at most `patience` seconds without a sign of life. Raises ServerAway then, SessionAborted when the server refuses.
    """

    def __init__(self, credentials: Credentials, address: str, patience: float, peer: int = SERVER_INDEX) -> None:
        self._name = credentials.roster.name(peer)
        self._peer = "the server" if peer == SERVER_INDEX else self._name
        self._greet = partial(greet, credentials, address, 0.0, peer)
        self._credentials = credentials
        self._address = address
        self._channel: grpc.aio.Channel | None = None
        self._patience = patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._hang_up()

    async def submit(self, frame: bytes) -> bytes:
        """Send a frame; return the frame that answers it, or nothing."""
        request = rpc.SubmitRequest(frame=frame)
        reply: rpc.SubmitReply = await self._persist(lambda stub: stub.Submit(request, timeout=CALL_SECONDS))
        return reply.frame

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Send a frame and the bytes of a file that it announces; return the frame that answers it, or nothing."""
        reply: rpc.SubmitReply = await self._persist(
            lambda stub: stub.Upload(_parts(frame, vector, start, size), timeout=UPLOAD_SECONDS)
        )
        return reply.frame

    async def fetch(self, plan: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame of `step`; nothing when it is not there within `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            patience = round(max(0.0, min(POLL_SECONDS, deadline - time.monotonic())))
            request = rpc.FetchRequest(plan=plan, step=step, patience=patience)
            asked = time.monotonic()
            frame = await self._persist(partial(self._receive, request))
            if frame or time.monotonic() >= deadline:
                return frame
            if time.monotonic() < asked + RETRY_SECONDS:
                await asyncio.sleep(RETRY_SECONDS)  # a peer that does not keep the call open is not asked all the time

    async def _receive(self, request: rpc.FetchRequest, stub: Any) -> bytes:
        frame = bytearray()
        async for chunk in stub.Fetch(request, timeout=POLL_SECONDS + CALL_SECONDS):
            frame += chunk.data
            if len(frame) > MAX_FRAME_BYTES:
                raise SessionAborted(f"{self._peer} sends more than {MAX_FRAME_BYTES} bytes in one frame")
        return bytes(frame)

    async def _opened(self) -> grpc.aio.Channel:
        """The channel to the peer. Raises BadInput while there is none behind the key that the roster pins."""
        if self._channel is None:
            certificate = await asyncio.to_thread(self._greet)
            options = [*KEEPALIVE, ("grpc.ssl_target_name_override", self._name)]
            tls = self._credentials.for_channel(certificate)
            self._channel = grpc.aio.secure_channel(self._address, tls, options=options)
        return self._channel

    async def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _persist(self, call: Callable[[Any], Awaitable[T]]) -> T:
        deadline = time.monotonic() + self._patience
        while True:
            reason = ""
            try:
                return await call(rpc.SessionStub(await self._opened()))
            except BadInput as error:  # nobody whom the roster pins is there: that may pass
                reason = error.problem
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                    raise BadInput(f"{self._peer} refuses this member: {error.details()}") from None
                if error.code() not in _AWAY:
                    raise SessionAborted(f"{self._peer} refused: {error.details()}") from None
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    await self._hang_up()
            if time.monotonic() > deadline:
                raise ServerAway(self._patience, self._peer, reason)
            await asyncio.sleep(RETRY_SECONDS)


async def _parts(frame: bytes, vector: Path, start: int, size: int) -> AsyncIterator[rpc.UploadPart]:
    yield rpc.UploadPart(frame=frame)
    with vector.open("rb") as file:
        file.seek(start)
        while size > 0 and (data := file.read(min(size, CHUNK_BYTES))):
            size -= len(data)
            yield rpc.UploadPart(data=data)
