"""A party is killed at every point of its session, started again from its folder, and nothing is lost or changed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.errors import SessionAborted
from secagg.protection.messages import Outcome
from secagg.session import MemberSession
from secagg.transcript import Journal
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.crashes import Fuse
from tests.worlds.session import Ending, SessionRun, SimulatedSession, make_session

CLIENT, BYSTANDER, SERVER = 2, 1, 0
EVERYONE = (1, 2, 3)


async def fuse_points(folder: Path, party: int, **choices: Any) -> list[str]:
    """The names of all points at which the party could die in a session without a crash, all of whose transcripts hold.

    Where a party dies afterwards its own transcript is read again, and those of the server and of one client beside it.
    """
    fuse = Fuse()
    federation = SessionRun(staged(folder / "counted", **choices), {party: fuse})
    ending = await federation.run()
    check_ending(federation, ending, *ending.clients, *ending.helpers)
    return fuse.points


def staged(folder: Path, **choices: Any) -> SimulatedSession:
    """A session of three clients, none of which may vanish, in which nobody waits in vain."""
    return make_session(folder, **{"dropouts": 0, "join_seconds": 30, "step_seconds": 30, **choices})


async def check_point(folder: Path, party: int, point: int, *, stays: bool = True, **choices: Any) -> None:
    """Kill the party at one point and hold the session to what it promises."""
    world = staged(folder / str(point), **choices)
    federation = SessionRun(world, {party: Fuse(point)}, stays=stays)
    check_ending(federation, await federation.run(), party, BYSTANDER)


def check_ending(federation: SessionRun, ending: Ending, *members: int) -> None:
    """Everyone has the outcome and the exact sum, no bytes but the first were ever sent.

    The transcripts of the server and of these members verify.
    """
    world = federation.world
    assert isinstance(ending.server, Outcome), ending.server
    assert ending.server.members == EVERYONE
    others = {**ending.clients, **ending.helpers}
    assert all(outcome == ending.server for outcome in others.values()), others
    assert np.array_equal(ending.total, world.total(EVERYONE))
    assert all(np.array_equal(total, ending.total) for total in federation.totals)
    check_bytes(federation)
    for member in {SERVER, *members}:
        found = verify_transcript(world.transcript(member))
        assert found["aggregate_sha256"] == ending.server.aggregate_sha256.hex()


def check_bytes(federation: SessionRun) -> None:
    """No party ever sent two different frames for one step, or two different vectors."""
    assert [key for key, frames in federation.sent.items() if len(frames) != 1] == []
    assert [member for member, vectors in federation.uploaded.items() if len(vectors) != 1] == []


def numbered(names: list[str], *, only: str = "") -> Iterator[tuple[int, str]]:
    """The points whose name contains `only`, with their numbers."""
    return ((number, name) for number, name in enumerate(names) if only in name)


@pytest.mark.parametrize("only", ["record", "memory", "part", "vector", "ing"])
async def test_client_killed_at_every_point_goes_on(tmp_path: Path, subtests: pytest.Subtests, only: str) -> None:
    """Wherever a client is killed, it resumes with the same bytes, all finish, and every transcript verifies."""
    names = await fuse_points(tmp_path, CLIENT)
    for number, name in numbered(names, only=only):
        with subtests.test(point=f"{number}: {name}"):
            await check_point(tmp_path, CLIENT, number)


class Counting(SessionRun):
    """A federation that notes of each life of a client whether its vector was fixed then, and computed since."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lives: list[tuple[bool, list[Any]]] = []

    def new_client(self, member: int, journal: Journal) -> MemberSession:
        """A client whose calls for its vector are counted."""
        session = super().new_client(member, journal)
        own, computed = session._contributor, list[Any]()
        assert own is not None
        compute = own.vector

        def vector() -> Any:
            computed.append(member)
            return compute()

        own.vector = vector  # type: ignore[method-assign]
        self.lives.append((session.is_protected, computed))
        return session


async def test_fixed_vector_is_not_computed_again(tmp_path: Path) -> None:
    """Killed before its vector is remembered a client computes it again, killed afterwards it does not."""
    names, lives = await fuse_points(tmp_path, CLIENT), []
    for number, _ in numbered(names, only="memory"):
        federation = Counting(staged(tmp_path / str(number)), {CLIENT: Fuse(number)})
        await federation.run()
        lives += federation.lives
    assert {bool(computed) for is_fixed, computed in lives if is_fixed} == {False}
    assert {bool(computed) for is_fixed, computed in lives if not is_fixed} == {True, False}


@pytest.mark.parametrize("only", ["before record", "after record", "part", "result"])
async def test_server_killed_at_every_point_goes_on(tmp_path: Path, subtests: pytest.Subtests, only: str) -> None:
    """Wherever the server is killed, its transcript alone brings it back to the same outcome."""
    names = await fuse_points(tmp_path, SERVER)
    for number, name in numbered(names, only=only):
        with subtests.test(point=f"{number}: {name}"):
            await check_point(tmp_path, SERVER, number)


async def test_client_killed_and_server_killed(tmp_path: Path) -> None:
    """Both may die in one session, in the middle of the upload."""
    names = await fuse_points(tmp_path, CLIENT)
    world = make_session(tmp_path / "both", dropouts=0)
    middle = names.index("before a part") + 1
    federation = SessionRun(world, {CLIENT: Fuse(middle), SERVER: Fuse(middle)})
    ending = await federation.run()
    assert np.array_equal(ending.total, world.total(EVERYONE))
    check_bytes(federation)


async def test_lost_vector_counts_as_dropped(tmp_path: Path) -> None:
    """A client whose protected bytes are lost never makes others: it fails, and the rest go on without it."""
    world = make_session(tmp_path, clients=4, dropouts=1)

    class Losing(Fuse):
        def burn(self, name: str) -> None:
            if name == "uploading to server":
                (world.home(CLIENT) / "protected.bin").unlink(missing_ok=True)

    federation = SessionRun(world, {CLIENT: Losing()})
    ending = await federation.run()
    assert ending.server.members == (1, 3, 4)
    assert isinstance(ending.clients[CLIENT], SessionAborted)
    assert not federation.uploaded[CLIENT, SERVER]


async def test_torn_transcript_of_a_killed_server(world: SimulatedSession) -> None:
    """A record that the kill tore in half was never acknowledged: it is cut off, and the session goes on."""
    fuse = Fuse()
    await SessionRun(world, {SERVER: fuse}).run()
    whole = world.transcript(SERVER).read_bytes()
    torn = whole[: len(whole) - 7]
    world.transcript(SERVER).write_bytes(torn)
    journal = Journal(world.transcript(SERVER))
    try:
        federation = SessionRun(world)
        server = federation.new_server(journal)
        outcome = await server.run()
    finally:
        journal.close()
    assert outcome.members == EVERYONE
    assert verify_transcript(world.transcript(SERVER))["aggregate_sha256"] == outcome.aggregate_sha256.hex()
