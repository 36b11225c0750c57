"""FedPCL with all its parties: sealed projections are carried, and members end with models of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods.own_models.local_projection import Kept
from methods.slots.slots import Centres
from secagg.encoding import Normalisation
from secagg.errors import BadInput, ProtocolViolation
from secagg.federation import session_folder
from secagg.networks import read_model
from secagg.session import conclude
from secagg.session.outcome import HEAD_FILE, OutcomeContents, check_outcome
from secagg.session.sealed_state import STATE_FILE, recall_state
from secagg.verification.transcript_series import verify_transcript
from secagg.wire import decode, encode
from tests.federation.own_models import own_models
from tests.federation.test_rounds import outcome_of
from tests.worlds.federation import Finished, SimulatedFederation, opened, run_federation, told_of

EVERYONE = (1, 2, 3, 4)
EXACT = {"epsilon": float("inf"), "delta": None, "adjacency": None}
ROUNDS = (("rounds", 3), ("width", 8))


def played(folder: Path, method: str = "fedpcl", **events: Any) -> Finished:
    """A plan of three rounds, without noise."""
    patience = {"join_seconds": 10, "step_seconds": 10}  # the first training loads torch
    choices = {"parameters": ROUNDS, "normalise": Normalisation.CENTRED_UNIT, **EXACT, **patience}
    world = SimulatedFederation.of(folder, method=method, **choices)
    return world, asyncio.run(run_federation(world, **events))


@pytest.fixture(scope="module", params=["fedpcl", "fedproto"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Every party is at the end."""
    return played(tmp_path_factory.mktemp("plan"), request.param)


def test_projections_are_sealed_and_carried(finished: Finished) -> None:
    """The last round leaves each member tensors, in its own folder alone, the others none; no transcript holds them."""
    world, ended = finished
    assert len(ended.stages) == 3
    states = []
    for member in EVERYONE:
        *before, last = (session_folder(world.state(member), stage) for stage in ended.stages)
        states.append(recall_state(last, ended.stages[-1].context.round_digest))
        assert (last / STATE_FILE).stat().st_mode & 0o777 == 0o600
        assert not any((folder / STATE_FILE).exists() for folder in before)
    assert len(set(states)) == len(EVERYONE)
    assert not list(world.state(0).rglob(STATE_FILE))
    weights = (
        Kept.of(states[-1], world.setup.method.local_program(4, np.zeros((1, 3, 8))), 3).tensors["weight"].tobytes()
    )
    for transcript in (*world.transcripts(1, ended.stages), *world.transcripts(4, ended.stages)):
        verify_transcript(transcript)
        assert weights not in transcript.read_bytes()


def test_members_end_with_models_of_their_own(finished: Finished) -> None:
    """From its state and the last sum each member writes models, which differ from the others' and know its records."""
    world, _ = finished
    grid, found = world.setup.plan.grid, set()
    for member in EVERYONE:
        models = {name: model for name, (model, _) in own_models(finished, member).items()}
        records = world.records[member]
        inputs = records.integers / grid.unit(world.setup.plan.dimension)
        assert models["global"].evaluate(inputs, records.labels).accuracy > 0.6
        found |= {model.digest for model in models.values()}
    assert len(found) == {"fedpcl": 12, "fedproto": 8}[world.setup.plan.method]
    with pytest.raises(BadInput, match="not a safetensors file"):
        own_models(finished, EVERYONE[-1], b"another")


def test_everybody_is_told_the_public_model(finished: Finished) -> None:
    """The plan's artifact is the model that the opened sum gives, and its file says which program it is."""
    world, ended = finished
    last = ended.stages[-1]
    expected = conclude(last, EVERYONE, opened(world, last)).artifact_sha256
    for _, outcome in ended.clients.values():
        assert outcome.head_sha256 == expected
        model, texts = world.setup.method.read_artifact(told_of(world, outcome).head)
        assert texts["program"] == "similar:8"
        assert model.digest == outcome.head_sha256.hex()
    assert (session_folder(world.state(0), last) / HEAD_FILE).exists()


def test_the_server_may_crash_and_the_members_go_on(tmp_path: Path) -> None:
    """A server that dies at an outcome comes back, and nobody trains a round twice: all end with one sum.

    Each member's moments are of two trainings, one batch each, however often a round was begun.
    """
    world, ended = played(tmp_path, kill=[(2, "sent", "Outcome")])
    assert ended.restarts == 1
    sums = {outcome.aggregate_sha256 for _, outcome in ended.clients.values()}
    assert sums == {conclude(ended.stages[-1], EVERYONE, opened(world, ended.stages[-1])).aggregate_sha256}
    last, program = ended.stages[-1], world.setup.method.local_program(4, np.zeros((1, 3, 8)))
    for member in EVERYONE:
        state = recall_state(session_folder(world.state(member), last), last.context.round_digest)
        assert Kept.of(state, program, 3).flat[-1] == 2


def other_prototypes(outcome: OutcomeContents) -> OutcomeContents:
    """One unit more in one entry."""
    told = decode(Centres, outcome.broadcast)
    return replace(outcome, broadcast=encode(replace(told, rows=bytes([told.rows[0] ^ 1]) + told.rows[1:])))


def other_model(outcome: OutcomeContents) -> OutcomeContents:
    """The last bit of the last entry flipped, and the digest of that."""
    head = outcome.head[:-4] + bytes([outcome.head[-4] ^ 1]) + outcome.head[-3:]
    return replace(outcome, head=head, head_sha256=bytes.fromhex(read_model(head)[0].digest))


def other_program(outcome: OutcomeContents) -> OutcomeContents:
    """The same tensors under another rule, with its digest."""
    head = outcome.head.replace(b"similar:8", b"nearest:8")
    return replace(outcome, head=head, head_sha256=bytes.fromhex(read_model(head)[0].digest))


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (0, other_prototypes, "the prototypes it broadcasts do not follow from the released sum"),
        (1, other_prototypes, "the prototypes it broadcasts do not follow from the released sum"),
        (2, other_model, "the head does not follow from the released sum"),
        (2, other_program, "the head does not follow from the released sum"),
    ],
)
def test_what_does_not_follow_from_the_sum_is_refused(
    finished: Finished, number: int, change: Callable[[OutcomeContents], OutcomeContents], words: str
) -> None:
    """A member makes prototypes and public model of the sum that it is shown, and refuses others."""
    world, ended = finished
    stage = ended.stages[number]
    outcome = outcome_of(world, stage)
    check_outcome(stage, outcome)
    with pytest.raises(ProtocolViolation, match=words):
        check_outcome(stage, change(outcome))
