"""A server that breaks the protocol in what it signs: clients leave for good. What it did not sign ends nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import ServerAway, SessionAborted
from secagg.protection.masking.messages import Survivors
from secagg.protection.messages import Outcome
from secagg.session.outcome import UNCONFIRMED_HEAD_FILE
from secagg.transcript import FrameBody, Journal, payload_of, peek, read_transcript, sign_frame
from secagg.verification.transcript_series import verify_transcript
from secagg.wire import encode
from tests.worlds.crashes import Crash, Fuse, FusedJournal
from tests.worlds.session import SessionRun, SimulatedSession, Wire, make_session

ME = 2
SERVER_STEPS = ("Directory", "Inbox", "Survivors", "Quorum", "Outcome")


class LyingWire(Wire):
    """A connection whose server's frames pass through `lie`."""

    def __init__(self, federation: SessionRun, member: int, lie: Callable[[bytes], bytes]) -> None:
        super().__init__(federation, member)
        self._lie = lie

    async def submit(self, frame: bytes) -> bytes:
        """Submit, and hear what the liar says."""
        reply = await super().submit(frame)
        return self._lie(reply) if reply else reply

    async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
        """Fetch, and hear what the liar says."""
        return self._lie(await super().fetch(round_digest, step, seconds))


class Lied(SessionRun):
    """A federation in which one client hears lies."""

    def __init__(self, world: SimulatedSession, lie: Callable[[bytes], bytes], patience: float = Wire.patience) -> None:
        super().__init__(world)
        self._lie = lie
        self._patience = patience

    async def client(self, member: int, leaves: str | None = None) -> Outcome:
        """One client, behind the lying connection when it is ME."""
        if member != ME:
            return await super().client(member, leaves)
        journal = Journal(self.world.transcript(member))
        try:
            session = self.new_client(member, journal)  # type: ignore[arg-type]
            wire = LyingWire(self, member, self._lie)
            wire.patience = self._patience
            return await session.run(wire)
        finally:
            journal.close()


def at(step: str, change: Callable[[FrameBody], bytes]) -> Callable[[bytes], bytes]:
    """A lie about one step only."""

    def lie(frame: bytes) -> bytes:
        body = peek(frame)
        return change(body) if body.step == step else frame

    return lie


async def leaves_for(world: SimulatedSession, lie: Callable[[bytes], bytes]) -> str:
    """Run a session in which ME hears a lie; check that it left for ever; return why."""
    federation = Lied(world, lie)
    with pytest.raises(SessionAborted) as end:
        await federation.run_only_until(ME)
    reason: str = end.value.reason
    assert {path.name for path in world.home(ME).iterdir()} <= {"transcript.log", UNCONFIRMED_HEAD_FILE}
    sent = {key: len(frames) for key, frames in federation.sent.items() if key[0] == ME}
    with pytest.raises(SessionAborted):
        await SessionRun(world).client(ME)
    assert {key: len(frames) for key, frames in federation.sent.items() if key[0] == ME} == sent
    return reason


def first(times: int, lie: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """A lie that gives way to the truth after so many tellings."""
    told: list[bytes] = []

    def tell(frame: bytes) -> bytes:
        said = lie(frame)
        if said == frame or len(told) == times:
            return frame
        told.append(said)
        return said

    return tell


async def outlasts(world: SimulatedSession, lie: Callable[[bytes], bytes]) -> None:
    """Run a session in which ME hears a lie twice and then the truth; check that nothing came of the lie."""
    heard: list[bytes] = []

    def tell(frame: bytes) -> bytes:
        if (said := lie(frame)) != frame:
            heard.append(said)
        return said

    federation = Lied(world, first(2, tell), patience=5.0)
    ending = await federation.run()
    assert len(heard) >= 2
    assert ending.server.members == (1, 2, 3, 4)
    assert ending.clients[ME] == ending.server
    assert [key for key, frames in federation.sent.items() if len(frames) != 1] == []
    assert {record.content for record in read_transcript(world.transcript(ME))}.isdisjoint(heard)
    assert "aggregate_sha256" in verify_transcript(world.transcript(ME))


@pytest.mark.parametrize("step", [*SERVER_STEPS, "Receipt"])
async def test_frame_signed_by_another_is_not_heard(tmp_path: Path, step: str) -> None:
    """A frame of the server that a client signed is asked for again at every step, and the session goes on."""
    world = make_session(tmp_path, clients=4, dropouts=1, step_seconds=5)
    await outlasts(world, at(step, lambda body: sign_frame(world.keys[1], body)))


@pytest.mark.parametrize("step", [*SERVER_STEPS, "Receipt"])
async def test_frame_of_an_earlier_session_is_not_heard(tmp_path: Path, step: str) -> None:
    """The frames of an earlier session of the same members say nothing at any step."""
    earlier = make_session(tmp_path, clients=4, dropouts=1, step_seconds=5)
    await SessionRun(earlier).run()
    records = read_transcript(earlier.transcript(ME))
    old = {peek(record.content).step: record.content for record in records if record.kind == "received"}
    await outlasts(earlier.again(), at(step, lambda body: old[body.step]))


@pytest.mark.parametrize("step", SERVER_STEPS)
async def test_frame_for_another_member_is_not_heard(tmp_path: Path, step: str) -> None:
    """A frame that the server addressed to another client says nothing to this one."""
    world = make_session(tmp_path, clients=4, dropouts=1, step_seconds=5)
    await outlasts(world, at(step, lambda body: sign_frame(world.keys[0], replace(body, receiver=1))))


@pytest.mark.parametrize("step", SERVER_STEPS)
async def test_message_of_another_step_is_not_heard(tmp_path: Path, step: str) -> None:
    """A message of another step, which anyone who carries frames can replay, is no answer to this one."""
    world = make_session(tmp_path, clients=4, dropouts=1, step_seconds=5)
    await outlasts(world, at(step, lambda body: sign_frame(world.keys[0], replace(body, step="Receipt"))))


@pytest.mark.parametrize("step", SERVER_STEPS)
@pytest.mark.parametrize("bytes_", [b"\xff\xff\xff", b"\0"], ids=["garbage", "a zero"])
async def test_bytes_that_are_no_frame_are_not_heard(tmp_path: Path, step: str, bytes_: bytes) -> None:
    """Bytes that do not parse are nobody's word."""
    world = make_session(tmp_path, clients=4, dropouts=1, step_seconds=5)
    await outlasts(world, at(step, lambda body: bytes_))


@pytest.mark.parametrize("step", SERVER_STEPS)
async def test_lies_without_end_keep_the_session(tmp_path: Path, step: str) -> None:
    """A member that hears nothing signed gives up for now, with its state kept, and goes on when the truth comes."""
    world = make_session(tmp_path, clients=4, dropouts=1, step_seconds=5)
    lying = Lied(world, at(step, lambda body: sign_frame(world.keys[1], body)))

    class Giving(SessionRun):
        async def client(self, member: int, leaves: str | None = None) -> Any:
            if member == ME:
                lying.hosts = self.hosts
                with pytest.raises(ServerAway, match="not signed by its identity"):
                    await lying.client(ME)
                assert all(record.kind != "aborted" for record in read_transcript(world.transcript(ME)))
            return await super().client(member, leaves)

    ending = await Giving(world).run()
    assert ending.server.members == (1, 2, 3, 4)
    assert ending.clients[ME] == ending.server


@pytest.mark.parametrize("step", SERVER_STEPS)
async def test_nonsense_that_the_server_signed_ends_the_session(tmp_path: Path, step: str) -> None:
    """What the server did sign for this step, and cannot be, makes a client leave for good."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    lie = at(step, lambda body: sign_frame(world.keys[0], replace(body, payload=b"\xff\xff\xff")))
    assert "malformed" in await leaves_for(world, lie)


async def test_receipt_for_another_transcript_is_refused(tmp_path: Path) -> None:
    """A server that countersigns other records than the client's is caught at the receipt."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    lie = at("Receipt", lambda body: sign_frame(world.keys[0], replace(body, seen=bytes([9]) * 32)))
    assert "countersigned another transcript" in await leaves_for(world, lie)


async def test_client_answers_a_session_once(world: SimulatedSession) -> None:
    """After the end nothing new leaves: a client that is asked again repeats at most its last word."""
    federation = SessionRun(world)
    await federation.run()
    before = {key: set(frames) for key, frames in federation.sent.items()}

    class Again(SessionRun):
        async def call(self, member: int, make: Any) -> Any:
            raise AssertionError("a finished client speaks")

    assert isinstance(await Again(world).client(ME), Outcome)
    assert federation.sent == before


class Killed(Lied):
    """A federation in which ME is killed by what it hears, and stays away."""

    async def client(self, member: int, leaves: str | None = None) -> Any:
        """One client; ME's death is its end."""
        try:
            return await super().client(member, leaves)
        except Crash:
            return SessionAborted("killed")


async def test_second_survivor_set_after_a_restart_is_refused(tmp_path: Path) -> None:
    """A client that signed one survivor set does not sign a second one after it was killed and started again."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    federation = Killed(world, at("Quorum", lambda body: _raise(Crash("here"))))
    assert isinstance((await federation.run()).server, Outcome)
    records = read_transcript(world.transcript(ME))
    shown = next(peek(each.content) for each in records if b"Survivors" in each.content and each.kind == "received")
    assert payload_of(shown, Survivors).members == (1, 2, 3, 4)
    second = sign_frame(world.keys[0], replace(shown, payload=encode(Survivors((1, 2, 3), bytes(32)))))
    heard: list[bytes] = []

    class Second(Wire):
        async def submit(self, frame: bytes) -> bytes:
            heard.append(frame)
            return b""

        async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
            return second

    with FusedJournal(world.transcript(ME), Fuse()) as journal:
        again = SessionRun(world)
        with pytest.raises(ServerAway, match="Quorum is awaited"):
            await again.new_client(ME, journal).run(Second(again, ME))
    assert {frame for frame in heard if peek(frame).step == "Endorsement"} == federation.sent[ME, "Endorsement"]


def _raise(error: BaseException) -> bytes:
    raise error
