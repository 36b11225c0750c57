"""Aggregators, key holder, and the server and clients beside them, are killed at every point and nothing is changed."""

from pathlib import Path
from typing import Any

import pytest

from tests.session.test_crashes import check_point, fuse_points

SERVER, CLIENT, SECOND = 0, 2, 4
PARTIES = [
    pytest.param("shared", 2, SECOND, True, id="first aggregator of two"),
    pytest.param("shared", 2, SECOND + 1, False, id="second aggregator of two", marks=pytest.mark.long),
    pytest.param("shared", 3, SECOND + 2, True, id="third aggregator of three", marks=pytest.mark.long),
    pytest.param("shared", 2, CLIENT, True, id="client that stays", marks=pytest.mark.long),
    pytest.param("shared", 2, CLIENT, False, id="client that leaves"),
    pytest.param("shared", 2, SERVER, True, id="server of two aggregators"),
    pytest.param("shared", 3, SERVER, False, id="server of three aggregators", marks=pytest.mark.long),
    pytest.param("encrypted", 1, SECOND, True, id="key holder"),
    pytest.param("encrypted", 1, CLIENT, True, id="encrypting client that stays", marks=pytest.mark.long),
    pytest.param("encrypted", 1, CLIENT, False, id="encrypting client that leaves"),
    pytest.param("encrypted", 1, SERVER, True, id="server of a key holder"),
]
KEPT = ("after record", "after memory", "after staging")
"""What the disk has just taken in; between two of them a restart finds the same."""


@pytest.mark.parametrize("only", [KEPT, pytest.param(("",), marks=pytest.mark.long)], ids=["kept", "any"])
@pytest.mark.parametrize(("protection", "helpers", "party", "stays"), PARTIES)
async def test_killed_at_every_point_goes_on(
    tmp_path: Path,
    subtests: pytest.Subtests,
    protection: str,
    helpers: int,
    party: int,
    stays: bool,
    only: tuple[str, ...],
) -> None:
    """Wherever a party is killed it resumes with the same bytes, all have the exact sum, and transcripts verify."""
    choices: dict[str, Any] = {"protection": protection, "helpers": helpers}
    for number, name in enumerate(await fuse_points(tmp_path, party, **choices)):
        if name.startswith(only):
            with subtests.test(point=f"{number}: {name}"):
                await check_point(tmp_path, party, number, stays=stays, **choices)
