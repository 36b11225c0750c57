"""What the tests of the parties share."""

import os
from pathlib import Path

import pytest

from tests.parties.federation import Stage, make_stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Three clients, of which one may vanish."""
    return make_stage(tmp_path)


@pytest.fixture(autouse=True)
def processes_crash_but_machines_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for the disk: what a killed process has written stays in the kernel's hands."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
