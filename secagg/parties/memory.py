"""What a client remembers between two steps: sealed on disk under a key that is erased when the session ends.

Whoever reads the folder while the session runs reads key and state; the seal serves the time after. On media that
keep old blocks, erasing a file is not proof that its bytes are gone: threat_models/README.md says so.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from secagg.crypto.agreement import derive
from secagg.crypto.sealing import SealBroken, seal, unseal
from secagg.errors import BadInput, MalformedMessage
from secagg.randomness import RandomSource
from secagg.transcript import sync_folder
from secagg.wire import Length, decode, encode, message

_SALT_BYTES = 32
_LABEL = "client state"


@message("Remembered")
@dataclass(frozen=True)
class Remembered:
    """A state, by class name and canonical bytes, and the frame that is to be sent from it."""

    state: Annotated[str, Length(1, 40)]
    content: Annotated[bytes, Length(0, 64 << 20)] = field(repr=False)
    frame: Annotated[bytes, Length(0, 64 << 20)]


class Memory:
    """One session's remembered state in one folder."""

    def __init__(self, folder: Path, states: tuple[type, ...], randomness: RandomSource) -> None:
        self._folder = folder
        self._states = {state.__name__: state for state in states}
        self._randomness = randomness
        self._key_file = folder / "session.key"
        self._state_file = folder / "session.state"

    def recall(self) -> tuple[Any, bytes] | None:
        """The last state and its frame, or None at the beginning. Raises BadInput when the files are damaged."""
        if not (self._key_file.exists() and self._state_file.exists()):
            return None
        stored = self._state_file.read_bytes()
        key = derive(self._key_file.read_bytes(), stored[:_SALT_BYTES], _LABEL)
        try:
            remembered = decode(Remembered, unseal(key, stored[_SALT_BYTES:], b""))
            return decode(self._states[remembered.state], remembered.content), remembered.frame
        except (SealBroken, MalformedMessage, KeyError):
            raise BadInput(
                f"the remembered session in {self._folder} is damaged", remedy="it cannot go on; the others can"
            ) from None

    def keep(self, state: Any, frame: bytes) -> None:
        """Replace what is remembered, in one step that a crash cannot split. Raises BadInput when the disk refuses."""
        remembered = encode(Remembered(type(state).__name__, encode(state), frame))
        try:
            if not self._key_file.exists():
                write_synced(self._key_file, self._randomness.bytes(32))
            salt = self._randomness.bytes(_SALT_BYTES)
            key = derive(self._key_file.read_bytes(), salt, _LABEL)
            write_synced(self._state_file, salt + seal(key, remembered, b""))
        except OSError as error:
            raise BadInput(
                f"cannot write to {self._folder} ({error.strerror})", remedy="free the disk and start again"
            ) from None

    def erase(self) -> None:
        """Forget everything: the key first, overwritten before it is unlinked."""
        for path in (self._key_file, self._state_file):
            with contextlib.suppress(FileNotFoundError):
                with path.open("r+b") as file:
                    file.write(bytes(path.stat().st_size))
                    file.flush()
                    os.fsync(file.fileno())
                path.unlink()
        sync_folder(self._folder)


def write_synced(path: Path, content: bytes) -> None:
    """Write a private file so that after a crash it is there whole, as before, or not at all."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)
