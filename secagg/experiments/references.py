"""Accuracies without noise, computed once for all runs that they are the reference of."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from secagg.heads import Evaluation
from secagg.system.files import write_synced

_known: dict[tuple[str, str], Evaluation | None] = {}
"""What this process has computed or read, by data and key."""


@dataclass(frozen=True)
class References:
    """The references of runs over the data set of this digest. `folder`: where processes share them, if they do."""

    data_sha256: str
    folder: Path | None

    def recall(self, key: str, compute: Callable[[], Evaluation | None]) -> Evaluation | None:
        """Compute the accuracy of a key once; other processes that ask meanwhile wait for the result."""
        place = self.data_sha256, key
        if place not in _known:
            _known[place] = compute() if self.folder is None else _shared(self.folder / f"{key}.json", compute)
        return _known[place]


def _shared(path: Path, compute: Callable[[], Evaluation | None]) -> Evaluation | None:
    with _locked(path.with_suffix(".lock")):
        if path.exists():
            counted = json.loads(path.read_bytes())
            return Evaluation.counted(*counted) if counted else None
        found = compute()
        write_synced(path, json.dumps([found.correct, found.total] if found else []).encode())
        return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among all processes; the system lets the lock go when its holder dies."""
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
