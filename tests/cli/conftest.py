"""What the tests of the command line share."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command, command, found
from tests.cli.forks import forked_command
from tests.worlds.forks import fork_workers


@pytest.fixture(autouse=True)
def _forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of commands in this process start at once."""
    fork_workers(monkeypatch)


@pytest.fixture
def secagg(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process."""
    return command(monkeypatch, capsys)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a `secagg` whose processes are there at once."""
    folder = tmp_path_factory.mktemp("bin")
    with forked_command(folder):
        yield folder


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the consortium that the tests copy is made, by whoever needs it first."""
    return tmp_path_factory.mktemp("template") / "federation"


@pytest.fixture
def federation(_template: Path, secagg: Command, tmp_path: Path) -> Path:
    """A consortium of a server and three members with plan, policies and data, to be damaged."""
    if not _template.exists():
        found(secagg, _template)
    return Path(shutil.copytree(_template, tmp_path / "federation"))
