"""Parties that are killed at a chosen point of their work."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from secagg.transcript import Journal
from secagg.transcript.frames import Kind


class Crash(BaseException):
    """A party was killed, as by kill -9."""


@dataclass
class Fuse:
    """Kills its party at point number `point`, once; names every point that was passed."""

    point: int | None = None
    points: list[str] = field(default_factory=list)

    def burn(self, name: str) -> None:
        """Pass one point."""
        self.points.append(name)
        if len(self.points) - 1 == self.point:
            raise Crash(name)


class FusedJournal(Journal):
    """A journal whose party may die just before or just after a record is written."""

    def __init__(self, path: Path, fuse: Fuse) -> None:
        super().__init__(path)
        self._fuse = fuse
        self.is_dead = False

    def append(self, kind: Kind, content: bytes) -> None:
        """Write one record between two points. The dead write nothing."""
        if self.is_dead:
            raise Crash(kind)
        try:
            self._fuse.burn(f"before record {kind}")
            super().append(kind, content)
            self._fuse.burn(f"after record {kind}")
        except Crash:
            self.is_dead = True
            raise

    def close(self) -> None:
        """Close the file, as the end of the process does."""
        self.is_dead = True
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
