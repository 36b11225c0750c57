"""FedBiP with all its parties: concepts, then slots' means, the same for everybody; crashes change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from secagg.networks import SlotMeans
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.plan_facts.records import read_records
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup, conclude
from secagg.verification.transcript_series import verify_transcript
from tests.federation.killed import run_killing, verified_result
from tests.worlds.diffusion import SIDE, WIDTH, pictures, save_diffusion
from tests.worlds.federation import SimulatedFederation, opened, run_federation, told_of
from tests.worlds.processes import Processes, processes
from tests.worlds.rosters import SERVER, make_roster

EVERYONE = (1, 2, 3, 4)
NAMES = ("a", "b", "c", "d")
CONCEPTS = (("slots", 1), ("domains", "d0+d1"), ("concepts", 1), ("width", WIDTH), ("epochs", 1))
PATIENCE = {"join_seconds": 30, "step_seconds": 30}


def world_of(folder: Path, protection: str = "masked") -> SimulatedFederation:
    """Four members with pictures of two domains, behind a gate of two honest ones."""
    model = f"diffusers:{save_diffusion(folder / 'model')}"
    roster, _ = make_roster(len(EVERYONE), protection)
    data = PublicData("images", (SIDE, SIDE, 3), ("0", "1"), None, None)
    choices = PlanChoices(
        method="fedbip",
        parameters=CONCEPTS,
        class_gate=2,
        backbone=model,
        radius=8.1,
        protection=protection,
        max_records=64,
        dropouts=0,
        **PATIENCE,
    )
    setup = RoundSetup.of(make_plan(data, roster, choices, OperatingSystem()), roster)
    records = {}
    for member in EVERYONE:
        source = folder / f"{member}.npz"
        np.savez(source, **pictures(per_cell=6, domains=2, seed=member))
        records[member] = read_records(setup.plan, str(source), model)
    return SimulatedFederation(folder / "parties", setup, records)


@pytest.mark.parametrize("kill", [[], [(2, "sent", "Outcome")]], ids=["nothing", "the server"])
def test_all_end_with_means_and_concepts_of_the_opened_sums(tmp_path: Path, kill: list[tuple[int, str, str]]) -> None:
    """Census, concepts and slots, one artifact that anyone makes again of the sums, though the server dies between."""
    world = world_of(tmp_path)
    ended = asyncio.run(run_federation(world, kill=list(kill)))
    assert (len(ended.stages), ended.restarts) == (3, len(kill))
    (outcome,) = {outcome for _, outcome in ended.clients.values()}
    last = ended.stages[-1]
    means, texts = world.setup.method.read_artifact(told_of(world, outcome).head)
    assert isinstance(means, SlotMeans)
    assert conclude(last, EVERYONE, opened(world, last)).require_artifact().digest == means.digest
    assert means.counts.tolist() == [24.0] * 4
    assert means.concepts is not None
    assert texts["backbone"] == "diffusers:model"
    for transcript in (*world.transcripts(1, ended.stages), *world.transcripts(0, ended.stages)):
        verify_transcript(transcript)


def test_nothing_of_a_picture_is_in_a_transcript(tmp_path: Path) -> None:
    """Neither its latent as integers nor its pixels, of any member, at any party."""
    world = world_of(tmp_path, "shared")
    ended = asyncio.run(run_federation(world))
    for party in (0, *EVERYONE):
        for path in world.transcripts(party, ended.stages):
            content = path.read_bytes()
            for records in world.records.values():
                assert records.inputs is not None
                assert records.integers[0].astype("<i8").tobytes()[:64] not in content
                assert records.inputs[0].tobytes()[:64] not in content


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Processes]:
    """Four members and a server over gRPC, with a census, concept vectors and slots to sum; nobody runs yet."""
    exact = {"epsilon": float("inf"), "delta": None, "adjacency": None, "class_gate": 2, "dropouts": 0}
    data = PublicData("images", (SIDE, SIDE, 3), ("0", "1"), None, None)
    model = f"diffusers:{save_diffusion(tmp_path / 'model')}"
    given = {"method": "fedbip", "parameters": CONCEPTS, "data": data, "backbone": model, "radius": 8.1}
    with processes(tmp_path, 60, names=NAMES, **given, **exact) as found:
        for name in NAMES:
            policy = replace(policy_accepting(found.plan, name), refinement_without_noise=True)
            (tmp_path / name / "policy.toml").write_text(policy.to_toml())
        yield found


def start(federation: Processes, name: str) -> None:
    """Start a party, or start it again; members have pictures of two domains and the diffusion model."""
    if name == SERVER:
        return federation.start(name)
    source = federation.folder / f"{name}.npz"
    np.savez(source, **pictures(per_cell=6, domains=2, seed=ord(name)))
    return federation.start(name, "--data", str(source), "--backbone", f"diffusers:{federation.folder / 'model'}")


@pytest.mark.long
@pytest.mark.parametrize("mortal", [SERVER, "b"])
@pytest.mark.parametrize("session", [2, 3], ids=["concepts", "slots"])
def test_killed_processes_go_on(federation: Processes, mortal: str, session: int) -> None:
    """Whoever dies with a vector under way goes on; transcripts of all three sums verify and name all members."""
    run_killing(federation, mortal, session, start=start)
    _, found = verified_result(federation)
    assert len(found) == 3
