"""A plan of several rounds as real processes over gRPC, whose server is killed by SIGKILL between the rounds."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from secagg.federation import session_folder
from secagg.ledger import Ledger
from secagg.parties import SessionSetup
from secagg.parties.links import verify_transcript
from secagg.privacy import Adjacency
from secagg.protection.messages import RoundOpening
from secagg.transcript import FILE_NAME, peek, read_transcript
from secagg.wire import decode
from tests.worlds.processes import Processes, processes
from tests.worlds.rosters import SERVER

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Processes]:
    """Four members and a server, with a plan of two rounds at ε = 8; nobody runs yet, all are gone at the end."""
    promise = {"epsilon": 8.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE, "radius": None}
    with processes(tmp_path, 6, names=NAMES, parameters=(("refine", 2),), **promise) as found:
        yield found


def sessions(federation: Processes, name: str) -> list[Path]:
    """A party's session folders so far."""
    return [path.parent for path in (federation.folder / name / "state").glob(f"*/{FILE_NAME}")]


def round_of(folder: Path) -> int:
    """Which round a session's transcript is of, as far as it is written."""
    openings = [record.content for record in read_transcript(folder / FILE_NAME) if record.kind == "round"]
    return decode(RoundOpening, openings[0]).number if openings else 1


def has(folder: Path, step: str) -> bool:
    """Whether a session's transcript holds a frame of this step."""
    frames = (record.content for record in read_transcript(folder / FILE_NAME) if record.kind in ("sent", "received"))
    return any(peek(frame).step == step for frame in frames)


@pytest.mark.long
@pytest.mark.parametrize(("session", "step"), [(1, "Outcome"), (2, "Endorsement"), (3, "UploadHeader")])
def test_killed_server_goes_on_with_the_round(federation: Processes, session: int, step: str) -> None:
    """A server killed in or between rounds goes on when started again; all end with one head and one ledger row."""
    first = session_folder(federation.folder / SERVER / "state", SessionSetup.of(federation.plan, federation.roster))
    federation.start(SERVER)
    federation.address = (first / "address").read_text()
    for name in NAMES:
        federation.start(name)

    def is_due() -> bool:
        folders = sorted(sessions(federation, SERVER), key=lambda path: path.stat().st_ctime_ns)
        order = sorted(folders, key=round_of)
        return len(order) >= session and has(order[session - 1], step)

    federation.until(is_due, f"session {session} has {step}")
    federation.kill(SERVER)
    federation.start(SERVER)
    federation.finish()
    result = json.loads(next((federation.folder / SERVER / "state").glob("*/result.json")).read_text())
    assert result["rounds"] == len(result["transcripts"]) == 3
    assert result["members"] == list(NAMES)
    found = [verify_transcript(Path(path)) for path in result["transcripts"]]
    assert found[-1]["head_sha256"] == result["head_sha256"]
    assert [sorted(each["countersigned_by"]) for each in found] == [list(NAMES)] * 3
    for name in NAMES:
        assert len(Ledger(federation.folder / name / "state", create=False).entries()) == 1
        own = {verify_transcript(folder / FILE_NAME)["aggregate_sha256"] for folder in sessions(federation, name)}
        assert own == {each["aggregate_sha256"] for each in found}
        head = next((federation.folder / name / "state").glob("*/head.safetensors"))
        assert head.exists()
