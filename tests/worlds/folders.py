"""What a test sees of the folders that parties keep."""

import contextlib
from pathlib import Path


def open_to_others(folder: Path) -> set[str]:
    """What lies under a folder and is not its owner's alone, with its mode."""
    found = set()
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # gone while one looks
            mode = path.lstat().st_mode & 0o777
            found |= {f"{path.relative_to(folder)} {mode:o}"} if mode & 0o077 else set()
    return found
