"""Files that signed messages name by digest: opened sums, heads, broadcasts that open a round.

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
from secagg.errors import BadInput, ServerAway
from secagg.plan_facts.facts import KEPT_OPENINGS
from secagg.protection.messages import Attachment, RoundOpening
from secagg.session.receive_signed import Connection, SignedReceiver
from secagg.session.round_setup import RoundSetup
from secagg.system.files import open_private, private_folder, sync_folder, write_synced

SUM_FILE = "sum.bin"
"""The opened sum, packed in the session's ring."""
OPENING_FILE = "opening.bin"
"""What opened the session, but for a plan's first."""
_AGAIN_SECONDS = 0.5
_BLOCK = 1 << 20


def read_kept(path: Path, attachment: Attachment) -> bytes | None:
    """Return what a message names, from its file; None where the file is absent or another one."""
    try:
        if path.stat().st_size != attachment.length:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    return content if attachment.names(content) else None


def folder_name(round_digest: bytes) -> str:
    """Return the name of a round's folder."""
    return round_digest.hex()[:16]


def read_opening(state: Path, opening: RoundOpening | None) -> bytes:
    """Return what opens a round, from the round's folder in a party's `state`; empty where it is not there."""
    if opening is None:
        return b""
    return read_kept(opening_file(state, opening), opening.broadcast) or b""


def opening_file(state: Path, opening: RoundOpening) -> Path:
    """Where a party keeps what opens a round."""
    return state / folder_name(opening.round_digest) / OPENING_FILE


def keep_opening(state: Path, opening: RoundOpening, broadcast: bytes) -> None:
    """Write what opens a round into its folder, before any message names it. Raises BadInput when the disk refuses."""
    file = opening_file(state, opening)
    try:
        if read_kept(file, opening.broadcast) is None:
            private_folder(file.parent)
            write_synced(file, broadcast)
    except OSError as error:
        raise BadInput(f"cannot write {file} ({error.strerror})", remedy="free the disk and start again") from None


def drop_openings(state: Path, done: list[tuple[RoundSetup, Any]]) -> None:
    """Let go of what opened the latest session that is not among the newest, where what stays tells all.

    `done` are the sessions that have ended, the one that follows them is open. To be asked after each session.
    """
    if len(done) < KEPT_OPENINGS:
        return
    setup, _ = done[-KEPT_OPENINGS]
    if setup.opening is not None and setup.rejoin is None and setup.facts.opens_alone:
        opening_file(state, setup.opening).unlink(missing_ok=True)


async def read_attached(
    signed: SignedReceiver, connection: Connection, session: bytes, attachment: Attachment, path: Path
) -> None:
    """Have what the server has named for a session (its round digest) in a file; asks for no byte that is there.

    Bytes that are not the named ones are the server's doing, or of whoever carries them: all is asked again, for as
    long as anything is. Raises ServerAway then, BadInput when the disk refuses.
    """
    part, clock, failing_since = path.with_name(path.name + ".part"), asyncio.get_running_loop().time, None
    try:
        while await asyncio.to_thread(read_kept, path, attachment) is None:
            if await _read_on(connection, session, attachment, part):
                part.replace(path)
                sync_folder(path.parent)
                return
            part.unlink()
            problem = f"sends other bytes than the {attachment.length} that it has signed"
            name = signed.setup.roster.name(SERVER_INDEX)
            if failing_since is None:
                failing_since = clock()
                signed.progress(f"{name}: {problem}; asking again for up to {connection.patience:.0f} s")
            if clock() > failing_since + connection.patience:
                raise ServerAway(connection.patience, name, problem)
            await asyncio.sleep(_AGAIN_SECONDS)
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror})", remedy="free the disk and start again") from None


async def read_opening_of(signed: SignedReceiver, connection: Connection, opening: RoundOpening, state: Path) -> None:
    """Have what opens a round in its folder, from the server. Raises what `read_attached` raises."""
    file = opening_file(state, opening)
    private_folder(file.parent)
    await read_attached(signed, connection, opening.round_digest, opening.broadcast, file)


async def _read_on(connection: Connection, session: bytes, attachment: Attachment, part: Path) -> bool:
    """Read the bytes that are still missing after those in the file; return whether all together are the named ones."""
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
    """Return the session's folder inside a party's state folder. Raises BadInput when it cannot be made."""
    folder = state / folder_name(setup.context.round_digest)
    try:
        private_folder(folder)
    except OSError as error:
        problem = f"cannot make the folder {folder} ({error.strerror})"
        raise BadInput(problem, remedy="give another --state folder, or free the disk") from None
    return folder
