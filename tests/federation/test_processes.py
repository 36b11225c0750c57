"""A plan of several rounds as real processes over gRPC, whose server is killed by SIGKILL between the rounds."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from secagg.federation import session_folder
from secagg.ledger import Ledger
from secagg.parties import SessionSetup
from secagg.parties.consent import policy_accepting
from secagg.parties.links import verify_transcript
from secagg.parties.planning import PlanChoices, PublicData, make_plan
from secagg.plan import write_plan
from secagg.privacy import Adjacency
from secagg.protection.messages import RoundOpening
from secagg.randomness import OperatingSystem
from secagg.transcript import FILE_NAME, peek, read_transcript
from secagg.transport.enrolment import create_authority, create_request, issue
from secagg.wire import decode
from tests.parties.processes import SERVER, Processes

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Processes]:
    """Four members and a server, with a plan of two rounds at ε = 8; nobody runs yet, all are gone at the end."""
    create_authority(tmp_path / "ca", "rounds")
    requests = [create_request(tmp_path / name, name, "client") for name in NAMES]
    roster = issue(tmp_path / "ca", [*requests, create_request(tmp_path / SERVER, SERVER, "server")])
    for name in (SERVER, *NAMES):
        shutil.copytree(tmp_path / "ca" / "issued" / name, tmp_path / name, dirs_exist_ok=True)
    data = PublicData("features", (6,), ("no", "yes"), None, None)
    choices = PlanChoices(
        parameters=(("refine", 2),),
        epsilon=8.0,
        delta=1e-5,
        adjacency=Adjacency.ADD_REMOVE,
        max_records=64,
        join_seconds=60,
        step_seconds=60,
    )
    plan = make_plan(data, roster, choices, OperatingSystem())
    write_plan(plan, tmp_path / "plan.json")
    for number, name in enumerate(NAMES):
        labels = np.arange(30) % 2
        features = np.random.default_rng(number).normal(size=(30, 6)) + 2 * np.eye(6)[labels]
        np.savez(tmp_path / name / "records.npz", features=features, labels=labels)
        (tmp_path / name / "policy.toml").write_text(policy_accepting(plan, name).to_toml())
    found = Processes(tmp_path, NAMES, roster, plan)
    try:
        yield found
    finally:
        for party in found.running.values():
            party.kill()


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
