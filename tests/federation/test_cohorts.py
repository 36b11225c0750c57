"""Cohorts over the real parties: who is drawn takes part and nobody else, all end with one model, and verify tells."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, ProtocolViolation, SessionAborted, TranscriptInvalid
from secagg.federation import FederationServer
from secagg.federation import client as returning
from secagg.plan_facts.facts import witnesses_of
from secagg.privacy import Adjacency, Unit
from secagg.protection.draw import Draw, NonceReveal
from secagg.protection.messages import Acknowledgement, Return, RoundOpening
from secagg.session import RoundSetup
from secagg.session.rounds import follow_return, show_return
from secagg.session.transcripts import setup_of
from secagg.transcript import (
    FILE_NAME,
    NOT_SEEN,
    Journal,
    make_body,
    payload_of,
    peek,
    read_transcript,
    sign_frame,
)
from secagg.transport import Link, limits, serve
from secagg.verification.transcript_series import TranscriptSeries, verify_together, verify_transcript
from secagg.verification.verification import Trust, Verified
from secagg.wire import decode, encode
from tests.federation.test_second_rounds import refuse
from tests.worlds.federation import Ending, FederationRun, Finished, SimulatedFederation, run_federation
from tests.worlds.hosts import Left
from threat_models.active.consortium import NOISY, Consortium
from threat_models.active.stage import ignore, take_plan
from threat_models.evidence.transcripts import read_sessions

EVERYBODY = (1, 2, 3, 4, 5, 6, 7)
ROUNDS, SIZE = 4, 5
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None}


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Who is not drawn asks often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(returning, "KNOCK_SECONDS", 0.02)
        yield


def world_of(folder: Path, **choices: Any) -> SimulatedFederation:
    """Seven members, of whom five are drawn for each of four rounds; one may vanish and one collude."""
    parameters = (("rounds", ROUNDS), ("rate", 0.5), ("clip", 5.0))
    fixed = {"method": "fedavg", "parameters": parameters, "cohort": SIZE, "dropouts": 1, "colluders": 1, **EXACT}
    waits = {"join_seconds": 10, "step_seconds": 10, "round_seconds": 10}
    return SimulatedFederation.of(folder, 7, 0, **{**fixed, **waits, **choices})


def played(folder: Path, **choices: Any) -> Finished:
    """A plan from beginning to end."""
    world = world_of(folder, **choices)
    return world, asyncio.run(run_federation(world))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A masked plan."""
    return played(tmp_path_factory.mktemp("finished"))


def trust_of(world: SimulatedFederation) -> Trust:
    """The plan and roster that were agreed on."""
    return Trust((world.setup.plan.digest,), (world.setup.roster.digest,))


def verified(world: SimulatedFederation, paths: list[Path]) -> list[Verified]:
    """The transcripts, every one of which is valid."""
    found = verify_together(paths, trust_of(world))
    valid = [each for each in found if isinstance(each, Verified)]
    assert len(valid) == len(paths), found
    return sorted(valid, key=lambda each: each.number)


def own_transcripts(world: SimulatedFederation, member: int) -> list[Path]:
    """All that a party has written."""
    return sorted(world.state(member).glob(f"*/{FILE_NAME}"))


def members_of(ended: Ending) -> list[tuple[int, ...]]:
    """Whom the sessions' contexts allow in the sums, session by session."""
    return [stage.context.clients for stage in ended.stages]


@pytest.mark.parametrize("protection", ["masked", "shared", "none", pytest.param("encrypted", marks=pytest.mark.long)])
def test_who_is_drawn_is_in_the_sum_and_all_get_the_model(tmp_path: Path, finished: Finished, protection: str) -> None:
    """The draw, then four rounds of five: each sum is its cohort's, all have one model, every transcript holds."""
    world, ended = finished if protection == "masked" else played(tmp_path, protection=protection)
    assert [stage.number for stage in ended.stages] == [0, 1, 2, 3, 4]
    drawing, *rounds = ended.stages
    assert drawing.is_draw
    seen = Counter(member for stage in rounds for member in stage.context.clients)
    assert set(seen.values()) <= {2, 3}
    assert world.setup.facts.draws(ROUNDS) == 3
    for told, stage in zip(verified(world, world.transcripts(0, ended.stages))[1:], rounds, strict=True):
        assert told.outcome is not None
        assert told.outcome.members == stage.context.clients == rounds[0].cohort(stage.number)
        assert told.verdict == "verifies"
    assert len({outcome.head for _, outcome in ended.clients.values()}) == 1
    for member in EVERYBODY:
        told = verified(world, own_transcripts(world, member))
        ends = [] if member in rounds[-1].context.clients else [ROUNDS + 1]
        assert [each.number for each in told] == [0, *(s.number for s in rounds if member in s.context.clients), *ends]


def test_who_was_not_in_the_last_round_has_the_result_by_signatures(finished: Finished) -> None:
    """Its last transcript says whose signatures stand for the result; three of the last cohort's, and no fewer."""
    world, ended = finished
    last = ended.stages[-1]
    (member, *_) = set(EVERYBODY) - set(last.context.clients)
    setup, outcome = ended.clients[member]
    assert setup.is_end
    assert witnesses_of(setup.facts) == 4
    assert len(outcome.members) == 4
    assert set(outcome.members) <= set(last.context.clients)
    told = verified(world, own_transcripts(world, member))[-1]
    assert "others have signed the result for it" in told.findings["session"]
    assert told.findings["round"] == "after the last of 4"


@pytest.mark.parametrize("place", [1, 2, 3])
def test_only_the_rounds_that_a_member_missed_are_said_to_be_missed(
    finished: Finished, tmp_path: Path, place: int
) -> None:
    """A member that was not drawn for the last round is told of the rounds since its own last one, by number.

    `place` is the number of the last round whose transcript it gives.
    """
    world, ended = finished
    *_, second, before, last = ended.stages
    absent = set(before.context.clients) - set(last.context.clients)
    member = max(absent, key=second.context.clients.count)  # of 8 absences, one member has two
    own = verified(world, own_transcripts(world, member))
    given = [each.path for each in own if each.number <= place or each.setup.is_end]
    latest = max(each.number for each in own if each.number <= place)
    (words,) = (doubt.words for doubt in verified(world, given)[-1].doubts)
    missed = "round 4 was" if latest == 3 else f"rounds {latest + 1} to 4 were"
    assert words.startswith(f"{missed} not followed by this member, as far as the given transcripts tell: 4 members'")
    moved = tmp_path / "moved" / "session" / FILE_NAME
    moved.parent.mkdir(parents=True)
    moved.write_bytes(given[-1].read_bytes())  # in another state folder nobody can tell whose it is
    assert "rounds 1 to 4 were not" in verified(world, [*given[:-1], moved])[-1].verdict


def test_end_of_the_plan_agrees_with_the_last_round(finished: Finished) -> None:
    """The result by signatures verifies beside the server's transcripts, and contradicts a last round with another."""
    world, ended = finished
    (member, *_) = set(EVERYBODY) - set(ended.stages[-1].context.clients)
    last = world.transcripts(0, ended.stages)[-1]
    (end,) = (path for path in own_transcripts(world, member) if setup_of(read_transcript(path))[0].is_end)
    servers, own = verified(world, [last, end])
    assert own.verdict == "verifies"
    assert servers.outcome is not None
    for change in ({"aggregate_sha256": bytes(32)}, {"head": (replace(servers.outcome.head[0], length=1),)}):
        other = replace(servers, outcome=replace(servers.outcome, **change))
        with pytest.raises(TranscriptInvalid, match=f"says {last}|{last} 0000") as refusal:
            TranscriptSeries([other, own]).link(own)
        assert "signed" not in refusal.value.problem  # the members have signed the one, the server the other


def test_a_sum_of_a_cohort_is_audited(finished: Finished) -> None:
    """An audit reads the rounds' transcripts, takes the cohort for all that could be in the sum, and skips the draw."""
    world, ended = finished
    sessions = read_sessions(world.transcripts(0, ended.stages), trust_of(world))
    assert [each.number for each in sessions] == [1, 2, 3, 4]
    assert {(len(each.clients), each.consortium) for each in sessions} == {(5, 7)}


@pytest.mark.parametrize(
    ("choices", "unit"),
    [
        ({"unit": Unit.CLIENT}, Unit.CLIENT),
        ({"parameters": (("rounds", ROUNDS), ("rate", 0.5), ("gradients", 1))}, Unit.RECORD),
    ],
)
def test_a_member_is_charged_once_for_its_rounds(tmp_path: Path, choices: dict[str, Any], unit: Unit) -> None:
    """One row in each ledger, of three rounds' cost and not of four, with noise in every sum."""
    noisy = {"epsilon": 8.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE}
    world, ended = played(tmp_path, **{**noisy, **choices})
    claim = world.setup.facts.sum_claim
    assert claim is not None
    assert claim.unit == unit
    assert sum(times for _, times in claim.releases.parts) == 3
    assert "over all 4 sums together, no client being in more than 3 of them" in claim.sentence()
    assert claim.releases.first.fewest == SIZE - 1 - 1
    assert all(stage.sum.calibration is not None for stage in ended.stages)
    for member in EVERYBODY:
        (row,) = world.ledger(member).entries()
        assert row.release.cost(unit, Adjacency.ADD_REMOVE) == claim.releases.cost()


@dataclass
class Missing(FederationRun):
    """One member leaves before it uploads in the first round that it is drawn for; the next one waits for it."""

    missed: int = 0
    is_due: asyncio.Event = field(default_factory=asyncio.Event)
    is_back: asyncio.Event = field(default_factory=asyncio.Event)

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Let it leave once, and the others of a later cohort wait until it asks for the way back."""
        number = self.number_of(plan) - 1
        cohorts = [stage.setup.context.clients for stage in self.hosts[SERVER_INDEX].session.stages]
        if member == 2 and step == Return.__name__ and self.missed:
            self.is_back.set()
        if member == 2 and number > 0 and step == "UploadHeader" and not self.missed:
            self.missed = number
            raise Left
        if member != 2 and 0 < self.missed < number < len(cohorts) and 2 in cohorts[number]:
            self.is_due.set()
            await self.is_back.wait()

    async def _client(self, member: int) -> Any:
        try:
            return await super()._client(member)
        except Left:
            await self.is_due.wait()
            return await super()._client(member)


def test_who_is_away_in_its_round_comes_back_for_a_later_one(tmp_path: Path) -> None:
    """One of a cohort vanishes: the sum is of the other four, and it is in the sums of its later rounds."""
    world = world_of(tmp_path, step_seconds=1, round_seconds=5)
    run = Missing(world)
    ended = asyncio.run(run.run())
    for each in verified(world, world.transcripts(0, ended.stages))[1:]:
        drawn = set(each.setup.context.clients)
        assert each.outcome is not None
        assert set(each.outcome.members) == (drawn - {2} if each.number == run.missed else drawn)
    assert len({outcome.head for _, outcome in ended.clients.values()}) == 1


@dataclass
class Late(FederationRun):
    """One member comes when the draw is over."""

    is_drawn: asyncio.Event = field(default_factory=asyncio.Event)

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Whoever speaks in a round has seen the draw."""
        if self.number_of(plan) > 1:
            self.is_drawn.set()

    async def _client(self, member: int) -> Any:
        if member == 3:
            await self.is_drawn.wait()
        return await super()._client(member)


def test_who_came_late_for_the_draw_is_drawn_all_the_same(tmp_path: Path) -> None:
    """It is shown the draw, which proves itself, and is in the sums of the rounds that it is drawn for."""
    world = world_of(tmp_path, join_seconds=1)
    ended = asyncio.run(Late(world).run())
    told = verified(world, world.transcripts(0, ended.stages))
    assert told[0].outcome is not None
    assert 3 not in told[0].outcome.members
    (*_, shown) = [each for each in told if each.number and 3 in each.setup.context.clients]
    assert shown.outcome is not None
    assert 3 in shown.outcome.members
    assert ended.clients[3][1].head == ended.clients[1][1].head


class Silent(FederationRun):
    """One member is gone once it has committed."""

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """It never reveals."""
        if member == 4 and step == NonceReveal.__name__:
            raise Left


def test_who_commits_and_does_not_reveal_ends_the_plan_by_name(tmp_path: Path) -> None:
    """Nothing was computed, nothing was charged, and everybody is told who it was."""
    world = world_of(tmp_path, step_seconds=1)
    ended = asyncio.run(Silent(world).run())
    ended.clients.pop(4)
    for end in (ended.server, *ended.clients.values()):
        assert isinstance(end, SessionAborted)
        assert "the server has no reveal of client-4: the draw is void" in end.reason
    assert [len(world.ledger(member).entries()) for member in EVERYBODY] == [0] * 7
    told = verify_transcript(world.transcripts(0, ended.stages)[0], trust_of(world))
    assert told["released"] == "no: nothing that opens the sum was shown"


@pytest.mark.parametrize(
    "kill",
    [
        (1, "closed", "NonceCommitment"),
        (1, "received", "NonceReveal"),
        (2, "received", "UploadHeader"),
        (3, "sent", "Outcome"),
    ],
)
def test_a_server_that_is_killed_goes_on_with_the_same_cohorts(tmp_path: Path, kill: tuple[int, str, str]) -> None:
    """Killed in the draw, in a round or between two, it draws nothing anew, and no member uploads for it twice."""
    world = world_of(tmp_path)
    ended = asyncio.run(FederationRun(world, kill=[kill]).run())
    assert ended.restarts == 1
    told = verified(world, world.transcripts(0, ended.stages))
    assert {each.setup.seed for each in told[1:]} == {ended.stages[-1].seed}
    assert len({outcome.head for _, outcome in ended.clients.values()}) == 1


def test_a_server_that_shows_a_changed_draw_gets_no_vector(tmp_path: Path) -> None:
    """Members follow the nonces that were committed to: a draw with another one is refused, the server named."""
    world = world_of(tmp_path)

    def tamper(member: int, step: str, frame: bytes) -> bytes:
        if step != Draw.__name__:
            return frame
        body = peek(frame)
        draw = payload_of(body, Draw)
        changed = replace(draw, reveals=(replace(draw.reveals[0], nonce=bytes(32)), *draw.reveals[1:]))
        return sign_frame(world.keys[SERVER_INDEX], replace(body, payload=encode(changed)))

    ended = asyncio.run(FederationRun(world, tamper=tamper).run())
    for end in ended.clients.values():
        assert isinstance(end, SessionAborted)
        assert "party 0" in end.reason or "server" in end.reason
    assert [len(world.ledger(member).entries()) for member in EVERYBODY] == [0] * 7


def test_a_plan_with_cohorts_that_ends_early_says_what_left_whom(tmp_path: Path) -> None:
    """A member is told of how many sums it was in, and that the whole plan stays charged; nobody else is."""
    world = world_of(tmp_path, step_seconds=1, round_seconds=1)
    ended = asyncio.run(FederationRun(world, leaves=dict.fromkeys((1, 2, 3), 2)).run())
    told = {member: str(end) for member, end in ended.clients.items() if isinstance(end, SessionAborted)}
    assert told
    for member, said in told.items():
        sums = sum(member in stage.context.clients for stage in ended.stages[1:-1])  # without the draw and the last
        counted = f"a vector for {sums} of 4 sums may have left, and your ledger was charged epsilon inf"
        assert ("your ledger was not charged" in said) != (counted in said)
        assert (counted in said) == ("may have left" in said) == bool(world.ledger(member).entries()) == bool(sums)


@contextmanager
def rewritten(path: Path, change: Callable[[str, bytes], bytes | None]) -> Iterator[None]:
    """For a while a transcript's records are changed, or left out, and chained anew."""
    whole, records = path.read_bytes(), read_transcript(path)
    path.unlink()
    journal = Journal(path)
    for record in records:
        if (content := change(record.kind, record.content)) is not None:
            journal.append(record.kind, content)  # type: ignore[arg-type]
    journal.close()
    try:
        yield
    finally:
        path.write_bytes(whole)


def with_draw(change: Callable[[Draw], Draw | None]) -> Callable[[str, bytes], bytes | None]:
    """The draw's record changed, or left out."""

    def changed(kind: str, content: bytes) -> bytes | None:
        if kind != "draw":
            return content
        draw = change(decode(Draw, content))
        return None if draw is None else encode(draw)

    return changed


def other_nonce(draw: Draw) -> Draw:
    """A nonce that nobody committed to."""
    return replace(draw, reveals=(replace(draw.reveals[0], nonce=bytes(32)), *draw.reveals[1:]))


def own_nonce(world: SimulatedFederation) -> Callable[[Draw], Draw]:
    """A nonce that its member signed, and had not committed to."""

    def change(draw: Draw) -> Draw:
        member = draw.members[0]
        signed = NonceReveal.of(world.setup.context, member, world.keys[member], bytes(32), draw.commitments.digest)
        return replace(draw, reveals=(signed, *draw.reveals[1:]))

    return change


@pytest.mark.parametrize("name", ["server", "member"])
def test_a_transcript_with_another_draw_is_flagged(finished: Finished, name: str) -> None:
    """A changed reveal, signed or not, does not verify: at the draw's record, in any party's transcript of a round."""
    world, ended = finished
    member = 0 if name == "server" else ended.stages[2].context.clients[0]
    (path,) = world.transcripts(member, (ended.stages[2],))
    place = next(record.index for record in read_transcript(path) if record.kind == "draw")
    for change, words in ((other_nonce, "did not sign"), (own_nonce(world), "another nonce than it had committed")):
        with rewritten(path, with_draw(change)), pytest.raises(TranscriptInvalid, match=words) as refusal:
            verify_transcript(path, trust_of(world))
        assert refusal.value.record == place


def test_a_schedule_with_another_seed_is_flagged(finished: Finished, tmp_path: Path) -> None:
    """A draw that the same members made for another plan, valid by itself, is refused; so is a round without any."""
    world, ended = finished
    (path,) = world.transcripts(0, (ended.stages[2],))
    foreign = asyncio.run(run_federation(world_of(tmp_path, purpose="another"))).stages[1].draw
    for change, words in ((foreign, "did not sign"), (None, "opens round 2 of another history")):
        with (
            rewritten(path, with_draw(lambda draw: change)),  # noqa: B023
            pytest.raises(TranscriptInvalid, match=words),
        ):
            verify_transcript(path, trust_of(world))


def test_a_member_outside_the_cohort_is_in_no_sum(finished: Finished) -> None:
    """Its frame in a server's transcript is flagged, however well it is signed: nobody is drawn more than others."""
    world, ended = finished
    stage = ended.stages[2]
    (outsider, *_) = set(EVERYBODY) - set(stage.context.clients)

    def change(kind: str, content: bytes) -> bytes:
        body = peek(content) if kind == "received" else None
        if body is None or body.step != "KeyAdvertisement" or body.sender != stage.context.clients[0]:
            return content
        return sign_frame(world.keys[outsider], replace(body, sender=outsider))

    (path,) = world.transcripts(0, (stage,))
    with rewritten(path, change), pytest.raises(TranscriptInvalid, match="is not expected at this step"):
        verify_transcript(path, trust_of(world))


def test_two_draws_of_one_plan_contradict_each_other(finished: Finished) -> None:
    """The transcript of a draw that ended with another seed than the rounds have is held against them."""
    world, ended = finished
    draws, first = world.transcripts(0, ended.stages[:2])
    told = verified(world, [draws, first])
    assert told[0].outcome is not None
    other = replace(told[0], outcome=replace(told[0].outcome, aggregate_sha256=bytes(32)))
    with pytest.raises(TranscriptInvalid, match="other cohorts were drawn"):
        TranscriptSeries([other, told[1]]).link(told[1])


@pytest.fixture(scope="module")
def first(finished: Finished) -> RoundSetup:
    """The first round of the plan that was played."""
    return finished[1].stages[1]


def signed(world: SimulatedFederation, opening: RoundOpening, sender: int) -> bytes:
    """A member's acknowledgement of an opening."""
    said = Acknowledgement(opening.aggregate_sha256, opening.statement(world.setup.plan.digest), bytes(32))
    return sign_frame(world.keys[sender], make_body(opening.previous, sender, 0, NOT_SEEN, NOT_SEEN, said))


def test_only_the_cohort_before_shows_the_way(finished: Finished, first: RoundSetup) -> None:
    """Four of the cohort before have signed what opens a round; others' signatures do not count, nor for others."""
    world, ended = finished
    third = ended.stages[3]
    assert third.opening is not None
    before = first.cohort(2)
    drawn = next(member for member in first.cohort(3))
    others = [member for member in before if member != drawn]
    frames = {member: signed(world, third.opening, member) for member in EVERYBODY}
    shown = show_return(third, frames, drawn)
    assert shown is not None
    assert {peek(frame).sender for frame in shown.acknowledgements} <= set(before)
    assert follow_return(first, shown, drawn, 1).context == third.context
    (stranger, *_) = set(EVERYBODY) - set(before)
    enough = [frames[member] for member in others[:3]]
    with pytest.raises(ProtocolViolation, match="whose word does not count there"):
        follow_return(first, Return(third.opening, (*enough, frames[stranger])), drawn, 1)
    with pytest.raises(ProtocolViolation, match="3 signatures of others"):
        follow_return(first, Return(third.opening, tuple(enough)), drawn, 1)
    (undrawn, *_) = set(EVERYBODY) - set(first.cohort(3))
    assert show_return(third, frames, undrawn) is None
    with pytest.raises(ProtocolViolation, match="for which this client is not drawn"):
        follow_return(first, shown, undrawn, 1)


def test_no_round_begins_before_the_draw(finished: Finished) -> None:
    """From the plan alone no round's cohort follows, whatever is shown; and a draw is not told where there is none."""
    world, ended = finished
    third = ended.stages[3]
    assert third.opening is not None
    assert third.draw is not None
    with pytest.raises(ProtocolViolation, match="before the cohorts are drawn"):
        world.setup.at(third.opening)
    with pytest.raises(ProtocolViolation, match="tells a draw where there is none"):
        third.with_draw(third.draw)


async def test_cohorts_over_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over gRPC and mutual TLS: a member hangs up between its rounds, and all have the model at the end."""
    monkeypatch.setattr(limits, "RETRY_SECONDS", 0.02)
    training: dict[str, Any] = {
        "method": "fedavg",
        "parameters": (("rounds", 3),),
        "cohort": 4,
        "clients": 5,
        "unit": Unit.CLIENT,
        **NOISY,
    }
    consortium = Consortium.enrol(tmp_path, "masked", colluders=1, **training)
    server = FederationServer(
        consortium.setup, consortium.credentials(SERVER_INDEX).identity, consortium.state(SERVER_INDEX), ignore
    )
    endpoint, address = await serve(consortium.credentials(SERVER_INDEX), server, "127.0.0.1:0")

    async def take_part(member: int) -> bytes:
        async with Link(consortium.credentials(member), address, 10.0) as link:
            return (await take_plan(consortium, member).run(link))[-1][1].head

    try:
        async with asyncio.timeout(100):
            _, *heads = await asyncio.gather(server.run(), *map(take_part, consortium.clients))
    finally:
        server.close()
        await endpoint.stop(None)
    assert len(set(heads)) == 1
    assert heads[0]
    paths = [stage.folder / FILE_NAME for stage in server.stages]
    found = verify_together(paths, Trust((consortium.plan.digest,), (consortium.roster.digest,)))
    assert [each.verdict for each in found if isinstance(each, Verified)] == ["verifies"] * 4


class FullInTheHandOut(FederationRun):
    """A run whose disk refuses the last member's acknowledgement once the others' are in: the server hands out."""

    is_full = True

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Hold up that acknowledgement until the server has done its rounds, and who is away until it has ended."""
        server = self.hosts[SERVER_INDEX].session
        if server is None or len(server.stages) <= ROUNDS or not self.is_full:
            return
        last = server.stages[-1]
        cohort = last.setup.context.clients
        if (member, step, plan) == (cohort[-1], "Acknowledgement", last.setup.context.round_digest):
            while True:
                if server._done == len(server.stages):
                    break
                await asyncio.sleep(0.01)
            self.is_full = False
            last.session._journal.append = refuse
        elif member not in cohort and last.session.outcome is not None:
            while True:
                if self.hosts[SERVER_INDEX].is_over:
                    raise Left
                await asyncio.sleep(0.01)


@pytest.mark.long
async def test_full_disk_as_the_result_is_handed_out_ends_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that the disk refuses after the last round ends the server too, which then serves all, started again."""
    monkeypatch.setattr(returning, "KNOCK_SECONDS", 0.02)
    world = world_of(tmp_path, protection="none", join_seconds=30, round_seconds=2)
    ended = await FullInTheHandOut(world).run()
    assert isinstance(ended.server, BadInput)
    again = await run_federation(world)
    assert not [end for end in again.clients.values() if isinstance(end, Exception)]
