"""Whole sessions: who finishes with what when everybody stays, and when clients vanish."""

from pathlib import Path

import numpy as np
import pytest

from secagg.errors import SessionAborted, TranscriptInvalid
from secagg.protection.messages import Abort, Attachment, Outcome
from secagg.transcript import peek, read_transcript
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.hosts import Left
from tests.worlds.session import SessionRun, SimulatedSession, make_session

STEPS = ("KeyAdvertisement", "Dealing", "UploadHeader", "Endorsement", "Opening", "Acknowledgement")


async def test_everyone_finishes_with_the_same_outcome(world: SimulatedSession) -> None:
    """All parties end with one outcome, whose sum is the exact sum of the vectors."""
    ending = await SessionRun(world).run()
    assert isinstance(ending.server, Outcome)
    assert ending.server.members == (1, 2, 3)
    assert all(outcome == ending.server for outcome in ending.clients.values())
    assert np.array_equal(ending.total, world.total((1, 2, 3)))


async def test_head_goes_to_members_only_when_the_plan_says_so(tmp_path: Path) -> None:
    """The outcome carries the head exactly when the plan's result is for the members."""
    private = await SessionRun(make_session(tmp_path / "a", result="server")).run()
    shared = await SessionRun(make_session(tmp_path / "b", result="members")).run()
    assert private.server.head == ()
    assert shared.server.head != ()
    for folder, shows in (("a", False), ("b", True)):
        heads = list((tmp_path / folder).glob("client-*/*/head.safetensors"))
        assert len(heads) == 3 * shows
        for path in heads:
            assert shared.server.head == (Attachment.of(path.read_bytes()),)


async def test_unprotected_session_gives_the_same_sum(tmp_path: Path) -> None:
    """Without protection the same vectors give the same sum, over the same parties."""
    world = make_session(tmp_path, protection="none")
    ending = await SessionRun(world).run()
    assert np.array_equal(ending.total, world.total((1, 2, 3)))
    assert all(outcome == ending.server for outcome in ending.clients.values())


@pytest.mark.parametrize("step", STEPS)
async def test_session_goes_on_without_a_client_that_vanishes(tmp_path: Path, step: str) -> None:
    """Whoever vanishes before a frame is left out before its upload and counted after it; the others finish."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    ending = await SessionRun(world).run(leaving={3: step})
    survivors = (1, 2, 4) if step in STEPS[:3] else (1, 2, 3, 4)
    assert ending.server.members == survivors
    assert isinstance(ending.clients.pop(3), Left)
    assert all(outcome == ending.server for outcome in ending.clients.values())
    assert np.array_equal(ending.total, world.total(survivors))


async def test_two_clients_vanish_at_different_steps(tmp_path: Path) -> None:
    """Clients may vanish at several steps of one session, down to the threshold."""
    world = make_session(tmp_path, clients=5, dropouts=2, colluders=0)
    ending = await SessionRun(world).run(leaving={1: "UploadHeader", 4: "Opening"})
    assert ending.server.members == (2, 3, 4, 5)
    assert np.array_equal(ending.total, world.total((2, 3, 4, 5)))


@pytest.mark.parametrize("step", STEPS[:5])
async def test_below_the_threshold_nobody_gets_a_sum(tmp_path: Path, step: str) -> None:
    """When too many vanish the session is aborted, everybody left is told why, and no sum exists anywhere."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    ending = await SessionRun(world).run(leaving={2: step, 3: step})
    assert isinstance(ending.server, SessionAborted)
    assert ending.total is None
    for member in (1, 4):
        assert isinstance(ending.clients[member], SessionAborted)
        assert ending.server.reason in ending.clients[member].reason
        session = verify_transcript(world.transcript(member))["session"]
        assert ending.server.reason in session
        assert session.count("aborted: ") == 1
    assert ending.server.reason in verify_transcript(world.transcript(0))["session"]
    assert not (world.home(0) / "aggregate.npz").exists()


async def test_member_that_never_joins_is_left_out(tmp_path: Path) -> None:
    """A client that is not there when the time to join is over does not stop the others."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    ending = await SessionRun(world).run(absent=(2,))
    assert ending.server.members == (1, 3, 4)
    assert np.array_equal(ending.total, world.total((1, 3, 4)))


async def test_member_that_comes_too_late_is_told(tmp_path: Path) -> None:
    """A client that joins after the session is over has the server's signed word for it, the same each time.

    Nothing of its vector leaves, and both transcripts verify with that word.
    """
    world = make_session(tmp_path, clients=4, dropouts=1)
    ending = await SessionRun(world).run(absent=(2,))
    assert ending.server.members == (1, 3, 4)
    federation = SessionRun(world)
    await federation.serve()
    with pytest.raises(SessionAborted, match="client-2 answered too late for the step Directory"):
        await federation.client(2)
    federation.close()
    assert not federation.uploaded[2, 0]
    words = [peek(record.content) for record in read_transcript(world.transcript(2)) if record.kind == "received"]
    assert [(word.step, word.sender, word.receiver) for word in words] == [("Abort", 0, 2)]
    assert "too late" in verify_transcript(world.transcript(2))["session"]
    assert verify_transcript(world.transcript(0))["members"] == ["client-1", "client-3", "client-4"]
    again = SessionRun(world)
    await again.serve()
    before = world.transcript(0).read_bytes()
    frame = await again.call(2, lambda server: server.fetch(2, world.setup.context.round_digest, "Directory", 0.0))
    assert peek(frame) == words[0]
    assert world.transcript(0).read_bytes() == before
    again.close()


@pytest.mark.parametrize("step", STEPS[1:3])
async def test_member_that_misses_a_step_is_told(tmp_path: Path, step: str) -> None:
    """A client that joined, vanished and came back too late is told so by a signed frame; all transcripts verify."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    ending = await SessionRun(world).run(leaving={3: step})
    assert isinstance(ending.clients[3], Left)
    federation = SessionRun(world)
    await federation.serve()
    with pytest.raises(SessionAborted, match="client-3 answered too late"):
        await federation.client(3)
    federation.close()
    assert "too late" in verify_transcript(world.transcript(3))["session"]
    assert verify_transcript(world.transcript(0))["aggregate_sha256"] == ending.server.aggregate_sha256.hex()


async def test_false_word_that_a_member_was_late_is_found(world: SimulatedSession) -> None:
    """A server's transcript in which it leaves out a member of the sum does not verify."""
    await SessionRun(world).run()
    federation = SessionRun(world)
    await federation.serve()
    session = federation.server
    assert session is not None
    session._outbox.send(2, Abort("client-2 answered too late for the step Outcome"))
    federation.close()
    with pytest.raises(TranscriptInvalid, match="came too late, which the session goes on with"):
        verify_transcript(world.transcript(0))


async def test_nothing_secret_stays_when_the_session_is_over(world: SimulatedSession) -> None:
    """After the end a client's folder holds what everybody is told: no session key, state, or protected vector."""
    await SessionRun(world).run()
    for member in (1, 2, 3):
        assert sorted(path.name for path in world.home(member).iterdir()) == ["head.safetensors", "transcript.log"]


async def test_nothing_secret_stays_after_an_abort(tmp_path: Path) -> None:
    """An aborted session leaves no session key, state or vector behind either."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    await SessionRun(world).run(leaving={2: "Endorsement", 3: "Endorsement"})
    for member in (1, 4):
        assert sorted(path.name for path in world.home(member).iterdir()) == ["transcript.log"]


async def test_second_run_of_a_finished_session_changes_nothing(world: SimulatedSession) -> None:
    """Started again after the end, every party gives the same outcome and writes not one byte more."""
    first = await SessionRun(world).run()
    before = {member: world.transcript(member).read_bytes() for member in range(4)}
    second = await SessionRun(world).run()
    assert second.server == first.server
    assert second.clients == first.clients
    assert {member: world.transcript(member).read_bytes() for member in range(4)} == before
