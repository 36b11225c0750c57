"""Files and folders for their owner alone, whatever the umask: keys, transcripts, protected vectors, opened sums."""

from __future__ import annotations

import os
from pathlib import Path


def open_private(path: Path, flags: int) -> int:
    """Open a file, made for its owner alone (0600) where it is not there; never through a symbolic link.

    `flags` are those of `os.open`; with `os.O_EXCL` a file that is there already is refused. Returns the descriptor.
    Raises OSError.
    """
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def private_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, for the owner alone (0700); the disk has them on return.

    A folder that is there stays as it is. Raises OSError.
    """
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)


def keep_to_owner() -> None:
    """From here on this process makes files for its owner alone, also where a library makes them."""
    os.umask(0o077)


def sync_folder(folder: Path) -> None:
    """Wait until the disk knows the folder's entries."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, content: bytes) -> None:
    """Write a private file so that after a crash it is there whole, as before, or not at all."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # what a crash has left, whoever may read it
    with os.fdopen(open_private(temporary, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)
