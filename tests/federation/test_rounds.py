"""A plan of several sums from beginning to end: with everyone there, with some gone, with liars and crashes."""

import asyncio
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from methods.closed_form.refinement import RefinementBroadcast
from secagg.encoding import Normalisation, sum_digest
from secagg.errors import (
    BadInput,
    MalformedMessage,
    NotConfirmed,
    PlanRefused,
    ProtocolViolation,
    SessionAborted,
    TranscriptInvalid,
)
from secagg.experiments.reference import pooled_result
from secagg.federation import FederationServer
from secagg.federation.recovery import release_until
from secagg.heads import parse_safetensors, to_safetensors
from secagg.plan_facts.facts import plan_cost
from secagg.privacy import Unit
from secagg.privacy.claim import format_epsilon
from secagg.protection.messages import Attachment, Outcome, RoundOpening
from secagg.session import RoundSetup, conclude, transcripts
from secagg.session.attachments import OPENING_FILE, SUM_FILE
from secagg.session.outcome import HEAD_FILE, OutcomeContents, check_outcome, pack_sum, unpack_sum
from secagg.session.rounds import following_setup
from secagg.transcript import Journal, payload_of, peek, read_transcript, sign_frame
from secagg.verification import note_plan
from secagg.verification.transcript_series import verify_together, verify_transcript
from secagg.verification.verification import Verified
from secagg.wire import decode, encode
from tests.session.noise_checks import check_noise
from tests.threat_models.recorded import read_session
from tests.worlds.federation import Finished, SimulatedFederation, lie, opened, run_federation, told_of
from tests.worlds.hosts import Left
from tests.worlds.rosters import make_roster
from tests.worlds.setups import exact

EVERYONE = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A plan with a release and two rounds, ε = 8, in which everyone took part."""
    world = SimulatedFederation.of(tmp_path_factory.mktemp("finished"))
    return world, asyncio.run(run_federation(world))


@pytest.fixture
def over(finished: Finished, tmp_path: Path) -> Finished:
    """A copy of the finished plan, to be damaged."""
    world, played = finished
    shutil.copytree(world.folder, tmp_path / "copy")
    return replace(world, folder=tmp_path / "copy"), played


def test_everyone_ends_with_the_same_head(finished: Finished) -> None:
    """All clients end with the last session's outcome, whose head is that of the server's last sum."""
    world, played = finished
    assert len(played.stages) == 3
    last = played.stages[-1]
    result = conclude(last, EVERYONE, opened(world, last))
    for setup, outcome in played.clients.values():
        assert setup.context == last.context
        assert (outcome.members, outcome.head_sha256) == (EVERYONE, result.artifact_sha256)
        assert outcome.opens is None


def test_every_sum_is_the_exact_one_plus_the_planned_noise(
    finished: Finished,
) -> None:
    """In every session the opened sum less the exact one is noise of four shares (fails at random once in 10⁹)."""
    world, played = finished
    for stage in played.stages:
        noise = opened(world, stage) - sum(exact(stage, world.records[member]) for member in EVERYONE)
        assert noise.any()
        check_noise(stage, noise, 4)


def test_sessions_follow_from_each_other(finished: Finished) -> None:
    """Each session is the one that its predecessor's opened sum leads to, and no two share a digest."""
    world, played = finished
    for stage, after in zip(played.stages, played.stages[1:], strict=False):
        result = conclude(stage, EVERYONE, opened(world, stage))
        following = following_setup(stage, result, result.broadcast)
        assert following is not None
        assert (following.opening, following.context) == (after.opening, after.context)
    assert len({stage.context.round_digest for stage in played.stages}) == 3


def test_every_transcript_verifies(finished: Finished) -> None:
    """The server's and every client's transcript of every session verify, and say which round they are of."""
    world, played = finished
    for number, stage in enumerate(played.stages, start=1):
        found = verify_transcript(world.transcripts(0, (stage,))[0])
        assert found["round"] == f"{number} of 3"
        assert sorted(found["countersigned_by"]) == found["members"] == [f"client-{member}" for member in EVERYONE]
        for member in EVERYONE:
            own = verify_transcript(world.transcripts(member, (stage,))[0])
            assert (own["round"], own["aggregate_sha256"]) == (found["round"], found["aggregate_sha256"])
            assert own["plan_sha256"] == world.setup.plan.digest.hex()


def test_ledger_has_one_row_for_the_whole_plan(finished: Finished) -> None:
    """Three sums are one row, whose cost is that of all of them; another plan no longer fits the budget."""
    world, _ = finished
    for member in EVERYONE:
        (entry,) = world.ledger(member).entries()
        release = entry.release
        assert (release.session, release.plan) == (world.setup.plan.session, world.setup.plan.digest)
        assert (release.epsilon, release.delta) == (8.0, 1e-5)
        assert release.spent == plan_cost(world.setup.facts)
        other = replace(release, session=bytes(32), plan=bytes(32))
        with pytest.raises(PlanRefused, match="max_epsilon_total"):
            world.ledger(member).check(other, world.policy(member).budget)


def test_every_transcript_names_the_same_ledger_row(finished: Finished) -> None:
    """The row is entered before the first upload, and each session's transcript holds it before its upload."""
    world, played = finished
    for member in EVERYONE:
        (entry,) = world.ledger(member).entries()
        for path in world.transcripts(member, played.stages):
            records = read_transcript(path)
            row = next(record for record in records if record.kind == "ledger")
            upload = next(
                record for record in records if record.kind == "sent" and peek(record.content).step == "UploadHeader"
            )
            assert row.content == entry.digest
            assert row.index < upload.index


def test_nothing_secret_stays(finished: Finished) -> None:
    """After the plan a client's session folders hold their transcripts, and what the server has told everybody."""
    world, played = finished
    for member in EVERYONE:
        for path in world.transcripts(member, played.stages):
            names = {each.name for each in path.parent.iterdir()}
            released = {"release-0.bin", "release-1.bin"}
            assert path.name in names <= {path.name, SUM_FILE, OPENING_FILE, HEAD_FILE, *released}


async def test_second_run_of_a_finished_plan_changes_nothing(
    over: Finished,
) -> None:
    """Started again after the end, everybody gives the same outcome and writes not one byte more."""
    world, played = over
    paths = [path for member in range(5) for path in world.transcripts(member, played.stages)]
    before = [path.read_bytes() for path in paths]
    again = await run_federation(world)
    assert [path.read_bytes() for path in paths] == before
    assert {member: end[1] for member, end in again.clients.items()} == {m: end[1] for m, end in played.clients.items()}


async def test_rounds_without_noise_give_the_pooled_head(tmp_path: Path) -> None:
    """Without noise every opened sum is the exact one, and the head is that of all records in one place."""
    world = SimulatedFederation.of(
        tmp_path, epsilon=math.inf, delta=None, adjacency=None, normalise=Normalisation.CENTRED_UNIT
    )
    with pytest.raises(PlanRefused, match="refinement_without_noise"):
        world.setup.facts.check(replace(world.policy(1), min_clients_in_sum=1))
    played = await run_federation(world)
    for stage in played.stages:
        assert np.array_equal(opened(world, stage), sum(exact(stage, world.records[member]) for member in EVERYONE))
    pooled = pooled_result(world.setup, world.records)
    assert played.clients[1][1].head_sha256 == pooled.artifact_sha256


async def test_clients_and_no_protection(tmp_path: Path) -> None:
    """A plan for whole clients, with vectors that the server may see, runs through the same rounds."""
    played = await run_federation(
        SimulatedFederation.of(tmp_path, unit=Unit.CLIENT, protection="none", refine=1, colluders=0, dropouts=0)
    )
    assert len(played.stages) == 2
    assert {outcome.members for _, outcome in played.clients.values()} == {EVERYONE}


async def test_client_that_leaves_after_a_round_is_left_out(tmp_path: Path) -> None:
    """Who vanishes after the first session is in its sum and in no later one; the others go on to the end."""
    world = SimulatedFederation.of(tmp_path)
    played = await run_federation(world, leaves={3: 1})
    assert isinstance(played.clients.pop(3), Left)
    members = [outcome_of(world, stage).members for stage in played.stages]
    assert members == [EVERYONE, (1, 2, 4), (1, 2, 4)]
    assert {outcome.head_sha256 for _, outcome in played.clients.values()} == {
        outcome_of(world, played.stages[-1]).head_sha256
    }
    check_noise(
        played.stages[1],
        opened(world, played.stages[1]) - sum(exact(played.stages[1], world.records[member]) for member in (1, 2, 4)),
        3,
    )


async def test_too_few_for_the_next_round_end_the_plan(tmp_path: Path) -> None:
    """When fewer stay than the noise is calibrated for, the next sum never comes about and everyone is told."""
    world = SimulatedFederation.of(tmp_path)
    played = await run_federation(world, leaves={2: 1, 3: 1})
    assert isinstance(played.server, SessionAborted)
    for member in (1, 4):
        assert isinstance(played.clients[member], SessionAborted)
        assert played.server.reason in played.clients[member].reason
        whole, settled = world.ledger(member).entries()
        epsilon, name = format_epsilon(settled.release.epsilon), settled.release.data_name
        charged = f"was charged epsilon {epsilon} about {name}, for these"
        assert f"1 of 3 sums may have left, and your ledger {charged}" in played.clients[member].reason
        assert "nothing of the last sum was opened" in played.clients[member].reason
        assert 0 < settled.release.epsilon < whole.release.epsilon
        assert settled.release == release_until(world.setup.facts, world.policy(member).data_name, 1)
    assert not (world.transcripts(0, played.stages[1:])[0].parent / "aggregate.npz").exists()


def outcome_of(world: SimulatedFederation, stage: RoundSetup) -> OutcomeContents:
    """What the server published in a session."""
    outcome = transcripts.outcome_of(read_transcript(world.transcripts(0, (stage,))[0]))
    assert outcome is not None
    return told_of(world, outcome)


def lying(
    world: SimulatedFederation, change: Callable[[OutcomeContents], OutcomeContents], victim: int, at: int
) -> Callable[[int, str, bytes], bytes]:
    """A server that signs another outcome for one client, at the session of that number, and shows what it names."""
    _, keys = make_roster(4)
    seen = []

    def tamper(member: int, step: str, frame: bytes) -> bytes:
        if member != victim or step != "Outcome":
            return frame
        seen.append(step)
        if len(seen) != at:
            return frame
        body = peek(frame)
        true = payload_of(body, Outcome)
        told = lie(world, change(told_of(world, true)), true)
        return sign_frame(keys[0], replace(body, payload=encode(told)))

    return tamper


def other_weights(outcome: OutcomeContents) -> OutcomeContents:
    """Weights that do not follow from the sum."""
    content = decode(RefinementBroadcast, outcome.broadcast)
    weights = np.frombuffer(content.weights, dtype="<i8") + (1 << 16)
    return replace(outcome, broadcast=encode(replace(content, weights=weights.astype("<i8").tobytes())))


def moved_weight(outcome: OutcomeContents) -> OutcomeContents:
    """Weights of which one is a unit more."""
    content = decode(RefinementBroadcast, outcome.broadcast)
    weights = np.frombuffer(content.weights, dtype="<i8") + (np.arange(len(content.weights) // 8) == 0)
    return replace(outcome, broadcast=encode(replace(content, weights=weights.astype("<i8").tobytes())))


def marked_head(outcome: OutcomeContents) -> OutcomeContents:
    """A head whose first weight differs in the last bit, under its own digest."""
    head, texts = parse_safetensors(outcome.head)
    weight = head.weight.copy()
    weight[0, 0] = np.nextafter(weight[0, 0], np.float32(9))
    other = replace(head, weight=weight)
    return replace(outcome, head=to_safetensors(other, texts), head_sha256=bytes.fromhex(other.digest))


def other_release(outcome: OutcomeContents) -> OutcomeContents:
    """A sum that is not the one named by its digest."""
    return replace(outcome, release=bytes(len(outcome.release)))


def renamed_sum(stage: RoundSetup, outcome: OutcomeContents, vector: np.ndarray) -> OutcomeContents:
    """Another sum under its own digest."""
    return replace(outcome, release=pack_sum(stage, vector), aggregate_sha256=sum_digest(vector))


def no_release(outcome: OutcomeContents) -> OutcomeContents:
    """No sum to compare with."""
    return replace(outcome, release=b"")


def no_broadcast(outcome: OutcomeContents) -> OutcomeContents:
    """The end of the plan, before its last round."""
    return replace(outcome, broadcast=b"")


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (0, other_weights, "party 0: the weights it broadcasts do not follow from the released sums"),
        (1, other_weights, "party 0: the weights it broadcasts do not follow from the released sums"),
        (0, other_release, "party 0: the released sum is not the one that the outcome names"),
        (1, lambda outcome: replace(outcome, release=outcome.release[:-1]), "party 0: the released sum has another"),
        (0, no_release, "party 0: the plan says otherwise about how many rounds"),
        (1, no_broadcast, "party 0: the plan says otherwise about how many rounds"),
        (2, lambda outcome: replace(outcome, broadcast=b"more"), "party 0: the plan says otherwise about how many"),
        (2, lambda outcome: replace(outcome, head=b""), "party 0: the plan says otherwise about who gets the head"),
        (1, lambda outcome: replace(outcome, broadcast=b"\xff"), "RefinementBroadcast"),
    ],
)
def test_outcome_that_does_not_follow_from_its_sum_is_refused(
    finished: Finished,
    number: int,
    change: Callable[..., OutcomeContents],
    words: str,
) -> None:
    """Each client recomputes head and next round from the released sum; what differs is the server's breach."""
    world, played = finished
    stage = played.stages[number]
    outcome = outcome_of(world, stage)
    check_outcome(stage, outcome)
    with pytest.raises((ProtocolViolation, MalformedMessage), match=words):
        check_outcome(stage, change(outcome))


def test_mark_of_one_bit_is_refused_where_arithmetic_is_exact(finished: Finished) -> None:
    """From broadcast integers on a client computes the server's bits: neither head nor weights take a mark.

    What decomposes a matrix before them rounds otherwise on other machines, and a bit is none of the server's fault.
    """
    world, played = finished
    first, second, third = ((stage, outcome_of(world, stage)) for stage in played.stages)
    for stage, outcome in (first, second, third):
        check_outcome(stage, outcome)
    check_outcome(first[0], marked_head(first[1]))
    check_outcome(first[0], moved_weight(first[1]))
    for stage, outcome in (second, third):
        with pytest.raises(ProtocolViolation, match="party 0: the head does not follow from the released sum"):
            check_outcome(stage, marked_head(outcome))
    with pytest.raises(ProtocolViolation, match="party 0: the weights it broadcasts do not follow"):
        check_outcome(second[0], moved_weight(second[1]))


@pytest.mark.parametrize(
    ("at", "change", "problem"),
    [(2, moved_weight, "the weights it broadcasts do not follow"), (3, marked_head, "the head does not follow")],
)
async def test_server_that_marks_one_clients_bytes_is_named(
    tmp_path: Path, at: int, change: Callable[..., OutcomeContents], problem: str
) -> None:
    """A client whose weights or head differ in one bit from the others' leaves and names the server."""
    world = SimulatedFederation.of(tmp_path)
    played = await run_federation(world, tamper=lying(world, change, 2, at))
    refusal = played.clients.pop(2)
    assert isinstance(refusal, SessionAborted)
    assert f"this party leaves: server: {problem}" in refusal.reason


def test_head_of_another_sum_is_refused(finished: Finished) -> None:
    """A sum of zeros under its own digest does not lead to the head that is told with it."""
    world, played = finished
    stage = played.stages[1]
    zeros = renamed_sum(stage, outcome_of(world, stage), np.zeros(stage.sum.layout.length, dtype=np.int64))
    with pytest.raises(ProtocolViolation, match="party 0: the head does not follow"):
        check_outcome(stage, zeros)


@pytest.mark.parametrize(("at", "change"), [(1, other_weights), (2, no_broadcast)])
async def test_server_that_tells_one_client_something_else_is_named(
    tmp_path: Path, at: int, change: Callable[..., OutcomeContents]
) -> None:
    """A client that is told other weights, or of an early end, leaves and names the server; the others finish."""
    world = SimulatedFederation.of(tmp_path)
    played = await run_federation(world, tamper=lying(world, change, 2, at))
    refusal = played.clients.pop(2)
    assert isinstance(refusal, SessionAborted)
    assert "this party leaves: server: " in refusal.reason
    assert {outcome.members for _, outcome in played.clients.values()} == {(1, 3, 4)}


async def test_server_with_two_consistent_stories_is_named(tmp_path: Path) -> None:
    """A client that is told another sum, consistent in itself, refuses it, and is in no later sum."""
    world = SimulatedFederation.of(tmp_path)

    def story(outcome: OutcomeContents) -> OutcomeContents:
        vector = unpack_sum(world.setup, outcome.release)
        vector[:3] += 5 * world.setup.sum.layout.blocks[0].multiplier
        result = conclude(world.setup, outcome.members, vector)
        head = to_safetensors(result.artifact, parse_safetensors(outcome.head)[1])
        return OutcomeContents(
            outcome.members,
            result.aggregate_sha256,
            result.artifact_sha256,
            head,
            result.broadcast,
            pack_sum(world.setup, vector),
        )

    played = await run_federation(world, tamper=lying(world, story, 2, 1))
    end = played.clients.pop(2)
    assert isinstance(end, SessionAborted)
    assert "server: the released sum is not the one that the outcome names" in end.reason
    assert {outcome.members for _, outcome in played.clients.values()} == {(1, 3, 4)}
    assert [outcome_of(world, stage).members for stage in played.stages] == [EVERYONE, (1, 3, 4), (1, 3, 4)]


@pytest.mark.parametrize(
    "points",
    [
        [(1, "sent", "Outcome")],
        [(2, "received", "KeyAdvertisement")],
        [(2, "received", "UploadHeader")],
        [(1, "received", "UploadHeader"), (2, "sent", "Outcome"), (3, "received", "Endorsement")],
    ],
    ids=str,
)
async def test_server_is_killed_between_and_in_rounds(tmp_path: Path, points: list[tuple[int, str, str]]) -> None:
    """A server that is started again relives every session and goes on; sums are whole and transcripts verify."""
    world = SimulatedFederation.of(tmp_path, step_seconds=5, join_seconds=5)
    played = await run_federation(world, kill=list(points))
    assert played.restarts == len(points)
    assert {outcome.members for _, outcome in played.clients.values()} == {EVERYONE}
    heads = {outcome.head_sha256 for _, outcome in played.clients.values()}
    assert heads == {conclude(played.stages[-1], EVERYONE, opened(world, played.stages[-1])).artifact_sha256}
    for stage in played.stages:
        noise = opened(world, stage) - sum(exact(stage, world.records[member]) for member in EVERYONE)
        check_noise(stage, noise, 4)
        verify_transcript(world.transcripts(0, (stage,))[0])
    assert all(len(world.ledger(member).entries()) == 1 for member in EVERYONE)


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_killed_before_the_outcome_was_recorded(over: Finished, number: int) -> None:
    """A server killed when it had opened a sum, and not yet recorded that, publishes the same numbers again.

    Nobody is there who could confirm them.
    """
    world, played = over
    path = world.transcripts(0, played.stages)[number]
    told = outcome_of(world, played.stages[number])
    records = read_transcript(path)
    cut = next(r.index for r in records if r.kind == "sent" and peek(r.content).step == "Outcome")
    path.unlink()
    with_out = Journal(path)
    for record in records[:cut]:
        with_out.append(record.kind, record.content)  # type: ignore[arg-type]
    with_out.close()
    server = FederationServer(world.setup, make_roster(4)[1][0], world.state(0), lambda text: None)
    try:
        with pytest.raises(NotConfirmed, match="client-1"):
            await server.run()
        assert [stage.setup.context for stage in server.stages] == [stage.context for stage in played.stages]
    finally:
        server.close()
    again = outcome_of(world, played.stages[number])
    assert replace(again, head=b"") == replace(told, head=b"")


def rewritten(path: Path, change: Callable[[str, int, bytes], bytes]) -> None:
    """A transcript chained anew, with the contents that `change` gives."""
    records = read_transcript(path)
    path.unlink()
    journal = Journal(path)
    for record in records:
        journal.append(record.kind, change(record.kind, record.index, record.content))  # type: ignore[arg-type]
    journal.close()


def changed_opening(**fields: object) -> Callable[[bytes], bytes]:
    """A round record with other fields."""
    return lambda content: encode(replace(decode(RoundOpening, content), **fields))  # type: ignore[arg-type]


def other_broadcast(content: bytes) -> bytes:
    """A round record that names other weights."""
    opening = decode(RoundOpening, content)
    return encode(replace(opening, broadcast=replace(opening.broadcast, digest=bytes(32))))


@pytest.mark.parametrize("member", [0, 2])
@pytest.mark.parametrize(
    ("change", "is_found_there"),
    [
        (changed_opening(aggregate_sha256=bytes(32)), False),
        (changed_opening(previous=bytes(32)), False),
        (changed_opening(number=2), True),
        (changed_opening(number=4), True),
        (changed_opening(broadcast=Attachment.of(b"\x00")), False),
        (other_broadcast, False),
        (lambda content: content[:-1], True),
        (lambda content: b"", True),
    ],
    ids=["other sum", "other history", "earlier", "beyond the plan", "no broadcast", "other weights", "short", "empty"],
)
def test_changed_round_record_is_found(
    over: Finished,
    member: int,
    change: Callable[[bytes], bytes],
    is_found_there: bool,
) -> None:
    """A changed round record is found there, or at the first frame, which is then of another session."""
    world, played = over
    path = world.transcripts(member, played.stages)[2]
    kinds = [record.kind for record in read_transcript(path)]
    place = kinds.index("round")
    rewritten(path, lambda kind, _, content: change(content) if kind == "round" else content)
    with pytest.raises(TranscriptInvalid) as refusal:
        verify_transcript(path)
    frame = next(index for index, kind in enumerate(kinds) if kind in ("sent", "received"))
    assert refusal.value.record == (place if is_found_there else frame)


@pytest.mark.parametrize("member", [0, 2])
def test_missing_or_other_round_record_is_found(over: Finished, member: int) -> None:
    """A transcript of the third session without its round record, or with more or other ones, does not verify."""
    world, played = over
    second, third = (read_transcript(path) for path in world.transcripts(member, played.stages)[1:])
    path = world.transcripts(member, played.stages)[2]
    place = next(record.index for record in third if record.kind == "round")
    before, own, after = third[:place], third[place], third[place + 1 :]
    other = second[place]
    assert other.kind == "round"
    for middle in ([], [other], [own, other], [other, own]):
        path.unlink()
        journal = Journal(path)
        for record in [*before, *middle, *after]:
            journal.append(record.kind, record.content)  # type: ignore[arg-type]
        journal.close()
        with pytest.raises(TranscriptInvalid):
            verify_transcript(path)


def test_transcripts_of_later_rounds_do_not_grow(tmp_path: Path) -> None:
    """What a round's transcript begins with is as long in the ninth round as in the third: one opening."""
    played = asyncio.run(run_federation(SimulatedFederation.of(tmp_path, refine=8)))
    world = SimulatedFederation.of(tmp_path, refine=8)
    assert len(played.stages) == 9
    for member in (0, *EVERYONE):
        sizes = []
        for path in world.transcripts(member, played.stages):
            records = read_transcript(path)
            assert [record.kind for record in records].count("round") == (len(sizes) > 0)
            sizes.append(path.stat().st_size)
        assert max(sizes[2:-1]) - min(sizes[2:-1]) < 200, sizes


def moved(transcript: Path, state: Path, world: SimulatedFederation) -> Path:
    """A session's folder, alone in another state folder in which the plan is noted as agreed on."""
    state.mkdir(parents=True)
    note_plan(state, world.setup.plan, world.keys[0])
    return Path(shutil.copytree(transcript.parent, state / "session")) / transcript.name


def test_round_alone_proves_its_sum_and_not_where_it_leads(finished: Finished, tmp_path: Path) -> None:
    """A third round away from the folders of those before it is consistent, and says what could not be computed."""
    world, played = finished
    for member in (0, 2):
        path = world.transcripts(member, played.stages)[2]
        whole = verify_transcript(path, world.trust)
        away = moved(path, tmp_path / str(member), world)
        alone = verify_transcript(away, world.trust)
        without = "round 3 of 3 stands without the transcript of round 2"
        assert whole["verdict"] == f"consistent, but {without}"
        said = "what its sum leads to needs the broadcasts of all rounds before"
        assert alone["verdict"] == f"consistent, but {said}; {without}"
        assert alone["aggregate_sha256"] == whole["aggregate_sha256"]
        if member == 0:
            assert (whole["head_recomputed_here"], alone["head_recomputed_here"]) == ("the same bits", "no")
        with pytest.raises(BadInput, match="round 3 sums follows from the rounds before"):
            read_session(away)


def test_openings_are_found_among_the_given_transcripts(finished: Finished, tmp_path: Path) -> None:
    """A series that lies anywhere verifies to its end; without a middle one, what depends on that stays open."""
    world, played = finished
    away = [moved(path, tmp_path / path.parent.name, world) for path in world.transcripts(0, played.stages)]
    found = verify_together(away, world.trust)
    assert [each.verdict for each in found if isinstance(each, Verified)] == ["verifies"] * 3
    for missing in (0, 1):
        *_, last = verify_together([path for path in away if path != away[missing]], world.trust)
        assert isinstance(last, Verified)
        assert ("stands without" in last.verdict) == ("needs the broadcasts" in last.verdict) == (missing == 1)


def test_false_opening_beside_a_transcript_is_not_taken(over: Finished) -> None:
    """Where the folder of the second round holds another opening, the third does without: nothing false is used."""
    world, played = over
    _, second, third = world.transcripts(0, played.stages)
    rewritten(second, lambda kind, _, content: other_broadcast(content) if kind == "round" else content)
    assert "needs the broadcasts of all rounds before" in verify_transcript(third)["verdict"]
