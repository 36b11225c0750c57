"""`secagg canaries`, and `secagg audit --canaries`: epsilon from a session that runs once."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from secagg.agreement.plan import write_plan
from secagg.encoding import Normalisation
from secagg.plan_facts.records import read_records
from tests.cli.command import Command
from tests.worlds.federation import SimulatedFederation, run_federation

pytestmark = pytest.mark.usefixtures("repeatable_chance")

FEW = ("audit", "--simulate", "--dataset", "digits", "--threat-model", "released_head_black_box")


def own_data(path: Path, seed: int) -> Path:
    """A member's features, which vary in the first half of 64 dimensions only."""
    generator = np.random.default_rng(seed)
    labels = np.arange(40) % 3
    features = generator.normal(size=(40, 64)) * (np.arange(64) < 32)
    features[:, :3] += 3 * np.eye(3)[labels]
    np.savez(path, features=features, labels=labels)
    return path


def test_member_plants_canaries_and_audits_the_session(secagg: Command, tmp_path: Path) -> None:
    """From the plan to the bound: the member's command, a masked session of four, and the audit of its transcript."""
    exact = {"epsilon": float("inf"), "delta": None, "adjacency": None}
    grid = {"normalise": Normalisation.CENTRED_UNIT, "max_records": 128}
    world = SimulatedFederation.of(tmp_path, refine=0, dimension=64, **exact, **grid)
    write_plan(world.setup.plan, tmp_path / "plan")
    mine, out = own_data(tmp_path / "1.npz", 1), tmp_path / "planted"
    told = secagg("canaries", "--plan", tmp_path / "plan", "--data", mine, "--out", out, "--count", 24, "--json", "-")
    assert told.code == 0
    assert told.json == {"data": str(out / "data.npz"), "canaries": str(out / "canaries.npz"), "count": 24}
    files = {member: own_data(tmp_path / f"{member}.npz", member) for member in world.setup.roster.clients}
    records = {member: read_records(world.setup.plan, str(path)) for member, path in files.items()}
    records[1] = read_records(world.setup.plan, told.json["data"])
    world = replace(world, records=records)
    stages = asyncio.run(run_federation(world)).stages
    transcript = world.transcripts(0, stages)[0]
    asked = ("audit", transcript, "--canaries", told.json["canaries"], "--known", mine)
    said = secagg(*asked, "--threat-model", "released_head_black_box", "--json", "-")
    found = said.json["promise"]["one_run"]
    assert "24 of 24 guesses were right" in found["sentence"]
    assert found["lower"] > 1.5
    assert not found["refuted"]
    again = secagg("canaries", "--plan", tmp_path / "plan", "--data", mine, "--out", out, "--quiet")
    assert again.code == 2
    assert "already" in again.complaint


def test_simulation_with_canaries_says_what_it_found(secagg: Command, tmp_path: Path) -> None:
    """The bound, the claim and the power stand in JSON, on the page and in the text (false failures: below 1e-4).

    The head's own attack is inconclusive: 180 others are too few.
    """
    page, findings = tmp_path / "audit.html", tmp_path / "audit.json"
    promise = ("--epsilon", "1", "--delta", "1e-5", "--adjacency", "add-remove")
    said = secagg(*FEW, *promise, "--canaries", "60", "--html", page, "--json", findings)
    assert said.code == 4
    found = json.loads(findings.read_text(encoding="utf-8"))["promise"]["one_run"]
    assert "1 is claimed" in found["sentence"]
    assert "99 %" in found["method"]
    assert found["lower"] < 1
    assert found["sentence"] in said.out
    assert "60 canaries could have shown no more than" in found["power"]
    assert "from one run, at least" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*FEW, "--canaries", "many"), "say how many"),
        ((*FEW, "--canaries", "65"), "plant no more than 64"),
        ((*FEW, "--canaries", "1"), "at least 2"),
        (("canaries", "--plan", "nowhere", "--data", "mine.npz", "--out", "folder"), "nowhere"),
    ],
)
def test_bad_canaries_are_refused(secagg: Command, arguments: tuple[str, ...], words: str) -> None:
    """No number, too many, too few, or no plan: one line, exit 2."""
    said = secagg(*arguments, "--quiet")
    assert said.code == 2
    assert words in said.complaint
