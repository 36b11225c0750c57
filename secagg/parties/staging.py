"""Uploads on the server's disk: received in parts, checked, kept, and added one at a time into one running sum."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import numpy as np

from secagg.encoding import Residues
from secagg.errors import BadInput, ProtocolViolation
from secagg.protection import SessionContext
from secagg.protection.messages import UploadHeader
from secagg.transcript import sync_folder


class Staging:
    """The folder `uploads/` of one session: <member>.bin for every complete, verified vector."""

    def __init__(self, folder: Path, context: SessionContext) -> None:
        self._folder = folder
        self._context = context
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, member: int) -> Path:
        """Where a member's complete vector lies."""
        return self._folder / f"{member}.bin"

    async def receive(self, member: int, header: UploadHeader, parts: AsyncIterator[bytes]) -> None:
        """Stage one vector; afterwards it is on the disk, whole and with the announced digest.

        Raises ProtocolViolation when bytes and header differ, BadInput when the disk refuses.
        """
        name = self._context.names[member]
        if header.length != self._context.packed_bytes:
            raise ProtocolViolation(name, f"announces {header.length} bytes, not {self._context.packed_bytes}")
        task = asyncio.current_task()
        temporary = self._folder / f"{member}.{id(task):x}.part"
        try:
            await self._write(temporary, name, header, parts)
            temporary.replace(self.path(member))
            sync_folder(self._folder)
        except OSError as error:
            raise BadInput(f"cannot store the upload of {name} ({error.strerror})", remedy="free the disk") from None
        finally:
            temporary.unlink(missing_ok=True)

    async def _write(self, path: Path, name: str, header: UploadHeader, parts: AsyncIterator[bytes]) -> None:
        hasher, received = hashlib.sha256(), 0
        with path.open("wb") as file:
            async for part in parts:
                received += len(part)
                if received > header.length:
                    raise ProtocolViolation(name, f"sends more than the announced {header.length} bytes")
                hasher.update(part)
                file.write(part)
            if received != header.length or hasher.digest() != header.digest:
                raise ProtocolViolation(name, "sends other bytes than its signed header announces")
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())


def add_up(paths: Iterable[Path], context: SessionContext) -> Residues:
    """The ring sum of packed vectors, read one at a time. Raises MalformedMessage for one of another length."""
    total = np.zeros(context.length, dtype=context.ring.word)
    for path in paths:
        total += context.ring.unpack(path.read_bytes(), context.length)
    return total


def digest_matches(path: Path, header: UploadHeader) -> bool:
    """Whether a staged file is the one that its header announced."""
    try:
        return hashlib.sha256(path.read_bytes()).digest() == header.digest
    except OSError:
        return False
