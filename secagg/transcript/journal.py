"""The transcript file: records are appended, each synced to the disk, and read back strictly.

The journal is a party's memory too: what is in it survives `kill -9`, and nothing is acknowledged or sent
before it is in it. A torn last record (a crash in the middle of a write) was never acknowledged and is cut off.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from secagg.crypto.labels import digest
from secagg.errors import BadInput, MalformedMessage, TranscriptInvalid
from secagg.system.files import open_private, sync_folder
from secagg.transcript.frames import MAGIC, START, Kind, Record
from secagg.wire import MAX_FRAME_BYTES, decode, encode

_LENGTH_BYTES = 4
_MAX_RECORD = MAX_FRAME_BYTES + 1024
FILE_NAME = "transcript.log"


class Journal:
    """The transcript file of one party, append-only and locked by one process; records do not stay in memory."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises TranscriptInvalid for a broken chain, BadInput when it cannot be used."""
        self.path = path
        self.head = START
        self._count = self._end = 0
        self._is_torn = False
        self._known: dict[bytes, int] = {}
        try:
            self._file = _lock(path)
            try:
                self._resume()
            except (OSError, TranscriptInvalid):
                self._file.close()
                raise
        except OSError as error:
            problem = f"cannot write the transcript {path} ({error.strerror})"
            raise BadInput(problem, remedy="free the disk and start again") from None
        self.was_empty = not self._count

    def _resume(self) -> None:
        """Read the records in the file, cut off a torn last one, and go to the end to append."""
        complete = 0
        if self.path.stat().st_size > len(MAGIC):
            for record, end in _scan(self.path, torn_tail_allowed=True):
                self._remember(record, complete or len(MAGIC))
                complete = end
        self._file.truncate(complete)
        self._file.seek(0, os.SEEK_END)
        if not self._count:
            self._file.write(MAGIC)
            self._sync()
            sync_folder(self.path.parent)
        self._end = self._file.tell()

    def append(self, kind: Kind, content: bytes) -> None:
        """Append one record, and wait until it is on the disk.

        What the transcript holds already is not written again: after a crash a party repeats its last steps.
        Raises BadInput when the disk refuses (full, read-only); the record is then not part of the transcript.
        """
        if digest(kind, content) in self._known:
            return
        record = Record(self._count, self.head, kind, content)
        data = encode(record)
        try:
            if self._is_torn:
                self._cut_off()
            self._file.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
            self._sync()
        except OSError as error:
            self._is_torn = True
            with contextlib.suppress(OSError):
                self._cut_off()
            problem = f"cannot write the transcript {self.path} ({error.strerror})"
            raise BadInput(problem, remedy="free the disk and start again") from None
        self._remember(record, self._end)
        self._end = self._file.tell()

    def place_of(self, kind: Kind, content: bytes) -> int:
        """Return where in the file a record of this kind and content begins. Raises KeyError if there is none."""
        return self._known[digest(kind, content)]

    def content_at(self, place: int) -> bytes:
        """Read the content of the record that begins at this place of the file (`place_of`)."""
        prefix = os.pread(self._file.fileno(), _LENGTH_BYTES, place)
        data = os.pread(self._file.fileno(), int.from_bytes(prefix, "big"), place + _LENGTH_BYTES)
        return decode(Record, data).content

    def records(self) -> Iterator[Record]:
        """Yield every record written so far, from the first."""
        return (record for record, _ in _scan(self.path, torn_tail_allowed=True))

    def close(self) -> None:
        """Close the transcript file, and so release its lock."""
        self._file.close()

    def _remember(self, record: Record, start: int) -> None:
        self._count += 1
        self._known[digest(record.kind, record.content)] = start
        self.head = record.head

    def _cut_off(self) -> None:
        """Cut off what a failed append has left behind the last record."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._file = _lock(self.path)
        self._file.seek(self._end)
        self._file.truncate()
        self._is_torn = False

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


def read_transcript(path: Path, *, torn_tail_allowed: bool = False) -> list[Record]:
    """Read all records of a transcript. Raises TranscriptInvalid, or BadInput.

    A last record that is only half written is left out if `torn_tail_allowed`.
    """
    return list(iterate_transcript(path, torn_tail_allowed=torn_tail_allowed))


def iterate_transcript(path: Path, *, torn_tail_allowed: bool = False) -> Iterator[Record]:
    """Yield one by one the records that `read_transcript` would return; each is read when it is asked for."""
    try:
        if torn_tail_allowed and path.stat().st_size <= len(MAGIC):
            return
        for record, _ in _scan(path, torn_tail_allowed=torn_tail_allowed):
            yield record
    except OSError as error:
        remedy = f"name the {FILE_NAME} in a session's folder" if path.is_dir() else ""
        raise BadInput(f"cannot read the transcript {path} ({error.strerror})", remedy=remedy) from None


def _scan(path: Path, *, torn_tail_allowed: bool) -> Iterator[tuple[Record, int]]:
    """Yield each record of a transcript file with the position of its end. Raises TranscriptInvalid for a bad one."""
    head, index = START, 0
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise TranscriptInvalid(0, f"{path} does not begin as a transcript")
        while prefix := file.read(_LENGTH_BYTES):
            length = int.from_bytes(prefix, "big")
            data = file.read(length) if length <= _MAX_RECORD else b""
            if len(prefix) < _LENGTH_BYTES or len(data) < length:
                if torn_tail_allowed and length <= _MAX_RECORD:
                    return
                raise TranscriptInvalid(index, "the file ends inside the record")
            try:
                record = decode(Record, data)
            except MalformedMessage as error:
                raise TranscriptInvalid(index, error.problem) from None
            if record.index != index or record.previous != head:
                raise TranscriptInvalid(index, "does not follow the record before it")
            head, index = record.head, index + 1
            yield record, file.tell()


def _lock(path: Path) -> BinaryIO:
    """Open or create a file, locked for this process until it is closed. Raises BadInput if another process has it."""
    file = os.fdopen(open_private(path, os.O_RDWR), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        problem = f"another process is at work in {path.parent}"
        raise BadInput(problem, remedy="wait until it ends, or stop it") from None
    return file
