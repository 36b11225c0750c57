"""A model trained in three rounds by the real parties in memory: the same bits for everybody, and lies are named."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods.training.training_round import MODEL, ModelState, TrainingRound
from secagg.encoding.updates import State
from secagg.errors import MalformedMessage, PlanRefused, ProtocolViolation, SessionAborted
from secagg.experiments.reference import pooled_result
from secagg.heads import to_safetensors
from secagg.networks import TrainedModel, parse_artifact, read_model
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.privacy import Adjacency, Unit
from secagg.session import conclude
from secagg.session.outcome import OutcomeContents, check_outcome
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import Trust, Verified
from secagg.wire import decode, encode
from tests.federation.test_rounds import lying, outcome_of
from tests.worlds.federation import Finished, SimulatedFederation, opened, run_federation, told_of
from tests.worlds.setups import make_setup

EXACT = {"epsilon": float("inf"), "delta": None, "adjacency": None}
UPDATES = (("rounds", 3), ("rate", 0.5), ("clip", 5.0), ("cap", 40), ("server", "momentum"))
GRADIENTS = (("rounds", 3), ("rate", 0.5), ("clip", 5.0), ("gradients", 1))
EVERYONE = (1, 2, 3, 4)


def world_of(folder: Path, parameters: tuple[tuple[str, Any], ...], **choices: Any) -> SimulatedFederation:
    """Four members of a plan that trains in three rounds, without noise unless said otherwise."""
    return SimulatedFederation.of(folder, method="fedavg", parameters=parameters, **{**EXACT, **choices})


def played(folder: Path, parameters: tuple[tuple[str, Any], ...], **choices: Any) -> Finished:
    """Such a plan from beginning to end."""
    world = world_of(folder, parameters, **choices)
    return world, asyncio.run(run_federation(world))


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
@pytest.mark.parametrize("parameters", [UPDATES, GRADIENTS], ids=["updates", "gradients"])
def test_everybody_ends_with_the_model_of_the_opened_sums(
    tmp_path: Path, parameters: tuple[tuple[str, Any], ...], protection: str
) -> None:
    """All four members get one model, which anyone makes again of the three opened sums; the transcripts verify."""
    world, ended = played(tmp_path, parameters, protection=protection)
    assert [stage.number for stage in ended.stages] == [1, 2, 3]
    outcomes = [outcome for _, outcome in ended.clients.values()]
    assert {outcome.members for outcome in outcomes} == {EVERYONE}
    assert len(set(outcomes)) == 1
    model, texts = parse_artifact(told_of(world, outcomes[0]).head)
    assert isinstance(model, TrainedModel)
    assert texts["method"] == "fedavg"
    setup = world.setup
    for stage in ended.stages:
        result = conclude(setup, EVERYONE, opened(world, stage))
        setup = stage if result.following is None else next(s for s in ended.stages if s.number == stage.number + 1)
    assert result.artifact is not None
    assert result.artifact.digest == model.digest
    trust = Trust((world.setup.plan.digest,), (world.setup.roster.digest,))
    found = verify_together(world.transcripts(0, ended.stages), trust)
    assert [each.findings["verdict"] for each in found if isinstance(each, Verified)] == ["verifies"] * 3


def test_gradients_of_members_are_those_of_pooled_records(tmp_path: Path) -> None:
    """Records' gradients make the same model however they are divided: the pooled one, bit for bit."""
    world, ended = played(tmp_path, GRADIENTS)
    pooled = pooled_result(world.setup, world.records).artifact_sha256
    assert {outcome.head_sha256 for _, outcome in ended.clients.values()} == {pooled}


@pytest.mark.parametrize(("parameters", "unit"), [(UPDATES, Unit.CLIENT), (GRADIENTS, Unit.RECORD)])
def test_noise_is_in_every_round(tmp_path: Path, parameters: tuple[tuple[str, Any], ...], unit: Unit) -> None:
    """With a finite epsilon all three sums carry noise, are charged once together, and members agree on the model."""
    world, ended = played(tmp_path, parameters, epsilon=8.0, delta=1e-5, adjacency=Adjacency.ADD_REMOVE, unit=unit)
    assert len({outcome.head_sha256 for _, outcome in ended.clients.values()}) == 1
    assert all(stage.sum.calibration is not None for stage in ended.stages)
    assert world.setup.facts.claim is not None
    assert world.setup.facts.claim.unit == unit
    assert "all 3 sums together" in world.setup.facts.claim.sentence()
    assert {len(world.ledger(member).entries()) for member in EVERYONE} == {1}


def test_member_without_records_takes_part(tmp_path: Path) -> None:
    """A member without any record is in all three sums."""
    world = world_of(tmp_path, UPDATES)
    world = replace(world, records={**world.records, 2: world.records[2].take(np.zeros(0, dtype=np.int64))})
    ended = asyncio.run(run_federation(world))
    assert {outcome.members for _, outcome in ended.clients.values()} == {EVERYONE}


def test_who_leaves_is_missed_by_none(tmp_path: Path) -> None:
    """A member that is gone after the first round leaves the others a model of the sums that it is not in."""
    world = world_of(tmp_path, UPDATES)
    ended = asyncio.run(run_federation(world, leaves={3: 1}))
    ended.clients.pop(3)
    assert {outcome.members for _, outcome in ended.clients.values()} == {(1, 2, 4)}
    assert len({outcome.head_sha256 for _, outcome in ended.clients.values()}) == 1


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Three rounds of updates."""
    return played(tmp_path_factory.mktemp("training"), UPDATES)


def other_state(outcome: OutcomeContents) -> OutcomeContents:
    """A state whose first parameter differs in the last bit."""
    told = decode(ModelState, outcome.broadcast)
    state = State.from_bytes(told.state, {MODEL: (15,)})
    flat = state.flat
    flat[0] = np.nextafter(flat[0], 1.0)
    return replace(outcome, broadcast=encode(replace(told, state=state.with_flat(flat).to_bytes())))


def other_model(outcome: OutcomeContents) -> OutcomeContents:
    """A model whose parameters differ in the last bit, under its own digest."""
    model, texts = read_model(outcome.head)
    other = TrainedModel(model.program, {name: np.nextafter(each, 9) for name, each in model.parameters.items()})
    return replace(outcome, head=to_safetensors(other, texts), head_sha256=bytes.fromhex(other.digest))


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (0, other_state, "party 0: the state it broadcasts does not follow from the released sums"),
        (1, other_state, "party 0: the state it broadcasts does not follow from the released sums"),
        (1, lambda outcome: replace(outcome, broadcast=outcome.broadcast[:-1]), "ModelState"),
        (2, other_model, "party 0: the head does not follow from the released sum"),
        (2, lambda outcome: replace(outcome, head=outcome.head[:-1]), "party 0: the head is not the plan's"),
        (2, lambda outcome: replace(outcome, release=b""), "party 0: the plan says otherwise"),
    ],
)
def test_outcome_that_does_not_follow_is_refused(finished: Finished, number: int, change: Any, words: str) -> None:
    """Each member recomputes state and model of the released sum; what differs is the server's breach."""
    world, ended = finished
    stage = ended.stages[number]
    outcome = outcome_of(world, stage)
    check_outcome(stage, outcome)
    with pytest.raises((ProtocolViolation, MalformedMessage), match=words):
        check_outcome(stage, change(outcome))


async def test_server_that_tells_one_member_another_state_is_named(tmp_path: Path) -> None:
    """A member that is told another state leaves and names the server; the others finish."""
    world = world_of(tmp_path, UPDATES)
    ended = await run_federation(world, tamper=lying(world, other_state, 2, 1))
    refusal = ended.clients.pop(2)
    assert isinstance(refusal, SessionAborted)
    assert "the state it broadcasts does not follow" in refusal.reason
    assert {outcome.members for _, outcome in ended.clients.values()} == {(1, 3, 4)}


@pytest.mark.parametrize("parameters", [UPDATES, GRADIENTS], ids=["updates", "gradients"])
def test_rounds_without_noise_are_refused_by_default(parameters: tuple[tuple[str, Any], ...]) -> None:
    """At ε = ∞ the default policy refuses three sums about the same records, in one line; with noise it does not."""
    setup = make_setup(4, method="fedavg", parameters=parameters, **EXACT)
    with pytest.raises(PlanRefused) as refusal:
        setup.facts.check(replace(policy_accepting(setup.plan, "data"), refinement_without_noise=False))
    (line,) = refusal.value.violations
    assert line.startswith("refinement_without_noise: 2 more exact sums about the same records would be opened")
    noisy = make_setup(4, method="fedavg", parameters=parameters)
    noisy.facts.check(replace(policy_accepting(noisy.plan, "data"), refinement_without_noise=False))


def test_rounds_are_chain_rounds(finished: Finished) -> None:
    """Each session's round begins at the state that the one before led to."""
    _, ended = finished
    rounds = [stage.round for stage in ended.stages]
    assert all(isinstance(each, TrainingRound) for each in rounds)
    assert [each.state.step for each in rounds if isinstance(each, TrainingRound)] == [0, 1, 2]
