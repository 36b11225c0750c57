"""The first handshake says in one line why a server cannot be used; TLS below 1.3 is refused on both sides."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import BadInput, NotNow
from secagg.transport import greet, limits, read_credentials, serve
from tests.faults.proxy import Proxy
from tests.transport.consortium import Remembering, certify
from tests.worlds.homes import free_address
from tests.worlds.rosters import SERVER, enrol

SETTINGS = bytes.fromhex("000000040000000000")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS


async def refused(folder: Path, address: str, wait: float = 0.0, error: Any = BadInput) -> str:
    """The line with which a member's greeting ends."""
    with pytest.raises(error) as refusal:
        await asyncio.to_thread(greet, read_credentials(folder), address, wait)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@contextmanager
def blocking_listener(context: ssl.SSLContext) -> Iterator[str]:
    """A server that tries one handshake, and says why it fails in a TLS alert as servers do."""

    def shake_hands() -> None:
        connection, _ = plain.accept()
        with connection, suppress(ssl.SSLError, ConnectionError):
            context.wrap_socket(connection, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as plain:
        thread = threading.Thread(target=shake_hands)
        thread.start()
        yield f"127.0.0.1:{plain.getsockname()[1]}"
        thread.join()


@contextmanager
def faltering_listener(context: ssl.SSLContext, complete: bool) -> Iterator[str]:
    """A server that hangs up on the first handshake, complete or not, and speaks after the second."""

    def serve_twice() -> None:
        first, _ = plain.accept()
        with first:
            if complete:
                context.wrap_socket(first, server_side=True).close()
            else:
                first.recv(1 << 16)
        second, _ = plain.accept()
        with context.wrap_socket(second, server_side=True) as secured:
            secured.send(SETTINGS)

    with socket.create_server(("127.0.0.1", 0)) as plain:
        plain.settimeout(10)
        thread = threading.Thread(target=serve_twice)
        thread.start()
        yield f"127.0.0.1:{plain.getsockname()[1]}"
        thread.join()


@asynccontextmanager
async def listener(context: ssl.SSLContext | None) -> AsyncIterator[str]:
    """A server that completes the handshake, if there is one, and says nothing."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def server_context(home: Path, version: ssl.TLSVersion) -> ssl.SSLContext:
    """A listener's TLS of one version."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "cert.pem", home / "key.pem")
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    return context


async def test_good_server_is_greeted(consortium: Path, address: str) -> None:
    """A member of the consortium greets its own server without a word."""
    await asyncio.to_thread(greet, read_credentials(consortium / "alice"), address, 5.0)


@pytest.mark.parametrize("address", ["", "nowhere", "host:", ":80", "host:x", "host:0", "host:65536", "host:-1"])
async def test_what_is_no_address(consortium: Path, address: str) -> None:
    """A text that is not HOST:PORT is refused with the form."""
    assert "write HOST:PORT" in await refused(consortium / "alice", address)


async def test_unreachable_server(consortium: Path) -> None:
    """Nobody listening is said in one line with the address: it may be there later."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        line = await refused(consortium / "alice", address, error=NotNow)
    assert f"cannot reach the server at {address}" in line


async def test_proxy_without_its_server_is_a_server_that_is_away(consortium: Path) -> None:
    """A proxy that accepts and closes at once, as its server is away, counts as an absent server, and is waited for."""
    there = free_address()
    with Proxy() as proxy:
        address = proxy.listen(there)
        line = await refused(consortium / "alice", address, error=NotNow)
        assert f"cannot reach the server at {address}" in line
        waiting = asyncio.create_task(asyncio.to_thread(greet, read_credentials(consortium / "alice"), address, 60.0))
        await asyncio.sleep(6 * limits.RETRY_SECONDS)
        assert not waiting.done()
        server, _ = await serve(read_credentials(consortium / SERVER), Remembering(), there)
        await waiting
        await server.stop(None)


async def test_unknown_host(consortium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that does not exist is said in one line."""

    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "cannot reach the server at" in await refused(consortium / "alice", "no-such-host.invalid:1", error=NotNow)


async def test_server_of_another_authority(consortium: Path, tmp_path: Path) -> None:
    """A server whose certificate is of another authority is refused at once, however long a member would wait."""
    enrol(tmp_path / "other", "alice")
    server, address = await serve(read_credentials(tmp_path / "other" / SERVER), Remembering(), "127.0.0.1:0")
    assert "certificate of the server" in await refused(consortium / "alice", address, wait=600.0)
    await server.stop(None)


async def test_another_member_in_the_server_place(consortium: Path) -> None:
    """A listener with a member's certificate is not the roster's server."""
    server, address = await serve(read_credentials(consortium / "bob"), Remembering(), "127.0.0.1:0")
    assert "certificate of the server" in await refused(consortium / "alice", address)
    await server.stop(None)


async def test_expired_server(consortium: Path) -> None:
    """A server with an expired certificate is refused, and the reason is told."""
    certify(consortium, consortium / SERVER, SERVER, days=-1)
    async with listener(server_context(consortium / SERVER, ssl.TLSVersion.TLSv1_3)) as address:
        assert "expired" in await refused(consortium / "alice", address)


async def test_expired_member(consortium: Path, address: str) -> None:
    """A member whose certificate expired while it ran is told that the server refuses it."""
    credentials = read_credentials(consortium / "alice")
    certify(consortium, consortium / "alice", "alice", days=-1)
    with pytest.raises(BadInput, match="refuses this member's certificate"):
        await asyncio.to_thread(greet, credentials, address, 0.0)


async def test_server_that_closes_every_connection(consortium: Path) -> None:
    """A server that closes after every handshake refuses the member, however long that one would wait."""
    async with listener(server_context(consortium / SERVER, ssl.TLSVersion.TLSv1_3)) as address:
        assert "refuses this member's certificate" in await refused(consortium / "alice", address, wait=600.0)


@pytest.mark.parametrize("complete", [False, True], ids=["in_the_handshake", "after_the_handshake"])
async def test_server_that_goes_away_once(consortium: Path, complete: bool) -> None:
    """A server that goes away in or right after a handshake, as one that is killed does, is greeted the next time."""
    with faltering_listener(server_context(consortium / SERVER, ssl.TLSVersion.TLSv1_3), complete) as address:
        await asyncio.to_thread(greet, read_credentials(consortium / "alice"), address, 0.0)


async def test_server_of_tls_1_2(consortium: Path) -> None:
    """A server that speaks TLS 1.2 only is refused at once, however long a member would wait."""
    with blocking_listener(server_context(consortium / SERVER, ssl.TLSVersion.TLSv1_2)) as address:
        line = await refused(consortium / "alice", address, wait=600.0)
    assert "no TLS 1.3 session" in line
    assert "must speak TLS 1.3" in line


async def test_something_else_listens(consortium: Path) -> None:
    """A listener that closes every connection before a handshake counts as a server that is not there."""
    async with listener(None) as address:
        assert "is it running?" in await refused(consortium / "alice", address, error=NotNow)


async def test_client_of_tls_1_2(consortium: Path, address: str, coordinator: Remembering) -> None:
    """A peer that speaks TLS 1.2 gets no answer from the coordinator, whatever its certificate."""
    context = ssl.create_default_context(cafile=str(consortium / "alice" / "ca.pem"))
    context.load_cert_chain(consortium / "alice" / "cert.pem", consortium / "alice" / "key.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    host, port = address.split(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=SERVER)
    except (ssl.SSLError, ConnectionError):
        return
    writer.write(PREFACE + submit_call(address))
    reply = b""
    async with asyncio.timeout(10):
        while b"TLS 1.3 is required" not in reply:
            part = await reader.read(4096)
            assert part, reply
            reply += part
    writer.close()
    assert coordinator.submitted == []


def submit_call(authority: str) -> bytes:
    """The HTTP/2 frames of one Submit call, headers as literals (RFC 7541, section 6.2.2)."""
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":path": "/secagg.v1.Session/Submit",
        ":authority": authority,
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    headers = len(block).to_bytes(3, "big") + b"\x01\x04" + (1).to_bytes(4, "big") + block
    message = bytes(5)
    data = len(message).to_bytes(3, "big") + b"\x00\x01" + (1).to_bytes(4, "big") + message
    return headers + data
