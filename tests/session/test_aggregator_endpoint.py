"""What an aggregator's endpoint does with uploads that are early, late, repeated, tampered or for somebody else."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import BadInput, MalformedMessage, NotNow, ProtocolViolation, SessionAborted
from secagg.federation import FederationHelper
from secagg.protection.sharing.client import begin_client
from secagg.protection.sharing.messages import SessionKeys, ShareManifest
from secagg.session import AggregatorWork
from secagg.transcript import Journal, make_body, payload_of, peek, read_transcript, sign_frame
from tests.worlds.crashes import Fuse, FusedJournal
from tests.worlds.hosts import parts_of
from tests.worlds.session import SessionRun, SimulatedSession, make_session

ME, FIRST, SECOND = 2, 4, 5
REFUSED = (ProtocolViolation, MalformedMessage)


@dataclass
class Held:
    """An aggregator whose other clients have not come, and the upload that ME has for it."""

    world: SimulatedSession
    work: AggregatorWork
    journal: Journal
    frame: bytes
    sealed: bytes

    async def upload(self, member: int = ME, frame: bytes | None = None, sealed: bytes | None = None) -> bytes:
        """What the aggregator answers."""
        content = self.sealed if sealed is None else sealed
        return await self.work.upload(member, self.frame if frame is None else frame, parts_of(content))

    def kept(self) -> tuple[list[tuple[str, bytes]], list[bytes]]:
        """What ME has left behind at the aggregator: files and frames."""
        files = sorted((self.world.home(FIRST) / "uploads").glob(f"{ME}.*"))
        frames = [record.content for record in self.journal.records() if record.kind == "received"]
        return [(path.name, path.read_bytes()) for path in files], [each for each in frames if peek(each).sender == ME]


class Watching(SessionRun):
    """A federation in which client 3 never uploads, and ME's upload to the first aggregator is held for the test."""

    def __init__(self, world: SimulatedSession, test: Callable[[Held], Any]) -> None:
        super().__init__(world)
        self._test = test
        self.is_done = False

    def new_work(self, member: int, journal: Journal) -> AggregatorWork:
        """Put the test's hand before the first aggregator."""
        work = super().new_work(member, journal)
        if member == FIRST:
            taking = work.upload

            async def upload(sender: int, frame: bytes, parts: Any) -> bytes:
                if sender == ME and not self.is_done:
                    self.is_done = True
                    sealed = b"".join([part async for part in parts])
                    held = Held(self.world, work, journal, frame, sealed)
                    work.upload = taking  # type: ignore[method-assign]
                    await self._test(held)
                    return await taking(sender, frame, parts_of(sealed))
                return await taking(sender, frame, parts)

            work.upload = upload  # type: ignore[method-assign]
        return work


async def holding(folder: Path, test: Callable[[Held], Any]) -> SessionRun:
    """Run a session in which the test acts while the first aggregator collects; all three clients are in the sum."""
    world = make_session(folder, protection="shared", dropouts=0, join_seconds=30, step_seconds=30)
    federation = Watching(world, test)
    ending = await federation.run()
    assert federation.is_done
    assert ending.server.members == (1, 2, 3)
    assert ending.total.tolist() == world.total((1, 2, 3)).tolist()
    return federation


def signed(held: Held, **change: Any) -> bytes:
    """ME's frame with another body, signed by `key`."""
    key = change.pop("key", ME)
    return sign_frame(held.world.keys[key], replace(peek(held.frame), **change))


@pytest.mark.parametrize("damage", ["flip", "last flip", "cut", "longer", "empty", "other share"])
async def test_tampered_share_is_refused(tmp_path: Path, damage: str) -> None:
    """Bytes other than the signed share are refused, leave no file and no record, and the true ones still count."""

    async def act(held: Held) -> None:
        true = held.sealed
        damaged = {
            "flip": bytes([true[0] ^ 1]) + true[1:],
            "last flip": true[:-1] + bytes([true[-1] ^ 1]),
            "cut": true[:-1],
            "longer": true + b"0",
            "empty": b"",
            "other share": true[::-1],
        }[damage]
        with pytest.raises(ProtocolViolation, match="party 2: "):
            await held.upload(sealed=damaged)
        assert held.kept() == ([], [])

    await holding(tmp_path, act)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": 3}, "not signed by its identity"),
        ({"sender": 3}, "another member's name"),
        ({"receiver": SECOND}, "addressed to another member"),
        ({"receiver": 0}, "addressed to another member"),
        ({"round_digest": bytes(32)}, "another session or plan"),
        ({"step": "SumShare"}, "ShareManifest is awaited"),
        ({"payload": b"\x08\x02"}, "malformed"),
    ],
    ids=str,
)
async def test_frame_that_is_not_what_it_claims_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """Another signer, member, aggregator, session or message is refused and leaves no record."""

    async def act(held: Held) -> None:
        with pytest.raises(REFUSED, match=words):
            await held.upload(frame=signed(held, **change))
        assert held.kept() == ([], [])

    await holding(tmp_path, act)


@pytest.mark.parametrize("position", [0, 5, 60, 200, -1])
async def test_tampered_frame_is_refused(tmp_path: Path, position: int) -> None:
    """A frame with one flipped bit, or cut, is refused wherever the bit is."""

    async def act(held: Held) -> None:
        frame = bytearray(held.frame)
        frame[position] ^= 1
        for damaged in (bytes(frame), held.frame[:position], b""):
            with pytest.raises(REFUSED):
                await held.upload(frame=damaged)

    await holding(tmp_path, act)


async def test_manifest_of_another_client_is_refused(tmp_path: Path) -> None:
    """A client cannot upload what another has signed, nor a manifest with a share too few."""

    async def act(held: Held) -> None:
        manifest: ShareManifest = payload_of(peek(held.frame), ShareManifest)
        for changed in (replace(manifest, client=3), replace(manifest, digests=(*manifest.digests, bytes(32)))):
            body = make_body(held.world.setup.context.round_digest, ME, FIRST, bytes(32), bytes(32), changed)
            with pytest.raises(ProtocolViolation, match="did not sign as its own"):
                await held.upload(frame=sign_frame(held.world.keys[ME], body))

    await holding(tmp_path, act)


async def test_receipt_is_the_same_each_time(tmp_path: Path) -> None:
    """The same upload again is answered by the same bytes, whatever comes behind the frame, and writes nothing."""

    async def act(held: Held) -> None:
        receipt = await held.upload()
        before = held.kept()
        assert await held.upload() == receipt
        assert await held.upload(sealed=b"anything") == receipt
        assert held.kept() == before

    await holding(tmp_path, act)


async def test_second_different_upload_is_refused(tmp_path: Path) -> None:
    """A client that has its receipt cannot exchange its share, even for one that it signed; the first one counts."""

    async def act(held: Held) -> None:
        look, held.work._look = held.work._look, lambda: None  # type: ignore[method-assign]  # not yet complete
        receipt = await held.upload()
        before = held.kept()
        other = await _other_upload(held)
        with pytest.raises(ProtocolViolation, match="second, different upload"):
            await held.upload(frame=other[0], sealed=other[1])
        assert held.kept() == before
        assert await held.upload() == receipt
        held.work._look = look  # type: ignore[method-assign]
        look()

    await holding(tmp_path, act)


async def _other_upload(held: Held) -> tuple[bytes, bytes]:
    """Another whole upload of ME for the same session keys, drawn afresh."""
    world = held.world
    context, me = world.setup.context, SessionRun(world).me(ME)
    records = read_transcript(world.transcript(ME))
    shown = next(record.content for record in records if record.kind == "received")
    state: Any = begin_client(context, me).state
    ready = state.advance(context, me, payload_of(peek(shown), SessionKeys)).state
    drawn = ready.protect(context, me, context.ring.encode(world.vectors[ME]))
    body = make_body(context.round_digest, ME, FIRST, bytes(32), bytes(32), drawn.outgoing)
    return sign_frame(world.keys[ME], body), drawn.vector[: len(held.sealed)]


async def test_receipts_outlive_restart_and_close(tmp_path: Path) -> None:
    """After the end, and after a restart, a known upload has the same receipt; anything new comes too late."""
    world = make_session(tmp_path, protection="shared")
    federation = SessionRun(world)
    await federation.run()
    records = read_transcript(world.transcript(ME))
    frame = next(each.content for each in records if each.kind == "sent" and peek(each.content).receiver == FIRST)
    receipt = next(each.content for each in records if each.kind == "received" and peek(each.content).sender == FIRST)
    sealed = (world.home(FIRST) / "uploads" / f"{ME}.bin").read_bytes()
    with closing(FusedJournal(world.transcript(FIRST), Fuse())) as journal:
        work, before = federation.new_work(FIRST, journal), journal.head
        assert await work.upload(ME, frame, parts_of(sealed)) == receipt
        other = sign_frame(world.keys[ME], replace(peek(frame), head=bytes([1]) * 32))
        with pytest.raises(SessionAborted, match="too late"):
            await work.upload(ME, other, parts_of(sealed))
        assert journal.head == before


async def test_uploads_before_the_start_are_asked_to_come_again(tmp_path: Path) -> None:
    """Before the session has begun an upload is told to try again, and only uploads are taken at all."""
    world = make_session(tmp_path, protection="shared")
    federation = SessionRun(world)
    body = make_body(
        world.setup.context.round_digest,
        ME,
        FIRST,
        bytes(32),
        bytes(32),
        ShareManifest(ME, (bytes(32),) * 2, bytes(64)),
    )
    frame = sign_frame(world.keys[ME], body)
    with closing(FusedJournal(world.transcript(FIRST), Fuse())) as journal:
        work = federation.new_work(FIRST, journal)
        with pytest.raises(NotNow, match="not take uploads of this session yet"):
            await work.upload(ME, frame, parts_of(b""))
    second = FederationHelper(world.setup, federation.me(FIRST), tmp_path / "state", lambda text: None)
    with pytest.raises(NotNow, match="not take uploads of this session yet"):
        await second.upload(ME, frame, parts_of(b""))
    with pytest.raises(ProtocolViolation, match="party 2: "):
        await second.submit(ME, frame)
    with pytest.raises(ProtocolViolation, match="party 2: "):
        await second.fetch(ME, world.setup.context.round_digest, "Outcome", 0.0)


def test_only_aggregators_collect(tmp_path: Path) -> None:
    """Under another protection there is nothing for an aggregator to collect."""
    world = make_session(tmp_path, protection="masked")
    with closing(Journal(world.transcript(1))) as journal, pytest.raises(BadInput, match="no aggregators"):
        AggregatorWork(world.setup, SessionRun(world).me(1), world.home(1), journal)
