"""kill -9 of real processes: whoever is killed is started again with the same command, and the sum is exact."""

from pathlib import Path

import numpy as np
import pytest

from secagg.ledger import Ledger
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.folders import open_to_others
from tests.worlds.processes import Processes, processes
from tests.worlds.rosters import SERVER

CLIENT_POINTS = [
    ("sent", "KeyAdvertisement"),
    ("sent", "Dealing"),
    ("received", "Inbox"),
    ("sent", "UploadHeader"),
    ("received", "Survivors"),
    ("sent", "Opening"),
    ("received", "Outcome"),
]
SERVER_POINTS = [
    ("received", "KeyAdvertisement"),
    ("closed", "KeyAdvertisement"),
    ("sent", "Directory"),
    ("received", "Dealing"),
    ("sent", "Inbox"),
    ("received", "UploadHeader"),
    ("closed", "UploadHeader"),
    ("sent", "Survivors"),
    ("received", "Endorsement"),
    ("sent", "Quorum"),
    ("received", "Opening"),
    ("closed", "Opening"),
    ("sent", "Outcome"),
]


def long(points: list[tuple[str, str]], *normal: tuple[str, str]) -> list[object]:
    """All points, of which only the named ones are in the normal suite."""
    return [pytest.param(*point, marks=() if point in normal else pytest.mark.long) for point in points]


def check(federation: Processes) -> None:
    """Everyone ended well with the exact sum, one release each, and transcripts that verify."""
    federation.finish()
    assert np.array_equal(federation.opened(), federation.expected())
    found = verify_transcript(federation.transcript(SERVER))
    assert found["members"] == list(federation.names)
    assert {path for name in federation.running for path in open_to_others(federation.folder / name / "state")} == set()
    for name in federation.names:
        own = verify_transcript(federation.transcript(name))
        assert own["aggregate_sha256"] == found["aggregate_sha256"]
        assert len(Ledger(federation.folder / name / "state", create=False).entries()) == 1
        assert not list(federation.session(name).glob("session.*"))


@pytest.mark.parametrize(("kind", "step"), long(CLIENT_POINTS, ("sent", "UploadHeader")))
def test_client_is_killed(tmp_path: Path, kind: str, step: str) -> None:
    """A client killed at a record of its transcript, its upload begun or not, finishes when it is started again."""
    with processes(tmp_path) as federation:
        for name in (SERVER, *federation.names):
            federation.start(name)
        federation.until_has("b", kind, step)
        federation.kill("b")
        federation.start("b")
        check(federation)


@pytest.mark.long
def test_client_is_killed_while_its_upload_runs(tmp_path: Path) -> None:
    """A client killed while a large vector is on its way sends the same vector again, whole."""
    with processes(tmp_path, dimension=2500) as federation:
        for name in (SERVER, *federation.names):
            federation.start(name)
        uploads = federation.session(SERVER) / "uploads"
        federation.until(lambda: any(uploads.glob("2.*")), "the upload begins")
        federation.kill("b")
        federation.start("b")
        check(federation)


def test_client_is_killed_after_its_upload(tmp_path: Path) -> None:
    """A client killed when the server has its vector goes on from there."""
    with processes(tmp_path) as federation:
        for name in (SERVER, "b", "c"):
            federation.start(name)
        federation.until_has(SERVER, "received", "KeyAdvertisement")
        federation.start("a")
        federation.until((federation.session(SERVER) / "uploads" / "2.bin").exists, "b has uploaded")
        federation.kill("b")
        federation.start("b")
        check(federation)


@pytest.mark.parametrize(("kind", "step"), long(SERVER_POINTS, ("received", "UploadHeader"), ("closed", "Opening")))
def test_server_is_killed(tmp_path: Path, kind: str, step: str) -> None:
    """A server killed at a record of its transcript goes on from it; the clients wait and all finish."""
    with processes(tmp_path) as federation:
        for name in (SERVER, *federation.names):
            federation.start(name)
        federation.until_has(SERVER, kind, step)
        federation.kill(SERVER)
        federation.start(SERVER)
        check(federation)


@pytest.mark.long
def test_everyone_is_killed_again_and_again(tmp_path: Path) -> None:
    """All parties are killed in turn at every step, and the sum is still exact."""
    with processes(tmp_path) as federation:
        for name in (SERVER, *federation.names):
            federation.start(name)
        for number, (kind, step) in enumerate(SERVER_POINTS[:-1]):
            federation.until_has(SERVER, kind, step)
            victim = (SERVER, *federation.names)[number % 4]
            federation.kill(victim)
            federation.start(victim)
        check(federation)
