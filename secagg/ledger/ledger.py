"""The ledger: a client's append-only, hash-chained database of the privacy cost charged to each data set.

A row is one federation, charged in full and on the disk before its first upload leaves,
so that a crash can only overstate what was released; a second row of the same one says what it came to where it ended
early (`settle`). What rows add up to is for `secagg.ledger.spending`; how a cost is
written, for `COSTS`.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from secagg.agreement.policy import Budget
from secagg.crypto.labels import digest
from secagg.errors import BadInput
from secagg.ledger.spending import (
    Account,
    Cost,
    Neighbours,
    Release,
    Spent,
    account_of,
    refuse_overspending,
    settled_by,
    settles,
)
from secagg.privacy import Adjacency, GaussianCost, SampledSteps, TrainingCost, Unit
from secagg.system.files import open_private

FILE_NAME = "ledger.sqlite"
_REMEDY = "free the disk and start again"
SCHEMA_VERSION = 6
APPLICATION_ID = int.from_bytes(b"sagg", "big")
"""The application id that marks an SQLite file as a ledger."""


def _append_only(table: str, columns: str) -> tuple[str, ...]:
    """Return SQL statements that create a table with triggers that refuse to change or delete a row."""
    refusals = (
        f"CREATE TRIGGER {table}_{change} BEFORE {change} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        for change in ("update", "delete")
    )
    return (f"CREATE TABLE {table} ({columns})", *refusals)


_CHAINED = "number INTEGER PRIMARY KEY AUTOINCREMENT, head BLOB NOT NULL"
_UPLOADS = _append_only("uploads", f"{_CHAINED}, context BLOB NOT NULL UNIQUE")
_COSTS = _append_only(
    "costs",
    "number INTEGER NOT NULL, unit TEXT NOT NULL, adjacency TEXT NOT NULL, kind TEXT NOT NULL, content BLOB NOT NULL, "
    "UNIQUE (number, unit, adjacency)",
)
_TIMES = _append_only("times", "number INTEGER NOT NULL UNIQUE, at TEXT NOT NULL")
_SCHEMA = (
    *_append_only(
        "releases",
        f"{_CHAINED}, data_name TEXT NOT NULL, session BLOB NOT NULL, plan BLOB NOT NULL, unit TEXT NOT NULL, "
        "adjacency TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL",
    ),
    *_COSTS,
    *_UPLOADS,
    *_TIMES,
    f"PRAGMA user_version = {SCHEMA_VERSION}",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
START = bytes(32)
"""The head of an empty chain."""
GAUSSIAN, TRAINING = "gaussian", "training"
COSTS: Mapping[str, Callable[[bytes], Cost]] = {
    GAUSSIAN: lambda content: GaussianCost(*struct.unpack("<2d", content)),
    TRAINING: lambda content: _training(*struct.unpack("<2dQ2d", content)),
}
"""The decoder of a cost's stored bytes, by the kind of the cost.

Gaussian sums have μ² and gap; training has rate, multiplier, number of steps, μ² of further releases and gap. Another
mechanism is another kind, with its own parameters as content; the schema stays.
"""


@dataclass(frozen=True)
class Entry:
    """One row of a ledger: its number, from 1, the privacy cost that it records, and the hash chain's head (32 bytes).

    `at` is when it was written (UTC, to the second), by this machine's clock and for people alone: no head covers it.
    None for rows that were recovered.
    """

    number: int
    head: bytes
    release: Release
    at: datetime.datetime | None = field(default=None, compare=False)

    @property
    def digest(self) -> bytes:
        """The hash chain's head after this row, which covers all rows up to it; the client's transcript records it."""
        return self.head


class Ledger:
    """The ledger of one client: the privacy costs charged to all its data sets.

    Data names are paths: what was spent on `heart` counts for `heart/v2` and the other way round, under every spelling
    (`secagg.agreement.policy.data_set`). Every method verifies its whole chain first. A full rollback is not detectable
    from the ledger alone, only by comparing its head with those in the transcripts.
    """

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        """Open or create the ledger of a state folder.

        Raises BadInput when the disk refuses, when the file is no ledger of this version, and without `create` when
        there is none.
        """
        self._path = folder / FILE_NAME
        if not create and not self._path.exists():
            raise BadInput(f"there is no ledger in {folder}", remedy="give the --state folder of a client")
        if create:
            self._create()
        # Two that begin to read cannot both go on to write: who may have to, says so first.
        with self._connection("BEGIN IMMEDIATE" if create else "BEGIN", "rwc" if create else "rw") as connection:
            version = _pragma(connection, "user_version")
            if create and not version and not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                for statement in _SCHEMA:
                    connection.execute(statement)
            elif version != SCHEMA_VERSION:
                problem = f"the ledger {self._path} has schema version {version}, this program reads {SCHEMA_VERSION}"
                remedy = "use the program that wrote it; moving the file away forgets what was released"
                raise BadInput(problem, remedy=remedy)
            elif (found := _pragma(connection, "application_id")) != APPLICATION_ID:
                problem = f"{self._path} is not a ledger of this program (application_id {found}, not {APPLICATION_ID})"
                remedy = "use the program that wrote it; moving the file away forgets what was released"
                raise BadInput(problem, remedy=remedy)

    def _create(self) -> None:
        """Create the database file for its owner alone; SQLite gives its side files the same mode."""
        try:
            # Never open one that is there: to close it would take the locks of this process's connections away.
            os.close(open_private(self._path, os.O_WRONLY | os.O_EXCL))
        except FileExistsError:
            return
        except OSError as error:
            raise BadInput(f"cannot use the ledger {self._path} ({error.strerror})", remedy=_REMEDY) from None

    def entries(self) -> tuple[Entry, ...]:
        """Return every row, in order. Raises BadInput naming the first row that was changed or is missing."""
        with self._connection("BEGIN") as connection:
            return self._entries(connection)

    def check(self, release: Release, budget: Budget) -> None:
        """Raise PlanRefused, with figures, when a plan's privacy cost exceeds what is left of the budget.

        The same session counts once, however often it is checked. Raises BadInput when the ledger has it otherwise.
        """
        refuse_overspending([entry.release for entry in self.entries()], release, budget)

    def account(self, release: Release | None, data_name: str, budget: Budget) -> Account:
        """Return the state of a data set's budget: ε spent so far, ε of a plan (`release`), and ε left."""
        return account_of([entry.release for entry in self.entries()], release, data_name, budget)

    def record(self, release: Release, budget: Budget, at: datetime.datetime | None = None) -> Entry:
        """Check the budget and write a plan's privacy cost (`release`), synced to disk, in one transaction.

        The same release again changes nothing and gives the same entry; `at` is when it happened, where that is known.
        Raises like `check`, and BadInput when the disk refuses; nothing is written then.
        """
        with self._connection("BEGIN IMMEDIATE") as connection:
            entries = self._entries(connection)
            refuse_overspending([entry.release for entry in entries], release, budget)
            if settled_by([entry.release for entry in entries], release) is not None:
                raise BadInput("this plan has ended, and was charged for what it opened: nothing more of it can leave")
            for entry in entries:
                if entry.release == release:
                    return entry
            return _append(connection, entries, release, at)

    def settle(self, whole: Release, part: Release, at: datetime.datetime | None = None) -> Entry:
        """Lower the privacy cost charged for a plan that has ended for good, from the charge `whole` to `part`.

        Nothing of the plan may leave afterwards.
        The same again changes nothing. Raises BadInput where the plan was not charged so, or is not settled by this.
        """
        with self._connection("BEGIN IMMEDIATE") as connection:
            entries = self._entries(connection)
            for entry in entries:
                if settles(entry.release, whole):
                    return entry
            if not settles(part, whole) or whole not in [entry.release for entry in entries]:
                raise BadInput("the ledger has no such plan to settle")
            return _append(connection, entries, part, at)

    def begin_upload(self, round_digest: bytes) -> None:
        """Record that an upload may have begun in the round with this digest; doing so again changes nothing."""
        with self._connection("BEGIN IMMEDIATE") as connection:
            heads = self._uploads(connection)
            if round_digest not in heads:
                number, previous = len(heads) + 1, next(reversed(heads.values()), START)
                row = (number, _upload_head(previous, number, round_digest), round_digest)
                connection.execute("INSERT INTO uploads VALUES (?, ?, ?)", row)

    def has_uploaded(self, round_digest: bytes) -> bool:
        """Return whether an upload may have begun in the round with this digest.

        Another vector would be another release.
        """
        return round_digest in self.uploads()

    def uploads(self) -> tuple[bytes, ...]:
        """Return, in order, the digests of rounds whose upload may have begun. Raises BadInput for a changed row."""
        with self._connection("BEGIN") as connection:
            return tuple(self._uploads(connection))

    def _uploads(self, connection: sqlite3.Connection) -> dict[bytes, bytes]:
        """Return the upload chain's head after each round, by round digest. Raises BadInput for a changed row."""
        heads: dict[bytes, bytes] = {}
        head = START
        for row in connection.execute("SELECT number, head, context FROM uploads ORDER BY number"):
            number, round_digest = len(heads) + 1, row[2]
            head = _upload_head(head, number, round_digest) if isinstance(round_digest, bytes) else b""
            if row[:2] != (number, head):
                raise self._broken(number, "uploads")
            heads[round_digest] = head
        if len(heads) != _written(connection, "uploads"):
            raise self._broken(len(heads) + 1, "uploads")
        return heads

    def _entries(self, connection: sqlite3.Connection) -> tuple[Entry, ...]:
        costs: dict[int, list[tuple[Any, ...]]] = {}
        for number, *cost in connection.execute("SELECT * FROM costs ORDER BY rowid"):
            costs.setdefault(number, []).append(tuple(cost))
        times: dict[int, Any] = dict(connection.execute("SELECT number, at FROM times"))
        entries: list[Entry] = []
        for number, head, *row in connection.execute("SELECT * FROM releases ORDER BY number"):
            previous = entries[-1].head if entries else START
            own = costs.pop(number, [])
            if unknown := [kind for _, _, kind, _ in own if kind not in COSTS]:
                problem = f"row {number} of the ledger {self._path} has a cost of the kind {unknown[0]!r}, unknown here"
                raise BadInput(problem, remedy="use the program that wrote it")
            release = _release(row, own)
            if number != len(entries) + 1 or release is None or head != head_after(previous, number, release):
                raise self._broken(len(entries) + 1)
            entries.append(Entry(number, head, release, self._time(number, times)))
        if costs or len(entries) != _written(connection, "releases"):
            raise self._broken(len(entries) + 1)
        return tuple(entries)

    def _time(self, number: int, times: Mapping[int, Any]) -> datetime.datetime | None:
        try:
            return datetime.datetime.fromisoformat(times[number]) if number in times else None
        except (ValueError, TypeError):
            raise self._broken(number, "times") from None

    def _broken(self, number: int, table: str = "") -> BadInput:
        row = f"row {number} of the {table} in" if table else f"row {number} of"
        return BadInput(f"{row} the ledger {self._path} was changed or is missing", remedy="find out by whom")

    @contextlib.contextmanager
    def _connection(self, begin: str, mode: Literal["rw", "rwc"] = "rw") -> Iterator[sqlite3.Connection]:
        try:
            address = f"{self._path.absolute().as_uri()}?mode={mode}"
            connection = sqlite3.connect(address, uri=True, timeout=10, isolation_level=None)
            try:
                # EXTRA also syncs the folder, without which a power cut could undo a transaction.
                connection.execute("PRAGMA synchronous = EXTRA")
                with connection:
                    connection.execute(begin)
                    yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            remedy = _REMEDY if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL else ""
            raise BadInput(f"cannot use the ledger {self._path} ({error})", remedy=remedy) from None


def head_after(head: bytes, number: int, release: Release) -> bytes:
    """Return the hash chain's head after row `number` (from 1) with this release; `head` is the one before the row."""
    texts = (release.data_name, release.unit, release.adjacency, repr(release.epsilon), repr(release.delta))
    row = [release.session, release.plan, *(text.encode() for text in texts)]
    for unit, adjacency, kind, content in map(_columns, release.spent):
        row += [unit.encode(), adjacency.encode(), kind.encode(), content]
    return digest("ledger", head, number.to_bytes(8, "big"), *row)


def _upload_head(previous: bytes, number: int, round_digest: bytes) -> bytes:
    return digest("ledger upload", previous, number.to_bytes(8, "big"), round_digest)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _written(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of rows that the database has ever written to a table."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return int(row[0]) if row else 0


def _append(
    connection: sqlite3.Connection, entries: Sequence[Entry], release: Release, at: datetime.datetime | None
) -> Entry:
    number, row = len(entries) + 1, release
    head = head_after(entries[-1].head if entries else START, number, row)
    values = (row.data_name, row.session, row.plan, row.unit, row.adjacency, repr(row.epsilon), repr(row.delta))
    connection.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (number, head, *values))
    costs = [(number, *columns) for columns in map(_columns, row.spent)]
    if at is not None:
        connection.execute("INSERT INTO times VALUES (?, ?)", (number, at.isoformat(timespec="seconds")))
    connection.executemany("INSERT INTO costs VALUES (?, ?, ?, ?, ?)", costs)
    return Entry(number, head, release, at)


def _columns(spent: Spent) -> tuple[str, str, str, bytes]:
    match spent.cost:
        case GaussianCost(squared_mu, gap):
            return spent.unit, spent.adjacency, GAUSSIAN, struct.pack("<2d", squared_mu, gap)
        case TrainingCost(SampledSteps(rate, multiplier, steps), squared_mu, gap):
            content = struct.pack("<2dQ2d", rate, multiplier, steps, squared_mu, gap)
            return spent.unit, spent.adjacency, TRAINING, content


def _training(rate: float, multiplier: float, steps: int, squared_mu: float, gap: float) -> TrainingCost:
    return TrainingCost(SampledSteps(rate, multiplier, steps), squared_mu, gap)


def _release(row: Sequence[Any], costs: Sequence[tuple[Any, ...]]) -> Release | None:
    """Build the release that the columns hold; None when they were changed and hold no valid one."""
    data_name, session, plan, unit, adjacency, epsilon, delta = row
    texts = (data_name, unit, adjacency, epsilon, delta, *(part for cost in costs for part in cost[:3]))
    blobs = (session, plan, *(cost[3] for cost in costs))
    if not (all(isinstance(text, str) for text in texts) and all(isinstance(blob, bytes) for blob in blobs)):
        return None
    try:
        spent = tuple(Spent(Unit(each), Adjacency(other), COSTS[kind](cost)) for each, other, kind, cost in costs)
        neighbours: Neighbours = Adjacency(adjacency) if adjacency else ""
        return Release(data_name, session, plan, Unit(unit), neighbours, float(epsilon), float(delta), spent)
    except (ValueError, struct.error, BadInput):
        return None
