"""A party that is killed at any write, under a server that lies: no life takes what another life would have refused.

The server lies to one client or helper at one step: in every life of it, or from its second life on, so that what it
says contradicts what the dead one has heard. The long tests kill at every write, the others around the lie.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import SecaggError, SessionAborted
from secagg.protection.encryption.messages import EncryptedUpload, OpenedSum, PublishedKey, SumRequest
from secagg.protection.encryption.server import CiphertextsToAdd
from secagg.protection.masking.messages import Dealing, Directory, Endorsement, Inbox, Opening, Quorum, Survivors
from secagg.protection.messages import Abort, Acknowledgement, Confirmation, Outcome, UploadHeader
from secagg.protection.sharing.messages import (
    SessionKeys,
    SetLists,
    SetPledges,
    ShareManifest,
    ShareReceipt,
    SumPledges,
    SumShare,
)
from secagg.session import ServerSession
from secagg.session.outcome import HEAD_FILE
from secagg.session.staging import read_vector
from secagg.transcript import FrameBody, Journal, payload_of, peek, read_transcript, sign_frame
from secagg.wire import encode, tag_of
from tests.worlds.crashes import Crash, Fuse
from tests.worlds.session import SessionRun, SimulatedSession, make_session

SERVER, ME, HELPER = 0, 2, 5


@dataclass(frozen=True)
class Lie:
    """What the server says in place of a `message`; the `answer` to the truth is what the lie must not get."""

    protection: str
    victim: int
    message: type
    answer: type
    change: Callable[[SessionRun, Any], Any]
    is_refused: bool = True

    def __str__(self) -> str:
        kind = "" if self.is_refused else "-another"
        return f"{self.protection}-{'client' if self.victim == ME else 'helper'}-{tag_of(self.message)}{kind}"


def unsigned(_: SessionRun, told: Any) -> Any:
    """The message without its signature."""
    return replace(told, signature=bytes(64))


def without_last(field: str) -> Callable[[SessionRun, Any], Any]:
    """The message without the last one of its entries."""
    return lambda _, told: replace(told, **{field: getattr(told, field)[:-1]})


def among(*members: int) -> Callable[[SessionRun, Any], Any]:
    """The message about these members alone."""
    return lambda _, told: replace(told, members=members)


def directory_without_last(_: SessionRun, told: Directory) -> Directory:
    """Three of the four clients, who could do without the fourth."""
    return Directory(told.entries[:-1])


def inbox_without_last(_: SessionRun, told: Inbox) -> Inbox:
    """The shares of three dealers, who could do without the fourth."""
    return Inbox(told.dealers[:-1], tuple(each for each in told.shares if each.dealer in told.dealers[:-1]))


def sum_of_others(run: SessionRun, told: SumRequest) -> SumRequest:
    """The true sum of one client fewer, rightly declared and signed."""
    world, home = run.world, run.world.home(SERVER)
    others = CiphertextsToAdd(world.setup.context, told.declaration.uploads[:-1])  # type: ignore[arg-type]
    for upload in told.declaration.uploads[:-1]:
        name = world.setup.roster.name(upload.member)
        others.add(upload.member, read_vector(home, name, upload.member, upload.digest))
    return others.request(world.keys[SERVER])


def false_sum(_: SessionRun, told: SumRequest) -> SumRequest:
    """Another sum than the declared one."""
    return replace(told, packed=bytes(len(told.packed)))


def pledge_unsigned(_: SessionRun, told: Any) -> Any:
    """One of the aggregators' words without its signature."""
    return replace(told, pledges=(*told.pledges[:-1], unsigned(_, told.pledges[-1])))


def with_other_head(_: SessionRun, told: Outcome) -> Outcome:
    """The outcome with another head's digest."""
    return replace(told, head_sha256=b"f" * 32)


LIES = [
    Lie("masked", ME, Directory, Dealing, lambda _, told: Directory(told.entries[2:])),
    Lie("masked", ME, Directory, Dealing, directory_without_last, is_refused=False),
    Lie("masked", ME, Inbox, UploadHeader, without_last("shares")),
    Lie("masked", ME, Inbox, UploadHeader, inbox_without_last, is_refused=False),
    Lie("masked", ME, Survivors, Endorsement, among(1, 3, 4)),
    Lie("masked", ME, Survivors, Endorsement, among(1, 2, 3), is_refused=False),
    Lie("masked", ME, Quorum, Opening, without_last("endorsements")),
    Lie("masked", ME, Outcome, Acknowledgement, among(1, 2, 3)),
    Lie("masked", ME, Outcome, Acknowledgement, with_other_head),
    Lie("shared", ME, SessionKeys, ShareManifest, pledge_unsigned),
    Lie("shared", ME, Outcome, Acknowledgement, among(2, 3)),
    Lie("shared", HELPER, SessionKeys, ShareReceipt, pledge_unsigned, is_refused=False),  # it uses no key of others
    Lie("shared", HELPER, SetPledges, SetLists, pledge_unsigned),
    Lie("shared", HELPER, SetLists, SumPledges, without_last("lists")),
    Lie("shared", HELPER, SumPledges, SumShare, pledge_unsigned),
    Lie("shared", HELPER, Outcome, Acknowledgement, among(1, 2, 3)),
    Lie("encrypted", ME, PublishedKey, EncryptedUpload, unsigned),
    Lie("encrypted", ME, Outcome, Acknowledgement, among(2, 3)),
    Lie("encrypted", HELPER, SumRequest, OpenedSum, false_sum),
    Lie("encrypted", HELPER, SumRequest, OpenedSum, sum_of_others, is_refused=False),
    Lie("encrypted", HELPER, Outcome, Acknowledgement, among(1, 2, 3)),
    *(
        Lie(protection, victim, Confirmation, Confirmation, without_last("acknowledgements"))
        for protection, victim in (("masked", ME), ("shared", ME), ("shared", HELPER))
    ),
]
"""Each is refused at once, but for those that a client which had heard nothing else might believe."""


class Lying(SessionRun):
    """A federation whose server tells a lie to its victim: in every life of it, or only once it was killed."""

    def __init__(self, world: SimulatedSession, lie: Lie, fuse: Fuse, *, later: bool) -> None:
        super().__init__(world, {lie.victim: fuse})
        self._lie, self._later, self.has_died = lie, later, False
        burning = fuse.burn

        def burn(name: str) -> None:
            try:
                burning(name)
            except Crash:
                self.has_died = True
                raise

        fuse.burn = burn  # type: ignore[method-assign]

    def new_server(self, journal: Journal) -> ServerSession:
        """The liar."""
        server = super().new_server(journal)
        fetching, taking, lie = server.fetch, server.upload, self._lie

        async def upload(member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
            answer = await taking(member, frame, parts)  # kept back at first, so that it comes after a later step
            return answer if self.has_died or not self._later or member != lie.victim else b""

        async def fetch(member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
            frame = await fetching(member, round_digest, step, patience)
            is_due = member == lie.victim and (self.has_died or not self._later)
            if not frame or not is_due or peek(frame).step != tag_of(lie.message):
                return frame
            body: FrameBody = peek(frame)
            told = lie.change(self, payload_of(body, lie.message))
            return sign_frame(self.world.keys[SERVER], replace(body, payload=encode(told)))

        server.fetch, server.upload = fetch, upload  # type: ignore[method-assign]
        return server


class AfterStep(Fuse):
    """Kills its party at a write after it has written down the server's message of a step; `writes` says which."""

    def __init__(self, transcript: Path, step: str, writes: int) -> None:
        super().__init__()
        self._transcript, self._step, self._left = transcript, step, writes
        self._has_heard = False

    def burn(self, name: str) -> None:
        """Count the writes from that one on, and die once."""
        if name == "after record received" and not self._has_heard:
            last = read_transcript(self._transcript)[-1].content
            self._has_heard = peek(last).step == self._step and peek(last).sender == SERVER
        if self._has_heard and _is_write(name):
            self._left -= 1
            if self._left == -1:
                raise Crash(name)
        super().burn(name)


def _is_write(name: str) -> bool:
    return "record" in name or "memory" in name


def world_of(folder: Path, lie: Lie) -> SimulatedSession:
    """Four clients of whom one may be missing."""
    return make_session(folder, clients=4, protection=lie.protection, dropouts=1, colluders=0)


async def check(folder: Path, lie: Lie, make_fuse: Callable[[SimulatedSession], Fuse], *, later: bool) -> bool:
    """Run a session with a lie and a death, hold the victim to what one life would have done; say whether it died."""
    world = world_of(folder, lie)
    run = Lying(world, lie, make_fuse(world), later=later)
    ending = await run.run()
    end = {**ending.clients, **ending.helpers}[lie.victim]
    answers = {step for member, step in run.sent if member == lie.victim}
    assert all(len(run.sent[key]) == 1 for key in run.sent if key[0] == lie.victim and key[1] != tag_of(Abort))
    if later or not lie.is_refused:
        assert isinstance(end, SecaggError) or end == ending.server
    else:
        assert isinstance(end, SessionAborted), end
        assert tag_of(lie.answer) not in {step.partition(" ")[0] for step in answers}
    assert (world.home(lie.victim) / HEAD_FILE).exists() <= (end == ending.server)
    records = read_transcript(world.transcript(lie.victim), torn_tail_allowed=True)
    heard = [peek(each.content) for each in records if each.kind == "received"]
    steps = [body.step for body in heard if body.sender == SERVER]
    assert len(set(steps)) == len(steps)
    return run.has_died


@pytest.mark.parametrize("later", [False, True], ids=["in every life", "from the second life on"])
@pytest.mark.parametrize("lie", LIES, ids=str)
async def test_lie_around_a_death(tmp_path: Path, lie: Lie, later: bool, subtests: Any) -> None:
    """The party dies when the message is on its disk, or when its own next state is; nobody has two answers of it."""
    for writes in (0, 2):
        with subtests.test(writes=writes):
            has_died = await check(
                tmp_path / str(writes),
                lie,
                lambda world, writes=writes: AfterStep(world.transcript(lie.victim), tag_of(lie.message), writes),
                later=later,
            )
            assert has_died or writes


@pytest.mark.long
@pytest.mark.parametrize("later", [False, True], ids=["in every life", "from the second life on"])
@pytest.mark.parametrize("lie", LIES, ids=str)
async def test_lie_and_a_death_at_every_write(tmp_path: Path, lie: Lie, later: bool, subtests: Any) -> None:
    """The same wherever the party dies: before the lie, behind it, or as it leaves because of it."""
    counted = Fuse()
    await check(tmp_path / "counted", lie, lambda world: counted, later=later)
    for point, name in enumerate(counted.points):
        if _is_write(name):
            with subtests.test(point=point, name=name):
                await check(tmp_path / str(point), lie, lambda world, point=point: Fuse(point), later=later)
