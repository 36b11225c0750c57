"""What a party must keep to itself never stands in any transcript, and its sealed memory opens for nobody else."""

import logging
from base64 import b64encode
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput
from secagg.protection import LocalParty
from secagg.protection.masking.client import Advertised, Dealt, Opened, advertise
from secagg.randomness import OperatingSystem
from secagg.session import MemberSession
from secagg.session.sealed_state import Memory
from secagg.system.files import write_synced
from secagg.transcript import Journal
from tests.worlds.crashes import Crash
from tests.worlds.session import SessionRun, SimulatedSession, make_session

LOST = 4
SECRET_FIELDS = ("channel_secret", "mask_secret", "seed", "dealing_secret", "own_key_share")


class Watched(SessionRun):
    """A federation that overhears what every client remembers."""

    def __init__(self, world: SimulatedSession) -> None:
        super().__init__(world)
        self.secrets: set[bytes] = set()
        self.disk: list[bytes] = []

    def new_client(self, member: int, journal: Journal) -> MemberSession:
        """A client whose states are looked at before they are sealed."""
        session = super().new_client(member, journal)  # type: ignore[arg-type]
        keep: Any = session._memory.keep

        def overhear(state: Any, frames: tuple[bytes, ...]) -> None:
            names = {field.name for field in fields(state)}
            if member != LOST:
                self.secrets |= {getattr(state, name) for name in SECRET_FIELDS if name in names}
                held = getattr(state, "held", ())
                self.secrets |= {each.key_share for each in held if each.dealer != LOST}
            keep(state, frames)
            self.disk += [path.read_bytes() for path in self.world.home(member).glob("session.state")]

        session._memory.keep = overhear  # type: ignore[method-assign]
        return session


async def test_no_secret_stands_in_a_transcript(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Keys, seeds, key shares of survivors, vectors and identity keys are in no transcript, other file or log line."""
    caplog.set_level(logging.DEBUG)
    world = make_session(tmp_path, clients=4, dropouts=1)
    federation = Watched(world)
    await federation.run(leaving={LOST: "UploadHeader"})
    assert len(federation.secrets) >= 3 * 4
    ring, context = world.setup.context.ring, world.setup.context
    vectors = {ring.pack(ring.encode(world.vectors[member])) for member in context.clients}
    private = {key.private_bytes() for key in world.keys}
    written = [path.read_bytes() for path in world.folder.rglob("*") if path.is_file()] + federation.disk
    for secret in federation.secrets | vectors | private:
        assert not any(secret in content for content in written)
        assert not any(form in caplog.text for form in (secret.hex(), str(secret)[2:-1], b64encode(secret).decode()))
    assert "waiting for" in caplog.text


async def test_upload_is_not_the_vector(world: SimulatedSession) -> None:
    """What leaves is the vector under masks: no entry-aligned half of it is sent in clear."""
    federation = SessionRun(world)
    await federation.run()
    ring = world.setup.context.ring
    for (member, _), sent in federation.uploaded.items():
        (upload,) = sent
        clear = ring.pack(ring.encode(world.vectors[member]))
        assert len(upload) == len(clear)
        assert upload[: len(clear) // 2] != clear[: len(clear) // 2]
        assert upload[len(clear) // 2 :] != clear[len(clear) // 2 :]


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    """A client's memory in an empty folder."""
    return Memory(tmp_path, (Advertised, Dealt, Opened), OperatingSystem())


def test_memory_gives_back_what_it_was_given(memory: Memory) -> None:
    """The last state and its frames come back, as often as they are asked for."""
    assert memory.recall() is None
    for members in ((1,), (1, 2)):
        memory.keep(Opened(members), (b"frame",))
    assert memory.recall() == (Opened((1, 2)), (b"frame",)) == memory.recall()


def test_memory_erases_both_files(memory: Memory, tmp_path: Path) -> None:
    """After erase neither key nor state is there, a second erase is harmless, and nothing is recalled."""
    memory.keep(Opened((1,)), (b"frame",))
    assert len(list(tmp_path.iterdir())) == 2
    for _ in range(2):
        memory.erase()
        assert list(tmp_path.iterdir()) == []
    assert memory.recall() is None


@pytest.mark.parametrize("place", range(4))
def test_memory_is_replaced_in_one_step(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """Killed at any write of a new version, the memory holds the version before or the new one, and goes on."""
    memory.keep(Opened((1,)), (b"one",))
    writes = iter(range(4))

    def killed(path: Path, content: bytes) -> None:
        for step in (lambda: None, lambda: write_synced(path, content)):
            step()
            if next(writes) == place:
                raise Crash("write")

    with monkeypatch.context() as patch:
        patch.setattr("secagg.session.sealed_state.write_synced", killed)
        with pytest.raises(Crash):
            memory.keep(Opened((2,)), (b"two",))
    again = Memory(tmp_path, (Advertised, Dealt, Opened), OperatingSystem())
    assert again.recall() in ((Opened((1,)), (b"one",)), (Opened((2,)), (b"two",)))
    again.keep(Opened((3,)), (b"three",))
    assert again.recall() == (Opened((3,)), (b"three",))
    again.erase()
    assert list(tmp_path.iterdir()) == []


def test_older_versions_cannot_be_opened(memory: Memory, tmp_path: Path) -> None:
    """A sealed version that was put aside opens no more once a newer one has taken its place."""
    memory.keep(Opened((1,)), (b"one",))
    older = (tmp_path / "session.state").read_bytes()
    memory.keep(Opened((2,)), (b"two",))
    (tmp_path / "session.state").write_bytes(older)
    with pytest.raises(BadInput, match="damaged"):
        memory.recall()


def test_memory_is_for_its_owner_alone(memory: Memory, tmp_path: Path) -> None:
    """Key and state may be read by the owner only."""
    memory.keep(Opened((1,)), (b"frame",))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("name", ["session.state", "session-1.key"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_damaged_memory_is_refused(memory: Memory, tmp_path: Path, name: str, damage: str) -> None:
    """A damaged file is refused with one line: a client never goes on from half a state."""
    memory.keep(Opened((1,)), (b"frame",))
    content = (tmp_path / name).read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    (tmp_path / name).write_bytes({"flip": flipped, "cut": content[:20], "empty": b""}[damage])
    with pytest.raises(BadInput, match="damaged"):
        memory.recall()


def test_memory_without_its_key_is_gone(memory: Memory, tmp_path: Path) -> None:
    """Once the key is erased the state cannot be opened, whatever other key is put in its place."""
    memory.keep(Opened((1,)), (b"frame",))
    (tmp_path / "session-1.key").write_bytes(OperatingSystem().bytes(32))
    with pytest.raises(BadInput, match="damaged"):
        memory.recall()


def test_secrets_do_not_print(world: SimulatedSession) -> None:
    """The repr of states, keys and parties shows no secret bytes."""
    key = SigningKey.generate(OperatingSystem())
    assert key.private_bytes().hex() not in repr(key)
    assert repr(key.private_bytes()) not in repr(key)
    state: Any = advertise(world.setup.context, LocalParty(1, world.keys[1], OperatingSystem())).state
    for name in ("channel_secret", "mask_secret", "seed", "dealing_secret"):
        assert repr(getattr(state, name)) not in repr(state)
