"""MPFT's k-means in secure sums from beginning to end: census of cells, three sums, a head, and servers that lie."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods.slots.slots import Centres
from secagg.encoding import Normalisation
from secagg.errors import MalformedMessage, ProtocolViolation, SessionAborted
from secagg.heads import parse_safetensors
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.records import LocalRecords
from secagg.session.outcome import OutcomeContents, check_outcome
from secagg.verification.transcript_series import verify_transcript
from secagg.wire import decode, encode
from tests.federation.test_rounds import lying, outcome_of
from tests.session.noise_checks import check_noise, check_promise
from tests.worlds.federation import Finished, SimulatedFederation, opened, run_federation, told_of
from tests.worlds.setups import exact

EVERYONE = (1, 2, 3, 4)
EXACT = {"epsilon": math.inf, "delta": None, "adjacency": None, "normalise": Normalisation.CENTRED_UNIT}
PARAMETERS = (("domains", "art+photo"), ("sampling", "cluster"), ("slots", 2), ("rounds", 2), ("epochs", 5))
LONELY = (2, 1)
"""The class and domain of which only client 1 has records."""


def clustering(folder: Path, **choices: Any) -> SimulatedFederation:
    """Four members with records of three classes in two domains."""
    world = SimulatedFederation.of(folder, method="mpft", parameters=PARAMETERS, class_gate=2, colluders=0, **choices)
    records = {}
    for member, own in world.records.items():
        records[member] = without(own) if member > 1 else own
    return replace(world, records=records)


def without(records: LocalRecords) -> LocalRecords:
    """The records of the other cells."""
    return records.take(np.flatnonzero((records.labels != LONELY[0]) | (records.domains != LONELY[1])))


@pytest.fixture(scope="module", params=[EXACT, {"epsilon": 4000.0}], ids=["exact", "noise"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A plan in which everyone took part; noise so small that the gate decides as the exact census would."""
    world = clustering(tmp_path_factory.mktemp("finished"), **request.param)
    return world, asyncio.run(run_federation(world))


def test_census_then_slots_then_clusters(finished: Finished) -> None:
    """Four sums, each that of the records in the cells that passed, plus the planned noise; everyone has the head."""
    world, played = finished
    shapes = [[block.shape for block in stage.sum.layout.blocks] for stage in played.stages]
    assert shapes == [[(3, 2)], *[[(3, 2, 2), (3, 2, 2, 4)]] * 3]
    for number, stage in enumerate(played.stages):
        whole = sum(exact(stage, own if number == 0 else without(own)) for own in world.records.values())
        assert np.array_equal(whole, sum(exact(stage, own) for own in world.records.values()))
        noise = opened(world, stage) - whole
        if stage.plan.has_noise:
            check_noise(stage, noise, 4)
        assert noise.any() == stage.plan.has_noise
    for _, outcome in played.clients.values():
        assert outcome.members == EVERYONE
        assert parse_safetensors(told_of(world, outcome).head)[0].present.all()
    if world.setup.plan.has_noise:
        check_promise(world.setup.plan, world.setup.roster)


def test_every_transcript_verifies(finished: Finished) -> None:
    """Anybody's transcript of any of the sums verifies, and says which of the four it is of."""
    world, played = finished
    for number, stage in enumerate(played.stages, start=1):
        for member in (0, *EVERYONE):
            assert verify_transcript(world.transcripts(member, (stage,))[0])["round"] == f"{number} of 4"


def test_plan_says_what_is_summed(finished: Finished) -> None:
    """All sums in order, and that the gate is for each domain."""
    rows = dict(explain(finished[0].setup.facts))
    assert rows["what is summed"] == (
        "census 3×2: 6 integers, then counts 3×2×2, class sums 3×2×2×4: 60 integers, "
        "then 2 times counts 3×2×2, class sums 3×2×2×4: 60 integers, over the same records"
    )
    assert rows["class gate"].startswith("classes, domain by domain, of which fewer than 3 clients have a record")


def moved(outcome: OutcomeContents, by: int) -> OutcomeContents:
    """An outcome with one entry of one centre elsewhere."""
    told = decode(Centres, outcome.broadcast)
    entries = np.frombuffer(told.rows, dtype="<i4").copy()
    entries[-1] += by if entries[-1] <= 0 else -by
    return replace(outcome, broadcast=encode(replace(told, rows=entries.tobytes())))


def test_centres_that_do_not_follow_are_refused(finished: Finished) -> None:
    """Each client recomputes the centres from the released sums: a unit more or less in one entry is a breach."""
    world, played = finished
    for stage in played.stages[1:3]:
        outcome = outcome_of(world, stage)
        check_outcome(stage, outcome)
        with pytest.raises(ProtocolViolation, match="party 0: the centres it broadcasts do not follow"):
            check_outcome(stage, moved(outcome, 1))
        with pytest.raises(MalformedMessage):
            check_outcome(stage, replace(outcome, broadcast=outcome.broadcast[:-1]))
        with pytest.raises(ProtocolViolation, match="party 0: announces a head after a sum that gives none"):
            check_outcome(stage, replace(outcome, head=b"a head"))


async def test_server_that_tells_one_client_other_centres_is_named(tmp_path: Path) -> None:
    """A client that is told other centres leaves before it sends anything by them; the others finish."""
    world = clustering(tmp_path, **EXACT)
    played = await run_federation(world, tamper=lying(world, lambda outcome: moved(outcome, 1), 1, 2))
    refusal = played.clients.pop(1)
    assert isinstance(refusal, SessionAborted)
    assert "the centres it broadcasts do not follow from the released sums" in refusal.reason
    assert {outcome.members for _, outcome in played.clients.values()} == {(2, 3, 4)}
