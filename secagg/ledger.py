"""The ledger: a client's own record of what it has released about which data set, and what that adds up to.

Append-only and hash-chained. A row is one federation, charged in full and on the disk before its first upload leaves,
so that a crash can only overstate what was released. Totals are compositions of Rényi curves (`secagg.privacy.rdp`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from secagg.crypto.labels import digest
from secagg.errors import BadInput, PlanRefused
from secagg.files import open_private
from secagg.policy import Budget, data_set
from secagg.privacy import RdpCurve
from secagg.privacy.claim import shown
from secagg.privacy.rdp import ORDERS

FILE_NAME = "ledger.sqlite"
SCHEMA_VERSION = 4
CARRIED_OVER = 3
"""The older version whose ledgers are read too."""


def _append_only(table: str, columns: str) -> tuple[str, ...]:
    """Statements that make a table of which the database itself refuses to change or delete a row."""
    refusals = (
        f"CREATE TRIGGER {table}_{change} BEFORE {change} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        for change in ("update", "delete")
    )
    return (f"CREATE TABLE {table} ({columns})", *refusals)


_CHAINED = "number INTEGER PRIMARY KEY AUTOINCREMENT, head BLOB NOT NULL"
_UPLOADS = _append_only("uploads", f"{_CHAINED}, context BLOB NOT NULL UNIQUE")
_SCHEMA = (
    *_append_only(
        "releases",
        f"{_CHAINED}, data_name TEXT NOT NULL, session BLOB NOT NULL, plan BLOB NOT NULL, unit TEXT NOT NULL, "
        "adjacency TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL",
    ),
    *_append_only(
        "curves",
        "number INTEGER NOT NULL, unit TEXT NOT NULL, adjacency TEXT NOT NULL, curve BLOB NOT NULL, "
        "UNIQUE (number, unit, adjacency)",
    ),
    *_UPLOADS,
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_NOTHING = RdpCurve((0.0,) * len(ORDERS))
START = bytes(32)
"""The head of an empty chain."""


@dataclass(frozen=True)
class SpentCurve:
    """The Rényi curve of a whole plan, for one unit and adjacency."""

    unit: str
    adjacency: str
    curve: RdpCurve


@dataclass(frozen=True)
class Release:
    """One federation over one data set: the privacy that it was promised to cost, and what it costs.

    (ε, δ) is the plan's claim for its `unit` and `adjacency`. `curves` has every (unit, adjacency) in which the plan
    can be accounted, the plan's own among them; in any other it costs infinity. A sum without noise (ε infinite) has
    no curve. Raises BadInput for a cost that contradicts itself.
    """

    data_name: str
    session: bytes
    plan: bytes
    unit: str
    adjacency: str
    epsilon: float
    delta: float
    curves: tuple[SpentCurve, ...]

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and 0 <= self.delta < 1):
            raise BadInput(f"a release cannot cost epsilon {self.epsilon} at delta {self.delta}")
        pairs = [(curve.unit, curve.adjacency) for curve in self.curves]
        if len(set(pairs)) != len(pairs):
            raise BadInput("a release has two curves for the same unit and adjacency")
        if (self.epsilon < math.inf) != ((self.unit, self.adjacency) in pairs) or (self.epsilon == math.inf and pairs):
            raise BadInput(
                f"a release of epsilon {self.epsilon} has curves for {pairs}",
                remedy="a finite one has a curve for its own unit and adjacency, a sum without noise has none",
            )

    def curve(self, unit: str, adjacency: str) -> RdpCurve | None:
        """What the release costs in a unit and adjacency; None is infinite."""
        found = [each.curve for each in self.curves if (each.unit, each.adjacency) == (unit, adjacency)]
        return found[0] if found else None


@dataclass(frozen=True)
class Entry:
    """One row: its number, counted from 1 over the whole ledger, and the head of the chain after it, 32 bytes."""

    number: int
    head: bytes
    release: Release

    @property
    def digest(self) -> bytes:
        """What the client's transcript commits to: the head, which fixes the number, this row and all before it."""
        return self.head


def composed(releases: Sequence[Release], unit: str, adjacency: str) -> RdpCurve | None:
    """Return the curve of all releases together (Mironov 2017, Proposition 1); None when one of them is infinite."""
    curves = [release.curve(unit, adjacency) for release in releases]
    finite = [curve for curve in curves if curve is not None]
    if len(finite) < len(curves):
        return None
    return functools.reduce(operator.add, finite) if finite else _NOTHING


def total_epsilon(releases: Sequence[Release], unit: str, adjacency: str, delta: float) -> float:
    """Return ε of all releases together at δ, rounded up; math.inf when one of them is infinite.

    A single release costs no more than its own claim, which may be sharper than its curve. Raises BadInput for a δ
    out of range.
    """
    curve = composed(releases, unit, adjacency)
    if curve is None:
        return math.inf
    if not releases:
        return 0.0
    total = curve.epsilon(delta)
    if len(releases) == 1:
        (only,) = releases
        if (only.unit, only.adjacency) == (unit, adjacency) and delta >= only.delta:
            return min(total, only.epsilon)
    return total


class Ledger:
    """The releases of all data sets of one client.

    Data names are paths: what was spent on `heart` counts for `heart/v2` and the other way round, under every spelling
    (`secagg.policy.data_set`), also one that only an older ledger took. Every method verifies its whole chain first. A
    ledger that was put back to an older copy in one piece cannot tell; the heads in the transcripts can.
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
        with self._connection("BEGIN IMMEDIATE" if create else "BEGIN", "rwc" if create else "rw") as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if create and not version and not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                for statement in _SCHEMA:
                    connection.execute(statement)
            elif version == CARRIED_OVER:
                self._carry_over(connection)
            elif version != SCHEMA_VERSION:
                raise BadInput(
                    f"the ledger {self._path} has schema version {version}, this program reads {SCHEMA_VERSION}",
                    remedy="use the program that wrote it; moving the file away forgets what was released",
                )

    def _carry_over(self, connection: sqlite3.Connection) -> None:
        """Chain the uploads of an older ledger, which had them unchained; releases stay as they are."""
        contexts = [context for (context,) in connection.execute("SELECT context FROM uploads ORDER BY rowid")]
        for statement in ("DROP TABLE uploads", *_UPLOADS):
            connection.execute(statement)
        for context in contexts:
            self._add_upload(connection, context)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _create(self) -> None:
        """Make the file, for its owner alone; sqlite gives its own files the same mode."""
        try:
            # Never open one that is there: to close it would take the locks of this process's connections away.
            os.close(open_private(self._path, os.O_WRONLY | os.O_EXCL))
        except FileExistsError:
            return
        except OSError as error:
            raise BadInput(f"cannot use the ledger {self._path} ({error.strerror})") from None

    def entries(self) -> tuple[Entry, ...]:
        """Every row, in order. Raises BadInput naming the first row that was changed or is missing."""
        with self._connection("BEGIN") as connection:
            return self._entries(connection)

    def spent(self, data_name: str, unit: str, adjacency: str, *, besides: bytes | None = None) -> RdpCurve | None:
        """Return what was spent on a data set, but for one session; None is infinite, no rows are the zero curve."""
        rows = [entry.release for entry in self.entries()]
        return composed([row for row in _same(rows, data_name) if row.session != besides], unit, adjacency)

    def check(self, release: Release, budget: Budget) -> None:
        """Raise PlanRefused with the numbers when the release does not fit into what is left of the budget.

        The same session counts once, however often it is checked. Raises BadInput when the ledger has it otherwise.
        """
        _check([entry.release for entry in self.entries()], release, budget)

    def record(self, release: Release, budget: Budget) -> Entry:
        """Check the budget, write the release and wait until the disk has it, all in one transaction.

        The same release again changes nothing and gives the same entry. Raises like `check`, and BadInput when the
        disk refuses; nothing is written then.
        """
        with self._connection("BEGIN IMMEDIATE") as connection:
            entries = self._entries(connection)
            _check([entry.release for entry in entries], release, budget)
            for entry in entries:
                if entry.release == release:
                    return entry
            number = len(entries) + 1
            entry = Entry(number, head_after(entries[-1].head if entries else START, number, release), release)
            _insert(connection, entry)
            return entry

    def begin_upload(self, context: bytes) -> None:
        """Write that a vector of the session with this context digest may have left; again changes nothing."""
        with self._connection("BEGIN IMMEDIATE") as connection:
            self._add_upload(connection, context)

    def has_uploaded(self, context: bytes) -> bool:
        """Whether a vector of the session may have left: another one would be another release."""
        return context in self.uploads()

    def uploads(self) -> tuple[bytes, ...]:
        """The context digest of every session of which a vector may have left, in order.

        Raises BadInput when a row was changed or is missing.
        """
        with self._connection("BEGIN") as connection:
            return tuple(self._uploads(connection))

    def _uploads(self, connection: sqlite3.Connection) -> dict[bytes, bytes]:
        """By context the head of the chain after it, in order."""
        heads: dict[bytes, bytes] = {}
        head = START
        for row in connection.execute("SELECT number, head, context FROM uploads ORDER BY number"):
            number, context = len(heads) + 1, row[2]
            head = _upload_head(head, number, context) if isinstance(context, bytes) else b""
            if row[:2] != (number, head):
                raise self._broken(number, "uploads")
            heads[context] = head
        if len(heads) != _written(connection, "uploads"):
            raise self._broken(len(heads) + 1, "uploads")
        return heads

    def _add_upload(self, connection: sqlite3.Connection, context: bytes) -> None:
        heads = self._uploads(connection)
        if context not in heads:
            number, previous = len(heads) + 1, next(reversed(heads.values()), START)
            row = (number, _upload_head(previous, number, context), context)
            connection.execute("INSERT INTO uploads VALUES (?, ?, ?)", row)

    def _entries(self, connection: sqlite3.Connection) -> tuple[Entry, ...]:
        curves: dict[int, list[tuple[Any, ...]]] = {}
        for number, *curve in connection.execute("SELECT number, unit, adjacency, curve FROM curves ORDER BY rowid"):
            curves.setdefault(number, []).append(tuple(curve))
        entries: list[Entry] = []
        for number, head, *row in connection.execute("SELECT * FROM releases ORDER BY number"):
            previous = entries[-1].head if entries else START
            release = _release(row, curves.pop(number, []))
            if number != len(entries) + 1 or release is None or head != head_after(previous, number, release):
                raise self._broken(len(entries) + 1)
            entries.append(Entry(number, head, release))
        if curves or len(entries) != _written(connection, "releases"):
            raise self._broken(len(entries) + 1)
        return tuple(entries)

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
            raise BadInput(f"cannot use the ledger {self._path} ({error})") from None


def _same(releases: Sequence[Release], data_name: str) -> list[Release]:
    """Those about one data set; a row of an older ledger whose name names none counts for every one."""
    return [release for release in releases if data_set(release.data_name) in (data_set(data_name), "")]


def _check(releases: Sequence[Release], release: Release, budget: Budget) -> None:
    """Every promise about the data set must fit into the budget, this one and those made before."""
    together = _same(releases, release.data_name)
    known = [each for each in together if each.session == release.session]
    if known and known != [release]:
        raise BadInput("this session was already entered into the ledger under another plan, name or cost")
    if not known:
        together.append(release)
    others = [each for each in together if each.session != release.session]
    for pair in dict.fromkeys((each.unit, each.adjacency) for each in (release, *others)):
        total = total_epsilon(together, *pair, budget.delta)
        if not total <= budget.max_epsilon_total:
            raise PlanRefused((f"max_epsilon_total: {_sum(release, others, pair, budget)}",))
        if math.isinf(total) and others and not budget.may_repeat:
            had = f"{data_set(release.data_name)} was in {len(others)} other session(s)"
            raise PlanRefused((f"repeat_sessions: {had} and the total is infinite",))


def _sum(release: Release, others: Sequence[Release], pair: tuple[str, str], budget: Budget) -> str:
    """The refused addition, in numbers that are rounded up."""
    name, most, sessions = data_set(release.data_name), budget.max_epsilon_total, f"{len(others)} other session(s)"
    if math.isinf(release.epsilon):
        return f"this plan opens an exact sum about {name} (epsilon inf), more than {most}; {sessions} before it"
    every = (others, [release], [*others, release])
    before, added, total = (shown(total_epsilon(each, *pair, budget.delta)) for each in every)
    unit, adjacency = pair
    return (
        f"{name} has spent epsilon {before} in {sessions}, this plan adds {added}, together {total}, "
        f"more than {most} (delta {budget.delta:g}, {adjacency}, {unit} level)"
    )


def head_after(head: bytes, number: int, release: Release) -> bytes:
    """The chain's head after a row, which follows `head` and stands in place `number`, counted from 1."""
    texts = (release.data_name, release.unit, release.adjacency, repr(release.epsilon), repr(release.delta))
    curves = [part for each in release.curves for part in (each.unit.encode(), each.adjacency.encode(), _blob(each))]
    row = [release.session, release.plan, *(text.encode() for text in texts), *curves]
    return digest("ledger", head, number.to_bytes(8, "big"), *row)


def _upload_head(previous: bytes, number: int, context: bytes) -> bytes:
    return digest("ledger upload", previous, number.to_bytes(8, "big"), context)


def _written(connection: sqlite3.Connection, table: str) -> int:
    """How many rows the database has ever written to a table."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return int(row[0]) if row else 0


def _blob(spent: SpentCurve) -> bytes:
    return np.array(spent.curve.values, dtype="<f8").tobytes()


def _insert(connection: sqlite3.Connection, entry: Entry) -> None:
    row = entry.release
    values = (row.data_name, row.session, row.plan, row.unit, row.adjacency, repr(row.epsilon), repr(row.delta))
    connection.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (entry.number, entry.head, *values))
    connection.executemany(
        "INSERT INTO curves VALUES (?, ?, ?, ?)",
        [(entry.number, spent.unit, spent.adjacency, _blob(spent)) for spent in row.curves],
    )


def _release(row: Sequence[Any], curves: Sequence[tuple[Any, ...]]) -> Release | None:
    """The release that the columns hold, or None when they were changed so that they hold none."""
    data_name, session, plan, unit, adjacency, epsilon, delta = row
    texts = (data_name, unit, adjacency, epsilon, delta, *(part for curve in curves for part in curve[:2]))
    blobs = (session, plan, *(curve[2] for curve in curves))
    if not (all(isinstance(text, str) for text in texts) and all(isinstance(blob, bytes) for blob in blobs)):
        return None
    try:
        spent = tuple(
            SpentCurve(curve[0], curve[1], RdpCurve(tuple(np.frombuffer(curve[2], "<f8").tolist()))) for curve in curves
        )
        return Release(data_name, session, plan, unit, adjacency, float(epsilon), float(delta), spent)
    except (ValueError, BadInput):
        return None
