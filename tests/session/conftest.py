"""What the tests of the parties share."""

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from secagg.session import deadline
from tests.worlds.idle_time import Clock, IdleLoop
from tests.worlds.session import SessionRun, SimulatedSession, make_session


@pytest.fixture
def world(tmp_path: Path) -> SimulatedSession:
    """Three clients, of which one may vanish."""
    return make_session(tmp_path)


CLOCK = Clock()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], IdleLoop]]:
    """Sessions in memory do not wait for their deadlines in earnest."""
    return {"idle": partial(IdleLoop, CLOCK)}


@pytest.fixture(autouse=True)
def deadlines_have_the_loops_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What deadlines keep on the disk goes with the loop's time."""
    monkeypatch.setattr(deadline, "time", CLOCK)


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
    monkeypatch.setattr("secagg.session.receive_signed._AGAIN_SECONDS", 0.01)
