"""Clients that were away return in a later round, where the plan lets them: on the word of t others, and on no less."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from methods import METHODS
from methods.method import Parameters, SimpleMethod, SumSpec
from methods.round import Contribution, Local, OpenedTotal, Round, Step
from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Block, Grid, Kind
from secagg.errors import MalformedMessage, ProtocolViolation, SessionAborted, TranscriptInvalid
from secagg.federation import FederationServer, session_folder
from secagg.federation import client as returning
from secagg.heads import LinearHead
from secagg.plan_facts.facts import may_return, witnesses_of
from secagg.privacy import Unit
from secagg.protection.messages import Acknowledgement, Attachment, Return, RoundOpening
from secagg.session import RoundSetup
from secagg.session.attachments import opening_file
from secagg.session.rounds import follow_return, show_return
from secagg.session.sealed_state import recall_state
from secagg.session.transcripts import next_return
from secagg.transcript import FILE_NAME, NOT_SEEN, Journal, make_body, read_transcript, sign_frame
from secagg.transport import Link, limits, serve
from secagg.verification.transcript_series import verify_together, verify_transcript
from secagg.verification.verification import NOTHING_BROUGHT, Verified
from secagg.wire import decode, encode
from tests.worlds.federation import Ending, FederationRun, Finished, SimulatedFederation, opened
from tests.worlds.hosts import Left
from tests.worlds.setups import make_setup
from threat_models.active.consortium import NOISY, Consortium
from threat_models.active.stage import ignore, take_plan

EVERYONE = (1, 2, 3, 4)
AWAY = 2
OTHERS = (1, 3, 4)
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None}


@dataclass(frozen=True)
class Logbook(SimpleMethod):
    """Five sums of one number: a member's index, plus ten for each round before that left it a page.

    The public state is the total of all sums.
    """

    name: ClassVar[str] = "logbook"
    number: int = 1
    total: int = 0

    @property
    def parameters(self) -> Parameters:
        """None."""
        return {}

    @property
    def is_self_contained(self) -> bool:
        """Yes: number and total."""
        return True

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One entry, five times."""
        block = Block("pages", (1,), bound=1 << 20, kind=Kind.OTHER)
        return (SumSpec((block,), (), "equal", per=Unit.CLIENT, times=5, is_additive=False, refusal="it is a test"),)

    def contribute(self, local: Local) -> Contribution:
        """A page more is left each time."""
        return Contribution({"pages": np.array([local.member + 10 * len(local.state)])}, local.state + b"p")

    def finalize(self, opened: OpenedTotal) -> Step:
        """A head of zeros after the fifth."""
        if self.number < 5:
            return Step(
                next_round=replace(self, number=self.number + 1, total=self.total + int(opened.blocks["pages"][0]))
            )
        return Step(LinearHead(np.zeros((3, 4), dtype=np.float32), np.zeros(3, dtype=np.float32)))

    def broadcast(self) -> bytes:
        """The round's number, and the total."""
        return bytes([self.number, self.total])

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        """The next."""
        return self.from_broadcast(self.number + 1, broadcast, grid)

    def from_broadcast(self, number: int, broadcast: bytes, grid: Grid) -> Round:
        """Any."""
        if len(broadcast) != 2 or broadcast[0] != number:
            raise MalformedMessage("broadcast", f"it does not open round {number}")
        return replace(self, number=number, total=broadcast[1])

    def require_equal(self, told: Round) -> None:
        """It is the same."""
        if told != self:
            raise ProtocolViolation(SERVER_INDEX, "another total")


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """The method is in the registry; who was away knocks often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "logbook", Logbook)  # type: ignore[arg-type]
        patch.setattr(returning, "KNOCK_SECONDS", 0.02)
        yield


def world_of(folder: Path, **choices: Any) -> SimulatedFederation:
    """Four members, of whom one may vanish and one collude: three must have signed for who was away."""
    fixed = {"method": "logbook", "parameters": (), "join_seconds": 2, "step_seconds": 1, "round_seconds": 2, **EXACT}
    return SimulatedFederation.of(folder, refine=0, radius=100.0, **{**fixed, **choices})


FIRST = ("KeyAdvertisement", "ShareManifest", "EncryptedUpload")
"""What a client says first, under each protection."""


@dataclass
class Absence(FederationRun):
    """A run in which one client leaves before round 2, and comes back once the others are about to begin round 4.

    They wait there until it has come, so that it is seen to return in a round that is open; then it is the slowest.
    """

    is_due: asyncio.Event = field(default_factory=asyncio.Event)
    is_back: asyncio.Event = field(default_factory=asyncio.Event)
    lives: int = 1
    knocks: int = 0
    read: list[int] = field(default_factory=list)

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Let the one leave, and the others wait for it."""
        number = self.number_of(plan)
        if member != AWAY:
            if number == 4 and member in OTHERS:
                self.is_due.set()
                await self.is_back.wait()
            return
        self.knocks += step == Return.__name__
        if step == "Read":
            self.read.append(number)
        if number == 4:
            self.is_back.set()
            if step in FIRST:
                await asyncio.sleep(0.2)
        if number == 2 and self.lives == 1:
            raise Left

    async def _client(self, member: int) -> Any:
        while True:
            try:
                return await super()._client(member)
            except Left:
                self.lives += 1
                await self.is_due.wait()


def members_of(world: SimulatedFederation, ended: Ending) -> list[tuple[int, ...]]:
    """Who is in each opened sum, by the last outcome that the server's transcripts hold."""
    names = [verify_transcript(world.transcripts(0, (stage,))[0])["members"] for stage in ended.stages]
    return [tuple(world.setup.roster.index(name) for name in each) for each in names]


GAP = (
    "rounds 2 to 3 were not followed by this member, as far as the given transcripts tell: "
    "3 members' signatures stand for them"
)
RETURNED = [EVERYONE, OTHERS, OTHERS, EVERYONE, EVERYONE]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A masked plan in which one client was away for rounds 2 and 3."""
    world = world_of(tmp_path_factory.mktemp("finished"))
    return world, asyncio.run(Absence(world).run())


@pytest.mark.parametrize("protection", ["masked", "shared", pytest.param("encrypted", marks=pytest.mark.long)])
def test_who_was_away_for_two_rounds_is_in_the_sums_after_its_return(
    tmp_path: Path, finished: Finished, protection: str
) -> None:
    """Away for rounds 2 and 3, back in 4: its vector is in sums 4 and 5, its private state began anew, all is said."""
    world, ended = finished
    if protection != world.setup.plan.protection:
        world = world_of(tmp_path, protection=protection)
        ended = asyncio.run(Absence(world).run())
    assert members_of(world, ended) == RETURNED
    pages = [0, 0, 0, 0, 10]  # what the one that returned in round 4 has of its own before each
    expected = [sum(members) + 10 * turn * len(OTHERS) + pages[turn] for turn, members in enumerate(RETURNED)]
    assert [int(opened(world, stage)[0]) for stage in ended.stages] == expected
    assert {outcome for _, outcome in ended.clients.values()} == {ended.clients[1][1]}
    assert len(world.ledger(AWAY).entries()) == 1
    followed = [ended.stages[place] for place in (0, 3, 4)]
    assert recall_state(session_folder(world.state(AWAY), followed[-1]), followed[-1].context.round_digest) == b"pp"
    found = verify_together(world.transcripts(AWAY, tuple(followed)), NOTHING_BROUGHT)
    verdicts = [each.verdict for each in found if isinstance(each, Verified)]
    assert verdicts == [
        "verifies",
        f"consistent, but {GAP}",
        "verifies",
    ]
    assert isinstance(found[1], Verified)
    assert found[1].proves.startswith("if the rounds before it ended as 3 members have signed: ")
    for member in OTHERS:
        own = verify_together(world.transcripts(member, ended.stages), NOTHING_BROUGHT)
        assert [each.verdict for each in own if isinstance(each, Verified)] == ["verifies"] * 5


def test_who_returns_reads_the_state_once(tmp_path: Path) -> None:
    """It reads what opened the round that it returns in, whole, and of every round that it is in the sum alone."""
    run = Absence(world_of(tmp_path))
    ended = asyncio.run(run.run())
    assert members_of(run.world, ended) == RETURNED
    assert run.read == [1, 4, 4, 5]  # the state before the fourth sum
    opened_by = ended.stages[3].opening
    assert opened_by is not None
    kept = opening_file(run.world.state(AWAY), opened_by).read_bytes()
    assert kept == ended.stages[3].round.broadcast()
    assert opened_by.broadcast.names(kept)


class InTheMiddle(Absence):
    """The one comes back while the others are in the middle of round 3; they go on once it has knocked."""

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Let the others wait before they upload."""
        if member == AWAY and step == Return.__name__:
            self.is_back.set()
        if member in OTHERS and self.number_of(plan) == 3 and step == "Survivors":
            self.is_due.set()
            await self.is_back.wait()
        if member == AWAY and self.lives == 1 and self.number_of(plan) == 2:
            raise Left


def test_who_knocks_in_the_middle_of_a_round_is_waited_for_in_the_next(tmp_path: Path) -> None:
    """The server does not begin the next round's sum without a client that has knocked, however fast the others are."""
    world = world_of(tmp_path, round_seconds=1)
    ended = asyncio.run(InTheMiddle(world).run())
    assert members_of(world, ended) == RETURNED


@dataclass
class Killed(Absence):
    """The one that returned is killed as it uploads in round 4, when it had `said` so much, and started again."""

    said: list[bytes] = field(default_factory=list)

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """The second life ends at the upload."""
        await super().pause(member, plan, step)
        if member == AWAY and self.lives == 2 and step == "UploadHeader":
            self.said = frames_of(self.world)
            raise Left


def test_who_is_killed_after_its_return_sends_the_same_bytes(tmp_path: Path) -> None:
    """Started again it knocks no more, goes on in the round that it had returned in, and its vector is in the sum."""
    run = Killed(world_of(tmp_path))
    ended = asyncio.run(run.run())
    assert members_of(run.world, ended) == RETURNED
    assert (run.lives, run.knocks) == (3, 1)
    assert len(run.said) == 3
    assert frames_of(run.world)[:3] == run.said


def frames_of(world: SimulatedFederation) -> list[bytes]:
    """What the one has said in round 4, as its transcript has it."""
    shown = next_return(world.state(AWAY), world.setup.plan, 1)
    if shown is None:
        return []
    (path,) = world.transcripts(AWAY, (world.setup.at(shown.opening, rejoin=shown),))
    return [record.content for record in read_transcript(path, torn_tail_allowed=True) if record.kind == "sent"]


def kinds_of(path: Path) -> list[str]:
    """The kinds of a transcript's records."""
    return [record.kind for record in read_transcript(path)]


class Crashing(FederationRun):
    """One client dies whenever it is about to upload, and is started again each time."""

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """It never uploads in time."""
        stage = self.hosts[SERVER_INDEX].session.stages[self.number_of(plan) - 1]
        if member == AWAY and step == stage.session._protocol.awaits == "UploadHeader":
            raise Left
        if member in OTHERS and step == "KeyAdvertisement":
            await asyncio.sleep(0.2)  # so that it has the time to come back

    async def _client(self, member: int) -> Any:
        while True:
            try:
                return await super()._client(member)
            except Left:
                await asyncio.sleep(0.01)


def test_who_crashes_in_every_round_stops_nobody(tmp_path: Path) -> None:
    """It comes back for every round, joins, and dies: the others open all five sums without it."""
    world = world_of(tmp_path)
    ended = asyncio.run(Crashing(world).run())
    assert members_of(world, ended) == [OTHERS] * 5
    assert isinstance(ended.clients.pop(AWAY), SessionAborted)
    assert {outcome.members for _, outcome in ended.clients.values()} == {OTHERS}
    joined = [path for path in world.state(AWAY).rglob(FILE_NAME) if "return" in kinds_of(path)]
    assert len(joined) >= 2


def other_total(shown: Return) -> Return:
    """The way back to another state, with the signatures that there are."""
    opening = shown.opening
    return replace(shown, opening=replace(opening, broadcast=Attachment.of(bytes([opening.number, 99]))))


def test_who_is_shown_another_state_stays_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that shows a client that was away a state which the others have not signed does not get its vector."""
    world = world_of(tmp_path, round_seconds=1)
    lies = 0

    def tamper(member: int, step: str, frame: bytes) -> bytes:
        nonlocal lies
        if step != Return.__name__:
            return frame
        lies += 1
        if lies > 3:
            run.is_back.set()
        return encode(other_total(decode(Return, frame)))

    class Misled(Absence):
        async def pause(self, member: int, plan: bytes, step: str) -> None:
            """It never gets into round 4."""
            if not (member == AWAY and step == Return.__name__):
                await super().pause(member, plan, step)

    run = Misled(world, tamper=tamper)
    ended = asyncio.run(run.run())
    assert lies > 3
    end = ended.clients.pop(AWAY)
    assert isinstance(end, SessionAborted)
    assert "answered too late" in end.reason
    assert "no later round was shown to it, with 3 other clients' signatures: server: shows what" in end.reason
    assert members_of(world, ended) == [EVERYONE, *[OTHERS] * 4]
    assert all("return" not in kinds_of(path) for path in world.state(AWAY).rglob(FILE_NAME))


def signed(world: SimulatedFederation, opening: RoundOpening, sender: int, **fields: Any) -> bytes:
    """A party's acknowledgement of an opening, or of another session, sum, plan or sender where said."""
    plan = fields.get("plan", world.setup.plan.digest)
    said = Acknowledgement(fields.get("sum", opening.aggregate_sha256), opening.statement(plan), bytes(32))
    body = make_body(fields.get("session", opening.previous), fields.get("claims", sender), 0, NOT_SEEN, NOT_SEEN, said)
    return sign_frame(world.keys[sender], body)


STATE = bytes([4, 7])
OPENING = RoundOpening(4, b"s" * 32, b"a" * 32, Attachment.of(STATE))
Change = Callable[[SimulatedFederation, tuple[bytes, ...]], tuple[bytes, ...]]


def changed(**fields: Any) -> Change:
    """The first signature is of something else."""
    return lambda world, frames: (signed(world, OPENING, 1, **fields), *frames[1:])


CHANGES: dict[str, tuple[Change, str]] = {
    "too few": (lambda world, frames: frames[1:], "2 signatures of other clients"),
    "one twice": (lambda world, frames: (frames[0], frames[0], frames[1]), "one client's signature twice"),
    "two of one": (
        lambda world, frames: (signed(world, OPENING, 1), *frames[:1], *frames[2:]),
        "one client's signature twice",
    ),
    "its own": (lambda world, frames: (signed(world, OPENING, AWAY), *frames[1:]), "2 signatures of other clients"),
    "the server's": (
        lambda world, frames: (signed(world, OPENING, SERVER_INDEX), *frames[1:]),
        "whose word does not count",
    ),
    "an aggregator's": (lambda world, frames: (signed(world, OPENING, 5), *frames[1:]), "whose word does not count"),
    "a stranger's": (
        lambda world, frames: (signed(world, OPENING, 1, claims=4000), *frames[1:]),
        "whose word does not count",
    ),
    "forged": (
        lambda world, frames: (signed(world, OPENING, AWAY, claims=1), *frames[1:]),
        "not signed by its identity",
    ),
    "damaged": (lambda world, frames: (frames[0][:-1] + bytes([frames[0][-1] ^ 1]), *frames[1:]), "not signed"),
    "of another plan": (changed(plan=b"p" * 32), "signed of something else"),
    "of another session": (changed(session=b"t" * 32), "belongs to another session"),
    "of another sum": (changed(sum=b"b" * 32), "signed of something else"),
    "of another state": (
        lambda world, frames: (signed(world, replace(OPENING, broadcast=Attachment.of(bytes([4, 8]))), 1), *frames[1:]),
        "signed of something else",
    ),
    "of another round": (
        lambda world, frames: (signed(world, replace(OPENING, number=5), 1), *frames[1:]),
        "signed of something else",
    ),
    "no frame": (lambda world, frames: (b"frame", *frames[1:]), "Frame"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> SimulatedFederation:
    """A plan that nobody plays, with aggregators."""
    return world_of(tmp_path_factory.mktemp("plan"), protection="shared")


def test_three_signatures_of_others_show_the_way_back(world: SimulatedFederation) -> None:
    """With t signatures the session is the opening's own, and knows what it sums; the order does not matter."""
    frames = tuple(signed(world, OPENING, member) for member in OTHERS)
    for some in (frames, frames[::-1], (*frames, frames[0])[1:]):
        setup = follow_return(world.setup, Return(OPENING, some), AWAY, 1, STATE)
        assert (setup.number, setup.context.round_digest) == (4, OPENING.round_digest)
        assert setup.round == replace(Logbook(), number=4, total=7)


@pytest.mark.parametrize("name", CHANGES)
def test_anything_less_is_refused(world: SimulatedFederation, name: str) -> None:
    """Fewer than t valid signatures of distinct other clients on this opening of this plan show nothing."""
    change, words = CHANGES[name]
    frames = change(world, tuple(signed(world, OPENING, member) for member in OTHERS))
    with pytest.raises((ProtocolViolation, MalformedMessage), match=words) as refusal:
        follow_return(world.setup, Return(OPENING, frames), AWAY, 1)
    assert getattr(refusal.value, "culprit", SERVER_INDEX) == SERVER_INDEX


@pytest.mark.parametrize(
    ("number", "after", "words"),
    [(4, 4, "round 4, after round 4"), (3, 4, "round 3, after round 4"), (6, 1, "round 6, after round 1")],
)
def test_only_a_later_round_of_the_plan_is_a_way_back(
    world: SimulatedFederation, number: int, after: int, words: str
) -> None:
    """Signatures of everybody do not lead back into a round that was seen, or beyond the plan."""
    opening = replace(OPENING, number=number, broadcast=Attachment.of(bytes([number, 7])))
    frames = tuple(signed(world, opening, member) for member in OTHERS)
    with pytest.raises(ProtocolViolation, match=words):
        follow_return(world.setup, Return(opening, frames), AWAY, after)


def test_a_broadcast_that_opens_no_round_is_refused_however_many_sign(world: SimulatedFederation) -> None:
    """The method refuses what it cannot read, as it would in a round that it had followed."""
    opening = replace(OPENING, broadcast=Attachment.of(b"\x05\x07"))
    frames = tuple(signed(world, opening, member) for member in OTHERS)
    with pytest.raises(MalformedMessage, match="does not open round 4"):
        follow_return(world.setup, Return(opening, frames), AWAY, 1, b"\x05\x07")


def test_state_that_the_others_have_not_signed_is_refused(world: SimulatedFederation) -> None:
    """Whatever bytes are shown with t signatures: only those whose digest was signed are a way back."""
    frames = tuple(signed(world, OPENING, member) for member in OTHERS)
    for other in (b"\x04\x08", STATE + b"\x00", STATE[:1]):
        with pytest.raises(ProtocolViolation, match="what opens round 4 is not what it is said to be") as refusal:
            follow_return(world.setup, Return(OPENING, frames), AWAY, 1, other)
        assert refusal.value.culprit == SERVER_INDEX


def test_where_rounds_do_not_stand_alone_nobody_returns() -> None:
    """Refinement keeps its rule; so does a plan in which too few others could sign."""
    refined = make_setup(4, refine=4, epsilon=8.0)
    frames = (b"frame",) * 3
    with pytest.raises(ProtocolViolation, match="a way back into a plan that has none"):
        follow_return(refined, Return(OPENING, frames), AWAY, 1)
    few = make_setup(3, method="logbook", parameters=(), radius=100.0, **EXACT)
    assert (witnesses_of(few.facts), may_return(few.facts)) == (3, False)
    several = [make_setup(n, method="logbook", parameters=(), radius=100.0, **EXACT) for n in (4, 5, 6, 7)]
    assert [witnesses_of(setup.facts) for setup in several] == [3, 4, 4, 5]
    assert all(may_return(setup.facts) for setup in several)


def test_the_server_shows_no_more_than_it_has(world: SimulatedFederation) -> None:
    """It shows nothing before t others have signed; neither who asks nor an aggregator is one of them."""
    setup = follow_return(world.setup, Return(OPENING, tuple(signed(world, OPENING, m) for m in OTHERS)), AWAY, 1)
    frames = {member: signed(world, OPENING, member) for member in (1, AWAY, 3, 5, 6)}
    assert show_return(setup, frames, AWAY) is None
    shown = show_return(setup, frames | {4: signed(world, OPENING, 4)}, AWAY)
    assert shown is not None
    assert follow_return(world.setup, shown, AWAY, 1).context == setup.context


def test_a_transcript_with_fewer_signatures_does_not_verify(finished: Finished) -> None:
    """In the transcript of who returned, the signatures are checked again: of others, enough, and on this opening."""
    world, ended = finished
    (path,) = world.transcripts(AWAY, (ended.stages[3],))
    whole, records = path.read_bytes(), read_transcript(path)
    (place,) = [record.index for record in records if record.kind == "return"]
    shown = decode(Return, records[place].content)
    frames = shown.acknowledgements
    own = signed(world, shown.opening, AWAY)
    for change in (
        replace(shown, acknowledgements=frames[1:]),
        replace(shown, acknowledgements=(frames[0], *frames[:2])),
        replace(shown, acknowledgements=(own, *frames[1:])),
        other_total(shown),
    ):
        path.unlink()
        journal = Journal(path)
        for record in records:
            journal.append(record.kind, encode(change) if record.index == place else record.content)  # type: ignore[arg-type]
        journal.close()
        with pytest.raises(TranscriptInvalid, match=r"signature|signed") as refusal:
            verify_transcript(path)
        assert refusal.value.record == place
    path.write_bytes(whole)
    verify_transcript(path)


def test_setups_of_later_rounds_forget_the_return(world: SimulatedFederation) -> None:
    """What was shown stands at the beginning of one round, not of those that follow from it."""
    setup = follow_return(world.setup, Return(OPENING, tuple(signed(world, OPENING, m) for m in OTHERS)), AWAY, 1)
    following: RoundSetup = setup.following(
        RoundOpening(5, OPENING.round_digest, b"c" * 32, Attachment.of(bytes([5, 9])))
    )
    assert setup.rejoin is not None
    assert following.rejoin is None


async def test_who_was_away_returns_over_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over gRPC and mutual TLS, federated averaging: away for rounds 2 and 3 of 5, in the sums of rounds 4 and 5."""
    monkeypatch.setattr(limits, "RETRY_SECONDS", 0.02)
    averaging: dict[str, Any] = {"method": "fedavg", "parameters": (("rounds", 5),), "unit": Unit.CLIENT, **NOISY}
    averaging |= {"result": "server", "join_seconds": 10, "step_seconds": 10, "round_seconds": 3}
    consortium = Consortium.enrol(tmp_path, "masked", **averaging)
    is_due, is_back = asyncio.Event(), asyncio.Event()

    async def others_wait(rounds: Iterator[int]) -> None:
        if next(rounds) == 4:
            is_due.set()
            await is_back.wait()

    async def leave(rounds: Iterator[int]) -> None:
        if next(rounds) == 2:
            raise Left

    async def come(rounds: Iterator[int]) -> None:
        if next(rounds) == 2:  # the first is the one that it has missed
            is_back.set()

    async def take_part(member: int, meet: Callable[[Iterator[int]], Any]) -> list[RoundSetup]:
        meeting = partial(meet, count(1))
        async with Link(consortium.credentials(member), address, 10.0) as link:
            return [setup for setup, _ in await replace(take_plan(consortium, member), greet=meeting).run(link)]

    async def be_away() -> list[RoundSetup]:
        with pytest.raises(Left):
            await take_part(AWAY, leave)
        await is_due.wait()
        return await take_part(AWAY, come)

    identity = consortium.credentials(SERVER_INDEX).identity
    server = FederationServer(consortium.setup, identity, consortium.state(SERVER_INDEX), ignore)
    endpoint, address = await serve(consortium.credentials(SERVER_INDEX), server, "127.0.0.1:0")
    try:
        async with asyncio.timeout(60):
            parts = [take_part(member, others_wait) for member in OTHERS]
            _, followed, *_ = await asyncio.gather(server.run(), be_away(), *parts)
        outcomes = [stage.session.outcome for stage in server.stages]
        assert [outcome.members if outcome else () for outcome in outcomes] == RETURNED
    finally:
        server.close()
        await endpoint.stop(None)
    paths = [session_folder(consortium.state(AWAY), setup) / FILE_NAME for setup in followed]
    found = verify_together(paths, NOTHING_BROUGHT)
    assert [each.verdict for each in found if isinstance(each, Verified)] == [
        "verifies",
        f"consistent, but {GAP}",
        "verifies",
    ]
