"""A party that was killed before it checked the outcome that it had written down checks it in its next life."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import LeftBehind, ServerAway, SessionAborted, Unconfirmed
from secagg.protection import LocalParty
from secagg.protection.draw import Commitments, Draw, NonceCommitment, NonceReveal
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.session import MemberSession, begin_transcript
from secagg.session.rounds import outcome_of_draw
from secagg.transcript import (
    EVERYONE,
    FILE_NAME,
    NOT_SEEN,
    FrameBody,
    Journal,
    make_body,
    payload_of,
    peek,
    read_transcript,
    sign_frame,
)
from secagg.wire import encode
from tests.session.test_malicious_helpers import Telling
from tests.worlds.crashes import Crash, Fuse
from tests.worlds.rosters import make_roster
from tests.worlds.session import SessionRun, make_session
from tests.worlds.setups import make_setup

CLIENT, SECOND = 2, 5


class AfterOutcome(Fuse):
    """Kills its party once, when the outcome is on its disk and nobody has looked at it."""

    def __init__(self, transcript: Path) -> None:
        super().__init__()
        self.transcript = transcript
        self.has_killed = False

    def burn(self, name: str) -> None:
        """Die behind the record of the outcome."""
        if self.has_killed or name != "after record received":
            return
        if peek(read_transcript(self.transcript)[-1].content).step == "Outcome":
            self.has_killed = True
            raise Crash(name)


def outcome_with(**change: Any) -> Callable[[FrameBody], FrameBody]:
    """The server's outcome, changed."""
    return lambda body: replace(body, payload=encode(replace(payload_of(body, Outcome), **change)))


@pytest.mark.parametrize(
    ("protection", "party", "change", "words"),
    [
        ("masked", CLIENT, {"members": (1, 2, 3)}, "names other clients than those that were opened"),
        ("shared", CLIENT, {"members": (2, 3)}, "opened the sum of 2 clients, not 3"),
        ("shared", CLIENT, {"members": (1, 3, 4)}, "leaves this client out"),
        ("shared", SECOND, {"members": (1, 2, 3)}, "opened the sum of another set"),
        ("encrypted", CLIENT, {"members": (2, 3)}, "leaves this client out or too many others"),
        ("encrypted", SECOND, {"members": (1, 2, 3)}, "has other members than the sum that was opened"),
        ("encrypted", SECOND, {"aggregate_sha256": b"f" * 32}, "names another sum than the one that was opened"),
    ],
)
async def test_lie_is_refused_in_the_next_life(
    tmp_path: Path, protection: str, party: int, change: dict[str, Any], words: str
) -> None:
    """An outcome that the state awaiting it refuses is refused after a crash, and the party leaves for good."""
    world = make_session(tmp_path, clients=4, protection=protection, dropouts=1, colluders=0)
    federation = Telling(world, party, "Outcome", outcome_with(**change))
    fuse = federation.fuses[party] = AfterOutcome(world.transcript(party))
    ending = await federation.run()
    end = {**ending.clients, **ending.helpers}[party]
    assert fuse.has_killed
    assert isinstance(end, SessionAborted)
    assert words in end.reason
    assert {"Acknowledgement"}.isdisjoint(step for member, step in federation.sent if member == party)


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
async def test_truth_is_taken_in_the_next_life(tmp_path: Path, protection: str) -> None:
    """A client and a helper that were killed there end with the server's outcome where it is right."""
    world = make_session(tmp_path, clients=4, protection=protection, dropouts=1, colluders=0)
    federation = SessionRun(world)
    parties = {CLIENT, *world.setup.context.helpers}
    for party in parties:
        federation.fuses[party] = AfterOutcome(world.transcript(party))
    ending = await federation.run()
    assert all(federation.fuses[party].has_killed for party in parties)  # type: ignore[attr-defined]
    assert {*ending.clients.values(), *ending.helpers.values()} == {ending.server}


async def test_outcome_without_a_memory_is_not_taken(tmp_path: Path) -> None:
    """A client that has lost what it remembered cannot check an outcome in its transcript, and drops out."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    federation = SessionRun(world)

    class Losing(AfterOutcome):
        def burn(self, name: str) -> None:
            try:
                super().burn(name)
            except Crash:
                (world.home(CLIENT) / "session.state").unlink()
                raise

    federation.fuses[CLIENT] = Losing(world.transcript(CLIENT))
    end = (await federation.run()).clients[CLIENT]
    assert isinstance(end, LeftBehind)
    assert "is lost" in end.reason


class Away:
    """A connection to a server that has gone."""

    patience = 0.0

    async def submit(self, frame: bytes) -> bytes:
        """Nobody answers."""
        raise ServerAway(SERVER_INDEX)

    fetch = read = upload = submit


@pytest.mark.parametrize("is_honest", [True, False], ids=["honest", "lying"])
async def test_second_party_checks_the_draw_of_an_earlier_life(tmp_path: Path, is_honest: bool) -> None:
    """A party that has sent nothing goes through the draw again before it believes which seed that ended with."""
    parameters = {"method": "fedavg", "parameters": (("rounds", 4),), "epsilon": float("inf"), "cohort": 4}
    setup = make_setup(6, protection="shared", delta=None, adjacency=None, dropouts=1, colluders=1, **parameters)
    context, keys = setup.context, make_roster(6, "shared")[1]
    nonces = {member: bytes([member]) * 32 for member in (1, 2, 3, 4)}
    shown = Commitments(tuple(NonceCommitment.of(context, each, keys[each], nonces[each]) for each in nonces))
    reveals = tuple(NonceReveal.of(context, each, keys[each], nonces[each], shown.digest) for each in nonces)
    draw = Draw(shown, reveals)
    outcome = outcome_of_draw(tuple(nonces), setup.with_draw(draw).seed if is_honest else bytes(32))
    journal = Journal(tmp_path / FILE_NAME)
    begin_transcript(journal, setup)
    for said in (draw, outcome):
        body = make_body(context.round_digest, SERVER_INDEX, EVERYONE, NOT_SEEN, NOT_SEEN, said)
        journal.append("received", sign_frame(keys[SERVER_INDEX], body))
    me = LocalParty(7, keys[7], OperatingSystem())
    with contextlib.closing(journal):
        running = MemberSession(setup, me, tmp_path, journal, print).run(Away())
        if is_honest:
            with pytest.raises(Unconfirmed):
                await running
        else:
            with pytest.raises(SessionAborted, match="another seed than its nonces give"):
                await running
