"""Aggregators and servers that lie around a shared or an encrypted sum: nothing is opened, and who is named."""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import ServerAway, SessionAborted
from secagg.protection.encryption import derivations as encryption
from secagg.protection.encryption.messages import SumRequest
from secagg.protection.messages import Outcome
from secagg.protection.sharing import derivations as sharing
from secagg.protection.sharing.aggregator import Collecting
from secagg.protection.sharing.messages import SetPledges, SumPledges
from secagg.session import AggregatorWork, ServerSession
from secagg.transcript import FrameBody, Journal, payload_of, peek, read_transcript, sign_frame
from secagg.verification.transcript_series import verify_transcript
from secagg.wire import encode
from tests.worlds.crashes import Crash, Fuse
from tests.worlds.session import SessionRun, SimulatedSession, make_session

SERVER, ME, FIRST, SECOND, HOLDER = 0, 2, 4, 5, 4


def staged(folder: Path, protection: str = "shared", **choices: Any) -> SimulatedSession:
    """Three clients of which one may be missing."""
    return make_session(folder, protection=protection, **{"dropouts": 1, "colluders": 0, **choices})


class Dropping(SessionRun):
    """A federation whose first aggregator gives ME a receipt and then leaves its upload out."""

    def new_work(self, member: int, journal: Journal) -> AggregatorWork:
        """The liar closes without ME."""
        work = super().new_work(member, journal)
        if member == FIRST:
            doing = work.work

            async def lie(state: Any) -> Any:
                if not isinstance(state, Collecting):
                    return await doing(state)
                closing_state = await _collected(work, state)
                kept = tuple(each for each in closing_state.manifests if each.client != ME)
                return replace(closing_state, manifests=kept).close(work._context, work._me)

            work.work = lie  # type: ignore[method-assign]
        return work


async def _collected(work: AggregatorWork, state: Collecting) -> Collecting:
    """The collection with everybody's uploads."""
    work._collecting = state
    await work._complete.wait()
    found: Any = work._collecting
    work._collecting, work._is_closed = None, True
    return found


async def test_aggregator_that_drops_an_acknowledged_upload_is_named(tmp_path: Path) -> None:
    """The client whose receipt is broken ends with the liar's name, the others with the sum of those that are left."""
    world = staged(tmp_path)
    ending = await Dropping(world).run()
    assert ending.server.members == (1, 3)
    assert ending.total.tolist() == world.total((1, 3)).tolist()
    refusal = ending.clients[ME]
    assert isinstance(refusal, SessionAborted)
    assert "aggregator-1 signed a receipt for this upload and left it out" in refusal.reason
    assert "aggregator-1" in verify_transcript(world.transcript(ME))["session"]


def signed_again(world: SimulatedSession, frame: bytes, change: Callable[[FrameBody], FrameBody]) -> bytes:
    """A frame of the server with another body, signed by it."""
    return sign_frame(world.keys[SERVER], change(peek(frame)))


class Telling(SessionRun):
    """A federation whose server tells one party, or some, something else at one step."""

    def __init__(
        self,
        world: SimulatedSession,
        victims: int | Collection[int],
        step: str,
        change: Callable[[FrameBody], FrameBody],
    ) -> None:
        super().__init__(world)
        self._victims = {victims} if isinstance(victims, int) else set(victims)
        self._step, self._change = step, change

    def new_server(self, journal: Journal) -> ServerSession:
        """The liar."""
        server = super().new_server(journal)
        fetching = server.fetch

        async def fetch(member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
            frame = await fetching(member, round_digest, step, patience)
            if frame and member in self._victims and peek(frame).step == self._step:
                return signed_again(self.world, frame, self._change)
            return frame

        server.fetch = fetch  # type: ignore[method-assign]
        return server


def other_pledges(world: SimulatedSession, step: str, message: type) -> Callable[[FrameBody], FrameBody]:
    """The bundle with the second aggregator's pledge replaced by another one that it signed, too."""

    def change(body: FrameBody) -> FrameBody:
        bundle = payload_of(body, message)
        forged = sharing.sign_pledge(world.setup.context, world.keys[SECOND], 2, step, bytes(32))
        return replace(body, payload=encode(message((bundle.pledges[0], forged))))

    return change


@pytest.mark.parametrize(("step", "message"), [("accepted", SetPledges), ("sum", SumPledges)])
async def test_two_bundles_for_two_aggregators_open_nothing(tmp_path: Path, step: str, message: type) -> None:
    """Two aggregators that were shown different commitments find out before anything is opened."""
    world = staged(tmp_path)
    ending = await Telling(world, FIRST, message.__name__, other_pledges(world, step, message)).run()
    assert ending.total is None
    assert isinstance(ending.server, SessionAborted)
    assert "aggregator" in ending.server.reason
    for end in (*ending.clients.values(), *ending.helpers.values()):
        assert isinstance(end, SessionAborted | ServerAway)


@pytest.mark.parametrize(("step", "protection"), [("SetPledges", "shared"), ("SumRequest", "encrypted")])
async def test_frame_that_the_server_did_not_sign_says_nothing(tmp_path: Path, step: str, protection: str) -> None:
    """A helper that hears only frames of another signer stops for now, all kept, and nothing is opened."""
    world = staged(tmp_path, protection)

    class Forging(Telling):
        def new_server(self, journal: Journal) -> ServerSession:
            server = super().new_server(journal)
            fetching = server.fetch

            async def fetch(member: int, round_digest: bytes, wanted: str, patience: float) -> bytes | None:
                frame = await fetching(member, round_digest, wanted, patience)
                forged = frame and member == FIRST and peek(frame).step == step
                return sign_frame(world.keys[ME], peek(frame)) if frame and forged else frame

            server.fetch = fetch  # type: ignore[method-assign]
            return server

    ending = await Forging(world, FIRST, "", lambda body: body).run()
    assert isinstance(ending.helpers[FIRST], ServerAway)
    assert "not signed by its identity" in ending.helpers[FIRST].said
    assert all(record.kind != "aborted" for record in read_transcript(world.transcript(FIRST)))
    assert ending.total is None
    assert isinstance(ending.server, SessionAborted)


def other_sum(world: SimulatedSession) -> Callable[[FrameBody], FrameBody]:
    """A second request, validly signed, for the sum of two clients alone."""

    def change(body: FrameBody) -> FrameBody:
        request = payload_of(body, SumRequest)
        fewer = replace(request.declaration, uploads=request.declaration.uploads[:2])
        declaration = encryption.sign_declaration(world.setup.context, world.keys[SERVER], fewer)
        return replace(body, payload=encode(replace(request, declaration=declaration)))

    return change


async def test_key_holder_opens_the_first_sum_for_ever(tmp_path: Path) -> None:
    """After a restart a second, different request changes nothing: the first one heard is answered, with one frame."""
    world = staged(tmp_path, "encrypted", join_seconds=30, step_seconds=30)
    counted = Fuse()
    await SessionRun(staged(tmp_path / "counted", "encrypted"), {HOLDER: counted}).run()
    heard = counted.points.index("before record received") + 1

    class Twice(SessionRun):
        asked = 0

        def new_server(self, journal: Journal) -> ServerSession:
            server = super().new_server(journal)
            fetching = server.fetch

            async def fetch(member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
                frame = await fetching(member, round_digest, step, patience)
                if frame and peek(frame).step == "SumRequest":
                    self.asked += 1
                    return frame if self.asked == 1 else signed_again(world, frame, other_sum(world))
                return frame

            server.fetch = fetch  # type: ignore[method-assign]
            return server

    federation = Twice(world, {HOLDER: Fuse(heard)})
    ending = await federation.run()
    assert isinstance(ending.server, Outcome)
    assert ending.total.tolist() == world.total((1, 2, 3)).tolist()
    assert federation.asked == 1
    assert len(federation.sent[HOLDER, "OpenedSum"]) == 1


async def test_key_holder_asked_for_another_sum_names_the_server(tmp_path: Path) -> None:
    """A request whose sum is not that of the uploads it declares is refused; nothing is opened, and why is told."""
    world = staged(tmp_path, "encrypted")

    def change(body: FrameBody) -> FrameBody:
        request = payload_of(body, SumRequest)
        return replace(
            body, payload=encode(replace(request, packed=bytes([request.packed[0] ^ 1]) + request.packed[1:]))
        )

    federation = Telling(world, HOLDER, "SumRequest", change)
    ending = await federation.run()
    assert "server" in ending.helpers[HOLDER].reason
    assert "another sum than the declared one" in ending.helpers[HOLDER].reason
    assert ending.total is None
    assert not federation.sent[HOLDER, "OpenedSum"]
    assert isinstance(ending.server, SessionAborted)


@pytest.mark.parametrize("protection", ["shared", "encrypted"])
async def test_lost_memory_of_a_second_party_ends_its_part(tmp_path: Path, protection: str) -> None:
    """A helper whose remembered state is gone never begins anew with other keys: it has dropped out."""
    world = staged(tmp_path, protection)

    class Losing(Fuse):
        def burn(self, name: str) -> None:
            if name.startswith("waiting for") and not self.points:
                self.points.append(name)
                for path in world.home(FIRST).glob("session*"):
                    path.unlink()
                raise Crash

    federation = SessionRun(world, {FIRST: Losing()})
    ending = await federation.run()
    assert "is lost" in ending.helpers[FIRST].reason
    assert ending.total is None
    assert all(len(frames) == 1 for frames in federation.sent.values())
