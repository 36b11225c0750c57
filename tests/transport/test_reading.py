"""What a session has named, read in parts over real gRPC: on from where it broke, and nothing else taken for it."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from secagg.errors import NotNow, ProtocolViolation, ServerAway
from secagg.transport import Link, read_credentials, server
from secagg.transport.limits import CHUNK_BYTES
from secagg.wire import rpc
from tests.transport.consortium import Remembering
from tests.transport.test_endpoint import channel

PATIENCE = 0.2
CONTENT = bytes(range(256)) * (25 * CHUNK_BYTES // 1024)
"""Six whole parts, and one that is not."""
DIGEST = hashlib.sha256(CONTENT).digest()
OTHER = hashlib.sha256(b"another").digest()
PLAN = b"p" * 32
Parts = Callable[[Path, rpc.ReadRequest], Iterator[rpc.ReadPart]]


@pytest.fixture
def file(coordinator: Remembering, tmp_path: Path) -> Path:
    """What the coordinator shows."""
    coordinator.file = tmp_path / "named"
    coordinator.file.write_bytes(CONTENT)
    return coordinator.file


async def read(consortium: Path, address: str, start: int = 0, length: int = len(CONTENT)) -> bytes:
    """What a member is given of the attachment. Raises ServerAway with what came before as `taken`."""
    taken: list[bytes] = []
    async with Link(read_credentials(consortium / "alice"), address, PATIENCE) as link:
        try:
            await link.read(PLAN, DIGEST, start, length, taken.append)
        except ServerAway as error:
            error.taken = b"".join(taken)  # type: ignore[attr-defined]
            raise
    return b"".join(taken)


@pytest.mark.parametrize("start", [0, 1, CHUNK_BYTES, len(CONTENT) - 1, len(CONTENT)])
async def test_bytes_come_from_any_place_on(
    consortium: Path, address: str, coordinator: Remembering, file: Path, start: int
) -> None:
    """Exactly the bytes from `start` on are given, in order; where none is missing, nobody is asked."""
    assert await read(consortium, address, start) == CONTENT[start:]
    assert coordinator.read_by == [(1, PLAN, DIGEST)] * (start < len(CONTENT))


async def test_broken_connection_is_read_on_where_it_broke(
    consortium: Path, address: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that ends after each two parts is followed by one for the next byte: no byte comes twice, none is lost."""
    asked: list[int] = []
    honest = server._parts_of

    def breaking(path: Path, request: rpc.ReadRequest) -> Iterator[rpc.ReadPart]:
        asked.append(request.start)
        parts = honest(path, request)
        yield next(parts)
        yield from (part for part, _ in zip(parts, range(1), strict=False))
        if len(asked) < 4:
            raise OSError("the connection is gone")

    monkeypatch.setattr(server, "_parts_of", breaking)
    assert await read(consortium, address) == CONTENT
    assert asked == [0, 2 * CHUNK_BYTES, 4 * CHUNK_BYTES, 6 * CHUNK_BYTES]


def changed(at: int, change: Callable[[rpc.ReadPart], rpc.ReadPart]) -> Callable[[Parts], Parts]:
    """One part is another one, in every call."""

    def lying(honest: Parts) -> Parts:
        def parts(path: Path, request: rpc.ReadRequest) -> Iterator[rpc.ReadPart]:
            for part in honest(path, request):
                yield change(part) if part.start == at * CHUNK_BYTES else part

        return parts

    return lying


def left_out(honest: Parts) -> Parts:
    """The second part never comes."""
    return lambda path, request: (part for part in honest(path, request) if part.start != CHUNK_BYTES)


def cut_off(honest: Parts) -> Parts:
    """Nothing comes after the first part."""
    return lambda path, request: (part for part in honest(path, request) if part.start == 0)


def longer(honest: Parts) -> Parts:
    """A byte comes after the last."""

    def parts(path: Path, request: rpc.ReadRequest) -> Iterator[rpc.ReadPart]:
        yield from honest(path, request)
        yield rpc.ReadPart(digest=DIGEST, start=len(CONTENT), data=b"x")

    return parts


LIES = {
    "out of order": (changed(1, lambda part: rpc.ReadPart(digest=DIGEST, start=0, data=part.data)), "from byte 0 in"),
    "left out": (left_out, f"the part from byte {2 * CHUNK_BYTES} in place of that from {CHUNK_BYTES}"),
    "cut off": (cut_off, f"only {CHUNK_BYTES} of {len(CONTENT)} bytes"),
    "of another round": (
        changed(1, lambda part: rpc.ReadPart(digest=OTHER, start=part.start, data=part.data)),
        "a part of something else than was asked for",
    ),
    "of nothing": (changed(1, lambda part: rpc.ReadPart(start=part.start, data=part.data)), "a part of something else"),
    "empty": (changed(1, lambda part: rpc.ReadPart(digest=DIGEST, start=part.start)), "a part of 0 bytes"),
    "too long": (
        changed(1, lambda part: rpc.ReadPart(digest=DIGEST, start=part.start, data=part.data + b"x")),
        f"a part of {CHUNK_BYTES + 1} bytes",
    ),
}


@pytest.mark.parametrize("lie", LIES)
async def test_other_parts_are_refused(
    consortium: Path, address: str, file: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    """The first part that is not the next one of what was asked for ends it, by the server's name; nothing is taken."""
    change, words = LIES[lie]
    monkeypatch.setattr(server, "_parts_of", change(server._parts_of))
    with pytest.raises(ServerAway, match=f"the server.*{words}") as refusal:
        await read(consortium, address)
    assert refusal.value.taken == CONTENT[:CHUNK_BYTES]  # type: ignore[attr-defined]


async def test_more_than_was_named_is_refused(
    consortium: Path, address: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was named is taken, and not one byte that comes after it."""
    monkeypatch.setattr(server, "_parts_of", longer(server._parts_of))
    assert await read(consortium, address) == CONTENT
    with pytest.raises(ServerAway, match="with 5 to come"):
        await read(consortium, address, CHUNK_BYTES, CHUNK_BYTES + 5)


async def test_what_is_not_for_a_member_is_refused_by_its_name(
    consortium: Path, address: str, coordinator: Remembering, file: Path
) -> None:
    """Refusals of the coordinator, and a start behind the end, reach the caller as a status with one line."""
    for failure, code in (
        (ProtocolViolation(1, "asks for bytes that this session has not named to it"), "INVALID_ARGUMENT"),
        (NotNow("it is not kept any more"), "UNAVAILABLE"),
        (None, "INVALID_ARGUMENT"),
    ):
        coordinator.failures = [failure] if failure else []
        async with channel(read_credentials(consortium / "alice"), address) as opened:
            call = rpc.SessionStub(opened).Read(rpc.ReadRequest(round_digest=PLAN, digest=DIGEST, start=len(CONTENT)))
            with pytest.raises(grpc.aio.AioRpcError) as error:
                [part async for part in call]
        assert error.value.code().name == code
