"""Uploads on the server's disk: received in parts, checked, kept, and added one at a time into one running sum."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import numpy as np

from secagg.encoding import Residues
from secagg.errors import BadInput, ProtocolViolation
from secagg.files import open_private, private_folder, sync_folder
from secagg.protection import SessionContext
from secagg.protection.messages import Announcement


def vector_path(folder: Path, member: int) -> Path:
    """Where a member's complete, verified vector lies in a session's folder."""
    return folder / "uploads" / f"{member}.bin"


def read_vector(folder: Path, name: str, member: int, digest: bytes) -> bytes:
    """A member's kept vector. Raises BadInput for one that is missing or not the one that its sender announced."""
    path = vector_path(folder, member)
    try:
        vector = path.read_bytes()
    except OSError:
        vector = b""
    if hashlib.sha256(vector).digest() != digest:
        raise BadInput(f"the vector of {name} ({path}) is missing or not the one that it signed")
    return vector


def is_purged(folder: Path) -> bool:
    """Whether no vector is left in a session's folder: its operator has purged it, or copied the transcript alone."""
    return not any(vector_path(folder, 0).parent.glob("*.bin"))


class Staging:
    """The vectors on their way into a session's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._uploads = vector_path(folder, 0).parent
        private_folder(self._uploads)
        for torn in self._uploads.glob("*.part"):
            torn.unlink()

    @contextlib.asynccontextmanager
    async def receive(
        self, member: int, name: str, size: int, digest: bytes, parts: AsyncIterator[bytes]
    ) -> AsyncIterator[Path]:
        """Stage one vector beside the kept ones; inside the context it is on the disk, whole, with this digest.

        Raises ProtocolViolation when the bytes are others, BadInput when the disk refuses.
        """
        part = self._uploads / f"{member}.{id(asyncio.current_task()):x}.part"
        try:
            await _write(part, name, size, digest, parts)
            yield part
        except OSError as error:
            raise BadInput(f"cannot store the upload of {name} ({error.strerror})", remedy="free the disk") from None
        finally:
            part.unlink(missing_ok=True)

    def keep(self, member: int, part: Path) -> None:
        """Let a staged vector be the member's."""
        part.replace(vector_path(self._folder, member))
        sync_folder(self._uploads)


async def _write(path: Path, name: str, size: int, digest: bytes, parts: AsyncIterator[bytes]) -> None:
    hasher, received = hashlib.sha256(), 0
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
        async for part in parts:
            received += len(part)
            if received > size:
                raise ProtocolViolation(name, f"sends more than the announced {size} bytes")
            hasher.update(part)
            file.write(part)
        if received != size or hasher.digest() != digest:
            raise ProtocolViolation(name, "sends other bytes than its signed header announces")
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())


def add_up(folder: Path, uploads: Mapping[int, Announcement], context: SessionContext) -> Residues:
    """The ring sum of the vectors in a session's folder, read one at a time. Raises what `read_vector` raises."""
    total = np.zeros(context.length, dtype=context.ring.word)
    for member, announced in uploads.items():
        vector = read_vector(folder, context.names[member], member, announced.digest)
        total += context.ring.unpack(vector, context.length)
    return total
