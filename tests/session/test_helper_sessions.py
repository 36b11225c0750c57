"""Sessions with aggregators or a key holder: the same sums as without, whoever vanishes, leaves or comes back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.errors import SessionAborted
from secagg.protection.messages import Outcome
from secagg.session.outcome import HEAD_FILE
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.hosts import Left
from tests.worlds.session import Ending, SessionRun, SimulatedSession, make_session

SERVER = 0
EVERYONE = (1, 2, 3, 4)
TOGETHER = [("shared", 2), ("shared", 3), ("encrypted", 1)]
UPLOADS = {"shared": "ShareManifest", "encrypted": "EncryptedUpload"}


def check_sum(world: SimulatedSession, ending: Ending, members: tuple[int, ...]) -> None:
    """Everyone who is left has the outcome of the exact sum of these members, and a transcript that verifies."""
    assert isinstance(ending.server, Outcome), ending.server
    assert ending.server.members == members
    assert np.array_equal(ending.total, world.total(members))
    told = {**{member: ending.clients[member] for member in members}, **ending.helpers}
    assert all(outcome == ending.server for outcome in told.values()), told
    for member in (SERVER, *told):
        found = verify_transcript(world.transcript(member))
        assert found["aggregate_sha256"] == ending.server.aggregate_sha256.hex()


def check_nothing_opened(world: SimulatedSession, ending: Ending, told: tuple[int, ...], words: str) -> None:
    """No sum exists anywhere, everyone named here and the server say why, and so do their transcripts."""
    assert ending.total is None
    assert not (world.home(SERVER) / "aggregate.npz").exists()
    assert isinstance(ending.server, SessionAborted)
    assert words in ending.server.reason
    ends = {**ending.clients, **ending.helpers}
    for member in told:
        assert isinstance(ends[member], SessionAborted), ends[member]
        assert ending.server.reason in ends[member].reason
        assert ending.server.reason in verify_transcript(world.transcript(member))["session"]
    assert ending.server.reason in verify_transcript(world.transcript(SERVER))["session"]


@pytest.mark.parametrize("stays", [True, False], ids=["all stay", "all leave and come back"])
@pytest.mark.parametrize(("protection", "helpers"), [("masked", 0), ("none", 0), *TOGETHER])
async def test_every_protection_opens_the_same_integers(
    tmp_path: Path, protection: str, helpers: int, stays: bool
) -> None:
    """Over the same contributions every protection opens their exact sum, whether clients stay or leave."""
    world = make_session(tmp_path, clients=4, protection=protection, helpers=helpers, dropouts=0)
    check_sum(world, await SessionRun(world, stays=stays).run(), EVERYONE)
    assert world.total(EVERYONE).tolist() == make_session(tmp_path / "other", clients=4).total(EVERYONE).tolist()


@pytest.mark.parametrize(("protection", "helpers"), TOGETHER)
async def test_member_that_never_comes_is_left_out(tmp_path: Path, protection: str, helpers: int) -> None:
    """A client that is not there when the time to join is over is not in the sum."""
    world = make_session(tmp_path, clients=4, protection=protection, helpers=helpers, dropouts=1)
    check_sum(world, await SessionRun(world).run(absent=(2,)), (1, 3, 4))


@pytest.mark.parametrize("second", ["aggregator-1", "aggregator-2", "aggregator-3"])
async def test_who_reached_some_aggregators_is_left_out(tmp_path: Path, second: str) -> None:
    """A client that vanishes before one of three aggregators has its share is not in the sum."""
    world = make_session(tmp_path, clients=4, protection="shared", helpers=3, dropouts=1)
    ending = await SessionRun(world).run(leaving={2: f"ShareManifest to {second}"})
    assert isinstance(ending.clients[2], Left)
    check_sum(world, ending, (1, 3, 4))


@pytest.mark.parametrize(("protection", "helpers"), TOGETHER)
async def test_too_few_uploads_open_nothing(tmp_path: Path, protection: str, helpers: int) -> None:
    """When fewer clients upload than may be summed everybody is told why, and nothing is opened."""
    world = make_session(tmp_path, clients=4, protection=protection, helpers=helpers, dropouts=1)
    ending = await SessionRun(world).run(leaving={2: UPLOADS[protection], 3: UPLOADS[protection]})
    assert ending.total is None
    assert isinstance(ending.server, SessionAborted)
    told = {**ending.clients, **ending.helpers}
    assert all(isinstance(told[member], SessionAborted) for member in told if member not in (2, 3)), told


STEPS = [
    pytest.param("shared", 2, "SessionKeys", marks=pytest.mark.long),
    ("shared", 2, "SetPledges"),
    pytest.param("shared", 3, "SetLists", marks=pytest.mark.long),
    pytest.param("shared", 2, "SumPledges", marks=pytest.mark.long),
    ("shared", 3, "SumShare"),
    pytest.param("encrypted", 1, "PublishedKey", marks=pytest.mark.long),
    ("encrypted", 1, "OpenedSum"),
]


@pytest.mark.parametrize(("protection", "helpers", "step"), STEPS)
async def test_second_party_that_dies_for_good_is_named(
    tmp_path: Path, protection: str, helpers: int, step: str
) -> None:
    """Without one of the helpers nothing is opened at any step, and everyone left is told who it was."""
    world = make_session(tmp_path, clients=3, protection=protection, helpers=helpers, dropouts=0)
    last = 3 + helpers
    ending = await SessionRun(world).run(leaving={last: step})
    assert isinstance(ending.helpers.pop(last), Left)
    name = world.setup.roster.name(last)
    waited = () if step == "SessionKeys" else ending.helpers  # who still collects gives up by itself
    check_nothing_opened(world, ending, (1, 2, 3, *waited), name)
    for member in (1, 2, 3, *ending.helpers):
        assert [path.name for path in world.home(member).iterdir() if path.suffix in (".key", ".state", ".bin")] == []


@pytest.mark.parametrize(("protection", "helpers"), TOGETHER)
async def test_second_party_that_never_comes_is_named(tmp_path: Path, protection: str, helpers: int) -> None:
    """When a helper never comes the clients are told who is missing, and no byte of a vector has left."""
    world = make_session(tmp_path, clients=3, protection=protection, helpers=helpers, dropouts=0)
    federation = SessionRun(world)
    ending = await federation.run(absent=(3 + helpers,))
    check_nothing_opened(world, ending, (1, 2, 3), world.setup.roster.name(3 + helpers))
    assert all(isinstance(end, SessionAborted) for end in ending.helpers.values())
    assert not federation.uploaded


async def test_member_that_comes_too_late_is_told(tmp_path: Path) -> None:
    """A client that comes when the aggregators have closed is told by the server, signed, and is in no sum."""
    world = make_session(tmp_path, clients=4, protection="shared", dropouts=1)
    check_sum(world, await SessionRun(world).run(absent=(2,)), (1, 3, 4))
    federation = SessionRun(world)
    for member in (SERVER, *world.setup.context.helpers):
        await federation.hosts[member].live()
    with pytest.raises(SessionAborted, match="client-2 answered too late"):
        await federation.client(2)
    federation.close()
    assert "too late" in verify_transcript(world.transcript(2))["session"]
    assert verify_transcript(world.transcript(SERVER))["members"] == ["client-1", "client-3", "client-4"]


@pytest.mark.parametrize(("protection", "helpers"), TOGETHER)
async def test_nothing_secret_stays_when_the_session_is_over(tmp_path: Path, protection: str, helpers: int) -> None:
    """After the end neither a client nor a helper has a key, a state or protected bytes of its own."""
    world = make_session(tmp_path, protection=protection, helpers=helpers)
    await SessionRun(world).run()
    for member in (1, 2, 3):
        assert {path.name for path in world.home(member).iterdir()} == {"transcript.log", HEAD_FILE}
    for member in world.setup.context.helpers:
        assert {path.name for path in world.home(member).iterdir()} <= {
            "transcript.log",
            "uploads",
            "closing",
            HEAD_FILE,
        }


@pytest.mark.parametrize(("protection", "helpers"), TOGETHER)
async def test_second_run_of_a_finished_session_changes_nothing(tmp_path: Path, protection: str, helpers: int) -> None:
    """Started again after the end, every party gives the same outcome and writes not one byte more."""
    world = make_session(tmp_path, protection=protection, helpers=helpers)
    parties: Any = range(len(world.keys))
    first = await SessionRun(world).run()
    before = {member: world.transcript(member).read_bytes() for member in parties}
    second = await SessionRun(world).run()
    assert (second.server, second.clients, second.helpers) == (first.server, first.clients, first.helpers)
    assert {member: world.transcript(member).read_bytes() for member in parties} == before
