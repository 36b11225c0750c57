"""Storage of uploads: each is received in parts, checked and stored; the vectors are then added one at a time.

Only so many are received at a time: each costs buffers, and all share the server's line. The others wait for a place in
the order in which they came. Nobody keeps a place by being slow: an upload that is silent is ended, and so is one that
is slower than anybody need be, when others wait. Whoever is ended may begin again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from secagg.encoding import Residues
from secagg.errors import BadInput, NotNow, ProtocolViolation
from secagg.protection import SessionContext
from secagg.protection.messages import Announcement
from secagg.system.files import open_private, private_folder, sync_folder

T = TypeVar("T")
UPLOADS_AT_A_TIME = 32
SILENT_SECONDS = 10.0
"""Seconds without data after which an upload that has a place is ended."""
START_SECONDS, LEAST_RATE = 30.0, 64_000
"""While others wait, an upload may take START_SECONDS, and one second more for each LEAST_RATE bytes."""


def vector_path(folder: Path, member: int) -> Path:
    """Return the path of a member's complete, verified vector in a session's folder."""
    return folder / "uploads" / f"{member}.bin"


def read_vector(folder: Path, name: str, member: int, digest: bytes) -> bytes:
    """Read a member's stored vector. Raises BadInput if it is missing or not the one that its sender announced."""
    path = vector_path(folder, member)
    try:
        vector = path.read_bytes()
    except OSError:
        vector = b""
    if hashlib.sha256(vector).digest() != digest:
        raise BadInput(f"the vector of {name} ({path}) is missing or not the one that it signed")
    return vector


def is_purged(folder: Path) -> bool:
    """Return whether a session's folder holds no vectors, as all were purged, or never copied there."""
    return not any(vector_path(folder, 0).parent.glob("*.bin"))


@dataclass(eq=False)
class _Arrival:
    """An upload in progress: when it came, when it got a place, and the limit (with the reason) that may end it."""

    member: int
    since: float
    placed: float | None = None
    limit: asyncio.Timeout | None = None
    why: str = f"nothing came for {SILENT_SECONDS:.0f} s"


class Staging:
    """The receiver of uploads into a session's folder, which accepts a limited number at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._uploads = vector_path(folder, 0).parent
        private_folder(self._uploads)
        self._places = asyncio.Semaphore(UPLOADS_AT_A_TIME)
        self._arrivals: set[_Arrival] = set()
        for torn in self._uploads.glob("*.part"):
            torn.unlink()

    @contextlib.asynccontextmanager
    async def receive(
        self, member: int, name: str, size: int, digest: bytes, parts: AsyncIterator[bytes]
    ) -> AsyncIterator[Path]:
        """Receive one vector into a temporary file; yield its path once size and SHA-256 are checked.

        Raises ProtocolViolation when the bytes are others, NotNow when they are too slow or `end_all` comes first,
        BadInput when the disk refuses.
        """
        part = self._uploads / f"{member}.{id(asyncio.current_task()):x}.part"
        arrival = _Arrival(member, _now())
        self._arrivals.add(arrival)
        try:
            await _until_ended(arrival, self._places.acquire())
            try:
                arrival.placed = _now()
                await _until_ended(arrival, self._write(arrival, part, size, digest, parts))
                yield part
            finally:
                self._places.release()
        except OSError as error:
            raise BadInput(f"cannot store the upload of {name} ({error.strerror})", remedy="free the disk") from None
        finally:
            self._arrivals.discard(arrival)
            part.unlink(missing_ok=True)

    @property
    def longest_wait(self) -> float:
        """Longest time, in seconds, that an unfinished upload has waited in the queue before it could begin."""
        return max(((arrival.placed or _now()) - arrival.since for arrival in self._arrivals), default=0.0)

    def end_all(self) -> None:
        """Cancel every upload in progress, as the step that collects them is closed."""
        for arrival in self._arrivals:
            if arrival.limit is not None:
                arrival.why = "the upload comes too late"
                arrival.limit.reschedule(_now())

    def keep(self, member: int, part: Path) -> None:
        """Move a received vector from the temporary file `part` to the file of `member`'s vector."""
        part.replace(vector_path(self._folder, member))
        sync_folder(self._uploads)

    async def _write(
        self, arrival: _Arrival, path: Path, size: int, digest: bytes, parts: AsyncIterator[bytes]
    ) -> None:
        hasher, received = hashlib.sha256(), 0
        with os.fdopen(open_private(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
            self._expect_more(arrival, size)
            async for part in parts:
                received += len(part)
                if received > size:
                    raise ProtocolViolation(arrival.member, f"sends more than the announced {size} bytes")
                hasher.update(part)
                file.write(part)
                self._expect_more(arrival, size)
            if received != size or hasher.digest() != digest:
                raise ProtocolViolation(arrival.member, "sends other bytes than its signed header announces")
            if arrival.limit is not None:
                arrival.limit.reschedule(None)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())

    def _expect_more(self, arrival: _Arrival, size: int) -> None:
        """Set the time limit for the next part. Raises NotNow if the upload is slow and others wait for its place."""
        now, began = _now(), arrival.placed or 0.0
        if now > began + START_SECONDS + size / LEAST_RATE and any(each.placed is None for each in self._arrivals):
            raise NotNow(f"slower than {LEAST_RATE // 1000} kB in a second while others wait")
        if arrival.limit is not None:
            arrival.limit.reschedule(now + SILENT_SECONDS)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _until_ended(arrival: _Arrival, work: Awaitable[T]) -> T:
    """Await some work of an upload. Raises NotNow once the upload is ended."""
    try:
        async with asyncio.timeout(None) as arrival.limit:
            return await work
    except TimeoutError:
        raise NotNow(arrival.why) from None
    finally:
        arrival.limit = None


def add_up(folder: Path, uploads: Mapping[int, Announcement], context: SessionContext) -> Residues:
    """Add up the vectors in a session's folder in the ring (modular integers), one at a time. Raises BadInput."""
    total = np.zeros(context.length, dtype=context.ring.word)
    for member, announced in uploads.items():
        vector = read_vector(folder, context.names[member], member, announced.digest)
        total += context.ring.unpack(vector[: context.packed_bytes], context.length)
    return total
