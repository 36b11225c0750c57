"""The roster pins TLS keys: the authority's word alone opens no connection, on neither side; a new certificate may."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from secagg.errors import BadInput, ServerAway
from secagg.transport import Credentials, Link, greet, read_credentials, serve
from secagg.transport.enrolment import read_authority
from secagg.wire import rpc
from tests.transport.consortium import PEM, Remembering, certify, impostor
from tests.worlds.rosters import SERVER, enrol

PATIENCE = 0.3
AGGREGATOR = "north"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A consortium with an aggregator."""
    enrol(tmp_path, "alice", helpers={AGGREGATOR: "aggregator"})
    return tmp_path


@asynccontextmanager
async def listening(credentials: Credentials, listen: str = "127.0.0.1:0") -> AsyncIterator[tuple[str, Remembering]]:
    """An endpoint with these credentials, and what it is told."""
    heard = Remembering()
    server, address = await serve(credentials, heard, listen)
    try:
        yield address, heard
    finally:
        await server.stop(None)


async def refused_by(address: str, credentials: Credentials, method: str, name: str = SERVER) -> str:
    """The details with which a call is refused as that of nobody."""
    options = [("grpc.ssl_target_name_override", name)]
    tls = credentials.for_channel(credentials.ca_pem)
    async with grpc.aio.secure_channel(address, tls, options=options) as opened:
        stub = rpc.SessionStub(opened)
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "Submit": lambda: stub.Submit(rpc.SubmitRequest(frame=b"x")),
            "Upload": lambda: stub.Upload(iter([rpc.UploadPart(frame=b"x")])),
            "Fetch": lambda: stub.Fetch(rpc.FetchRequest(round_digest=bytes(32), step="Outcome")).read(),
        }
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await calls[method]()
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    return str(error.value.details())


@pytest.mark.parametrize("method", ["Submit", "Upload", "Fetch"])
async def test_fresh_key_of_a_member_opens_nothing(
    consortium: Path, address: str, coordinator: Remembering, method: str
) -> None:
    """A fresh key that the authority certified under a member's name fetches, uploads and submits nothing."""
    details = await refused_by(address, impostor(consortium, "alice"), method)
    assert "certificate of alice is for another key than the roster has" in details
    assert (coordinator.submitted, coordinator.uploaded, coordinator.asked) == ([], [], [])


async def test_key_of_another_kind_opens_nothing(consortium: Path, address: str, coordinator: Remembering) -> None:
    """A certificate for a key that no member can have is refused like any other wrong one."""
    authority = read_authority(consortium / "ca")
    key = ec.generate_private_key(ec.SECP384R1())
    issued = x509.load_pem_x509_certificate((consortium / "alice" / "cert.pem").read_bytes())
    builder = x509.CertificateBuilder(
        issued.issuer, issued.subject, key.public_key(), issued.serial_number,
        issued.not_valid_before_utc, issued.not_valid_after_utc, list(issued.extensions),
    )  # fmt: skip
    pem = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate = builder.sign(authority.key, hashes.SHA256()).public_bytes(PEM)
    thief = replace(read_credentials(consortium / "alice"), key_pem=pem, cert_pem=certificate)
    assert "is a P-256 key" in await refused_by(address, thief, "Fetch")
    assert coordinator.asked == []


async def test_new_certificate_of_the_same_key_is_let_in(
    consortium: Path, address: str, coordinator: Remembering
) -> None:
    """A certificate that is issued anew for the pinned key is the member's."""
    certify(consortium, consortium / "alice", "alice")
    async with Link(read_credentials(consortium / "alice"), address, PATIENCE) as link:
        await link.submit(b"frame")
    assert coordinator.submitted == [(1, b"frame")]


async def test_fresh_key_of_the_server_gets_nothing(consortium: Path) -> None:
    """A member neither greets nor tells anything to a fresh key that the authority certified as the server's."""
    alice = read_credentials(consortium / "alice")
    async with listening(impostor(consortium, SERVER)) as (address, heard):
        with pytest.raises(BadInput, match=r"certificate of the server .* another key than the roster has"):
            await asyncio.to_thread(greet, alice, address, 0.0)
        async with Link(alice, address, PATIENCE) as link:
            with pytest.raises(ServerAway, match="for another key than the roster has"):
                await link.submit(b"frame")
    assert heard.submitted == []


async def test_channel_itself_is_pinned(consortium: Path) -> None:
    """Whoever takes the server's place after the handshake is refused by the channel: it trusts one certificate."""
    alice, genuine = read_credentials(consortium / "alice"), read_credentials(consortium / SERVER)
    async with listening(genuine) as (address, _):
        seen = await asyncio.to_thread(greet, alice, address, 0.0)
    assert x509.load_pem_x509_certificate(seen) == x509.load_pem_x509_certificate(genuine.cert_pem)
    async with listening(impostor(consortium, SERVER)) as (address, heard), Link(alice, address, PATIENCE) as link:
        link._greet = lambda: seen  # type: ignore[assignment]
        with pytest.raises(ServerAway):
            await link.submit(b"frame")
    assert heard.submitted == []


async def test_server_with_a_new_certificate_goes_on(consortium: Path) -> None:
    """A connected member follows its server through a restart with a new certificate for the same key."""
    async with listening(read_credentials(consortium / SERVER)) as (address, first):
        link = Link(read_credentials(consortium / "alice"), address, 10.0)
        await link.submit(b"before")
    certify(consortium, consortium / SERVER, SERVER)
    async with listening(read_credentials(consortium / SERVER), address) as (_, second), link:
        await link.submit(b"after")
    assert (first.submitted, second.submitted) == ([(1, b"before")], [(1, b"after")])


async def test_member_goes_on_when_the_right_server_is_back(consortium: Path) -> None:
    """An impostor in the server's place ends nothing: the member waits, and goes on with the right key."""
    async with listening(impostor(consortium, SERVER)) as (address, heard):
        link = Link(read_credentials(consortium / "alice"), address, 10.0)
        call = asyncio.ensure_future(link.submit(b"frame"))
        await asyncio.sleep(0.1)
        assert not call.done()
    async with listening(read_credentials(consortium / SERVER), address) as (_, right), link:
        await call
    assert (heard.submitted, right.submitted) == ([], [(1, b"frame")])


async def test_fresh_key_of_an_aggregator_gets_nothing(shared: Path) -> None:
    """A member uploads nothing to a fresh key that the authority certified as an aggregator's."""
    alice = read_credentials(shared / "alice")
    (shared / "vector").write_bytes(b"vector")

    async def upload(address: str) -> None:
        async with Link(alice, address, PATIENCE, alice.roster.index(AGGREGATOR)) as link:
            await link.upload(b"frame", shared / "vector", 0, 6)

    async with listening(impostor(shared, AGGREGATOR)) as (address, heard):
        with pytest.raises(ServerAway, match=rf"certificate of {AGGREGATOR} .* another key than the roster has"):
            await upload(address)
    assert heard.uploaded == []
    async with listening(read_credentials(shared / AGGREGATOR)) as (address, heard):
        await upload(address)
    assert heard.uploaded == [(1, b"frame", b"vector")]


async def test_fresh_key_of_a_member_opens_nothing_at_an_aggregator(shared: Path) -> None:
    """An aggregator takes uploads from the members' pinned keys alone."""
    async with listening(read_credentials(shared / AGGREGATOR)) as (address, heard):
        details = await refused_by(address, impostor(shared, "alice"), "Upload", AGGREGATOR)
    assert "another key than the roster has" in details
    assert heard.uploaded == []


@pytest.mark.parametrize("name", [SERVER, AGGREGATOR])
async def test_only_clients_and_others_call_an_aggregator(shared: Path, name: str) -> None:
    """The server's certificate, and its own, open nothing at an aggregator's endpoint."""
    async with listening(read_credentials(shared / AGGREGATOR)) as (address, heard):
        details = await refused_by(address, read_credentials(shared / name), "Upload", AGGREGATOR)
    assert f"certificate of {name} is no client's of this roster" in details
    assert heard.uploaded == []
