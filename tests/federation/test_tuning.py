"""FedPop with all its parties: one population for everybody, lies are named, crashes change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods.search.round import PopulationRound
from methods.training.training_round import MODEL, ModelState
from secagg.encoding.updates import State
from secagg.errors import ProtocolViolation
from secagg.heads import to_safetensors
from secagg.networks.trained_model import TunedModel
from secagg.privacy import Adjacency
from secagg.session import conclude
from secagg.session.outcome import OutcomeContents, check_outcome
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import Trust, Verified
from secagg.wire import decode, encode
from tests.federation.killed import run_killing, verified_result
from tests.federation.test_rounds import outcome_of
from tests.worlds.federation import Finished, SimulatedFederation, opened, run_federation, told_of
from tests.worlds.processes import Processes, processes
from tests.worlds.rosters import SERVER

SPACE = ("space", "rate=log:0.01:1;server_rate=log:0.5:2")
UPDATES = (("rounds", 3), ("interval", 1), ("validation", 0.4), ("fixed", "clip=5;server=momentum"), SPACE)
GRADIENTS = (("rounds", 3), ("interval", 1), ("validation", 0.4), ("fixed", "clip=5;gradients=1"), SPACE)
EXACT = {"epsilon": float("inf"), "delta": None, "adjacency": None}
EVERYONE = tuple(range(1, 9))
NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")


def world_of(folder: Path, parameters: tuple[tuple[str, Any], ...], **choices: Any) -> SimulatedFederation:
    """Eight members in two cohorts of four: where one may vanish and one collude two are left."""
    patience = {"join_seconds": 10, "step_seconds": 10}
    given = {**EXACT, **patience, **choices}
    return SimulatedFederation.of(folder, clients=8, method="fedpop", parameters=parameters, **given)


def played(folder: Path, parameters: tuple[tuple[str, Any], ...], **choices: Any) -> Finished:
    """Such a plan from beginning to end."""
    world = world_of(folder, parameters, **choices)
    return world, asyncio.run(run_federation(world))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Three rounds of updates."""
    return played(tmp_path_factory.mktemp("tuning"), UPDATES)


def check_end(world: SimulatedFederation, ended: Any) -> None:
    """All members have one model with its settings, which anyone makes again of the sums; transcripts verify."""
    (outcome,) = {outcome for _, outcome in ended.clients.values()}
    assert outcome.members == EVERYONE
    model, texts = world.setup.method.read_artifact(told_of(world, outcome).head)
    assert isinstance(model, TunedModel)
    assert model.settings.startswith("rate=")
    assert texts["method"] == "fedpop"
    last = conclude(ended.stages[-1], EVERYONE, opened(world, ended.stages[-1]))
    assert last.require_artifact().digest == model.digest
    trust = Trust((world.setup.plan.digest,), (world.setup.roster.digest,))
    found = verify_together(world.transcripts(0, ended.stages), trust)
    assert [each.findings["verdict"] for each in found if isinstance(each, Verified)] == ["verifies"] * 3


def test_everybody_ends_with_the_model_of_the_opened_sums(finished: Finished) -> None:
    """Without noise: models, settings and scores follow from the sums, round by round."""
    check_end(*finished)


@pytest.mark.parametrize("protection", ["shared", "masked"])
def test_noise_is_in_every_round(tmp_path: Path, protection: str) -> None:
    """At a finite epsilon about records all sums and scores carry noise and are charged once together."""
    promise = {"epsilon": 8.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE}
    world, ended = played(tmp_path, GRADIENTS, protection=protection, **promise)
    check_end(world, ended)
    assert {len(world.ledger(member).entries()) for member in EVERYONE} == {1}


def test_who_leaves_is_missed_by_its_cohort_alone(tmp_path: Path) -> None:
    """A member that is gone after the first round leaves the others a model of the sums that it is not in."""
    ended = asyncio.run(run_federation(world_of(tmp_path, UPDATES), leaves={3: 1}))
    ended.clients.pop(3)
    assert {outcome.members for _, outcome in ended.clients.values()} == {(1, 2, 4, 5, 6, 7, 8)}
    assert len({outcome.head_sha256 for _, outcome in ended.clients.values()}) == 1


def test_the_server_may_crash(tmp_path: Path) -> None:
    """A server that dies at an outcome comes back, and all end with what they would have."""
    world = world_of(tmp_path, UPDATES)
    ended = asyncio.run(run_federation(world, kill=[(2, "sent", "Outcome")]))
    assert ended.restarts == 1
    check_end(world, ended)


def changed(outcome: OutcomeContents, round_: PopulationRound, name: str) -> OutcomeContents:
    """A state of which one number is another, such as could be in it."""
    told = decode(ModelState, outcome.broadcast)
    state = State.from_bytes(told.state, round_.shapes)
    group = state.groups[name].copy()
    group.flat[0] = {"order": 1 - group.flat[0], "places": 0.25}.get(name, np.nextafter(group.flat[0], 9.0))
    if name == "order":
        group.flat[1] = 1 - group.flat[1]
    forged = State({**state.groups, name: group}, {}, state.step)
    return replace(outcome, broadcast=encode(replace(told, state=forged.to_bytes())))


@pytest.mark.parametrize("name", [MODEL, "velocity", "places", "tried", "order", "scores"])
def test_a_population_that_does_not_follow_is_refused(finished: Finished, name: str) -> None:
    """Models, settings, who tries what and scores: each member repeats every draw, and what differs is a breach."""
    world, ended = finished
    stage = ended.stages[0]
    outcome = outcome_of(world, stage)
    check_outcome(stage, outcome)
    round_ = ended.stages[1].round
    assert isinstance(round_, PopulationRound)
    with pytest.raises(ProtocolViolation, match="party 0: the state it broadcasts does not follow"):
        check_outcome(stage, changed(outcome, round_, name))


def test_settings_that_were_not_found_are_refused(finished: Finished) -> None:
    """A file that names other settings, or another score, than the sums lead to is the server's breach."""
    world, ended = finished
    stage = ended.stages[-1]
    outcome = outcome_of(world, stage)
    model, texts = world.setup.method.read_artifact(outcome.head)
    assert isinstance(model, TunedModel)
    for other in (replace(model, settings="rate=1 server_rate=1"), replace(model, score=0.0)):
        head = to_safetensors(other, {name: text for name, text in texts.items() if name not in other.texts})
        told = replace(outcome, head=head, head_sha256=bytes.fromhex(other.digest))
        with pytest.raises(ProtocolViolation, match="party 0: the head does not follow from the released sum"):
            check_outcome(stage, told)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Processes]:
    """Eight members and a server over gRPC, with a plan of three rounds at ε = 8; nobody runs yet."""
    promise = {"epsilon": 8.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE, "radius": None}
    chosen = {"method": "fedpop", "parameters": GRADIENTS}
    with processes(tmp_path, 60, names=NAMES, **chosen, **promise) as found:
        yield found


@pytest.mark.long
def test_killed_server_goes_on_with_the_search(federation: Processes) -> None:
    """A server that is killed in the second of three rounds goes on; all end with one model and one ledger row."""
    run_killing(federation, SERVER)
    result, found = verified_result(federation)
    assert result["rounds"] == len(found) == 3
