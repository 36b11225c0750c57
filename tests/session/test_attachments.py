"""What a signed message names, as a file: read on from where it broke off, and only ever the bytes that were signed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import ServerAway
from secagg.protection.messages import Attachment
from secagg.session import receive_signed
from secagg.session.attachments import read_attached, read_kept
from secagg.session.receive_signed import SignedReceiver
from tests.worlds.setups import make_setup

CONTENT = bytes(range(251)) * 40
NAMED = Attachment.of(CONTENT)
SESSION = b"s" * 32
PART = 1000


class Server:
    """A connection to whoever shows `contents`, one after the other; it breaks after `most` bytes of each reading."""

    patience = 0.05

    def __init__(self, *contents: bytes, most: int = 1 << 30) -> None:
        self._contents = list(contents)
        self._most = most
        self.asked: list[tuple[bytes, bytes, int, int]] = []

    async def read(
        self, round_digest: bytes, digest: bytes, start: int, length: int, take: Callable[[bytes], None]
    ) -> None:
        """Give the bytes from `start` on."""
        self.asked.append((round_digest, digest, start, length))
        shown = (self._contents.pop(0) if len(self._contents) > 1 else self._contents[0])[start:length]
        for begin in range(0, min(len(shown), self._most), PART):
            take(shown[begin : begin + PART])
        if len(shown) > self._most:
            raise ServerAway(self.patience)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the party is told; it asks again soon."""
    monkeypatch.setattr(receive_signed, "_AGAIN_SECONDS", 0.005)
    return []


async def have(server: Server, path: Path, said: list[str]) -> bytes | None:
    """Have the attachment in a file; return what is in it."""
    await read_attached(SignedReceiver(make_setup(), 1, said.append), server, SESSION, NAMED, path)  # type: ignore[arg-type]
    return read_kept(path, NAMED)


def names_in(folder: Path) -> list[str]:
    """What lies in a folder."""
    return [each.name for each in folder.iterdir()]


async def test_file_holds_what_was_named(tmp_path: Path, said: list[str]) -> None:
    """All of it is asked for once, in the session that named it, and lies there for its owner alone."""
    server = Server(CONTENT)
    path = tmp_path / "sum.bin"
    assert await have(server, path, said) == await have(server, path, said) == CONTENT
    assert server.asked == [(SESSION, NAMED.digest, 0, len(CONTENT))]
    assert names_in(tmp_path) == ["sum.bin"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert said == []


async def test_next_life_reads_on(tmp_path: Path, said: list[str]) -> None:
    """A party that is started again after a broken reading asks for the bytes that it lacks, and for no others."""
    server, path = Server(CONTENT, most=3 * PART), tmp_path / "sum.bin"
    for _ in range(3):
        with pytest.raises(ServerAway):
            await have(server, path, said)
        assert not path.exists()
    assert await have(server, path, said) == CONTENT
    assert [start for _, _, start, _ in server.asked] == [0, 3 * PART, 6 * PART, 9 * PART]


@pytest.mark.parametrize("left", [b"", b"x" * PART, CONTENT[:-1] + b"x", CONTENT + b"more", b"x" * 20_000])
async def test_part_that_a_crash_has_damaged_is_read_anew(tmp_path: Path, said: list[str], left: bytes) -> None:
    """Whatever lies there from an earlier life: what counts in the end is what was signed."""
    (tmp_path / "sum.bin.part").write_bytes(left)
    assert await have(Server(CONTENT), tmp_path / "sum.bin", said) == CONTENT
    assert not (tmp_path / "sum.bin.part").exists()


@pytest.mark.parametrize("other", [CONTENT[:-1] + b"x", CONTENT[::-1], bytes(len(CONTENT)), CONTENT[:-1]])
async def test_other_bytes_are_the_servers(tmp_path: Path, said: list[str], other: bytes) -> None:
    """Bytes of another digest, or fewer, are refused by the server's name, asked for again, and never kept."""
    server, path = Server(other), tmp_path / "sum.bin"
    name = make_setup().roster.name(SERVER_INDEX)
    with pytest.raises(ServerAway, match=f"{name} .*sends other bytes than the {len(CONTENT)} that it has signed"):
        await have(server, path, said)
    assert len(server.asked) > 1
    assert names_in(tmp_path) == []
    (told,) = said
    assert told.startswith(f"{name}: sends other bytes than the {len(CONTENT)} that it has signed; asking again")


async def test_true_bytes_after_false_ones_are_taken(tmp_path: Path, said: list[str]) -> None:
    """A hiccup of whoever carries the bytes ends nothing."""
    assert await have(Server(bytes(len(CONTENT)), CONTENT), tmp_path / "sum.bin", said) == CONTENT


async def test_file_of_another_round_is_not_taken_for_this_one(tmp_path: Path, said: list[str]) -> None:
    """A whole file of the same length that lies where this one is wanted is read anew."""
    (tmp_path / "sum.bin").write_bytes(CONTENT[::-1])
    assert await have(Server(CONTENT), tmp_path / "sum.bin", said) == CONTENT
