"""What a server has signed that it accepted it cannot leave out unseen; without its signature nobody is named."""

import hashlib
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import LeftBehind, NotNow, SessionAborted, TranscriptInvalid
from secagg.protection.draw import NonceReveal
from secagg.protection.masking.messages import Survivors
from secagg.protection.messages import Abort, Outcome, Taken
from secagg.session import ServerSession
from secagg.transcript import (
    EVERYONE,
    NOT_SEEN,
    FrameBody,
    Journal,
    chain,
    make_body,
    payload_of,
    peek,
    read_transcript,
    sign_frame,
)
from secagg.verification.transcript_series import verify_transcript
from secagg.wire import encode, tag_of
from tests.session.forging import rewrite, step_of
from tests.session.test_malicious_helpers import Telling
from tests.worlds.federation import FederationRun, SimulatedFederation
from tests.worlds.hosts import Life, parts_of
from tests.worlds.session import SessionRun, SimulatedSession, make_session

SERVER, ME, OTHER = 0, 2, 3
SIGNED = ("masked", "none", "encrypted")
LIE = "server: signed that it had accepted this client's {}, and left it out"


def world_of(folder: Path, protection: str) -> SimulatedSession:
    """Four clients of whom one may be missing."""
    return make_session(folder, clients=4, protection=protection, dropouts=1, colluders=0)


def upload_of(world: SimulatedSession) -> str:
    """The message that announces an upload."""
    acceptance = world.setup.protocol.acceptance
    assert acceptance is not None
    return tag_of(acceptance.message)


def frames_of(world: SimulatedSession, member: int, step: str) -> list[bytes]:
    """The frames of a step in a party's transcript."""
    records = read_transcript(world.transcript(member), torn_tail_allowed=True)
    return [each.content for each in records if step_of((each.kind, each.content)) == step]  # type: ignore[arg-type]


def taken(world: Any, member: int, frame: bytes, plan: bytes) -> bytes:
    """The server's signed acceptance of a frame, outside of its transcript."""
    said = Taken(hashlib.sha256(frame).digest())
    seen = chain(peek(frame).head, "sent", frame)
    return sign_frame(world.keys[SERVER], make_body(plan, SERVER, member, NOT_SEEN, seen, said))


class Censoring(SessionRun):
    """A federation whose server takes ME's whole upload, answers, and leaves it out."""

    def __init__(self, world: SimulatedSession, *, signs: bool) -> None:
        super().__init__(world)
        self._signs = signs

    def new_server(self, journal: Journal) -> ServerSession:
        """The liar."""
        server = super().new_server(journal)
        taking = server.upload

        async def upload(member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
            if member != ME:
                return await taking(member, frame, parts)
            async for _ in parts:
                pass
            plan = self.world.setup.context.round_digest
            return taken(self.world, ME, frame, plan) if self._signs else b""

        server.upload = upload  # type: ignore[method-assign]
        return server


@pytest.mark.parametrize("protection", SIGNED)
async def test_server_that_leaves_out_what_it_signed_for_is_named(tmp_path: Path, protection: str) -> None:
    """Finding A12: the client says it at once and in its next life; its transcript convicts the server."""
    world = world_of(tmp_path, protection)
    end = (await Censoring(world, signs=True).run()).clients[ME]
    assert isinstance(end, SessionAborted)
    assert not isinstance(end, LeftBehind)
    words = LIE.format(upload_of(world))
    assert words in end.reason
    assert "count this as a release" in end.reason
    with pytest.raises(SessionAborted) as again:
        await SessionRun(world).client(ME)
    assert words in again.value.reason
    with pytest.raises(TranscriptInvalid) as invalid:
        verify_transcript(world.transcript(ME))
    assert words in str(invalid.value)
    assert verify_transcript(world.transcript(OTHER))["accepted_by_server"]


@pytest.mark.parametrize("protection", SIGNED)
async def test_without_a_signature_nobody_is_named(tmp_path: Path, protection: str) -> None:
    """A client that the server gave no signature for its upload is left behind, and its transcript says just that."""
    world = world_of(tmp_path, protection)
    end = (await Censoring(world, signs=False).run()).clients[ME]
    assert isinstance(end, LeftBehind)
    told = verify_transcript(world.transcript(ME))
    assert told["accepted_by_server"] is False
    assert "server" not in told["session"]


@pytest.mark.parametrize(("protection", "step"), [("masked", Survivors), ("none", Outcome), ("encrypted", Outcome)])
async def test_set_without_an_accepted_upload_convicts_the_server(tmp_path: Path, protection: str, step: type) -> None:
    """A client that is shown such a set leaves, and its transcript names the server for what it had signed before."""
    world = world_of(tmp_path, protection)

    def without_me(body: FrameBody) -> FrameBody:
        told = payload_of(body, step)
        members = tuple(each for each in told.members if each != ME)
        return replace(body, payload=encode(replace(told, members=members)))

    end = (await Telling(world, ME, tag_of(step), without_me).run()).clients[ME]
    assert isinstance(end, SessionAborted)
    with pytest.raises(TranscriptInvalid) as invalid:
        verify_transcript(world.transcript(ME))
    assert LIE.format(upload_of(world)) in str(invalid.value)


@pytest.mark.parametrize("protection", SIGNED)
async def test_abort_of_the_whole_session_convicts_nobody(tmp_path: Path, protection: str) -> None:
    """A server that gives everything up has left nobody out."""
    world = world_of(tmp_path, protection)
    await SessionRun(world).run()

    def give_up(entries: list[Any]) -> list[Any]:
        place = next(at for at, entry in enumerate(entries) if step_of(entry) == Taken.__name__)
        body = peek(entries[place][1])
        said = replace(body, step=tag_of(Abort), payload=encode(Abort("the disk is full")), receiver=EVERYONE)
        frame = sign_frame(world.keys[SERVER], replace(said, seen=NOT_SEEN))
        return [*entries[: place + 1], ("received", frame), ("aborted", b"the disk is full")]

    rewrite(world, give_up, ME, ME)
    assert "the disk is full" in verify_transcript(world.transcript(ME))["session"]


@pytest.mark.parametrize("protection", ["masked", "none", "encrypted", "shared"])
async def test_every_upload_to_the_server_is_signed_for(tmp_path: Path, protection: str) -> None:
    """Each client has one signature for its upload; under `shared` it has its aggregators' receipts instead."""
    world = world_of(tmp_path, protection)
    await SessionRun(world).run()
    for member in world.setup.roster.clients:
        found, told = frames_of(world, member, Taken.__name__), verify_transcript(world.transcript(member))
        if protection == "shared":
            assert (found, "accepted_by_server" in told, len(told["receipts_from"])) == ([], False, 2)
            continue
        (frame,), (upload,) = found, frames_of(world, member, upload_of(world))
        assert payload_of(peek(frame), Taken).frame == hashlib.sha256(upload).digest()
        assert told["accepted_by_server"]
    assert verify_transcript(world.transcript(SERVER))["members"]


@pytest.mark.parametrize("protection", SIGNED)
async def test_repeated_upload_gets_the_same_answer_and_a_late_one_none(tmp_path: Path, protection: str) -> None:
    """Also from a server that was started again; what was not accepted is not signed for, whoever asks."""
    world = world_of(tmp_path, protection)
    await Censoring(world, signs=False).run()
    journal = Journal(world.transcript(SERVER))
    server = SessionRun(world).new_server(journal)
    (mine,), (others,) = (frames_of(world, each, upload_of(world)) for each in (ME, OTHER))
    assert await server.upload(ME, mine, parts_of(b"late")) == b""
    assert [await server.upload(OTHER, others, parts_of(b""))] == frames_of(world, OTHER, Taken.__name__)
    journal.close()


class Answering(SessionRun):
    """A federation whose server's answer to ME's upload passes through `lie`."""

    def __init__(self, world: SimulatedSession, lie: Callable[[bytes], bytes]) -> None:
        super().__init__(world)
        self._lie = lie

    def new_server(self, journal: Journal) -> ServerSession:
        """The liar."""
        server = super().new_server(journal)
        taking = server.upload

        async def upload(member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
            answer = await taking(member, frame, parts)
            return self._lie(answer) if member == ME else answer

        server.upload = upload  # type: ignore[method-assign]
        return server


async def test_signature_for_something_else_is_refused(tmp_path: Path) -> None:
    """A server that signs for a frame that this client has not sent is left, by name."""
    world = world_of(tmp_path, "masked")

    def other(answer: bytes) -> bytes:
        return sign_frame(world.keys[SERVER], replace(peek(answer), payload=encode(Taken(bytes(32)))))

    end = (await Answering(world, other).run()).clients[ME]
    assert isinstance(end, SessionAborted)
    assert "server: signs that it has accepted what this client has not sent" in end.reason


@pytest.mark.parametrize(
    "lie",
    [
        lambda answer: answer[:-1],
        lambda answer: answer[:-1] + bytes([answer[-1] ^ 1]),
        lambda answer: b"taken",
    ],
    ids=["truncated", "forged", "nonsense"],
)
async def test_answer_that_nobody_signed_counts_for_nothing(tmp_path: Path, lie: Callable[[bytes], bytes]) -> None:
    """It is asked for again, and at last the client goes away to come back: it has not left for good."""
    world = world_of(tmp_path, "masked")
    assert isinstance((await Answering(world, lie).run()).clients[ME], NotNow)
    assert frames_of(world, ME, Taken.__name__) == []


async def test_signature_for_what_was_not_sent_does_not_verify(tmp_path: Path) -> None:
    """Neither a client nor a server has a transcript with an acceptance that fits no message in it."""
    for member in (ME, SERVER):
        world = world_of(tmp_path / str(member), "masked")
        await SessionRun(world).run()

        def other(entries: list[Any], world: SimulatedSession = world) -> list[Any]:
            changed = []
            for kind, content in entries:
                if step_of((kind, content)) == Taken.__name__ and peek(content).receiver == ME:
                    body = replace(peek(content), payload=encode(Taken(bytes(32))))
                    changed.append((kind, sign_frame(world.keys[SERVER], body)))
                else:
                    changed.append((kind, content))
            return changed

        rewrite(world, other, member, member)
        with pytest.raises(TranscriptInvalid, match=r"has accepted what (was not sent|it has not)"):
            verify_transcript(world.transcript(member))


class DroppingReveal(FederationRun):
    """A plan whose server takes client 3's nonce, and does as if it had never come."""

    signs = False

    def _begin_server(self) -> Life:
        life = super()._begin_server()
        submitting = life.called.submit

        async def submit(member: int, frame: bytes) -> bytes:
            if (member, peek(frame).step) != (OTHER, NonceReveal.__name__):
                return bytes(await submitting(member, frame))
            return taken(self.world, OTHER, frame, peek(frame).round_digest) if self.signs else b""

        life.called.submit = submit
        return life


@pytest.mark.parametrize("signs", [True, False], ids=["signed for", "not signed for"])
async def test_dropped_reveal_convicts_no_client(tmp_path: Path, signs: bool) -> None:
    """Finding N7: the server's transcript says what it lacks; where it had signed for it, the client's convicts it."""
    parameters = (("rounds", 2), ("rate", 0.5), ("clip", 5.0))
    exact: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None, "method": "fedavg"}
    world = SimulatedFederation.of(tmp_path, 5, 0, parameters=parameters, cohort=4, dropouts=1, colluders=0, **exact)
    run = DroppingReveal(world)
    run.signs = signs
    ended = await run.run()
    assert isinstance(ended.server, SessionAborted)
    told = verify_transcript(*world.transcripts(SERVER, ended.stages))
    assert told["session"].startswith("aborted: the server has no reveal of client-3: the draw is void")
    (own,) = world.transcripts(OTHER, ended.stages)
    end, words = ended.clients[OTHER], LIE.format("NonceReveal")
    assert isinstance(end, SessionAborted)
    assert (words in end.reason) == signs
    if signs:
        with pytest.raises(TranscriptInvalid) as invalid:
            verify_transcript(own)
        assert words in str(invalid.value)
    else:
        assert verify_transcript(own)["accepted_by_server"] is False
    (others,) = world.transcripts(ME, ended.stages)
    assert verify_transcript(others)["accepted_by_server"] is True
