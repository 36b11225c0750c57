"""What the server and the client do with frames that are late, repeated, conflicting, tampered or for somebody else."""

from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.errors import MalformedMessage, NotNow, ProtocolViolation, ServerAway, SessionAborted
from secagg.protection.messages import Abort, Acknowledgement, Outcome, UploadHeader
from secagg.session import ServerSession
from secagg.transcript import NOT_SEEN, Journal, make_body, peek, read_transcript, sign_frame
from tests.worlds.hosts import parts_of
from tests.worlds.session import SessionRun, SimulatedSession, make_session

JOIN, DEAL, UPLOAD, ENDORSE, OPEN = "KeyAdvertisement", "Dealing", "UploadHeader", "Endorsement", "Opening"


class Tampered(SessionRun):
    """A federation in which `before` sees every frame of a client before it reaches the server."""

    before: Any = None

    async def call(self, member: int, make: Any) -> Any:
        """Let the test act first."""
        if self.before is not None:
            await self.before(self, member)
        return await super().call(member, make)


def frames_of(world: SimulatedSession, member: int) -> dict[str, bytes]:
    """The frames that a client sent, by step."""
    records = read_transcript(world.transcript(member))
    return {peek(record.content).step: record.content for record in records if record.kind == "sent"}


async def refuses(server: ServerSession, member: int, frame: bytes) -> str:
    """The line with which the server refuses a frame."""
    with pytest.raises((ProtocolViolation, MalformedMessage)) as refusal:
        await server.submit(member, frame)
    return str(refusal.value)


@pytest.fixture
async def finished(world: SimulatedSession) -> AsyncIterator[tuple[SimulatedSession, ServerSession]]:
    """A session that is over, with its server rebuilt from the folder."""
    federation = SessionRun(world)
    await federation.run()
    journal = Journal(world.transcript(0))
    yield world, federation.new_server(journal)
    journal.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Any:
    """A stage and its server, to which nobody has spoken yet."""
    world = make_session(tmp_path / "fresh")
    journal = Journal(world.transcript(0))
    yield world, SessionRun(world).new_server(journal)
    journal.close()


def signed(
    world: SimulatedSession,
    sender: int,
    payload: Any,
    *,
    key: int | None = None,
    receiver: int = 0,
    seen: bytes = NOT_SEEN,
    plan: bytes | None = None,
) -> bytes:
    """A frame of a member, which the test may sign with another's key or aim elsewhere."""
    body = make_body(plan or world.setup.context.round_digest, sender, receiver, bytes(32), seen, payload)
    return sign_frame(world.keys[sender if key is None else key], body)


async def test_exact_repetitions_change_nothing(finished: tuple[SimulatedSession, ServerSession]) -> None:
    """Every frame of a finished session may come again: nothing is written, and the receipt is the same."""
    world, server = finished
    before = world.transcript(0).read_bytes()
    receipts = {record.content for record in read_transcript(world.transcript(2)) if record.kind == "received"}
    for step, frame in frames_of(world, 2).items():
        if step == UPLOAD:
            await server.upload(2, frame, parts_of(b"anything"))
        else:
            assert await server.submit(2, frame) in ({b""} if step != "Acknowledgement" else receipts)
    assert world.transcript(0).read_bytes() == before


@pytest.mark.parametrize("step", [JOIN, DEAL, ENDORSE, OPEN, "Acknowledgement"])
async def test_second_different_frame_is_refused(finished: tuple[SimulatedSession, ServerSession], step: str) -> None:
    """A second, different frame for a step that a member has answered names the member and changes nothing."""
    world, server = finished
    before = world.transcript(0).read_bytes()
    body = peek(frames_of(world, 2)[step])
    other = sign_frame(world.keys[2], replace(body, head=bytes([1]) * 32))
    assert "party 2: sent a second, different" in await refuses(server, 2, other)
    assert world.transcript(0).read_bytes() == before


@pytest.mark.parametrize("step", [DEAL, ENDORSE, OPEN])
async def test_frame_of_a_later_step_is_refused(world: SimulatedSession, fresh: Any, step: str) -> None:
    """A frame of another session never counts, whatever the step."""
    await SessionRun(world).run()
    _, server = fresh
    assert "not signed" in await refuses(server, 2, frames_of(world, 2)[step])


async def test_frames_out_of_order_are_refused(fresh: Any) -> None:
    """A message of a step that has not begun is refused and names what is awaited."""
    world, server = fresh
    frame = signed(world, 1, Acknowledgement(bytes(32), bytes(32), bytes(32)))
    assert "KeyAdvertisement is awaited" in await refuses(server, 1, frame)


async def test_upload_header_without_a_vector_is_refused(tmp_path: Path) -> None:
    """An upload header never counts without the bytes it announces."""
    world = make_session(tmp_path, protection="none")
    with closing(Journal(world.transcript(0))) as journal:
        server, header = SessionRun(world).new_server(journal), UploadHeader(9, bytes(32), bytes(32), bytes(32), ())
        assert "comes with its vector" in await refuses(server, 2, signed(world, 2, header))
    assert not any(record.kind == "received" for record in read_transcript(world.transcript(0)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": 2}, "not signed by its identity"),
        ({"receiver": 3}, "addressed to another member"),
        ({"plan": bytes(32)}, "another session or plan"),
        ({"seen": bytes([7]) * 32}, "has seen another transcript"),
    ],
)
async def test_frame_that_is_not_what_it_claims_is_refused(fresh: Any, change: dict[str, Any], words: str) -> None:
    """Another signer, receiver, session or server transcript is refused, names the member, and leaves no trace."""
    world, server = fresh
    before = world.transcript(0).read_bytes()
    assert words in await refuses(server, 1, signed(world, 1, Abort("x"), **change))
    assert world.transcript(0).read_bytes() == before


async def test_frame_in_another_members_name_is_refused(fresh: Any) -> None:
    """What a member's certificate brings must be signed by that very member."""
    world, server = fresh
    assert "party 1: " in await refuses(server, 1, signed(world, 2, Abort("x")))
    body = make_body(world.setup.context.round_digest, 2, 0, bytes(32), NOT_SEEN, Abort("x"))
    assert "another member's name" in await refuses(server, 1, sign_frame(world.keys[1], body))


@pytest.mark.parametrize("position", [0, 5, 40, 100, -1])
async def test_tampered_bytes_are_refused(finished: tuple[SimulatedSession, ServerSession], position: int) -> None:
    """A frame with one flipped bit is refused wherever the bit is."""
    world, server = finished
    frame = bytearray(frames_of(world, 2)["Opening"])
    frame[position] ^= 1
    assert await refuses(server, 2, bytes(frame))
    assert await refuses(server, 2, bytes(frame[:20]))
    assert await refuses(server, 2, b"")


@pytest.mark.parametrize("wrong", ["short", "long", "other", "empty"])
async def test_wrong_upload_bytes_are_refused(tmp_path: Path, wrong: str) -> None:
    """Bytes other than the signed header's are refused, leave no file, and the true ones are still accepted."""
    world = make_session(tmp_path, dropouts=0)
    refusals: list[str] = []

    class Wrong(SessionRun):
        async def call(self, member: int, make: Any) -> Any:
            frames = self.sent.get((2, UPLOAD))
            if member == 2 and frames and not refusals:
                true = next(iter(self.uploaded[2, 0] or {b""}))
                bytes_sent = {"short": true[:-1], "long": true + b"0", "other": true[::-1], "empty": b""}[wrong]
                assert self.server is not None
                with pytest.raises(ProtocolViolation, match="party 2: sends") as refusal:
                    await self.server.upload(2, next(iter(frames)), parts_of(bytes_sent))
                refusals.append(str(refusal.value))
                assert [path.name for path in (world.home(0) / "uploads").glob("2*")] == []
            return await super().call(member, make)

    ending = await Wrong(world).run()
    assert refusals
    assert np.array_equal(ending.total, world.total((1, 2, 3)))


async def test_upload_of_another_length_is_refused(tmp_path: Path) -> None:
    """A client whose header announces another length than the plan's is refused and counts as dropped."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    world.vectors[3] = world.vectors[3][:-1]
    ending = await SessionRun(world).run()
    assert ending.server.members == (1, 2, 4)
    assert isinstance(ending.clients[3], ServerAway)
    assert "announces 52 bytes" in ending.clients[3].said
    assert isinstance(ending.clients[1], Outcome)


async def test_upload_without_a_frame_is_refused(fresh: Any) -> None:
    """Bytes that no frame announces are no upload, and no file is left of them."""
    world, server = fresh
    with pytest.raises(MalformedMessage):
        await server.upload(1, b"", parts_of(b"vector"))
    assert list((world.home(0) / "uploads").iterdir()) == []


async def test_questions_about_another_plan_are_refused(fresh: Any) -> None:
    """Whoever asks for a step of another plan is told so, with the digests of both, and may ask again."""
    world, server = fresh
    with pytest.raises(NotNow, match="the server runs another plan") as refusal:
        await server.fetch(1, bytes([7]) * 32, "Directory", 0.0)
    assert world.setup.plan.digest.hex() in refusal.value.problem
    assert "0707070707070707" in refusal.value.problem


async def test_nothing_is_due_before_its_time(fresh: Any) -> None:
    """A question for a step that is not there yet is answered with nothing, for names of no step too."""
    world, server = fresh
    for step in ("Directory", "Outcome", "Nonsense"):
        assert await server.fetch(1, world.setup.context.round_digest, step, 0.0) is None


async def test_abort_of_a_client_is_recorded(tmp_path: Path) -> None:
    """A client that leaves with a signed reason is left out, and its reason is in the server's transcript."""
    world = make_session(tmp_path, clients=4, dropouts=1)
    federation = SessionRun(world)
    said: list[bytes] = []

    class Leaving(SessionRun):
        async def call(self, member: int, make: Any) -> Any:
            if member == 3 and not said:
                said.append(signed(world, 3, Abort("the power fails")))
                await super().call(3, lambda server: server.submit(3, said[0]))
                raise SessionAborted("left")
            return await super().call(member, make)

    federation = Leaving(world)
    ending = await federation.run()
    assert ending.server.members == (1, 2, 4)
    assert said[0] in [record.content for record in read_transcript(world.transcript(0))]
