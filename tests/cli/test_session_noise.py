"""`secagg audit` of recorded sessions whose members drew the planned noise, or less of it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from secagg.parties import contribution, read_records
from secagg.privacy import discrete_gaussian
from secagg.statistics import Normalisation
from tests.cli.command import Command
from tests.worlds.federation import SimulatedFederation, run_federation

pytestmark = pytest.mark.usefixtures("repeatable_chance")

MEMBERS, EACH, DIMENSION = 4, 400, 64
CENTRED, UNIT = Normalisation.CENTRED_UNIT, Normalisation.UNIT


def population(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Records of three classes that overlap."""
    generator, labels = np.random.default_rng(seed), np.arange(count) % 3
    return generator.normal(size=(count, DIMENSION)) + 0.5 * np.eye(3)[labels] @ np.ones((3, DIMENSION)), labels


def save(path: Path, features: np.ndarray, labels: np.ndarray) -> Path:
    """A table of records."""
    np.savez(path, features=features, labels=labels)
    return path


class Lab:
    """One recorded session at ε = 2 whose members' σ is `factor` times what the plan says, and everybody's records."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, factor: float, normalisation: Normalisation) -> None:
        def short(segments, randomness):
            return np.rint(factor * discrete_gaussian(segments, randomness)).astype(np.int64)

        patch.setattr(contribution, "discrete_gaussian", short)
        world = SimulatedFederation.of(
            folder, MEMBERS, 0, dimension=DIMENSION, epsilon=2.0, max_records=512, normalisation=normalisation
        )
        whole = population(MEMBERS * EACH, seed=3)
        parts = [tuple(each[place :: MEMBERS] for each in whole) for place in range(MEMBERS)]
        self.files = {
            "all": save(folder / "all.npz", *whole),
            "one": save(folder / "one.npz", *parts[0]),
            "strangers": save(folder / "strangers.npz", *population(800, seed=4)),
            "public": save(folder / "public.npz", *population(1600, seed=5)),
        }
        for member, part in zip(world.setup.roster.clients, parts, strict=True):
            path = save(folder / f"member-{member}.npz", *part)
            world.records[member] = read_records(world.setup, str(path))
        self.transcript = world.transcripts(0, asyncio.run(run_federation(world)).stages)[0]

    def audit(self, secagg: Command, known: str):
        """The audit of the server's transcript by somebody who has these records."""
        asked = ("audit", self.transcript, "--threat-model", "curious_server", "--json", "-")
        return secagg(*asked, "--known", self.files[known], "--public", self.files["public"])


@pytest.mark.parametrize("factor", [1.0, 0.0, 0.7, 0.8])
def test_page_follows_the_noise_of_the_session(
    secagg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    """Too little noise is never green, and broken where it shows; the planned noise passes with all records known."""
    lab = Lab(tmp_path, monkeypatch, factor, CENTRED)
    for known in ("all", "one", "strangers"):
        said = lab.audit(secagg, known)
        noise, state = said.json["promise"]["session_noise"], said.json["state"]
        print(factor, known, said.code, state, noise["sentence"], [l["sentence"] for l in said.json["gate"]["lines"] if l["outcome"]!="pass"])


@pytest.mark.parametrize("factor", [1.0, 0.7])
def test_u(
    secagg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    lab = Lab(tmp_path, monkeypatch, factor, UNIT)
    for known in ("all", "strangers"):
        said = lab.audit(secagg, known)
        noise, state = said.json["promise"]["session_noise"], said.json["state"]
        print(factor, known, said.code, state, noise["sentence"], [l["sentence"] for l in said.json["gate"]["lines"] if l["outcome"]!="pass"])
