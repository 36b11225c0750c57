"""What the tests of the transport share."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from secagg.transport import limits, read_credentials, serve
from tests.transport.consortium import Remembering
from tests.worlds.rosters import SERVER, enrol


@pytest.fixture(scope="session")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A consortium of a server and two clients, made once."""
    folder = tmp_path_factory.mktemp("consortium")
    enrol(folder, "alice", "bob")
    return folder


@pytest.fixture
def consortium(enrolled: Path, tmp_path: Path) -> Path:
    """A copy of the consortium's folders, to be damaged."""
    return Path(shutil.copytree(enrolled, tmp_path / "consortium"))


@pytest.fixture
def coordinator() -> Remembering:
    """What stands behind the endpoint."""
    return Remembering()


@pytest.fixture
async def address(consortium: Path, coordinator: Remembering) -> AsyncIterator[str]:
    """Where a real endpoint listens."""
    server, where = await serve(read_credentials(consortium / SERVER), coordinator, "127.0.0.1:0")
    yield where
    await server.stop(None)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon."""
    monkeypatch.setattr("secagg.transport.limits.RETRY_SECONDS", 0.01)
    assert limits.RETRY_SECONDS > 0
