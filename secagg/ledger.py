"""The ledger: a client's own record of what it has released from which data set.

Append-only, and written before the upload leaves, so that a crash can only overstate what was released.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from secagg.crypto.labels import digest
from secagg.errors import BadInput, PlanRefused

FILE_NAME = "ledger.sqlite"
_TABLE = """
CREATE TABLE IF NOT EXISTS releases (
    data_name TEXT NOT NULL, session BLOB NOT NULL, plan BLOB NOT NULL, unit TEXT NOT NULL,
    adjacency TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL,
    PRIMARY KEY (data_name, session)
) WITHOUT ROWID
"""
_OTHERS = "SELECT COUNT(*) FROM releases WHERE data_name = ? AND session != ?"


@dataclass(frozen=True)
class Release:
    """One session over one data set, and the privacy that it was promised to cost."""

    data_name: str
    session: bytes
    plan: bytes
    unit: str
    adjacency: str
    epsilon: float
    delta: float

    @property
    def digest(self) -> bytes:
        """Identifies the row in the client's transcript, 32 bytes."""
        texts = (self.data_name, self.unit, self.adjacency, repr(self.epsilon), repr(self.delta))
        return digest("release", self.session, self.plan, *(text.encode() for text in texts))


class Ledger:
    """The releases of all data sets of one client."""

    def __init__(self, folder: Path) -> None:
        """Open or create the ledger of a state folder. Raises BadInput when the disk refuses."""
        self._path = folder / FILE_NAME
        with self._connection() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(_TABLE)

    def other_sessions(self, data_name: str, session: bytes) -> int:
        """How many sessions other than `session` have had this data set."""
        with self._connection() as connection:
            return int(connection.execute(_OTHERS, (data_name, session)).fetchone()[0])

    def record(self, release: Release, *, may_repeat: bool) -> None:
        """Write the release and wait until the disk has it; the same session again changes nothing.

        Raises PlanRefused when another session has had the data meanwhile and that may not be, BadInput when the disk
        refuses or the session stands there under another plan.
        """
        values = (release.data_name, release.session, release.plan, release.unit, release.adjacency)
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            others = int(connection.execute(_OTHERS, values[:2]).fetchone()[0])
            if others and not may_repeat:
                raise PlanRefused((f"repeat_sessions: {release.data_name} was in {others} other session(s) meanwhile",))
            known = connection.execute(
                "SELECT plan FROM releases WHERE data_name = ? AND session = ?", values[:2]
            ).fetchone()
            if known is not None and known[0] != release.plan:
                raise BadInput("this session was already entered into the ledger under another plan")
            connection.execute(
                "INSERT OR IGNORE INTO releases VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*values, repr(release.epsilon), repr(release.delta)),
            )

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(self._path, timeout=10, isolation_level=None)
            try:
                connection.execute("PRAGMA synchronous = FULL")
                with connection:
                    yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise BadInput(f"cannot use the ledger {self._path} ({error})") from None
