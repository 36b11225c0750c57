"""What the tests of the parties share."""

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.worlds.session import SessionRun, SimulatedSession, make_session


@pytest.fixture
def world(tmp_path: Path) -> SimulatedSession:
    """Three clients, of which one may vanish."""
    return make_session(tmp_path)


@pytest.fixture(autouse=True)
def processes_crash_but_machines_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for the disk: what a killed process has written stays in the kernel's hands."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SimulatedSession:
    """One session of four clients, of which one vanished before its upload."""
    world = make_session(tmp_path_factory.mktemp("finished"), clients=4, dropouts=1)
    asyncio.run(SessionRun(world).run(leaving={4: "UploadHeader"}))
    return world


@pytest.fixture
def over(finished: SimulatedSession, tmp_path: Path) -> SimulatedSession:
    """A copy of the finished session, to be damaged."""
    shutil.copytree(finished.folder, tmp_path / "copy")
    return replace(finished, folder=tmp_path / "copy")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again soon."""
    monkeypatch.setattr("secagg.parties.hearing._AGAIN_SECONDS", 0.01)
