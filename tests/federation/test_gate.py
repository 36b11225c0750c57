"""A plan with a class gate from beginning to end: the census, what it leaves out, and servers that lie about it.

The gate of the noisy plan errs with probability below 10⁻¹² and its checks of noise with 10⁻⁹ each.
"""

import asyncio
import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods.gate import KeptClasses
from secagg.encoding import Normalisation
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SessionAborted
from secagg.experiments.reference import pooled_result
from secagg.federation import release_of
from secagg.heads import parse_safetensors
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.facts import plan_cost
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Adjacency, Unit
from secagg.protection.masking import PROTECTION, PROVEN
from secagg.protection.proven_bits import PROVEN_CENSUS
from secagg.scoring.card import card_of, markdown_of
from secagg.session import RoundSetup, conclude
from secagg.session.outcome import HEAD_FILE, NO_ARTIFACT, OutcomeContents, check_outcome, unpack_sum
from secagg.verification.transcript_series import verify_together, verify_transcript
from secagg.verification.verification import Verified
from secagg.wire import encode
from tests.federation.test_rounds import lying, outcome_of, renamed_sum
from tests.session.noise_checks import check_noise, check_promise
from tests.worlds.federation import Finished, SimulatedFederation, opened, run_federation, told_of
from tests.worlds.setups import exact, make_setup

EVERYONE = (1, 2, 3, 4)
LONELY = 2
"""The class of which only client 1 has records."""
EXACT = {"epsilon": math.inf, "delta": None, "adjacency": None, "normalise": Normalisation.CENTRED_UNIT}
SURE = {"epsilon": 4000.0}
"""So little noise that the gate decides as the exact census would."""


def gated(folder: Path, refine: int = 1, class_gate: int = 1, **choices: Any) -> SimulatedFederation:
    """Four members, one of whom alone has records of class 2."""
    world = SimulatedFederation.of(folder, refine=refine, class_gate=class_gate, **choices)
    fewer = {member: without(records) if member > 1 else records for member, records in world.records.items()}
    return replace(world, records=fewer)


def without(records: LocalRecords) -> LocalRecords:
    """The records of the other classes."""
    return records.take(np.flatnonzero(records.labels != LONELY))


def held(world: SimulatedFederation) -> list[int]:
    """How many members have a record of each class."""
    classes = range(len(world.setup.plan.classes))
    return [sum(j in records.labels for records in world.records.values()) for j in classes]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A plan without noise: census, moments and a round of refinement, in which everyone took part."""
    world = gated(tmp_path_factory.mktemp("finished"), **EXACT)
    return world, asyncio.run(run_federation(world))


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The same with noise."""
    world = gated(tmp_path_factory.mktemp("noisy"), **SURE)
    return world, asyncio.run(run_federation(world))


def test_census_opens_the_plan(finished: Finished) -> None:
    """The first sum is the number of members that hold each class; it has no head, and nobody is told of one."""
    world, played = finished
    assert held(world) == [4, 4, 1]
    assert [[block.name for block in stage.sum.layout.blocks] for stage in played.stages] == [
        ["census"],
        ["counts", "class_sums", "second_moment"],
        ["gradient"],
    ]
    first = played.stages[0]
    assert opened(world, first).tolist() == held(world)
    outcome = outcome_of(world, first)
    assert (outcome.head, outcome.head_sha256) == (b"", NO_ARTIFACT)
    assert outcome.broadcast == encode(KeptClasses((0, 1)))
    assert not (world.transcripts(0, (first,))[0].parent / HEAD_FILE).exists()
    with pytest.raises(BadInput, match="this sum gives no head"):
        conclude(first, EVERYONE, opened(world, first)).require_artifact()


def test_class_of_one_member_leaves_no_trace(finished: Finished) -> None:
    """Later sums are exactly those of the other classes' records, and the head never predicts the class."""
    world, played = finished
    moments = opened(world, played.stages[1])
    plain = make_setup(4, refine=1, **EXACT)
    assert np.array_equal(moments, sum(exact(plain, without(records)) for records in world.records.values()))
    gradient = opened(world, played.stages[2]).reshape(3, -1)
    assert gradient[:LONELY].all()
    assert not gradient[LONELY].any()
    for _, outcome in played.clients.values():
        assert outcome.members == EVERYONE
        assert parse_safetensors(told_of(world, outcome).head)[0].present.tolist() == [True, True, False]


def test_reference_needs_no_gate(finished: Finished) -> None:
    """With all records in one place the class is there: nobody is to be protected from the pool."""
    world, _ = finished
    pooled = pooled_result(world.setup, world.records)
    ungated = pooled_result(make_setup(4, refine=1, **EXACT), world.records)
    assert pooled.require_artifact().present.all()
    assert pooled.artifact_sha256 == ungated.artifact_sha256


@pytest.mark.parametrize("plan", ["finished", "noisy"])
def test_every_transcript_verifies(plan: str, request: pytest.FixtureRequest) -> None:
    """The transcripts of the census verify like those of the sums after it, and the ledger has one row for all."""
    world, played = request.getfixturevalue(plan)
    for number, stage in enumerate(played.stages, start=1):
        for member in (0, *EVERYONE):
            found = verify_transcript(world.transcripts(member, (stage,))[0])
            assert found["round"] == f"{number} of 3"
    for member in EVERYONE:
        (entry,) = world.ledger(member).entries()
        assert entry.release.spent == plan_cost(world.setup.facts)


def test_census_bears_the_planned_noise(noisy: Finished) -> None:
    """Every opened sum, the census among them, is the exact one plus noise of four shares."""
    world, played = noisy
    assert len(played.stages) == 3
    for stage in played.stages:
        noise = opened(world, stage) - sum(exact(stage, world.records[member]) for member in EVERYONE)
        assert noise.any()
        check_noise(stage, noise, 4)
    for _, outcome in played.clients.values():
        assert parse_safetensors(told_of(world, outcome).head)[0].present.tolist() == [True, True, False]


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_promise_covers_all_kinds_of_sums(unit: Unit, adjacency: Adjacency) -> None:
    """ε is that of census, moments and gradients together; the census has 2 % of μ², moments a fifth of the rest."""
    setup = make_setup(8, refine=3, class_gate=1, unit=unit, adjacency=adjacency, epsilon=4.0, max_records=16)
    check_promise(setup.plan, setup.roster)
    claim = setup.facts.claim
    assert claim is not None
    assert [(part.blocks[0].block.name, times) for part, times in claim.releases.parts] == [
        ("census", 1),
        ("counts", 1),
        ("gradient", 3),
    ]
    spent = [times * part.mu(part.fewest) ** 2 for part, times in claim.releases.parts]
    assert np.array(spent) / sum(spent) == pytest.approx([0.02, 0.196, 0.784], rel=0.01)
    assert claim.releases.epsilon(1e-5) > replace(claim.releases, parts=claim.releases.parts[1:]).epsilon(1e-5)
    assert "over all 5 sums together" in claim.sentence()


def other_classes(*kept: int) -> Callable[..., OutcomeContents]:
    """An outcome that keeps other classes."""
    return lambda outcome, _=None: replace(outcome, broadcast=encode(KeptClasses(kept)))


FOLLOWS = "party 0: the classes that it keeps do not follow from the census"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_classes(0, 1, 2), FOLLOWS),
        (other_classes(0, 2), FOLLOWS),
        (other_classes(1, 2), FOLLOWS),
        (other_classes(0, 1, 9), FOLLOWS),
        (lambda outcome, _: replace(outcome, broadcast=outcome.broadcast[:-1]), "KeptClasses"),
        (lambda outcome, _: replace(outcome, broadcast=b"\x0a\x01\x00"), "KeptClasses"),
        (lambda outcome, _: replace(outcome, broadcast=b""), "party 0: the plan says otherwise"),
        (lambda outcome, _: replace(outcome, release=b""), "party 0: the plan says otherwise"),
        (lambda outcome, _: replace(outcome, head=b"a head"), "party 0: announces a head after a sum"),
        (lambda outcome, _: replace(outcome, head_sha256=b"\x01" * 32), "party 0: announces a head after a sum"),
        (lambda outcome, stage: told_census(stage, outcome, 4, 4, 4), FOLLOWS),
        (lambda outcome, stage: told_census(stage, outcome, 4, 1, 1), "the released sum leads nowhere: 1 of 3 classes"),
    ],
)
@pytest.mark.parametrize("plan", ["finished", "noisy"])
def test_census_outcome_that_does_not_follow_is_refused(
    plan: str,
    change: Callable[[OutcomeContents, RoundSetup], OutcomeContents],
    words: str,
    request: pytest.FixtureRequest,
) -> None:
    """Each client recomputes the kept classes from the released census; what differs is the server's breach."""
    world, played = request.getfixturevalue(plan)
    stage = played.stages[0]
    outcome = outcome_of(world, stage)
    check_outcome(stage, outcome)
    with pytest.raises((ProtocolViolation, MalformedMessage), match=words):
        check_outcome(stage, change(outcome, stage))


def told_census(stage: RoundSetup, outcome: OutcomeContents, *census: int) -> OutcomeContents:
    """Another census under its own digest; no noise makes a thousand clients of one."""
    half = 1 << (stage.context.ring.bits - 1)
    return renamed_sum(stage, outcome, np.clip(1000 * (np.array(census) - 2), -half, half - 1))


def test_head_is_missed_where_there_must_be_one(finished: Finished) -> None:
    """What stands for no head is accepted after a census only."""
    world, played = finished
    for stage in played.stages[1:]:
        outcome = outcome_of(world, stage)
        check_outcome(stage, outcome)
        with pytest.raises(ProtocolViolation, match="party 0: the plan says otherwise about who gets the head"):
            check_outcome(stage, replace(outcome, head=b"", head_sha256=NO_ARTIFACT))
        with pytest.raises(ProtocolViolation, match="party 0: the head is not the one that the outcome names"):
            check_outcome(stage, replace(outcome, head_sha256=NO_ARTIFACT))


async def test_server_that_keeps_the_class_for_one_client_is_named(tmp_path: Path) -> None:
    """A client that is asked for the class all the same leaves before it sends anything of it; the others finish."""
    world = gated(tmp_path, **EXACT)
    played = await run_federation(world, tamper=lying(world, other_classes(0, 1, 2), 1, 1))
    refusal = played.clients.pop(1)
    assert isinstance(refusal, SessionAborted)
    assert FOLLOWS.replace("party 0", "leaves: server") in refusal.reason
    assert {outcome.members for _, outcome in played.clients.values()} == {(2, 3, 4)}


@pytest.mark.parametrize("choices", [EXACT, SURE], ids=["exact", "noise"])
async def test_too_few_classes_end_the_plan(tmp_path: Path, choices: dict[str, Any]) -> None:
    """Where only one class passes everyone is told why, and no sum of records is ever opened."""
    world = gated(tmp_path, **choices)
    world = replace(world, records={member: only(records, member) for member, records in world.records.items()})
    assert held(world) == [4, 1, 1]
    played = await run_federation(world)
    for end in (played.server, *played.clients.values()):
        assert isinstance(end, SessionAborted)
        assert "1 of 3 classes are held by 3 clients or more" in end.reason
    assert len(played.stages) == 1
    assert not (world.transcripts(0, played.stages)[0].parent / "aggregate.npz").exists()


async def test_census_that_ends_the_plan_is_charged_for_itself(tmp_path: Path) -> None:
    """The ledger is charged whole before the census, and settled by the census's cost after it; again adds nothing."""
    world = gated(tmp_path, **SURE)
    world = replace(world, records={member: only(records, member) for member, records in world.records.items()})
    await run_federation(world)
    setup = world.setup
    assert setup.facts.sum_claim is not None
    census = setup.facts.sum_claim.releases.until(1)
    for member in EVERYONE:
        whole, settled = world.ledger(member).entries()
        assert whole.release == release_of(setup.facts, setup.roster.name(member))
        assert settled.release.cost(setup.plan.unit, setup.plan.adjacency) == census.cost()
        assert settled.release.epsilon == census.epsilon(setup.plan.delta) < whole.release.epsilon
        assert {(each.unit, each.adjacency) for each in settled.release.spent} == {
            (each.unit, each.adjacency) for each in whole.release.spent
        }
    before = [world.ledger(member).entries() for member in EVERYONE]
    again = await run_federation(world)
    assert all(isinstance(end, SessionAborted) for end in again.clients.values())
    assert [world.ledger(member).entries() for member in EVERYONE] == before
    for member in EVERYONE:
        budget = world.policy(member).budget
        account = world.ledger(member).account(None, setup.roster.name(member), budget)
        assert account.together == before[member - 1][1].release.epsilon
        with pytest.raises(BadInput, match="nothing more of it can leave"):
            world.ledger(member).record(release_of(setup.facts, setup.roster.name(member)), budget)


def only(records: LocalRecords, member: int) -> LocalRecords:
    """All records at member 1, those of class 0 elsewhere."""
    return records if member == 1 else records.take(np.flatnonzero(records.labels == 0))


async def test_who_vanishes_after_the_census_was_counted_for(tmp_path: Path) -> None:
    """With the tolerated dropout after the census, the class that passed has an honest client in every sum left."""
    world = gated(tmp_path, **EXACT)
    played = await run_federation(world, leaves={3: 1})
    assert [outcome_of(world, stage).members for stage in played.stages] == [EVERYONE, (1, 2, 4), (1, 2, 4)]


@pytest.mark.parametrize(
    "points", [[(1, "sent", "Outcome")], [(1, "received", "UploadHeader"), (2, "sent", "Outcome")]]
)
async def test_server_is_killed_around_the_census(tmp_path: Path, points: list[tuple[int, str, str]]) -> None:
    """A server that is started again relives the census and goes on with the same classes."""
    world = gated(tmp_path, step_seconds=5, join_seconds=5, **EXACT)
    played = await run_federation(world, kill=list(points))
    assert played.restarts == len(points)
    assert {outcome.members for _, outcome in played.clients.values()} == {EVERYONE}
    assert outcome_of(world, played.stages[0]).broadcast == encode(KeptClasses((0, 1)))


@pytest.mark.parametrize(
    ("class_gate", "clients", "choices", "threshold", "fewest"),
    [
        (1, 4, {"dropouts": 1}, 3, 3),
        (3, 9, {"dropouts": 2, "colluders": 2}, 7, 7),
        (2, 5, {"protection": "none"}, 4, 4),
    ],
)
def test_threshold_counts_dropouts_and_colluders(
    class_gate: int, clients: int, choices: dict[str, Any], threshold: int, fewest: int
) -> None:
    """The threshold is the honest clients asked for, the dropouts and the colluders; no smaller sum is opened."""
    for more in (EXACT, SURE):
        setup = make_setup(clients, class_gate=class_gate, **{"dropouts": 1, **choices, **more})
        assert setup.plan.method_parameters["gate"] == threshold
        assert setup.plan.min_clients_in_sum == setup.facts.fewest == fewest


def test_plan_without_gate_says_nothing_of_it() -> None:
    """Without a gate neither the parameters nor the smallest sum change, and the explanation has no such row."""
    plain = make_setup(**EXACT)
    assert plain.plan.parameters == make_setup(**EXACT, class_gate=0).plan.parameters
    assert "gate" not in plain.plan.parameters
    assert plain.plan.min_clients_in_sum == 1
    assert "class gate" not in dict(explain(plain.facts))


@pytest.mark.parametrize("class_gate", [4, -1])
def test_gate_that_no_class_can_pass_is_refused(class_gate: int) -> None:
    """More clients than there are cannot hold a class; the remedy names what to lower."""
    with pytest.raises(BadInput, match=f"a class gate of {class_gate}, beyond 1 dropouts and 1 colluders") as refusal:
        make_setup(5, class_gate=class_gate, dropouts=1)
    assert "class gate" in str(refusal.value.remedy)


def test_explanation_states_the_gate() -> None:
    """One row says who is left out and why; under noise also how surely, from the census's σ."""
    rows = dict(explain(make_setup(4, class_gate=1, dropouts=1, refine=2, **EXACT).facts))
    assert rows["what is summed"] == (
        "census 3: 3 integers, then counts 3, class sums 3×4, second moment 10: 25 integers, then "
        "2 times update 3×5: 15 integers, over the same records"
    )
    assert "fewer than 3 clients" in rows["class gate"]
    assert "the head: 1 honest, 1 that may vanish, 1 that may collude" in rows["class gate"]
    setup = make_setup(20, class_gate=4, dropouts=2, epsilon=8.0)
    noise = setup.sum.opened_noise(20)["census"]
    sigma = noise.sigma / noise.multiplier
    said = dict(explain(setup.facts))["class gate"]
    assert f"passes with probability Φ((m - 7)/{sigma:.3g})" in said
    assert "rests on the word" not in said
    one, everyone = (0.5 * math.erfc((7 - holders) / sigma / math.sqrt(2)) for holders in (1, 20))
    chances = f"{one:.2g} where one holds it and {everyone:.2g} where all do"
    assert said.endswith(f"{chances}; so the gate is about accuracy, and epsilon alone hides a client")


def test_transcripts_say_what_they_prove(finished: Finished) -> None:
    """Of a client the census by its proofs, then the masked sums that it opened; of a server the census too."""
    world, played = finished
    found = verify_together(world.transcripts(1, played.stages), world.trust)
    said = [each.proves for each in found if isinstance(each, Verified)]
    assert said == [PROVEN_CENSUS, PROVEN, PROVEN]
    found = verify_together(world.transcripts(0, played.stages), world.trust)
    said = [each.proves for each in found if isinstance(each, Verified)]
    assert said == [PROVEN_CENSUS, *[PROTECTION.proves] * 2]


def test_card_of_a_head_names_what_it_never_predicts(finished: Finished) -> None:
    """The model card says which classes the gate left out, beside those that the head tells apart."""
    world, played = finished
    card = card_of(played.stages[-1], "00", (1, 2, 3, 4))
    assert card["classes_left_out"] == [world.setup.plan.classes[LONELY]]
    assert f"| left out by the class gate | {world.setup.plan.classes[LONELY]} |" in markdown_of(card)
    none = card_of(make_setup(4), "00", (1, 2, 3, 4))
    assert none["classes_left_out"] == []
    assert "left out" not in markdown_of(none)


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
def test_exact_gate_rests_on_proven_entries(protection: str) -> None:
    """An exact gate is said to rest on nobody's word where entries are proven; on all words where they are not."""
    said = dict(explain(make_setup(4, class_gate=1, dropouts=1, protection=protection, **EXACT).facts))["class gate"]
    assert "so that a class passes only if 3 clients state that they have it" in said
    assert said.endswith("colluders know its part: a gate of 2 hides it")
    said = dict(explain(make_setup(5, class_gate=2, dropouts=1, protection=protection, **EXACT).facts))["class gate"]
    assert said.endswith("A client can state a class that it lacks, and keep back one that it has")
    said = dict(explain(make_setup(4, class_gate=1, dropouts=1, protection="none", **EXACT).facts))["class gate"]
    assert "rests on the word of every client and of the server: no census entry is proven" in said
    assert said.endswith("adds 2 opens the sum of a class that one client alone has")


def test_stated_census_is_hashed_like_any_sum(finished: Finished) -> None:
    """The census's digest is that of its little-endian integers."""
    world, played = finished
    outcome = outcome_of(world, played.stages[0])
    assert unpack_sum(played.stages[0], outcome.release).tolist() == held(world)
    assert outcome.aggregate_sha256 == hashlib.sha256(np.array(held(world), dtype="<i8").tobytes()).digest()
