"""A plan of several rounds as real processes over gRPC, whose server is killed by SIGKILL between the rounds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from secagg.ledger import Ledger
from secagg.privacy import Adjacency
from secagg.transcript import FILE_NAME
from secagg.verification.transcript_series import verify_transcript
from tests.federation.killed import run_killing, sessions, verified_result
from tests.worlds.processes import Processes, processes
from tests.worlds.rosters import SERVER

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Processes]:
    """Four members and a server, with a plan of two rounds at ε = 8; nobody runs yet, all are gone at the end."""
    promise = {"epsilon": 8.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE, "radius": None}
    with processes(tmp_path, 6, names=NAMES, parameters=(("refine", 2),), **promise) as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize(("session", "step"), [(1, "Outcome"), (2, "Endorsement"), (3, "UploadHeader")])
def test_killed_server_goes_on_with_the_round(federation: Processes, session: int, step: str) -> None:
    """A server killed in or between rounds goes on when started again; all end with one head and one ledger row."""
    run_killing(federation, SERVER, session, step)
    result, found = verified_result(federation)
    assert result["rounds"] == len(found) == 3
    assert result["members"] == list(NAMES)
    for name in NAMES:
        assert len(Ledger(federation.folder / name / "state", create=False).entries()) == 1
        own = {verify_transcript(folder / FILE_NAME)["aggregate_sha256"] for folder in sessions(federation, name)}
        assert own == {each["aggregate_sha256"] for each in found}
        head = next((federation.folder / name / "state").glob("*/head.safetensors"))
        assert head.exists()
