"""Vectors have an end: purged once a session is over, and what is left never proves more than digests can."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from secagg.errors import BadInput, TranscriptInvalid
from secagg.session.purging import purge, session_folders
from secagg.transcript import Journal
from secagg.verification.transcript_series import verify_transcript
from tests.session.forging import invalid, position, rewrite
from tests.session.test_verification import changed_outcome
from tests.threat_models.recorded import read_session
from tests.worlds.session import SessionRun, SimulatedSession, make_session

UNPROVEN = "the sum was not computed again"


async def played(folder: Path, protection: str) -> SimulatedSession:
    """A session of three clients that is over."""
    world = make_session(folder, protection=protection, dropouts=0, join_seconds=30, step_seconds=30)
    await SessionRun(world).run()
    return world


def files_of(folder: Path) -> dict[str, bytes]:
    """What lies in a session's folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
async def test_vectors_go_and_the_rest_stays(tmp_path: Path, protection: str) -> None:
    """A purge of every party's finished session deletes the uploads and openers' sums alone, byte for byte."""
    world = await played(tmp_path, protection)
    purged = 0
    for member in range(len(world.setup.roster.members)):
        home = world.home(member)
        assert session_folders(home.parent) == (home,)
        before = files_of(home)
        vectors = {name for name in before if name.startswith("uploads/")}
        assert purge(home) == len(vectors)
        assert files_of(home) == {name: content for name, content in before.items() if name not in vectors}
        assert not (home / "uploads").exists()
        assert purge(home) == 0
        purged += len(vectors)
    assert purged == {"masked": 3, "shared": 8, "encrypted": 4}[protection]


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
async def test_verdict_of_what_is_left(tmp_path: Path, protection: str) -> None:
    """A purged server's transcript says that its sum is unproven and its head not recomputed; what it names stays."""
    world = await played(tmp_path, protection)
    before = verify_transcript(world.transcript(0))
    assert "vectors" not in before
    purge(world.home(0))
    found = verify_transcript(world.transcript(0))
    assert "purged: digests only" in found["verdict"]
    assert UNPROVEN in found["session"]
    assert found["head_recomputed_here"] == "no"
    same = ("aggregate_sha256", "head_sha256", "members", "countersigned_by", "chain_head", "plan_sha256")
    assert [found[name] for name in same] == [before[name] for name in same]
    for client in world.setup.context.clients:
        assert "vectors" not in verify_transcript(world.transcript(client))


async def test_verdict_of_a_purged_aggregator(tmp_path: Path) -> None:
    """A purged aggregator's transcript counts its uploads and says that their bytes are gone."""
    world = await played(tmp_path, "shared")
    purge(world.home(4))
    found = verify_transcript(world.transcript(4))
    assert (found["uploads"], "purged: digests only" in found["verdict"]) == (3, True)


def test_lie_of_a_purged_server_is_never_proven(over: SimulatedSession) -> None:
    """A server that signed another sum is found by its vectors; without them its sum is said to be unproven."""
    rewrite(over, changed_outcome(lambda outcome: replace(outcome, aggregate_sha256=bytes(32))))
    assert "not that of the uploads" in str(invalid(over))
    purge(over.home(0))
    found = verify_transcript(over.transcript(0))
    assert "purged: digests only" in found["verdict"]
    assert UNPROVEN in found["session"]


def test_part_of_the_vectors_is_no_purge(over: SimulatedSession) -> None:
    """One vector missing beside others is a fault of the transcript's folder, named, not a purge."""
    (over.home(0) / "uploads" / "2.bin").unlink()
    assert "client-2" in str(invalid(over))


def test_damaged_transcript_is_invalid_with_or_without_vectors(over: SimulatedSession) -> None:
    """What frames and digests show is found without the vectors too."""
    purge(over.home(0))
    rewrite(over, lambda entries: [entry for entry in entries if entry[0] != "closed"])
    with pytest.raises(TranscriptInvalid):
        verify_transcript(over.transcript(0))


def test_purged_session_is_not_audited(over: SimulatedSession) -> None:
    """An audit of a purged transcript is refused: attacks on vectors that are gone would find nothing."""
    purge(over.home(0))
    with pytest.raises(BadInput, match="were purged; audit a session before"):
        read_session(over.transcript(0))


async def test_unfinished_session_keeps_its_vectors(over: SimulatedSession) -> None:
    """Before a session's outcome its vectors are needed, and stay: a server that is started again opens the sum."""
    told = verify_transcript(over.transcript(0))["aggregate_sha256"]
    at = position(over, "Outcome")
    rewrite(over, lambda entries: entries[:at])
    before = files_of(over.home(0))
    assert purge(over.home(0)) is None
    assert files_of(over.home(0)) == before
    with closing(Journal(over.transcript(0))) as journal:
        outcome = await SessionRun(over).new_server(journal).decide()
    assert outcome.aggregate_sha256.hex() == told
    assert purge(over.home(0)) == 3


def test_session_at_work_is_not_purged(over: SimulatedSession) -> None:
    """While a process has the folder nothing is deleted."""
    before = files_of(over.home(0))
    with closing(Journal(over.transcript(0))), pytest.raises(BadInput, match="another process is at work"):
        purge(over.home(0))
    assert files_of(over.home(0)) == before


def test_purged_session_is_answered_again(over: SimulatedSession) -> None:
    """A server started again over a purged session has the same outcome, and its transcript stays as it was."""
    purge(over.home(0))
    before = over.transcript(0).read_bytes()
    with closing(Journal(over.transcript(0))) as journal:
        session = SessionRun(over).new_server(journal)
        assert session.outcome is not None
        assert session.outcome.members == (1, 2, 3)
    assert over.transcript(0).read_bytes() == before
    assert "purged: digests only" in verify_transcript(over.transcript(0))["verdict"]


def test_folder_without_sessions_is_refused(tmp_path: Path) -> None:
    """A folder that holds no party's sessions is the user's mistake."""
    with pytest.raises(BadInput, match="no sessions in"):
        session_folders(tmp_path)
