"""FedDAT with all its parties: what leaves a member, what it keeps, and what it can use at the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from methods.training.feddat import AdapterUpdate
from methods.training.training_round import TrainingRound
from secagg.federation import session_folder
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.plan_facts.records import read_records
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.session.sealed_state import recall_state
from secagg.transcript import peek, read_transcript
from secagg.verification.transcript_series import verify_transcript
from tests.federation.own_models import own_models
from tests.worlds.encoders import SIDE, save_encoder, save_triplets
from tests.worlds.federation import Finished, SimulatedFederation, run_federation, told_of
from tests.worlds.rosters import make_roster

EVERYONE = (1, 2, 3)
PARAMETERS = {"places": "2x16", "rank": 3, "rounds": 2, "rate": 0.01, "batch": 8, "clip": 10.0}
DOMAINS = {1: "colours", 2: "digits", 3: "colours"}
COUNTS = {1: 20, 2: 12, 3: 7}


def world_of(folder: Path) -> SimulatedFederation:
    """Three members with questions, answers and numbers of records of their own."""
    backbone = f"transformers:{save_encoder(folder / 'vilt')}"
    roster, _ = make_roster(len(EVERYONE), "masked")
    data = PublicData("triplets", (3 * SIDE**2 + 256,), ("0", "1", "2"), None, None)
    choices = PlanChoices(
        method="feddat",
        parameters=tuple(PARAMETERS.items()),
        backbone=backbone,
        radius=1.01,
        max_records=64,
        dropouts=0,
        join_seconds=30,
        step_seconds=30,
    )
    setup = RoundSetup.of(make_plan(data, roster, choices, OperatingSystem()), roster)
    records = {}
    for member in EVERYONE:
        source = save_triplets(folder / f"{member}.triplets", COUNTS[member], (DOMAINS[member],), seed=member)
        records[member] = read_records(setup.plan, str(source), backbone)
    return SimulatedFederation(folder / "parties", setup, records)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Every party is at the end."""
    world = world_of(tmp_path_factory.mktemp("adapters"))
    return world, asyncio.run(run_federation(world))


def test_one_vector_leaves_a_member_in_a_round(finished: Finished) -> None:
    """As many numbers as A_s has, padded by 2 % or 64: the same bytes whatever it holds, nothing that it keeps."""
    world, ended = finished
    first = world.setup.round
    assert isinstance(first, TrainingRound)
    assert isinstance(first.work, AdapterUpdate)
    size, padded = first.program.size, world.setup.sum.layout.length
    assert size <= padded <= max(1.02 * size, size + 64)
    assert [block.name for block in world.setup.sum.layout.blocks] == ["update"]
    packed = -(-padded * world.setup.context.ring.bits // 8)
    sizes = set()
    for member in EVERYONE:
        sent, held = 0, b""
        for stage in ended.stages:
            folder = session_folder(world.state(member), stage)
            held = recall_state(folder, stage.context.round_digest)
            records = list(read_transcript(world.transcripts(member, (stage,))[0]))
            sent += sum(len(each.content) for each in records if each.kind == "sent")
        sizes.add(sent)
        own = first.work.kept.row(held).astype(np.float32).tobytes()
        for transcript in (*world.transcripts(member, ended.stages), *world.transcripts(0, ended.stages)):
            verify_transcript(transcript)
            content = transcript.read_bytes()
            assert own[:64] not in content
            assert own[-64:] not in content
            assert b"green" not in content
        assert sent >= 2 * packed
    assert len(sizes) == 1


def test_members_end_with_models_that_read_back(finished: Finished) -> None:
    """Each has the shared adapter with its own head, and with its own adapter, as files of its own."""
    world, ended = finished
    found = set()
    for member in EVERYONE:
        models, records = own_models(finished, member), world.records[member]
        assert set(models) == {"shared", "personal"}
        for model, texts in models.values():
            assert texts["backbone"] == "transformers:vilt"
            assert records.feature_map is not None
            assert records.inputs is not None
            own = model.over(records.feature_map)
            assert own.predict(records.feature_map.encoder.prepare(records.inputs)).shape == (len(records),)  # type: ignore[arg-type]
            found.add(model.digest)
        _, outcome = ended.clients[member]
        artifact, _ = world.setup.method.read_artifact(told_of(world, outcome).head)
        assert artifact.digest == outcome.head_sha256.hex()
        assert not artifact.predicts
    assert len(found) == 2 * len(EVERYONE)


def test_the_message_that_ends_a_round_tells_the_shared_adapter_alone(finished: Finished) -> None:
    """The server says the next state: A_s, and no more numbers than it has."""
    world, ended = finished
    first = world.setup.round
    assert isinstance(first, TrainingRound)
    content = list(read_transcript(world.transcripts(0, ended.stages[:1])[0]))
    outcomes = [peek(each.content) for each in content if each.kind == "sent"]
    told = [each for each in outcomes if each.step == "Outcome"]
    assert told
    assert set(ended.stages[1].round.state.groups) == {"model"}  # type: ignore[attr-defined]
    assert ended.stages[1].round.state.groups["model"].shape == (first.program.size,)  # type: ignore[attr-defined]
