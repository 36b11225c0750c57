"""Files that signed messages name by SHA-256: opened sums, heads, and the broadcasts that begin rounds.

A file is read on from where an earlier try broke off, and counts only when all of it has the digest that was signed.
Every sum of a plan is kept for `verify` and `audit`, in ring width. What opens a round is kept for the newest two where
it is a whole state: each follows from the sum and the state before, and who returns is shown the newest, and keeps that
too, having no sum before it. Where later rounds need what opened the earlier ones, all are kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput
from secagg.plan_facts.facts import KEPT_OPENINGS
from secagg.protection.messages import Attachment, RoundOpening
from secagg.session.receive_signed import Connection, SignedReceiver
from secagg.session.round_setup import RoundSetup
from secagg.system.files import open_private, private_folder, sync_folder, write_synced

SUM_FILE = "sum.bin"
"""The opened sum, packed in the session's ring."""
OPENING_FILE = "opening.bin"
"""The broadcast that began the session's round; absent in a plan's first round."""
_BLOCK = 1 << 20


def read_kept(path: Path, attachment: Attachment) -> bytes | None:
    """Return a file's content; None if it is absent, or not of the length and SHA-256 that `attachment` states."""
    try:
        if path.stat().st_size != attachment.length:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    return content if attachment.names(content) else None


def folder_name(round_digest: bytes) -> str:
    """Return the name of a round's folder: the first 16 hexadecimal digits of the round digest."""
    return round_digest.hex()[:16]


def read_opening(state: Path, opening: RoundOpening | None) -> bytes:
    """Return the broadcast that begins a round, from the round's folder in a party's `state`; empty if absent."""
    if opening is None:
        return b""
    return read_kept(opening_file(state, opening), opening.broadcast) or b""


def opening_file(state: Path, opening: RoundOpening) -> Path:
    """Return the path of the broadcast that begins a round, in a party's `state` folder."""
    return state / folder_name(opening.round_digest) / OPENING_FILE


def keep_opening(state: Path, opening: RoundOpening, broadcast: bytes) -> None:
    """Write the broadcast that begins a round into the round's folder. Raises BadInput when the disk refuses.

    To be called before any message names the broadcast.
    """
    file = opening_file(state, opening)
    try:
        if read_kept(file, opening.broadcast) is None:
            private_folder(file.parent)
            write_synced(file, broadcast)
    except OSError as error:
        raise BadInput(f"cannot write {file} ({error.strerror})", remedy="free the disk and start again") from None


def drop_openings(state: Path, done: list[tuple[RoundSetup, Any]]) -> None:
    """Delete the third newest of the rounds' broadcasts, if each one holds the training method's whole state.

    `done` are the finished rounds in order; the broadcast with which a client returned stays.
    """
    if len(done) < KEPT_OPENINGS:
        return
    setup, _ = done[-KEPT_OPENINGS]
    if setup.opening is not None and setup.rejoin is None and setup.facts.opens_alone:
        opening_file(state, setup.opening).unlink(missing_ok=True)


async def read_attached(
    signed: SignedReceiver, connection: Connection, session: bytes, attachment: Attachment, path: Path
) -> None:
    """Download the file that `attachment` names, unless `path` holds it; a partial download is continued.

    Bytes that are not the named ones are the server's doing, or of whoever carries them: all is asked again, for as
    long as anything is. Raises ServerAway then, BadInput when the disk refuses.
    """
    part, failing_since = path.with_name(path.name + ".part"), None
    try:
        while await asyncio.to_thread(read_kept, path, attachment) is None:
            if await _read_on(connection, session, attachment, part):
                part.replace(path)
                sync_folder(path.parent)
                return
            part.unlink()
            problem = f"sends other bytes than the {attachment.length} that it has signed"
            failing_since = await signed.wait_to_ask(SERVER_INDEX, problem, connection.patience, failing_since)
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror})", remedy="free the disk and start again") from None


async def read_opening_of(signed: SignedReceiver, connection: Connection, opening: RoundOpening, state: Path) -> None:
    """Download the broadcast that begins a round into the round's folder. Raises ServerAway, or BadInput (disk)."""
    file = opening_file(state, opening)
    private_folder(file.parent)
    await read_attached(signed, connection, opening.round_digest, opening.broadcast, file)


async def _read_on(connection: Connection, session: bytes, attachment: Attachment, part: Path) -> bool:
    """Download the bytes that the partial file lacks; return whether the whole then has the signed digest."""
    hasher = hashlib.sha256()
    with os.fdopen(open_private(part, os.O_RDWR), "r+b") as file:
        file.truncate(min(os.fstat(file.fileno()).st_size, attachment.length))
        while block := file.read(_BLOCK):
            hasher.update(block)
        start = file.tell()

        def take(data: bytes) -> None:
            hasher.update(data)
            file.write(data)

        if start < attachment.length:
            await connection.read(session, attachment.digest, start, attachment.length, take)
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())
    return hasher.digest() == attachment.digest


def session_folder(state: Path, setup: RoundSetup) -> Path:
    """Create and return the session's folder in a party's `state` folder. Raises BadInput when the disk refuses."""
    folder = state / folder_name(setup.context.round_digest)
    try:
        private_folder(folder)
    except OSError as error:
        problem = f"cannot make the folder {folder} ({error.strerror})"
        raise BadInput(problem, remedy="give another --state folder, or free the disk") from None
    return folder
