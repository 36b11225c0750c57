"""FRAug with all its parties: what leaves a member, what stays sealed with it, and the model that it ends with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from methods.training.fraug import AugmentedUpdate
from methods.training.training_round import TrainingRound
from secagg.encoding import Normalisation
from secagg.encoding.updates.encoding import blocks_of
from secagg.errors import BadInput
from secagg.federation import session_folder
from secagg.networks.augmented import size_of
from secagg.protection.messages import UploadHeader
from secagg.session.sealed_state import STATE_FILE, recall_state
from secagg.transcript import payload_of, peek, read_transcript
from secagg.verification.transcript_series import verify_transcript
from tests.federation.own_models import own_models
from tests.worlds.federation import Finished, SimulatedFederation, run_federation

EVERYONE = (1, 2, 3, 4)
PARAMETERS: dict[str, Any] = {"model": "mlp:8", "rounds": 3, "steps": 10, "batch": 8, "rate": 0.1, "clip": 50.0}
PARAMETERS |= {"latent": 4, "hidden": 6, "synthetic": 6}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Every party is at the end of three rounds without noise."""
    patience = {"join_seconds": 20, "step_seconds": 20}  # the first training loads torch
    exact = {"epsilon": float("inf"), "delta": None, "adjacency": None, "normalise": Normalisation.CENTRED_UNIT}
    world = SimulatedFederation.of(
        tmp_path_factory.mktemp("plan"), method="fraug", parameters=tuple(PARAMETERS.items()), **exact, **patience
    )
    return world, asyncio.run(run_federation(world))


def test_one_vector_leaves_a_member_in_a_round(finished: Finished) -> None:
    """Its upload is that of ω and of θ without its normalisation, padded and packed, and no other vector is sent."""
    world, ended = finished
    for stage in ended.stages:
        round_ = stage.round
        assert isinstance(round_, TrainingRound)
        assert isinstance(round_.work, AugmentedUpdate)
        whole = round_.work.whole
        sent = size_of(whole.generator_shapes) + whole.classifier.size - size_of(whole.classifier.normalisation)
        expected = sum(blocks_of(sent)) * stage.context.ring.entry_bytes
        assert [block.size for block in stage.sum.spec.blocks] == [sum(blocks_of(sent))]
        for member in EVERYONE:
            (path,) = world.transcripts(member, [stage])
            verify_transcript(path)
            said = [peek(record.content) for record in read_transcript(path) if record.kind == "sent"]
            lengths = [payload_of(each, UploadHeader).length for each in said if each.step == UploadHeader.__name__]
            assert lengths == [expected]


def test_what_stays_is_sealed_and_in_no_transcript(finished: Finished) -> None:
    """RTNet, prototypes and normalisation differ from member to member, lie in its own folder, and never travel."""
    world, ended = finished
    last = ended.stages[-1]
    tensors_of = last.round.work.kept  # type: ignore[attr-defined]
    kept = {}
    for member in EVERYONE:
        folder = session_folder(world.state(member), last)
        assert (folder / STATE_FILE).stat().st_mode & 0o777 == 0o600
        kept[member] = tensors_of.read(recall_state(folder, last.context.round_digest))
    assert not list(world.state(0).rglob(STATE_FILE))
    for party in (0, *EVERYONE):
        for path in world.transcripts(party, ended.stages):
            content = path.read_bytes()
            for tensors in kept.values():
                assert not any(each.tobytes() in content for each in tensors.values())
    assert len({each["transfer.first.weight"].tobytes() for each in kept.values()}) == 4


def test_members_end_with_models_of_their_own(finished: Finished) -> None:
    """`personal-own.safetensors` is the last public state with the member's own normalisation."""
    world, _ = finished
    grid, found = world.setup.plan.grid, set()
    for member in EVERYONE:
        ((name, (model, _)),) = own_models(finished, member).items()
        assert name == "own"
        records = world.records[member]
        inputs = records.integers / grid.unit(world.setup.plan.dimension)
        assert model.evaluate(inputs, records.labels).accuracy > 0.5
        found.add(model.digest)
    assert len(found) == 4
    with pytest.raises(BadInput, match="not a safetensors file"):
        own_models(finished, EVERYONE[-1], b"another")
