"""A plan whose members train with noise of their own, from beginning to end over the real parties and ledgers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from secagg.agreement.plan import NoiseFrom
from secagg.ledger import Ledger
from secagg.plan_facts.facts import plan_cost
from secagg.privacy import TrainingCost
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.federation import SimulatedFederation, run_federation

PARAMETERS = {"rounds": 2, "sampling": 0.3, "steps": 2, "batch": 5, "clip": 20.0}
PROJECTED = {"rounds": 2, "sampling": 0.3, "steps": 3, "batch": 5, "width": 8}
EVERYONE = (1, 2, 3, 4)
PATIENCE = {"join_seconds": 10, "step_seconds": 10}  # the first training loads torch


@pytest.mark.parametrize("protection", ["masked", "shared", "none"])
def test_training_is_charged_and_verifies(tmp_path: Path, protection: str) -> None:
    """Every member's ledger has one row with the cost of all its steps, and every transcript of two rounds verifies."""
    given = {"method": "fedavg", "parameters": tuple(PARAMETERS.items()), "noise": NoiseFrom.MEMBER}
    world = SimulatedFederation.of(tmp_path, refine=0, protection=protection, **given, **PATIENCE)
    ended = asyncio.run(run_federation(world))
    assert len(ended.stages) == 2
    for member in EVERYONE:
        (entry,) = Ledger(world.state(member), create=False).entries()
        (spent,) = entry.release.spent
        assert isinstance(spent.cost, TrainingCost)
        assert spent.cost.steps.steps == 4
        assert entry.release.epsilon == world.setup.plan.epsilon
    for transcript in world.transcripts(1, ended.stages):
        verify_transcript(transcript)


async def test_training_that_ends_early_stays_charged_whole_and_says_so(tmp_path: Path) -> None:
    """Its steps are one release, that no part of the ledger takes back: a member is told so, and how much left it."""
    given = {"method": "fedavg", "parameters": tuple(PARAMETERS.items()), "noise": NoiseFrom.MEMBER}
    world = SimulatedFederation.of(tmp_path, refine=0, **given)
    played = await run_federation(world, leaves={2: 1, 3: 1})
    for member in (1, 4):
        reason = str(played.clients[member])
        assert "1 of 2 sums may have left, and your ledger was charged epsilon" in reason
        assert "for the whole plan" in reason
        (entry,) = world.ledger(member).entries()
        assert entry.release.epsilon == world.setup.plan.epsilon


@pytest.mark.parametrize(
    ("method", "protection", "noise"),
    [
        ("fedpcl", "masked", NoiseFrom.CLIENT),
        ("fedpcl", "encrypted", NoiseFrom.CLIENT),
        ("fedpcl", "shared", NoiseFrom.AGGREGATOR),
        ("fedproto", "shared", NoiseFrom.CLIENT),
        ("fedproto", "none", NoiseFrom.CLIENT),
    ],
)
def test_training_beside_noisy_sums_is_charged_once(
    tmp_path: Path, method: str, protection: str, noise: NoiseFrom
) -> None:
    """Every member's ledger has one row with the cost of steps and sums together, and every transcript verifies."""
    given = {"method": method, "parameters": tuple(PROJECTED.items()), "noise": noise}
    world = SimulatedFederation.of(tmp_path, refine=0, protection=protection, **given, **PATIENCE)
    ended = asyncio.run(run_federation(world))
    assert len(ended.stages) == 2
    for member in EVERYONE:
        (entry,) = Ledger(world.state(member), create=False).entries()
        (spent,) = entry.release.spent
        assert isinstance(spent.cost, TrainingCost)
        assert spent.cost.steps.steps == 3
        assert spent.cost.squared_mu > 0
        assert spent == plan_cost(world.setup.facts)[0]
    for transcript in world.transcripts(1, ended.stages):
        verify_transcript(transcript)
