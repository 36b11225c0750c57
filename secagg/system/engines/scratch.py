"""A folder for arrays while worker processes use them: private records, which go with the process that owns them.

Owner and cleaner agree by a lock on a file in the folder (flock, which the system lets go when its holder dies, however
it dies): whoever gets it knows that no living process owns the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".features-"
OWNER = "owner"
"""Name of the file whose lock the owner holds."""


@contextmanager
def owned_folder(parent: Path) -> Iterator[Path]:
    """A fresh folder in `parent` that only this user can enter (mode 0700); it is removed at the end."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=PREFIX))
        try:
            lock = os.open(folder / OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # somebody took it for a leftover before it was locked
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_there(folder, lock):
            break
        os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_leftovers(parent: Path) -> int:
    """Remove the folders in `parent` whose owners are dead; return how many. A living owner's stays."""
    removed = 0
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder / OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            continue  # gone meanwhile, not ours, or no folder
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            removed += not folder.exists()
        except OSError:
            continue  # its owner lives
        finally:
            os.close(lock)
    return removed


def _is_there(folder: Path, lock: int) -> bool:
    """Whether the locked file is still the one in the folder."""
    try:
        return os.path.samestat((folder / OWNER).stat(), os.fstat(lock))
    except FileNotFoundError:
        return False
