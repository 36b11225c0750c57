"""What a party seals on disk has a fresh key each time, and what it erases is overwritten on the disk first."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from secagg.errors import BadInput, ExitCode
from secagg.protection.masking.client import Opened
from secagg.randomness import OperatingSystem, RandomSource
from secagg.session import sealed_state
from secagg.session.sealed_state import KEY_FILE, STATE_FILE, Memory, erase_state, keep_state, recall_state
from tests.worlds.crashes import Crash


def keep_private(folder: Path, randomness: RandomSource) -> bytes:
    """Seal a private state; return its key."""
    keep_state(folder, b"private", b"round", randomness)
    return (folder / KEY_FILE).read_bytes()


def keep_session(folder: Path, randomness: RandomSource) -> bytes:
    """Seal a session's state; return its key."""
    Memory(folder, (Opened,), randomness).keep(Opened((1,)), (b"frame",))
    (key,) = (path.read_bytes() for path in folder.glob("session-*.key"))
    return key


def erase_session(folder: Path) -> None:
    """Erase a session's state."""
    Memory(folder, (Opened,), OperatingSystem()).erase()


KEEP = pytest.mark.parametrize("keep", [keep_private, keep_session])
ERASE = pytest.mark.parametrize(
    ("keep", "erase"), [(keep_private, erase_state), (keep_session, erase_session)], ids=["private", "session"]
)


@dataclass
class Noted:
    """The operating system's randomness, and all that was drawn of it."""

    drawn: list[bytes] = field(default_factory=list)

    def bytes(self, count: int) -> bytes:
        """Draw, and note."""
        self.drawn.append(os.urandom(count))
        return self.drawn[-1]


@KEEP
def test_every_sealing_has_a_fresh_key(tmp_path: Path, keep: Callable[[Path, RandomSource], bytes]) -> None:
    """Each time the same state is sealed, here or elsewhere, its key is 32 bytes drawn for it from the source."""
    (tmp_path / "elsewhere").mkdir()
    randomness, keys = Noted(), []
    for folder in (tmp_path, tmp_path, tmp_path / "elsewhere"):
        before = len(randomness.drawn)
        keys.append(keep(folder, randomness))
        assert len(keys[-1]) == 32
        assert keys[-1] in randomness.drawn[before:]
    assert len(set(keys)) == 3


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes]:
    """The bytes of each file, by inode, at its last fsync."""
    found: dict[int, bytes] = {}

    def sync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}")
        found[os.fstat(descriptor).st_ino] = path.read_bytes() if path.is_file() else b""

    monkeypatch.setattr(os, "fsync", sync)
    return found


def linked(folder: Path) -> dict[str, Path]:
    """A further name for each file, by which its bytes can be read once it is unlinked."""
    (folder / "links").mkdir(exist_ok=True)
    paths = {path.name: folder / "links" / path.name for path in folder.iterdir() if path.is_file()}
    for name, link in paths.items():
        link.hardlink_to(folder / name)
    return paths


def check_zeros(links: dict[str, Path], synced: dict[int, bytes], sizes: dict[str, int]) -> None:
    """Each file holds zeros alone, as many as it had bytes, and they were synced."""
    for name, link in links.items():
        assert link.read_bytes() == bytes(sizes[name]), name
        assert synced[link.stat().st_ino] == bytes(sizes[name]), name


@ERASE
def test_erased_files_hold_zeros(
    tmp_path: Path,
    synced: dict[int, bytes],
    keep: Callable[[Path, RandomSource], bytes],
    erase: Callable[[Path], None],
) -> None:
    """Key and state are overwritten with zeros to the last byte, the zeros reach the disk, and the names are gone."""
    keep(tmp_path, OperatingSystem())
    links = linked(tmp_path)
    sizes = {name: link.stat().st_size for name, link in links.items()}
    assert len(links) == 2
    assert min(sizes.values()) > 16
    erase(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["links"]
    check_zeros(links, synced, sizes)


def test_replaced_key_of_a_session_holds_zeros(tmp_path: Path, synced: dict[int, bytes]) -> None:
    """The key of the version before is overwritten once a newer version is sealed."""
    keep_session(tmp_path, OperatingSystem())
    old = {"session-1.key": linked(tmp_path)["session-1.key"]}
    keep_session(tmp_path, OperatingSystem())
    assert not (tmp_path / "session-1.key").exists()
    check_zeros(old, synced, {"session-1.key": 32})


def test_key_of_a_private_state_is_erased_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash after the first of two files is erased leaves a state without its key, and nothing is recalled."""
    keep_private(tmp_path, OperatingSystem())
    overwrite = sealed_state.overwrite

    def die_after(path: Path) -> None:
        overwrite(path)
        raise Crash("erasing")

    monkeypatch.setattr(sealed_state, "overwrite", die_after)
    with pytest.raises(Crash):
        erase_state(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]
    assert recall_state(tmp_path, b"round") == b""


@pytest.mark.parametrize(
    ("name", "begin", "recall"),
    [
        (STATE_FILE, 0, lambda folder: recall_state(folder, b"round")),
        ("session.state", 8, lambda folder: Memory(folder, (Opened,), OperatingSystem()).recall()),
    ],
)
def test_state_of_no_format_is_refused(tmp_path: Path, name: str, begin: int, recall: Callable[[Path], object]) -> None:
    """What was sealed before files named their formats is refused as such, with what to go on with: exit code 2."""
    keep_private(tmp_path, OperatingSystem())
    keep_session(tmp_path, OperatingSystem())
    content = (tmp_path / name).read_bytes()
    assert content[begin:].startswith(b"secagg/")
    (tmp_path / name).write_bytes(content[:begin] + content[begin + 16 :])
    with pytest.raises(BadInput, match=r"is of another format.*; .*go on with the secagg that began") as found:
        recall(tmp_path)
    assert found.value.exit_code == ExitCode.BAD_INPUT
