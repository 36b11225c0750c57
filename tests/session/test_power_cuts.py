"""A party's machine loses its power: what has left it, and what it acknowledged, is on the disk to the last entry."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from secagg.federation import session_folder
from secagg.system.files import write_synced
from secagg.transcript import FILE_NAME, Journal, read_transcript
from tests.session.power import Disk, PowerCut
from tests.session.test_crashes import BYSTANDER, CLIENT, SERVER, check_ending, fuse_points, staged
from tests.worlds.session import SessionRun, SimulatedSession, Wire

SECOND = 4
PROTECTIONS = ["masked", "shared", "encrypted"]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk of every party."""
    kept = Disk()
    monkeypatch.setattr(os, "fsync", kept.sync)
    yield kept
    kept.close()


def transcript_of(kept: Any, folder: Path) -> set[tuple[str, bytes]]:
    """The records that a power cut would leave."""
    (folder / "kept.log").write_bytes(kept.get(FILE_NAME, b""))
    return {(record.kind, record.content) for record in read_transcript(folder / "kept.log")}


def test_disk_keeps_what_was_synced_alone(tmp_path: Path, disk: Disk) -> None:
    """Of files and folders the disk keeps what was synced: the bytes by the file, names by the folder."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "never").write_bytes(b"x")
    with (home / "file").open("wb") as file:
        file.write(b"one")
        file.flush()
        os.fsync(file.fileno())
        file.write(b"two")
    assert disk.kept(home) == {}
    descriptor = os.open(home, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    (home / "file").rename(home / "renamed")
    (home / "late").mkdir()
    assert disk.kept(home) == {"never": b"", "file": b"one"}
    disk.cut(home)
    assert {path.name: path.read_bytes() for path in home.iterdir()} == {"never": b"", "file": b"one"}
    assert disk.kept(home) == {"never": b"", "file": b"one"}


def test_written_file_is_kept(tmp_path: Path, disk: Disk) -> None:
    """A file that was written synced is there under its name with its bytes; a second version takes its place."""
    for content in (b"one", b"two, longer"):
        write_synced(tmp_path / "file", content)
        assert disk.kept(tmp_path) == {"file": content}


def test_new_session_folder_is_kept(tmp_path: Path, world: SimulatedSession, disk: Disk) -> None:
    """A session's folder, those above it, and the transcript in it are there as soon as they are used."""
    state = tmp_path / "new" / "state"
    folder = session_folder(state, world.setup)
    journal = Journal(folder / FILE_NAME)
    journal.append("plan", b"content")
    journal.close()
    written = (folder / FILE_NAME).read_bytes()
    assert disk.kept(tmp_path)["new"] == {"state": {folder.name: {FILE_NAME: written}}}


@pytest.mark.parametrize("protection", PROTECTIONS)
async def test_what_has_left_is_kept(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, protection: str
) -> None:
    """Before a frame leaves or is acknowledged, transcript, vector and state behind it are kept; at the end they go."""
    world = staged(tmp_path, protection=protection)
    submit, upload, fetch = Wire.submit, Wire.upload, Wire.fetch
    looked = {"submit": 0, "upload": 0, "fetch": 0}

    def check(member: int, kind: str, frame: bytes) -> Any:
        kept = disk.kept(world.home(member))
        assert (kind, frame) in transcript_of(kept, tmp_path)
        return kept

    def check_sender(member: int, frame: bytes) -> Any:
        kept = check(member, "sent", frame)
        for path in world.home(member).glob("session*"):
            assert kept[path.name] == path.read_bytes()
        return kept

    async def submitting(wire: Any, frame: bytes) -> bytes:
        check_sender(wire._member, frame)
        reply = await submit(wire, frame)
        check(wire._receiver, "received", frame)
        looked["submit"] += 1
        return reply

    async def uploading(wire: Any, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        content = check_sender(wire._member, frame)[vector.name]
        assert content == await asyncio.to_thread(vector.read_bytes)
        reply = await upload(wire, frame, vector, start, size)
        kept = check(wire._receiver, "received", frame)
        assert kept["uploads"][f"{wire._member}.bin"] == content[start : start + size]
        looked["upload"] += 1
        return reply

    async def fetching(wire: Any, plan: bytes, step: str, seconds: float) -> bytes:
        frame = await fetch(wire, plan, step, seconds)
        if frame:
            check(wire._receiver, "sent", frame)
            looked["fetch"] += 1
        return frame

    for name, action in (("submit", submitting), ("upload", uploading), ("fetch", fetching)):
        monkeypatch.setattr(Wire, name, action)
    await SessionRun(world).run()
    assert min(looked.values()) >= 3
    for member in range(1, len(world.keys)):
        assert {"protected.bin", "session.state"}.isdisjoint(disk.kept(world.home(member)))


POINTS = ("after memory", "before sending", "after sending", "after uploading", "after record")


@pytest.mark.parametrize(
    ("protection", "party"),
    [
        pytest.param("masked", CLIENT, id="client"),
        pytest.param("masked", SERVER, id="server"),
        pytest.param("shared", SECOND, id="aggregator", marks=pytest.mark.long),
        pytest.param("encrypted", SECOND, id="key holder"),
        pytest.param("shared", CLIENT, id="sharing client", marks=pytest.mark.long),
        pytest.param("encrypted", CLIENT, id="encrypting client", marks=pytest.mark.long),
    ],
)
async def test_session_goes_on_after_a_power_cut(
    tmp_path: Path, subtests: pytest.Subtests, disk: Disk, protection: str, party: int
) -> None:
    """With what its disk kept a party goes on: the same bytes, the exact sum for all, transcripts that verify."""
    points = await fuse_points(tmp_path, party, protection=protection)
    for number, name in enumerate(points):
        if name.startswith(POINTS):
            with subtests.test(point=f"{number}: {name}"):
                world = staged(tmp_path / str(number), protection=protection)
                federation = SessionRun(world, {party: PowerCut(number, disk, world.home(party))})
                check_ending(federation, await federation.run(), party, BYSTANDER)
