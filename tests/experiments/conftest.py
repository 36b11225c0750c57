"""What the tests of experiments share."""

from collections.abc import Iterator

import pytest

from tests.worlds.forks import fork_workers


@pytest.fixture(autouse=True, scope="module")
def _forked_workers() -> Iterator[None]:
    """Workers start at once."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        fork_workers(monkeypatch)
        yield
