"""Encrypted state on disk: of any party between two steps of a session, of a client between two rounds.

Whoever reads the folder while the session runs reads key and state; the seal serves the time after. On media that
keep old blocks, erasing a file is not proof that its bytes are gone: threat_models/README.md says so.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from secagg.crypto.sealing import seal, unseal
from secagg.errors import BadInput, MalformedMessage
from secagg.randomness import RandomSource
from secagg.system.files import sync_folder, write_synced
from secagg.wire import MAX_FRAME_BYTES, Items, Length, decode, encode, message, tag_of

_NUMBER_BYTES = 8
_MEMORY_FORMAT, _STATE_FORMAT = b"secagg/session/1", b"secagg/private/1"
"""The name of each file's format, written in clear before the ciphertext; another version has another name."""
_OTHERS = "go on with the secagg that began the plan"


@message("Remembered")
@dataclass(frozen=True)
class Remembered:
    """A stored protocol state (class name, canonical bytes), with the signed messages to send in that state."""

    state: Annotated[str, Length(1, 40)]
    content: Annotated[bytes, Length(0, MAX_FRAME_BYTES)] = field(repr=False)
    frames: Annotated[tuple[bytes, ...], Items(0, 16, each=Length(1, MAX_FRAME_BYTES))] = field(repr=False)


class Memory:
    """Encrypted storage of one session's state: the file session.state, and a new key file for each version.

    The key of the N-th version is session-N.key.
    The file holds N (8 bytes), the name of the format, and what is sealed.

    Every version is sealed under a key of its own, and the key before it is erased, so that what a later version no
    longer holds cannot be opened with what is left.
    """

    def __init__(self, folder: Path, states: tuple[type, ...], randomness: RandomSource) -> None:
        self._folder = folder
        self._states = {tag_of(state): state for state in states}
        self._randomness = randomness
        self._state_file = folder / "session.state"

    def recall(self) -> tuple[Any, tuple[bytes, ...]] | None:
        """Decrypt the last state and its messages; None if nothing is stored. Raises BadInput for unreadable data."""
        if not self._state_file.exists():
            return None
        stored = self._state_file.read_bytes()
        prefix, sealed = stored[:_NUMBER_BYTES], stored[_NUMBER_BYTES:]
        if not sealed.startswith(_MEMORY_FORMAT):
            problem = f"the remembered session in {self._folder} is of another format, or damaged"
            raise BadInput(problem, remedy=f"{_OTHERS}; without it this party cannot go on, the others can")
        try:
            key = self._key_file(int.from_bytes(prefix, "big")).read_bytes()
            remembered = decode(Remembered, unseal(key, sealed.removeprefix(_MEMORY_FORMAT), prefix))
            return decode(self._states[remembered.state], remembered.content), remembered.frames
        except (OSError, ValueError, MalformedMessage, KeyError):
            problem = f"the remembered session in {self._folder} is damaged"
            raise BadInput(problem, remedy="it cannot go on; the others can") from None

    def keep(self, state: Any, frames: tuple[bytes, ...]) -> None:
        """Encrypt and store a state and its messages, in place of the last, atomically. Raises BadInput (disk)."""
        remembered = encode(Remembered(tag_of(type(state)), encode(state), frames))
        try:
            number = 1 + max((int(path.stem.removeprefix("session-")) for path in self._key_files()), default=0)
            key, prefix = self._randomness.bytes(32), number.to_bytes(_NUMBER_BYTES, "big")
            write_synced(self._key_file(number), key)
            write_synced(self._state_file, prefix + _MEMORY_FORMAT + seal(key, remembered, prefix))
            for path in self._key_files():
                if path != self._key_file(number):
                    overwrite(path)
        except OSError as error:
            problem = f"cannot write to {self._folder} ({error.strerror})"
            raise BadInput(problem, remedy="free the disk and start again") from None

    def erase(self) -> None:
        """Overwrite and delete the keys, then the encrypted state."""
        for path in (*self._key_files(), self._state_file):
            overwrite(path)
        sync_folder(self._folder)

    def _key_file(self, number: int) -> Path:
        return self._folder / f"session-{number}.key"

    def _key_files(self) -> list[Path]:
        return sorted(self._folder.glob("session-*.key"))


def overwrite(path: Path) -> None:
    """Overwrite a file with zeros, wait for the disk, and unlink it; do nothing if the file is absent."""
    with contextlib.suppress(FileNotFoundError):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


STATE_FILE, KEY_FILE = "private.state", "private.key"
KEY_BYTES = 32


def keep_state(folder: Path, state: bytes, round_digest: bytes, randomness: RandomSource) -> None:
    """Encrypt and write a client's private state after this round; write nothing if it is empty.

    It takes the place of an earlier attempt's.
    """
    if state:
        key = randomness.bytes(KEY_BYTES)
        write_synced(folder / KEY_FILE, key)
        write_synced(folder / STATE_FILE, _STATE_FORMAT + seal(key, state, round_digest))
    elif (folder / KEY_FILE).exists():  # which is written first
        (folder / STATE_FILE).unlink(missing_ok=True)
        (folder / KEY_FILE).unlink()
        sync_folder(folder)


def erase_state(folder: Path) -> None:
    """Overwrite and delete the key, then the encrypted file, of a client's private state of a round.

    The state of the next round replaces it.
    """
    for path in (folder / KEY_FILE, folder / STATE_FILE):
        overwrite(path)


def recall_state(folder: Path, round_digest: bytes) -> bytes:
    """Decrypt a client's private state of this round; empty if there was none, or its erasure has begun.

    Raises BadInput for damage, or another format.
    """
    if not ((folder / STATE_FILE).exists() and _key(folder)):
        return b""
    try:
        stored = (folder / STATE_FILE).read_bytes()
        if not stored.startswith(_STATE_FORMAT):
            problem = f"the private state in {folder} is of another format, damaged, or of another round"
            raise BadInput(problem, remedy=f"bring the folder back, or {_OTHERS}; without it this member cannot go on")
        return unseal(_key(folder), stored.removeprefix(_STATE_FORMAT), round_digest)
    except (OSError, ValueError):
        problem = f"the private state in {folder} is damaged, or of another round"
        raise BadInput(problem, remedy="bring the folder back; without it this member cannot go on") from None


def _key(folder: Path) -> bytes:
    """Read the key; empty if it is absent or already overwritten with zeros."""
    key = (folder / KEY_FILE).read_bytes() if (folder / KEY_FILE).exists() else b""
    return key if any(key) else b""
