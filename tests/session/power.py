"""A disk that keeps nothing but what was synced, for parties whose machine loses its power.

It holds a file's bytes as of the file's last fsync, and a folder's entries as of the folder's: the least that POSIX
promises (fsync(2): "calling fsync() does not necessarily ensure that the entry in the directory containing the file
has also reached disk").
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from tests.worlds.crashes import Crash, Fuse

Tree = dict[str, "bytes | Tree"]


class Disk:
    """Stands in for `os.fsync`, and knows what a power cut would leave.

    Every inode is held open, so that its number does not come again.
    """

    def __init__(self) -> None:
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, tuple[int, bool]]] = {}
        self._held: dict[int, int] = {}

    def sync(self, descriptor: int) -> None:
        """What `os.fsync` makes sure of: the bytes of a file, or the entries of a folder."""
        status = os.fstat(descriptor)
        if status.st_ino not in self._held:
            self._held[status.st_ino] = os.dup(descriptor)
        if stat.S_ISDIR(status.st_mode):
            entries = {name: os.lstat(name, dir_fd=descriptor) for name in os.listdir(descriptor)}
            found = {name: (each.st_ino, stat.S_ISDIR(each.st_mode)) for name, each in entries.items()}
            self._folders[status.st_ino] = found
        else:
            self._files[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def kept(self, folder: Path) -> Tree:
        """What a power cut would leave in a folder, which is itself safe."""
        return self._tree(folder.stat().st_ino)

    def cut(self, folder: Path) -> None:
        """The power is cut: from here on the folder holds what was synced."""
        tree = self.kept(folder)
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._restore(folder, tree)

    def close(self) -> None:
        """Let the inodes go."""
        for descriptor in self._held.values():
            os.close(descriptor)

    def _tree(self, inode: int) -> Tree:
        entries = self._folders.get(inode, {})
        return {
            name: self._tree(each) if is_folder else self._files.get(each, b"")
            for name, (each, is_folder) in entries.items()
        }

    def _restore(self, path: Path, content: bytes | Tree) -> None:
        """Write what was kept, which is synced from the beginning."""
        if isinstance(content, dict):
            path.mkdir(exist_ok=True)
            for name, each in content.items():
                self._restore(path / name, each)
        else:
            path.write_bytes(content)
        descriptor = os.open(path, os.O_RDONLY)
        self.sync(descriptor)
        os.close(descriptor)


class PowerCut(Fuse):
    """Cuts the power of its party's machine at one point, once."""

    def __init__(self, point: int, disk: Disk, folder: Path) -> None:
        super().__init__(point)
        self._disk = disk
        self._folder = folder

    def burn(self, name: str) -> None:
        """Pass one point."""
        try:
            super().burn(name)
        except Crash:
            self._disk.cut(self._folder)
            raise
