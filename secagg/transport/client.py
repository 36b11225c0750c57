"""The caller's side of the gRPC connection, which repeats failed calls and sends files in chunks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, NotNow, ServerAway, describe_error
from secagg.system.printable import escaped
from secagg.transport import limits
from secagg.transport.certificates import read_certificate, spki_sha256
from secagg.transport.credentials import Credentials
from secagg.wire import MAX_FRAME_BYTES, rpc

_FAILURES = {
    grpc.StatusCode.UNAVAILABLE: "there is no connection to it",
    grpc.StatusCode.DEADLINE_EXCEEDED: "it did not answer in time",
    grpc.StatusCode.CANCELLED: "it broke the call off",
}
T = TypeVar("T")
_log = logging.getLogger("secagg.link")


class Link:
    """A member's connection to the server, or to another `peer` of the roster; an asynchronous context manager.

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
        """Send a signed message (`frame`); return the signed answer, or no bytes."""
        request = rpc.SubmitRequest(frame=frame)
        reply: rpc.SubmitReply = await self._persist(
            lambda stub: _read(stub.Submit(request, timeout=limits.CALL_SECONDS))
        )
        return reply.frame

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Send a signed message and the part of a file that it announces; return the signed answer, or no bytes."""
        reply: rpc.SubmitReply = await self._persist(
            lambda stub: _read(stub.Upload(_parts(frame, vector, start, size), timeout=limits.UPLOAD_SECONDS))
        )
        return reply.frame

    async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's signed message of `step`; return no bytes if it does not come within `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            patience = round(max(0.0, min(limits.POLL_SECONDS, deadline - time.monotonic())))
            request = rpc.FetchRequest(round_digest=round_digest, step=step, patience=patience)
            asked = time.monotonic()
            frame = await self._persist(partial(self._receive, request))
            if frame or time.monotonic() >= deadline:
                return frame
            if time.monotonic() < asked + limits.RETRY_SECONDS:  # a peer that does not keep the call open
                await asyncio.sleep(limits.RETRY_SECONDS)

    async def read(
        self, round_digest: bytes, digest: bytes, start: int, length: int, take: Callable[[bytes], None]
    ) -> None:
        """Download bytes `start` to `length` − 1 of the file with this digest; `take` gets each byte once, in order.

        A broken connection costs no byte that has come before: it is read on from there.
        """
        position = start

        async def read_on(stub: Any) -> None:
            nonlocal position
            begun = position
            request = rpc.ReadRequest(round_digest=round_digest, digest=digest, start=position)
            call = stub.Read(request, timeout=limits.UPLOAD_SECONDS)
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
        """Ask the peer once whether it runs the plan of this digest. Raises BadInput if it runs another plan.

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
        async for chunk in stub.Fetch(request, timeout=limits.POLL_SECONDS + limits.CALL_SECONDS):
            frame += _readable(chunk).data
            if len(frame) > MAX_FRAME_BYTES:
                raise _Unusable(f"more than {MAX_FRAME_BYTES} bytes in one frame")
        return bytes(frame)

    async def _open(self) -> grpc.aio.Channel:
        """Return the channel to the peer, opened if need be. Raises BadInput or NotNow without a peer with its key."""
        if self._channel is None:
            certificate = await asyncio.to_thread(self._greet)
            options = [*limits.KEEPALIVE, *limits.RECONNECT, ("grpc.ssl_target_name_override", self._name)]
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
            await asyncio.sleep(limits.RETRY_SECONDS)


class _Unusable(Exception):
    """Raised for an answer that does not parse, or does not fit the request."""


async def _read(call: Awaitable[T | None]) -> T:
    return _readable(await call)


def _readable(answer: T | None) -> T:
    """Return the answer. Raises _Unusable for None, which gRPC returns for bytes that do not parse."""
    if answer is None:
        raise _Unusable("an answer that cannot be read")
    return answer


def _next_part(part: rpc.ReadPart, digest: bytes, start: int, length: int) -> bytes:
    """Return the bytes of a part that begins at `start`. Raises _Unusable for any other part."""
    data: bytes = part.data
    if part.digest != digest:
        raise _Unusable("a part of something else than was asked for")
    if part.start != start:
        raise _Unusable(f"the part from byte {part.start} in place of that from {start}")
    if not 0 < len(data) <= min(limits.CHUNK_BYTES, length - start):
        raise _Unusable(f"a part of {len(data)} bytes, with {length - start} to come")
    return data


def _words_of(error: grpc.aio.AioRpcError) -> str:
    """Return the peer's own message about a failed call, or a message for a failure that gRPC itself reports."""
    if limits.OWN_WORDS in tuple(error.trailing_metadata() or ()):
        return escaped(" ".join((error.details() or error.code().name).split()))[:300]  # fit for one line of a log
    return _FAILURES.get(error.code(), f"the call failed ({error.code().name})")


async def _parts(frame: bytes, vector: Path, start: int, size: int) -> AsyncIterator[rpc.UploadPart]:
    yield rpc.UploadPart(frame=frame)
    with vector.open("rb") as file:
        file.seek(start)
        while size > 0 and (data := file.read(min(size, limits.CHUNK_BYTES))):
            size -= len(data)
            yield rpc.UploadPart(data=data)


_TIMEOUT = 5.0
_CLOSES = 5
"""Consecutive connections that close without a word, after which the peer counts as refusing, or as absent."""


def greet(credentials: Credentials, address: str, wait: float, peer: int = SERVER_INDEX) -> bytes:
    """Complete a TLS 1.3 handshake with the server or another peer, check its certificate and return it (PEM).

    The call waits up to `wait` seconds for the peer to be there.

    A connection that closes without a word is tried again for some seconds, whatever `wait` is: a refusal looks like
    that, and so does a server that is just being killed, and again. One that closes before the handshake is complete is
    that of an absent server: a proxy in front of one accepts and closes.

    Raises NotNow when nobody is there; BadInput: not an address, no TLS 1.3, a certificate that is expired, of another
    authority, of another member than the one called or for another key than the roster pins, or this member's
    certificate refused.
    """
    name = credentials.roster.name(peer)
    called = "the server" if peer == SERVER_INDEX else name
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise BadInput(f"{address!r} is no server address", remedy="write HOST:PORT")
    deadline = time.monotonic() + wait
    closed, cut, said = 0, 0, False
    while True:
        try:
            certificate, is_accepted = _handshake(credentials, host.strip("[]"), int(port), name)
            if spki_sha256(read_certificate(certificate)) != credentials.roster.tls_spki_sha256(peer):
                problem = f"the certificate of {called} at {address} is for another key than the roster has"
                raise BadInput(problem, remedy="check the address; after a change of keys join by the newest kit")
            if is_accepted:
                return ssl.DER_cert_to_PEM_cert(certificate).encode()
            closed += 1
            if closed == _CLOSES:
                raise BadInput(f"{called} refuses this member's certificate", remedy="have it issued anew")
        except ssl.SSLCertVerificationError as error:
            problem = f"the certificate of {called} at {address} is refused: {error.verify_message}"
            raise BadInput(problem, remedy="check the address, this machine's clock and pki expiry") from None
        except OSError as error:
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                reason = error.reason or "no reason given"
                raise BadInput(f"no TLS 1.3 session with {address} ({reason})", remedy=_remedy(reason)) from None
            closed, cut = 0, (cut + 1) * isinstance(error, ssl.SSLEOFError)
            if time.monotonic() >= deadline and not 0 < cut < _CLOSES:
                why = "it closes every connection" if cut else describe_error(error)
                raise NotNow(f"cannot reach {called} at {address} ({why}): is it running?") from None
            if wait and not said:
                _log.warning("cannot reach %s at %s yet; trying for up to %.0f s", called, address, wait)
                said = True
        time.sleep(limits.RETRY_SECONDS)


def _handshake(credentials: Credentials, host: str, port: int, name: str) -> tuple[bytes, bool]:
    """Return the peer's certificate (DER), and whether the connection stays open after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=credentials.ca_pem.decode())
    context.load_cert_chain(credentials.folder / "cert.pem", credentials.folder / "key.pem")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, port), _TIMEOUT) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True) or b""
        # A server that refuses the client's certificate closes after the handshake; one that takes it speaks first.
        with contextlib.suppress(TimeoutError):
            return certificate, bool(secured.recv(1))
        return certificate, True


def _remedy(reason: str) -> str:
    if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
        return "the server must speak TLS 1.3"
    if "CERTIFICATE" in reason or "CA" in reason:
        return "the server refuses this member's certificate: have it issued anew by the consortium's authority"
    return "check the address: a secagg server must listen there"
