"""The ledger: what was released stays released, once, under one plan."""

import math
import sqlite3
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import BadInput, PlanRefused
from secagg.ledger import FILE_NAME, Ledger, Release

RELEASE = Release("mine", bytes([1]) * 32, bytes([2]) * 32, "record", "", math.inf, 0.0)


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """What the file holds."""
    connection = sqlite3.connect(folder / FILE_NAME)
    try:
        return connection.execute("SELECT * FROM releases").fetchall()
    finally:
        connection.close()


def test_release_persists(tmp_path: Path) -> None:
    """What one process wrote, the next one reads."""
    Ledger(tmp_path).record(RELEASE, may_repeat=True)
    assert Ledger(tmp_path).other_sessions("mine", bytes(32)) == 1
    assert rows(tmp_path) == [("mine", RELEASE.session, RELEASE.plan, "record", "", "inf", "0.0")]


def test_same_release_twice_is_one(tmp_path: Path) -> None:
    """Recording a release again, after a crash, changes nothing."""
    ledger = Ledger(tmp_path)
    for _ in range(3):
        ledger.record(RELEASE, may_repeat=True)
        Ledger(tmp_path).record(RELEASE, may_repeat=True)
    assert len(rows(tmp_path)) == 1


def test_another_plan_for_the_session_is_refused(tmp_path: Path) -> None:
    """One session is entered under one plan; the first entry stays."""
    ledger = Ledger(tmp_path)
    ledger.record(RELEASE, may_repeat=True)
    with pytest.raises(BadInput, match="another plan"):
        ledger.record(replace(RELEASE, plan=bytes(32)), may_repeat=True)
    assert rows(tmp_path)[0][2] == RELEASE.plan


def test_sessions_are_counted_by_data_set(tmp_path: Path) -> None:
    """The session itself and other data sets do not count."""
    ledger = Ledger(tmp_path)
    assert ledger.other_sessions("mine", RELEASE.session) == 0
    ledger.record(RELEASE, may_repeat=True)
    ledger.record(replace(RELEASE, session=bytes([9]) * 32), may_repeat=True)
    ledger.record(replace(RELEASE, data_name="other"), may_repeat=True)
    assert ledger.other_sessions("mine", RELEASE.session) == 1
    assert ledger.other_sessions("mine", bytes(32)) == 2
    assert ledger.other_sessions("other", bytes(32)) == 1


@pytest.mark.parametrize("field", [field.name for field in fields(Release)])
def test_digest_covers_every_field(field: str) -> None:
    """Rows that differ in one field have different digests."""
    value = getattr(RELEASE, field)
    other = bytes(32) if isinstance(value, bytes) else 0.5 if isinstance(value, float) else value + "x"
    assert replace(RELEASE, **{field: other}).digest != RELEASE.digest


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(84)])
def test_damaged_ledger_is_refused(tmp_path: Path, content: bytes) -> None:
    """A ledger that cannot be read stops the client: it never starts afresh with an empty one."""
    (tmp_path / FILE_NAME).write_bytes(content * 20)
    with pytest.raises(BadInput, match="cannot use the ledger"):
        Ledger(tmp_path)


def test_ledger_without_a_folder_is_refused(tmp_path: Path) -> None:
    """A folder that is missing is named."""
    with pytest.raises(BadInput, match="cannot use the ledger"):
        Ledger(tmp_path / "none")


def test_locked_ledger_loses_nothing(tmp_path: Path) -> None:
    """While another process writes, a record waits, and both are there afterwards."""
    ledger = Ledger(tmp_path)
    other = sqlite3.connect(tmp_path / FILE_NAME)
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO releases VALUES ('mine', x'00', x'00', 'record', '', 'inf', '0.0')")
    other.commit()
    other.close()
    ledger.record(RELEASE, may_repeat=True)
    assert len(rows(tmp_path)) == 2


def test_another_session_between_check_and_record_is_refused(tmp_path: Path) -> None:
    """Two sessions that were both allowed while none was recorded cannot both be: the second is refused, unwritten."""
    ledger = Ledger(tmp_path)
    ledger.record(RELEASE, may_repeat=False)
    ledger.record(RELEASE, may_repeat=False)
    with pytest.raises(PlanRefused, match="repeat_sessions"):
        ledger.record(replace(RELEASE, session=bytes([9]) * 32), may_repeat=False)
    assert ledger.other_sessions(RELEASE.data_name, RELEASE.session) == 0
