"""Make files and folders for their owner alone, whatever the umask: keys, transcripts, protected vectors, sums."""

from __future__ import annotations

import os
from pathlib import Path


def open_private(path: Path, flags: int) -> int:
    """Open a file, never through a symbolic link; a new file is readable by its owner alone (0600).

    `flags` are those of `os.open`; with `os.O_EXCL` a file that is there already is refused. Returns the descriptor.
    Raises OSError.
    """
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def private_folder(path: Path) -> None:
    """Make a folder and its missing parents, for the owner alone (0700); they are synced to disk on return.

    A folder that is there stays as it is. Raises OSError.
    """
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)


def keep_to_owner() -> None:
    """Set the umask so that this process, libraries included, makes files for their owner alone from now on."""
    os.umask(0o077)


def sync_folder(folder: Path) -> None:
    """Wait until the folder's entries are on the disk (fsync)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, content: bytes) -> None:
    """Write a private file atomically: after a crash the file has either the new content or the old."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # what a crash has left, whoever may read it
    with os.fdopen(open_private(temporary, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)
