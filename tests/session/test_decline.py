"""A client's decline: nobody waits for it, no threshold moves, and no upload is undone."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from secagg.crypto.signatures import SigningKey
from secagg.errors import LeftBehind, MalformedMessage, ProtocolViolation, ServerAway, SessionAborted
from secagg.federation.declining import send_decline
from secagg.protection.messages import MAX_DECLINE_REASON, Abort, Decline, Outcome
from secagg.session import ServerSession
from secagg.session.status import status_of
from secagg.transcript import NOT_SEEN, make_body, payload_of, peek, read_transcript, sign_frame
from secagg.verification.transcript_series import verify_transcript
from tests.session.test_turns import first_frame, received
from tests.worlds.crashes import Fuse, FusedJournal
from tests.worlds.hosts import Left
from tests.worlds.session import Ending, SessionRun, SimulatedSession, Wire, make_session

NEVER = {"join_seconds": 3600, "step_seconds": 3600}
"""Whoever waited for a client that has declined would not end within the patience of a test."""
FIRST_STEPS = {"masked": "Dealing", "shared": "ShareManifest to aggregator-1", "encrypted": "EncryptedUpload"}
"""The message before which a client that takes part already declines."""
PROTECTIONS = pytest.mark.parametrize("protection", FIRST_STEPS)


class Declining(SessionRun):
    """A session in which some clients decline: before they have sent anything, or before their message of a step."""

    def __init__(self, world: SimulatedSession, declining: Mapping[int, str | None]) -> None:
        super().__init__(world)
        self._declining = declining
        self.heard: dict[int, tuple[str, ...]] = {}

    async def client(self, member: int, leaves: str | None = None) -> Outcome:
        """A client, which may decline and is then gone."""
        step = self._declining.get(member, leaves)
        try:
            if member in self._declining and step is None:
                raise Left
            return await super().client(member, step)
        except Left:
            wires = {index: Wire(self, member, receiver=index) for index in self.hosts}
            self.heard[member] = await send_decline(self.world.setup, self.me(member), "no power", wires)
            raise


async def declined(folder: Path, protection: str, declining: Mapping[int, str | None], **more: Any) -> Declining:
    """The end of a session of four clients, one of which may be missing, in which these decline."""
    world = make_session(folder, clients=4, protection=protection, dropouts=1, **{**NEVER, **more})
    federation = Declining(world, declining)
    federation.ending = await federation.run()  # type: ignore[attr-defined]
    return federation


def ending_of(federation: Declining) -> Ending:
    """How the parties of a session have ended."""
    found: Ending = federation.ending  # type: ignore[attr-defined]
    return found


@PROTECTIONS
@pytest.mark.parametrize("is_joined", [False, True])
async def test_others_go_on_at_once(tmp_path: Path, protection: str, is_joined: bool) -> None:
    """Where enough remain, nobody waits for a client that declines before or after it joins, and their sum is right."""
    federation = await declined(tmp_path, protection, {3: FIRST_STEPS[protection] if is_joined else None})
    world, ending = federation.world, ending_of(federation)
    assert ending.server.members == (1, 2, 4)
    assert ending.total.tolist() == world.total((1, 2, 4)).tolist()
    assert isinstance(ending.clients.pop(3), Left)
    assert all(outcome == ending.server for outcome in ending.clients.values())
    assert federation.heard[3] == tuple(world.setup.roster.name(index) for index in federation.hosts)
    assert status_of(world.home(0)).declined == ("client-3",)
    assert verify_transcript(world.transcript(0))["members"] == ["client-1", "client-2", "client-4"]


@PROTECTIONS
@pytest.mark.parametrize("is_joined", [False, True])
async def test_session_ends_at_once_below_the_threshold(tmp_path: Path, protection: str, is_joined: bool) -> None:
    """Where too few remain, the session ends at once with the names of who declined: no decline lowers a threshold."""
    step = FIRST_STEPS[protection] if is_joined else None
    federation = await declined(tmp_path, protection, {2: step, 3: step})
    world, ending = federation.world, ending_of(federation)
    assert isinstance(ending.server, SessionAborted)
    assert "declined: client-2, client-3" in ending.server.reason
    assert ending.total is None
    assert "no power" not in ending.server.reason  # the reason is for those who waited alone
    for end in (ending.clients[1], ending.clients[4]):
        if protection != "masked" and isinstance(end, ServerAway):
            assert "too late" in end.said  # its upload came just as the session ended: it will ask again, and hear why
        else:
            assert isinstance(end, SessionAborted)
            assert ending.server.reason in end.reason
    assert all(isinstance(end, SessionAborted) for end in ending.helpers.values())
    assert ending.server.reason in verify_transcript(world.transcript(0))["session"]


async def test_decline_after_the_upload_removes_nothing(tmp_path: Path) -> None:
    """A client that declines after its upload is refused, and stays in the sum."""
    federation = await declined(tmp_path, "masked", {3: "Endorsement"}, step_seconds=1)
    ending = ending_of(federation)
    assert ending.server.members == (1, 2, 3, 4)
    assert federation.heard[3] == ()
    assert ("client-3", "Decline") not in received(federation.world)


async def test_aggregator_refuses_a_decline_after_the_upload(tmp_path: Path) -> None:
    """An aggregator that has a client's upload refuses its decline; another that has none does not wait for it."""
    federation = await declined(tmp_path, "shared", {3: "ShareManifest to aggregator-2"})
    assert federation.heard[3] == ("server", "aggregator-2")
    assert ending_of(federation).server.members == (1, 2, 4)


@dataclass
class Waiting:
    """A server that waits for its four clients to join, one of which may be missing."""

    world: SimulatedSession
    session: ServerSession

    def frame(self, member: int = 3, reason: str = "", key: SigningKey | None = None, **change: Any) -> bytes:
        """A client's decline, with another body or key where a test wants one."""
        body = make_body(self.world.setup.context.round_digest, member, 0, NOT_SEEN, NOT_SEEN, Decline(reason))
        return sign_frame(key or self.world.keys[member], replace(body, **change))

    async def joins(self, *members: int) -> None:
        """These clients send their keys."""
        for member in members:
            await self.session.submit(member, await first_frame(self.world, member))

    @property
    def awaited(self) -> tuple[str, ...]:
        """The clients that are waited for."""
        return self.session._protocol.waiting_for


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Waiting]:
    """A server to which nobody has spoken yet."""
    world = make_session(tmp_path, clients=4, dropouts=1, **NEVER)
    with closing(FusedJournal(world.transcript(0), Fuse())) as journal:
        yield Waiting(world, SessionRun(world).new_server(journal))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": 2}, "not signed by its identity"),
        ({"sender": 2}, "in another member's name"),
        ({"receiver": 5}, "addressed to another member"),
        ({"round_digest": bytes(32)}, "another session or plan"),
        ({"head": bytes(31) + b"1"}, "belongs to its transcript"),
        ({"seen": bytes(31) + b"1"}, "another transcript"),
        ({"payload": b"\x0a\xc9\x01" + b"x" * (MAX_DECLINE_REASON + 1)}, "length 201"),
        ({"payload": b"\x0a\x03a\nb"}, "cannot be shown"),
        ({"payload": b"\x12\x01x"}, "malformed"),
        ({"payload": b"\x0a\x05x"}, "malformed"),
    ],
)
async def test_bad_decline_is_refused(server: Waiting, change: dict[str, Any], words: str) -> None:
    """A decline that is forged, of another plan or round, for somebody else, oversized or truncated changes nothing."""
    key = server.world.keys[change.pop("key")] if "key" in change else None
    with pytest.raises((ProtocolViolation, MalformedMessage), match=words):
        await server.session.submit(3, server.frame(key=key, **change))
    assert "client-3" in server.awaited
    assert received(server.world) == []


async def test_decline_of_another_session_is_refused(server: Waiting) -> None:
    """A decline of one session, replayed in the next of the same parties, is refused."""
    later = server.world.again()
    with closing(FusedJournal(later.transcript(0), Fuse())) as journal:
        session = SessionRun(later).new_server(journal)
        with pytest.raises(ProtocolViolation, match="another session or plan"):
            await session.submit(3, server.frame())


async def test_only_clients_decline(tmp_path: Path) -> None:
    """A helper's decline is refused: without it there is no sum."""
    world = make_session(tmp_path, clients=4, protection="encrypted", dropouts=1, **NEVER)
    with closing(FusedJournal(world.transcript(0), Fuse())) as journal:
        waiting = Waiting(world, SessionRun(world).new_server(journal))
        with pytest.raises(ProtocolViolation, match="no client"):
            await waiting.session.submit(5, waiting.frame(5))


async def test_decline_counts_once(server: Waiting) -> None:
    """A second decline, for another reason too, changes nothing and is in no record."""
    for reason in ("", "", "holiday"):
        assert await server.session.submit(3, server.frame(reason=reason)) == b""
    assert server.awaited == ("client-1", "client-2", "client-4")
    assert received(server.world) == [(3, "Decline")]


async def test_client_that_comes_back_withdraws_its_decline(server: Waiting) -> None:
    """Who declines and then joins takes part, in a restarted server's memory too; it declines no second time."""
    await server.session.submit(3, server.frame())
    assert server.session.declined == ("client-3",)
    await server.joins(3)
    await server.session.submit(3, server.frame())
    assert server.session.declined == ()
    assert received(server.world) == [(3, "Decline"), (3, "KeyAdvertisement")]
    server.session._journal.close()
    with closing(FusedJournal(server.world.transcript(0), Fuse())) as journal:
        assert SessionRun(server.world).new_server(journal).declined == ()


async def test_what_was_sent_before_a_decline_counts(server: Waiting) -> None:
    """Who joins and then declines has joined; the same message again changes nothing, and nobody waits for the next."""
    await server.joins(3)
    await server.session.submit(3, server.frame())
    await server.joins(3, 1, 2, 4)
    assert received(server.world)[:3] == [(3, "KeyAdvertisement"), (3, "Decline"), (1, "KeyAdvertisement")]
    server.session._protocol.close()
    assert server.session._protocol.recipients["Directory"] == {1, 2, 3, 4}
    assert server.awaited == ("client-1", "client-2", "client-4")


async def test_client_that_comes_back_too_late_is_left_out(tmp_path: Path) -> None:
    """Who declines and comes back after the others have gone on is left out, like anybody who answers too late."""

    class ComingBack(Declining):
        async def client(self, member: int, leaves: str | None = None) -> Outcome:
            if member not in self._declining:
                return await super().client(member, leaves)
            with pytest.raises(Left):
                await super().client(member)
            while self.server is None or self.server.outcome is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return await SessionRun.client(self, member)

    world = make_session(tmp_path, clients=4, dropouts=1, **NEVER)
    ending = await ComingBack(world, {3: None}).run()
    assert ending.server.members == (1, 2, 4)
    assert isinstance(ending.clients[3], LeftBehind)


async def test_restarted_server_remembers_a_decline(server: Waiting) -> None:
    """A server that is started again does not wait for a client that has declined before."""
    await server.session.submit(3, server.frame(reason="no power"))
    server.session._journal.close()
    with closing(FusedJournal(server.world.transcript(0), Fuse())) as journal:
        again = SessionRun(server.world).new_server(journal)
        assert again.declined == ("client-3",)
        assert "client-3" not in again._protocol.waiting_for


async def test_decline_stands_outside_the_transcripts(server: Waiting) -> None:
    """The reason is in the server's transcript alone, in a frame whose heads are zero."""
    await server.session.submit(3, server.frame(reason="no power"))
    (frame,) = [peek(each.content) for each in read_transcript(server.world.transcript(0)) if each.kind == "received"]
    assert payload_of(frame, Decline).reason == "no power"
    assert (frame.head, frame.seen) == (NOT_SEEN, NOT_SEEN)


async def test_client_that_left_and_one_that_declined_count_together(server: Waiting) -> None:
    """A session ends once those that left for good and those that declined are too many for its threshold."""
    body = make_body(server.world.setup.context.round_digest, 1, 0, NOT_SEEN, NOT_SEEN, Abort("broken"))
    await server.session.submit(1, sign_frame(server.world.keys[1], body))
    await server.session.submit(3, server.frame())
    async with asyncio.timeout(10):
        with pytest.raises(SessionAborted, match=r"only 2 of 4 clients are left; at least 3 .*declined: client-3"):
            await server.session.decide()
