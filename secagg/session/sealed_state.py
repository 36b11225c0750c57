"""State of a party on disk, encrypted: between two steps, and of a member between two rounds.

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


@message("Remembered")
@dataclass(frozen=True)
class Remembered:
    """A state, by class name and canonical bytes, and the frames that are to be sent from it."""

    state: Annotated[str, Length(1, 40)]
    content: Annotated[bytes, Length(0, MAX_FRAME_BYTES)] = field(repr=False)
    frames: Annotated[tuple[bytes, ...], Items(0, 16, each=Length(1, MAX_FRAME_BYTES))] = field(repr=False)


class Memory:
    """One session's remembered state in one folder: session.state, and session-N.key for its N-th version alone.

    Every version is sealed under a key of its own, and the key before it is erased, so that what a later version no
    longer holds cannot be opened with what is left.
    """

    def __init__(self, folder: Path, states: tuple[type, ...], randomness: RandomSource) -> None:
        self._folder = folder
        self._states = {tag_of(state): state for state in states}
        self._randomness = randomness
        self._state_file = folder / "session.state"

    def recall(self) -> tuple[Any, tuple[bytes, ...]] | None:
        """The last state and its frames, or None at the beginning. Raises BadInput when the files are damaged."""
        if not self._state_file.exists():
            return None
        stored = self._state_file.read_bytes()
        try:
            key = self._key_file(int.from_bytes(stored[:_NUMBER_BYTES], "big")).read_bytes()
            remembered = decode(Remembered, unseal(key, stored[_NUMBER_BYTES:], stored[:_NUMBER_BYTES]))
            return decode(self._states[remembered.state], remembered.content), remembered.frames
        except (OSError, ValueError, MalformedMessage, KeyError):
            raise BadInput(
                f"the remembered session in {self._folder} is damaged", remedy="it cannot go on; the others can"
            ) from None

    def keep(self, state: Any, frames: tuple[bytes, ...]) -> None:
        """Replace what is remembered, in one step that a crash cannot split. Raises BadInput when the disk refuses."""
        remembered = encode(Remembered(tag_of(type(state)), encode(state), frames))
        try:
            number = 1 + max((int(path.stem.removeprefix("session-")) for path in self._key_files()), default=0)
            key, prefix = self._randomness.bytes(32), number.to_bytes(_NUMBER_BYTES, "big")
            write_synced(self._key_file(number), key)
            write_synced(self._state_file, prefix + seal(key, remembered, prefix))
            for path in self._key_files():
                if path != self._key_file(number):
                    overwrite(path)
        except OSError as error:
            raise BadInput(
                f"cannot write to {self._folder} ({error.strerror})", remedy="free the disk and start again"
            ) from None

    def erase(self) -> None:
        """Forget everything: the keys first."""
        for path in (*self._key_files(), self._state_file):
            overwrite(path)
        sync_folder(self._folder)

    def _key_file(self, number: int) -> Path:
        return self._folder / f"session-{number}.key"

    def _key_files(self) -> list[Path]:
        return sorted(self._folder.glob("session-*.key"))


def overwrite(path: Path) -> None:
    """Write zeros over a file, wait for the disk, and unlink it, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


STATE_FILE, KEY_FILE = "private.state", "private.key"
KEY_BYTES = 32


def keep_state(folder: Path, state: bytes, round_digest: bytes, randomness: RandomSource) -> None:
    """Write the state that the round of this digest leaves in place of an earlier try's; no file for an empty one."""
    if state:
        key = randomness.bytes(KEY_BYTES)
        write_synced(folder / KEY_FILE, key)
        write_synced(folder / STATE_FILE, seal(key, state, round_digest))
    elif (folder / KEY_FILE).exists():  # which is written first
        (folder / STATE_FILE).unlink(missing_ok=True)
        (folder / KEY_FILE).unlink()
        sync_folder(folder)


def erase_state(folder: Path) -> None:
    """Forget what a round has left, the key first: what it left to the round after is all that counts from then on."""
    for path in (folder / KEY_FILE, folder / STATE_FILE):
        overwrite(path)


def recall_state(folder: Path, round_digest: bytes) -> bytes:
    """Return what the round of this digest left in its folder; empty where nothing, or what a crash left of erasing it.

    Raises BadInput for damage.
    """
    if not ((folder / STATE_FILE).exists() and _key(folder)):
        return b""
    try:
        return unseal(_key(folder), (folder / STATE_FILE).read_bytes(), round_digest)
    except (OSError, ValueError):
        raise BadInput(
            f"the private state in {folder} is damaged, or of another round",
            remedy="bring the folder back; without it this member cannot go on",
        ) from None


def _key(folder: Path) -> bytes:
    """The key; empty where there is none or it was being erased, so that what is left of the state says nothing."""
    key = (folder / KEY_FILE).read_bytes() if (folder / KEY_FILE).exists() else b""
    return key if any(key) else b""
