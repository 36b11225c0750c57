"""A folder of features goes with its owner: closed, killed or interrupted; a living owner's stays."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from secagg.experiments.provenance import SOURCES
from secagg.system.engines.processes import OWNER, owned_folder, remove_leftovers

HOLD = """
import sys, time
from pathlib import Path
from secagg.system.engines.processes import owned_folder
with owned_folder(Path(sys.argv[1])) as folder:
    (folder / "records.npy").write_text("private")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path: Path):
    """A process that owns a folder, and that folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(SOURCES[0].parent)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_goes_at_the_end(tmp_path: Path) -> None:
    """The folder is this user's alone while it is used, and gone afterwards, after a failure too."""
    with owned_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / OWNER).stat().st_mode & 0o777 == 0o600
        (folder / "records.npy").write_text("private")
        assert remove_leftovers(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []

    def fail() -> None:
        with owned_folder(tmp_path):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(owner, tmp_path: Path) -> None:
    """A killed owner's folder is removed by the next start, not before; other folders are nobody's business."""
    process, folder = owner
    (tmp_path / "runs").mkdir()
    assert remove_leftovers(tmp_path) == 0
    assert (folder / "records.npy").exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert remove_leftovers(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_leftover_without_a_lock_goes(tmp_path: Path) -> None:
    """A folder whose owner died before it locked it, and one of an earlier version, are leftovers."""
    (tmp_path / ".features-abc").mkdir()
    (tmp_path / ".features-abc" / "0-train.npy").write_text("private")
    assert remove_leftovers(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_link_is_not_followed(tmp_path: Path) -> None:
    """A link in place of the owner's file leads nowhere: nothing is written through it."""
    victim = tmp_path / "victim"
    (tmp_path / ".features-abc").mkdir()
    (tmp_path / ".features-abc" / OWNER).symlink_to(victim)
    assert remove_leftovers(tmp_path) == 0
    assert not victim.exists()


@pytest.mark.parametrize("when", ["made", "opened"])
def test_folder_taken_before_it_was_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Where a cleaner comes between making and locking, the owner makes another folder, which stays."""
    make, lock, taken = tempfile.mkdtemp, fcntl.flock, []

    def made(**given: Any) -> str:
        """A folder, of which the first is cleaned up at once."""
        folder = make(**given)
        if when == "made" and not taken:
            taken.append(remove_leftovers(tmp_path))
        return folder

    def locked(file: int, how: int) -> None:
        """A lock, before whose first holder a cleaner held it."""
        if when == "opened" and not taken:
            (folder,) = tmp_path.iterdir()
            taken.append(1)
            shutil.rmtree(folder)
        lock(file, how)

    monkeypatch.setattr("secagg.system.engines.processes.tempfile.mkdtemp", made)
    monkeypatch.setattr("secagg.system.engines.processes.fcntl.flock", locked)
    with owned_folder(tmp_path) as folder:
        assert folder.is_dir()
        assert remove_leftovers(tmp_path) == 0
    assert taken == [1]
    assert list(tmp_path.iterdir()) == []
