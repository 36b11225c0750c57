"""What leaves a member, of every method: what methods/README.md says is what transcripts and the server hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from methods import METHODS
from secagg.encoding import Normalisation
from secagg.federation import session_folder
from secagg.protection.messages import UploadHeader
from secagg.transcript import payload_of, peek, read_transcript
from tests.benchmarks import leaving, systems
from tests.federation import test_adapters, test_fraug
from tests.worlds.federation import SimulatedFederation, run_federation

TUNED = {"rounds": 2, "interval": 1, "fixed": "clip=5", "space": "rate=log:0.01:1"}
SHORT: dict[str, dict[str, Any]] = {
    "fedavg": {"rounds": 2},
    "fedavg-one-shot": {"epochs": 1},
    "fedcgs": {"refine": 2},
    "fedpcl": {"rounds": 2, "width": 8},
    "fedpop": TUNED,
    "fedproto": {"rounds": 2, "width": 8},
    "fedtc": {"epochs": 1},
    "fraug": test_fraug.PARAMETERS | {"rounds": 2},
    "mpft": {"epochs": 1},
}
"""Parameters that make a plan short."""
MOST_FRAMES = 16_384
"""Bytes of a member's messages beside the vector, in a sum among eight: keys, envelopes, signatures."""


def world_of(name: str, folder: Path) -> SimulatedFederation:
    """A short plan of the method, without noise, and records for it."""
    if name == "feddat":
        return test_adapters.world_of(folder)
    exact = {"epsilon": float("inf"), "delta": None, "adjacency": None, "join_seconds": 20, "step_seconds": 20}
    given = {"parameters": tuple(SHORT.get(name, {}).items()), "normalise": Normalisation.UNIT}
    return SimulatedFederation.of(folder, clients=8 if name == "fedpop" else 4, method=name, **exact, **given)


@pytest.mark.parametrize("name", METHODS)
def test_what_leaves_a_member_is_what_the_table_counts(name: str, tmp_path: Path) -> None:
    """A vector in each sum, of the bytes that the plan alone tells, whatever the member holds; else short messages."""
    world = world_of(name, tmp_path)
    ended = asyncio.run(run_federation(world))
    told = [each for each in leaving.leaving(world.setup) for _ in range(each.times)]
    assert len(ended.stages) == len(told)
    for stage, expected in zip(ended.stages, told, strict=True):
        assert expected.numbers == stage.context.length
        uploads = session_folder(world.state(0), stage) / "uploads"
        for member in world.setup.roster.clients:
            (path,) = world.transcripts(member, (stage,))
            sent = [each.content for each in read_transcript(path) if each.kind == "sent"]
            bodies = [peek(each) for each in sent]
            lengths = [payload_of(each, UploadHeader).length for each in bodies if each.step == UploadHeader.__name__]
            assert lengths == [expected.bytes]
            assert (uploads / f"{member}.bin").stat().st_size == expected.bytes
            assert sum(map(len, sent)) < MOST_FRAMES


def test_the_table_is_made_of_the_plans_as_they_are() -> None:
    """`python -m tests.benchmarks.leaving` would change nothing."""
    text = leaving.README.read_text(encoding="utf-8")
    assert leaving.placed(text, leaving.table()) == text


def test_a_table_without_its_place_is_refused() -> None:
    """A guide that lost the marks is not overwritten."""
    with pytest.raises(ValueError, match="made by"):
        leaving.placed("no marks", "| a |\n")


def test_the_systems_table_is_made_of_plans_and_results_as_they_are() -> None:
    """`python -m tests.benchmarks.systems` would change nothing, and every promise in it is a plan that can be made."""
    text = systems.README.read_text(encoding="utf-8")
    assert leaving.placed(text, systems.table(), systems.BEGIN) == text


def test_a_figure_that_is_not_there_is_refused() -> None:
    """A row, a column or a table that the results lost is no figure."""
    for cell in (systems.Cell("FedDAT", "absent", "shared"), systems.Cell("FedDAT", "FedDAT", "shared", table=9)):
        with pytest.raises(ValueError, match="FedDAT has"):
            _ = cell.figure
